//! Operands: the inputs of ops, by element type and sharding.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reshard_kernels::DType;
use reshard_ops::propagate::Operand;

use crate::arguments::type_name;
use crate::dtype::{DTypeArgument, PyDType};
use crate::failure::Answer;
use crate::sharding::PySharding;
use crate::value::Reduced;

/// The element type and the sharding of a tensor, such as `Operand("f32", Sharding("tp=4", (8, 6), "S(0)"))`.
#[pyclass(frozen, eq, hash, name = "Operand", module = "reshard")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PyOperand(Operand);

#[pymethods]
impl PyOperand {
    #[new]
    #[pyo3(signature = (dtype, sharding, nonnegative=false))]
    fn new(dtype: DTypeArgument, sharding: &PySharding, nonnegative: bool) -> PyOperand {
        let operand = Operand::new(dtype.0, sharding.0.clone());
        PyOperand(if nonnegative { operand.nonnegative() } else { operand })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let sharding = Bound::new(py, PySharding(self.0.sharding.clone()))?.repr()?;
        let more = if self.0.nonnegative { ", nonnegative=True" } else { "" };
        Ok(format!("Operand('{}', {sharding}{more})", self.0.dtype))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (PyDType, PySharding, bool)> {
        (py.get_type::<PyOperand>(), (self.dtype(), self.sharding(), self.0.nonnegative))
    }

    /// The element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype)
    }

    /// The sharding.
    #[getter]
    fn sharding(&self) -> PySharding {
        PySharding(self.0.sharding.clone())
    }

    /// `True` if no element can be negative.
    #[getter]
    fn nonnegative(&self) -> bool {
        self.0.nonnegative
    }
}

/// Operands: an `Operand` each, a sharding of f32, or a pair of an element type and a sharding.
pub(crate) fn operand(object: &Bound<'_, PyAny>) -> Answer<Operand> {
    if let Ok(operand) = object.cast::<PyOperand>() {
        return Ok(operand.get().0.clone());
    }
    if let Ok(sharding) = object.cast::<PySharding>() {
        return Ok(Operand::new(DType::F32, sharding.get().0.clone()));
    }
    let Ok((dtype, sharding)) = object.extract::<(DTypeArgument, Bound<'_, PySharding>)>() else {
        return Err(PyTypeError::new_err(format!(
            "expected an Operand, a Sharding (of f32), or a pair of an element type and a Sharding, found {}",
            type_name(object)
        ))
        .into());
    };
    Ok(Operand::new(dtype.0, sharding.get().0.clone()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOperand>()
}
