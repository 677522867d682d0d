//! What an op means for shardings.
//!
//! * [`rules`]: what an op may be along one mesh axis: equations, strategies, the [table](rules::OpTable) of ops; the
//!   crate `reshard-verify` tries a rule on data. Rules of one line are declared in `rules/standard.rs`, families of
//!   ops that depend on arguments in `rules/families`.
//! * [`gradients`]: what an op's backward computes, as calls of other ops; how it is sharded follows from the rules.
//! * [`propagate`]: the strategy of least cost for an op on a whole mesh, by the planner's own model.
#![forbid(unsafe_code)]

mod error;
pub mod gradients;
pub mod propagate;
pub mod rules;

pub use error::Error;
pub use reshard_layout::ErrorKind;
