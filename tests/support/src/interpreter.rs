//! A minimal interpreter of plans that knows only phases.

use reshard_planner::{Block, Phase, Plan};
use reshard_sharding::shards::Reducible;
use reshard_sharding::{ReduceOp, Sharding};

/// Calls `f` with (source offset, target offset) of every element of a block.
fn each(block: &Block, f: &mut impl FnMut(usize, usize)) {
    let n = block.numel();
    for i in 0..n {
        let (mut left, mut s, mut t) = (i, block.source_offset, block.target_offset);
        for m in &block.modes {
            let digit = left % m.extent as usize;
            s += digit * m.stride.0 as usize;
            t += digit * m.stride.1 as usize;
            left /= m.extent as usize;
        }
        f(s, t);
    }
}

/// A value that plans can be tried with.
pub trait Value: Reducible {
    /// The value of elements that were not written.
    const EMPTY: Self;
    /// Returns the partial value that changes nothing.
    fn identity(op: ReduceOp) -> Self;
}

impl Value for i64 {
    const EMPTY: i64 = i64::MIN / 3;
    fn identity(op: ReduceOp) -> i64 {
        match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Norm(_) => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Min => i64::MAX,
            ReduceOp::Max => i64::MIN,
        }
    }
}

impl Value for f64 {
    const EMPTY: f64 = f64::NAN;
    fn identity(op: ReduceOp) -> f64 {
        match op {
            ReduceOp::Sum | ReduceOp::Avg => -0.0,
            ReduceOp::Prod => 1.0,
            ReduceOp::Min => f64::INFINITY,
            ReduceOp::Max => f64::NEG_INFINITY,
            ReduceOp::Norm(_) => 0.0,
        }
    }
}

/// Returns the shards of every rank after a plan, and the bytes that the worst rank received.
pub fn run<T: Value>(plan: &Plan, world: usize, shards: &[Vec<T>]) -> (Vec<Vec<T>>, u64) {
    let item = plan.element_bytes() as u64;
    let mut state: Vec<Vec<T>> = vec![Vec::new(); world];
    for (rank, shard) in plan.from().mesh().ranks().zip(shards) {
        state[rank].clone_from(shard);
    }
    let mut received = vec![0u64; world];
    let mut sent = vec![0u64; world];
    for step in 0..plan.steps().len() {
        let (step_received, step_sent) = (received.clone(), sent.clone());
        let all: Vec<Vec<Phase>> = (0..world)
            .map(|r| {
                if plan.ranks().contains(&r) {
                    plan.steps()[step].phases(r).unwrap().into_vec()
                } else {
                    Vec::new()
                }
            })
            .collect();
        let count = all.iter().map(Vec::len).max().unwrap();
        for i in 0..count {
            let mut next = state.clone();
            for (rank, phases) in all.iter().enumerate() {
                let Some(phase) = phases.get(i) else { continue };
                assert_eq!(state[rank].len(), phase.source_len, "rank {rank} step {step} of {plan}");
                let empty = phase.fill_identity.map_or(T::EMPTY, T::identity);
                let mut target = vec![empty; phase.target_len];
                let mut written = vec![0usize; phase.target_len];
                for m in &phase.receives {
                    assert!(
                        phase.members.contains(&m.peer),
                        "{rank} hears from {} outside its group: {plan}",
                        m.peer
                    );
                    for b in &m.blocks {
                        each(b, &mut |s, t| {
                            let x = state[m.peer][s];
                            target[t] = match phase.reduce {
                                Some(r) if written[t] > 0 => T::combine(r.op, target[t], x),
                                Some(_) | None => x,
                            };
                            written[t] += 1;
                        });
                    }
                    if m.peer != rank {
                        received[rank] += m.numel() as u64;
                        let mirror: Vec<_> = all[m.peer][i].sends.iter().filter(|s| s.peer == rank).collect();
                        assert_eq!(mirror.len(), 1, "{} sends to {rank} in step {step} of {plan}", m.peer);
                        assert_eq!(mirror[0].blocks, m.blocks, "{plan}");
                    }
                }
                for m in &phase.sends {
                    sent[rank] += m.numel() as u64;
                    assert!(
                        all[m.peer][i].receives.iter().any(|r| r.peer == rank),
                        "{rank} to {}: {plan}",
                        m.peer
                    );
                }
                let terms = phase.reduce.map_or(1, |_| phase.receives.len());
                if phase.fill_identity.is_none() {
                    assert!(
                        written.iter().all(|&w| w == terms),
                        "rank {rank} step {step} {written:?}: {plan}"
                    );
                }
                if let Some(r) = phase.reduce {
                    for x in &mut target {
                        *x = x.divide(r.divisor);
                    }
                }
                next[rank] = target;
            }
            state = next;
        }
        let s = &plan.steps()[step];
        let worst =
            |now: &[u64], before: &[u64]| now.iter().zip(before).map(|(a, b)| a - b).max().unwrap() * item;
        assert_eq!(worst(&received, &step_received), s.received_bytes, "received in {step}: {plan}");
        assert_eq!(worst(&sent, &step_sent), s.sent_bytes, "sent in {step}: {plan}");
    }
    (plan.to().mesh().ranks().map(|r| state[r].clone()).collect(), received.into_iter().max().unwrap() * item)
}

/// Returns the most elements that a rank wants and does not hold, from the regions alone.
pub fn bound_by_regions(from: &Sharding, to: &Sharding) -> u64 {
    let missing = |rank| {
        let have = if from.mesh().contains(rank) { from.global_indices(rank).unwrap() } else { Vec::new() };
        let mut holds = vec![false; from.numel()];
        for e in have {
            holds[e] = true;
        }
        to.global_indices(rank).unwrap().into_iter().filter(|e| !holds[*e]).count() as u64
    };
    to.mesh().ranks().map(missing).max().unwrap()
}
