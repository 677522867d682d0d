//! A program on one rank of a job, with any communicator: at the end every rank has the values of all ranks.
//!
//! ```text
//! each rank    its schedule, with separate bytes for every value, in an arena
//! all ranks    the arenas, concatenated as RG(0,[bytes of each rank]) and gathered as R
//! ```

use std::collections::BTreeMap;

use reshard_collectives::{Communicator, CompiledPlan};
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_program::schedule::{CommunicatorExchanges, CompileOptions, Schedule, Transfer};
use reshard_program::{Program, Statement};
use reshard_sharding::{Mesh, Sharding};

use crate::program::input;
use crate::schedule::{Host, put, tensor};
use crate::{Did, Error, Number, Ranks, Values};

/// Runs a program on ranks of a job that each have a communicator: threads, or processes.
///
/// All ranks call it, with the same program and the same whole inputs, and all get the same result.
///
/// ```
/// use ndarray::array;
/// use reshard_collectives::threads::World;
/// use reshard_program::Program;
/// let program: Program = "mesh x=2\na: f64[2] S(0)\nb = mul(a, a)\ny: R = b".parse()?;
/// let inputs = [("a".to_owned(), array![2.0, 3.0].into_dyn())].into();
/// for ranks in World::new(2)?.run(|comm| reshard_reference::on_this_rank(&program, &inputs, comm)) {
///     assert_eq!(ranks?.whole("y")?, array![4.0, 9.0].into_dyn());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The [events](Ranks::did) of ranks are their exchanges; calls are not among them. Fails as
/// [`on_schedules`](crate::on_schedules) does, and unless the job has as many ranks as the program's mesh
/// spans.
#[doc(hidden)]
pub fn on_this_rank<T: Number, C: Communicator<Buffer = [u8]>>(
    program: &Program,
    inputs: &Values<T>,
    comm: &mut C,
) -> Result<Ranks<T>, Error> {
    let program = &program.in_one_dtype(T::DTYPE)?;
    let (world, size) = (program.mesh().world_size(), comm.size());
    if size != world {
        let reason = format!("the job has {size} ranks, but the mesh {} has {world}", program.mesh());
        return Err(Error::Input { reason });
    }
    for item in program.statements() {
        if let Statement::Input(v) = item {
            input(program, *v, inputs)?;
        }
    }
    let options = CompileOptions { liveness: false, ..CompileOptions::default() };
    let mut schedules: Vec<Option<Schedule>> = Vec::with_capacity(world);
    for rank in 0..world {
        let here = program.mesh().contains(rank);
        schedules.push(if here { Some(program.compile(rank, &options)?) } else { None });
    }
    let bytes: Vec<usize> = schedules.iter().map(|s| s.as_ref().map_or(0, Schedule::arena_bytes)).collect();
    let mut arena = Vec::new();
    if let Some(schedule) = &schedules[comm.rank()] {
        arena = schedule.arena()?;
        put(program, schedule, inputs, &mut arena)?;
        let (mut kernels, mut engine) = (Host::<T>::new(program.table()), CommunicatorExchanges::new(comm));
        let prepared = schedule.prepare(&mut kernels, &mut engine)?;
        prepared.run(&mut kernels, &mut engine, &mut arena)?;
    }
    let all = gather(&arena, &bytes, comm)?;
    let (mut held, mut done, mut start) = (Vec::with_capacity(world), Vec::with_capacity(world), 0);
    for (schedule, bytes) in schedules.iter().zip(&bytes) {
        let arena = &all[start..start + bytes];
        let mut values = BTreeMap::new();
        for local in schedule.iter().flat_map(Schedule::buffers) {
            values.insert(local.name.clone(), tensor(&arena[local.slice.range()], &local.tensor)?);
        }
        held.push(values);
        done.push(schedule.iter().flat_map(Schedule::exchanges).filter_map(brought).collect());
        start += bytes;
    }
    Ok(Ranks::of(program, held, done))
}

/// Returns the data that an exchange brings to its rank; `None` for nothing.
pub(crate) fn brought(transfer: &Transfer) -> Option<Did> {
    let mut bytes: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for exchange in transfer.compiled.exchanges() {
        let others = exchange.receives().iter().filter(|receive| receive.peer() != exchange.rank());
        for receive in others.filter(|receive| receive.bytes() > 0) {
            *bytes.entry((exchange.step(), receive.peer())).or_default() += receive.bytes() as u64;
        }
    }
    (!bytes.is_empty()).then(|| Did::Received { value: transfer.name(), bytes })
}

/// Gathers the arenas of all ranks into one contiguous buffer.
fn gather<C: Communicator<Buffer = [u8]>>(
    mine: &[u8],
    bytes: &[usize],
    comm: &mut C,
) -> Result<Vec<u8>, Error> {
    let refused =
        |e: &dyn core::fmt::Display| Error::Input { reason: format!("gathering the ranks' values: {e}") };
    if bytes.len() == 1 {
        return Ok(mine.to_vec());
    }
    let mesh = Mesh::new([("r", bytes.len())]).map_err(|e| refused(&e))?;
    let parts: Vec<String> = bytes.iter().map(usize::to_string).collect();
    let shape = [bytes.iter().sum()];
    let of = |text: &str| Sharding::parse(&mesh, &shape, text).map_err(|e| refused(&e));
    let (cut, whole) = (of(&format!("RG(0,[{}])", parts.join(",")))?, of("R")?);
    let plan = Planner::new().plan(&cut, &whole, DType::U8).map_err(|e| refused(&e))?;
    let mut all = vec![0; shape[0]];
    let compiled = CompiledPlan::new(&plan, comm.rank()).map_err(|e| refused(&e))?;
    let mut scratch = compiled.scratch(comm).map_err(|e| refused(&e))?;
    compiled.run(comm, mine, &mut all, &mut scratch).map_err(|e| refused(&e))?;
    Ok(all)
}
