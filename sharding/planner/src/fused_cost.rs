//! Fused steps of several plans: the load of each member of a group for all of them, and its cost.
//!
//! ```text
//! collectives     the bytes of all are joined, in as many messages as for one
//! exchanges       all data from one peer is in one message
//! ```
//!
//! So latencies are paid once, and the [`CostModel`](crate::CostModel) prices the [`StepTraffic`] of all.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::Error;
use crate::model::Model;
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic, Volume};
use crate::model::network::Network;
use crate::model::totals::Cost;
use crate::op::StepOp;
use crate::plan::Plan;
use crate::step::{Action, Step};

impl Plan {
    /// Returns the cost for a rank, in microseconds, of executing steps of several plans as one.
    ///
    /// The steps are given by plan and index, and run over the same groups. The model prices the bytes of
    /// all. The cost for the group is that of its most expensive member.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::{Plan, Planner};
    /// let mesh: Mesh = "x=4".parse()?;
    /// let of = |numel: usize, text: &str| Sharding::parse(&mesh, &[numel], text);
    /// let reduce = |numel| Planner::new().plan(&of(numel, "P")?, &of(numel, "R")?, DType::F32);
    /// let (small, large) = (reduce(1024)?, reduce(4096)?);
    /// let together = Plan::fused_cost_us(&[(&small, 0); 4], 1)?;
    /// assert!((together - large.cost_us()).abs() < 1e-9 && together < 4.0 * small.cost_us());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    ///
    /// Costs of steps of different kinds are added. Fails for an index that a plan does not have.
    pub fn fused_cost_us(steps: &[(&Plan, usize)], rank: usize) -> Result<f64, Error> {
        let mut kinds: Vec<Borne<'_>> = Vec::new();
        for &(plan, number) in steps {
            let step = plan.steps.get(number).ok_or_else(|| Error::Incompatible {
                reason: format!("there is no step {number} in a plan of {}", plan.steps.len()),
            })?;
            let borne = Borne::of(plan, step, rank)?;
            match kinds.iter_mut().find(|known| known.op == borne.op) {
                Some(known) => known.add(borne),
                None => kinds.push(borne),
            }
        }
        kinds.iter().try_fold(0.0, |sum, borne| Ok(sum + borne.cost_us()?))
    }
}

/// The load of a rank from steps of one kind.
struct Borne<'a> {
    plan: &'a Plan,
    step: &'a Step,
    rank: usize,
    /// The op that the model prices: an exchange where messages are counted individually.
    op: StepOp,
    volume: Volume,
    /// The bytes from each other rank, and to each, for an exchange.
    exchanged: [BTreeMap<usize, u64>; 2],
}

impl<'a> Borne<'a> {
    fn of(plan: &'a Plan, step: &'a Step, rank: usize) -> Result<Borne<'a>, Error> {
        let priced = Priced::of(step);
        let item = plan.element_bytes() as u64;
        let volume = priced.volume(item);
        let Priced { op, step, .. } = priced;
        let mut exchanged = [BTreeMap::new(), BTreeMap::new()];
        if op == StepOp::Exchange {
            for phase in step.phases(rank)? {
                for (of_peer, messages) in exchanged.iter_mut().zip([&phase.receives, &phase.sends]) {
                    for message in messages.iter().filter(|m| m.peer != rank) {
                        *of_peer.entry(message.peer).or_default() += message.numel() as u64 * item;
                    }
                }
            }
        }
        Ok(Borne { plan, step, rank, op, volume, exchanged })
    }

    fn add(&mut self, other: Borne<'_>) {
        let Volume { received, gathered, peak } = other.volume;
        let volume = &mut self.volume;
        volume.received = volume.received.saturating_add(received);
        volume.gathered = volume.gathered.saturating_add(gathered);
        volume.peak = volume.peak.saturating_add(peak);
        for (all, more) in self.exchanged.iter_mut().zip(other.exchanged) {
            for (peer, bytes) in more {
                let known: &mut u64 = all.entry(peer).or_default();
                *known = known.saturating_add(bytes);
            }
        }
    }

    fn cost_us(&self) -> Result<f64, Error> {
        let model = &self.plan.options.model;
        match self.op {
            StepOp::Slice | StepOp::ZeroFill => Ok(0.0),
            StepOp::AllGather | StepOp::ReduceScatter | StepOp::AllReduce => {
                Ok(collective(model, self.op, &self.volume, self.step)?.us)
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let of_direction = |peers: &BTreeMap<usize, u64>| {
                    let none = LevelTraffic::default();
                    let mut traffic: Traffic = SmallVec::from_elem(none, model.levels().len());
                    for (&peer, &bytes) in peers {
                        let at = &mut traffic[model.level_of(self.rank, peer)];
                        *at = LevelTraffic { bytes: at.bytes + bytes as f64, peers: at.peers + 1 };
                    }
                    let span = Span::Group(&self.step.group);
                    model.cost_us(&StepTraffic::exchange(&traffic, self.volume.peak, span))
                };
                let used = self.exchanged.iter().filter(|peers| !peers.is_empty());
                Ok(used.map(of_direction).fold(0.0, f64::max))
            }
        }
    }
}

