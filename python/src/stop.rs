//! Ctrl-C: what may take long looks from time to time whether a signal came, and stops.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use reshard_planner::internal;

/// Runs something detached from the interpreter; raises what a signal's handler raised meanwhile, as `KeyboardInterrupt`.
///
/// Signals come to the main thread alone: elsewhere nothing stops it.
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
