//! The buffers of a target tensor: on each rank, its parts one after another on one dim.
//!
//! A target without `|` has one part. The part `j` of the others starts on rank `r` at the sum of the local extents of
//! the parts before it, so each part is an ordinary sharding, with an offset in the buffer.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, ErrorKind, shown};
use crate::shards::Shards;
use crate::side::SideTensor;

/// A part of a target tensor.
#[derive(Debug)]
pub(crate) struct Part {
    /// First index of the part on the dim, in the whole tensor.
    pub(crate) start: usize,
    /// Its number of indices on the dim.
    pub(crate) extent: usize,
    pub(crate) shards: Shards,
    /// The ranks that want the same elements at the same offset of their buffers.
    pub(crate) wanters: Vec<Wanters>,
}

/// Ranks that want one region, at one offset of buffers of one shape.
#[derive(Debug)]
pub(crate) struct Wanters {
    /// Ranks, ascending.
    pub(crate) ranks: Vec<usize>,
    /// The region of the part.
    pub(crate) region: usize,
    /// First index of the part on the dim of the parts, in the buffer.
    pub(crate) first: usize,
    /// Extents of the buffer.
    pub(crate) buffer: Vec<usize>,
}

/// The buffers of a target tensor.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Dim on which the parts are concatenated.
    pub(crate) dim: usize,
    pub(crate) parts: Vec<Part>,
    /// Extents of the buffers.
    pub(crate) buffers: BTreeMap<usize, Vec<usize>>,
    /// Elements of all buffers.
    pub(crate) elements: u128,
    /// `true` if all buffers have one shape, with the parts at the same offsets.
    pub(crate) is_uniform: bool,
}

/// A region, the first index of its part, and the extents of the buffer.
type BufferKey = (usize, usize, Vec<usize>);

impl Frame {
    /// Returns the buffers of a tensor of this shape whose parts have these extents on a dim.
    pub(crate) fn new(
        tensor: &SideTensor,
        shape: &[usize],
        dim: usize,
        extents: &[usize],
        placements: &str,
    ) -> Result<Self, Error> {
        let texts: Vec<&str> = placements.split('|').map(str::trim).collect();
        if texts.len() != 1 && texts.len() != extents.len() {
            let message = format!(
                "`{}` has {} parts, and placements for {}; give them part by part, or once for all",
                shown(&tensor.name),
                extents.len(),
                texts.len()
            );
            return Err(Error::invalid(message));
        }
        let (mut parts, mut start) = (Vec::with_capacity(extents.len()), 0);
        for (k, extent) in extents.iter().enumerate() {
            let mut of_part = shape.to_vec();
            if let Some(of_dim) = of_part.get_mut(dim) {
                *of_dim = *extent;
            }
            let text = if texts.len() == 1 { texts[0] } else { texts[k] };
            let shards = Shards::new(tensor, &of_part, text)?;
            parts.push(Part { start, extent: *extent, shards, wanters: Vec::new() });
            start += extent;
        }
        let mut frame = Self { dim, parts, buffers: BTreeMap::new(), elements: 0, is_uniform: true };
        let mut ranks: Vec<usize> = tensor.mesh.ranks().collect();
        ranks.sort_unstable();
        let mut known = vec![HashMap::new(); extents.len()];
        for rank in ranks {
            frame.add(tensor, rank, &mut known)?;
        }
        frame.is_uniform = frame.parts.iter().all(|part| {
            let mut places = part.wanters.iter().map(|of| (of.first, &of.buffer));
            let first = places.next();
            places.all(|place| Some(place) == first)
        });
        Ok(frame)
    }

    /// Adds the buffer of a rank; `known` has the numbers of the wanters of each part.
    fn add(
        &mut self,
        tensor: &SideTensor,
        rank: usize,
        known: &mut [HashMap<BufferKey, usize>],
    ) -> Result<(), Error> {
        let of_part = |part: &Part| part.shards.of_rank(rank).map(|k| part.shards.held[k].shape.clone());
        let shapes: Vec<Vec<usize>> = self.parts.iter().filter_map(of_part).collect();
        let Some(mut buffer) = shapes.first().cloned() else { return Ok(()) };
        let starts: Vec<usize> = shapes
            .iter()
            .scan(0, |next, shape| {
                let start = *next;
                *next += shape.get(self.dim).copied().unwrap_or(0);
                Some(start)
            })
            .collect();
        if let Some(extent) = buffer.get_mut(self.dim) {
            *extent = shapes.iter().map(|shape| shape[self.dim]).sum();
        }
        for shape in &shapes {
            let differs = |dim: &usize| *dim != self.dim && shape[*dim] != buffer[*dim];
            if let Some(dim) = (0..shape.len()).find(differs) {
                let message = format!(
                    "the parts of `{}` have {} and {} indices on dim {dim} of rank {rank}; give them equal placements \
                     on all dims but {}",
                    shown(&tensor.name),
                    buffer[dim],
                    shape[dim],
                    self.dim
                );
                return Err(Error::new(ErrorKind::LocalShape, message));
            }
        }
        let found = tensor.local_shapes.get(&rank).or(tensor.local_shape.as_ref());
        if let Some(found) = found.filter(|found| **found != buffer) {
            let message = format!(
                "`{}` is {found:?} on rank {rank}, and its parts make {buffer:?}; check the placements and the mapping",
                shown(&tensor.name)
            );
            return Err(Error::new(ErrorKind::LocalShape, message));
        }
        for ((part, first), known) in self.parts.iter_mut().zip(starts).zip(known) {
            let Some(region) = part.shards.of_rank(rank) else { continue };
            let wanters = &mut part.wanters;
            let number = *known.entry((region, first, buffer.clone())).or_insert_with(|| {
                wanters.push(Wanters { ranks: Vec::new(), region, first, buffer: buffer.clone() });
                wanters.len() - 1
            });
            wanters[number].ranks.push(rank);
        }
        self.elements += buffer.iter().map(|extent| *extent as u128).product::<u128>();
        self.buffers.insert(rank, buffer);
        Ok(())
    }
}
