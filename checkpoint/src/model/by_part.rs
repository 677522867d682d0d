//! Placements by part: tensors that every rank concatenates of its shards of several parts.
//!
//! With `w = q | k` and the placements `S(0) | R`, rank `r` holds `[q_r | k]`. So the parts are tensors with ordinary
//! shardings, and each of their shards is a box of the local tensor of a rank:
//!
//! ```text
//! part j, rank r:   indices of the whole:        the region of part j, moved by the extents of the parts before it
//!                   indices of the local tensor: from  sum over i < j of local extent i(r)  on, in the dim of the parts
//! ```
//!
//! The regions of one part are equal or disjoint, and those of two parts are disjoint. So they are the
//! distinct regions of the whole, like those of a single sharding.

use std::fmt;
use std::ops::Range;

use reshard_layout::internal::counted;
use reshard_mapping::LocalParts;
use reshard_sharding::{Mesh, Region, Sharding};

use crate::bytes::Bytes;
use crate::bytes::strided::nest;
use crate::error::Error;
use crate::model::placed::Placed;

/// The shardings of the parts that every rank concatenates.
pub(crate) struct ByPart {
    pub(crate) parts: LocalParts,
    /// One per part, all on the same mesh.
    shardings: Vec<Sharding>,
}

/// The location of a part's shard in the local tensor of a rank: equal runs at equal distances, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InRank {
    first: usize,
    run: usize,
    step: usize,
}

impl fmt::Display for ByPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, sharding) in self.shardings.iter().enumerate() {
            write!(f, "{}{sharding}", if at == 0 { "" } else { " | " })?;
        }
        Ok(())
    }
}

impl ByPart {
    /// Parses one placement text for each part, separated by `|`, or one text for all of them.
    pub(crate) fn parse(mesh: &Mesh, shape: &[usize], parts: &LocalParts, text: &str) -> Result<Self, Error> {
        let texts: Vec<&str> = text.split('|').collect();
        let count = parts.extents.len();
        if texts.len() != 1 && texts.len() != count {
            let message = format!(
                "`{text}` has placements for {}, but each rank concatenates {count}; pass one for each, or one for all",
                counted(texts.len(), "part", "parts")
            );
            return Err(Error::refused("spec", message));
        }
        let mut shardings = Vec::with_capacity(count);
        for (at, extent) in parts.extents.iter().enumerate() {
            let mut shape = shape.to_vec();
            if let Some(dim) = shape.get_mut(parts.dim) {
                *dim = *extent;
            }
            shardings.push(Sharding::parse(mesh, &shape, texts.get(at).unwrap_or(&texts[0]))?);
        }
        let this = Self { parts: parts.clone(), shardings };
        for rank in mesh.ranks() {
            this.local_shape(rank)?;
        }
        Ok(this)
    }

    pub(crate) fn shardings(&self) -> &[Sharding] {
        &self.shardings
    }

    /// Returns the shape of the local tensor of a rank.
    ///
    /// It is an error if the shards differ in other dims than that of the parts.
    pub(crate) fn local_shape(&self, rank: usize) -> Result<Vec<usize>, Error> {
        let mut whole: Option<Vec<usize>> = None;
        for sharding in &self.shardings {
            let shape = sharding.local_shape(rank)?.to_vec();
            let Some(whole) = &mut whole else {
                whole = Some(shape);
                continue;
            };
            let fits = |dim: &usize| *dim == self.parts.dim || shape[*dim] == whole[*dim];
            if !(0..shape.len()).all(|dim| fits(&dim)) {
                let message = format!(
                    "with `{self}` rank {rank} would concatenate {whole:?} and {shape:?} on dim {}; split the other dims equally",
                    self.parts.dim
                );
                return Err(Error::refused("spec", message));
            }
            whole[self.parts.dim] += shape[self.parts.dim];
        }
        Ok(whole.unwrap_or_default())
    }

    /// Returns the distinct regions of all parts in the whole tensor.
    ///
    /// Each position is a pair of a part and a rank, see [`ByPart::rank_of`].
    pub(crate) fn placed(&self) -> Result<Placed, Error> {
        let (mut placed, mut before) = (Placed::apart(Vec::new()), 0);
        for (sharding, extent) in self.shardings.iter().zip(&self.parts.extents) {
            placed.append(&Placed::of(sharding)?, |region| {
                let mut region: Region = region.clone();
                region.dims.get_mut(self.parts.dim).into_iter().flatten().for_each(|one| one.start += before);
                region
            });
            before += extent;
        }
        Ok(placed)
    }

    /// Returns the distinct regions of all parts, with the positions of their ranks.
    pub(crate) fn placed_on_ranks(&self) -> Result<Placed, Error> {
        let mut placed = self.placed()?;
        for holder in placed.holders.iter_mut().flatten() {
            *holder = self.rank_of(*holder);
        }
        placed.of_rank.clear();
        Ok(placed)
    }

    /// Returns the position of the rank of a pair of a part and a rank.
    pub(crate) fn rank_of(&self, pair: usize) -> usize {
        pair % self.shardings.first().map_or(1, |sharding| sharding.mesh().size())
    }

    /// Returns the location of each region of [`ByPart::placed`] in the local tensor of each of its ranks, in their order.
    pub(crate) fn in_ranks(&self, placed: &Placed) -> Result<Vec<Vec<InRank>>, Error> {
        let ranks: Vec<usize> = self.shardings.iter().take(1).flat_map(|one| one.mesh().ranks()).collect();
        let locals: Vec<Vec<usize>> =
            ranks.iter().map(|rank| self.local_shape(*rank)).collect::<Result<_, _>>()?;
        let dim = self.parts.dim;
        let mut before = vec![0; ranks.len()];
        let mut firsts = Vec::with_capacity(placed.of_rank.len());
        for sharding in &self.shardings {
            for (before, rank) in before.iter_mut().zip(&ranks) {
                firsts.push(*before);
                *before += sharding.local_shape(*rank)?[dim];
            }
        }
        let of_holder = |region: &Region, pair: usize| {
            let local = &locals[self.rank_of(pair)];
            let inner: usize = local.iter().skip(dim + 1).product();
            let run = region.local_shape()[dim] * inner;
            InRank { first: firsts[pair] * inner, run, step: local[dim] * inner }
        };
        let of_region = |(region, holders): (&Region, &Vec<usize>)| {
            holders.iter().map(|pair| of_holder(region, *pair)).collect()
        };
        Ok(placed.regions.iter().zip(&placed.holders).map(of_region).collect())
    }
}

impl InRank {
    /// Returns the bytes of a shard of `numel` elements, in the bytes of its local tensor.
    pub(crate) fn of(self, local: &Bytes, item: usize, numel: usize) -> Result<Bytes, Error> {
        if numel == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        let loops = [(numel / self.run, self.step), (self.run, 1)];
        nest(local.clone(), item, self.first, if self.run == numel { &loops[1..] } else { &loops })
    }

    /// Calls `each` for the parts of a range of a shard's bytes: the offset in the local tensor, and the range.
    pub(crate) fn each<E>(
        self,
        item: usize,
        range: Range<usize>,
        each: &mut dyn FnMut(usize, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (first, run, step) = (self.first * item, self.run * item, self.step * item);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at - at % run + run);
            each(first + at / run * step + at % run, at..end)?;
            at = end;
        }
        Ok(())
    }
}
