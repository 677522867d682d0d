//! Exact composition by enumeration, where carries of opposite weight may cancel.
//!
//! A function `f` on `[0, s)` with `f(0) = 0` is a layout exactly if this finds one: take `m`, the greatest
//! number with `f(c) = c f(1)` for all `c < m`; `m` must divide `s`; the first mode is `m : f(1)`; continue
//! with `i -> f(m i)` on `[0, s/m)`. This is the only candidate, because coalesced layouts are determined by
//! their function. A function of several coordinates is a layout refining a shape exactly if it is the sum of
//! what its coordinates give alone, and each of these is a layout.

use super::compose::push_nests;
use super::composed::Outer;
use crate::modes::{Mode, Modes};
use crate::order::value_at;
use crate::profile::MAX_LEAVES;
use crate::{Counted, Error, Layout, Obstacle};

/// The greatest number of indices of a layout that an operation enumerates for an exact decision.
#[doc(hidden)]
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

impl Refusal {
    pub(crate) fn into_error(self, outer: Outer, inner: &Layout) -> Error {
        let operands = Box::new((outer, inner.clone()));
        match self {
            Self::Not(obstacle) => Error::NotRepresentable { operands, obstacle },
            Self::Budget(budget) => Error::Undecided { operands, budget },
            Self::Error(error) => error,
        }
    }
}

/// Appends to `leaves` the modes of the layout on `[0, extent)` that equals `function`, if there is one.
///
/// Ensures only that there is no other candidate; the caller compares the values.
fn recognise_leaf(
    leaves: &mut Modes,
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
        leaves.push_coalesced(start, Mode { extent: run, stride });
        left /= run;
        step *= run;
    }
    if leaves.len() == start {
        leaves.push(Mode { extent: 1, stride: 0 });
    }
    Ok(())
}

/// Returns the layout `R` with `R(i) = function(inner(i))`, whose shape refines that of `inner`.
///
/// Requires `function(0) = 0`. Enumerates up to [`ENUMERATION_BUDGET`] indices.
pub(crate) fn recognise(inner: &Layout, function: impl Fn(i64) -> i64) -> Result<Layout, Refusal> {
    if inner.size() > ENUMERATION_BUDGET {
        return Err(Refusal::Budget(ENUMERATION_BUDGET));
    }
    let mut layout = Layout::blank();
    let (leaves, nests) = layout.parts_mut();
    let mut depth = 0;
    for (at, (leaf, &nest)) in inner.flat().iter().zip(inner.profile().nests()).enumerate() {
        let start = leaves.len();
        recognise_leaf(leaves, at, leaf.extent, |c| function(c * leaf.stride)).map_err(Refusal::Not)?;
        depth += usize::from(nest.open);
        push_nests(nests, depth, nest, leaves.len() - start).map_err(Refusal::Error)?;
        depth -= usize::from(nest.close);
    }
    let different = |index: &i64| value_at(leaves, *index) != function(value_at(inner.flat(), *index));
    if let Some(index) = (0..inner.size()).find(different) {
        return Err(Refusal::Not(Obstacle::Enumeration { index }));
    }
    if nests.len() > MAX_LEAVES {
        return Err(Refusal::Error(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES }));
    }
    layout.seal_checked().map_err(Refusal::Error)?;
    Ok(layout)
}
