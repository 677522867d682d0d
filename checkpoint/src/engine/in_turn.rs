//! Executes a plan for all ranks in one process, rank after rank.
//!
//! An exchange reads the buffers of the ranks before it and writes those after it. If no rank reads the
//! result, as for the last exchange, a new shard only has to exist until `arrived` has seen it. So memory
//! does not hold the results of all ranks:
//!
//! ```text
//! for each part of the world whose ranks receive only from each other:
//!   for each exchange but the last:    all ranks of the part:   its buffer <- the buffers of its peers before it
//!   the last:                          one rank at a time:      one buffer <- the buffers of its peers, passed to `arrived`
//! ```
//!
//! Ranks are independent within an exchange, so as many run at a time as there are processors. Each has a
//! buffer that the next rank reuses. Most plans are one exchange; then memory holds the sources and as many
//! new shards as there are processors. Plans of several exchanges hold the buffers between them, for one part
//! of the world at a time: idle replicas form separate parts.
//!
//! Received bytes are counted where they arrive, and the bytes taken from a rank are compared with those it
//! sends.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use reshard_collectives::{CompiledPlan, Exchange, ReceiveMessage, SendMessage};
use reshard_layout::internal::counted;
use reshard_planner::{Plan, Step};

use crate::bytes;
use crate::engine::exchange::Arrived;
use crate::error::Error;
use crate::parallel;
use crate::rooms::Rooms;

/// The cost of preparing a message, in copied bytes; a rank has at most one message per rank.
const MESSAGE: usize = 1 << 10;

