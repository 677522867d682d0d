//! The theory of the planner in eight chapters, with worked numbers; every example is a test.
//!
//! 1. [The step between](#the-step-between-two-shardings): the zip of two shardings determines the transfers.
//! 2. [From text to bytes](#from-text-to-bytes): one redistribution, followed to the end.
//! 3. [The closed form](#the-closed-form): a plan read from a graph of digits, with the fewest received bytes.
//! 4. [Partial sums](#partial-sums): full and lean, unused positions, one joint group, partial values in
//!    order.
//! 5. [Search and bounds](#search-and-lower-bounds): states, transitions, A*, and lower bounds.
//! 6. [Regions](#regions): uneven dims and two meshes, and the sender of each block.
//! 7. [Between two meshes](#between-two-meshes): both directions, owners that share, relays, and a bound.
//! 8. [Costs](#costs): loads, levels, bounds, ties, and how to add another model.
//!
//! Shardings are defined before, in [`reshard_sharding::theory`].
//!
#![doc = include_str!("../theory/the-step-between.md")]
#![doc = include_str!("../theory/from-text-to-bytes.md")]
#![doc = include_str!("../theory/closed-form.md")]
#![doc = include_str!("../theory/partial-sums.md")]
#![doc = include_str!("../theory/search-and-bounds.md")]
#![doc = include_str!("../theory/regions.md")]
#![doc = include_str!("../theory/between-two-meshes.md")]
#![doc = include_str!("../theory/costs.md")]
