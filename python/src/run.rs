//! Programs run: on one device, and on a thread for every rank, where each call is a function of Python or the reference.
//!
//! ```text
//! on_one_device   whole values, redistributions do nothing                      the semantics of a program
//! on_ranks        each rank runs its schedule, exchanges run on threads         its distributed execution
//! ```

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_collectives::{Communicator, Error as EngineFailure};
use reshard_kernels::DType;
use reshard_program::schedule::{CommunicatorExchanges, CompileOptions, RunError, Schedule};
use reshard_program::{Program, Statement, ValueId};
use reshard_reference::{Number, Values, on_one_device, on_schedules};

use crate::arrays;
use crate::failure::{Answer, EngineError, Failure, refused};
use crate::kernels::{PyLocalCall, PythonKernels, runner};
use crate::ranks::{Held, OfReference, PyRanks};
use crate::schedule::ScheduleOptions;
use crate::shards;
use crate::texts::{text, words};

/// Why a rank stopped.
pub(crate) enum Stopped {
    /// A kernel or the library returned an error.
    Python(PyErr),
    /// An exchange failed.
    Engine(EngineFailure),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Python(error) => f.write_str(&Python::attach(|py| error.value(py).to_string())),
            Stopped::Engine(error) => error.fmt(f),
        }
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Python(failure.into())
    }
}

impl From<reshard_program::Error> for Stopped {
    fn from(error: reshard_program::Error) -> Stopped {
        Failure::from(error).into()
    }
}

impl From<EngineFailure> for Stopped {
    fn from(error: EngineFailure) -> Stopped {
        Stopped::Engine(error)
    }
}

impl From<RunError<Failure, EngineFailure>> for Stopped {
    fn from(error: RunError<Failure, EngineFailure>) -> Stopped {
        match error {
            RunError::Kernel(failure) => failure.into(),
            RunError::Exchange(error) => error.into(),
        }
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Failure {
        match stopped {
            Stopped::Python(error) => error.into(),
            Stopped::Engine(error) => {
                let error = PyErr::new::<EngineError, _>(error.to_string());
                let placed = Python::attach(|py| {
                    let value = error.value(py);
                    ["rank", "step", "group"].iter().try_for_each(|name| value.setattr(*name, py.None()))
                });
                placed.map_or_else(Failure::from, |()| error.into())
            }
        }
    }
}

/// The implementation of calls.
enum With {
    /// A function of Python.
    Python(Py<PyAny>),
    /// The reference, in f32 or f64.
    Reference(DType),
}

impl With {
    fn of(program: &Program, kernels: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> Answer<With> {
        let word = kernels.and_then(|kernels| kernels.cast::<PyString>().ok());
        let Some(word) = word else { return Ok(With::Python(runner(py, kernels)?.unbind())) };
        let wide = program.values().iter().any(|value| value.dtype == DType::F64);
        match &*words(word)? {
            "numpy" => Ok(With::Python(runner(py, None)?.unbind())),
            "reference" => Ok(With::Reference(if wide { DType::F64 } else { DType::F32 })),
            other => Err(refused(
                "usage",
                format!(
                    "unknown kernels {other:?}; expected \"numpy\", \"reference\" or a dict of functions"
                ),
            )),
        }
    }
}

/// The inputs of a program, whole, as bytes of their types or of one type.
fn given(
    program: &Program,
    inputs: &Bound<'_, PyDict>,
    one: Option<DType>,
) -> Answer<BTreeMap<ValueId, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for item in program.statements() {
        let Statement::Input(v) = item else { continue };
        let value = program.get(*v);
        let Some(array) = inputs.get_item(&value.name)? else {
            return Err(refused("input", format!("the input `{}` is missing", value.name)));
        };
        // Indices and truth values are read in their own dtype, and converted to the one type afterwards.
        let bytes = arrays::read(&array, one.unwrap_or(value.dtype), value.shape(), &value.name)?;
        all.insert(*v, bytes);
    }
    for name in inputs.keys() {
        let name: String = text(&name)?;
        if !program.value(&name).is_some_and(|v| all.contains_key(&v)) {
            return Err(refused("input", format!("`{name}` is not an input of the program")));
        }
    }
    Ok(all)
}

/// Bytes as the numbers that the reference takes.
fn numbers<T: Number + bytemuck::Pod>(
    program: &Program,
    inputs: &BTreeMap<ValueId, Vec<u8>>,
) -> Answer<Values<T>> {
    let mut all = Values::new();
    for (v, bytes) in inputs {
        let value = program.get(*v);
        let list: Vec<T> = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        let array = ndarray::ArrayD::from_shape_vec(ndarray::IxDyn(value.shape()), list);
        all.insert(value.name.clone(), array.map_err(|error| refused("input", error.to_string()))?);
    }
    Ok(all)
}

/// The bytes of the numbers of an array.
fn bytes<T: Number + bytemuck::Pod>(array: &ndarray::ArrayD<T>) -> Vec<u8> {
    bytemuck::cast_slice(&array.iter().copied().collect::<Vec<T>>()).to_vec()
}

/// All values on one device, as arrays, of which some are views of others.
fn whole<'py>(
    py: Python<'py>,
    program: &Program,
    runner: &Bound<'py, PyAny>,
    inputs: &BTreeMap<ValueId, Vec<u8>>,
) -> Answer<BTreeMap<ValueId, Bound<'py, PyAny>>> {
    let mut values = BTreeMap::new();
    for (v, bytes) in inputs {
        let value = program.get(*v);
        values.insert(*v, arrays::of(py, value.dtype, value.shape(), bytes)?);
    }
    let missing = |v: &ValueId| refused("input", format!("`{}` was not computed", program.get(*v).name));
    for item in program.statements() {
        py.check_signals()?;
        match item {
            Statement::Input(_) | Statement::NoGrad => {}
            Statement::Redistribute { from, to, .. } => {
                let same = values.get(from).cloned().ok_or_else(|| missing(from))?;
                values.insert(*to, same);
            }
            Statement::Op { call, op, inputs, outputs, .. } => {
                let dtypes =
                    |list: &[ValueId]| list.iter().map(|v| program.get(*v).dtype).collect::<Vec<_>>();
                let (takes, makes) = (dtypes(inputs), dtypes(outputs));
                let local = PyLocalCall::whole(call, op, (&takes, &makes), program.table());
                let given = inputs.iter().map(|v| values.get(v).cloned().ok_or_else(|| missing(v)));
                let made = local.run(runner, given.collect::<Answer<Vec<_>>>()?)?;
                values.extend(outputs.iter().copied().zip(made));
            }
        }
    }
    Ok(values)
}

