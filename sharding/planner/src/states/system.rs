//! Digit systems: the coarsest split of dims and mesh axes in which two shardings are maps from digits to
//! positions.
//!
//! A *position* is a mode of the zip of the two layouts, and a *digit* is a mode of the mesh. A state maps
//! every digit to a position (injectively, of equal extent), or makes it replicated or partial. The system of
//! two shardings is the zip refined until digits and positions match:
//!
//! ```text
//! zip(A, B), then   where steps [d, e) and [d', e') of one axis overlap, split both at d, e, d', e', and zip again
//! ```
//!
//! Every split is forced, so a split that does not divide means that no digit system exists. The tests
//! compare with the definition of the same system, as the least fixed point of sets of splits:
//!
//! ```text
//! axis_cuts[a] = {1, n_a};  dim_cuts[i] = {1, N_i}              splits are products of extents from the slowest end
//! for each digit [u, v) of axis a at position [b, c) of dim i, in either sharding:
//!     axis_cuts[a] += {u, v};  dim_cuts[i] += {b, c}
//!     dim_cuts[i]  += b*k/u  for k in axis_cuts[a], u < k < v
//!     axis_cuts[a] += u*k/b  for k in dim_cuts[i],  b < k < c
//! ```
//!
//! in which every set must stay a chain (each split divides the next).
//!
//! **The zip of two states is the geometry of the step between them.** With the digits at their positions, each mode of the
//! zip has a stride before and a stride after ([`System::zip_of`]):
//!
//! ```text
//! (local, local)   a loop of every block            (a@x, local)   gathered: a message for each value of the digit
//! (local, b@y)     my y digit picks what I read     (a@x, b@y)     permuted: the sender's x digit is my y digit
//! ```

use core::fmt;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::model::codes::{Code, Codes, PARTIAL, PARTIAL_LATER, REPLICATED};
use crate::model::network::is_hierarchical;
use crate::states::refine::Refined;
use reshard_sharding::PartialAxis;
use reshard_sharding::internal::canonical_partial;
use reshard_sharding::{Mesh, ReduceOp, Sharding};

/// The state of a mesh digit as one number, since states are compared and copied very often.
///
/// ```text
/// 0 .. 62      at this position (its index in [`System::zip`], of which there are at most 62: their product fits in an `i64`)
/// 63           replicated
/// 64 + word    partial with the op of this word
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place(u16);

/// The decoded form of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// At a position.
    At(u8),
    /// Replicated.
    Replicated,
    /// Partial with this op.
    Partial(ReduceOp),
}

impl Place {
    pub(crate) const REPLICATED: Place = Place(63);

    #[inline]
    pub(crate) fn at(position: usize) -> Place {
        Place(position as u16)
    }

    #[inline]
    pub(crate) const fn partial(op: ReduceOp) -> Place {
        Place(64 + op.word())
    }

    #[inline]
    pub(crate) fn stands(self) -> Stands {
        match self.0 {
            at @ 0..63 => Stands::At(at as u8),
            63 => Stands::Replicated,
            op => Stands::Partial(ReduceOp::of_word(op - 64)),
        }
    }

    #[inline]
    pub(crate) fn position(self) -> Option<usize> {
        (self.0 < 63).then_some(usize::from(self.0))
    }

    #[inline]
    pub(crate) fn is_partial(self) -> bool {
        self.0 > 63
    }

    /// Returns `true` if it is partial with an op that replicas satisfy unchanged, and shards cannot.
    #[inline]
    pub(crate) fn is_average(self) -> bool {
        match self.stands() {
            Stands::Partial(op) => !op.has_identity(),
            Stands::At(_) | Stands::Replicated => false,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stands().fmt(f)
    }
}

/// A [`Place`] for every digit of a system.
pub(crate) type State = SmallVec<[Place; 8]>;

/// The digits of a mesh and the zip of two shardings of a tensor on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) mesh: Mesh,
    pub(crate) shape: SmallVec<[usize; 4]>,
    /// By axis, slowest first; none of extent 1.
    pub(crate) digits: Modes<AxisStride>,
    /// The positions, the fastest of the row-major index first; none of extent 1.
    pub(crate) zip: Modes<(AxisStride, AxisStride)>,
}

/// Returns the system of two shardings on one mesh, and their states; `None` if their digits do not nest.
///
/// Both shardings are of one tensor. `seeds` are splits of axes to start from.
pub(crate) fn refine(
    from: &Sharding,
    to: &Sharding,
    seeds: &[AxisStride],
) -> Option<(Arc<System>, State, State)> {
    let mut refined = Refined::new();
    refined.fill(from, to, seeds).then(|| refined.system(from))
}

/// The digit at each position, if any; a mesh has at most 62.
pub(crate) type Standing = SmallVec<[Option<u8>; 32]>;

impl System {
    /// Returns the digit at each position in a state: the inverse of the state.
    pub(crate) fn standing(&self, state: &State) -> Standing {
        let mut standing = Standing::from_elem(None, self.zip.len());
        for (d, place) in state.iter().enumerate() {
            if let Some(p) = place.position() {
                standing[p] = Some(d as u8);
            }
        }
        standing
    }

