//! Plans carried out by the threads of this process.

use pyo3::prelude::*;
use pyo3::types::PyList;
use reshard_collectives::threads::World;
use reshard_planner::Plan;

use crate::buffers::{Lent, check_apart, make};
use crate::failure::{Answer, mismatched};
use crate::shards::{check_shards, lend_shards};

/// Carries a plan out on arrays, a thread for every rank, without the interpreter's lock; into `out`, or new arrays like the first shard.
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
        World::new(from.mesh().world().max(to.mesh().world()))?.redistribute_into(plan, &bytes, &mut written)
    })?;
    Ok(targets)
}
