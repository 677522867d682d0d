//! Checked composition: the layout `R` with `R(i) = A(B(i))`, or the proof that there is none.
//!
//! Let `A` be coalesced, with modes `(s_1:d_1) ... (s_n:d_n)` and boundaries `P_k = s_1 * ... * s_k` for
//! `k < n`. On `[0, |A|)`
//!
//! ```text
//! A(y)  =  d_1 y + sum_k w_k floor(y / P_k)          w_k = d_{k+1} - s_k d_k, never 0
//! ```
//!
//! so `A(x + y) - A(x) - A(y)` is the sum of the weights of the boundaries over which `x + y` carries. A leaf
//! `(s:d)` of `B` walks `0, d, 2d, ...`: until the first carry, after `m = min_k ceil(P_k / (d mod P_k))`
//! steps, this is the mode `m : A(d)`, and from there on the leaf `(s/m : m d)` remains. If `m` does not
//! divide the remaining extent there is no mode. Different leaves add up without a carry exactly if, for
//! every boundary, the sum of the greatest remainders of all modes stays below it:
//! `need_k = sum (m-1) (D mod P_k) < P_k`.
//!
//! **Sound** always: `need_k < P_k` makes `floor` additive over the leaves. **Exact** if the weights of the
//! boundaries that `B` can reach have one sign, for then carries cannot cancel. Otherwise
//! [`exact`](super::exact) decides by enumeration. The chapter on composition has the proof, and the
//! counterexample to composing mode by mode without the check.

use smallvec::SmallVec;

use super::exact::recognise;
use crate::modes::coalesced;
use crate::modes::{Mode, Modes};
use crate::order::{div_rem, value_at};
use crate::profile::{MAX_DEPTH, MAX_LEAVES, Nest, Nests};
use crate::stride::Stride;
use crate::{Counted, Error, Layout, Obstacle, Operation};

/// A boundary between two modes of the outer layout, and how near to a carry over it the modes so far come.
#[derive(Clone, Copy)]
struct Carry {
    /// `P_k`, the product of the extents below it.
    product: i64,
    /// `w_k` modulo 2^64: values of the outer layout fit, so computing them modulo 2^64 is exact.
    weight: i64,
    /// The sum of the greatest remainders of the modes emitted so far.
    need: i64,
    /// Of the current stride `D`: `floor(D / P_k)` and `D mod P_k`.
    quotient: i64,
    rest: i64,
}

type Carries = SmallVec<[Carry; 8]>;

/// Appends the boundaries of an outer layout, at an offset in it.
#[inline]
fn push_carries(outer: &[Mode], offset: i64, boundaries: &mut Carries) {
    let mut product = 1;
    for pair in outer.windows(2) {
        product *= pair[0].extent;
        let weight = pair[1].stride.wrapping_sub(pair[0].extent.wrapping_mul(pair[0].stride));
        let need = if offset == 0 { 0 } else { offset % product };
        boundaries.push(Carry { product, weight, need, quotient: 0, rest: 0 });
    }
}

/// A stride of an inner layout: the integer that the outer layout is applied to, and a payload.
pub(crate) trait Inner: Stride {
    /// Returns the integer.
    fn index(self) -> i64;
    /// Returns the same with another integer.
    #[must_use]
    fn with_index(self, index: i64) -> Self;
}

impl Inner for i64 {
    #[inline]
    fn index(self) -> i64 {
        self
    }

    #[inline]
    fn with_index(self, index: i64) -> i64 {
        index
    }
}

impl<T: Stride> Inner for (i64, T) {
    #[inline]
    fn index(self) -> i64 {
        self.0
    }

    #[inline]
    fn with_index(self, index: i64) -> (i64, T) {
        (index, self.1)
    }
}

