//! Library errors as Python exceptions: a one-line message, and a kind for machines.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyTypeInfo, create_exception};

create_exception!(reshard, ReshardError, PyValueError, "A rejected request; `kind` is the error code.");
create_exception!(
    reshard,
    NotRepresentable,
    ReshardError,
    "A function that no layout represents, with the proof."
);
create_exception!(
    reshard,
    NeedsRedistribution,
    ReshardError,
    "A view that needs communication: `sharding` is the sharding to redistribute to first, `elements` the number of elements that the worst rank lacks."
);
create_exception!(
    reshard,
    PlanMismatch,
    ReshardError,
    "Values that do not match, such as shards of another plan."
);
create_exception!(
    reshard,
    EngineError,
    PyRuntimeError,
    "A failure while a plan was executed: `rank`, `step` and `group` are its location, or None if unknown."
);

/// An exception to be raised in Python.
#[derive(Debug)]
pub(crate) struct Failure(PyErr);

/// The result of a method.
pub(crate) type Answer<T> = Result<T, Failure>;

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        failure.0
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure(error)
    }
}

/// The most bytes of a message: a longer one quotes an argument that is not readable text.
const MOST_BYTES: usize = 2000;

/// Shortens a message by its middle if it is longer than a person reads.
fn shortened(message: String) -> String {
    if message.len() <= MOST_BYTES {
        return message;
    }
    let (begin, end) = (
        message.floor_char_boundary(MOST_BYTES / 2),
        message.ceil_char_boundary(message.len() - MOST_BYTES / 2),
    );
    format!("{} .. {}", &message[..begin], &message[end..])
}

/// Makes an exception of this class with a message and attributes.
fn raised<E: PyTypeInfo>(
    message: String,
    attributes: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>,
) -> Failure {
    Python::attach(|py| {
        let error = PyErr::new::<E, _>(shortened(message));
        match attributes(error.value(py).as_any()) {
            Ok(()) => Failure(error),
            Err(other) => Failure(other),
        }
    })
}

/// A `ReshardError` of this kind.
pub(crate) fn refused(kind: &str, message: impl Into<String>) -> Failure {
    let message = message.into();
    match kind {
        "not_representable" => raised::<NotRepresentable>(message, |error| error.setattr("kind", kind)),
        "mismatch" => raised::<PlanMismatch>(message, |error| error.setattr("kind", kind)),
        _ => raised::<ReshardError>(message, |error| error.setattr("kind", kind)),
    }
}

/// Makes a `PlanMismatch` of this kind: arrays that are not as required.
pub(crate) fn mismatched(kind: &str, message: impl Into<String>) -> Failure {
    raised::<PlanMismatch>(message.into(), |error| error.setattr("kind", kind))
}

/// Errors of arguments become a `ReshardError`, errors between ranks an `EngineError`.
impl From<reshard_collectives::Error> for Failure {
    fn from(error: reshard_collectives::Error) -> Failure {
        use reshard_collectives::Error as E;
        let kind = error.code();
        let message = error.to_string();
        if let E::Sharding(error) = error {
            return error.into();
        }
        if let E::Planner(error) = error {
            return error.into();
        }
        if let E::Kernel(error) = error {
            return error.into();
        }
        if let E::Layout(error) = error {
            return error.into();
        }
        if let E::PlanMismatch { .. } = error {
            return refused(kind, message);
        }
        if ["buffer", "dtype", "rank", "parse"].contains(&kind) {
            return mismatched(kind, message);
        }
        raised::<EngineError>(message, |raised| {
            raised.setattr("kind", kind)?;
            raised.setattr("rank", error.failed_rank())?;
            raised.setattr("step", error.step())?;
            raised.setattr("group", error.place().map(|place| place.group.clone()))
        })
    }
}

impl From<reshard_layout::Error> for Failure {
    fn from(error: reshard_layout::Error) -> Failure {
        refused(error.code(), error.to_string())
    }
}

impl From<reshard_sharding::Error> for Failure {
    fn from(error: reshard_sharding::Error) -> Failure {
        if let reshard_sharding::Error::NeedsRedistribution { first, elements, .. } = &error {
            return raised::<NeedsRedistribution>(error.to_string(), |raised| {
                raised.setattr("kind", error.code())?;
                raised.setattr("sharding", first)?;
                raised.setattr("elements", *elements)
            });
        }
        refused(error.code(), error.to_string())
    }
}

macro_rules! by_kind {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                refused(error.code(), error.to_string())
            }
        })*
    };
}

by_kind!(
    reshard_planner::Error,
    reshard_calibrate::Error,
    reshard_ops::Error,
    reshard_program::Error,
    reshard_reference::Error,
    reshard_kernels::Error,
    reshard_checkpoint::Error,
);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ReshardError", py.get_type::<ReshardError>())?;
    module.add("NotRepresentable", py.get_type::<NotRepresentable>())?;
    module.add("NeedsRedistribution", py.get_type::<NeedsRedistribution>())?;
    module.add("PlanMismatch", py.get_type::<PlanMismatch>())?;
    module.add("EngineError", py.get_type::<EngineError>())?;
    // Exceptions raised by Python code have a kind, too.
    py.get_type::<ReshardError>().setattr("kind", "refused")?;
    py.get_type::<NotRepresentable>().setattr("kind", "not_representable")?;
    py.get_type::<PlanMismatch>().setattr("kind", "mismatch")?;
    let failed = py.get_type::<EngineError>();
    failed.setattr("kind", "failed")?;
    ["rank", "step", "group"].iter().try_for_each(|part| failed.setattr(*part, py.None()))
}
