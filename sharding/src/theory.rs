//! The theory in eleven chapters, with worked numbers; every example is a test.
//!
//! 1. [A sharding is a layout](a_sharding_is_a_layout): from the index to the rank and the local offset.
//! 2. [Strided shards](strided_shards): placements are read off by slicing and coalescing.
//! 3. [Views](views): compositions, and exactly when they are free.
//! 4. [The step between](the_step_between): the zip of two shardings is what has to move.
//! 5. [Uneven shards](uneven): why they are no layouts, and what they are.
//! 6. [From text to bytes](from_text_to_bytes): one redistribution, followed all the way.
//!
//! # The planner
//!
//! 7. [The closed form](closed_form): a plan read off a graph of digits, and why it receives no byte too many.
//! 8. [Partial sums](partial_sums): full and lean, spares, one joint group, terms in order.
//! 9. [Search and bounds](search_and_bounds): states, moves, A*, and what no plan can do without.
//! 10. [Regions](regions): uneven dims and two meshes, and who sends what to whom.
//! 11. [Costs](costs): loads, levels, bounds, ties, and how to bring another model.
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

#[doc = include_str!("../theory/closed-form.md")]
pub mod closed_form {}

#[doc = include_str!("../theory/partial-sums.md")]
pub mod partial_sums {}

#[doc = include_str!("../theory/search-and-bounds.md")]
pub mod search_and_bounds {}

#[doc = include_str!("../theory/regions.md")]
pub mod regions {}

#[doc = include_str!("../theory/costs.md")]
pub mod costs {}
