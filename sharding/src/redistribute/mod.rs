//! Redistribution: the cheapest way from one sharding of a tensor to another.
//!
//! Two shardings on one mesh whose layouts nest are maps from mesh digits to positions of their zip (`system`); their plan
//! is read off a graph of those maps (`closed_form`). Everything else (uneven dims, layouts that do not nest, two meshes, other
//! numbers of ranks) overlaps the regions of both (`overlap`). Either way a plan is a list of [`Step`]s, each of which
//! knows what every rank does in it ([`Plan::phases`]).

pub(crate) mod assemble;
pub(crate) mod bounds;
pub mod cache;
pub(crate) mod candidates;
pub(crate) mod choose;
mod cost_model_laws;
pub mod explain;
pub(crate) mod hash;
pub(crate) mod lower_bound;
pub mod message;
pub mod model;
pub mod objective;
pub mod op;
pub mod options;
pub mod plan;
pub mod planner;
pub(crate) mod question;
pub(crate) mod regions;
pub(crate) mod states;
pub mod step;
pub(crate) mod transfers;

pub use cache::{Interned, PlanCache};
pub use candidates::Origin;
pub use choose::considered::{Considered, Way};
pub use cost_model_laws::check_cost_model;
pub use explain::Explanation;
pub use message::{Block, Message, Phase, Phases, Reduce};
pub use model::{CostModel, Level, LevelTraffic, Load, Need, Topology};
pub use objective::Objective;
pub use op::StepOp;
pub use options::Options;
pub use plan::Plan;
pub use planner::Planner;
pub use states::closed_form::Form;
pub use step::Step;

/// The most ranks that are looked at one by one where formulas do not say the same.
const COUNTED: usize = 1 << 14;
