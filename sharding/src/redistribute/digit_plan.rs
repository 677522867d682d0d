//! Plans within a digit system: which candidates there are, and the best of them.

use std::sync::Arc;

use reshard_layout::{At, Mode};
use smallvec::SmallVec;

use crate::Error;
use crate::redistribute::bounds::Weight;
use crate::redistribute::closed_form::{self, Candidate, Form, Move};
use crate::redistribute::digit_step::{Measured, MeasuredMoves};
use crate::redistribute::network::inside_one_unit;
use crate::redistribute::plan::Plan;
use crate::redistribute::planner::{Objective, Totals, Work};
use crate::redistribute::search::{Allowed, Limits, MAX_MOVING, Problem};
use crate::redistribute::step::StepOp;
use crate::redistribute::system::{Place, State, System, refine};

/// A digit system, and both ends as states of it.
pub(super) struct Ends {
    pub(super) system: Arc<System>,
    pub(super) from: State,
    pub(super) to: State,
    /// What traffic knows of the digits, and what bounds do.
    pub(super) weights: Weights,
    pub(super) bounding: Weights,
}

/// What is known of each digit of a system.
pub(super) type Weights = SmallVec<[Weight; 8]>;

impl Ends {
    fn has_terms(&self) -> bool {
        self.from.iter().chain(&self.to).any(|p| p.is_partial())
    }

    /// Whether terms are reduced, and some digit that could share the work finds no position that it divides.
    pub(super) fn lacks_spares(&self) -> bool {
        let Ends { system, from, to, .. } = self;
        if !from.iter().zip(to).any(|(a, b)| a.is_partial() && a != b) {
            return false;
        }
        let (standing_from, standing_to) = (system.standing(from), system.standing(to));
        let free = |p: &usize| standing_from[*p].is_none() && standing_to[*p].is_none();
        let finds =
            |extent: i64| (0..system.zip.len()).filter(free).any(|p| system.zip[p].extent % extent == 0);
        let shares = |(_, place): &(usize, &Place)| place.position().is_none();
        let lacks = |(d, _): (usize, &Place)| to[d].position().is_none() && !finds(system.digits[d].extent);
        from.iter().enumerate().filter(shares).any(lacks)
    }

    /// The exchange straight from one end to the other.
    fn direct(&self) -> Move {
        let [before, after] = [&self.from, &self.to].map(|s| State::from_slice(s));
        Move { op: StepOp::Exchange, before, after }
    }

    /// The forms of the closed form; without reductions also one direct exchange if it saves a step.
    pub(super) fn candidates(&self) -> SmallVec<[Candidate; 1]> {
        const ALL: [(Form, bool); 6] = [
            (Form::Lean, true),
            (Form::Full, true),
            (Form::Plain, true),
            (Form::Lean, false),
            (Form::Plain, false),
            (Form::Full, false),
        ];
        let Ends { system, from, to, .. } = self;
        let forms = if self.has_terms() { &ALL[..] } else { &ALL[..1] };
        let mut candidates: SmallVec<[Candidate; 1]> = SmallVec::new();
        for &(form, spares) in forms {
            if let Some(c) = closed_form::plan(system, from, to, form, spares)
                && !candidates.iter().any(|o| same_moves(o, &c))
            {
                candidates.push(c);
            }
        }
        let reduces = from.iter().zip(to).any(|(a, b)| a != b && (a.is_partial() || b.is_partial()));
        let steps = |c: &Candidate| c.moves.iter().filter(|m| m.op.communicates()).count();
        if !reduces && candidates.iter().map(steps).min().unwrap_or(0) > 1 {
            let moves = SmallVec::from_iter([self.direct()]);
            candidates.push(Candidate { system: Arc::clone(system), moves });
        }
        candidates
    }
}

fn same_moves(a: &Candidate, b: &Candidate) -> bool {
    a.moves.len() == b.moves.len()
        && a.moves.iter().zip(&b.moves).all(|(x, y)| x.op == y.op && x.after == y.after)
        && (Arc::ptr_eq(&a.system, &b.system) || a.system == b.system)
}

