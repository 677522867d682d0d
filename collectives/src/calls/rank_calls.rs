//! A plan as the calls of one rank.
//!
//! # The schedule
//!
//! A call on a group is made by all its members. If ranks borrow a group that contains other ranks, these
//! participate without data. All ranks know which group is borrowed: it follows from the step, the plan's
//! ranks and the framework groups, which are the same on all ranks. All ranks list their calls by
//!
//! ```text
//! (step of the plan, phase of the step, index of the group in the framework groups)
//! ```
//!
//! which is one order for all, so no cycle of waiting ranks can form. Ranks that share no group in a phase
//! may all borrow the same one: it is then called once, for all of them.

use std::fmt;

use reshard_kernels::DType;
use reshard_planner::{Phases, Plan, Step};
use reshard_sharding::internal::ranks_of_both;
use smallvec::SmallVec;

use super::exchange::{Head, Via};
use super::{FrameworkGroups, RankCall};
use crate::Error;
use crate::lower::takes_part;

/// The calls with which one rank runs a plan, in order.
///
/// The first call reads the rank's source; each later one reads the output of the call before. Without calls,
/// the target is the source.
///
/// ```
/// use reshard_collectives::calls::{FrameworkGroups, RankCalls};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::{Mesh, Sharding};
///
/// let mesh: Mesh = "x=2".parse()?;
/// let from = Sharding::parse(&mesh, &[4, 4], "S(0)")?;
/// let plan = Planner::new().plan(&from, &Sharding::parse(&mesh, &[4, 4], "S(1)")?, DType::F32)?;
/// let calls = |offers| RankCalls::new(&plan, 1, DType::F32, &offers);
/// let world = FrameworkGroups::new([("world", [0, 1])])?;
/// assert_eq!(calls(world)?.to_string(), "0+(2:2,2:4,2:1) -> all_to_all world[0,1] 4,4 from 4,4 -> 0+(8:1)");
/// assert_eq!(calls(FrameworkGroups::default())?.to_string(), "0+(2:2,2:4,2:1) -> messages 0:4,1:4 from 0:4,1:4 -> 0+(8:1)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RankCalls {
    rank: usize,
    dtype: DType,
    calls: Vec<RankCall>,
}

impl RankCalls {
    /// Returns the calls of a rank, for elements of a type, on existing groups.
    ///
    /// Elements that are only copied may be of any type; partial values must be of one that the plan's
    /// [`Arithmetic`](reshard_planner::Arithmetic) reduces.
    ///
    /// Requires the same framework groups on every rank. Errors: [`Error::NotInPlan`]; [`Error::Kernel`] for
    /// partial values that the kernels of this library cannot reduce, unless the plan leaves that to the
    /// framework.
    pub fn new(plan: &Plan, rank: usize, dtype: DType, offers: &FrameworkGroups) -> Result<RankCalls, Error> {
        RankCalls::told(plan, rank, dtype, offers, true)
    }

    /// Returns the same calls, built from lists of all messages.
    ///
    /// A test compares them with [`RankCalls::new`].
    #[doc(hidden)]
    pub fn listed(
        plan: &Plan,
        rank: usize,
        dtype: DType,
        offers: &FrameworkGroups,
    ) -> Result<RankCalls, Error> {
        RankCalls::told(plan, rank, dtype, offers, false)
    }

    /// Returns the calls, built from digits where that is possible and requested.
    fn told(
        plan: &Plan,
        rank: usize,
        dtype: DType,
        offers: &FrameworkGroups,
        by_digits: bool,
    ) -> Result<RankCalls, Error> {
        if !takes_part(plan, rank) {
            return Err(Error::NotInPlan { rank });
        }
        let arithmetic = plan.options().arithmetic();
        arithmetic.check(plan.from(), dtype)?;
        arithmetic.check(plan.to(), dtype)?;
        let mut schedule = Schedule {
            plan,
            rank,
            offers,
            by_digits,
            is_of_plan: SmallVec::from_elem(None, offers.iter().len()),
        };
        let mut calls = Vec::with_capacity(plan.steps().len());
        let mut len = if plan.from().mesh().contains(rank) { plan.from().local_numel(rank) } else { 0 };
        for step in 0..plan.steps().len() {
            schedule.step(step, &mut len, &mut calls)?;
        }
        Ok(RankCalls { rank, dtype, calls })
    }

    /// Wraps these calls of a rank.
    pub(crate) fn of(rank: usize, dtype: DType, calls: Vec<RankCall>) -> RankCalls {
        RankCalls { rank, dtype, calls }
    }

    /// Returns the rank of these calls.
    #[doc(hidden)]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the type of the elements.
    #[doc(hidden)]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the calls in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RankCall> + '_ {
        self.calls.iter()
    }
}

