//! Candidates: paths from the source to the target. Each is generated from the problem alone, in a fixed
//! order.
//!
//! ```text
//! states    on one mesh where digits nest      the closed forms, one direct exchange, the result of a search
//! regions   everywhere                         reduce partial values, then send missing data; relays, shared owners, through shards, ..
//! detours   on one mesh                        intermediate shardings with which uneven partial values may send fewer bytes
//! exchange  on one mesh, from or into partials one between cotangent shardings, split among replicas, transposed
//! greedy    on one mesh                        axis by axis, as frameworks do: a baseline, and a candidate next to regions
//! ```
//!
//! A generator neither compares nor plans. Where a segment of a path is a separate problem, it leaves a
//! [`Leg::Plan`], which only `choose` resolves.

pub(crate) mod detours;
pub(crate) mod greedy;
pub(crate) mod received;
pub(crate) mod region_steps;
pub(crate) mod regions;
pub(crate) mod state_steps;
pub(crate) mod states;

use core::fmt;
use std::rc::Rc;

use crate::candidates::region_steps::Proposed;
use crate::states::closed_form::Form;
use crate::step::Step;
use reshard_sharding::Sharding;

/// A segment of a path.
#[derive(Clone, Debug)]
pub(crate) enum Leg {
    /// A step that is complete.
    Step(Box<Step>),
    /// A proposed step, whose messages are not counted yet.
    Move(Rc<Proposed>),
    /// The best plan, without limits, from the sharding that the path has reached to this one.
    Plan { to: Sharding },
    /// The same plan, without relays: the replicas of the target share their parts.
    Share { to: Sharding },
    /// The same plan; if it receives anything, the whole path is invalid.
    Local { to: Sharding },
}

/// The generator of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum CandidateSource {
    /// A form of the closed form, with or without positions that neither end uses.
    ClosedForm {
        /// The digits that take part although they need not.
        form: Form,
        /// `true` if digits may take positions that are local in both ends.
        spares: bool,
    },
    /// One exchange of digits straight from source to target.
    Direct,
    /// The search over digit states.
    Search,
    /// Overlapping regions.
    Regions,
    /// One axis at a time, as frameworks do.
    Greedy,
    /// Placements that change a few axes at a time, where only some groups may be used.
    Axes,
    /// The transposed plan: the plan between the cotangent shardings, transposed.
    Mirror,
    /// One exchange between the cotangent shardings, transposed.
    ///
    /// Partial values are added where they arrive. Missing data is split among the ranks whose partial values
    /// add up.
    OneExchange,
    /// Two plans in sequence, through blocks of a dim that are partial in one end.
    Detour,
}

impl fmt::Display for CandidateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CandidateSource::ClosedForm { form, spares: true } => write!(f, "closed form, {form}"),
            CandidateSource::ClosedForm { form, spares: false } => {
                write!(f, "closed form, {form}, no free modes")
            }
            CandidateSource::Direct => f.write_str("one direct exchange"),
            CandidateSource::Search => f.write_str("search"),
            CandidateSource::Regions => f.write_str("overlapping regions"),
            CandidateSource::Greedy => f.write_str("axis by axis"),
            CandidateSource::Axes => f.write_str("a few axes at a time"),
            CandidateSource::Mirror => f.write_str("transposed plan"),
            CandidateSource::OneExchange => f.write_str("transposed exchange"),
            CandidateSource::Detour => f.write_str("two plans, via blocks of a dim"),
        }
    }
}
