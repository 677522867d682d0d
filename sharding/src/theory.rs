//! The theory in six chapters, with worked numbers; every example is a test.
//!
//! 1. [A sharding is a layout](a_sharding_is_a_layout): from the index to the rank and the local offset.
//! 2. [Strided shards](strided_shards): placements are read off by slicing and coalescing.
//! 3. [Views](views): compositions, and exactly when they are free.
//! 4. [The step between](the_step_between): the zip of two shardings is what has to move.
//! 5. [Uneven shards](uneven): why they are no layouts, and what they are.
//! 6. [From text to bytes](from_text_to_bytes): one redistribution, followed all the way.
//!
//! Layouts themselves have their own chapters, [`reshard_layout::theory`].

#[doc = include_str!("../theory/a-sharding-is-a-layout.md")]
pub mod a_sharding_is_a_layout {}

#[doc = include_str!("../theory/strided-shards.md")]
pub mod strided_shards {}

#[doc = include_str!("../theory/views.md")]
pub mod views {}

#[doc = include_str!("../theory/the-step-between.md")]
pub mod the_step_between {}

#[doc = include_str!("../theory/uneven.md")]
pub mod uneven {}

#[doc = include_str!("../theory/from-text-to-bytes.md")]
pub mod from_text_to_bytes {}
