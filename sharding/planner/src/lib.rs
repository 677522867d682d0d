//! Redistribution: the cheapest path from one sharding of a tensor to another.
//!
//! The modules from the ground up; each uses only those above it in this list (`tests/laws/rooms.rs`):
//!
//! ```text
//! objective, op, arithmetic, budget, stop, hash, message   identifiers and small types
//! model        cost of a step: loads, the CostModel, totals           bounds       lower bounds of any plan
//! options, problem               the problem
//! regions      overlaps of two shardings, by intervals                states       routes between digit states, and a search
//! step         a step and its transfers                              transfers    the data each rank sends and receives
//! plan, fused_cost, assemble     steps with their costs and bounds
//! shared_exchange   one exchange whose blocks come from several replicas     transpose    transposed plans
//! candidates   paths from source to target, in a fixed order         choose       the only module that compares them
//! planner, notation, lower_bound, explain, check_cost_model, cache   the public API
//! ```
//!
//! Two shardings on one mesh whose layouts nest are maps from mesh digits to positions of their zip:
//! `states`. Everything else (uneven dims, layouts that do not nest, two meshes, other numbers of ranks)
//! overlaps the regions of both: `regions`. In both cases a plan is a list of [`Step`]s, each of which
//! defines the actions of every rank ([`Step::phases`]). The theory chapters prove the plans correct, from
//! [the closed form](crate::theory#the-closed-form) to [costs](crate::theory#costs). `docs/planner.md`
//! describes how to change a formula, add a step or add a candidate.
#![forbid(unsafe_code)]

mod arithmetic;
mod assemble;
mod bounds;
mod budget;
mod cache;
mod candidates;
mod check_cost_model;
mod choose;
mod error;
mod explain;
mod fused_cost;
mod hash;
mod lower_bound;
mod message;
mod model;
mod notation;
mod objective;
mod op;
mod options;
mod plan;
mod planner;
mod problem;
mod regions;
mod shared_exchange;
mod states;
mod step;
mod stop;
mod stored;
pub mod theory;
mod transfers;
mod transpose;

pub use arithmetic::Arithmetic;
pub use bounds::cut::{Cut, LowerBoundCut};
pub use budget::SearchBudget;
pub use cache::{Interned, PlanCache};
pub use candidates::CandidateSource;
pub use check_cost_model::check_cost_model;
pub use choose::considered::{CandidateCost, CandidateOutcome, CandidateReport};
pub use error::Error;
pub use explain::Explanation;
pub use message::{Block, Message, Phase, Phases, Reduce};
pub use model::{
    Calibration, Compute, CostModel, Curve, Level, LevelTraffic, MinTraffic, Profile, Source, StepTraffic,
    Topology,
};
pub use objective::Objective;
pub use op::StepOp;
pub use options::PlanOptions;
pub use plan::Plan;
pub use planner::Planner;
pub use reshard_layout::ErrorKind;
pub use states::closed_form::Form;
pub use step::Step;

/// API for the other crates of this project only; it may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::arithmetic::combine_op;
    pub use crate::budget::Effort;
    pub use crate::choose::alike::Prices;
    pub use crate::choose::price::{Ask, Price};
    pub use crate::hash::{WordHasher, WordMap};
    pub use crate::message::{DigitPhase, Ends};
    pub use crate::model::curves::{MEASURED, collective_traffic, passes};
    pub use crate::stop::{go_on, is_stopped, stoppable};
}
