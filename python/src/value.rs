//! What all classes have that are values: a copy or a pickle is the class and the arguments that make it again.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The return value of `__reduce__`.
pub(crate) type Reduced<'py, Arguments> = (Bound<'py, PyType>, Arguments);

/// The hash of a value, for classes whose equality is that of a text or of several parts.
pub(crate) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the error of `__reduce__` for parts of another object, with the object to pickle instead.
pub(crate) fn not_pickled<Class: pyo3::PyClass>(instead: &str) -> PyResult<()> {
    Err(PyTypeError::new_err(format!("a {} cannot be pickled; {instead}", <Class as pyo3::PyClass>::NAME)))
}

/// The methods of a class whose values are made of their notation: those written by hand, `str`, `repr` and pickles.
macro_rules! by_notation {
    ($class:ident { $($by_hand:tt)* }) => {
        #[pymethods]
        impl $class {
            $($by_hand)*

            fn __repr__(&self) -> String {
                format!("{}('{}')", <Self as pyo3::PyClass>::NAME, self.0)
            }

            fn __str__(&self) -> String {
                self.0.to_string()
            }

            fn __reduce__<'py>(&self, py: Python<'py>) -> $crate::value::Reduced<'py, (String,)> {
                (py.get_type::<$class>(), (self.0.to_string(),))
            }
        }
    };
}

pub(crate) use by_notation;
