//! The theory of the planner in seven chapters, with worked numbers; every example is a test.
//!
//! 1. [The step between](the_step_between): the zip of two shardings determines the transfers.
//! 2. [From text to bytes](from_text_to_bytes): one redistribution, followed to the end.
//! 3. [The closed form](closed_form): a plan read from a graph of digits, with the fewest received bytes.
//! 4. [Partial sums](partial_sums): full and lean, unused positions, one joint group, partial values in
//!    order.
//! 5. [Search and bounds](search_and_bounds): states, transitions, A*, and lower bounds.
//! 6. [Regions](regions): uneven dims and two meshes, and the sender of each block.
//! 7. [Costs](costs): loads, levels, bounds, ties, and how to add another model.
//!
//! Shardings are defined before, in [`reshard_sharding::theory`].

#[doc = include_str!("../theory/the-step-between.md")]
pub mod the_step_between {}

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