impl Work<'_> {
    /// The digit system of both ends, cut at the network's units if that nests, and both as states of it.
    pub(super) fn states(&self) -> Option<(Arc<System>, State, State)> {
        if self.from.mesh() != self.to.mesh() {
            return None;
        }
        let seeds = self.network.cuts();
        let seeded = refine(self.from, self.to, &seeds);
        if seeded.is_some() || seeds.is_empty() { seeded } else { refine(self.from, self.to, &[]) }
    }

    /// The same with what is known of the digits.
    pub(super) fn ends(&self) -> Option<Ends> {
        Some(self.ends_of(self.states()?))
    }

    pub(super) fn ends_of(&self, (system, from, to): (Arc<System>, State, State)) -> Ends {
        let (weights, nest) = self.weigh(system.digits.iter().copied());
        let bounding = if nest { Weights::from_slice(&weights) } else { inside_one_unit(&weights) };
        Ends { system, from, to, weights, bounding }
    }

    /// The best of the closed forms, and of a search where they may not be the best.
    /// A search looks at nothing that costs more than `limit` picoseconds.
    pub(super) fn best_digit_plan(&self, ends: &Ends, limit: u64) -> Result<Option<Plan>, Error> {
        if !self.may_search(ends)
            && let Some((candidate, measured)) = self.best_of_two(ends)?
        {
            return self.digit_plan(&candidate, ends, &measured).map(Some);
        }
        let mut best: Option<([u64; 3], Candidate, MeasuredMoves)> = None;
        for candidate in ends.candidates() {
            if let Some((key, measured)) = self.digit_key(&candidate, &ends.weights)?
                && best.as_ref().is_none_or(|b| key < b.0)
            {
                best = Some((key, candidate, measured));
            }
        }
        let limit = (limit < u64::MAX && self.planner.objective == Objective::Time)
            .then(|| [limit.saturating_add(1), 0, 0]);
        let below = best.as_ref().map(|b| b.0).into_iter().chain(limit).min();
        if let Some(candidate) = self.searched(ends, below)
            && let Some((key, measured)) = self.digit_key(&candidate, &ends.weights)?
            && best.as_ref().is_none_or(|b| key < b.0)
        {
            best = Some((key, candidate, measured));
        }
        best.map(|(_, candidate, measured)| self.digit_plan(&candidate, ends, &measured)).transpose()
    }

    /// Without terms and limits on one level: the closed form, or the direct exchange if that takes fewer steps and is
    /// better.
    pub(super) fn best_of_two(&self, ends: &Ends) -> Result<Option<(Candidate, MeasuredMoves)>, Error> {
        let Some(mut closed) = closed_form::plan(&ends.system, &ends.from, &ends.to, Form::Lean, true) else {
            return Ok(None);
        };
        let mut measured = self.measure_all(&closed, &ends.weights)?;
        if closed.moves.iter().filter(|m| m.op.communicates()).count() > 1 {
            let direct = ends.direct();
            let x = self.measure(&closed.system, &ends.weights, &direct)?;
            let key = |all: &[Measured]| Totals::of(all).key(self.planner.objective);
            if key(core::slice::from_ref(&x)) < key(&measured) {
                (closed.moves, measured) = (SmallVec::from_iter([direct]), SmallVec::from_iter([x]));
            }
        }
        Ok(Some((closed, measured)))
    }

    fn digit_plan(&self, c: &Candidate, ends: &Ends, measured: &[Measured]) -> Result<Plan, Error> {
        let steps = self.measured_steps(c, &ends.weights, measured)?;
        let received = self.most_received(&c.system, &steps)?;
        self.finish(steps, Some(ends), Some(received))
    }

    /// Whether there may be better plans than the closed forms.
    ///
    /// On one level and without partial sums, the closed form and the direct exchange receive no byte too many. For tiny
    /// tensors a gather and a slice would save the time of a few messages, and move more: that is not done.
    pub(super) fn may_search(&self, ends: &Ends) -> bool {
        let limited = self.planner.max_peak_bytes.is_some() || self.planner.groups.is_some();
        limited || self.network.levels() > 1 || self.planner.objective == Objective::Peak || ends.has_terms()
    }

    /// A better plan than one of this key, where the closed forms may not be the best.
    pub(super) fn searched(&self, ends: &Ends, best: Option<[u64; 3]>) -> Option<Candidate> {
        if !self.may_search(ends) {
            return None;
        }
        let allowed = |axes: &[Mode<At>]| {
            let known = self.planner.groups.as_deref().unwrap_or_default();
            self.from.mesh().group_of_modes(axes).is_ok_and(|g| known.contains(&g))
        };
        let limits = Limits {
            objective: self.planner.objective,
            item: self.item,
            max_peak: self.planner.max_peak_bytes,
            allowed: self.planner.groups.as_ref().map(|_| &allowed as Allowed<'_>),
        };
        let problem = Problem::new(&self.network, &limits, &ends.system, &ends.from, &ends.to)?;
        if problem.moving() > MAX_MOVING {
            return None;
        }
        problem.search(best.map(|[primary, secondary, _]| [primary, secondary]))
    }

    /// What traffic knows of some digits, and whether all nest with the network's units.
    pub(super) fn weigh(&self, digits: impl IntoIterator<Item = Mode<At>>) -> (Weights, bool) {
        let (mut weights, mut nest) = (Weights::new(), true);
        for d in digits {
            let (level, nests) = self.network.level(d);
            weights.push(Weight { radix: d.extent as u64, level });
            nest &= nests;
        }
        (weights, nest)
    }

    /// What traffic knows of the digits of a system.
    pub(super) fn weights(&self, system: &System) -> Weights {
        self.weigh(system.digits.iter().copied()).0
    }

    /// What a candidate is compared by, without making its steps; `None` if it is not admitted.
    ///
    /// A system whose positions were split has the digits that it had.
    pub(super) fn digit_key(
        &self,
        c: &Candidate,
        weights: &[Weight],
    ) -> Result<Option<([u64; 3], MeasuredMoves)>, Error> {
        let measured = self.measure_all(c, weights)?;
        for x in &measured {
            if x.op.communicates()
                && let Some(known) = &self.planner.groups
                && !known.contains(&c.system.mesh.group_of_modes(&x.axes)?)
            {
                return Ok(None);
            }
        }
        let totals = Totals::of(&measured);
        let key = totals.key(self.planner.objective);
        Ok(self.planner.admits_peak(totals.peak).then_some((key, measured)))
    }
}
