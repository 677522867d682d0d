//! How far a job on checkpoints is, told to a function of Python.

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use reshard_checkpoint::Observer;

use crate::arguments::type_name;
use crate::failure::Answer;

/// Who is told how many bytes of how many are where they should be: a function of Python.
///
/// Who only watches cannot stop it by an `Exception`. What is none, as a Ctrl-C, ends the job and comes out of the call.
pub(crate) struct Progress {
    told: Option<Py<PyAny>>,
    all: u64,
    moved: u64,
    ended: Option<PyErr>,
}

impl Progress {
    /// Of somebody who is told, before anything begins.
    pub(crate) fn of(py: Python<'_>, told: Option<Py<PyAny>>) -> Answer<Progress> {
        if let Some(told) = told.as_ref().map(|told| told.bind(py)).filter(|told| !told.is_callable()) {
            let found = type_name(told);
            return Err(PyTypeError::new_err(format!(
                "progress is called with the bytes that were moved and all of them, and {found} cannot be called"
            ))
            .into());
        }
        Ok(Progress { told, all: 0, moved: 0, ended: None })
    }

    /// What a call answers that told of its progress.
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