/// Returns the modes that replace one leaf of the inner layout, appended to `leaves`.
fn compose_leaf<S: Inner>(
    first_stride: i64,
    boundaries: &mut [Carry],
    at: usize,
    leaf: Mode<S>,
    leaves: &mut Modes<S>,
) -> Result<(), Obstacle> {
    let start = leaves.len();
    let (mut left, mut carried, mut stride) = (leaf.extent, leaf.stride, leaf.stride.index());
    for boundary in &mut *boundaries {
        (boundary.quotient, boundary.rest) = div_rem(stride, boundary.product);
    }
    loop {
        // The value of the outer layout at `stride`, and the steps to the first carry.
        let mut value = stride.wrapping_mul(first_stride);
        let mut run = left;
        for boundary in &*boundaries {
            value = value.wrapping_add(boundary.quotient.wrapping_mul(boundary.weight));
            // (left - 1) * stride is a value of the inner layout, so no product here overflows.
            if boundary.rest * (run - 1) >= boundary.product {
                let (quotient, rest) = div_rem(boundary.product, boundary.rest);
                run = quotient + i64::from(rest != 0);
            }
        }
        for boundary in &mut *boundaries {
            let reach = (run - 1) * boundary.rest;
            if reach >= boundary.product - boundary.need {
                return Err(Obstacle::Carry {
                    boundary: boundary.product,
                    reach: reach.saturating_add(boundary.need),
                });
            }
            boundary.need += reach;
        }
        if run == left {
            leaves.push_coalesced(start, Mode { extent: run, stride: carried.with_index(value) });
            return Ok(());
        }
        let (after, remainder) = div_rem(left, run);
        if remainder != 0 {
            return Err(Obstacle::Divisibility { leaf: at, extent: left, run });
        }
        leaves.push_coalesced(start, Mode { extent: run, stride: carried.with_index(value) });
        left = after;
        stride *= run;
        carried = carried.times(run);
        for boundary in &mut *boundaries {
            boundary.quotient *= run;
            boundary.rest *= run;
            if boundary.rest >= boundary.product {
                boundary.rest -= boundary.product;
                boundary.quotient += 1;
            }
        }
    }
}

/// Returns the nesting of one leaf that became `count` modes: as it was for one, a tuple of them for more.
///
/// `depth` is how deep the leaf is nested, its own parentheses included.
#[inline]
pub(crate) fn push_nests(nests: &mut Nests, depth: usize, nest: Nest, count: usize) -> Result<(), Error> {
    if count == 1 {
        nests.push(nest);
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        return Err(Error::TooDeep { limit: MAX_DEPTH });
    }
    nests.push(Nest { open: nest.open + 1, close: 0 });
    for _ in 2..count {
        nests.push(Nest::default());
    }
    nests.push(Nest { open: 0, close: nest.close + 1 });
    Ok(())
}

/// Returns the nesting depth of leaf `at`.
fn depth_at(nests: &[Nest], at: usize) -> usize {
    let opened: usize = nests[..=at].iter().map(|nest| usize::from(nest.open)).sum();
    let closed: usize = nests[..at].iter().map(|nest| usize::from(nest.close)).sum();
    opened - closed
}

/// Why the closed form has no layout.
enum Failure {
    Obstacle(Obstacle),
    Error(Error),
}

/// Composes a leaf of the inner layout in either direction.
///
/// The backward leaf is the forward one with its strides negated.
fn compose_either_way<S: Inner>(
    first_stride: i64,
    boundaries: &mut [Carry],
    at: usize,
    leaf: Mode<S>,
    leaves: &mut Modes<S>,
) -> Result<(), Obstacle> {
    let (step, start) = (leaf.stride.index(), leaves.len());
    // All reached values fit, so neither the step nor a value of the outer layout is the least integer.
    let forward = leaf.map(|stride| stride.with_index(step.wrapping_abs()));
    compose_leaf(first_stride, boundaries, at, forward, leaves)?;
    if step < 0 {
        for mode in leaves.iter_mut().skip(start) {
            mode.stride = mode.stride.with_index(mode.stride.index().wrapping_neg());
        }
    }
    Ok(())
}

