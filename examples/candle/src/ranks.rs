//! All ranks of a program as threads, each with its schedule, its arena and its part of the weights.

use std::time::{Duration, Instant};

use reshard_collectives::Communicator;
use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_program::Program;
use reshard_program::schedule::{CommunicatorExchanges, CompileOptions, LocalBuffer, RunError, Schedule};

use crate::kernels::CandleKernels;
use crate::model::{HIDDEN, IDS, MASK};
use crate::sentences::places;

/// The results of the ranks.
#[derive(Debug)]
pub struct Encoded {
    /// The last hidden state for all inputs.
    pub hidden: Vec<f32>,
    /// The time of each run, of the slowest rank.
    pub times: Vec<Duration>,
}

/// A function that writes a parameter to the bytes that a rank has for it.
pub type Load<'a> = dyn Fn(usize, &LocalBuffer, &mut [u8]) -> reshard::Result<()> + Sync + 'a;

/// Runs the encoder `runs` times.
///
/// Fails where kernels, exchanges or `load` do, and where replicas of the result differ in a bit.
pub fn encode(program: &Program, runs: usize, load: &Load<'_>) -> reshard::Result<Encoded> {
    let ranks = World::new(program.mesh().world_size())?.run(|comm| on_a_rank(program, runs, load, comm));
    let mut times = vec![Duration::ZERO; runs];
    let mut shards = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let (shard, took) = rank?;
        for (most, took) in times.iter_mut().zip(took) {
            *most = took.max(*most);
        }
        shards.push(shard);
    }
    let hidden = program.value(HIDDEN).ok_or_else(|| missing(HIDDEN))?;
    Ok(Encoded { hidden: program.get(hidden).ty.value.assemble(&shards)?, times })
}

/// Runs one rank: returns its part of the result, and the time of each run.
fn on_a_rank(
    program: &Program,
    runs: usize,
    load: &Load<'_>,
    comm: &mut ThreadCommunicator,
) -> reshard::Result<(Vec<f32>, Vec<Duration>)> {
    let schedule = program.compile(comm.rank(), &CompileOptions::default())?;
    let mut arena = vec![0; schedule.arena_bytes()];
    let mut kernels = CandleKernels::new(program.table());
    let ids: Vec<i64> = places().map(|token| token.map_or(0, i64::from)).collect();
    let mask: Vec<f32> = places().map(|token| if token.is_some() { 0.0 } else { f32::MIN }).collect();
    put(program, &schedule, IDS, &ids, i64::to_ne_bytes, &mut arena)?;
    put(program, &schedule, MASK, &mask, f32::to_ne_bytes, &mut arena)?;
    for local in schedule.buffers().iter().filter(|local| local.is_input && !is_asked(&local.name)) {
        let bytes = &mut arena[local.slice.range()];
        load(schedule.rank(), local, bytes)?;
        kernels.hold(local, bytes).map_err(RunError::<_, reshard_collectives::Error>::Kernel)?;
    }

    let mut engine = CommunicatorExchanges::new(comm);
    let prepared = schedule.prepare(&mut kernels, &mut engine)?;
    let everybody: Vec<usize> = program.mesh().ranks().collect();
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        engine.communicator().barrier(&everybody)?;
        let begin = Instant::now();
        prepared.run(&mut kernels, &mut engine, &mut arena)?;
        times.push(begin.elapsed());
    }
    let hidden = schedule.local(HIDDEN).ok_or_else(|| missing(HIDDEN))?;
    let numbers = arena[hidden.slice.range()].chunks_exact(4);
    Ok((numbers.map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect(), times))
}

/// Returns `true` for a model input that is not a parameter.
pub fn is_asked(name: &str) -> bool {
    [IDS, MASK].contains(&name)
}

/// Writes the shard of a global input to its offset in a rank's arena.
fn put<T: Copy + Default, const N: usize>(
    program: &Program,
    schedule: &Schedule,
    name: &str,
    whole: &[T],
    bytes: fn(T) -> [u8; N],
    arena: &mut [u8],
) -> reshard::Result<()> {
    let (value, local) = program.value(name).zip(schedule.local(name)).ok_or_else(|| missing(name))?;
    let shard = program.get(value).ty.value.shard(schedule.rank(), whole, T::default())?;
    for (at, number) in arena[local.slice.range()].chunks_exact_mut(N).zip(shard) {
        at.copy_from_slice(&bytes(number));
    }
    Ok(())
}

fn missing(name: &str) -> reshard::Error {
    let reason = format!("the program has no value {name}");
    reshard::Error::new(reshard::ErrorKind::InvalidInput, "program", reason)
}
