//! Checked composition: the layout `R` with `R(i) = A(B(i))`, or the proof that there is none.
//!
//! Let `A` be coalesced, with modes `(s_1:d_1) ... (s_n:d_n)` and boundaries `P_k = s_1 * ... * s_k` for `k < n`. On
//! `[0, |A|)`
//!
//! ```text
//! A(y)  =  d_1 y + sum_k w_k floor(y / P_k)          w_k = d_{k+1} - s_k d_k, never 0
//! ```
//!
//! so `A(x + y) - A(x) - A(y)` is the sum of the weights of the boundaries over which `x + y` carries. A leaf `(s:d)` of
//! `B` walks `0, d, 2d, ...`: until the first carry, after `m = min_k ceil(P_k / (d mod P_k))` steps, this is the mode
//! `m : A(d)`, and from there on the leaf `(s/m : m d)` remains. If `m` does not divide what is left there is no mode.
//! Different leaves add up without a carry exactly if, for every boundary, the greatest remainders of all modes
//! together stay below it: `need_k = sum (m-1) (D mod P_k) < P_k`.
//!
//! **Sound** always: `need_k < P_k` makes `floor` additive over the leaves. **Exact** if the weights of the boundaries
//! that `B` can reach have one sign, for then carries cannot cancel. Otherwise [`exact`](super::exact) decides by
//! enumeration. The chapter on composition has the proof, and the counterexample to composing mode by mode without
//! the check.

use smallvec::SmallVec;

use super::coalesce::{coalesced, push_coalesced};
use super::exact::recognise;
use crate::layout::{Leaf, Leaves};
use crate::order::{div_rem, value_at};
use crate::profile::{MAX_DEPTH, MAX_LEAVES, Nest, Nests};
use crate::{Counted, Error, Layout, Obstacle, Operation};

/// A boundary between two modes of the outer layout.
#[derive(Clone, Copy)]
pub(crate) struct Boundary {
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

type Boundaries = SmallVec<[Boundary; 8]>;

#[inline]
fn push_boundaries(outer: &[Leaf], boundaries: &mut Boundaries) {
    let mut product = 1;
    for pair in outer.windows(2) {
        product *= pair[0].extent;
        let weight = pair[1].stride.wrapping_sub(pair[0].extent.wrapping_mul(pair[0].stride));
        boundaries.push(Boundary { product, weight, need: 0, quotient: 0, rest: 0 });
    }
}

/// The modes that replace one leaf of the inner layout, appended to `leaves`.
fn compose_leaf(
    first_stride: i64,
    boundaries: &mut [Boundary],
    at: usize,
    leaf: Leaf,
    leaves: &mut Leaves,
) -> Result<(), Obstacle> {
    let start = leaves.len();
    let (mut left, mut stride) = (leaf.extent, leaf.stride);
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
            push_coalesced(leaves, start, Leaf { extent: run, stride: value });
            return Ok(());
        }
        let (after, remainder) = div_rem(left, run);
        if remainder != 0 {
            return Err(Obstacle::Divisibility { leaf: at, extent: left, run });
        }
        push_coalesced(leaves, start, Leaf { extent: run, stride: value });
        left = after;
        stride *= run;
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

/// The nesting of one leaf that became `count` modes: as it was for one, a tuple of them for more.
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

/// How deep leaf `at` is nested.
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

/// `outer o inner` by the closed form; `outer` is coalesced, and the values of `inner` lie in its domain.
fn closed_form(outer: &[Leaf], inner: &Layout, layout: &mut Layout) -> Result<(), Failure> {
    let first_stride = outer.first().map_or(0, |leaf| leaf.stride);
    let mut boundaries = Boundaries::new();
    push_boundaries(outer, &mut boundaries);
    let (leaves, nests) = layout.parts_mut();
    let whole = inner.profile().nests();
    // Few leaves become tuples; the nesting of those between is copied as it is.
    let mut copied = 0;
    for (at, &leaf) in inner.raw_leaves().iter().enumerate() {
        let start = leaves.len();
        if leaf.extent == 1 || leaf.stride == 0 {
            leaves.push(Leaf { extent: leaf.extent, stride: 0 });
        } else {
            compose_leaf(first_stride, &mut boundaries, at, leaf, leaves).map_err(Failure::Obstacle)?;
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

/// Whether the weights of the boundaries up to `reach` have one sign; computed without overflow.
fn one_sign(outer: &[Leaf], reach: i64) -> bool {
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
    /// The layout `R` with `R(i) = A(B(i))`, `A` being this layout and `B` the inner one.
    ///
    /// Requires: the values of `B` lie in `[0, size(A))`. Ensures: `size(R) = size(B)`, and the shape of `R` refines
    /// that of `B`: every leaf of `B` is a leaf or a flat tuple of the same size.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(6,2):(8,2)".parse()?;
    /// let b: Layout = "(4,3):(3,1)".parse()?;
    /// assert_eq!(a.compose(&b)?.to_string(), "((2,2),3):((24,2),8)");
    ///
    /// // Composing mode by mode, without the check, says (2,2,2):(3,4,6) here, and is wrong at index 7.
    /// let a: Layout = "(12,2):(1,100)".parse()?;
    /// let b: Layout = "(2,2,2):(3,4,6)".parse()?;
    /// assert_eq!(a.at(b.at(7)?)?, 101);
    /// assert_eq!(a.compose(&b).unwrap_err().kind(), "not_representable");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain`; `not_representable`, which is a proof; `undecided` where the closed form does not decide and
    /// enumeration would take more than [`ENUMERATION_BUDGET`](super::ENUMERATION_BUDGET) evaluations; `too_deep`.
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
        let mut storage = Leaves::new();
        let outer = coalesced(self.raw_leaves(), &mut storage);
        match closed_form(outer, inner, layout) {
            Ok(()) => Ok(()),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Obstacle(obstacle)) => {
                self.compose_exactly(outer, inner, obstacle).map(|exact| *layout = exact)
            }
        }
    }

    /// Decides where the closed form met an obstacle.
    #[cold]
    fn compose_exactly(&self, outer: &[Leaf], inner: &Self, obstacle: Obstacle) -> Result<Self, Error> {
        if one_sign(outer, inner.max_value()) {
            let operands = Box::new((self.clone().into(), inner.clone()));
            return Err(Error::NotRepresentable { operands, obstacle });
        }
        recognise(inner, |value| value_at(outer, value))
            .map_err(|refusal| refusal.into_error(self.clone().into(), inner))
    }

    /// CuTe's variant of [`compose`](Self::compose), in which the last mode of the coalesced outer layout goes on
    /// without end.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,2):(1,100)".parse()?;
    /// let b: Layout = "3:4".parse()?;
    /// assert_eq!(a.compose(&b).unwrap_err().kind(), "out_of_domain");
    /// assert_eq!(a.compose_extended(&b)?.to_string(), "3:100");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`compose`](Self::compose), `out_of_domain` only for negative values of `inner`; `overflow` if the outer
    /// layout, continued as far as the inner one reaches, does not fit in 64 bits.
    pub fn compose_extended(&self, inner: &Self) -> Result<Self, Error> {
        if inner.max_value() < self.size() {
            return self.compose(inner);
        }
        let mut outer = Leaves::from_slice(self.coalesce().raw_leaves());
        let Some(last) = outer.pop() else { return self.compose(inner) };
        let below: i64 = outer.iter().map(|leaf| leaf.extent).product();
        outer.push(Leaf { extent: inner.max_value() / below + 1, stride: last.stride });
        Self::from_flat(outer)?.compose(inner)
    }
}