/// The results of one rank at the end of its schedule.
pub(crate) struct OfRank {
    /// The live values, by name.
    pub(crate) held: BTreeMap<String, Vec<u8>>,
    /// The bytes that it received in each redistribution.
    pub(crate) received: Vec<(String, u64)>,
    /// Hashes of all its values, as text.
    pub(crate) hashes: Option<String>,
    pub(crate) arena_bytes: usize,
}

/// Runs the schedule of a rank.
fn run_rank(
    program: &Program,
    inputs: &BTreeMap<ValueId, Vec<u8>>,
    runner: &Py<PyAny>,
    options: (&CompileOptions, bool),
    comm: &mut ThreadCommunicator,
) -> Result<Option<OfRank>, Stopped> {
    let rank = Communicator::rank(comm);
    if !program.mesh().contains(rank) {
        return Ok(None);
    }
    let schedule = program.compile(rank, options.0)?;
    // Memory owned by Python, so that kernels read operands without a copy; a kernel that keeps a view keeps
    // it all.
    let (memory, mut lent) = Python::attach(|py| arrays::memory(py, schedule.arena_bytes()))?;
    let arena = lent.bytes_mut();
    arena.fill(0);
    let mut kernels = PythonKernels { table: program.table(), runner, memory: &memory, calls: Vec::new() };
    let mut engine = CommunicatorExchanges::new(comm);
    for (v, whole) in inputs {
        let value = program.get(*v);
        if let Some(local) = schedule.local(&value.name) {
            let shard = &mut arena[local.slice.range()];
            shards::scatter_bytes(&value.ty.value, &[rank], value.dtype, whole, &mut [shard])?;
        }
    }
    let prepared = schedule.prepare(&mut kernels, &mut engine)?;
    let hashes = if options.1 {
        Some(prepared.run_hashed(&mut kernels, &mut engine, arena)?.to_string())
    } else {
        prepared.run(&mut kernels, &mut engine, arena)?;
        None
    };
    let lasting = schedule.buffers().iter().filter(|local| local.is_live_out);
    let held = lasting.map(|local| (local.name.clone(), arena[local.slice.range()].to_vec())).collect();
    Ok(Some(OfRank { held, received: received(&schedule), hashes, arena_bytes: schedule.arena_bytes() }))
}

