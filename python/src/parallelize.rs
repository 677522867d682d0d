//! Parallelization: the open types of a training step, chosen under a memory limit.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reshard_planner::Planner;
use reshard_program::{ComputeRates, Graph, MemorySize, Parallelized, Parallelizer, Program, Statement};
use reshard_sharding::{Mesh, ShardingType};

use crate::arguments::type_name;
use crate::failure::{Answer, refused};
use crate::graph::PyGraph;
use crate::numbers::{number, number_if_any};
use crate::planner::PyPlanner;
use crate::program::PyProgram;
use crate::rates::PyRates;
use crate::stop::stoppable;
use crate::table::{PyTable, table_or_standard};
use crate::tensor_type::PyType;
use crate::texts::words;
use crate::topology::TopologyArgument;
use crate::value::not_pickled;

/// A training step whose types are all chosen: the program, its time and peak, and a bound on the time.
#[pyclass(frozen, name = "Parallelized", module = "reshard")]
#[derive(Debug)]
pub(crate) struct PyParallelized {
    program: Arc<Program>,
    time_us: f64,
    bound_us: f64,
    peak_bytes: u64,
    chosen: Vec<(String, ShardingType)>,
    memory: Option<u64>,
}

#[pymethods]
impl PyParallelized {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyParallelized>("pickle its program")
    }

    fn __repr__(&self) -> String {
        let PyParallelized { time_us, bound_us, peak_bytes, .. } = self;
        let limit = self.memory.map_or_else(String::new, |limit| format!(" of {limit}"));
        format!(
            "<Parallelized on {}: {time_us:.1} us a step, at least {bound_us:.1} us (gap {:.2} %), peak {peak_bytes} bytes{limit}>",
            self.program.mesh(),
            self.gap() * 100.0
        )
    }

    /// The program with all types, redistributions and recomputations.
    #[getter]
    fn program(&self) -> PyProgram {
        PyProgram(Arc::clone(&self.program))
    }

    /// The time of a step in microseconds, as in its report.
    #[getter]
    fn time_us(&self) -> f64 {
        self.time_us
    }

    /// The least time of any assignment of the model within the limit, in microseconds.
    #[getter]
    fn bound_us(&self) -> f64 {
        self.bound_us
    }

    /// The part of the time above the bound, from 0 to 1.
    #[getter]
    fn gap(&self) -> f64 {
        if self.time_us > 0.0 { 1.0 - self.bound_us / self.time_us } else { 0.0 }
    }

    /// The peak in bytes of the worst rank, as in its report.
    #[getter]
    fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// The types of the inputs that were open, by name, in the order of the program.
    #[getter]
    fn types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, is) in &self.chosen {
            all.set_item(name, PyType(is.clone()))?;
        }
        Ok(all)
    }

    /// The names of the values of forward that backward computes or gathers again.
    #[getter]
    fn recomputed(&self) -> Vec<String> {
        let after = self.program.statements().iter().skip(self.program.forward().len());
        let names = after.flat_map(Statement::outputs).map(|v| &self.program.get(*v).name);
        let copied = |name: &String| Some(name.trim_end_matches('\'').strip_suffix(".again")?.to_owned());
        names.filter_map(copied).collect()
    }
}

/// Reads a number of bytes, a text such as `80GB`, or None without a limit.
fn memory_if_any(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if object.is_none() {
        return Ok(None);
    }
    let Ok(text) = object.cast::<PyString>() else { return number(object).map(Some) };
    let size = words(text)?.parse::<MemorySize>();
    Ok(Some(size.map_err(|error| refused(error.code(), format!("invalid memory `{text}`: {error}")))?.bytes))
}

/// The graph of a text, or a graph.
fn graph_of(source: &Bound<'_, PyAny>, table: Option<&PyTable>) -> Answer<Graph> {
    if let Ok(graph) = source.cast::<PyGraph>() {
        return Ok(graph.get().lock().clone());
    }
    let Ok(text) = source.cast::<PyString>() else {
        let message = format!("expected the text of a program or a Graph, found {}", type_name(source));
        return Err(pyo3::exceptions::PyTypeError::new_err(message).into());
    };
    Ok(Graph::parse(table_or_standard(table), &words(text)?)?)
}

/// Chooses the open types of a training step, `w: f32[8,64] ?`, and the values that backward recomputes.
///
/// `memory` limits the peak of every rank: a number of bytes, or a text such as `"80GB"`. Times are those of a network
/// and of compute rates, which default to the network's; a `planner` has its own network.
///
/// With `devices`, or for a text that begins with `mesh devices=N`, the mesh of N devices is chosen too.
///
/// Fails for a program without exactly one `gradient`, and if no types were found with which it fits.
#[pyfunction]
#[pyo3(signature = (source, *, memory=None, devices=None, topology=None, planner=None, rates=None, table=None))]
#[allow(clippy::too_many_arguments, reason = "keywords of Python")]
fn parallelize(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = memory_if_any)] memory: Option<u64>,
    #[pyo3(from_py_with = number_if_any)] devices: Option<usize>,
    topology: Option<TopologyArgument>,
    planner: Option<&PyPlanner>,
    rates: Option<&PyRates>,
    table: Option<&PyTable>,
) -> Answer<PyParallelized> {
    let mut parallelizer = Parallelizer::new();
    if let Some(TopologyArgument(topology)) = topology {
        parallelizer = parallelizer
            .rates(ComputeRates::for_topology(&topology))
            .planner(Planner::new().topology(topology));
    }
    if let Some(planner) = planner {
        parallelizer = parallelizer.planner(planner.rust().clone());
    }
    if let Some(rates) = rates {
        parallelizer = parallelizer.rates(rates.0);
    }
    if let Some(memory) = memory {
        parallelizer = parallelizer.memory(memory);
    }
    let text = source.cast::<PyString>().ok().map(|text| words(text)).transpose()?;
    let devices = devices.or_else(|| Graph::open_devices(text.as_deref()?));
    let found = match (devices, text) {
        (Some(devices), Some(text)) => {
            let table = table_or_standard(table);
            let on = |mesh: &Mesh| Graph::parse_on(Arc::clone(&table), &text, mesh);
            stoppable(py, || parallelizer.parallelize_devices(devices, on))??
        }
        (Some(_), None) => {
            let reason = "a Graph has its mesh already; give the text of the program with `devices`";
            return Err(refused("program", reason.to_owned()));
        }
        (None, _) => {
            let graph = graph_of(source, table)?;
            stoppable(py, || parallelizer.parallelize(&graph))??
        }
    };
    let Parallelized { program, time_us, bound_us, peak_bytes, chosen, .. } = found;
    Ok(PyParallelized { program: Arc::new(program), time_us, bound_us, peak_bytes, chosen, memory })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyParallelized>()?;
    module.add_function(wrap_pyfunction!(parallelize, module)?)
}
