//! Layouts of integers.

use pyo3::prelude::*;
use pyo3::types::PyString;
use reshard_layout::Layout;

use crate::arguments::{Ints, to_python};
use crate::failure::{Answer, Failure};
use crate::value::Reduced;

/// A function from indices to integers, `shape:stride`, such as `Layout("(4,2):(1,4)")`.
#[pyclass(frozen, eq, hash, name = "Layout", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyLayout(pub(crate) Layout);

#[pymethods]
impl PyLayout {
    /// A layout from its notation, or from a shape and a stride nested alike.
    #[new]
    #[pyo3(signature = (shape, stride=None))]
    fn new(shape: &Bound<'_, PyAny>, stride: Option<Ints>) -> Answer<PyLayout> {
        match (stride, shape.cast::<PyString>()) {
            (None, Ok(text)) => Ok(PyLayout(text.to_cow()?.parse::<Layout>()?)),
            (Some(stride), _) => Ok(PyLayout(Layout::new(shape.extract::<Ints>()?.0, stride.0)?)),
            (None, Err(_)) => Ok(PyLayout(Layout::column_major_of(&shape.extract::<Ints>()?.0)?)),
        }
    }

    fn __repr__(&self) -> String {
        format!("Layout('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (String,)> {
        (py.get_type::<PyLayout>(), (self.0.to_string(),))
    }

    /// The value at an index, or at a coordinate nested like the shape.
    fn __call__(&self, coordinate: Ints) -> Answer<i64> {
        Ok(self.0.offset_at(&coordinate.0)?)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.0.size())?)
    }

    /// The extents, nested.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.shape())
    }

    /// The strides, nested like the shape.
    #[getter]
    fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.stride())
    }

    /// R(i) = self(other(i)).
    fn compose(&self, py: Python<'_>, other: &PyLayout) -> Answer<PyLayout> {
        py.detach(|| self.0.compose(&other.0)).map(PyLayout).map_err(Failure::from)
    }

    fn __matmul__(&self, py: Python<'_>, other: &PyLayout) -> Answer<PyLayout> {
        self.compose(py, other)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLayout>()
}
