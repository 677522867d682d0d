//! Boxes: a loop nest restricted to the elements that one rank holds and another wants, as two layouts of one shape.
//!
//! ```text
//! box(j, s, t)  = { i of nest j : M_j(i) held by s, P_j(i) wanted by t }
//! descriptor    = ( src_s . M_j , loc_t . P_j )  restricted to box(j, s, t)
//! ```
//!
//! A held index list is a few families of ranges. Restricted to a family, an index is `start + q step + r`, with `r`
//! below the length of a range, and its local index is `local + q len + r`. So the dim is split by `step`
//! ([`split`]), `r` is restricted, and the local index is affine in the loops. A nest that does
//! not align results in a head, a body and a tail; nothing is listed by element.

use reshard_layout::{Mode, Modes};
use reshard_mapping::Piece;
use reshard_mapping::internal::{Side, split};

use crate::error::{Error, ErrorKind};
use crate::part::Loop;
use crate::shards::{DimLists, Family};

/// The largest number of boxes of one loop nest.
const MOST_BOXES: usize = 1 << 18;

/// The dims of one side of a nest, after splits.
#[derive(Clone, Debug)]
struct View {
    /// The dim before the splits, and the local indices of it per step of this dim.
    dims: Vec<(usize, usize)>,
    /// Local index of the first element on each dim before the splits, without the offsets of the nest.
    first: Vec<usize>,
    /// The chosen index list of each dim, for the dims that are restricted already.
    lists: Vec<usize>,
}

impl View {
    fn new(dims: usize) -> Self {
        Self { dims: (0..dims).map(|dim| (dim, 1)).collect(), first: vec![0; dims], lists: vec![0; dims] }
    }
}

/// A loop nest that is restricted on some dims.
#[derive(Clone, Debug)]
pub(crate) struct Nest {
    piece: Piece,
    target: View,
    source: View,
}

impl Nest {
    pub(crate) fn new(piece: &Piece) -> Self {
        let (target, source) = (View::new(piece.target_offset.len()), View::new(piece.source_offset.len()));
        Self { piece: piece.clone(), target, source }
    }

    pub(crate) fn elements(&self) -> u64 {
        self.piece.elements() as u64
    }

    /// Returns the index lists of the source that the elements are in.
    pub(crate) fn source_lists(&self) -> &[usize] {
        &self.source.lists
    }

    fn view_mut(&mut self, side: Side) -> &mut View {
        match side {
            Side::Target => &mut self.target,
            Side::Source => &mut self.source,
        }
    }

