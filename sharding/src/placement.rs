//! Placements: the effect of one mesh axis on a tensor, with PyTorch's names and semantics.
//!
//! One placement per mesh axis, applied from the outermost axis in; each splits the part that the earlier
//! ones left this rank.

use core::fmt;
use core::num::NonZeroUsize;
use std::sync::Arc;

use reshard_layout::InlineVec;

use crate::partition::{DimCut, DimPartition, NamedPartition};
use crate::{Error, ReduceOp};

mod read;

pub(crate) use read::{Read, WORDS, runs_on};

/// The effect of one mesh axis of `n` ranks on a tensor.
///
/// ```
/// use reshard_sharding::{Placement, ReduceOp};
/// assert_eq!("S(0)".parse::<Placement>()?, Placement::Shard(0));
/// assert_eq!("_StridedShard(dim=0, sf=2)".parse::<Placement>()?.to_string(), "SS(0,2)");
/// assert_eq!("P".parse::<Placement>()?, Placement::Partial(ReduceOp::Sum));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every rank holds the same.
    Replicate,
    /// `torch.chunk` of this dim: chunks of `ceil(N/n)`, the last ones short or empty.
    Shard(usize),
    /// The dim is split into `split_factor` chunks, each over the `n` ranks.
    ///
    /// Rank `i` concatenates its `i`-th parts.
    StridedShard {
        /// The dim that is sharded.
        dim: usize,
        /// The number of chunks that the dim is first split into, at least 1.
        split_factor: usize,
    },
    /// The dim is split into ranges of these sizes, one per rank of the axis; zeros are allowed.
    ///
    /// They add up to the part of the dim that the earlier axes left, which must be the same on every rank.
    Ragged {
        /// The dim that is sharded.
        dim: usize,
        /// The number of indices that each rank of the axis keeps.
        sizes: Arc<[usize]>,
    },
    /// A named dim partition: `Z(0)`, zigzag, `BL(0,4)`, blocks, `RO(0,2)`, rolled, or a custom one.
    Custom {
        /// The dim that is sharded.
        dim: usize,
        /// The partition among the ranks of the axis.
        cut: NamedPartition,
    },
    /// Every rank holds a partial value of the whole shape; the value is their reduction.
    Partial(ReduceOp),
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicate => f.write_str("R"),
            Placement::Shard(dim) => write!(f, "S({dim})"),
            Placement::StridedShard { dim, split_factor } => write!(f, "SS({dim},{split_factor})"),
            Placement::Ragged { dim, sizes } => {
                write!(f, "RG({dim},[")?;
                for (i, n) in sizes.iter().enumerate() {
                    write!(f, "{}{n}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("])")
            }
            Placement::Custom { dim, cut } => cut.write(f, *dim),
            Placement::Partial(op) => write!(f, "P({op})"),
        }
    }
}

