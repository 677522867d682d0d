//! The candidates that the chooser considered, to explain why a plan won.

use core::fmt;

use crate::candidates::CandidateSource;
use crate::candidates::state_steps::Measured;
use crate::model::totals::Totals;
use crate::plan::Plan;
use crate::states::closed_form::Route;
use crate::states::search::MAX_MOVING;

/// A candidate with its outcome.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct CandidateReport {
    /// The generator of the candidate.
    pub origin: CandidateSource,
    /// The result of the generator.
    pub outcome: CandidateOutcome,
}

/// The result of a generator of candidates.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub enum CandidateOutcome {
    /// A candidate.
    Way(CandidateCost),
    /// No candidate that is better than those before.
    NothingBetter,
    /// Not tried: more digits change than the search can handle optimally.
    TooManyDigits,
}

/// The steps of a candidate, and their cost.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct CandidateCost {
    /// Its steps: `reduce_scatter tp; all_gather dp`, or `nothing`.
    pub steps: String,
    /// Modelled time in microseconds.
    pub cost_us: f64,
    /// Bytes that the worst rank receives.
    ///
    /// For a plan by digits it is the sum over steps, each with its worst rank.
    pub received_bytes: u64,
    /// Bytes that the worst rank holds.
    pub peak_bytes: u64,
    /// `true` if it keeps to the requested limits of memory and groups.
    pub admitted: bool,
}

/// The candidates considered so far, and the index of the best one.
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

    /// Records the best plan of a generator that reports no others, as better than all before.
    pub(super) fn found(watch: &mut Option<&mut Watch>, origin: CandidateSource, plan: &Plan) {
        Watch::see(watch, || CandidateReport { origin, ..CandidateReport::plan(plan, true) });
        Watch::prefer(watch);
    }

    /// Marks the last candidate as the best.
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

    /// Returns the candidate, if there is one.
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
                return write!(f, "{}: nothing better than the candidates above", self.origin);
            }
            CandidateOutcome::TooManyDigits => {
                return write!(f, "{}: skipped, more than {MAX_MOVING} digits change", self.origin);
            }
        };
        write!(f, "{}: {}: ", self.origin, way.steps)?;
        write!(f, "{:.1} us, {} B, peak {} B", way.cost_us, way.received_bytes, way.peak_bytes)?;
        if way.admitted { Ok(()) } else { f.write_str(", beyond the limits") }
    }
}
