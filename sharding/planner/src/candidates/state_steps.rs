//! The steps of routes within a digit system: their costs and their actions.

use reshard_layout::InlineVec;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};
use smallvec::SmallVec;

use crate::Error;
use crate::message::reduce_of;
use crate::model::codes::Weight;
use crate::model::load::{Volume, traffic, traffic_sent};
use crate::model::totals::Cost;
use crate::op::StepOp;
use crate::problem::Question;
use crate::states::closed_form::{Move, Route, senders};
use crate::states::system::{Stands, State, System, codes};
use crate::step::{Action, Moves, Reduction, Step, Terms};
use reshard_sharding::SubAxis;

impl Question<'_> {
    /// Returns the cost of one transition.
    pub(crate) fn measure(&self, system: &System, weights: &[Weight], m: &Move) -> Result<Measured, Error> {
        let axes = system.changed(&m.before, &m.after);
        let g: u64 = axes.iter().map(|m| m.extent as u64).product();
        let (a, b) = (system.local_numel(&m.before) as u64, system.local_numel(&m.after) as u64);
        let volume = Volume::new(m.op, [a, b], g, self.item);
        let (op, cost) = match m.op {
            StepOp::Slice | StepOp::ZeroFill => (m.op, Cost::new(0.0, 0, volume.peak)),
            StepOp::AllGather | StepOp::ReduceScatter | StepOp::AllReduce => {
                let sizes = self.network.domain_sizes(&axes)?;
                (m.op, self.network.cost_of_collective(m.op, &volume, &sizes, &axes))
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let (before, after) = (codes(&m.before, &m.before), codes(&m.after, &m.before));
                let bytes = b * self.item;
                let x = traffic(weights, &before, &after, bytes, self.network.levels());
                let peers: usize = x.iter().map(|x| x.peers).sum();
                let sent = traffic_sent(weights, &before, &after, &x, bytes);
                let cost = self.network.cost_of_exchange(&x, sent.as_deref(), volume.peak, &axes);
                // A rank that receives from all others and keeps a part exchanges equal blocks.
                let all = peers as u64 + 1 == g && cost.received < b * self.item;
                (if all { StepOp::AllToAll } else { StepOp::Exchange }, cost)
            }
        };
        Ok(Measured { op, axes, cost })
    }

    /// Returns the costs of the transitions of a route.
    pub(crate) fn measure_all(&self, route: &Route, weights: &[Weight]) -> Result<MeasuredMoves, Error> {
        let mut all = MeasuredMoves::new();
        for m in &route.moves {
            all.push(self.measure(&route.system, weights, m)?);
        }
        Ok(all)
    }

    /// Returns the steps of a route.
    pub(crate) fn steps(&self, route: &Route) -> Result<Vec<Step>, Error> {
        let (weights, _) = self.weigh(route.system.digits.iter().copied());
        self.measured_steps(route, &weights, &self.measure_all(route, &weights)?)
    }

    /// Returns the steps of a route whose transitions were measured before.
    pub(crate) fn measured_steps(
        &self,
        route: &Route,
        weights: &[Weight],
        measured: &[Measured],
    ) -> Result<Vec<Step>, Error> {
        let system = &route.system;
        let mut steps: Vec<Step> = Vec::with_capacity(route.moves.len());
        for (i, (m, x)) in route.moves.iter().zip(measured).enumerate() {
            let [from, to] = self.shared();
            let before = Arc::clone(steps.last().map_or(from, |s: &Step| &s.after));
            let last = i + 1 == route.moves.len();
            let after = if last { Arc::clone(to) } else { Arc::new(system.sharding(&m.after)?) };
            let group = system.mesh.group_of_modes(&x.axes)?;
            let (action, sent_bytes) = self.action(system, weights, m, x);
            let mut axes: InlineVec<SubAxis, 4> = InlineVec::new();
            for &m in &x.axes {
                axes.extend(system.mesh.sub_axis(m));
            }
            let Cost { us: cost_us, received: received_bytes, peak: peak_bytes, .. } = x.cost;
            let action = Arc::new(action);
            steps.push(Step {
                axes,
                group,
                before,
                after,
                received_bytes,
                sent_bytes,
                peak_bytes,
                cost_us,
                action,
            });
        }
        Ok(steps)
    }

    /// Returns the action of a transition, and the bytes that the worst rank sends.
    fn action(&self, system: &System, weights: &[Weight], m: &Move, x: &Measured) -> (Action, u64) {
        let reduction = || {
            let changed = || (0..m.before.len()).filter(|&d| m.before[d] != m.after[d]);
            let reduce = reduce_of(changed().filter_map(|d| match m.before[d].stands() {
                Stands::Partial(op) => Some((op, system.digits[d].extent as usize)),
                Stands::At(_) | Stands::Replicated => None,
            }));
            Reduction { modes: changed().map(|d| system.digits[d]).collect(), reduce }
        };
        let zip = || system.zip_of(&m.before, &m.after);
        let still = || Moves::Modes { zip: zip(), senders: Vec::new(), terms: None };
        let sent = x.cost.received;
        match x.op {
            StepOp::Slice => (Action::Slice(still()), sent),
            StepOp::AllGather => (Action::AllGather(still()), sent),
            StepOp::ZeroFill => (
                Action::ZeroFill(Moves::Modes { zip: zip(), senders: Vec::new(), terms: terms(system, m) }),
                sent,
            ),
            StepOp::ReduceScatter => (Action::ReduceScatter(still(), reduction()), sent),
            StepOp::AllReduce => (Action::AllReduce(reduction()), sent),
            StepOp::AllToAll | StepOp::Exchange => {
                let sender = senders(system, &m.before, &m.after, |d| weights[d].level);
                let sent = most_sent(system, &m.before, &m.after, &sender) * self.item;
                let told = |(d, &by): (usize, &usize)| {
                    (d != by).then(|| system.digits[d].map(|head| (head, system.digits[by].stride)))
                };
                let senders = sender.iter().enumerate().filter_map(told).collect();
                let moves = Moves::Modes { zip: zip(), senders, terms: terms(system, m) };
                let all = x.op == StepOp::AllToAll;
                (if all { Action::AllToAll(moves) } else { Action::Exchange(moves) }, sent)
            }
        }
    }
}

