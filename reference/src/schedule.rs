//! Schedules on host memory: ops of the table on the bytes of an arena, and all ranks on threads.
//!
//! ```text
//! Host            the ops, in f32 or f64                     kernels for one rank
//! on_schedules    a schedule and an arena for every rank     the implementation, without types
//! ```
//!
//! Property: the results equal those of [`on_ranks`](crate::on_ranks) bit by bit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use ndarray::{ArrayD, IxDyn};
use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_kernels::DType;
use reshard_ops::rules::{OpCall, OpTable, ShardRegion};
use reshard_program::schedule::{
    ArenaSlice, CommunicatorExchanges, CompileOptions, ExchangeEngine, Kernels, LocalCall, LocalTensor,
    Schedule, Transfer,
};
use reshard_program::{Program, Statement};

use crate::done::{Did, digest};
use crate::program::{Ranks, input, shard_of};
use crate::{Error, Local, Number, Values, narrow, run_local};

/// The ops of a table in host memory.
///
/// It serves schedules of a program whose values are all of the type `T`. It is short and slow, and the reference for a framework's kernels.
#[derive(Debug)]
pub struct Host<T> {
    table: Arc<OpTable>,
    calls: Vec<Ready>,
    element: std::marker::PhantomData<T>,
}

/// A call, and the regions of its operands and results.
#[derive(Debug)]
struct Ready {
    call: OpCall,
    takes: Vec<(ShardRegion, DType)>,
    makes: Vec<(ShardRegion, DType)>,
}

impl<T: Number> Host<T> {
    /// The ops of this table.
    pub fn new(table: &Arc<OpTable>) -> Host<T> {
        Host { table: Arc::clone(table), calls: Vec::new(), element: std::marker::PhantomData }
    }
}

impl<T: Number> Kernels for Host<T> {
    type Buffer = [u8];
    type Error = Error;

    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Error> {
        let places = |list: &[LocalTensor]| -> Result<Vec<(ShardRegion, DType)>, Error> {
            let place = |tensor: &LocalTensor| {
                narrow::check::<T>(&call.call.to_string(), tensor.dtype)?;
                Ok((tensor.region()?, tensor.dtype))
            };
            list.iter().map(place).collect()
        };
        let (takes, makes) = (places(&call.inputs)?, places(&call.outputs)?);
        self.calls.push(Ready { call: call.call.clone(), takes, makes });
        Ok(self.calls.len() as u32 - 1)
    }

    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut [u8]) -> Result<(), Error> {
        let Some(Ready { call, takes, makes }) = self.calls.get(kernel as usize) else {
            return Err(Error::Input { reason: format!("there is no kernel {kernel}") });
        };
        let inputs: Result<Vec<ArrayD<T>>, Error> = takes
            .iter()
            .zip(args)
            .map(|((place, dtype), at)| shaped(&arena[at.range()], &place.shape(), *dtype))
            .collect();
        let [places, wanted] = [takes, makes].map(|list| list.iter().map(|(place, _)| place).collect());
        let local = Local { inputs: &inputs?, places, wanted };
        let made = run_local(&self.table, call, &local)?;
        for ((made, (place, dtype)), at) in made.iter().zip(makes).zip(&args[takes.len()..]) {
            if made.shape() != place.shape().as_slice() {
                let reason =
                    format!("{call} computed shape {:?} instead of {:?}", made.shape(), place.shape());
                return Err(Error::Input { reason });
            }
            narrow::put(made.iter(), *dtype, &mut arena[at.range()]);
        }
        Ok(())
    }
}

/// Converts bytes to numbers of a shape.
pub(crate) fn tensor<T: Number>(bytes: &[u8], of: &LocalTensor) -> Result<ArrayD<T>, Error> {
    shaped(bytes, &of.shape, of.dtype)
}

fn shaped<T: Number>(bytes: &[u8], shape: &[usize], dtype: DType) -> Result<ArrayD<T>, Error> {
    ArrayD::from_shape_vec(IxDyn(shape), narrow::numbers(bytes, dtype))
        .map_err(|e| Error::Input { reason: e.to_string() })
}

/// Runs the schedules of all ranks, each on its own thread and arena, and returns their final values.
///
/// ```
/// use ndarray::array;
/// use reshard_program::{Program, schedule::CompileOptions};
/// let program: Program = "mesh x=2\na: f64[2] S(0)\nb = mul(a, a)\ny: R = b".parse()?;
/// let inputs = [("a".to_owned(), array![2.0, 3.0].into_dyn())].into();
/// let ranks = reshard_reference::on_schedules(&program, &inputs, &CompileOptions::default())?;
/// assert_eq!(ranks.whole("y")?, array![4.0, 9.0].into_dyn());
/// assert_eq!(ranks.received_bytes(), 8);
/// assert!(ranks.whole("b").is_err(), "b is not there any more");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Values that do not [last](reshard_program::schedule::LocalBuffer::is_live_out) are not among them; without
/// [`liveness`](CompileOptions::liveness) all are. Fails as [`on_ranks`](crate::on_ranks) does.
pub fn on_schedules<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    options: &CompileOptions,
) -> Result<Ranks<T>, Error> {
    let program = program.in_one_dtype(T::DTYPE)?;
    let program = &*program.lower_comm_dtypes()?;
    for item in program.statements() {
        if let Statement::Input(v) = item {
            input(program, *v, inputs)?;
        }
    }
    let results = World::new(program.mesh().world_size())
        .map_err(|e| Error::Input { reason: e.to_string() })?
        .run(|comm| run_rank(program, inputs, options, comm));
    let mut ranks: Vec<(Values<T>, Vec<Did>)> = Vec::with_capacity(results.len());
    for result in results {
        ranks.push(result?);
    }
    let (held, done): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
    Ok(Ranks::of(program, held, done))
}

