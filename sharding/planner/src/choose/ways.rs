//! The best path over regions, most of which are never counted.
//!
//! A lower bound of a path is known before its messages are counted. Reductions have their exact cost. An
//! exchange of regions costs at least what its worst rank receives, and from how many peers. The bound of a
//! segment that is a separate problem is 0, until the path is next. So paths are counted in the order of their bounds, and counting
//! stops as soon as the next cannot win. The choice is the same as with all of them counted.
//!
//! The work counter continues from the proposals of the paths. Past the budget nothing more is counted, with
//! two exceptions: the direct path if it could still win, and any path until there is a plan at all.

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::candidates::{Leg, regions};
use crate::choose;
use crate::choose::considered::{CandidateReport, Watch};
use crate::choose::{admits, key};
use crate::model::totals::{Cost, picoseconds_below};
use crate::objective::Objective;
use crate::plan::Plan;
use crate::problem::Question;
use crate::step::Step;
use crate::stop;
use reshard_sharding::Sharding;

/// Returns the best path if it beats `known`, and the effort.
///
/// The plan has neither its bounds nor its sent bytes.
pub(super) fn best_plan(
    q: &Question<'_>,
    known: Option<&Plan>,
    watch: &mut Option<&mut Watch>,
) -> Result<(Option<Plan>, Effort), Error> {
    let mut ways = regions::ways(q)?;
    let mut parts = Parts::default();
    let mut order: Vec<(u64, usize)> = Vec::with_capacity(ways.all.len());
    for (i, way) in ways.all.iter().enumerate() {
        order.push((least(q, way), i));
    }
    order.sort_unstable();
    let mut known = known.map(|plan| key(q.options, plan));
    let mut best: Option<(usize, Plan)> = None;
    let mut seen: Vec<Option<CandidateReport>> = vec![None; if watch.is_some() { ways.all.len() } else { 0 }];
    let (mut shown, mut exhausted) = (0u64, ways.exhausted);
    for (least, i) in order {
        stop::go_on()?;
        let way = &ways.all[i];
        let loses =
            known.is_some_and(|k| least > k[0] || parts.least_with_shares(q, way).is_some_and(|x| x > k[0]));
        let work = way.iter().map(|leg| work_to_count(q, leg)).sum::<u64>();
        if loses {
            // Counted only for the report, up to the budget again.
            shown = shown.saturating_add(work);
            if watch.is_none() || shown > q.options.budget.work() {
                continue;
            }
        } else {
            let more = ways.work.saturating_add(work);
            if more > q.options.budget.work() && known.is_some() && i != ways.direct {
                exhausted = true;
                continue;
            }
            ways.work = more;
        }
        let Some(steps) = parts.resolve(q, way)? else { continue };
        let picoseconds = picoseconds_of(&steps);
        let dearer = q.options.objective == Objective::Time && known.is_some_and(|k| picoseconds > k[0]);
        if dearer && watch.is_none() {
            continue;
        }
        let plan = assemble_unbounded(q, steps, None)?;
        let admitted = admits(q.options, &plan);
        if watch.is_some() {
            seen[i] = Some(CandidateReport::plan(&plan, admitted));
        }
        let cost = key(q.options, &plan);
        let wins = |k: [u64; 3]| cost < k || (cost == k && best.as_ref().is_some_and(|(b, _)| i < *b));
        if admitted && known.is_none_or(wins) {
            known = Some(cost);
            best = Some((i, plan));
        }
    }
    for (i, seen) in seen.into_iter().enumerate().filter_map(|(i, seen)| Some((i, seen?))) {
        Watch::see(watch, || seen);
        if best.as_ref().is_some_and(|(b, _)| *b == i) {
            Watch::prefer(watch);
        }
    }
    let effort = Effort { work: ways.work, exhausted }.and(parts.effort());
    Ok((best.map(|(_, plan)| plan), effort))
}

/// Returns a lower bound of a path, in the first number of the objective's key.
fn least(q: &Question<'_>, way: &[Leg]) -> u64 {
    way.iter().fold(0, |least, leg| with_leg(q, least, least_of(leg)))
}

