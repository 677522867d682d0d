//! Networks: the cost of communication steps.

use pyo3::prelude::*;
use pyo3::types::PyString;
use reshard_planner::{Level, Topology};

use crate::arguments::type_name;
use crate::failure::{Answer, Failure};
use crate::numbers::number;
use crate::sequences::listed;
use crate::texts::{text, words};
use crate::value::{by_notation, hash_of};

/// The cost of transfers between ranks.
///
/// Examples are `Topology("h100")` and `Topology("launch=2;message=0.1;level=8:3:400;level=*:10:50")`.
#[pyclass(frozen, eq, name = "Topology", module = "reshard")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyTopology(pub(crate) Topology);

by_notation! { PyTopology {
    #[new]
    fn new(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyTopology> {
        Ok(PyTopology(text.parse()?))
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }

    /// A network of a launch and a message time in us, and of levels from within: (ranks or None, latency in us, GB/s).
    #[staticmethod]
    fn of(#[pyo3(from_py_with = number)] launch_us: f64, #[pyo3(from_py_with = number)] message_us: f64, #[pyo3(from_py_with = listed)] levels: Vec<(Option<usize>, f64, f64)>) -> Answer<PyTopology> {
        let level = |(ranks, latency_us, gbytes_per_s)| Level { ranks, latency_us, gbytes_per_s };
        let levels: Vec<Level> = levels.into_iter().map(level).collect();
        Ok(PyTopology(Topology::new(launch_us, message_us, &levels)?))
    }

    /// A network of one level, on which all ranks are equivalent.
    #[staticmethod]
    fn uniform() -> PyTopology {
        PyTopology(Topology::uniform())
    }

    /// Nodes of eight H100.
    #[staticmethod]
    fn h100() -> PyTopology {
        PyTopology(Topology::h100())
    }

    /// The time to start a step, in microseconds.
    #[getter]
    fn launch_us(&self) -> f64 {
        self.0.launch_us()
    }

    /// The time of a message in addition to its bytes, in microseconds.
    #[getter]
    fn message_us(&self) -> f64 {
        self.0.message_us()
    }

    /// The levels from within: (ranks of a domain or None, latency in us, GB/s).
    #[getter]
    fn levels(&self) -> Vec<(Option<usize>, f64, f64)> {
        self.0.levels().iter().map(|level| (level.ranks, level.latency_us, level.gbytes_per_s)).collect()
    }

    /// The level that connects two ranks.
    fn level_of(&self, #[pyo3(from_py_with = number)] a: usize, #[pyo3(from_py_with = number)] b: usize) -> usize {
        self.0.level_of(a, b)
    }
}}

/// A network: itself or its notation.
pub(crate) struct TopologyArgument(pub(crate) Topology);

impl<'py> FromPyObject<'_, 'py> for TopologyArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<TopologyArgument> {
        if let Ok(topology) = object.cast::<PyTopology>() {
            return Ok(TopologyArgument(topology.get().0.clone()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(TopologyArgument(words(&text)?.parse().map_err(Failure::from)?));
        }
        let name = type_name(&object);
        let message = format!("expected a Topology or a notation such as 'h100', found {name}");
        Err(pyo3::exceptions::PyTypeError::new_err(message))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTopology>()
}
