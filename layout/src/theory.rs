//! The theory in four chapters, with worked numbers; every example is a test.
//!
//! 1. [Layouts as functions](#layouts-as-functions): coordinates, order, coalescing, and when two layouts are equal.
//! 2. [Composition, and exactly when it exists](#composition-and-exactly-when-it-exists): the proof, and the
//!    counterexample to composing mode by mode.
//! 3. [Tiling](#tiling-complement-inverses-division-product): complement, inverses, division and product.
//! 4. [Layouts over modules](#layouts-over-modules-steps-along-axes-pairs-zip-and-split): steps along axes, pairs, zip
//!    and split.
//!
#![doc = include_str!("theory/functions.md")]
#![doc = include_str!("theory/composition.md")]
#![doc = include_str!("theory/tiling.md")]
#![doc = include_str!("theory/modules.md")]