/// The bytes that a rank receives in each of its redistributions that communicate.
fn received(schedule: &Schedule) -> Vec<(String, u64)> {
    let of = |transfer: &reshard_program::schedule::Transfer| {
        (transfer.name(), transfer.steps.iter().map(|step| step.received_bytes).sum())
    };
    schedule.exchanges().iter().filter(|transfer| transfer.communicates()).map(of).collect()
}

/// Computes all values of the program on one device, from global inputs; redistributions do nothing.
///
/// `kernels` are functions `(call, *arrays) -> array` by the names of ops, in place of NumPy's, or
/// `"reference"`.
pub(crate) fn on_device<'py>(
    program: &Program,
    py: Python<'py>,
    inputs: &Bound<'py, PyDict>,
    kernels: Option<&Bound<'py, PyAny>>,
) -> Answer<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    match With::of(program, kernels, py)? {
        With::Python(runner) => {
            let given = given(program, inputs, None)?;
            for (v, array) in whole(py, program, runner.bind(py), &given)? {
                all.set_item(&program.get(v).name, array)?;
            }
        }
        With::Reference(dtype) => {
            let given = given(program, inputs, Some(dtype))?;
            let made: BTreeMap<String, Vec<u8>> = if dtype == DType::F32 {
                let inputs = numbers::<f32>(program, &given)?;
                let made = py.detach(|| on_one_device(program, &inputs))?;
                made.iter().map(|(name, a)| (name.clone(), bytes(a))).collect()
            } else {
                let inputs = numbers::<f64>(program, &given)?;
                let made = py.detach(|| on_one_device(program, &inputs))?;
                made.iter().map(|(name, a)| (name.clone(), bytes(a))).collect()
            };
            for value in program.values() {
                if let Some(bytes) = made.get(&value.name) {
                    all.set_item(&value.name, arrays::of(py, dtype, value.shape(), bytes)?)?;
                }
            }
        }
    }
    Ok(all)
}

/// Runs the schedules of all ranks from global inputs; returns the values that they hold at the end.
///
/// Each rank is a thread with its own arena; calls are Python functions, exchanges are the library's. Without
/// `liveness` all values are returned, else those that are live at the end. `hashed` records hashes of the
/// values of each rank, for `Program.replicas`. The other options are those of `compile`, and `kernels` that
/// of `on_one_device`.
pub(crate) fn on_ranks(
    program: &Arc<Program>,
    py: Python<'_>,
    inputs: &Bound<'_, PyDict>,
    kernels: Option<&Bound<'_, PyAny>>,
    options: ScheduleOptions<'_>,
    hashed: bool,
) -> Answer<PyRanks> {
    let options = options.read()?;
    match With::of(program, kernels, py)? {
        With::Python(runner) => {
            let given = given(program, inputs, None)?;
            let job =
                |comm: &mut ThreadCommunicator| run_rank(program, &given, &runner, (&options, hashed), comm);
            let results =
                py.detach(|| -> Result<_, Stopped> { Ok(World::new(program.mesh().world_size())?.run(job)) });
            PyRanks::of_ranks(Arc::clone(program), results?)
        }
        With::Reference(_) if hashed => Err(refused(
            "usage",
            "`hashed` needs kernels that are functions; drop `hashed`, or `kernels=\"reference\"`",
        )),
        With::Reference(dtype) => {
            let given = given(program, inputs, Some(dtype))?;
            let held = if dtype == DType::F32 {
                referred::<f32>(py, program, &given, &options)?
            } else {
                referred::<f64>(py, program, &given, &options)?
            };
            Ok(PyRanks::of_reference(Arc::clone(program), held))
        }
    }
}

/// Like `on_ranks`, by the reference: the shards of each value, and the bytes that redistributions receive.
fn referred<T: Number + bytemuck::Pod>(
    py: Python<'_>,
    program: &Program,
    given: &BTreeMap<ValueId, Vec<u8>>,
    options: &CompileOptions,
) -> Answer<OfReference> {
    let inputs = numbers::<T>(program, given)?;
    let ranks = py.detach(|| on_schedules(program, &inputs, options))?;
    let mut all = BTreeMap::new();
    for value in program.values() {
        if let Some(shards) = ranks.shards(&value.name) {
            let shards = shards.iter().map(bytes).collect();
            all.insert(
                value.name.clone(),
                Held { sharding: value.ty.value.clone(), dtype: T::DTYPE, shards },
            );
        }
    }
    Ok((all, ranks.moves().to_vec()))
}
