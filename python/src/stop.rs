//! Ctrl-C: long computations check for signals from time to time, and stop.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use reshard_planner::internal;

/// Runs a function detached from the interpreter.
///
/// Raises the exception of a signal handler, as `KeyboardInterrupt`.
///
/// Signals are delivered to the main thread alone: in other threads nothing stops the function.
pub(crate) fn stoppable<T: Send>(py: Python<'_>, run: impl FnOnce() -> T + Send) -> PyResult<T> {
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let slot = Arc::clone(&raised);
    let made = py.detach(|| {
        #[allow(clippy::redundant_closure_for_method_calls, reason = "the method itself is of one lifetime")]
        let stop = move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(error) => {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                true
            }
        };
        internal::stoppable(stop, run)
    });
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => Ok(made),
    }
}
