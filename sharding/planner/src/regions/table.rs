//! One dim of an intersection: the regions that overlap, and the number of shared indices.
//!
//! Where some digits of a source region must be the receiver's own (its anchor), the regions of one anchor
//! are summed once. So no receiver needs a walk over all regions.

/// Regions of the source that one of the target overlaps, with the number of shared indices.
pub(super) type Met = Vec<(usize, usize)>;

/// By region of the target, a value for the source regions of each anchor.
pub(super) type ByAnchor<T> = Vec<Vec<(usize, T)>>;

/// One dim.
#[derive(Debug)]
pub(super) struct Table {
    /// By region of the target, the overlapping regions of the source.
    pub(super) met: Vec<Met>,
    /// By region of the target, the number of overlapping regions, and of shared indices in total.
    pub(super) all: Vec<(usize, usize)>,
    /// By region of the target, the same per anchor; empty if no digit must be the receiver's own.
    pub(super) of_anchor: ByAnchor<(usize, usize)>,
    /// By region of the source, the digits that must be the receiver's own; empty if there are none.
    pub(super) anchored: Vec<usize>,
    /// By region of the source, the distance of its ranks from those of the first.
    pub(super) offset: Vec<i64>,
}

impl Table {
    pub(super) fn may_meet(&self, i: usize, own: Option<usize>) -> bool {
        own.is_none_or(|own| self.anchored.is_empty() || self.anchored[i] == self.anchored[own])
    }

    /// Returns the sum over the overlapping regions, by region of the target and by anchor.
    pub(super) fn by_anchor<T>(
        &self,
        first: impl Fn(usize) -> T,
        add: impl Fn(&mut T, (usize, usize)),
    ) -> ByAnchor<T> {
        let of_region = |met: &Met| {
            let mut of_anchor: Vec<(usize, usize, usize)> = met
                .iter()
                .map(|&(i, shared)| (self.anchored.get(i).copied().unwrap_or(0), i, shared))
                .collect();
            of_anchor.sort_unstable();
            let mut sums: Vec<(usize, T)> = Vec::new();
            for (anchor, i, shared) in of_anchor {
                if sums.last().is_none_or(|(last, _)| *last != anchor) {
                    sums.push((anchor, first(i)));
                }
                if let Some((_, sum)) = sums.last_mut() {
                    add(sum, (i, shared));
                }
            }
            sums
        };
        self.met.iter().map(of_region).collect()
    }

    /// Returns the sum for the anchor of a region of the source.
    pub(super) fn at_anchor<'s, T>(&self, sums: &'s [(usize, T)], own: usize) -> Option<&'s T> {
        let anchor = self.anchored.get(own).copied().unwrap_or(0);
        sums.binary_search_by_key(&anchor, |sum| sum.0).ok().map(|at| &sums[at].1)
    }

    /// Returns the number of overlapping regions, and of shared indices, for a receiver with its own region.
    pub(super) fn seen(&self, j: usize, own: Option<usize>) -> (usize, usize) {
        match (own, self.of_anchor.get(j)) {
            (Some(own), Some(sums)) => self.at_anchor(sums, own).copied().unwrap_or_default(),
            (None, _) | (_, None) => self.all[j],
        }
    }
}
