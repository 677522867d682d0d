//! One dim of an intersection: which regions meet, and in how many indices.
//!
//! Where some of a source's number must be the receiver's own (its anchor), those of one anchor are added up once, so that nobody
//! goes through all regions for each receiver.

/// Regions of the source that one of the target meets, and in how many indices.
pub(super) type Met = Vec<(usize, usize)>;

/// By region of the target, something of those of one anchor, by anchor.
pub(super) type ByAnchor<T> = Vec<Vec<(usize, T)>>;

/// One dim.
#[derive(Debug)]
pub(super) struct Table {
    /// By region of the target, what it meets.
    pub(super) met: Vec<Met>,
    /// By region of the target, how many those are, and in how many indices together.
    pub(super) all: Vec<(usize, usize)>,
    /// By region of the target, the same of those of one anchor, by anchor; empty if nothing must be the receiver's own.
    pub(super) of_anchor: ByAnchor<(usize, usize)>,
    /// By region of the source, what of its number must be the receiver's own; empty if nothing must.
    pub(super) anchored: Vec<usize>,
    /// By region of the source, how far its ranks are from those of the first.
    pub(super) offset: Vec<i64>,
}

impl Table {
    pub(super) fn may_meet(&self, i: usize, own: Option<usize>) -> bool {
        own.is_none_or(|own| self.anchored.is_empty() || self.anchored[i] == self.anchored[own])
    }

    /// Of every region of the target, what those that it meets add up to, by anchor.
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

    /// What stands at the anchor of a region of the source, of sums by anchor.
    pub(super) fn at_anchor<'s, T>(&self, sums: &'s [(usize, T)], own: usize) -> Option<&'s T> {
        let anchor = self.anchored.get(own).copied().unwrap_or(0);
        sums.binary_search_by_key(&anchor, |sum| sum.0).ok().map(|at| &sums[at].1)
    }

    /// How many regions of the source one of the target meets, and in how many indices, for a receiver with its own.
    pub(super) fn seen(&self, j: usize, own: Option<usize>) -> (usize, usize) {
        match (own, self.of_anchor.get(j)) {
            (Some(own), Some(sums)) => self.at_anchor(sums, own).copied().unwrap_or_default(),
            (None, _) | (_, None) => self.all[j],
        }
    }
}
