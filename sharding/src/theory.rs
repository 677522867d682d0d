//! The theory in five chapters, with worked numbers; every example is a test.
//!
//! 1. [A sharding is a layout](#a-sharding-is-a-layout): from the index to the rank and the local offset.
//! 2. [Strided shards](#strided-shards-are-found-by-coalescing): placements are read off by slicing and coalescing.
//! 3. [Views](#views-are-compositions): compositions, and exactly when they are free.
//! 4. [Uneven shards](#uneven-shards-and-why-they-are-not-layouts): why they are not layouts, and how they are represented.
//! 5. [Gradients](#gradients-replicas-are-a-subspace-partial-values-a-quotient): the gradient of replicas is partial and vice versa, and a type is a pair of
//!    shardings.
//!
//! Layouts themselves have separate chapters, [`reshard_layout::theory`]; redistribution is the subject of
//! `reshard_planner::theory`.
//!
#![doc = include_str!("../theory/a-sharding-is-a-layout.md")]
#![doc = include_str!("../theory/strided-shards.md")]
#![doc = include_str!("../theory/views.md")]
#![doc = include_str!("../theory/uneven.md")]
#![doc = include_str!("../theory/gradients.md")]
