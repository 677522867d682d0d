//! Views: elements of a flat buffer, as `as_strided` takes them.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use reshard_collectives::calls::View;

use crate::failure::Answer;
use crate::layout::PyLayout;
use crate::numbers::number;
use crate::sequences::{list_of, listed_if_any};
use crate::texts::words;
use crate::value::{by_notation, hash_of};

/// Elements of a flat buffer: an offset and loops over strides, the outermost first, such as `View("3+(2:8,4:1)")`.
#[pyclass(frozen, eq, name = "View", module = "reshard")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyView(pub(crate) View);

by_notation! { PyView {
    /// A view from its notation, or from an offset and a list of (extent, stride), the outermost loop first.
    #[new]
    #[pyo3(signature = (offset, loops=None))]
    fn new(
        offset: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = listed_if_any)] loops: Option<Vec<(usize, i64)>>,
    ) -> Answer<PyView> {
        if let (Ok(text), None) = (offset.cast::<PyString>(), &loops) {
            return Ok(PyView(words(text)?.parse::<View>()?));
        }
        Ok(PyView(View::new(number(offset)?, &loops.unwrap_or_default())?))
    }

    /// The first element.
    #[getter]
    fn offset(&self) -> usize {
        self.0.offset()
    }

    /// The loops as (extent, stride), the outermost first; none for one element.
    #[getter]
    fn loops(&self) -> Vec<(i64, i64)> {
        self.0.loops().map(|mode| (mode.extent, mode.stride)).collect()
    }

    /// The extents of the loops: the size that `as_strided` takes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.loops().map(|mode| mode.extent).collect::<Vec<_>>())
    }

    /// The strides of the loops, in elements: the stride that `as_strided` takes.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.loops().map(|mode| mode.stride).collect::<Vec<_>>())
    }

    /// The loops as a layout from the number of an element to its distance from the first: leftmost innermost.
    #[getter]
    fn layout(&self) -> PyLayout {
        PyLayout(self.0.layout().clone())
    }

    /// One more than the greatest element: the required length of the buffer.
    #[getter]
    fn end(&self) -> usize {
        self.0.end()
    }

    /// The elements as (start, stop), if they are contiguous: no packing is needed then.
    #[getter]
    fn range(&self) -> Option<(usize, usize)> {
        self.0.range().map(|range| (range.start, range.end))
    }

    /// The elements in their order.
    fn elements(&self) -> Answer<Vec<usize>> {
        list_of(self.0.len(), || self.0.elements())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }
} }

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyView>()
}