/// Executes the plans of some tensors in one batch: several plans of one exchange each, or one of any.
///
/// `source` returns the bytes of a rank of a tensor; `arrived` is called with the shard of each target rank,
/// by several threads at a time. Returns for each plan the bytes that its worst rank received.
///
/// Tensors with the same plan, at the same address, share the preparation for a rank.
pub(crate) fn redistribute<'a>(
    plans: &[&Plan],
    source: &(dyn Fn(usize, usize) -> &'a [u8] + Sync),
    rooms: &Rooms,
    arrived: Arrived<'_>,
) -> Result<Vec<u64>, Error> {
    let traffic: Vec<Traffic> = plans.iter().map(|plan| Traffic::of(plan)).collect();
    if let ([plan], [traffic]) = (plans, &traffic[..])
        && exchanges(plan) > 1
    {
        for part in parts(plan)? {
            carry_out(plan, part, &|rank| source(0, rank), rooms, traffic, arrived)?;
        }
    } else {
        let first = |plan: &Plan| plans.iter().position(|other| std::ptr::eq(*other, plan)).unwrap_or(0);
        let first: Vec<usize> = plans.iter().map(|plan| first(plan)).collect();
        let mut ranks: Vec<usize> = plans.iter().flat_map(|plan| plan.ranks()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let threads = parallel::threads_for(
            plans.iter().map(|plan| work(plan, ranks.len())).fold(0, usize::saturating_add),
        );
        parallel::for_each(
            threads,
            &mut ranks,
            || rooms.take(),
            |target, rank| {
                let mut known: HashMap<usize, CompiledPlan> = HashMap::new();
                for (at, plan) in plans.iter().enumerate() {
                    if !plan.from().mesh().contains(*rank) && !plan.to().mesh().contains(*rank) {
                        continue;
                    }
                    let compiled = match known.entry(first[at]) {
                        Entry::Occupied(same) => same.into_mut(),
                        Entry::Vacant(new) => new.insert(CompiledPlan::new(plan, *rank)?),
                    };
                    let Some(exchange) = compiled.exchanges().next() else { return Err(no_exchange(*rank)) };
                    let before = |rank: usize| source(at, rank);
                    last(plan, exchange, &before, target, &traffic[at], &|rank, shard| {
                        arrived(at, rank, shard)
                    })?;
                }
                Ok(())
            },
        )?;
    }
    plans.iter().zip(&traffic).map(|(plan, traffic)| traffic.worst(plan)).collect()
}

/// Estimates the work of a plan for `ranks` ranks, in bytes.
fn work(plan: &Plan, ranks: usize) -> usize {
    let of_one = (plan.max_shard_bytes() as usize).saturating_add(ranks.saturating_mul(MESSAGE));
    of_one.saturating_mul(ranks)
}

/// Receives a rank's new shard.
type OfRank<'a> = &'a dyn Fn(usize, &mut Vec<u8>) -> Result<(), Error>;

/// Returns the largest number of exchanges in which a rank participates.
pub(crate) fn exchanges(plan: &Plan) -> usize {
    plan.steps().iter().map(Step::exchanges).sum()
}

/// Returns the step and phase of an exchange, which identify it on all ranks.
fn key(exchange: &Exchange) -> (usize, usize) {
    (exchange.step(), exchange.phase())
}

/// Some ranks, and the exchanges in which they participate.
struct Part {
    ranks: Vec<usize>,
    keys: Vec<(usize, usize)>,
}

/// Partitions the ranks of a plan so that no part takes data from another.
fn parts(plan: &Plan) -> Result<Vec<Part>, Error> {
    let ranks = plan.ranks();
    let place: HashMap<usize, usize> = ranks.iter().enumerate().map(|(at, rank)| (*rank, at)).collect();
    // Union-find: ranks of a part point, through others, at its first.
    let mut first: Vec<usize> = (0..ranks.len()).collect();
    let mut keys = Vec::with_capacity(ranks.len());
    for (at, &rank) in ranks.iter().enumerate() {
        let compiled = CompiledPlan::new(plan, rank)?;
        for receive in compiled.exchanges().flat_map(Exchange::receives) {
            let peer = place.get(&receive.peer()).copied().ok_or_else(|| no_exchange(receive.peer()))?;
            let (one, other) = (root(&mut first, at), root(&mut first, peer));
            first[one.max(other)] = one.min(other);
        }
        keys.push(compiled.exchanges().map(key).collect::<Vec<_>>());
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut part_of: HashMap<usize, usize> = HashMap::new();
    for (at, keys) in keys.into_iter().enumerate() {
        let part = *part_of.entry(root(&mut first, at)).or_insert_with(|| {
            parts.push(Part { ranks: Vec::new(), keys: Vec::new() });
            parts.len() - 1
        });
        parts[part].ranks.push(ranks[at]);
        parts[part].keys.extend(keys);
    }
    for part in &mut parts {
        part.keys.sort_unstable();
        part.keys.dedup();
    }
    Ok(parts)
}

/// Returns the first of a part, and compresses the path from `at`.
fn root(first: &mut [usize], at: usize) -> usize {
    let mut root = at;
    while first[root] != root {
        root = first[root];
    }
    let mut at = at;
    while first[at] != root {
        at = std::mem::replace(&mut first[at], root);
    }
    root
}

/// Executes a plan of several exchanges for a part of the world.
fn carry_out<'a>(
    plan: &Plan,
    part: Part,
    source: &(dyn Fn(usize) -> &'a [u8] + Sync),
    rooms: &Rooms,
    traffic: &Traffic,
    arrived: Arrived<'_>,
) -> Result<(), Error> {
    let threads = parallel::threads_for(work(plan, part.ranks.len()));
    let mut buffers: HashMap<usize, Cow<'a, [u8]>> =
        part.ranks.iter().map(|rank| (*rank, Cow::Borrowed(source(*rank)))).collect();
    for at in part.keys {
        let before = |rank: usize| buffers.get(&rank).map(|bytes| &**bytes).unwrap_or_default();
        let mut after: Vec<(usize, Option<Vec<u8>>)> = part.ranks.iter().map(|rank| (*rank, None)).collect();
        parallel::for_each(
            threads,
            &mut after,
            || rooms.take(),
            |target, (rank, next)| {
                let compiled = CompiledPlan::new(plan, *rank)?;
                let count = compiled.exchanges().len();
                let Some((number, exchange)) =
                    compiled.exchanges().enumerate().find(|(_, exchange)| key(exchange) == at)
                else {
                    return Ok(());
                };
                if number + 1 == count {
                    return last(plan, exchange, &before, target, traffic, &|rank, shard| {
                        arrived(0, rank, shard)
                    });
                }
                let mut room = Vec::new();
                bytes::resize(&mut room, exchange.target_bytes())?;
                take(exchange, &before, &mut room, traffic)?;
                *next = Some(room);
                Ok(())
            },
        )?;
        for (rank, next) in after {
            if let Some(next) = next {
                buffers.insert(rank, Cow::Owned(next));
            }
        }
    }
    Ok(())
}

/// Executes the last exchange of a rank.
fn last<'a>(
    plan: &Plan,
    exchange: &Exchange,
    before: &(dyn Fn(usize) -> &'a [u8] + Sync),
    target: &mut Vec<u8>,
    traffic: &Traffic,
    arrived: OfRank<'_>,
) -> Result<(), Error> {
    bytes::resize(target, exchange.target_bytes())?;
    take(exchange, before, target, traffic)?;
    if plan.to().mesh().contains(exchange.rank()) { arrived(exchange.rank(), target) } else { Ok(()) }
}

/// Assembles one rank's target from the buffers of its peers.
fn take<'a>(
    exchange: &Exchange,
    before: &(dyn Fn(usize) -> &'a [u8] + Sync),
    target: &mut [u8],
    traffic: &Traffic,
) -> Result<(), Error> {
    exchange.init_target(target)?;
    for receive in exchange.receives() {
        let bytes = receive.take(target, before(receive.peer()))?;
        traffic.landed(exchange.rank(), receive, bytes);
    }
    exchange.finalize_target(target)?;
    traffic.given(exchange.rank(), exchange.sends());
    Ok(())
}

/// Bytes between ranks, without those that a rank gives itself.
struct Traffic(Vec<Counts>);

/// The counts of one rank: received bytes, bytes taken by others, and bytes it should have sent.
#[derive(Default)]
struct Counts {
    landed: AtomicU64,
    taken: AtomicU64,
    given: AtomicU64,
}

impl Traffic {
    fn of(plan: &Plan) -> Self {
        let world = plan.from().mesh().world_size().max(plan.to().mesh().world_size());
        Self(std::iter::repeat_with(Counts::default).take(world).collect())
    }

    fn landed(&self, rank: usize, receive: &ReceiveMessage, bytes: usize) {
        if receive.peer() != rank {
            self.0[rank].landed.fetch_add(bytes as u64, Ordering::Relaxed);
            self.0[receive.peer()].taken.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    fn given(&self, rank: usize, sends: &[SendMessage]) {
        let to_others = sends.iter().filter(|send| send.peer() != rank);
        let bytes: usize = to_others.map(SendMessage::bytes).sum();
        self.0[rank].given.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the received bytes of the worst rank, if taken and sent bytes agree.
    fn worst(&self, plan: &Plan) -> Result<u64, Error> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for rank in plan.ranks() {
            let Counts { taken, given, .. } = &self.0[rank];
            let (taken, given) = (count(taken), count(given));
            if taken != given {
                let message = format!(
                    "other ranks received {taken} from rank {rank}, but by the plan it sends {given}",
                    taken = counted(taken, "byte", "bytes")
                );
                return Err(Error::verification(message));
            }
        }
        Ok(self.0.iter().map(|counts| count(&counts.landed)).max().unwrap_or(0))
    }
}

fn no_exchange(rank: usize) -> Error {
    Error::internal(format!("rank {rank} has no part in the plan"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use reshard_collectives::threads;
    use reshard_kernels::DType;
    use reshard_planner::Planner;
    use reshard_sharding::{Mesh, Sharding};

    use super::redistribute;
    use crate::model::runs::all_runs;
    use crate::rooms::Rooms;

    /// Ranks in sequence get the same bytes as concurrent ranks, and receive as many.
    #[test]
    fn in_turn_is_at_once() {
        let texts =
            ["R,R", "S(0),R", "R,S(0)", "S(0),S(0)", "S(0),S(1)", "S(1),S(0)", "R,S(1)", "SS(0,2),S(0)"];
        let mut exchanges = [0; 4];
        for shape in [[8, 12], [5, 7], [1, 16]] {
            for (from, to) in texts.iter().flat_map(|from| texts.iter().map(move |to| (from, to))) {
                for (mesh, other) in
                    [("a=2,b=2", "a=2,b=2"), ("a=4,b=2", "a=4,b=2"), ("a=2,b=3", "a=2,b=2@3")]
                {
                    let of = |mesh: &str, text: &str| {
                        Sharding::parse(&mesh.parse::<Mesh>().unwrap(), &shape, text).unwrap()
                    };
                    let (from, to) = (of(mesh, from), of(other, to));
                    let plan = Planner::new().plan(&from, &to, DType::U16).unwrap();
                    exchanges[super::exchanges(&plan).min(3)] += 1;
                    let whole: Vec<u8> = (0..2 * shape[0] * shape[1]).map(|at| (at * 7) as u8).collect();
                    let ranks: Vec<usize> = from.mesh().ranks().collect();
                    let shards: Vec<Vec<u8>> = ranks
                        .iter()
                        .map(|rank| {
                            let mut shard = Vec::new();
                            all_runs(&shape, &from.region(*rank).unwrap(), 2, |run| {
                                shard.extend_from_slice(&whole[run.whole..][..run.len]);
                                true
                            });
                            shard
                        })
                        .collect();
                    let (wanted, trace) = threads::redistribute(&plan, &shards).unwrap();
                    let source = |_, rank| {
                        ranks.iter().position(|r| *r == rank).map(|at| &shards[at][..]).unwrap_or_default()
                    };
                    let again = plan.clone();
                    let all = [&plan, &again, &plan];
                    let plans = if super::exchanges(&plan) > 1 { &all[..1] } else { &all[..] };
                    let got = Mutex::new(Vec::new());
                    let worst = redistribute(plans, &source, &Rooms::default(), &|at, rank, shard| {
                        got.lock().unwrap().push((at, rank, shard.clone()));
                        Ok(())
                    });
                    assert_eq!(worst.unwrap(), vec![trace.worst_received(); plans.len()]);
                    let mut got = got.into_inner().unwrap();
                    got.sort();
                    let of_one: Vec<_> = to.mesh().ranks().zip(wanted).collect();
                    let wanted: Vec<_> = (0..plans.len())
                        .flat_map(|at| of_one.iter().map(move |(rank, shard)| (at, *rank, shard.clone())))
                        .collect();
                    assert!(got == wanted, "{shape:?} {from} -> {to} on {mesh}");
                }
            }
        }
        assert!(exchanges.iter().skip(1).take(2).all(|count| *count > 0), "{exchanges:?}");
    }
}
