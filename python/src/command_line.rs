//! The command line, as `python -m reshard` runs it.

use std::io::{self, BufWriter, Write};

use pyo3::prelude::*;

use crate::sequences::listed;

/// Runs the command line with these arguments, the first of which is the program's name, and returns its exit status.
#[pyfunction]
fn main(py: Python<'_>, #[pyo3(from_py_with = listed)] arguments: Vec<String>) -> u8 {
    py.detach(|| {
        let mut out = BufWriter::new(io::stdout());
        let status = reshard_cli::main(arguments, &mut out, &mut io::stderr());
        match out.flush() {
            Ok(()) | Err(_) => status.code(),
        }
    })
}

/// Runs the command line with these arguments; returns its exit status, standard output and standard error.
#[pyfunction]
fn run(py: Python<'_>, #[pyo3(from_py_with = listed)] arguments: Vec<String>) -> (u8, String, String) {
    py.detach(|| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = reshard_cli::main(arguments, &mut out, &mut err);
        (
            status.code(),
            String::from_utf8_lossy(&out).into_owned(),
            String::from_utf8_lossy(&err).into_owned(),
        )
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let inner = PyModule::new(module.py(), "command_line")?;
    inner.add_function(wrap_pyfunction!(main, &inner)?)?;
    inner.add_function(wrap_pyfunction!(run, &inner)?)?;
    module.add_submodule(&inner)
}