/// Computes `i -> outer(offset + inner(i)) - outer(offset)` by the closed form.
///
/// Requires that `outer` is coalesced, that the values `offset + inner(i)` are in its domain, and that
/// `least` is the least of them.
fn closed_form(outer: &[Mode], least: i64, inner: &Layout, layout: &mut Layout) -> Result<(), Failure> {
    let first_stride = outer.first().map_or(0, |leaf| leaf.stride);
    let mut boundaries = Carries::new();
    push_carries(outer, least, &mut boundaries);
    let (leaves, nests) = layout.parts_mut();
    let whole = inner.profile().nests();
    // Few leaves become tuples; the nesting of those between is copied as it is.
    let mut copied = 0;
    for (at, &leaf) in inner.flat().iter().enumerate() {
        let start = leaves.len();
        if leaf.extent == 1 || leaf.stride == 0 {
            leaves.push(Mode { extent: leaf.extent, stride: 0 });
        } else {
            compose_either_way(first_stride, &mut boundaries, at, leaf, leaves).map_err(Failure::Obstacle)?;
        }
        let count = leaves.len() - start;
        if count > 1 {
            nests.extend_from_slice(&whole[copied..at]);
            copied = at + 1;
            push_nests(nests, depth_at(whole, at), whole[at], count).map_err(Failure::Error)?;
        }
    }
    nests.extend_from_slice(&whole[copied..]);
    if nests.len() > MAX_LEAVES {
        return Err(Failure::Error(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES }));
    }
    layout.seal();
    Ok(())
}

/// Returns `true` if the weights of the boundaries up to `reach` have one sign; computed without overflow.
fn one_sign(outer: &[Mode], reach: i64) -> bool {
    let mut product = 1_i64;
    let (mut positive, mut negative) = (false, false);
    for pair in outer.windows(2) {
        product *= pair[0].extent;
        if product > reach {
            break;
        }
        let weight = i128::from(pair[1].stride) - i128::from(pair[0].extent) * i128::from(pair[0].stride);
        positive |= weight > 0;
        negative |= weight < 0;
    }
    !(positive && negative)
}

impl Layout {
    /// Composes from an offset on: the modes `R` with `R(i) = A(offset + B(i)) - A(offset)`, and `A(offset)`.
    ///
    /// Of inner strides that are pairs `(i64, T)` the first is composed and the second is split along with
    /// it:
    ///
    /// ```text
    /// B(i) = (b(i), t(i))    becomes    R(i) = (A(offset + b(i)) - A(offset), t(i))
    /// ```
    ///
    /// so one side of a copy goes through another memory. Requires values `offset + B(i)` in `[0, size(A))`,
    /// and nothing of the signs of `B`: a mode of negative stride is the one of positive stride read
    /// backwards, from its least value on,
    ///
    /// ```text
    /// offset + c (-d)  =  (offset - (s-1) d) + (s-1-c) d        so R has the modes from there on, their strides negated
    /// ```
    ///
    /// Uses the closed form alone. It returns an error where carries of opposite weight would cancel, and
    /// where adding the least value `l = offset + min(B)` carries, although `A` may continue there in modes
    /// of another size. If weights have one sign it answers exactly where
    /// `A o (B read from its least value on)` is made of modes and `A(l + x) = A(l) + A(x)` for them.
    ///
    /// ```
    /// use reshard_layout::{Layout, Mode};
    ///
    /// // Elements 4, 5, .., 11 of a row-major 3 x 4 tensor, contiguous, from a tensor that is stored transposed.
    /// let memory: Layout = "(4,3):(3,1)".parse()?;
    /// let (start, modes) = memory.compose_at(4, &[Mode::new(8, (1, 1))])?;
    /// assert_eq!((start, modes.as_slice()), (1, &[Mode::new(4, (3, 1)), Mode::new(2, (1, 4))][..]));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain` for an offset that is not an index and for values that are not; `not_representable` as
    /// above.
    #[doc(hidden)]
    #[allow(private_bounds, reason = "an inner stride is an integer or a pair with one")]
    pub fn compose_at<S: Inner>(&self, offset: i64, inner: &[Mode<S>]) -> Result<(i64, Modes<S>), Error> {
        let start = self.at(offset)?;
        let least = self.least_from(offset, inner.iter().map(|mode| mode.map(S::index)))?;
        let mut storage = Modes::new();
        let outer = coalesced(self.flat(), &mut storage);
        let first_stride = outer.first().map_or(0, |mode| mode.stride);
        let (mut boundaries, mut modes) = (Carries::new(), Modes::new());
        push_carries(outer, least, &mut boundaries);
        for (at, &mode) in inner.iter().enumerate() {
            if mode.extent == 1 {
                continue;
            }
            if mode.stride.index() == 0 {
                modes.push(mode);
                continue;
            }
            if let Err(obstacle) = compose_either_way(first_stride, &mut boundaries, at, mode, &mut modes) {
                let inner = inner.iter().map(|mode| mode.map(S::index)).collect();
                let operands = Box::new((self.clone().into(), Layout::from_flat(inner)?));
                return Err(Error::NotRepresentable { operands, obstacle });
            }
        }
        Ok((start, modes))
    }

