//! The ranges of a dim partition for its lengths: evaluated once, checked, and stored.

use core::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::pieces::MOST_RANKS;
use super::{DimCut, MAX_PIECES, NamedPartition, RankRanges};
use crate::Error;
use crate::region::Interval;

/// A dim partition over some ranks, with its ranges for every length that it is used for.
///
/// Equal values have equal ranges for equal lengths, whatever the custom partition reports.
#[derive(Clone, Debug)]
pub struct Made {
    cut: NamedPartition,
    ranks: usize,
    /// Ascending by length.
    of: Vec<OfLength>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfLength {
    len: usize,
    pieces: RankRanges,
    /// Ranks that have, between them, every length that some rank keeps.
    places: Vec<usize>,
}

impl Made {
    /// Returns the partition before evaluation, for no lengths.
    pub(crate) fn new(cut: &NamedPartition, ranks: usize) -> Made {
        Made { cut: cut.clone(), ranks, of: Vec::new() }
    }

    /// Returns the dim partition.
    pub fn cut(&self) -> &NamedPartition {
        &self.cut
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the lengths that it is evaluated for, ascending.
    pub fn lens(&self) -> impl ExactSizeIterator<Item = usize> + Clone + '_ {
        self.of.iter().map(|x| x.len)
    }

    /// Evaluates the partition for these lengths, ascending.
    ///
    /// Returns chunks if it equals chunks for all of them.
    pub(super) fn of_lens(self: Arc<Made>, lens: &[usize]) -> Result<DimCut, Error> {
        if self.ranks == 1 {
            return Ok(DimCut::chunks(1, 1));
        }
        if self.lens().eq(lens.iter().copied()) {
            return Ok(DimCut::Other(self));
        }
        let refused = |reason: String| Err(Error::Placement { reason });
        let (cut, ranks) = (&self.cut, self.ranks);
        if ranks > MOST_RANKS || lens.len().checked_mul(ranks).is_none_or(|n| n > MAX_PIECES) {
            return refused(format!(
                "{cut} over {ranks} ranks needs a list per rank for each of {} lengths: at most {MOST_RANKS} ranks \
                 and {MAX_PIECES} lists; chunk the dim over some of them first",
                lens.len()
            ));
        }
        let mut of = Vec::with_capacity(lens.len());
        let mut count = 0;
        for &len in lens {
            let pieces = cut.cut().ranges(len, ranks)?;
            if let Some(fault) = pieces.fault(len, ranks) {
                return refused(format!(
                    "{cut} of {len} indices over {ranks} ranks is not a partition: {fault}; each of the {len} indices \
                     must belong to exactly one rank"
                ));
            }
            count += pieces.count();
            if count > MAX_PIECES {
                return refused(format!(
                    "{cut} over {ranks} ranks has more than {MAX_PIECES} ranges; split the dim more coarsely"
                ));
            }
            let places = pieces.places();
            of.push(OfLength { len, pieces, places });
        }
        let made = Made { cut: cut.clone(), ranks, of };
        Ok(match made.chunks() {
            Some(pieces) => DimCut::chunks(pieces, ranks),
            None => DimCut::Other(Arc::new(made)),
        })
    }

    /// Returns the split factor with which chunks give the same ranges of every length, if there is one.
    ///
    /// The chunk lengths that a split factor produces determine it up to a range, of which the least is
    /// tried: chunks of `c` of `N` take at least `ceil(N/c)` of them.
    fn chunks(&self) -> Option<usize> {
        let some = || self.of.iter().filter(|x| x.len > 0).map(|x| (x, x.pieces.piece_len(x.len)));
        let k = some().map(|(x, c)| x.len.div_ceil(c)).max().unwrap_or(1);
        some().all(|(x, c)| x.len.div_ceil(k) == c && x.pieces.are_chunks(x.len, c)).then_some(k)
    }

    fn pieces(&self, len: usize) -> Option<&OfLength> {
        // Usually there is only one length.
        self.of.iter().find(|x| x.len == len)
    }

    /// Returns the indices that rank `i` keeps of `len`, one of the evaluated lengths.
    pub(super) fn of(&self, len: usize, i: usize) -> &[Interval] {
        self.pieces(len).map_or(&[], |x| x.pieces.of(i))
    }

    /// Returns the number of indices that rank `i` keeps of `len`.
    pub(super) fn len(&self, len: usize, i: usize) -> usize {
        self.pieces(len).map_or(0, |x| x.pieces.len(i))
    }

    /// Returns ranks that have, between them, every length that some rank keeps of `len`.
    pub(super) fn places(&self, len: usize) -> SmallVec<[usize; 8]> {
        match self.pieces(len) {
            Some(x) => SmallVec::from_slice(&x.places),
            None => SmallVec::from_slice(&[0, self.ranks - 1]),
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.cut)?;
        for (i, len) in self.lens().enumerate() {
            write!(f, "{}{len}", if i == 0 { "" } else { "," })?;
        }
        write!(f, " over {}", self.ranks)
    }
}

impl PartialEq for Made {
    fn eq(&self, other: &Made) -> bool {
        self.ranks == other.ranks && self.cut == other.cut && self.of == other.of
    }
}

impl Eq for Made {}

impl core::hash::Hash for Made {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.cut.hash(state);
        self.ranks.hash(state);
    }
}
