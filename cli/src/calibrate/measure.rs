//! Times of collectives on the ranks of an engine, run as plans run them.
//!
//! ```text
//! Sampler --Sample--> a plan of one step --CompiledPlan::run, several times--> us --greatest of all ranks--> Sampler
//! ```

use std::time::Instant;

use reshard_calibrate::{Sample, SampleOptions, Sampled, Sampler};
use reshard_collectives::{Communicator, CompiledPlan, Error as EngineError, Scratch};
use reshard_kernels::DType;
use reshard_planner::{Planner, StepOp};
use reshard_sharding::{Mesh, Sharding};

use crate::error::CliError;

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> CliError {
        CliError::failed(error.code(), error.to_string())
    }
}

/// The collective of a sample, compiled for a rank of its group.
struct Prepared {
    sample: Sample,
    plan: CompiledPlan,
    scratch: Scratch<Vec<u8>>,
}

impl Prepared {
    /// Returns `true` for another number of calls of the same collective.
    fn is_of(&self, sample: &Sample) -> bool {
        let Sample { collective, members, bytes, .. } = &self.sample;
        (*collective, members, *bytes) == (sample.collective, &sample.members, sample.bytes)
    }
}

/// Takes all samples on one rank; every rank of the engine calls it with the same options.
///
/// `greatest` returns the greatest time of all ranks, each of which calls it.
pub(super) fn measure<C: Communicator<Buffer = [u8], Owned = Vec<u8>>>(
    comm: &mut C,
    options: &SampleOptions,
    mut greatest: impl FnMut(&mut C, f64) -> Result<f64, EngineError>,
    mut on_progress: impl FnMut(f64),
) -> Result<Sampled, CliError> {
    let mut sampler =
        Sampler::new(options).map_err(|error| CliError::refused(error.code(), error.to_string()))?;
    let world: Vec<usize> = (0..comm.size()).collect();
    let (mut source, mut target) = (Vec::new(), Vec::new());
    // The groups of a size take turns, and their sizes differ at most by rounding.
    let mut prepared: Vec<Prepared> = Vec::new();
    while let Some(sample) = sampler.next_sample() {
        let mut us = 0.0;
        if sample.members.contains(&comm.rank()) {
            let at = if let Some(at) = prepared.iter().position(|of| of.is_of(&sample)) {
                at
            } else {
                prepared.retain(|of| {
                    of.sample.collective == sample.collective && of.sample.members != sample.members
                });
                prepared.push(prepare(comm, &sample, options.dtype)?);
                prepared.len() - 1
            };
            let Prepared { plan, scratch, .. } = &mut prepared[at];
            for (buffer, bytes) in [(&mut source, plan.source_bytes()), (&mut target, plan.target_bytes())] {
                if buffer.len() < bytes {
                    *buffer = comm.allocate(bytes)?;
                    // Zeroed pages that were never written are one page of memory, which is read from the cache.
                    buffer.fill(1);
                }
            }
            let (source, target) = (&source[..plan.source_bytes()], &mut target[..plan.target_bytes()]);
            comm.barrier(&world)?;
            let begin = Instant::now();
            for _ in 0..sample.calls {
                plan.run(comm, source, target, scratch)?;
            }
            us = begin.elapsed().as_secs_f64() * 1e6;
        } else {
            comm.barrier(&world)?;
        }
        sampler.record(greatest(comm, us)?);
        on_progress(sampler.progress());
    }
    Ok(sampler.finish())
}

/// Compiles the collective of a sample for a rank of its group.
fn prepare<C: Communicator<Buffer = [u8], Owned = Vec<u8>>>(
    comm: &mut C,
    sample: &Sample,
    dtype: DType,
) -> Result<Prepared, CliError> {
    let ranks = sample.members.len();
    let mesh = Mesh::from_ranks([("x", ranks)], &sample.members)?;
    let elements = sample.bytes as usize / dtype.element_bytes()?;
    let (shape, from, to) = match sample.collective {
        StepOp::ReduceScatter => (vec![elements], "P", "S(0)"),
        StepOp::AllReduce => (vec![elements], "P", "R"),
        // A row on each rank.
        StepOp::AllToAll => (vec![ranks, elements], "S(0)", "S(1)"),
        StepOp::AllGather | StepOp::Slice | StepOp::Exchange | StepOp::ZeroFill => {
            (vec![elements], "S(0)", "R")
        }
    };
    let [from, to] = [from, to].map(|text| Sharding::parse(&mesh, &shape, text));
    let plan = Planner::new().plan(&from?, &to?, dtype)?;
    match plan.steps() {
        [step] if step.op() == sample.collective => {}
        steps => {
            let ops: Vec<String> = steps.iter().map(|step| step.op().to_string()).collect();
            let message =
                format!("{} of {} B is planned as {}", sample.collective, sample.bytes, ops.join(", "));
            return Err(CliError::failed("internal", message));
        }
    }
    let plan = CompiledPlan::new(&plan, comm.rank())?;
    let scratch = plan.scratch(comm)?;
    Ok(Prepared { sample: sample.clone(), plan, scratch })
}
