//! Regions: per-device code over some axes of a graph's mesh.
//!
//! A region borrows its graph while the body runs, and what Python holds cannot borrow. So the region lives on a thread of its own, and
//! what the body asks is sent there:
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

/// What is asked of a region.
enum Asked {
    /// Something that it does, and answers by itself.
    Job(Box<dyn FnOnce(&mut ShardMap<'_>) + Send>),
    /// What the body gives back.
    Given(Vec<ShardMapValue>),
}

/// A value of a region.
#[pyclass(frozen, name = "Local", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyLocal(ShardMapValue);

#[pymethods]
impl PyLocal {
    fn __repr__(&self) -> &'static str {
        "<Local>"
    }
}

/// Code that runs on every coordinate of some axes: ops on what a coordinate has, and collectives over an axis.
#[pyclass(frozen, name = "LocalRegion", module = "reshard")]
pub(crate) struct PyLocalRegion(Mutex<Option<Sender<Asked>>>);

impl PyLocalRegion {
    /// What the region answers.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut ShardMap<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let over =
            || refused("program", "the body of this region has returned, and its values are of it alone");
        let (answer, answered) = channel();
        let job = Asked::Job(Box::new(move |region| {
            // Who asked waits for the answer.
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

/// The parts of a dim: blocks, or chunks from front and back, or of so many tiles, or so many indices each.
fn parts(dim: usize, zigzag: bool, tiles: Option<usize>, sizes: Option<&[usize]>) -> Answer<DimSlices> {
    match (zigzag, tiles, sizes) {
        (false, None, None) => Ok(dim.into()),
        (true, None, None) => Ok(DimSlices::zigzag(dim)),
        (false, Some(tiles), None) => Ok(DimSlices::strided(dim, tiles)),
        (false, None, Some(sizes)) => Ok(DimSlices::ragged(dim, sizes)),
        (true, _, Some(_)) | (true, Some(_), _) | (false, Some(_), Some(_)) => Err(refused(
            "usage",
            format!("the parts of dim {dim} are said in two ways: say one of zigzag, tiles and sizes"),
        )),
    }
}

#[pymethods]
impl PyLocalRegion {
    fn __repr__(&self) -> &'static str {
        "<LocalRegion>"
    }

    /// Calls an op on what each coordinate has; a value, or a tuple of them where it makes several.
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

    /// The shape of what each coordinate has of a value.
    fn shape<'py>(&self, py: Python<'py>, value: &PyLocal) -> Answer<Bound<'py, PyTuple>> {
        let value = value.0.clone();
        let shape = self.ask(move |region| Ok(region.shape(&value).to_vec()))?;
        Ok(PyTuple::new(py, shape)?)
    }

    /// What a value is along an axis of the region: `R`, `I`, `P` or `V`, which varies.
    fn kind(&self, value: &PyLocal, #[pyo3(from_py_with = text)] axis: String) -> Answer<String> {
        let value = value.0.clone();
        self.ask(move |region| Ok(region.local_type(&value, &axis)?.to_string()))
    }

    /// The sum over the coordinates of an axis on all of them, as `R`, or as `I` where all do the same with it.
    fn all_reduce(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = text)] to: String,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.all_reduce(&value, &axis, &to))
    }

    /// What the coordinates of an axis have, as the parts of a dim, on all of them: blocks, or chunks from front and back, or of so many
    /// tiles, or of these sizes, the first indices of what each has.
    #[pyo3(signature = (value, axis, dim, to, *, zigzag=false, tiles=None, sizes=None))]
    #[allow(clippy::too_many_arguments, reason = "the parts of the dim are said in one of three ways")]
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

    /// What the coordinates of an axis have, along a new dim, on all of them.
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

    /// The sum over the coordinates of an axis, of which each gets a part of a dim.
    #[pyo3(signature = (value, axis, dim, *, zigzag=false, tiles=None, sizes=None))]
    #[allow(clippy::too_many_arguments, reason = "the parts of the dim are said in one of three ways")]
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

    /// Each coordinate's parts of one dim for its parts of another.
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

    /// Each coordinate sends each other so many indices of a dim, the first that it has in the order of whom they are for: row `i` of the
    /// counts says what coordinate `i` has for each.
    ///
    /// What a coordinate gets, in the order of whom it is from, are the first indices of the result, which has room for so many, or for
    /// the most that one gets, and zeros behind.
    #[pyo3(signature = (value, axis, dim, counts, room=None))]
    fn all_to_all_by_counts(
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

    /// A value that is the same on all coordinates, or terms, as another of `R`, `I` and `P`.
    fn moved(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = text)] to: String,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.convert(&value, &axis, &to))
    }

    /// What the coordinate has that stands so many places before, around the axis.
    fn shift(
        &self,
        value: &PyLocal,
        #[pyo3(from_py_with = text)] axis: String,
        #[pyo3(from_py_with = number)] by: i64,
    ) -> Answer<PyLocal> {
        let value = value.0.clone();
        self.one(move |region| region.shift(&value, &axis, by))
    }

    /// The coordinate along an axis, as a number.
    fn coordinate(&self, #[pyo3(from_py_with = text)] axis: String) -> Answer<PyLocal> {
        self.one(move |region| region.coordinate(&axis))
    }
}

/// What the body makes of the values that it takes.
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
            "the body of a region gives its values back, and {} is none",
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
                let stopped = || Error::Graph { reason: "the body of a region failed".to_owned() };
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
        // Where the region does not begin, its thread says why.
        let own = begun.recv().ok().map(|taken| body_of(py, body, &region, taken));
        region.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Ok(values)) = &own {
            let _: Result<(), _> = ask.send(Asked::Given(values.clone()));
        }
        drop(ask);
        let made = thread.join().map_err(|_| refused("program", "the thread of a region is gone"));
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
