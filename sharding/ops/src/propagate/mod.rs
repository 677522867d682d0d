//! Propagation: the strategy of least cost for an op on a mesh.
//!
//! The rule of an op lists its strategies along *one* axis ([`crate::rules`]); a mesh takes one such strategy
//! for each axis. [`Propagator::propagate`] finds the combination with the least cost of redistributing the
//! inputs, by the planner's own model. The result is that of trying all combinations, without trying all of
//! them (`search`).
//!
//! ```text
//! slots     the axes, or their sub-axes where some input uses these                   (`slots`)
//! rows      the op's strategies of one axis, filled with the kinds of shards that the inputs have
//! path      one row for each slot; spells the target of every operand                 (`problem`)
//! cost      of all inputs from where they are to their targets, plus constraints of outputs
//! ```
//!
//! Three requests: [`propagate`](Propagator::propagate) returns the cheapest, [`cheapest`](Propagator::cheapest)
//! lists the cheapest few with their plans, [`explicit`](Propagator::explicit) takes the inputs as they are
//! or reports the error.
mod bound;
mod choice;
mod constraint;
mod made;
mod operand;
mod problem;
mod propagator;
mod refusal;
mod search;
mod slots;
mod target;
mod typed;

pub use choice::{OpSharding, OperandIndex};
pub use constraint::OutputConstraint;
pub use operand::Operand;
#[doc(hidden)]
pub use operand::is_of_magnitudes;
pub use propagator::Propagator;
pub use slots::ShardKind;
#[doc(hidden)]
pub use typed::TypedLists;
pub use typed::{TypedStrategy, TypedStrategyQuery};
