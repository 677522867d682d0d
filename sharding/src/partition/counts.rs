//! Counts: a dim in blocks, one from each source, and a given number of indices of each block for each rank.

use core::ops::Range;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{DimPartition, NamedPartition, RankRanges};
use crate::{Error, Placement};

/// `CN(d,[[..],..])`: the dim is one block for each list, and rank `j` keeps the `j`-th part of every block.
///
/// This describes several sources that send rows to each rank, as tokens are sent to experts. Row `i` of the
/// table holds the counts of source `i` for each rank. The tensor is the concatenation of the sources' rows,
/// each sorted by receiving rank.
///
/// ```text
/// rank j keeps   [b_i + c_i0 + .. + c_i(j-1), .. + c_ij)   of every block i,   b_i = the sum of all counts before row i
/// ```
///
/// [`Counts::source_placement`], a ragged shard, is the placement on the sources; [`Counts::target_placement`] is that on the
/// target ranks. The plan between the two is the exchange of exactly these counts, and the plan back is its
/// inverse. Other counts need new plans.
///
/// ```
/// use reshard_sharding::{Counts, Mesh, Sharding};
/// let mesh: Mesh = "ep=2".parse()?;
/// // Source 0 sends three tokens to expert 0 and two to expert 1; source 1 sends one to expert 0.
/// let counts = Counts::new(&[vec![3, 2], vec![1, 0]])?.within(4)?;
/// let before = Sharding::new(&mesh, &[6], &[counts.source_placement(0)])?;
/// let after = Sharding::new(&mesh, &[6], &[counts.target_placement(0)])?;
/// assert_eq!((before.to_string(), after.to_string()), ("RG(0,[5,1])".into(), "CN(0,[[3,2],[1,0]])".into()));
/// assert_eq!((after.global_indices(0)?, after.global_indices(1)?), (vec![0, 1, 2, 5], vec![3, 4]));
/// assert!(counts.within(3).unwrap_err().to_string().contains("rank 0 receives 4"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    rows: Arc<[Vec<usize>]>,
}

/// Maximum number of counts of a table.
const MOST_COUNTS: usize = 1 << 20;

impl Counts {
    /// Creates a table with the number of indices of each source for each rank.
    ///
    /// Fails with `placement` for a table without counts, with lists of several lengths, of more than 2^20
    /// counts, or whose sum does not fit.
    pub fn new(rows: &[Vec<usize>]) -> Result<Counts, Error> {
        let bad = |reason: String| Err(Error::Placement { reason });
        let ranks = rows.first().map_or(0, Vec::len);
        if ranks == 0 {
            return bad(
                "counts must be a list per source with a number per rank, such as [[3,1],[0,2]]".into()
            );
        }
        if let Some((i, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != ranks) {
            return bad(format!(
                "the counts of source {i} are for {} ranks, and those of source 0 for {ranks}",
                row.len()
            ));
        }
        if rows.len().saturating_mul(ranks) > MOST_COUNTS {
            return bad(format!(
                "{} sources with {ranks} counts each are more than {MOST_COUNTS} counts",
                rows.len()
            ));
        }
        if rows.iter().flatten().try_fold(0usize, |sum, &n| sum.checked_add(n)).is_none() {
            return bad(format!("the counts of {} sources add up to more than {}", rows.len(), usize::MAX));
        }
        Ok(Counts { rows: rows.into() })
    }

    /// Returns the same counts if no rank receives more than `capacity` indices.
    ///
    /// Fails with `placement`, which names the rank that receives most.
    #[doc(hidden)]
    pub fn within(self, capacity: usize) -> Result<Counts, Error> {
        let most = (0..self.ranks())
            .map(|rank| (self.receives(rank), rank))
            .max_by_key(|&(n, rank)| (n, core::cmp::Reverse(rank)));
        match most {
            Some((n, rank)) if n > capacity => Err(Error::Placement {
                reason: format!(
                    "rank {rank} receives {n} indices, and its capacity is {capacity}; send it {} fewer",
                    n - capacity
                ),
            }),
            Some(_) | None => Ok(self),
        }
    }

    /// Returns the counts of each source, one per rank.
    #[doc(hidden)]
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.rows.iter().map(Vec::as_slice)
    }

    /// Returns the number of sources.
    #[doc(hidden)]
    pub fn sources(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of target ranks.
    #[doc(hidden)]
    pub fn ranks(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// Returns the sum of all counts.
    #[doc(hidden)]
    pub fn total(&self) -> usize {
        self.rows.iter().flatten().sum()
    }

    /// Returns the number of indices that a rank receives.
    pub fn receives(&self, rank: usize) -> usize {
        self.rows.iter().map(|row| row.get(rank).copied().unwrap_or(0)).sum()
    }

    /// Returns the placement before the exchange, over an axis of the sources: each holds its own rows.
    pub fn source_placement(&self, dim: usize) -> Placement {
        let sizes: Vec<usize> = self.rows.iter().map(|row| row.iter().sum()).collect();
        Placement::ragged(dim, &sizes)
    }

    /// Returns the placement after the exchange, over an axis of the ranks.
    ///
    /// Each rank holds its rows of every source.
    pub fn target_placement(&self, dim: usize) -> Placement {
        Placement::Custom { dim, cut: NamedPartition::shipped(Arc::new(self.clone())) }
    }

    /// Parses counts from the arguments after the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn DimPartition>, Error> {
        let inside = arguments.trim().strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]"));
        let row =
            |row: &str| -> Option<Vec<usize>> { row.split(',').map(|n| n.trim().parse().ok()).collect() };
        let rows: Option<Vec<Vec<usize>>> = inside.and_then(|rows| {
            rows.split(']')
                .enumerate()
                .map(|(i, text)| match i {
                    0 => row(text),
                    _ => row(text.trim_start().strip_prefix(',')?.trim_start().strip_prefix('[')?),
                })
                .collect()
        });
        let Some(rows) = rows else {
            let shown: String = arguments.chars().take(80).collect();
            return Err(Error::Placement {
                reason: format!(
                    "CN takes a list of counts per source after the dim, such as CN(0,[[3,1],[0,2]]), not {shown:?}"
                ),
            });
        };
        Ok(Arc::new(Counts::new(&rows)?))
    }
}

impl DimPartition for Counts {
    fn name(&self) -> &'static str {
        "CN"
    }

    fn arguments(&self) -> String {
        let mut text = String::from("[");
        for (i, row) in self.rows.iter().enumerate() {
            text.push_str(if i == 0 { "[" } else { ",[" });
            for (j, n) in row.iter().enumerate() {
                // Writing to a String does not fail.
                let _ = write!(text, "{}{n}", if j == 0 { "" } else { "," });
            }
            text.push(']');
        }
        text.push(']');
        text
    }

    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        if (extent, ranks) != (self.total(), self.ranks()) {
            return Err(Error::Placement {
                reason: format!(
                    "counts of {} indices for {} ranks do not match a dim of {extent} over {ranks} ranks",
                    self.total(),
                    self.ranks()
                ),
            });
        }
        let mut pieces = RankRanges::new(ranks);
        let mut begin = 0;
        for row in self.rows.iter() {
            for (rank, &n) in row.iter().enumerate() {
                let part: Range<usize> = begin..begin + n;
                begin = part.end;
                pieces.add(rank, part)?;
            }
        }
        Ok(pieces)
    }
}
