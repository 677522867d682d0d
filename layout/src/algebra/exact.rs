//! Exact composition by enumeration, where carries of opposite weight may cancel.
//!
//! A function `f` on `[0, s)` with `f(0) = 0` is a layout exactly if this finds one: take `m`, the greatest number with
//! `f(c) = c f(1)` for all `c < m`; `m` must divide `s`; the first mode is `m : f(1)`; go on with `i -> f(m i)` on
//! `[0, s/m)`. This is the only candidate, because coalesced layouts are determined by their function. A function of
//! several coordinates is a layout refining a shape exactly if it is the sum of what its coordinates give alone, and
//! each of these is a layout.

use super::coalesce::push_coalesced;
use super::compose::Nesting;
use crate::layout::{Leaf, Leaves};
use crate::order::value_at;
use crate::profile::Nest;
use crate::{Error, Layout, Obstacle};

/// The greatest number of indices of a layout that an operation enumerates to decide a question exactly.
pub const ENUMERATION_BUDGET: i64 = 1 << 18;

/// Why there is no layout.
pub(crate) enum Refusal {
    /// There is none, and this is why.
    Not(Obstacle),
    /// It would take more than this number of evaluations to find out.
    Budget(i64),
    /// Its nesting is beyond a limit.
    Error(Error),
}

/// The modes of the layout on `[0, extent)` that is `function`, if there is one, appended to `leaves`.
///
/// Ensures only that there is no other candidate; the caller compares the values.
fn recognise_leaf(
    leaves: &mut Leaves,
    leaf: usize,
    extent: i64,
    function: impl Fn(i64) -> i64,
) -> Result<(), Obstacle> {
    let start = leaves.len();
    let (mut left, mut step) = (extent, 1);
    while left > 1 {
        let stride = function(step);
        let run = (2..left).find(|&c| stride.checked_mul(c) != Some(function(step * c))).unwrap_or(left);
        if left % run != 0 {
            return Err(Obstacle::Divisibility { leaf, extent: left, run });
        }
        push_coalesced(leaves, start, Leaf { extent: run, stride });
        left /= run;
        step *= run;
    }
    if leaves.len() == start {
        leaves.push(Leaf { extent: 1, stride: 0 });
    }
    Ok(())
}

/// The layout `R` with `R(i) = function(i)`, whose shape refines these extents nested like this.
///
/// Requires `function(0) = 0`. Enumerates up to [`ENUMERATION_BUDGET`] indices.
pub(crate) fn recognise(
    extents: impl Iterator<Item = i64> + Clone,
    nests: &[Nest],
    function: impl Fn(i64) -> i64,
) -> Result<Layout, Refusal> {
    let size: Option<i64> = extents.clone().try_fold(1_i64, i64::checked_mul);
    let Some(size) = size.filter(|size| *size <= ENUMERATION_BUDGET) else {
        return Err(Refusal::Budget(ENUMERATION_BUDGET));
    };
    let mut leaves = Leaves::new();
    let mut nesting = Nesting::new();
    let mut below = 1;
    for (at, (extent, &nest)) in extents.zip(nests).enumerate() {
        let start = leaves.len();
        recognise_leaf(&mut leaves, at, extent, |c| function(below * c)).map_err(Refusal::Not)?;
        nesting.push(nest, leaves.len() - start).map_err(Refusal::Error)?;
        below *= extent;
    }
    if let Some(index) = (0..size).find(|&index| value_at(&leaves, index) != function(index)) {
        return Err(Refusal::Not(Obstacle::Enumeration { index }));
    }
    let profile = nesting.finish().map_err(Refusal::Error)?;
    Layout::assemble(leaves, profile).map_err(Refusal::Error)
}

/// `outer o inner`, whose values lie in the domain of `outer`, by enumerating it.
pub(crate) fn compose(outer: &[Leaf], inner: &Layout) -> Result<Layout, Refusal> {
    let extents = inner.raw_leaves().iter().map(|leaf| leaf.extent);
    recognise(extents, inner.profile().nests(), |index| value_at(outer, value_at(inner.raw_leaves(), index)))
}
