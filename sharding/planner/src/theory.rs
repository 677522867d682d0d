//! The theory of the planner in seven chapters, with worked numbers; every example is a test.
//!
//! 1. [The step between](the_step_between): the zip of two shardings is what has to move.
//! 2. [From text to bytes](from_text_to_bytes): one redistribution, followed all the way.
//! 3. [The closed form](closed_form): a plan read off a graph of digits, and why it receives no byte too many.
//! 4. [Partial sums](partial_sums): full and lean, spares, one joint group, terms in order.
//! 5. [Search and bounds](search_and_bounds): states, moves, A*, and what no plan can do without.
//! 6. [Regions](regions): uneven dims and two meshes, and who sends what to whom.
//! 7. [Costs](costs): loads, levels, bounds, ties, and how to bring another model.
//!
//! What a sharding is comes before, in [`reshard_sharding::theory`].

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
