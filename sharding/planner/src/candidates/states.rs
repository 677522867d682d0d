//! Candidates within a digit system: the forms of the closed form, the direct exchange, and the result of a
//! search.

use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};
use smallvec::SmallVec;

use crate::budget::Effort;
use crate::candidates::CandidateSource;
use crate::objective::Objective;
use crate::op::StepOp;
use crate::problem::Question;
use crate::states::closed_form::{self, Form, Move, Route};
use crate::states::ends::Ends;
use crate::states::search::{Allowed, Limits, MAX_MOVING, Problem};
use crate::states::system::State;

/// Returns the leanest closed form; `None` if a head had to be embedded as an average.
pub(crate) fn lean(ends: &Ends) -> Option<Route> {
    closed_form::plan(&ends.system, &ends.from, &ends.to, Form::Lean, true)
}

/// Returns the exchange straight from one end to the other.
pub(crate) fn direct(ends: &Ends) -> Route {
    let [before, after] = [&ends.from, &ends.to].map(|s| State::from_slice(s));
    let moves = SmallVec::from_iter([Move { op: StepOp::Exchange, before, after }]);
    Route { system: Arc::clone(&ends.system), moves }
}

/// Returns the forms of the closed form.
///
/// Without reductions, one direct exchange is added if it saves a step.
pub(crate) fn routes(ends: &Ends) -> SmallVec<[(CandidateSource, Route); 1]> {
    const ALL: [(Form, bool); 6] = [
        (Form::Lean, true),
        (Form::Full, true),
        (Form::Plain, true),
        (Form::Lean, false),
        (Form::Plain, false),
        (Form::Full, false),
    ];
    let Ends { system, from, to, .. } = ends;
    let forms = if ends.has_terms() { &ALL[..] } else { &ALL[..1] };
    let mut routes: SmallVec<[(CandidateSource, Route); 1]> = SmallVec::new();
    for &(form, spares) in forms {
        if let Some(route) = closed_form::plan(system, from, to, form, spares)
            && !routes.iter().any(|(_, other)| same_moves(other, &route))
        {
            routes.push((CandidateSource::ClosedForm { form, spares }, route));
        }
    }
    let reduces = from.iter().zip(to).any(|(a, b)| a != b && (a.is_partial() || b.is_partial()));
    let fewest = routes.iter().map(|(_, route)| route.communicating_moves()).min();
    if !reduces && fewest.unwrap_or(0) > 1 {
        routes.push((CandidateSource::Direct, direct(ends)));
    }
    routes
}

fn same_moves(a: &Route, b: &Route) -> bool {
    a.moves.len() == b.moves.len()
        && a.moves.iter().zip(&b.moves).all(|(x, y)| x.op == y.op && x.after == y.after)
        && (Arc::ptr_eq(&a.system, &b.system) || a.system == b.system)
}

/// Returns `true` if there may be better routes than the closed forms.
///
/// On one level and without partial sums, the closed form and the direct exchange receive the fewest bytes.
/// For tiny tensors, a gather and a slice would save the time of a few messages and transfer more. That is
/// considered only where collectives were measured.
pub(crate) fn may_search(q: &Question<'_>, ends: &Ends) -> bool {
    let searches = q.options.is_limited() || q.options.objective == Objective::Peak;
    searches || !q.network.model.is_one_formula() || ends.has_terms()
}

/// The outcome of a search.
#[allow(clippy::large_enum_variant, reason = "one per problem, and destructured immediately")]
pub(crate) enum Searched {
    Found(Route),
    NothingBetter,
    /// More digits change than the search can handle optimally.
    TooManyDigits,
    /// The closed forms are optimal.
    NotNeeded,
}

/// Searches for a route with a better key than `best`, where the closed forms may not be optimal.
///
/// Returns the effort of the search as well.
pub(crate) fn searched(q: &Question<'_>, ends: &Ends, best: Option<[u64; 3]>) -> (Searched, Effort) {
    if !may_search(q, ends) {
        return (Searched::NotNeeded, Effort::default());
    }
    let allowed = |axes: &[Mode<AxisStride>]| {
        q.from.mesh().group_of_modes(axes).is_ok_and(|group| q.options.admits_group(&group))
    };
    let limits = Limits {
        objective: q.options.objective,
        item: q.item,
        max_peak: q.options.max_peak_bytes,
        work: q.options.budget.work(),
        allowed: q.options.groups.as_ref().map(|_| &allowed as Allowed<'_>),
    };
    let problem = Problem::new(&q.network, &limits, &ends.system, &ends.from, &ends.to);
    let Some(problem) = problem.filter(|problem| problem.moving() <= MAX_MOVING) else {
        return (Searched::TooManyDigits, Effort::default());
    };
    let (found, effort) = problem.search(best.map(|[primary, secondary, _]| [primary, secondary]));
    (found.map_or(Searched::NothingBetter, Searched::Found), effort)
}
