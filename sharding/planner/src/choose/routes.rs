//! The best route within a digit system, found without making its steps.

use smallvec::SmallVec;

use crate::Error;
use crate::assemble::assemble;
use crate::budget::Effort;
use crate::candidates::CandidateSource;
use crate::candidates::state_steps::{Measured, MeasuredMoves};
use crate::candidates::states::{Searched, direct, lean, may_search, routes, searched};
use crate::choose::considered::{CandidateOutcome, CandidateReport, Watch};
use crate::model::codes::Weight;
use crate::model::totals::Totals;
use crate::objective::Objective;
use crate::plan::Plan;
use crate::problem::Question;
use crate::states::closed_form::{Form, Route};
use crate::states::ends::Ends;
use crate::states::system::has_group;

/// The result of comparing routes.
pub(super) struct Routed {
    pub(super) plan: Option<Plan>,
    pub(super) effort: Effort,
    /// `true` if more digits change than the search is tried with.
    pub(super) left_out: bool,
}

/// Returns the best of the closed forms, and of a search where they may not be optimal.
///
/// The search ignores everything that costs more than `limit` picoseconds.
pub(super) fn best_plan(
    q: &Question<'_>,
    ends: &Ends,
    limit: u64,
    watch: &mut Option<&mut Watch>,
) -> Result<Routed, Error> {
    if !may_search(q, ends)
        && let Some((route, measured)) = best_of_two(q, ends, watch)?
    {
        let plan = Some(plan_of(q, &route, ends, &measured)?);
        return Ok(Routed { plan, effort: Effort::default(), left_out: false });
    }
    let mut best: Option<([u64; 3], Route, MeasuredMoves)> = None;
    for (origin, route) in routes(ends) {
        let found = key(q, &route, &ends.weights, origin, watch)?;
        if let Some((key, measured)) = found
            && best.as_ref().is_none_or(|b| key < b.0)
        {
            best = Some((key, route, measured));
            Watch::prefer(watch);
        }
    }
    let limit =
        (limit < u64::MAX && q.options.objective == Objective::Time).then(|| [limit.saturating_add(1), 0, 0]);
    let below = best.as_ref().map(|b| b.0).into_iter().chain(limit).min();
    let (mut found, effort) = searched(q, ends, below);
    if effort.exhausted && best.is_none() && !matches!(found, Searched::Found(_)) {
        // No problem is rejected for lack of budget: search on until any route is found.
        found = searched(q, ends, None).0;
    }
    let left_out = matches!(found, Searched::TooManyDigits);
    match found {
        Searched::Found(route) => {
            let found = key(q, &route, &ends.weights, CandidateSource::Search, watch)?;
            if let Some((key, measured)) = found
                && best.as_ref().is_none_or(|b| key < b.0)
            {
                best = Some((key, route, measured));
                Watch::prefer(watch);
            }
        }
        Searched::NothingBetter => {
            Watch::see(watch, || CandidateReport::search(CandidateOutcome::NothingBetter));
        }
        Searched::TooManyDigits => {
            Watch::see(watch, || CandidateReport::search(CandidateOutcome::TooManyDigits));
        }
        Searched::NotNeeded => {}
    }
    let plan = best.map(|(_, route, measured)| plan_of(q, &route, ends, &measured)).transpose()?;
    Ok(Routed { plan, effort, left_out })
}

/// Returns the closed form, or the direct exchange if that takes fewer steps and is better.
///
/// It applies without partial values and limits on one level.
pub(super) fn best_of_two(
    q: &Question<'_>,
    ends: &Ends,
    watch: &mut Option<&mut Watch>,
) -> Result<Option<(Route, MeasuredMoves)>, Error> {
    let Some(mut best) = lean(ends) else { return Ok(None) };
    let mut measured = q.measure_all(&best, &ends.weights)?;
    let origin = CandidateSource::ClosedForm { form: Form::Lean, spares: true };
    Watch::see(watch, || CandidateReport::route(origin, &best, &measured, true));
    Watch::prefer(watch);
    if best.communicating_moves() > 1 {
        let direct = direct(ends);
        let x = q.measure(&direct.system, &ends.weights, &direct.moves[0])?;
        let x: MeasuredMoves = SmallVec::from_iter([x]);
        Watch::see(watch, || CandidateReport::route(CandidateSource::Direct, &direct, &x, true));
        if key_of(q, &x) < key_of(q, &measured) {
            (best, measured) = (direct, x);
            Watch::prefer(watch);
        }
    }
    Ok(Some((best, measured)))
}

fn plan_of(q: &Question<'_>, route: &Route, ends: &Ends, measured: &[Measured]) -> Result<Plan, Error> {
    let steps = q.measured_steps(route, &ends.weights, measured)?;
    let received = q.most_received(&route.system, &steps)?;
    assemble(q, steps, Some(ends), Some(received))
}

fn key_of(q: &Question<'_>, measured: &[Measured]) -> [u64; 3] {
    Totals::of(measured.iter().map(|x| &x.cost)).key(q.options.objective)
}

/// Returns the key by which a route is compared, without making its steps; `None` if not admitted.
///
/// A system whose positions were split has the digits that it had.
pub(crate) fn key(
    q: &Question<'_>,
    route: &Route,
    weights: &[Weight],
    origin: CandidateSource,
    watch: &mut Option<&mut Watch>,
) -> Result<Option<([u64; 3], MeasuredMoves)>, Error> {
    let measured = q.measure_all(route, weights)?;
    let totals = Totals::of(measured.iter().map(|x| &x.cost));
    let mut admitted = q.options.admits_peak(totals.peak);
    let talks = || measured.iter().filter(|x| x.op.communicates());
    admitted &= talks().all(|x| has_group(&route.system.mesh, &x.axes));
    if q.options.groups.is_some() && admitted {
        for x in talks() {
            admitted &= q.options.admits_group(&route.system.mesh.group_of_modes(&x.axes)?);
        }
    }
    Watch::see(watch, || CandidateReport::route(origin, route, &measured, admitted));
    Ok(admitted.then(|| (totals.key(q.options.objective), measured)))
}
