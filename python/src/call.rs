//! Calls of ops: a text with arguments, or a name and Python's keyword arguments.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use reshard_ops::rules::{Argument, OpCall};

use crate::arguments::type_name;
use crate::failure::{Answer, refused};
use crate::numbers::number;
use crate::sequences::items;
use crate::texts::{self, words};

/// An argument as the notation writes it.
fn text_of(key: &str, object: &Bound<'_, PyAny>) -> Answer<String> {
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(number::<i64>(object)?.to_string());
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(number::<f64>(object)?.to_string());
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(words(text)?.into_owned());
    }
    // NumPy numbers are neither int nor float: `item` converts them.
    if let Ok(dims) = object.getattr("ndim")
        && dims.extract::<usize>().is_ok_and(|dims| dims == 0)
    {
        return text_of(key, &object.call_method0("item")?);
    }
    let Ok(items) = items(object) else {
        let found = type_name(object);
        return Err(PyTypeError::new_err(format!(
            "the argument `{key}` must be a number, a bool, a str or a list of ints, not {found}"
        ))
        .into());
    };
    let numbers = items.map(|item| number::<i64>(&item?)).collect::<PyResult<Vec<_>>>()?;
    Ok(format!("[{}]", numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(",")))
}

/// The call of a text, with more arguments.
pub(crate) fn call(text: &str, arguments: Option<&Bound<'_, PyDict>>) -> Answer<OpCall> {
    let mut call: OpCall = text.parse()?;
    for (key, value) in arguments.into_iter().flat_map(PyDictMethods::iter) {
        if value.is_none() {
            continue;
        }
        let key: String = texts::text(&key)?;
        if matches!(call, OpCall::Rule(_)) {
            return Err(refused("rule", format!("`{call}` is a rule and takes no argument `{key}`")));
        }
        // Parsed by the notation, so that the printed call round-trips.
        let alone: OpCall = format!("it({key}={})", text_of(&key, &value)?).parse()?;
        if let Some(value) = alone.argument(&key) {
            call = call.with(&key, value.clone());
        }
    }
    Ok(call)
}

/// An argument as Python has it.
fn value_to_python<'py>(py: Python<'py>, value: &Argument) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Argument::Number(n) => n.into_bound_py_any(py),
        Argument::Flag(flag) => flag.into_bound_py_any(py),
        Argument::Numbers(list) => list.clone().into_bound_py_any(py),
        Argument::Word(word) => match word.parse::<f64>() {
            Ok(number) => number.into_bound_py_any(py),
            Err(_) => word.into_bound_py_any(py),
        },
    }
}

/// The explicit arguments of a call, by name.
pub(crate) fn arguments<'py>(py: Python<'py>, call: &OpCall) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    match call {
        OpCall::Named { arguments, .. } => {
            for (key, value) in arguments {
                all.set_item(key, value_to_python(py, value)?)?;
            }
        }
        OpCall::Rule(_) => {}
        OpCall::Each(each) => return arguments_of_each(py, each.call()),
    }
    Ok(all)
}

fn arguments_of_each<'py>(py: Python<'py>, call: &OpCall) -> PyResult<Bound<'py, PyDict>> {
    match call {
        OpCall::Named { .. } | OpCall::Rule(_) => arguments(py, call),
        // A call on slices is never one on slices again.
        OpCall::Each(_) => Ok(PyDict::new(py)),
    }
}
