//! Regions: per-device code over some axes of a graph's mesh.
//!
//! A region borrows its graph while the body runs, and Python objects cannot borrow. So the region lives on a
//! separate thread, and the requests of the body are sent there:
//!
//! ```text
//! the body, Python    region.op("mm", x, w)  --a job-->  the region, on its thread  --the answer-->  a value of the region
//! ```

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use reshard_program::{DimSlices, Error, ShardMap, ShardMapValue};
use reshard_sharding::Counts;

use crate::arguments::type_name;
use crate::call::call;
use crate::failure::{Answer, Failure, refused};
use crate::graph::{PyGraph, slices, value};
use crate::numbers::{number, number_if_any};
use crate::sequences::{items, listed};
use crate::sequences::{listed_if_any, listed_twice};
use crate::texts::{text, words};

/// A request to the thread of a region.
enum Asked {
    /// A job that sends its answer itself.
    Job(Box<dyn FnOnce(&mut ShardMap<'_>) + Send>),
    /// The return values of the body, which end the region.
    Given(Vec<ShardMapValue>),
}

/// A value of a region.
#[pyclass(frozen, name = "ShardMapValue", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyLocal(ShardMapValue);

#[pymethods]
impl PyLocal {
    fn __repr__(&self) -> &'static str {
        "<Local>"
    }
}

/// Per-device code over some axes: ops on the values of each coordinate, and collectives over an axis.
#[pyclass(frozen, name = "ShardMap", module = "reshard")]
pub(crate) struct PyLocalRegion(Mutex<Option<Sender<Asked>>>);

impl PyLocalRegion {
    /// Runs a job on the region's thread, and returns its answer.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut ShardMap<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let over = || {
            refused("program", "the body of this shard map has returned; its values are valid only inside it")
        };
        let (answer, answered) = channel();
        let job = Asked::Job(Box::new(move |region| {
            // The receiver exists: the caller waits for the answer below.
            let _: Result<(), _> = answer.send(ask(region));
        }));
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(over)?;
        to.send(job).map_err(|_| over())?;
        Ok(answered.recv().map_err(|_| over())??)
    }

    fn one(
        &self,
        ask: impl FnOnce(&mut ShardMap<'_>) -> Result<ShardMapValue, Error> + Send + 'static,
    ) -> Answer<PyLocal> {
        self.ask(ask).map(PyLocal)
    }
}

/// Reads the slices of a dim: blocks, chunks from front and back, strided tiles, or the given sizes.
fn parts(dim: usize, zigzag: bool, tiles: Option<usize>, sizes: Option<&[usize]>) -> Answer<DimSlices> {
    match (zigzag, tiles, sizes) {
        (false, None, None) => Ok(dim.into()),
        (true, None, None) => Ok(DimSlices::zigzag(dim)),
        (false, Some(tiles), None) => Ok(DimSlices::strided(dim, tiles)),
        (false, None, Some(sizes)) => Ok(DimSlices::ragged(dim, sizes)),
        (true, _, Some(_)) | (true, Some(_), _) | (false, Some(_), Some(_)) => Err(refused(
            "usage",
            format!(
                "the slices of dim {dim} are given twice; give only one of `zigzag`, `tiles` and `sizes`"
            ),
        )),
    }
}

