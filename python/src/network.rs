//! What costs are by: a network by its name or notation, and how fast a rank computes.

use pyo3::prelude::*;
use pyo3::types::PyString;
use reshard_planner::Topology;
use reshard_program::Rates;

use crate::failure::Failure;
use crate::sequences::printed;

/// A network: `"uniform"`, `"h100"`, its notation, or what prints as that.
#[derive(Debug)]
pub(crate) struct NetworkArgument(pub(crate) Topology);

impl<'py> FromPyObject<'_, 'py> for NetworkArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<NetworkArgument> {
        let text = match object.cast::<PyString>() {
            Ok(text) => text.to_cow()?.into_owned(),
            Err(_) => printed(&object)?,
        };
        Ok(NetworkArgument(text.parse().map_err(Failure::from)?))
    }
}

/// How fast one rank computes: operations a microsecond on elements of at most 8 bits, of 16, of 32 and of more, and bytes that
/// memory reads and writes in one.
#[pyclass(frozen, eq, name = "Rates", module = "reshard")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PyRates(pub(crate) Rates);

#[pymethods]
impl PyRates {
    #[new]
    fn new(per_us: [f64; 4], memory_per_us: f64) -> PyRates {
        PyRates(Rates { per_us, memory_per_us })
    }

    /// One rate for all: 100 operations and one byte a picosecond.
    #[staticmethod]
    fn uniform() -> PyRates {
        PyRates(Rates::uniform())
    }

    /// An H100 SXM by its data sheet, dense.
    #[staticmethod]
    fn h100() -> PyRates {
        PyRates(Rates::h100())
    }

    /// Those of a network: of an H100 on networks of H100s, else uniform ones.
    #[staticmethod]
    fn of(topology: NetworkArgument) -> PyRates {
        PyRates(Rates::of(&topology.0))
    }

    fn __repr__(&self) -> String {
        format!("Rates({:?}, {:?})", self.0.per_us, self.0.memory_per_us)
    }

    /// Operations a microsecond on elements of at most 8 bits, of 16, of 32 and of more.
    #[getter]
    fn per_us(&self) -> [f64; 4] {
        self.0.per_us
    }

    /// Bytes a microsecond that memory reads and writes.
    #[getter]
    fn memory_per_us(&self) -> f64 {
        self.0.memory_per_us
    }

    /// The time that so many operations take which read and write so many bytes, in microseconds.
    fn time_us(&self, dtype: crate::dtype::DTypeArgument, operations: f64, bytes: u64) -> f64 {
        self.0.time_us(dtype.0, operations, bytes)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRates>()
}