    /// Returns the least of the values that modes reach from an offset on.
    ///
    /// # Errors
    ///
    /// `out_of_domain` unless all of them are indices of this layout.
    fn least_from(&self, offset: i64, modes: impl Iterator<Item = Mode>) -> Result<i64, Error> {
        let (mut least, mut greatest) = (offset, offset);
        for mode in modes {
            let reach = (mode.extent - 1).saturating_mul(mode.stride);
            let end = if reach < 0 { &mut least } else { &mut greatest };
            *end = end.saturating_add(reach);
        }
        if least < 0 || greatest >= self.size() {
            let value = if least < 0 { least } else { greatest };
            return Err(Error::OutOfDomain { operation: Operation::Compose, value, size: self.size() });
        }
        Ok(least)
    }

    /// Returns the layout `R` with `R(i) = A(offset + B(i)) - A(offset)`, and `A(offset)`.
    ///
    /// This is [`compose_at`](Self::compose_at) for a layout, whose shape `R` refines.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,3):(3,1)".parse()?;
    /// let (start, r) = a.compose_from(11, &"((2,2),3):((-1,-2),-4)".parse()?)?;
    /// assert_eq!((start, r.to_string()), (11, "((2,2),3):((-3,-6),-1)".to_owned()));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`compose`](Self::compose), and `out_of_domain` for an offset that is not an index.
    #[doc(hidden)]
    pub fn compose_from(&self, offset: i64, inner: &Self) -> Result<(i64, Self), Error> {
        let start = self.at(offset)?;
        let least = self.least_from(offset, inner.flat().iter().copied())?;
        let mut storage = Modes::new();
        let outer = coalesced(self.flat(), &mut storage);
        let mut layout = Self::blank();
        match closed_form(outer, least, inner, &mut layout) {
            Ok(()) => Ok((start, layout)),
            Err(Failure::Error(error)) => Err(error),
            // Where adding the least value carries, its modes are of another size; enumeration finds them.
            Err(Failure::Obstacle(_)) => recognise(inner, |value| value_at(outer, offset + value) - start)
                .map(|exact| (start, exact))
                .map_err(|refusal| refusal.into_error(self.clone().into(), inner)),
        }
    }