    /// Returns a state as the layout of the row-major index: digits at their positions, the rest local.
    pub(crate) fn layout(&self, state: &State) -> Modes<AxisStride> {
        let mut modes = Modes::new();
        for m in &self.zip {
            modes.push(Mode::new(m.extent, AxisStride::local(1)));
        }
        for (digit, place) in self.digits.iter().zip(state) {
            if let Some(p) = place.position() {
                modes[p].stride = digit.stride;
            }
        }
        modes
    }

    /// Returns the zipped layouts of two states, one mode for each position, local strides dense.
    pub(crate) fn zip_of(&self, before: &State, after: &State) -> Vec<Mode<(AxisStride, AxisStride)>> {
        let mut zip = Vec::with_capacity(self.zip.len());
        for m in &self.zip {
            zip.push(Mode::new(m.extent, (AxisStride::local(1), AxisStride::local(1))));
        }
        for (digit, (before, after)) in self.digits.iter().zip(before.iter().zip(after)) {
            if let Some(p) = before.position() {
                zip[p].stride.0 = digit.stride;
            }
            if let Some(p) = after.position() {
                zip[p].stride.1 = digit.stride;
            }
        }
        let (mut first, mut second) = (1, 1);
        for Mode { extent, stride } in &mut zip {
            for (at, step) in [(&mut stride.0, &mut first), (&mut stride.1, &mut second)] {
                if at.is_local() {
                    *at = AxisStride::local(*step);
                    *step *= *extent;
                }
            }
        }
        zip
    }

    /// Returns the digits that change between two states, coalesced: by axis, slowest first.
    pub(crate) fn changed(&self, before: &State, after: &State) -> SmallVec<[Mode<AxisStride>; 4]> {
        let mut changed = Modes::new();
        for d in (0..before.len()).rev().filter(|&d| before[d] != after[d]) {
            changed.push_coalesced(0, self.digits[d]);
        }
        changed.reverse();
        SmallVec::from_slice(&changed)
    }

    /// Returns the number of elements that every rank holds in a state.
    pub(crate) fn local_numel(&self, state: &State) -> usize {
        let placed = state.iter().zip(&self.digits).filter(|(x, _)| x.position().is_some());
        self.numel() / placed.map(|(_, d)| d.extent as usize).product::<usize>()
    }

    /// Returns the number of elements of the tensor.
    pub(crate) fn numel(&self) -> usize {
        self.zip.iter().map(|m| m.extent as usize).product()
    }

    /// Splits an unused position so that its slower part has this extent, and returns the index of that part.
    ///
    /// Positions after it shift up by one.
    pub(crate) fn split(&mut self, position: usize, extent: i64, states: &mut [&mut State]) -> usize {
        let whole = self.zip[position];
        if whole.extent == extent {
            return position;
        }
        let (low, high) = whole.cut(whole.extent / extent).expect("the extent divides the position");
        self.zip[position] = low;
        self.zip.insert(position + 1, high);
        for place in states.iter_mut().flat_map(|s| s.iter_mut()) {
            if place.position().is_some_and(|p| p > position) {
                place.0 += 1;
            }
        }
        position + 1
    }

    /// Returns the sharding of a state.
    pub(crate) fn sharding(&self, state: &State) -> Result<Sharding, crate::Error> {
        let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
        for (place, &digit) in state.iter().zip(&self.digits) {
            if let Stands::Partial(op) = place.stands() {
                partial.extend(self.mesh.sub_axis(digit).map(|sub| PartialAxis { sub, op }));
            }
        }
        let partial = canonical_partial(&self.mesh, partial)?;
        let sharding = Sharding::from_modes(&self.mesh, &self.shape, self.layout(state), &partial);
        Ok(sharding.expect("positions are in dims"))
    }
}

/// Returns a state as codes, which distinguish partial digits from those of the source.
pub(crate) fn codes(state: &State, source: &State) -> Codes {
    let mut codes = Codes::new();
    for (&x, &s) in state.iter().zip(source) {
        codes.push(code(x, s));
    }
    codes
}

/// Returns the state of one digit as a code, which distinguishes a partial digit from that of the source.
pub(crate) fn code(place: Place, source: Place) -> Code {
    match (place.position(), place) {
        (Some(p), _) => p as Code,
        (None, Place::REPLICATED) => REPLICATED,
        (None, _) if place == source => PARTIAL,
        (None, _) => PARTIAL_LATER,
    }
}

/// Returns `true` if a digit needs only a slice or a zero-fill.
pub(crate) fn is_local([from, to]: [Place; 2]) -> bool {
    let becomes_terms = || from.position().is_some() && to.is_partial() && !to.is_average();
    from == to || from == Place::REPLICATED || becomes_terms()
}

/// Returns `true` if the ranks along some modes are a group; digits of a hierarchical axis may be none.
pub(crate) fn has_group(mesh: &Mesh, modes: &[Mode<AxisStride>]) -> bool {
    !is_hierarchical(mesh) || mesh.group_of_modes(modes).is_ok()
}
