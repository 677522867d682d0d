//! Digit systems: the coarsest cut of dims and mesh axes in which two shardings are maps from digits to positions.
//!
//! A *position* is a digit of a dim's index, a *digit* is a sub-axis of the mesh; a state says of every digit where it
//! stands: at a position (injectively, with equal radix), replicated, or partial. Cuts are the products of radices from
//! the most significant end: digit `[u, v)` of an axis has the sub-axes of product `u` above it and size `v / u`. The
//! system of two shardings is the least fixed point of
//!
//! ```text
//! axis_cuts[a] = {1, n_a};  dim_cuts[i] = {1, N_i}
//! for each digit [u, v) of axis a that stands at [b, c) of dim i, in either sharding:
//!     axis_cuts[a] += {u, v};  dim_cuts[i] += {b, c}
//!     dim_cuts[i]  += b*k/u  for k in axis_cuts[a], u < k < v
//!     axis_cuts[a] += u*k/b  for k in dim_cuts[i],  b < k < c
//! ```
//!
//! in which every set must stay a chain (each cut divides the next). Every cut is forced, so a set that is not a chain
//! means that no digit system exists.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::digits::{Digit, Owner};
use crate::redistribute::merge::Merged;
use crate::sharding::PartialAxis;
use crate::{Mesh, ReduceOp, Sharding};

/// Where a mesh digit stands in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// At a position (its index in [`System::positions`], of which there are at most 62: their product fits in an `i64`).
    At(u8),
    /// Replicated.
    Replicated,
    /// Partial with this op.
    Partial(ReduceOp),
}

impl Place {
    pub(crate) fn at(position: usize) -> Place {
        Place::At(position as u8)
    }

    pub(crate) fn position(self) -> Option<usize> {
        match self {
            Place::At(p) => Some(usize::from(p)),
            Place::Replicated | Place::Partial(_) => None,
        }
    }

    pub(crate) fn is_partial(self) -> bool {
        match self {
            Place::Partial(_) => true,
            Place::At(_) | Place::Replicated => false,
        }
    }
}

/// A place for every digit of a system.
pub(crate) type State = SmallVec<[Place; 8]>;

/// One digit of a dim's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Position {
    pub(crate) dim: usize,
    pub(crate) radix: usize,
}

/// The digits of a mesh and the positions of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) mesh: Mesh,
    pub(crate) shape: SmallVec<[usize; 4]>,
    /// By axis, most significant first; none of size 1.
    pub(crate) digits: SmallVec<[SubAxis; 8]>,
    /// By dim, most significant first; none of radix 1.
    pub(crate) positions: SmallVec<[Position; 12]>,
}

/// The system of two shardings of one tensor on one mesh and their states, or `None` if their digits do not nest.
///
/// `seeds` are cuts `(axis, product)` to start from.
pub(crate) fn refine(
    from: &Sharding,
    to: &Sharding,
    seeds: &[(usize, usize)],
) -> Option<(Arc<System>, State, State)> {
    let mut merged = Merged::new();
    merged.fill(from, to, seeds).then(|| merged.system(from))
}

impl System {
    /// The digit at each position in a state.
    pub(crate) fn owners(&self, state: &State) -> SmallVec<[Option<usize>; 12]> {
        let mut owners = SmallVec::from_elem(None, self.positions.len());
        for (d, place) in state.iter().enumerate() {
            if let Some(p) = place.position() {
                owners[p] = Some(d);
            }
        }
        owners
    }

    /// The stride of every position in the local row-major buffer of a state; 0 where a digit owns it.
    pub(crate) fn local_strides(&self, owners: &[Option<usize>]) -> SmallVec<[usize; 12]> {
        let mut strides = SmallVec::from_elem(0, self.positions.len());
        let mut stride = 1;
        for p in (0..self.positions.len()).rev() {
            if owners[p].is_none() {
                strides[p] = stride;
                stride *= self.positions[p].radix;
            }
        }
        strides
    }

    /// The number of elements that every rank holds in a state.
    pub(crate) fn local_numel(&self, state: &State) -> usize {
        self.numel() / self.shards(state)
    }

    /// The number of elements of the tensor.
    pub(crate) fn numel(&self) -> usize {
        self.positions.iter().map(|p| p.radix).product()
    }

    /// The number of different shards in a state.
    fn shards(&self, state: &State) -> usize {
        let placed = state.iter().zip(&self.digits).filter(|(x, _)| x.position().is_some());
        placed.map(|(_, d)| d.size).product()
    }

    /// Splits a position that no state uses into `(radix, rest)`; later positions move up by one.
    pub(crate) fn split(&mut self, position: usize, radix: usize, states: &mut [&mut State]) {
        let whole = self.positions[position];
        if whole.radix == radix {
            return;
        }
        self.positions[position].radix = radix;
        self.positions.insert(position + 1, Position { radix: whole.radix / radix, ..whole });
        for place in states.iter_mut().flat_map(|s| s.iter_mut()) {
            if let Place::At(p) = place
                && usize::from(*p) > position
            {
                *p += 1;
            }
        }
    }

    /// The sharding that a state is.
    pub(crate) fn sharding(&self, state: &State) -> Result<Sharding, crate::Error> {
        let owners = self.owners(state);
        let digits = self.positions.iter().zip(&owners).map(|(p, o)| {
            let owner = o.map_or(Owner::Local, |d| {
                let SubAxis { axis, pre, .. } = self.digits[d];
                Owner::Axis { axis, pre }
            });
            Digit { dim: p.dim, owner, radix: p.radix }
        });
        let partial = state.iter().zip(&self.digits).filter_map(|(place, &sub)| match *place {
            Place::Partial(op) => Some(PartialAxis { sub, op }),
            Place::At(_) | Place::Replicated => None,
        });
        Sharding::from_digits(&self.mesh, &self.shape, digits, partial)
    }

    /// The digits of a mesh coordinate.
    pub(crate) fn digits_of(&self, coordinate: &[usize]) -> SmallVec<[usize; 8]> {
        self.digits.iter().map(|d| d.digit(coordinate[d.axis], self.mesh.axes()[d.axis].size())).collect()
    }

    /// The rank with these digits.
    pub(crate) fn rank_of(&self, digits: &[usize]) -> usize {
        let mut c = crate::mesh::Coordinate::from_elem(0, self.mesh.axes().len());
        for (d, &x) in self.digits.iter().zip(digits) {
            c[d.axis] += x * d.post(self.mesh.axes()[d.axis].size());
        }
        self.mesh.rank_at(&c).expect("digits are below their radix")
    }
}