    /// Returns the layout `R` with `R(i) = A(B(i))`, `A` being this layout and `B` the inner one.
    ///
    /// Requires: the values of `B` are in `[0, size(A))`. Ensures: `size(R) = size(B)`, and the shape of `R`
    /// refines that of `B`: every leaf of `B` is a leaf or a flat tuple of the same size.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(6,2):(8,2)".parse()?;
    /// let b: Layout = "(4,3):(3,1)".parse()?;
    /// assert_eq!(a.compose(&b)?.to_string(), "((2,2),3):((24,2),8)");
    ///
    /// // Composing mode by mode, without the check, returns (2,2,2):(3,4,6) here, which is wrong at index 7.
    /// let a: Layout = "(12,2):(1,100)".parse()?;
    /// let b: Layout = "(2,2,2):(3,4,6)".parse()?;
    /// assert_eq!(a.at(b.at(7)?)?, 101);
    /// assert_eq!(a.compose(&b).unwrap_err().code(), "not_representable");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain`; `not_representable`, which is a proof; `undecided` where the closed form does not
    /// decide and enumeration would take more than 2^18 evaluations;
    /// `too_deep`.
    pub fn compose(&self, inner: &Self) -> Result<Self, Error> {
        let mut layout = Self::blank();
        self.compose_into(inner, &mut layout)?;
        Ok(layout)
    }

    fn compose_into(&self, inner: &Self, layout: &mut Self) -> Result<(), Error> {
        if inner.min_value() < 0 || inner.max_value() >= self.size() {
            let value = if inner.min_value() < 0 { inner.min_value() } else { inner.max_value() };
            return Err(Error::OutOfDomain { operation: Operation::Compose, value, size: self.size() });
        }
        let mut storage = Modes::new();
        let outer = coalesced(self.flat(), &mut storage);
        match closed_form(outer, 0, inner, layout) {
            Ok(()) => Ok(()),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Obstacle(obstacle)) => {
                self.compose_exactly(outer, inner, obstacle).map(|exact| *layout = exact)
            }
        }
    }

    /// Decides exactly after the closed form found an obstacle.
    #[cold]
    fn compose_exactly(&self, outer: &[Mode], inner: &Self, obstacle: Obstacle) -> Result<Self, Error> {
        if one_sign(outer, inner.max_value()) {
            let operands = Box::new((self.clone().into(), inner.clone()));
            return Err(Error::NotRepresentable { operands, obstacle });
        }
        recognise(inner, |value| value_at(outer, value))
            .map_err(|refusal| refusal.into_error(self.clone().into(), inner))
    }

    /// CuTe's variant of [`compose`](Self::compose), in which the last leaf of the outer layout has no end.
    ///
    /// ```text
    /// R(i)  =  A'(B(i))        A' = (s_1, ..., s_{n-1}, inf) : (d_1, ..., d_n),   which is  at_extended
    /// ```
    ///
    /// The last leaf is that of `A` as it is written, of extent 1 and of stride 0 too: coalescing `A` first
    /// would drop it, and another leaf would grow. Within the domain it is [`compose`](Self::compose).
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,2):(1,100)".parse()?;
    /// let b: Layout = "3:4".parse()?;
    /// assert_eq!(a.compose(&b).unwrap_err().code(), "out_of_domain");
    /// assert_eq!(a.compose_extended(&b)?.to_string(), "3:100");
    /// let a: Layout = "(4,3,1):(3,1,0)".parse()?;
    /// assert_eq!(a.compose_extended(&"24:1".parse()?)?.to_string(), "(4,3,2):(3,1,0)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`compose`](Self::compose), `out_of_domain` only for negative values of `inner`; `overflow` if the
    /// outer layout, continued as far as the inner one reaches, does not fit in 64 bits.
    pub fn compose_extended(&self, inner: &Self) -> Result<Self, Error> {
        self.extended_to(inner.max_value())?.compose(inner)
    }

    /// Returns the layout with its last leaf continued, so that `reach` is in its domain.
    pub(crate) fn extended_to(&self, reach: i64) -> Result<Self, Error> {
        let Some((last, below)) = self.flat().split_last().filter(|_| reach >= self.size()) else {
            return Ok(self.clone());
        };
        let mut outer = Modes::from_slice(below);
        // At least as large as the extent of the last leaf, because the reach is not less than the size.
        let extent = reach / below.iter().map(|leaf| leaf.extent).product::<i64>() + 1;
        outer.push(Mode { extent, stride: last.stride });
        Self::from_flat(outer)
    }
}
