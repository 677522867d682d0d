//! Schedules on threads with a clock: the final values of ranks, and the times of their instructions.
//!
//! ```text
//! compile, put   once for each rank, before any rank begins
//! run            once without a clock, on a copy: memory is mapped and threads are awake
//! run_timed      all ranks begin at the same time, with one clock
//! ```

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_program::schedule::{CommunicatorExchanges, CompileOptions, RunRecord, Schedule, Timeline};
use reshard_program::{Program, Statement};

use crate::program::input;
use crate::schedule::{Host, put, tensor};
use crate::together::brought;
use crate::{Error, Number, Ranks, Values};

/// The result of a run with a clock.
#[derive(Debug)]
#[doc(hidden)]
pub struct Timed<T> {
    /// The final values of the ranks.
    pub ranks: Ranks<T>,
    /// The schedules of the ranks of the mesh.
    pub schedules: Vec<Schedule>,
    /// The times of each rank's instructions.
    pub records: Vec<RunRecord>,
}

impl<T> Timed<T> {
    /// Returns the [measured timeline](Timeline::measured).
    ///
    /// Fails as that does, and not for records of one run.
    pub fn timeline(&self) -> Result<Timeline, Error> {
        Ok(Timeline::measured(&self.schedules, &self.records)?)
    }
}

/// Runs [`on_schedules`](crate::on_schedules) and times every instruction of every rank with one clock.
///
/// The times are of the second of two runs, which all ranks begin at the same time.
///
/// ```
/// use ndarray::array;
/// use reshard_program::{Program, schedule::CompileOptions};
/// let program: Program = "mesh x=2\na: f64[2] S(0)\nb = mul(a, a)\ny: R = b".parse()?;
/// let inputs = [("a".to_owned(), array![2.0, 3.0].into_dyn())].into();
/// let timed = reshard_reference::timed(&program, &inputs, &CompileOptions::default())?;
/// assert_eq!(timed.ranks.whole("y")?, array![4.0, 9.0].into_dyn());
/// let timeline = timed.timeline()?;
/// assert!(timeline.total_us() > 0.0 && timeline.lanes.iter().all(|lane| lane.calls.len() == 1 && lane.waits.len() == 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The [events](Ranks::did) of ranks are their exchanges; calls are not among them.
#[doc(hidden)]
pub fn timed<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    options: &CompileOptions,
) -> Result<Timed<T>, Error> {
    let program = program.in_one_dtype(T::DTYPE)?;
    let program = &*program.lower_comm_dtypes()?;
    for item in program.statements() {
        if let Statement::Input(v) = item {
            input(program, *v, inputs)?;
        }
    }
    let world = program.mesh().world_size();
    let mut schedules: Vec<Option<(Schedule, Vec<u8>)>> = Vec::with_capacity(world);
    for rank in 0..world {
        schedules.push(if program.mesh().contains(rank) {
            let schedule = program.compile(rank, options)?;
            let mut arena = schedule.arena()?;
            put(program, &schedule, inputs, &mut arena)?;
            Some((schedule, arena))
        } else {
            None
        });
    }
    let gate = Gate { of: schedules.iter().flatten().count(), come: Mutex::new(0), all: Condvar::new() };
    let start = Instant::now();
    let results = World::new(world).map_err(|e| Error::Input { reason: e.to_string() })?.run(|comm| {
        let rank = reshard_collectives::Communicator::rank(comm);
        let Some((schedule, arena)) = &schedules[rank] else { return Ok(None) };
        run_rank::<T>(program, schedule, arena.clone(), (&gate, start), comm).map(Some)
    });
    let (mut held, mut done, mut records) =
        (Vec::with_capacity(world), Vec::with_capacity(world), Vec::new());
    for (result, of) in results.into_iter().zip(&schedules) {
        let mut values = Values::new();
        if let Some(((arena, record), (schedule, _))) = result?.zip(of.as_ref()) {
            for local in schedule.buffers().iter().filter(|local| local.is_live_out) {
                values.insert(local.name.clone(), tensor(&arena[local.slice.range()], &local.tensor)?);
            }
            records.push(record);
        }
        held.push(values);
        done.push(of.iter().flat_map(|(schedule, _)| schedule.exchanges()).filter_map(brought).collect());
    }
    let schedules = schedules.into_iter().flatten().map(|(schedule, _)| schedule).collect();
    Ok(Timed { ranks: Ranks::of(program, held, done), schedules, records })
}

/// Runs the schedule of a rank twice, and returns the final values and the times of the second run.
fn run_rank<T: Number>(
    program: &Program,
    schedule: &Schedule,
    mut arena: Vec<u8>,
    (gate, start): (&Gate, Instant),
    comm: &mut ThreadCommunicator,
) -> Result<(Vec<u8>, RunRecord), Error> {
    // A rank that fails passes the gate too, so that no rank waits there forever.
    let comes = Comes(gate);
    let (mut kernels, mut engine) = (Host::<T>::new(program.table()), CommunicatorExchanges::new(comm));
    let prepared = schedule.prepare(&mut kernels, &mut engine)?;
    prepared.run(&mut kernels, &mut engine, &mut arena.clone())?;
    drop(comes);
    gate.pass();
    let record = prepared.run_timed(&mut kernels, &mut engine, &mut arena, || start.elapsed())?;
    Ok((arena, record))
}

/// A barrier that all ranks enter before they begin.
struct Gate {
    of: usize,
    come: Mutex<usize>,
    all: Condvar,
}

/// Enters a gate when it is dropped.
struct Comes<'a>(&'a Gate);

impl Drop for Comes<'_> {
    fn drop(&mut self) {
        *self.0.come.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.all.notify_all();
    }
}

impl Gate {
    /// Waits until all have entered.
    fn pass(&self) {
        let come = self.come.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.all.wait_while(come, |come| *come < self.of).unwrap_or_else(PoisonError::into_inner));
    }
}
