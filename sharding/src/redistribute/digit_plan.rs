//! Plans within a digit system: which candidates there are, and what each of their steps moves and costs.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::axis::{SubAxis, join};
use crate::redistribute::bounds::{Code, Codes, OWED, OWED_LATER, REPLICATED, Weight};
use crate::redistribute::closed_form::{self, Candidate, Form, Move, senders};
use crate::redistribute::cost::all_reduce_bytes;
use crate::redistribute::messages::{Motion, reduce_of};
use crate::redistribute::network::traffic;
use crate::redistribute::planner::{Totals, Work};
use crate::redistribute::step::{Step, StepOp};
use crate::redistribute::system::{Place, State, System};

/// The forms of the closed form; without reductions also one direct exchange if it saves a step.
pub(super) fn candidates(system: &System, s: &State, t: &State) -> Vec<Candidate> {
    let partial = s.iter().chain(t).any(|p| p.is_partial());
    let mut candidates: Vec<Candidate> = Vec::new();
    let forms: &[(Form, bool)] = if partial {
        &[
            (Form::Lean, true),
            (Form::Full, true),
            (Form::Plain, true),
            (Form::Lean, false),
            (Form::Plain, false),
            (Form::Full, false),
        ]
    } else {
        &[(Form::Lean, true)]
    };
    for &(form, spares) in forms {
        if let Some(c) = closed_form::plan(system, s, t, form, spares)
            && !candidates.iter().any(|o| same_moves(o, &c))
        {
            candidates.push(c);
        }
    }
    let reduces = s.iter().zip(t).any(|(a, b)| a != b && (a.is_partial() || b.is_partial()));
    let communicating =
        candidates.iter().map(|c| c.moves.iter().filter(|m| m.op.communicates()).count()).min().unwrap_or(0);
    if !reduces && communicating > 1 {
        let moves = SmallVec::from_iter([Move { op: StepOp::Exchange, before: s.clone(), after: t.clone() }]);
        candidates.push(Candidate { system: system.clone(), moves });
    }
    candidates
}

impl Work<'_> {
    /// What bounds and traffic know of the digits of a system.
    pub(super) fn weights(&self, system: &System) -> SmallVec<[Weight; 8]> {
        let weight = |&d: &SubAxis| Weight { radix: d.size as u64, level: self.network.level(d).0 };
        system.digits.iter().map(weight).collect()
    }

    /// The steps of a candidate.
    pub(super) fn digit_steps(&self, c: &Candidate) -> Result<Vec<Step>, Error> {
        let weights = self.weights(&c.system);
        c.moves.iter().map(|m| self.digit_step(&c.system, &weights, m)).collect()
    }

    /// What a candidate is compared by, without making its steps; `None` if it is not admitted.
    pub(super) fn digit_key(&self, c: &Candidate) -> Result<Option<[u64; 3]>, Error> {
        let weights = self.weights(&c.system);
        let mut totals = Totals::default();
        for m in &c.moves {
            let x = self.measure(&c.system, &weights, m)?;
            if x.op.communicates()
                && let Some(known) = &self.planner.groups
                && !known.contains(&c.system.mesh.group(&x.axes)?)
            {
                return Ok(None);
            }
            totals.add(x.cost_us, x.received, x.peak);
        }
        Ok(self.planner.admits_peak(totals.peak).then(|| totals.key(self.planner.objective)))
    }

    /// What one move costs.
    fn measure(&self, system: &System, weights: &[Weight], m: &Move) -> Result<Measured, Error> {
        let changed = |d: &usize| m.before[*d] != m.after[*d];
        let digits = (0..m.before.len()).filter(changed);
        let axes: SmallVec<[SubAxis; 4]> = join(digits.map(|d| system.digits[d]));
        let g: u64 = axes.iter().map(|s| s.size as u64).product();
        let (a, b) = (system.local_numel(&m.before) as u64, system.local_numel(&m.after) as u64);
        let (small, large, item) = (a.min(b), a.max(b), self.item);
        let network = &self.network;
        let spread = if m.op.communicates() { network.spread(&axes)? } else { SmallVec::new() };
        let collective = |total: u64, halves: f64| network.collective_us(total as f64, &spread, halves);
        let mut op = m.op;
        let mut peak = a + b;
        let (received, cost_us) = match m.op {
            StepOp::Slice | StepOp::ZeroFill => (0, 0.0),
            StepOp::AllGather | StepOp::ReduceScatter => {
                ((large - small) * item, collective(large * item, 1.0))
            }
            StepOp::AllReduce => {
                let (bytes, modelled) = all_reduce_bytes(large, g, item);
                peak += large.div_ceil(g);
                (bytes, collective(modelled, 2.0))
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let (before, after) = (codes(&m.before, &m.before), codes(&m.after, &m.before));
                let bytes = b * item;
                let x = traffic(weights, &before, &after, bytes, network.levels());
                let peers: usize = x.iter().map(|x| x.1).sum();
                let received = x.iter().map(|x| x.0).sum::<f64>() as u64;
                if peers as u64 + 1 == g && received < bytes {
                    op = StepOp::AllToAll;
                }
                (received, network.topology.exchange_us(&x))
            }
        };
        Ok(Measured { op, axes, received, cost_us, peak: peak * item })
    }

    fn digit_step(&self, system: &System, weights: &[Weight], m: &Move) -> Result<Step, Error> {
        let Measured { op, axes, received, cost_us, .. } = self.measure(system, weights, m)?;
        let digits = || (0..m.before.len()).filter(|&d| m.before[d] != m.after[d]);
        let reduce = || {
            reduce_of(digits().filter_map(|d| match m.before[d] {
                Place::Partial(op) => Some((op, system.digits[d].size)),
                Place::At(_) | Place::Replicated => None,
            }))
        };
        let moves = |sender: SmallVec<[usize; 8]>| Motion::Move {
            system: system.clone(),
            before: m.before.clone(),
            after: m.after.clone(),
            sender,
        };
        let (motion, sent) = match op {
            StepOp::Slice | StepOp::ZeroFill | StepOp::AllGather => {
                (moves((0..m.before.len()).collect()), received)
            }
            StepOp::ReduceScatter => {
                let motion = Motion::ReduceScatter {
                    system: system.clone(),
                    before: m.before.clone(),
                    after: m.after.clone(),
                    reduce: reduce(),
                };
                (motion, received)
            }
            StepOp::AllReduce => {
                let subs = digits().map(|d| system.digits[d]).collect();
                (Motion::AllReduce { subs, reduce: reduce() }, received)
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let sender = senders(system, &m.before, &m.after, |d| weights[d].level);
                let sent = most_sent(system, &m.before, &m.after, &sender) * self.item;
                (moves(sender), sent)
            }
        };
        Ok(Step {
            op,
            group: system.mesh.group(&axes)?,
            axes,
            before: system.sharding(&m.before)?,
            after: system.sharding(&m.after)?,
            received_bytes: received,
            sent_bytes: sent,
            cost_us,
            motion: Arc::new(motion),
        })
    }
}

