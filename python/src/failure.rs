//! What the library refuses, as Python exceptions: one sentence, and the kind that machines read.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyTypeInfo, create_exception};

create_exception!(
    reshard,
    ReshardError,
    PyValueError,
    "What the library refuses; `kind` is the word that machines read."
);
create_exception!(reshard, NotRepresentable, ReshardError, "A function that no layout is, with the proof.");
create_exception!(
    reshard,
    NeedsRedistribute,
    ReshardError,
    "A view that is not free: `sharding` is the notation of one from which it is, `elements` what the worst rank lacks."
);
create_exception!(
    reshard,
    Mismatch,
    ReshardError,
    "Values that do not belong together, such as shards of another plan."
);
create_exception!(
    reshard,
    EngineError,
    PyRuntimeError,
    "What failed while a plan was carried out: `rank`, `step` and `group` say where, and are None where that is not known."
);

/// An exception on its way to Python.
#[derive(Debug)]
pub(crate) struct Failure(PyErr);

/// What a method of a class answers.
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

/// The most bytes of a sentence: a longer one quotes an argument that is no text for people.
const MOST_BYTES: usize = 2000;

/// A sentence without its middle, where it is longer than people read.
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

/// An exception of this class with a sentence and attributes.
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
        "mismatch" => raised::<Mismatch>(message, |error| error.setattr("kind", kind)),
        _ => raised::<ReshardError>(message, |error| error.setattr("kind", kind)),
    }
}

/// A `Mismatch` of this kind: arrays that are not what is asked for.
pub(crate) fn mismatched(kind: &str, message: impl Into<String>) -> Failure {
    raised::<Mismatch>(message.into(), |error| error.setattr("kind", kind))
}

/// What is wrong with arguments is a refusal, what goes wrong between ranks is an `EngineError`.
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
            return raised::<NeedsRedistribute>(error.to_string(), |raised| {
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
    module.add("NeedsRedistribute", py.get_type::<NeedsRedistribute>())?;
    module.add("Mismatch", py.get_type::<Mismatch>())?;
    module.add("EngineError", py.get_type::<EngineError>())?;
    // What Python code raises has a kind, too.
    py.get_type::<ReshardError>().setattr("kind", "refused")?;
    py.get_type::<NotRepresentable>().setattr("kind", "not_representable")?;
    py.get_type::<Mismatch>().setattr("kind", "mismatch")?;
    let failed = py.get_type::<EngineError>();
    failed.setattr("kind", "failed")?;
    ["rank", "step", "group"].iter().try_for_each(|part| failed.setattr(*part, py.None()))
}
