//! Texts and paths passed from Python: one with half of a surrogate pair, which UTF-8 cannot encode, is
//! rejected.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::numbers::in_range;
use crate::sequences::listed;

/// A text, a path, or a dict of texts, of whatever type the argument has.
pub(crate) fn text<'a, 'py, T: FromPyObject<'a, 'py>>(object: &'a Bound<'py, PyAny>) -> PyResult<T> {
    object.extract().map_err(|error: T::Error| in_range(object, error.into()))
}

/// The characters of a text.
pub(crate) fn words<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    text.to_cow().map_err(|error| in_range(text, error))
}

/// Names that are passed as separate arguments.
pub(crate) struct Names(pub(crate) Vec<String>);

impl<'py> FromPyObject<'_, 'py> for Names {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Names> {
        listed(&object).map(Names)
    }
}
