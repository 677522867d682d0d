//! Sharding types: the sharding of a tensor and that of its gradient.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard_sharding::ShardingType;

use crate::arguments::{MeshArgument, ShapeArgument};
use crate::failure::Answer;
use crate::mesh::sub_axes;
use crate::sharding::{PySharding, mesh_of};
use crate::texts::{Names, text};
use crate::value::Reduced;

/// The sharding of a value and of its gradient, such as `ShardingType("dp=2,tp=4", (64, 32), "R|S(0),I")`.
#[pyclass(frozen, eq, hash, name = "ShardingType", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyType(pub(crate) ShardingType);

#[pymethods]
impl PyType {
    #[new]
    fn new(
        mesh: Option<MeshArgument>,
        shape: ShapeArgument,
        #[pyo3(from_py_with = text)] text: &str,
    ) -> Answer<PyType> {
        let mesh = mesh_of(mesh, text)?;
        Ok(PyType(ShardingType::parse(&mesh, &shape.0, text)?))
    }

    /// The type of these two shardings; without a gradient the value has none.
    #[staticmethod]
    #[pyo3(signature = (value, gradient=None))]
    fn of(value: &PySharding, gradient: Option<&PySharding>) -> PyType {
        PyType(ShardingType::new(value.0.clone(), gradient.map(|gradient| gradient.0.clone())))
    }

    /// The type with the cotangent sharding as gradient, which an op uses without a redistribution.
    #[staticmethod]
    fn from_value(value: &PySharding) -> Answer<PyType> {
        Ok(PyType(ShardingType::from_value(value.0.clone())?))
    }

    /// The type with the cotangent sharding as gradient, but along these axes, where ranks do the same work.
    #[staticmethod]
    #[pyo3(signature = (value, *axes))]
    fn invariant_along(value: &PySharding, axes: Names) -> Answer<PyType> {
        let along = sub_axes(value.0.mesh(), &axes.0)?;
        Ok(PyType(ShardingType::invariant_along(value.0.clone(), &along)?))
    }

    /// The sharding of the value.
    #[getter]
    fn value(&self) -> PySharding {
        PySharding(self.0.value.clone())
    }

    /// The sharding of the gradient, or None.
    #[getter]
    fn gradient(&self) -> Option<PySharding> {
        self.0.gradient.clone().map(PySharding)
    }

    /// The type of the gradient, or None without one.
    fn gradient_type(&self) -> Option<PyType> {
        self.0.gradient_type().map(PyType)
    }

    /// The notation by tensor.
    fn to_dims_notation(&self) -> Answer<String> {
        Ok(self.0.to_dims_notation()?)
    }

    /// JAX's notation.
    fn to_partition_spec(&self) -> Answer<String> {
        Ok(self.0.to_partition_spec()?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = PyTuple::new(py, self.0.value.shape())?.repr()?;
        Ok(format!("ShardingType('{}', {shape}, '{}')", self.0.value.mesh(), self.0))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Reduced<'py, (String, Bound<'py, PyTuple>, String)>> {
        let shape = PyTuple::new(py, self.0.value.shape())?;
        Ok((py.get_type::<PyType>(), (self.0.value.mesh().to_string(), shape, self.0.to_string())))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyType>()
}
