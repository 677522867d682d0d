//! Candidates: ways from the source to the target, each made by a function of the question, in a fixed order.
//!
//! ```text
//! states    on one mesh where digits nest      the forms of the closed form, one direct exchange, what a search finds
//! regions   everywhere                         reduce what is partial, then move what is missing; by domain, through shards, ..
//! detours   on one mesh                        shardings by way of which uneven terms may move fewer bytes
//! exchange  on one mesh, from or into terms    one between the duals, shared out among replicas and turned round
//! greedy    on one mesh                        axis by axis, as frameworks do: to compare with, and where regions meet a candidate
//! ```
//!
//! A generator compares nothing and plans nothing: where a part of a way is a question of its own it leaves a
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

/// A part of a way.
#[derive(Clone, Debug)]
pub(crate) enum Leg {
    /// This step.
    Step(Box<Step>),
    /// This step, once its messages are counted.
    Move(Rc<Proposed>),
    /// The best plan from where the way has led to this sharding, without limits.
    Plan { to: Sharding },
    /// The same, and the whole way is none if anything is received in it.
    Local { to: Sharding },
}

/// Where a candidate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateSource {
    /// A form of the closed form, with or without positions that neither end uses.
    ClosedForm {
        /// Which digits take part although they need not.
        form: Form,
        /// Whether digits may take positions that are local in both ends.
        spares: bool,
    },
    /// One exchange straight from source to target, of digits.
    Direct,
    /// The search over digit states.
    Search,
    /// Regions that overlap.
    Regions,
    /// One axis at a time, as frameworks do.
    Greedy,
    /// Placements of few axes at a time, where only some groups may be used.
    Axes,
    /// The plan between the duals, turned round.
    Mirror,
    /// One exchange between the duals, turned round: terms are added where they land, and what is missing is shared out among the
    /// ranks whose terms add up.
    OneExchange,
    /// Two plans, one after the other, by way of parts of a dim that are terms in one end.
    Detour,
}

impl fmt::Display for CandidateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CandidateSource::ClosedForm { form, spares: true } => write!(f, "closed form, {form}"),
            CandidateSource::ClosedForm { form, spares: false } => {
                write!(f, "closed form, {form}, no spares")
            }
            CandidateSource::Direct => f.write_str("one direct exchange"),
            CandidateSource::Search => f.write_str("search"),
            CandidateSource::Regions => f.write_str("overlapping regions"),
            CandidateSource::Greedy => f.write_str("axis by axis"),
            CandidateSource::Axes => f.write_str("placements of few axes at a time"),
            CandidateSource::Mirror => f.write_str("the plan between the duals, turned round"),
            CandidateSource::OneExchange => f.write_str("one exchange between the duals, turned round"),
            CandidateSource::Detour => f.write_str("by way of parts of a dim"),
        }
    }
}