impl fmt::Display for RankCalls {
    /// Writes one line per call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, call) in self.calls.iter().enumerate() {
            write!(f, "{}{call}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

/// The inputs that determine which rank makes which call, and when.
struct Schedule<'a> {
    plan: &'a Plan,
    rank: usize,
    offers: &'a FrameworkGroups,
    /// `true` if digits may replace lists of messages.
    by_digits: bool,
    /// For each group, `true` if all its members are ranks of the plan; `None` until it is computed.
    is_of_plan: SmallVec<[Option<bool>; 16]>,
}

impl Schedule<'_> {
    /// Appends the calls of a step, and updates the length of the buffer.
    fn step(&mut self, at: usize, len: &mut usize, calls: &mut Vec<RankCall>) -> Result<(), Error> {
        let step = &self.plan.steps()[at];
        let head = Head::new(self.plan, at);
        if !step.op().communicates() {
            for phase in &step.phases(self.rank)? {
                calls.push(head.call(self.rank, phase, Via::Local)?);
                *len = phase.target_len;
            }
            return Ok(());
        }
        let mine = self.members(step)?;
        let place = mine.as_ref().and_then(|members| self.chosen(members));
        let via = match (&mine, place.map(|place| self.offers.at(place))) {
            (Some(members), Some(group)) if group.members().len() == members.len() => Via::Members(group),
            (Some(_), Some(group)) => Via::Around(group),
            (Some(_), None) | (None, _) => Via::Messages,
        };
        let attended = self.attended(step, place)?;
        let attend = |before: bool, len: usize, calls: &mut Vec<RankCall>| {
            let others = attended.iter().filter(|other| (**other < place.unwrap_or(0)) == before);
            calls.extend(others.map(|other| head.attendance(self.offers.at(*other), len)));
        };
        let mut whole = head.all_reduce(step, *len, via)?;
        // If digits describe all peers, the messages are not listed.
        if let (true, None, Via::Members(group), 1) = (self.by_digits, &whole, via, step.exchanges())
            && let Some(digits) = step.digit_phase(self.rank)?
        {
            whole = head.of_digits(&digits, group)?;
        }
        let phases = if mine.is_some() && whole.is_none() { step.phases(self.rank)? } else { Phases::new() };
        for index in 0..step.exchanges() {
            attend(true, *len, calls);
            if let Some(call) = whole.take() {
                *len = call.target_len;
                calls.push(call);
            }
            if let Some(phase) = phases.get(index) {
                calls.push(head.call(self.rank, phase, via)?);
                *len = phase.target_len;
            }
            attend(false, *len, calls);
        }
        Ok(())
    }

    /// Returns the ranks with which this one communicates in a step, itself included, ascending.
    ///
    /// `None` if it takes no part.
    fn members(&self, step: &Step) -> Result<Option<SmallVec<[usize; 16]>>, Error> {
        let (before, after) = (step.before.mesh(), step.after.mesh());
        let members = if before != after {
            SmallVec::from_vec(ranks_of_both(before, after))
        } else if before.contains(self.rank) {
            before.members(&step.axes, self.rank)?.iter().collect()
        } else {
            SmallVec::new()
        };
        Ok(Some(members).filter(|members| members.contains(&self.rank)))
    }

    /// Returns the index of the group on which these ranks, which ascend, are called.
    ///
    /// It is the group of exactly these ranks, else the smallest that contains them and no rank outside of
    /// the plan.
    fn chosen(&mut self, members: &[usize]) -> Option<usize> {
        let offers = self.offers;
        let holds = |place: usize| members.iter().all(|rank| offers.at(place).group_rank(*rank).is_some());
        offers.exact(members).or_else(|| {
            let candidates = offers.holding(*members.first()?);
            candidates.iter().copied().find(|&place| holds(place) && self.is_of_plan(place))
        })
    }

    fn is_of_plan(&mut self, place: usize) -> bool {
        let (plan, offers) = (self.plan, self.offers);
        let all = || offers.at(place).members().iter().all(|rank| takes_part(plan, *rank));
        *self.is_of_plan[place].get_or_insert_with(all)
    }

    /// Returns the groups, in their order, that other ranks borrow in a step and that contain this rank.
    ///
    /// Its own group is not included.
    fn attended(&mut self, step: &Step, own: Option<usize>) -> Result<SmallVec<[usize; 4]>, Error> {
        let mut attended: SmallVec<[usize; 4]> = SmallVec::new();
        let (before, after) = (step.before.mesh(), step.after.mesh());
        let size = if before == after { step.group.size() } else { ranks_of_both(before, after).len() };
        // A borrowed group has more members than its borrowers.
        let rank = self.rank;
        if self.offers.holding(rank).last().is_none_or(|&place| self.offers.at(place).members().len() <= size)
        {
            return Ok(attended);
        }
        let mut add = |place: Option<usize>, offers: &FrameworkGroups| {
            let new =
                place.filter(|place| Some(*place) != own && offers.at(*place).group_rank(rank).is_some());
            attended.extend(new);
        };
        if before == after {
            let groups = before.groups(&step.axes)?;
            if self.offers.has_all(&groups) {
                return Ok(attended);
            }
            let mut members: SmallVec<[usize; 16]> = SmallVec::new();
            for group in groups.iter() {
                members.clear();
                members.extend(group.iter());
                add(self.chosen(&members), self.offers);
            }
        } else {
            add(self.chosen(&ranks_of_both(before, after)), self.offers);
        }
        attended.sort_unstable();
        attended.dedup();
        Ok(attended)
    }
}