/// Returns the least time, bytes and peak of a segment; zeros if it is still to be planned.
fn least_of(leg: &Leg) -> [u64; 3] {
    match leg {
        Leg::Step(s) => [Cost::new(s.cost_us, 0, 0).picoseconds, s.received_bytes, s.peak_bytes],
        Leg::Move(p) => [picoseconds_below(p.least_us), p.received, p.peak],
        Leg::Plan { .. } | Leg::Share { .. } | Leg::Local { .. } => [0; 3],
    }
}

/// Returns the lower bound of a path, and of a segment with this time, bytes and peak after it.
fn with_leg(q: &Question<'_>, least: u64, [time, bytes, peak]: [u64; 3]) -> u64 {
    match q.options.objective {
        Objective::Time => least.saturating_add(time),
        Objective::Bytes => least.max(bytes),
        Objective::Peak => least.max(peak),
    }
}

fn picoseconds_of(steps: &[Step]) -> u64 {
    steps.iter().map(|s| Cost::new(s.cost_us, 0, 0).picoseconds).sum()
}

fn work_to_count(q: &Question<'_>, leg: &Leg) -> u64 {
    match leg {
        Leg::Move(proposed) => proposed.work_to_count(q.options.model.levels()),
        Leg::Step(_) | Leg::Plan { .. } | Leg::Share { .. } | Leg::Local { .. } => 0,
    }
}

/// The segments of paths that are separate problems, each solved once.
#[derive(Default)]
pub(super) struct Parts {
    /// Plans, and whether their sources were relayed.
    answered: Vec<(bool, Plan)>,
}

impl Parts {
    /// Returns the effort of all of them.
    pub(super) fn effort(&self) -> Effort {
        self.answered.iter().fold(Effort::default(), |all, (_, plan)| all.and(plan.effort))
    }

    /// Returns a better lower bound of an exchange whose parts are gathered afterwards; `None` for other paths.
    ///
    /// To plan the gather is usually less work than to count the messages of the exchange.
    fn least_with_shares(&mut self, q: &Question<'_>, way: &[Leg]) -> Option<u64> {
        let [Leg::Move(first), Leg::Share { to }] = way else { return None };
        let share = self.part_from(q, &first.regions.to, to, true).ok()?;
        let of_share = [picoseconds_of(&share.steps), share.received_bytes, share.peak_bytes];
        Some(with_leg(q, least(q, &way[..1]), of_share))
    }

    /// Returns the steps of a path; `None` if a segment that must be local communicates, or has no plan.
    pub(super) fn resolve(&mut self, q: &Question<'_>, way: &[Leg]) -> Result<Option<Vec<Step>>, Error> {
        let mut steps: Vec<Step> = Vec::with_capacity(way.len());
        for leg in way {
            match leg {
                Leg::Step(step) => steps.push(Step::clone(step)),
                Leg::Move(proposed) => steps.push(q.counted(proposed)?),
                Leg::Plan { to } => steps.extend(self.part(q, &steps, to, false)?.steps.iter().cloned()),
                Leg::Share { to } => match self.part(q, &steps, to, true) {
                    // The mesh may have no group for it.
                    Err(Error::Sharding(_)) => return Ok(None),
                    part => steps.extend(part?.steps.iter().cloned()),
                },
                Leg::Local { to } => {
                    let part = self.part(q, &steps, to, false)?;
                    if part.received_bytes > 0 {
                        return Ok(None);
                    }
                    steps.extend(part.steps.iter().cloned());
                }
            }
        }
        Ok(Some(steps))
    }

    /// Returns the plan from the sharding after `steps`.
    fn part(
        &mut self,
        q: &Question<'_>,
        steps: &[Step],
        to: &Sharding,
        is_relayed: bool,
    ) -> Result<&Plan, Error> {
        self.part_from(q, steps.last().map_or(q.from, |s| &s.after), to, is_relayed)
    }

    fn part_from(
        &mut self,
        q: &Question<'_>,
        from: &Sharding,
        to: &Sharding,
        is_relayed: bool,
    ) -> Result<&Plan, Error> {
        let is =
            |(relayed, plan): &(bool, Plan)| *relayed == is_relayed && *plan.from == *from && *plan.to == *to;
        let at = if let Some(at) = self.answered.iter().position(is) {
            at
        } else {
            let options = q.options.without_limits();
            let mut part = Question::checked(&options, from, to, q.dtype)?;
            part.is_relayed = is_relayed;
            self.answered.push((is_relayed, choose::plan_straight(&part)?));
            self.answered.len() - 1
        };
        Ok(&self.answered[at].1)
    }
}
