//! The theory in five chapters, with worked numbers; every example is a test.
//!
//! 1. [A sharding is a layout](a_sharding_is_a_layout): from the index to the rank and the local offset.
//! 2. [Strided shards](strided_shards): placements are read off by slicing and coalescing.
//! 3. [Views](views): compositions, and exactly when they are free.
//! 4. [Uneven shards](uneven): why they are not layouts, and how they are represented.
//! 5. [Gradients](gradients): the gradient of replicas is partial and vice versa, and a type is a pair of
//!    shardings.
//!
//! Layouts themselves have separate chapters, [`reshard_layout::theory`]; redistribution is the subject of
//! `reshard_planner::theory`.

#[doc = include_str!("../theory/a-sharding-is-a-layout.md")]
pub mod a_sharding_is_a_layout {}

#[doc = include_str!("../theory/strided-shards.md")]
pub mod strided_shards {}

#[doc = include_str!("../theory/views.md")]
pub mod views {}

#[doc = include_str!("../theory/uneven.md")]
pub mod uneven {}

#[doc = include_str!("../theory/gradients.md")]
pub mod gradients {}
