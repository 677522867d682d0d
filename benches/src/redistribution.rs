//! Redistributions on the threads engine, compared with memcpy of the same bytes by the same threads.

use std::time::Instant;

use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

use crate::Ratios;

/// The redistributions with a promised speed: from, to.
///
/// The tensor is 4096 x 4096 of f32, the mesh `dp=2,tp=4`.
pub const PROMISED: [(&str, &str); 4] =
    [("S(0),R", "R,S(1)"), ("S(0),S(1)", "S(1),S(0)"), ("S(0),S(0)", "S(1),S(1)"), ("S(0),R", "S(1),R")];

/// The minimum ratio of bytes received per second to memcpy's.
pub const PROMISED_RATIO: f64 = 0.5;

/// The shape of the tensor: 64 MiB of f32.
pub const SHAPE: [usize; 2] = [4096, 4096];

/// Returns the plan between two shardings of a tensor of f32 on `dp=2,tp=4`.
pub fn plan(shape: &[usize], from: &str, to: &str) -> Result<Plan, reshard_planner::Error> {
    let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
    let (from, to) = (Sharding::parse(&mesh, shape, from)?, Sharding::parse(&mesh, shape, to)?);
    Planner::new().plan(&from, &to, DType::F32)
}

/// A rank's buffers for a plan: allocated, touched, and ready to run.
#[derive(Debug)]
pub struct Ready {
    all: Vec<usize>,
    compiled: CompiledPlan,
    source: Vec<u8>,
    target: Vec<u8>,
    plain: Vec<u8>,
    scratch: reshard_collectives::Scratch<Vec<u8>>,
}

impl Ready {
    /// Compiles and allocates.
    pub fn new(plan: &Plan, comm: &mut ThreadCommunicator) -> Result<Ready, Error> {
        let compiled = CompiledPlan::new(plan, comm.rank())?;
        let rank = comm.rank() as u8;
        let filled = |bytes| vec![rank + 1; bytes];
        let (source, target) = (filled(compiled.source_bytes()), filled(compiled.target_bytes()));
        let (plain, scratch) = (filled(compiled.target_bytes()), compiled.scratch(comm)?);
        Ok(Ready { all: (0..comm.size()).collect(), compiled, source, target, plain, scratch })
    }

    /// Waits for all ranks.
    fn meet(&self, comm: &mut ThreadCommunicator) -> Result<(), Error> {
        comm.barrier(&self.all)
    }

    /// Runs one redistribution after a barrier; returns the time at which this rank began and ended.
    pub fn redistribute(&mut self, comm: &mut ThreadCommunicator) -> Result<Span, Error> {
        self.meet(comm)?;
        let begin = Instant::now();
        self.compiled.run(comm, &self.source, &mut self.target, &mut self.scratch)?;
        Ok((begin, Instant::now()))
    }

    /// Runs one plain copy, after a barrier, of as many bytes as the target receives.
    pub fn memcpy(&mut self, comm: &mut ThreadCommunicator) -> Result<Span, Error> {
        self.meet(comm)?;
        let begin = Instant::now();
        self.target.copy_from_slice(&self.plain);
        Ok((begin, Instant::now()))
    }
}

/// The times at which a rank began and ended.
pub type Span = (Instant, Instant);

/// Returns the seconds from the first rank's begin to the last rank's end.
///
/// With more ranks than processors the first has finished before the last is even woken, so no rank's clock
/// shows it.
pub fn seconds(ranks: impl Iterator<Item = Span> + Clone) -> f64 {
    let begin = ranks.clone().map(|span| span.0).min();
    let end = ranks.map(|span| span.1).max();
    begin.zip(end).map_or(f64::NAN, |(begin, end)| (end - begin).as_secs_f64())
}

/// Times memcpy and redistribution in turn, `turns` times.
pub fn measure(world: &mut World, plan: &Plan, turns: usize) -> Result<Ratios, Error> {
    let results = world.run(|comm| {
        let mut ready = Ready::new(plan, comm)?;
        ready.redistribute(comm)?;
        ready.memcpy(comm)?;
        let mut spans = Vec::with_capacity(turns);
        for _ in 0..turns {
            spans.push((ready.memcpy(comm)?, ready.redistribute(comm)?));
        }
        ready.meet(comm)?;
        Ok((spans, ready.target.len()))
    });
    let ranks = results.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let bytes = ranks.iter().map(|(_, bytes)| bytes).sum();
    let turn = |turn: usize| {
        let of_all = ranks.iter().map(|(spans, _)| spans[turn]);
        (seconds(of_all.clone().map(|spans| spans.0)), seconds(of_all.map(|spans| spans.1)))
    };
    Ok(Ratios::new(&(0..turns).map(turn).collect::<Vec<_>>(), bytes))
}
