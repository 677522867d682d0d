//! Numbers passed from Python: one out of the range of its type is rejected, and the error shows the number.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;

use crate::failure::{ReshardError, refused};

/// A number, of whatever type the argument has.
pub(crate) fn number<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>) -> PyResult<T> {
    object.extract().map_err(|error: T::Error| in_range(object, error.into()))
}

/// A number, or None.
pub(crate) fn number_if_any<'py, T: FromPyObjectOwned<'py>>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { number(object).map(Some) }
}

/// The error of a number out of range, of a text without UTF-8, or of a sequence of another length.
///
/// Any other exception is returned unchanged.
pub(crate) fn in_range(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        let given = object.repr().map_or_else(|_| "it".to_owned(), |text| text.to_string());
        return refused("text", format!("{given} has half of a surrogate pair, which is not valid UTF-8"))
            .into();
    }
    if error.is_instance_of::<PyValueError>(py) && !error.is_instance_of::<ReshardError>(py) {
        return refused("argument", error.value(py).to_string()).into();
    }
    if !error.is_instance_of::<PyOverflowError>(py) {
        return error;
    }
    // Python prints no integers of more than some thousand digits.
    let given =
        object.repr().map_or_else(|_| "a number with too many digits".to_owned(), |text| text.to_string());
    refused("number", format!("{given} is out of range: counts are 0 to 2^63 - 1, and integers have 64 bits"))
        .into()
}