#[pymethods]
impl PyLocalRegion {
    fn __repr__(&self) -> &'static str {
        "<LocalRegion>"
    }

    /// Calls an op on the values of each coordinate.
    ///
    /// Returns a value, or a tuple if the op has several results.
    #[pyo3(signature = (op, *inputs, **arguments))]
    fn op<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] op: &str,
        inputs: Vec<PyRef<'py, PyLocal>>,
        arguments: Option<&Bound<'py, PyDict>>,
    ) -> Answer<Bound<'py, PyAny>> {
        let call = call(op, arguments)?.to_string();
        let inputs: Vec<ShardMapValue> = inputs.iter().map(|value| value.0.clone()).collect();
        let made = self.ask(move |region| region.ops(&call, &inputs.iter().collect::<Vec<_>>()))?;
        let made: Vec<Bound<'py, PyLocal>> =
            made.into_iter().map(|value| Bound::new(py, PyLocal(value))).collect::<PyResult<_>>()?;
        match <[Bound<'py, PyLocal>; 1]>::try_from(made) {
            Ok([one]) => Ok(one.into_any()),
            Err(several) => Ok(PyTuple::new(py, several)?.into_any()),
        }
    }

    /// The shape of a value on each coordinate.
    fn shape<'py>(&self, py: Python<'py>, value: &PyLocal) -> Answer<Bound<'py, PyTuple>> {
        let value = value.0.clone();
        let shape = self.ask(move |region| Ok(region.shape(&value).to_vec()))?;
        Ok(PyTuple::new(py, shape)?)
    }

    /// The type of a value along an axis of the region: `R`, `I`, `P` or `V`, which varies.
    fn local_type(&self, value: &PyLocal, #[pyo3(from_py_with = text)] axis: String) -> Answer<String> {
        let value = value.0.clone();
        self.ask(move |region| Ok(region.local_type(&value, &axis)?.to_string()))
    }

    /// The sum over the coordinates of an axis, on all of them: as `R`, or as `I` where all continue equally.
    fn all_reduce(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = text)] to: String,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.all_reduce(&value, &axis, &to))
    }

    /// Gathers the values of all coordinates of an axis, as slices of a dim, on all of them.
    ///
    /// The slices are blocks, chunks from front and back, strided in `tiles` tiles, or of the given `sizes`:
    /// then the first indices of each value are taken.
    #[pyo3(signature = (value, axis, dim, to, *, zigzag=false, tiles=None, sizes=None))]
    #[allow(clippy::too_many_arguments, reason = "the slices of the dim have three forms")]
    fn all_gather(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = text)] to: String,
        zigzag: bool,
        #[pyo3(from_py_with = number_if_any)] tiles: Option<usize>,
        #[pyo3(from_py_with = listed_if_any)] sizes: Option<Vec<usize>>,
    ) -> Answer<PyLocal> {
        let (value, parts) = (value.0.clone(), parts(dim, zigzag, tiles, sizes.as_deref())?);
        self.one(move |region| region.all_gather(&value, &axis, parts, &to))
    }

    /// Gathers the values of all coordinates of an axis, along a new dim, on all of them.
    fn all_gather_stack(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = text)] to: String,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.all_gather_stack(&value, &axis, dim, &to))
    }

    /// The sum over the coordinates of an axis, scattered: each coordinate gets a slice of a dim.
    #[pyo3(signature = (value, axis, dim, *, zigzag=false, tiles=None, sizes=None))]
    #[allow(clippy::too_many_arguments, reason = "the slices of the dim have three forms")]
    fn reduce_scatter(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] dim: usize,
        zigzag: bool,
        #[pyo3(from_py_with = number_if_any)] tiles: Option<usize>,
        #[pyo3(from_py_with = listed_if_any)] sizes: Option<Vec<usize>>,
    ) -> Answer<PyLocal> {
        let (value, parts) = (value.0.clone(), parts(dim, zigzag, tiles, sizes.as_deref())?);
        self.one(move |region| region.reduce_scatter(&value, &axis, parts))
    }

    /// Sends slices of one dim to all coordinates, and receives slices of another.
    fn all_to_all(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] split: usize,
        #[pyo3(from_py_with = number)] concat: usize,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.all_to_all(&value, &axis, split, concat))
    }

    /// Exchanges given numbers of indices of a dim between all coordinates.
    ///
    /// Row `i` of `counts` is for sender `i`.
    ///
    /// The value of a coordinate begins with the indices that it sends, in the order of their receivers. The
    /// result begins with the indices received, in the order of their senders, followed by zeros. Its extent
    /// is `room`, or else the most that any coordinate receives.
    #[pyo3(signature = (value, axis, dim, counts, room=None))]
    fn all_to_all_v(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = listed_twice)] counts: Vec<Vec<usize>>,
        #[pyo3(from_py_with = number_if_any)] room: Option<usize>,
    ) -> Answer<PyLocal> {
        let (value, counts) = (value.0.clone(), Counts::new(&counts)?);
        self.one(move |region| region.all_to_all_v(&value, &axis, dim, &counts, room))
    }

    /// Converts a value that is equal on all coordinates, or partial, to another of `R`, `I` and `P`.
    fn convert(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = text)] to: String,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.convert(&value, &axis, &to))
    }

    /// The value of the coordinate that is `by` positions before, around the axis.
    fn shift(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] by: i64,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.shift(&value, &axis, by))
    }

    /// The index of the coordinate along an axis, as a scalar.
    fn coordinate(&self, #[pyo3(from_py_with = text)] axis: String) -> Answer<PyLocal> {
        self.one(move |region| region.coordinate(&axis))
    }
}