/// Returns the cost of a collective with the group of a step.
fn collective(model: &Model, op: StepOp, volume: &Volume, step: &Step) -> Result<Cost, Error> {
    let mesh = step.before.mesh();
    let (network, modes) = (Network::new(model, mesh), mesh.modes(&step.axes));
    let sizes = network.domain_sizes(&modes)?;
    Ok(network.cost_of_collective(op, volume, &sizes, &modes))
}

/// Returns the cost of the transpose of a gather or a scatter; `None` of any other step.
///
/// The formula of the levels has one cost for both directions, and measured collectives have two.
pub(crate) fn cost_of_transposed(model: &Model, step: &Step, item: u64) -> Result<Option<Cost>, Error> {
    let Some(priced) = Priced::of(step).transposed() else { return Ok(None) };
    collective(model, priced.op, &priced.volume(item), priced.step).map(Some)
}

/// The sizes and the op by which a step is priced.
struct Priced<'a> {
    /// The op that the model prices.
    op: StepOp,
    /// The op by which the bytes of the step are counted.
    sized: StepOp,
    /// The step that has the sizes.
    step: &'a Step,
}

impl<'a> Priced<'a> {
    /// A step that is counted message by message is an exchange.
    fn of(step: &'a Step) -> Priced<'a> {
        let as_it_is = |op| Priced { op, sized: op, step };
        match &*step.action {
            Action::Slice(_) => as_it_is(StepOp::Slice),
            Action::ZeroFill(_) => as_it_is(StepOp::ZeroFill),
            Action::AllGather(_) => as_it_is(StepOp::AllGather),
            Action::ReduceScatter(..) => as_it_is(StepOp::ReduceScatter),
            Action::AllReduce(_) => as_it_is(StepOp::AllReduce),
            Action::AllToAll(_) | Action::Exchange(_) | Action::OrderedReduce(..) => {
                as_it_is(StepOp::Exchange)
            }
            Action::Transposed(turned) => {
                Priced::of(&turned.of).transposed().unwrap_or_else(|| as_it_is(StepOp::Exchange))
            }
        }
    }

    /// Returns the other of gather and scatter, with the same bytes; `None` of any other step.
    fn transposed(self) -> Option<Priced<'a>> {
        let op = match self.op {
            StepOp::AllGather => StepOp::ReduceScatter,
            StepOp::ReduceScatter => StepOp::AllGather,
            StepOp::Slice | StepOp::ZeroFill | StepOp::AllReduce | StepOp::AllToAll | StepOp::Exchange => {
                return None;
            }
        };
        Some(Priced { op, ..self })
    }

    /// Returns the bytes of the step; those of an exchange are in its messages.
    fn volume(&self, item: u64) -> Volume {
        let numel = [&self.step.before, &self.step.after].map(|s| s.max_local_numel() as u64);
        let size: usize = self.step.axes.iter().map(|sub| sub.size).product();
        let volume = Volume::new(self.sized, numel, size.max(1) as u64, item);
        Volume { peak: self.step.peak_bytes, ..volume }
    }
}
