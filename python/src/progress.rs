//! Progress of a checkpoint job, reported to a Python function.

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use reshard_checkpoint::Observer;

use crate::arguments::type_name;
use crate::failure::Answer;

/// A Python callback with the bytes transferred so far and the total bytes.
///
/// An `Exception` of the callback does not stop the job. Any other exception, as a Ctrl-C, ends the job and
/// is raised by the call.
pub(crate) struct Progress {
    told: Option<Py<PyAny>>,
    all: u64,
    moved: u64,
    ended: Option<PyErr>,
}

impl Progress {
    /// Makes one for an optional callback, before the job begins.
    pub(crate) fn of(py: Python<'_>, told: Option<Py<PyAny>>) -> Answer<Progress> {
        if let Some(told) = told.as_ref().map(|told| told.bind(py)).filter(|told| !told.is_callable()) {
            let found = type_name(told);
            return Err(PyTypeError::new_err(format!(
                "`progress` must be a callable of the transferred and the total bytes, not {found}"
            ))
            .into());
        }
        Ok(Progress { told, all: 0, moved: 0, ended: None })
    }

    /// Converts the result of a job; raises the exception of the callback if it ended the job.
    pub(crate) fn answer<T>(self, made: Result<T, reshard_checkpoint::Error>) -> Answer<T> {
        match self.ended {
            Some(error) => Err(error.into()),
            None => Ok(made?),
        }
    }
}

impl Observer for Progress {
    fn on_start(&mut self, bytes: u64) {
        self.all = bytes;
    }

    fn on_progress(&mut self, bytes: u64) {
        self.moved += bytes;
        self.ended = Python::attach(|py| {
            let told = self.told.as_ref().map(|told| told.bind(py));
            let error = match told {
                Some(told) => told.call1((self.moved, self.all)).err()?,
                None => py.check_signals().err()?,
            };
            if !error.is_instance_of::<PyException>(py) {
                return Some(error);
            }
            error.write_unraisable(py, told);
            None
        });
    }

    fn is_cancelled(&self) -> bool {
        self.ended.is_some()
    }
}