/// Calls the body on its operands.
fn body_of(
    py: Python<'_>,
    body: &Bound<'_, PyAny>,
    region: &Bound<'_, PyLocalRegion>,
    taken: Vec<ShardMapValue>,
) -> Answer<Vec<ShardMapValue>> {
    let mut arguments = vec![region.clone().into_any()];
    for value in taken {
        arguments.push(Bound::new(py, PyLocal(value))?.into_any());
    }
    let given = body.call1(PyTuple::new(py, arguments)?)?;
    let local = |object: &Bound<'_, PyAny>| match object.cast::<PyLocal>() {
        Ok(local) => Ok(local.get().0.clone()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "the body of a shard map must return its values, not {}",
            type_name(object)
        ))),
    };
    let all = match given.cast::<PyLocal>() {
        Ok(_) => vec![local(&given)?],
        Err(_) => items(&given)?.map(|one| local(&one?)).collect::<PyResult<Vec<_>>>()?,
    };
    Ok(all)
}

/// Adds per-device code to a graph.
pub(crate) fn local(
    py: Python<'_>,
    graph: &PyGraph,
    axes: &Bound<'_, PyAny>,
    takes: &[(String, String)],
    claims: &[String],
    body: &Bound<'_, PyAny>,
) -> Answer<Vec<String>> {
    let axes: Vec<String> = match axes.cast::<PyString>() {
        Ok(text) => words(text)?.split(',').map(|axis| axis.trim().to_owned()).collect(),
        Err(_) => listed(axes)?,
    };
    let mut changed = graph.lock().clone();
    let values = takes.iter().map(|(name, _)| value(&changed, name)).collect::<Answer<Vec<_>>>()?;
    let taken: Vec<(_, &str)> = values.into_iter().zip(takes).map(|(v, (_, is))| (v, is.as_str())).collect();
    let (ask, asked) = channel::<Asked>();
    let (begin, begun) = channel::<Vec<ShardMapValue>>();
    let region = Bound::new(py, PyLocalRegion(Mutex::new(Some(ask.clone()))))?;
    let made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (asked, begin): (Receiver<Asked>, Sender<Vec<ShardMapValue>>) = (asked, begin);
            changed.shard_map(&slices(&axes), &taken, &slices(claims), move |region, values| {
                let stopped = || Error::Graph { reason: "the body of a shard map failed".to_owned() };
                begin.send(values.to_vec()).map_err(|_| stopped())?;
                for asked in asked {
                    match asked {
                        Asked::Job(job) => job(region),
                        Asked::Given(values) => return Ok(values),
                    }
                }
                Err(stopped())
            })
        });
        // If the region fails to begin, joining its thread below returns the error.
        let own = begun.recv().ok().map(|taken| body_of(py, body, &region, taken));
        region.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Ok(values)) = &own {
            let _: Result<(), _> = ask.send(Asked::Given(values.clone()));
        }
        drop(ask);
        let made = thread.join().map_err(|_| refused("program", "the thread of a shard map has ended"));
        match own {
            Some(Err(failure)) => Err(failure),
            Some(Ok(_)) | None => made.and_then(|made| made.map_err(Failure::from)),
        }
    })?;
    let names = made.iter().map(|v| changed.name(*v).to_owned()).collect();
    *graph.lock() = changed;
    Ok(names)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLocal>()?;
    module.add_class::<PyLocalRegion>()
}
