//! Sequences passed from Python, read element by element: their `len` is not trusted, and reading is bounded.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};
use reshard_layout::MAX_DEPTH;

use crate::arguments::type_name;
use crate::failure::{Answer, refused};
use crate::numbers::number;
use crate::texts::words;

/// The most elements of an argument, which is also the most ranks that are ever listed.
const MOST: usize = 1 << 20;

/// The most elements of a list returned to Python: 160 MB of numbers.
const MOST_LISTED: usize = 1 << 22;

/// Succeeds if a list may have `count` elements.
pub(crate) fn check_list(count: usize) -> Answer<()> {
    if count > MOST_LISTED {
        let message =
            format!("cannot list {count} elements, more than the limit of {MOST_LISTED}; request fewer");
        return Err(refused("too_many_elements", message));
    }
    Ok(())
}

/// Makes a list of `count` elements for Python, if they are few enough and memory for them can be allocated.
pub(crate) fn list_of<T, I: Iterator<Item = T>>(count: usize, items: impl FnOnce() -> I) -> Answer<Vec<T>> {
    check_list(count)?;
    let mut list = Vec::new();
    let no_memory = |_| refused("memory", "there is no memory for the list");
    list.try_reserve_exact(count).map_err(no_memory)?;
    for item in items() {
        // `count` may be too low: the iterator is bounded too.
        check_list(list.len() + 1)?;
        list.try_reserve(1).map_err(no_memory)?;
        list.push(item);
    }
    Ok(list)
}

/// Iterates over the elements of an object, with an error in place of one too many.
pub(crate) fn items<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>>> {
    let has_order = !(object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyDict>()
        || object.is_instance_of::<PySet>()
        || object.is_instance_of::<PyFrozenSet>());
    let expected = || PyTypeError::new_err(format!("expected a sequence, found {}", type_name(object)));
    if !has_order {
        return Err(expected());
    }
    let items = object
        .try_iter()
        .map_err(|error| if error.is_instance_of::<PyTypeError>(object.py()) { expected() } else { error })?;
    Ok(items.take(MOST + 1).enumerate().map(|(index, item)| {
        if index < MOST {
            item
        } else {
            Err(refused("too_many_items", format!("a sequence of more than {MOST} elements")).into())
        }
    }))
}

/// Prints an object that is not a container.
///
/// Containers print their elements, endlessly if they contain each other.
pub(crate) fn printed(object: &Bound<'_, PyAny>) -> PyResult<String> {
    if object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || object.is_instance_of::<PyDict>()
    {
        return Err(PyTypeError::new_err(format!("expected a text, found {}", type_name(object))));
    }
    Ok(words(&object.str()?)?.into_owned())
}

/// The notation of nested sequences of whole numbers.
pub(crate) fn nested(object: &Bound<'_, PyAny>) -> PyResult<String> {
    fn write(object: &Bound<'_, PyAny>, depth: usize, read: &mut usize, text: &mut String) -> PyResult<()> {
        *read += 1;
        if *read > 2 * MOST || depth > MAX_DEPTH {
            let limits = format!("{MOST} numbers and {MAX_DEPTH} levels");
            return Err(refused("too_many_items", format!("nested sequences have at most {limits}")).into());
        }
        if let Ok(number) = object.extract::<i64>() {
            text.push_str(&number.to_string());
            return Ok(());
        }
        text.push('[');
        for (index, item) in items(object)?.enumerate() {
            if index > 0 {
                text.push(',');
            }
            write(&item?, depth + 1, read, text)?;
        }
        text.push(']');
        Ok(())
    }
    if let Ok(given) = object.cast::<PyString>() {
        return Ok(words(given)?.into_owned());
    }
    let mut text = String::new();
    write(object, 0, &mut 0, &mut text)?;
    Ok(text)
}

/// An argument that is a sequence.
pub(crate) fn listed<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    items(object)?.map(|item| number(&item?)).collect()
}

/// An argument that is a sequence, or None.
pub(crate) fn listed_if_any<'py, T: FromPyObjectOwned<'py>>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<T>>> {
    if object.is_none() { Ok(None) } else { listed(object).map(Some) }
}

/// An argument that is a sequence of sequences.
pub(crate) fn listed_twice<'py, T: FromPyObjectOwned<'py>>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Vec<Vec<T>>> {
    items(object)?.map(|item| listed(&item?)).collect()
}

/// An argument that is a sequence of sequences, or None.
pub(crate) fn listed_twice_if_any<'py, T: FromPyObjectOwned<'py>>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<Vec<T>>>> {
    if object.is_none() { Ok(None) } else { listed_twice(object).map(Some) }
}