    /// Appends the parts whose indices on a dim are in an index list.
    ///
    /// Dims are restricted from the last to the first, so that the number of this one has not changed.
    fn restrict(
        &self,
        side: Side,
        dim: usize,
        list: (usize, &[Family]),
        out: &mut Vec<Self>,
    ) -> Result<(), Error> {
        let mut ranges = Vec::new();
        for family in list.1 {
            self.piece.restrict(side, dim, family.start, family.end(), &mut ranges);
            for mut piece in ranges.drain(..) {
                piece.offsets_mut(side)[dim] -= family.start;
                let mut nest = Self { piece, ..self.clone() };
                let view = nest.view_mut(side);
                view.first[dim] = family.local;
                view.lists[dim] = list.0;
                if family.count == 1 {
                    out.push(nest);
                    continue;
                }
                view.dims[dim] = (dim, family.len);
                view.dims.insert(dim + 1, (dim, 1));
                let (mut pieces, mut within) = (Vec::new(), Vec::new());
                split(&nest.piece, side, dim, family.step, &mut pieces)
                    .map_err(|error| Error::new(ErrorKind::TooLarge, error.to_string()))?;
                for piece in pieces {
                    piece.restrict(side, dim + 1, 0, family.len, &mut within);
                }
                out.extend(within.into_iter().map(|piece| Self { piece, ..nest.clone() }));
            }
        }
        if out.len() > MOST_BOXES {
            let message =
                format!("a loop nest has more than {MOST_BOXES} boxes; choose placements that nest");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        Ok(())
    }

    /// Returns the parts whose target indices are in a region.
    pub(crate) fn within_target(&self, dims: &[DimLists], lists: &[usize]) -> Result<Vec<Self>, Error> {
        let mut nests = vec![self.clone()];
        for dim in (0..dims.len()).rev() {
            let mut narrower = Vec::new();
            for nest in &nests {
                let list = (lists[dim], &dims[dim].lists[lists[dim]][..]);
                nest.restrict(Side::Target, dim, list, &mut narrower)?;
            }
            nests = narrower;
        }
        Ok(nests)
    }

    /// Returns the parts whose source indices are in one region each.
    pub(crate) fn by_source(&self, dims: &[DimLists]) -> Result<Vec<Self>, Error> {
        let mut nests = vec![self.clone()];
        for dim in (0..dims.len()).rev() {
            let mut narrower = Vec::new();
            for nest in &nests {
                let start = nest.piece.source_offset[dim];
                let axes = nest.piece.axes.iter().filter(|axis| axis.source_dim == Some(dim));
                let span: usize = axes.map(|axis| axis.source_step * (axis.extent - 1)).sum();
                for k in dims[dim].near(start, start + span + 1) {
                    nest.restrict(Side::Source, dim, (k, &dims[dim].lists[k]), &mut narrower)?;
                }
            }
            nests = narrower;
        }
        Ok(nests)
    }

    /// Returns the offsets of the first element in both buffers, and the loops: with the strides of the buffers.
    pub(crate) fn descriptor(&self, source: &[usize], target: &[usize], first: &[usize]) -> Descriptor {
        let offset = |view: &View, offsets: &[usize], strides: &[usize]| -> usize {
            let of_dims = view.dims.iter().zip(offsets).map(|((dim, weight), k)| k * weight * strides[*dim]);
            of_dims.chain(view.first.iter().zip(strides).map(|(k, stride)| k * stride)).sum()
        };
        let in_buffer: usize = first.iter().zip(target).map(|(k, stride)| k * stride).sum();
        let loops = self.piece.axes.iter().map(|axis| {
            let (dim, weight) = self.target.dims[axis.target_dim];
            let to = axis.target_step * weight * target[dim];
            let from = axis.source_dim.map_or(0, |k| {
                let (dim, weight) = self.source.dims[k];
                axis.source_step * weight * source[dim]
            });
            Loop { extent: axis.extent as u64, source_stride: from as u64, target_stride: to as u64 }
        });
        Descriptor {
            source_offset: offset(&self.source, &self.piece.source_offset, source) as u64,
            target_offset: (offset(&self.target, &self.piece.target_offset, target) + in_buffer) as u64,
            loops: coalesced(loops.collect()),
        }
    }
}

/// A box in the buffers of two ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) source_offset: u64,
    pub(crate) target_offset: u64,
    pub(crate) loops: Vec<Loop>,
}

/// Returns row-major strides.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

/// Returns the fewest loops of the same copy, by descending target stride.
pub(crate) fn coalesced(mut loops: Vec<Loop>) -> Vec<Loop> {
    loops.sort_by_key(|one| one.target_stride);
    let mut modes: Modes<(i64, i64)> = Modes::new();
    for one in loops.iter().filter(|one| one.extent != 1) {
        // Offsets within a tensor are below 2^60.
        let stride = (one.source_stride as i64, one.target_stride as i64);
        modes.push_coalesced(0, Mode::new(one.extent as i64, stride));
    }
    let one = |mode: &Mode<(i64, i64)>| Loop {
        extent: mode.extent as u64,
        source_stride: mode.stride.0 as u64,
        target_stride: mode.stride.1 as u64,
    };
    modes.iter().rev().map(one).collect()
}
