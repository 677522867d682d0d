//! Plans executed by the threads of this process.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyList;
use reshard_collectives::Error;
use reshard_collectives::threads::World;
use reshard_planner::Plan;

use crate::buffers::{Lent, check_apart, make};
use crate::failure::{Answer, mismatched};
use crate::shards::{check_shards, lend_shards};

/// Idle worlds, with the process that made them: threads do not survive a fork.
static IDLE: Mutex<Vec<(u32, World)>> = Mutex::new(Vec::new());

/// The number of worlds that are cached, and the most ranks of one.
const KEPT: (usize, usize) = (4, 64);

/// Returns a world of `ranks` ranks, a cached or a new one.
fn world_of(ranks: usize) -> Result<World, Error> {
    // A lock that a thread held during a fork stays locked: then nothing is cached.
    if let Ok(mut idle) = IDLE.try_lock() {
        let here = std::process::id();
        // The threads of worlds from another process do not exist here, so they cannot be joined.
        idle.extract_if(.., |(process, _)| *process != here).for_each(std::mem::forget);
        if let Some(at) = idle.iter().position(|(_, world)| world.size() == ranks) {
            return Ok(idle.remove(at).1);
        }
    }
    World::new(ranks)
}

/// Caches a world for the next plan, in place of the oldest one.
fn keep(world: World) {
    let (most, ranks) = KEPT;
    if world.size() > ranks {
        return;
    }
    let mut oldest = None;
    if let Ok(mut idle) = IDLE.try_lock() {
        if idle.len() >= most {
            oldest = Some(idle.remove(0));
        }
        idle.push((std::process::id(), world));
    }
    // Its threads are joined without the lock.
    drop(oldest);
}

/// Executes a plan on arrays, with a thread for every rank, without the interpreter lock.
///
/// It writes to `out`, or to new arrays like the first shard.
pub(crate) fn run<'py>(
    py: Python<'py>,
    plan: &Plan,
    shards: &[Bound<'py, PyAny>],
    out: Option<Vec<Bound<'py, PyAny>>>,
) -> Answer<Bound<'py, PyList>> {
    let (from, to) = (plan.from(), plan.to());
    let (needed, given) = (from.mesh().size(), shards.len());
    let Some(first) = shards.first().filter(|_| needed == given) else {
        let message = format!("{given} shards were given but the source mesh has {needed} ranks");
        return Err(mismatched("count", message));
    };
    let dtype = plan.dtype();
    let sources = lend_shards(from, shards)?;
    check_shards(from, &sources, dtype)?;
    let targets = match out {
        Some(out) if out.len() != to.mesh().size() => {
            let message = format!(
                "{} targets were given but the target mesh has {} ranks",
                out.len(),
                to.mesh().size()
            );
            return Err(mismatched("count", message));
        }
        Some(out) => PyList::new(py, out)?,
        None => {
            let shape = |rank| Ok(to.local_shape(rank)?.to_vec());
            let shapes = to.mesh().ranks().map(shape).collect::<Answer<Vec<_>>>()?;
            make(first, sources[0].is_raw(dtype), dtype, shapes)?
        }
    };
    let mut lent = to
        .mesh()
        .ranks()
        .zip(targets.iter())
        .map(|(rank, target)| Lent::for_writing(&target, format!("the target of rank {rank}")))
        .collect::<Answer<Vec<_>>>()?;
    check_shards(to, &lent, dtype)?;
    check_apart(&sources, &lent)?;
    let bytes: Vec<&[u8]> = sources.iter().map(Lent::bytes).collect();
    let mut written: Vec<&mut [u8]> = lent.iter_mut().map(Lent::bytes_mut).collect();
    py.detach(|| {
        let mut world = world_of(from.mesh().world_size().max(to.mesh().world_size()))?;
        let done = world.redistribute_into(plan, &bytes, &mut written);
        keep(world);
        done
    })?;
    Ok(targets)
}
