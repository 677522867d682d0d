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
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic, Volume};
use crate::model::network::Network;
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
        let (op, step) = priced_as(step);
        let item = plan.element_bytes() as u64;
        let numel = [&step.before, &step.after].map(|s| s.max_local_numel() as u64);
        let size: usize = step.axes.iter().map(|sub| sub.size).product();
        let mut volume = Volume::new(op, numel, size.max(1) as u64, item);
        volume.peak = step.peak_bytes;
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
                let mesh = self.step.before.mesh();
                let (network, modes) = (Network::new(model, mesh), mesh.modes(&self.step.axes));
                let sizes = network.domain_sizes(&modes)?;
                Ok(network.cost_of_collective(self.op, &self.volume, &sizes, &modes).us)
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

/// Returns the op by which a step is priced, and the step that has its sizes.
///
/// A transposed collective is priced as the original. A step that is counted message by message is an
/// exchange.
fn priced_as(step: &Step) -> (StepOp, &Step) {
    match &*step.action {
        Action::Slice(_) => (StepOp::Slice, step),
        Action::ZeroFill(_) => (StepOp::ZeroFill, step),
        Action::AllGather(_) => (StepOp::AllGather, step),
        Action::ReduceScatter(..) => (StepOp::ReduceScatter, step),
        Action::AllReduce(_) => (StepOp::AllReduce, step),
        Action::AllToAll(_) | Action::Exchange(_) | Action::OrderedReduce(..) => (StepOp::Exchange, step),
        Action::Transposed(turned) => match priced_as(&turned.of) {
            (op @ (StepOp::AllGather | StepOp::ReduceScatter), of) => (op, of),
            (
                StepOp::Slice | StepOp::ZeroFill | StepOp::AllReduce | StepOp::AllToAll | StepOp::Exchange,
                _,
            ) => (StepOp::Exchange, step),
        },
    }
}