/// Returns the final values of a rank, and its events; empty if it is not in the mesh.
fn run_rank<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    options: &CompileOptions,
    comm: &mut ThreadCommunicator,
) -> Result<(Values<T>, Vec<Did>), Error> {
    let rank = reshard_collectives::Communicator::rank(comm);
    if !program.mesh().contains(rank) {
        return Ok((BTreeMap::new(), Vec::new()));
    }
    comm.take_trace();
    let schedule = program.compile(rank, options)?;
    let done = RefCell::new(Vec::new());
    let mut kernels = Watched { inner: Host::<T>::new(program.table()), calls: Vec::new(), done: &done };
    let mut engine = Watched { inner: CommunicatorExchanges::new(comm), calls: Vec::new(), done: &done };
    let mut arena = schedule.arena()?;
    put(program, &schedule, inputs, &mut arena)?;
    let prepared = schedule.prepare(&mut kernels, &mut engine)?;
    prepared.run(&mut kernels, &mut engine, &mut arena)?;
    let mut held = BTreeMap::new();
    for local in schedule.buffers().iter().filter(|local| local.is_live_out) {
        held.insert(local.name.clone(), tensor(&arena[local.slice.range()], &local.tensor)?);
    }
    Ok((held, done.into_inner()))
}

/// Writes a rank's shards of the whole inputs to the arena offsets of its schedule.
pub(crate) fn put<T: Number>(
    program: &Program,
    schedule: &Schedule,
    inputs: &Values<T>,
    arena: &mut [u8],
) -> Result<(), Error> {
    for (name, whole) in inputs {
        let Some((v, local)) = program.value(name).zip(schedule.local(name)) else { continue };
        let is = &program.get(v).ty.value;
        if whole.shape() != is.shape() {
            let reason = format!("`{name}` has shape {:?}, but is given as {:?}", is.shape(), whole.shape());
            return Err(Error::Input { reason });
        }
        let whole: Vec<T> = whole.iter().copied().collect();
        let shard = shard_of(is, schedule.rank(), &whole)?;
        narrow::put(shard.iter(), T::DTYPE, &mut arena[local.slice.range()]);
    }
    Ok(())
}

/// Kernels or exchanges, with a list of their events.
struct Watched<'a, I> {
    inner: I,
    /// The shapes of each kernel's call.
    calls: Vec<LocalCall>,
    done: &'a RefCell<Vec<Did>>,
}

impl<T: Number> Kernels for Watched<'_, Host<T>> {
    type Buffer = [u8];
    type Error = Error;

    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Error> {
        self.calls.push(call.clone());
        self.inner.prepare(call)
    }

    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut [u8]) -> Result<(), Error> {
        self.inner.run(kernel, args, arena)?;
        let LocalCall { call, inputs: takes, outputs: makes, .. } = &self.calls[kernel as usize];
        let shapes = |list: &[LocalTensor]| list.iter().map(|tensor| tensor.shape.clone()).collect();
        self.done.borrow_mut().push(Did::Call {
            call: call.to_string(),
            takes: shapes(takes),
            makes: shapes(makes),
            made: args[takes.len()..].iter().map(|at| digest(&arena[at.range()])).collect(),
        });
        Ok(())
    }
}

impl ExchangeEngine for Watched<'_, CommunicatorExchanges<'_, ThreadCommunicator>> {
    type Buffer = [u8];
    type Error = Error;

    fn prepare(&mut self, transfer: &Transfer) -> Result<(), Error> {
        self.inner.prepare(transfer).map_err(|e| moved(transfer, &e))
    }

    fn post(&mut self, transfer: &Transfer, arena: &mut [u8]) -> Result<(), Error> {
        self.inner.post(transfer, arena).map_err(|e| moved(transfer, &e))
    }

    fn wait(&mut self, transfer: &Transfer, arena: &mut [u8]) -> Result<(), Error> {
        self.inner.wait(transfer, arena).map_err(|e| moved(transfer, &e))?;
        let trace = self.inner.communicator().take_trace();
        let rank = transfer.compiled.rank();
        self.done.borrow_mut().extend(Did::received(&transfer.name(), &trace, rank));
        Ok(())
    }
}

fn moved(transfer: &Transfer, e: &reshard_collectives::Error) -> Error {
    Error::Input { reason: format!("{}: {e}", transfer.name()) }
}
