//! The cost of a plan by definition: from the messages of all ranks, in both directions.
//!
//! An exchange costs what its worst rank bears, receiving or sending:
//!
//! ```text
//! launch + sum over levels of latency_l * ceil(log2(1 + peers_l)) + max over levels of bytes_l / rate_l + message * peers
//! ```
//!
//! Collectives have the cost of the plan: they send as much as they receive.

use std::collections::BTreeMap;

use reshard_planner::{Plan, Step, StepOp, Topology};

/// The bytes and peers of one rank over each level, in one direction.
type Load = Vec<(u64, usize)>;

/// The time of an exchange by its worst receiver and by its worst sender, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Directions {
    /// The time that its worst receiver takes.
    pub received_us: f64,
    /// The time that its worst sender takes.
    pub sent_us: f64,
    /// The bytes that its worst sender sends.
    pub sent_bytes: u64,
}

/// Returns the innermost level whose domain contains both ranks.
fn level_of(topology: &Topology, a: usize, b: usize) -> usize {
    let shared = |ranks: Option<usize>| ranks.is_none_or(|n| a / n == b / n);
    topology.levels().iter().position(|l| shared(l.ranks)).expect("the last level is one domain")
}

fn time(topology: &Topology, load: &Load) -> f64 {
    let (mut us, mut wire) = (topology.launch_us(), 0.0f64);
    for (level, &(bytes, peers)) in topology.levels().iter().zip(load) {
        us += level.latency_us * (1.0 + peers as f64).log2().ceil() + topology.message_us() * peers as f64;
        wire = wire.max(bytes as f64 / (level.gbytes_per_s * 1e3));
    }
    us + wire
}

/// Returns the cost of a step in each direction; `None` for collectives and local steps.
///
/// # Panics
///
/// If the plan has no phases for its ranks.
pub fn directions(plan: &Plan, step: &Step, topology: &Topology) -> Option<Directions> {
    let is_exchange = match step.op() {
        StepOp::AllToAll => true,
        // In rank order, an exchange of whole partial values is charged like a collective.
        StepOp::Exchange => step.is_transposed() || step.reduce().is_none(),
        StepOp::Slice | StepOp::ZeroFill | StepOp::AllGather | StepOp::ReduceScatter | StepOp::AllReduce => {
            false
        }
    };
    if !is_exchange {
        return None;
    }
    let mut messages = Messages::default();
    for rank in plan.ranks() {
        for phase in step.phases(rank).expect("phases") {
            for m in &phase.receives {
                messages.insert([m.peer, rank], (m.numel() * plan.element_bytes()) as u64);
            }
        }
    }
    Some(of_messages(&messages, topology))
}

/// The bytes from a sender to a receiver.
pub type Messages = BTreeMap<[usize; 2], u64>;

/// Returns the cost of one exchange of these messages in each direction.
///
/// # Panics
///
/// If two ranks share no domain, which the last level of a network rules out.
pub fn of_messages(messages: &Messages, topology: &Topology) -> Directions {
    let none = || vec![(0, 0); topology.levels().len()];
    let mut loads: [BTreeMap<usize, Load>; 2] = [BTreeMap::new(), BTreeMap::new()];
    for (&[sender, receiver], &bytes) in messages.iter().filter(|(m, bytes)| m[0] != m[1] && **bytes > 0) {
        for (side, owner) in [receiver, sender].into_iter().enumerate() {
            let load = loads[side].entry(owner).or_insert_with(none);
            let at = &mut load[level_of(topology, receiver, sender)];
            *at = (at.0 + bytes, at.1 + 1);
        }
    }
    let [received_us, sent_us] =
        [0, 1].map(|side| loads[side].values().map(|load| time(topology, load)).fold(0.0, f64::max));
    let total = |load: &Load| load.iter().map(|at| at.0).sum();
    Directions { received_us, sent_us, sent_bytes: loads[1].values().map(total).max().unwrap_or(0) }
}

/// Returns the cost of a plan in whole picoseconds.
pub fn picoseconds(plan: &Plan, topology: &Topology) -> u64 {
    let of = |step: &Step| match directions(plan, step, topology) {
        Some(both) => both.received_us.max(both.sent_us),
        None => step.cost_us,
    };
    plan.steps().iter().map(|step| (of(step) * 1e6).round() as u64).sum()
}