impl Placement {
    /// Returns a ragged shard of a dim.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Placement, Sharding};
    /// let mesh: Mesh = "ep=4".parse()?;
    /// let s = Sharding::new(&mesh, &[16, 2], &[Placement::ragged(0, &[3, 5, 0, 8])])?;
    /// assert_eq!(s.to_string(), "RG(0,[3,5,0,8])");
    /// assert_eq!(s.local_shape(1)?.as_slice(), [5, 2]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn ragged(dim: usize, sizes: &[usize]) -> Placement {
        Placement::Ragged { dim, sizes: sizes.into() }
    }

    /// Returns a zigzag over a dim: see [`Zigzag`](crate::partition::Zigzag).
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// assert_eq!(Placement::zigzag(1).to_string(), "Z(1)");
    /// assert_eq!("Z(1)".parse::<Placement>()?, Placement::zigzag(1));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn zigzag(dim: usize) -> Placement {
        Placement::Custom { dim, cut: NamedPartition::zigzag() }
    }

    /// Blocks of a dim: see [`Block`](crate::partition::Block).
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// let p = Placement::block(1, 3.try_into()?);
    /// assert_eq!(p.to_string(), "BL(1,3)");
    /// assert_eq!("BL(1,3)".parse::<Placement>()?, p);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block(dim: usize, len: NonZeroUsize) -> Placement {
        Placement::Custom { dim, cut: NamedPartition::block(len) }
    }

    /// Returns an index of a dim for each rank, rolled: see [`Rolled`](crate::partition::Rolled).
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// assert_eq!(Placement::rolled(0, 2).to_string(), "RO(0,2)");
    /// assert_eq!("RO(0,2)".parse::<Placement>()?, Placement::rolled(0, 2));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn rolled(dim: usize, by: usize) -> Placement {
        Placement::Custom { dim, cut: NamedPartition::rolled(by) }
    }

    /// Returns a placement by a custom dim partition: see [`DimPartition`].
    ///
    /// Fails like [`NamedPartition::new`].
    pub fn custom(dim: usize, cut: Arc<dyn DimPartition>) -> Result<Placement, Error> {
        Ok(Placement::Custom { dim, cut: NamedPartition::new(cut)? })
    }

    /// Returns the dim that it shards, if it shards one.
    pub fn dim(&self) -> Option<usize> {
        match self {
            Placement::Shard(dim)
            | Placement::StridedShard { dim, .. }
            | Placement::Ragged { dim, .. }
            | Placement::Custom { dim, .. } => Some(*dim),
            Placement::Replicate | Placement::Partial(_) => None,
        }
    }

    /// Returns the same placement for another dim; a placement without a dim is unchanged.
    ///
    /// ```
    /// use reshard_sharding::Placement;
    /// assert_eq!("SS(0,2)".parse::<Placement>()?.with_dim(3).to_string(), "SS(3,2)");
    /// assert_eq!(Placement::Replicate.with_dim(3), Placement::Replicate);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[must_use]
    pub fn with_dim(&self, dim: usize) -> Placement {
        match self {
            Placement::Shard(_) => Placement::Shard(dim),
            Placement::StridedShard { split_factor, .. } => {
                Placement::StridedShard { dim, split_factor: *split_factor }
            }
            Placement::Ragged { sizes, .. } => Placement::Ragged { dim, sizes: Arc::clone(sizes) },
            Placement::Custom { cut, .. } => Placement::Custom { dim, cut: cut.clone() },
            Placement::Replicate | Placement::Partial(_) => self.clone(),
        }
    }

    /// Returns the dim that it shards over `n` ranks, and the split.
    #[doc(hidden)]
    #[inline]
    pub fn cut(&self, n: usize) -> Option<(usize, DimCut)> {
        match self {
            Placement::Shard(dim) => Some((*dim, DimCut::chunks(1, n))),
            Placement::StridedShard { dim, split_factor } => Some((*dim, DimCut::chunks(*split_factor, n))),
            Placement::Ragged { dim, sizes } => Some((*dim, DimCut::ragged(sizes))),
            Placement::Custom { dim, cut } => Some((*dim, DimCut::by(cut, n))),
            Placement::Replicate | Placement::Partial(_) => None,
        }
    }

    /// Returns the placement of a split of a dim.
    pub(crate) fn of_cut(dim: usize, cut: &DimCut) -> Placement {
        match (cut.sizes(), cut.other()) {
            (Some(sizes), _) => Placement::Ragged { dim, sizes: sizes.clone() },
            (None, Some(made)) => Placement::Custom { dim, cut: made.cut().clone() },
            (None, None) => Placement::of_chunks(dim, cut.pieces()),
        }
    }

    /// Returns the placement that splits a dim into `pieces` chunks.
    #[inline]
    pub(crate) fn of_chunks(dim: usize, pieces: usize) -> Placement {
        if pieces == 1 {
            Placement::Shard(dim)
        } else {
            Placement::StridedShard { dim, split_factor: pieces }
        }
    }
}

/// One placement per mesh axis, outermost first.
///
/// ```
/// use reshard_sharding::Placements;
/// assert_eq!("S(0), R, SS(0,2), P".parse::<Placements>()?.to_string(), "S(0),R,SS(0,2),P(sum)");
/// assert_eq!("(Shard(dim=0), Replicate())".parse::<Placements>()?.to_string(), "S(0),R");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placements(pub InlineVec<Placement, 4>);

impl core::ops::Deref for Placements {
    type Target = [Placement];
    fn deref(&self) -> &[Placement] {
        &self.0
    }
}

impl FromIterator<Placement> for Placements {
    fn from_iter<I: IntoIterator<Item = Placement>>(items: I) -> Placements {
        Placements(items.into_iter().collect())
    }
}

impl fmt::Display for Placements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            p.fmt(f)?;
        }
        Ok(())
    }
}
