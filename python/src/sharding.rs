//! Shardings: who holds which element of a tensor.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard_sharding::Sharding;

use crate::arguments::{MeshArgument, PlacementsArgument};
use crate::failure::Answer;
use crate::mesh::PyMesh;
use crate::value::Reduced;

/// Which elements of a tensor every rank of a mesh holds, such as `Sharding("dp=2,tp=4", (64, 32), "S(0),R")`.
#[pyclass(frozen, eq, hash, name = "Sharding", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PySharding(pub(crate) Sharding);

#[pymethods]
impl PySharding {
    #[new]
    fn new(mesh: MeshArgument, shape: Vec<usize>, placements: PlacementsArgument) -> Answer<PySharding> {
        Ok(PySharding(Sharding::parse(&mesh.0, &shape, &placements.0)?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = PyTuple::new(py, self.0.shape())?.repr()?;
        Ok(format!("Sharding('{}', {shape}, '{}')", self.0.mesh(), self.0))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Reduced<'py, (String, Bound<'py, PyTuple>, String)>> {
        let shape = PyTuple::new(py, self.0.shape())?;
        Ok((py.get_type::<PySharding>(), (self.0.mesh().to_string(), shape, self.0.to_string())))
    }

    /// The mesh.
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.0.mesh().clone())
    }

    /// The shape of the whole tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The shape of what a rank holds.
    fn local_shape<'py>(&self, py: Python<'py>, rank: usize) -> Answer<Bound<'py, PyTuple>> {
        let shape = self.0.local_shape(rank)?;
        Ok(PyTuple::new(py, shape.iter().copied())?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySharding>()
}
