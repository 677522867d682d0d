//! Compute rates of a rank, which give the time of operations as a topology gives that of transfers.

use pyo3::prelude::*;
use reshard_program::ComputeRates;

use crate::dtype::DTypeArgument;
use crate::numbers::number;
use crate::topology::TopologyArgument;
use crate::value::Reduced;

/// The compute rates of one rank, per microsecond.
///
/// They are operations on elements of at most 8 bits, of 16, of 32 and of more, and bytes that memory reads
/// and writes.
#[pyclass(frozen, eq, name = "ComputeRates", module = "reshard")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PyRates(pub(crate) ComputeRates);

#[pymethods]
impl PyRates {
    #[new]
    fn new(
        #[pyo3(from_py_with = number)] ops_per_us: [f64; 4],
        #[pyo3(from_py_with = number)] memory_per_us: f64,
    ) -> PyRates {
        PyRates(ComputeRates { ops_per_us, memory_per_us })
    }

    /// One rate for all: 100 operations and one byte a picosecond.
    #[staticmethod]
    fn uniform() -> PyRates {
        PyRates(ComputeRates::uniform())
    }

    /// An H100 SXM by its data sheet, dense.
    #[staticmethod]
    fn h100() -> PyRates {
        PyRates(ComputeRates::h100())
    }

    /// Those of a network: of an H100 on networks of H100s, else uniform ones.
    #[staticmethod]
    fn for_topology(topology: TopologyArgument) -> PyRates {
        PyRates(ComputeRates::for_topology(&topology.0))
    }

    fn __repr__(&self) -> String {
        format!("ComputeRates({:?}, {:?})", self.0.ops_per_us, self.0.memory_per_us)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, ([f64; 4], f64)> {
        (py.get_type::<PyRates>(), (self.0.ops_per_us, self.0.memory_per_us))
    }

    /// Operations a microsecond on elements of at most 8 bits, of 16, of 32 and of more.
    #[getter]
    fn ops_per_us(&self) -> [f64; 4] {
        self.0.ops_per_us
    }

    /// Bytes a microsecond that memory reads and writes.
    #[getter]
    fn memory_per_us(&self) -> f64 {
        self.0.memory_per_us
    }

    /// The time of `operations` operations that read and write `bytes` bytes, in microseconds.
    fn time_us(
        &self,
        dtype: DTypeArgument,
        #[pyo3(from_py_with = number)] operations: f64,
        #[pyo3(from_py_with = number)] bytes: u64,
    ) -> f64 {
        self.0.time_us(dtype.0, operations, bytes)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRates>()
}
