//! The theory in four chapters, with worked numbers; every example is a test.
//!
//! 1. [Layouts as functions](functions): coordinates, order, coalescing, and when two layouts are equal.
//! 2. [Composition, and exactly when it exists](composition): the proof, and the counterexample to composing mode by
//!    mode.
//! 3. [Tiling](tiling): complement, inverses, division and product.
//! 4. [Layouts over modules](modules): steps along axes, pairs, zip and split.

#[doc = include_str!("theory/functions.md")]
pub mod functions {}

#[doc = include_str!("theory/composition.md")]
pub mod composition {}

#[doc = include_str!("theory/tiling.md")]
pub mod tiling {}

#[doc = include_str!("theory/modules.md")]
pub mod modules {}
