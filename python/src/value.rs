//! What all classes have that are values: a copy or a pickle is the class and the arguments that make it again.

use pyo3::prelude::*;
use pyo3::types::PyType;

/// What `__reduce__` answers.
pub(crate) type Reduced<'py, Arguments> = (Bound<'py, PyType>, Arguments);
