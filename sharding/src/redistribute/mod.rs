//! Redistribution: the cheapest way from one sharding of a tensor to another.
//!
//! Two shardings on one mesh whose layouts nest are maps from mesh digits to positions of their zip (`system`); their plan
//! is read off a graph of those maps (`closed_form`). Everything else (uneven dims, layouts that do not nest, two meshes, other
//! numbers of ranks) overlaps the regions of both (`overlap`). Either way a plan is a list of [`Step`]s, each of which
//! knows what every rank does in it ([`Plan::phases`]).

pub(crate) mod bounds;
pub mod cache;
pub(crate) mod closed_form;
pub mod cost;
pub(crate) mod digit_plan;
pub(crate) mod digit_step;
#[cfg(test)]
mod dijkstra;
pub(crate) mod direct;
pub mod explain;
#[cfg(test)]
mod fixed_point;
pub(crate) mod greedy;
pub(crate) mod grid;
pub(crate) mod lower_bound;
pub mod messages;
pub(crate) mod network;
pub(crate) mod overlap;
pub(crate) mod overlap_step;
pub(crate) mod partition;
pub mod plan;
pub mod planner;
pub(crate) mod price;
pub(crate) mod refine;
pub(crate) mod search;
pub mod step;
pub(crate) mod system;

pub use cache::{Interned, PlanCache};
pub use cost::{Level, Topology};
pub use explain::Explanation;
pub use messages::{Block, Message, Phase, Phases, Reduce};
pub use plan::Plan;
pub use planner::{Objective, Planner};
pub use step::{Step, StepOp};
