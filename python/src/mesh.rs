//! Meshes: ranks with named axes.

use pyo3::prelude::*;
use reshard_sharding::Mesh;

use crate::arguments::MeshArgument;
use crate::failure::{Answer, Failure};
use crate::value::Reduced;

/// Ranks on named axes, such as `Mesh("dp=2,tp=4")` or `Mesh({"dp": 2, "tp": 4})`; the last axis is the fastest.
#[pyclass(frozen, eq, hash, name = "Mesh", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyMesh(pub(crate) Mesh);

#[pymethods]
impl PyMesh {
    #[new]
    fn new(axes: MeshArgument) -> PyMesh {
        PyMesh(axes.0)
    }

    fn __repr__(&self) -> String {
        format!("Mesh('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (String,)> {
        (py.get_type::<PyMesh>(), (self.0.to_string(),))
    }

    /// How many ranks it has.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// The place of a rank on every axis.
    fn coordinate(&self, rank: usize) -> Answer<Vec<usize>> {
        let place = self.0.coordinate(rank).ok_or_else(|| {
            Failure::from(reshard_sharding::Error::NoSuchRank { rank, mesh: self.0.to_string() })
        })?;
        Ok(place.to_vec())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMesh>()
}
