//! Element types, by our names and by those of frameworks: the one table between the two.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use reshard_kernels::DType;

use crate::failure::{Answer, Failure, refused};
use crate::sequences::printed;
use crate::texts::words;
use crate::value::by_notation;

/// The type of a tensor's elements, such as `DType("bf16")`.
#[pyclass(frozen, eq, hash, name = "DType", module = "reshard")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType(pub(crate) DType);

by_notation! { PyDType {
    #[new]
    fn new(name: DTypeArgument) -> PyDType {
        PyDType(name.0)
    }

    /// All element types, smallest elements first.
    #[staticmethod]
    fn all(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, DType::ALL.map(PyDType))
    }

    /// The name, in lower case.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bits of one element.
    #[getter]
    fn bits(&self) -> usize {
        self.0.bits()
    }

    /// Bytes of one element; an error for f4 and f6, whose elements share bytes.
    #[getter]
    fn element_bytes(&self) -> Answer<usize> {
        Ok(self.0.element_bytes()?)
    }

    /// `True` if the elements are integers.
    #[getter]
    fn is_integral(&self) -> bool {
        self.0.is_integral()
    }
} }

/// An element type: itself, its name, or a dtype of NumPy, ml_dtypes, torch or jax.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DTypeArgument(pub(crate) DType);

impl DTypeArgument {
    /// The default type.
    pub(crate) const F32: DTypeArgument = DTypeArgument(DType::F32);
}

/// The element type of this name, ours or that of a framework.
pub(crate) fn by_name(name: &str) -> Option<DType> {
    // Scalar types print with modules of any name before them.
    name.rsplit('.').next()?.parse().ok()
}

impl<'py> FromPyObject<'_, 'py> for DTypeArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<DTypeArgument> {
        if let Ok(dtype) = object.cast::<PyDType>() {
            return Ok(DTypeArgument(dtype.get().0));
        }
        if let Ok(text) = object.cast::<PyString>() {
            let text = words(&text)?;
            return match by_name(&text) {
                Some(dtype) => Ok(DTypeArgument(dtype)),
                None => Ok(DTypeArgument(text.parse().map_err(Failure::from)?)),
            };
        }
        // numpy.dtype has a `name`, scalar types and ml_dtypes' types have a `__name__`, torch.dtype prints as torch.float32.
        let name = match object.getattr("name").or_else(|_| object.getattr("__name__")) {
            Ok(name) => printed(&name)?,
            Err(_) => printed(&object)?,
        };
        by_name(&name).map(DTypeArgument).ok_or_else(|| {
            let known = DType::ALL.map(DType::name).join(", ");
            refused("dtype", format!("unknown dtype `{name}`; expected one of: {known}")).into()
        })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDType>()
}