/// Returns the digits that become partial by zero-filling, and their op.
///
/// Replicas are partial values of an average without any change.
fn terms(system: &System, m: &Move) -> Option<Terms> {
    let mut found: Option<Terms> = None;
    for (d, (before, after)) in m.before.iter().zip(&m.after).enumerate() {
        if let (false, Stands::Partial(op)) = (before.is_partial(), after.stands())
            && op.has_identity()
        {
            found.get_or_insert_with(|| Terms { op, modes: Vec::new() }).modes.push(system.digits[d]);
        }
    }
    found
}

/// The costs of the transitions of a route.
pub(crate) type MeasuredMoves = SmallVec<[Measured; 3]>;

/// The cost of one transition, and the collective that it is.
pub(crate) struct Measured {
    pub(crate) op: StepOp,
    /// The digits that change, coalesced: by axis, slowest first.
    pub(crate) axes: SmallVec<[Mode<AxisStride>; 4]>,
    pub(crate) cost: Cost,
}

/// Returns the most elements that a rank sends in an exchange.
///
/// It sends one block to every receiver whose digits its own digits do not fix. A receiver's digit `b` is
/// fixed by all digits `d` of the sender that are read from it, and these must then agree. If they always
/// agree with the sender's own `b`, every sender is its own receiver.
fn most_sent(system: &System, before: &State, after: &State, sender: &[usize]) -> u64 {
    let (standing_before, standing_after) = (system.standing(before), system.standing(after));
    let n = before.len();
    // Receiver digit `by` has the value of sender digit `d`; several such digits are equal on every sending
    // rank.
    let mut told: SmallVec<[(usize, usize); 8]> = SmallVec::new();
    for (d, a) in before.iter().enumerate() {
        let by = match a.position() {
            Some(p) => standing_after[p].map(usize::from),
            None => Some(sender[d]),
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
    // Unless every digit is only read as its own value, some rank sends to others only.
    let tells_others = told.iter().any(|&(d, by)| class[d] != class[by]);
    let is_free = |d: &usize| told.iter().all(|t| t.1 != *d);
    let receivers: u64 = (0..n).filter(is_free).map(|d| system.digits[d].extent as u64).product();
    let block: u64 = system
        .zip
        .iter()
        .enumerate()
        .filter(|&(p, _)| standing_before[p].is_none() && standing_after[p].is_none())
        .map(|(_, m)| m.extent as u64)
        .product();
    (receivers - u64::from(!tells_others)) * block
}