/// What one move costs: its worst rank's bytes, time and peak bytes.
struct Measured {
    op: StepOp,
    axes: SmallVec<[SubAxis; 4]>,
    received: u64,
    cost_us: f64,
    peak: u64,
}

fn same_moves(a: &Candidate, b: &Candidate) -> bool {
    a.system == b.system
        && a.moves.len() == b.moves.len()
        && a.moves.iter().zip(&b.moves).all(|(x, y)| x.op == y.op && x.after == y.after)
}

/// The most elements that a rank sends in an exchange: one block for every receiver whose digits its own do not fix.
///
/// A receiver's digit `b` is fixed by all the sender's digits `d` that are read off it, which must then agree. Where they
/// agree with the sender's own `b` every time, every sender is its own receiver.
fn most_sent(system: &System, before: &State, after: &State, sender: &[usize]) -> u64 {
    let (owner_before, owner_after) = (system.owners(before), system.owners(after));
    let n = before.len();
    // Receiver digit `by` has the value of my digit `d`; where several of mine say so, they are equal on who sends.
    let mut told: SmallVec<[(usize, usize); 8]> = SmallVec::new();
    for (d, a) in before.iter().enumerate() {
        let by = match *a {
            Place::At(p) => owner_after[p],
            Place::Replicated | Place::Partial(_) => Some(sender[d]),
        };
        told.extend(by.map(|by| (d, by)));
    }
    let mut class: SmallVec<[usize; 8]> = (0..n).collect();
    for i in 0..told.len() {
        for j in 0..i {
            if told[i].1 == told[j].1 {
                let (x, y) = (class[told[i].0], class[told[j].0]);
                class.iter_mut().filter(|c| **c == x).for_each(|c| *c = y);
            }
        }
    }
    // Unless all that is told to a digit is its own value, somebody sends to others only.
    let tells_others = told.iter().any(|&(d, by)| class[d] != class[by]);
    let is_free = |d: &usize| told.iter().all(|t| t.1 != *d);
    let receivers: u64 = (0..n).filter(is_free).map(|d| system.digits[d].size as u64).product();
    let block: u64 = system
        .positions
        .iter()
        .enumerate()
        .filter(|&(p, _)| owner_before[p].is_none() && owner_after[p].is_none())
        .map(|(_, x)| x.radix as u64)
        .product();
    (receivers - u64::from(!tells_others)) * block
}

/// A state of a system as codes, partial digits told apart from their source.
pub(super) fn codes(state: &State, source: &State) -> Codes {
    state
        .iter()
        .zip(source)
        .map(|(x, s)| match *x {
            Place::At(p) => p as Code,
            Place::Replicated => REPLICATED,
            Place::Partial(_) if x == s => OWED,
            Place::Partial(_) => OWED_LATER,
        })
        .collect()
}
