//! What the chooser looked at, for those who ask why a plan won.

use core::fmt;

use crate::candidates::CandidateSource;
use crate::candidates::state_steps::Measured;
use crate::model::totals::Totals;
use crate::plan::Plan;
use crate::states::closed_form::Route;
use crate::states::search::MAX_MOVING;

/// A candidate as the chooser saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateReport {
    /// Where it comes from.
    pub origin: CandidateSource,
    /// What came of it.
    pub outcome: CandidateOutcome,
}

/// What came of an origin.
#[derive(Clone, Debug, PartialEq)]
pub enum CandidateOutcome {
    /// A candidate.
    Way(CandidateCost),
    /// Nothing that is better than the candidates before it.
    NothingBetter,
    /// It was not tried: more digits move than the search promises the best for.
    TooManyDigits,
}

/// What a candidate does, and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateCost {
    /// Its steps: `reduce_scatter tp; all_gather dp`, or `nothing`.
    pub steps: String,
    /// Modelled time in microseconds.
    pub cost_us: f64,
    /// Bytes that the worst rank receives; of a plan by digits, the sum over steps, each with its worst rank.
    pub received_bytes: u64,
    /// Bytes that the worst rank holds.
    pub peak_bytes: u64,
    /// Whether it keeps to the memory and the groups that were asked for.
    pub admitted: bool,
}

/// What was considered so far, and which of it is the best.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) considered: Vec<CandidateReport>,
    pub(crate) best: Option<usize>,
}

impl Watch {
    pub(super) fn see(watch: &mut Option<&mut Watch>, seen: impl FnOnce() -> CandidateReport) {
        if let Some(watch) = watch {
            watch.considered.push(seen());
        }
    }

    /// The best plan of an origin that shows no other, better than all before.
    pub(super) fn found(watch: &mut Option<&mut Watch>, origin: CandidateSource, plan: &Plan) {
        Watch::see(watch, || CandidateReport { origin, ..CandidateReport::plan(plan, true) });
        Watch::prefer(watch);
    }

    /// What was seen last is the best.
    pub(super) fn prefer(watch: &mut Option<&mut Watch>) {
        if let Some(watch) = watch {
            watch.best = watch.considered.len().checked_sub(1);
        }
    }
}

impl CandidateReport {
    pub(super) fn search(outcome: CandidateOutcome) -> CandidateReport {
        CandidateReport { origin: CandidateSource::Search, outcome }
    }

    /// The candidate, if there is one.
    pub fn way(&self) -> Option<&CandidateCost> {
        match &self.outcome {
            CandidateOutcome::Way(way) => Some(way),
            CandidateOutcome::NothingBetter | CandidateOutcome::TooManyDigits => None,
        }
    }

    pub(super) fn route(
        origin: CandidateSource,
        route: &Route,
        measured: &[Measured],
        admitted: bool,
    ) -> CandidateReport {
        let mesh = &route.system.mesh;
        let step = |x: &Measured| {
            let names = x.axes.iter().filter_map(|&m| {
                let mut text = String::new();
                mesh.sub_axis(m)?.write(&mut text, mesh.axes()).ok()?;
                Some(text)
            });
            format!("{} {}", x.op, names.collect::<Vec<_>>().join(","))
        };
        let totals = Totals::of(measured.iter().map(|x| &x.cost));
        let way = CandidateCost {
            steps: listed(&measured.iter().map(step).collect::<Vec<_>>()),
            cost_us: measured.iter().fold(0.0, |total, x| total + x.cost.us),
            received_bytes: totals.bytes,
            peak_bytes: totals.peak,
            admitted,
        };
        CandidateReport { origin, outcome: CandidateOutcome::Way(way) }
    }

    pub(super) fn plan(plan: &Plan, admitted: bool) -> CandidateReport {
        let step = |s: &crate::step::Step| format!("{} {}", s.op(), s.axis_names().join(","));
        let way = CandidateCost {
            steps: listed(&plan.steps.iter().map(step).collect::<Vec<_>>()),
            cost_us: plan.cost_us(),
            received_bytes: plan.received_bytes,
            peak_bytes: plan.peak_bytes,
            admitted,
        };
        CandidateReport { origin: CandidateSource::Regions, outcome: CandidateOutcome::Way(way) }
    }
}

fn listed(steps: &[String]) -> String {
    if steps.is_empty() { "nothing".to_owned() } else { steps.join("; ") }
}

impl fmt::Display for CandidateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match &self.outcome {
            CandidateOutcome::Way(way) => way,
            CandidateOutcome::NothingBetter => {
                return write!(f, "{}: nothing better than what stands above", self.origin);
            }
            CandidateOutcome::TooManyDigits => {
                return write!(f, "{}: not tried, more than {MAX_MOVING} digits move", self.origin);
            }
        };
        write!(f, "{}: {}: ", self.origin, way.steps)?;
        write!(f, "{:.1} us, {} B, peak {} B", way.cost_us, way.received_bytes, way.peak_bytes)?;
        if way.admitted { Ok(()) } else { f.write_str(", beyond the limits") }
    }
}
