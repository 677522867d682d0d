//! Values of expressions as Python objects, and back.
//!
//! ```text
//! integer, tuple     int, tuple            yes, no, unknown   True, False, None
//! layouts            the classes           tiler <4,_,2:3>    (4, None, Layout("2:3"))
//! text               the value it denotes  pattern (_,(2,_))  (None, (2, None))
//! ```

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use reshard_layout::algebra::{SlicePattern, Tiler};
use reshard_layout::expression::{Function, Value, evaluate};
use reshard_layout::{Answer as Known, Error, IntTuple, MAX_DEPTH, MAX_LEAVES};

use crate::arguments::{to_python, type_name};
use crate::composed_layout::{PyComposed, PySwizzle};
use crate::failure::{Answer, refused};
use crate::layout::PyLayout;
use crate::named_layout::{PyNamed, PyPairs, PyPoints};
use crate::sequences::items;
use crate::texts::{text, words};

/// Yes, no or unknown.
pub(crate) fn known(answer: Known) -> Option<bool> {
    match answer {
        Known::Yes => Some(true),
        Known::No => Some(false),
        Known::Unknown => None,
    }
}

fn tuple_of<'py, T>(
    py: Python<'py>,
    parts: &[T],
    part: impl Fn(Python<'py>, &T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let parts = parts.iter().map(|each| part(py, each)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, parts)?.into_any().unbind())
}

fn tiler(py: Python<'_>, value: &Tiler) -> PyResult<Py<PyAny>> {
    match value {
        Tiler::Layout(layout) => PyLayout(layout.clone()).into_py_any(py),
        Tiler::Modes(modes) => tuple_of(py, modes, tiler),
        Tiler::Any => Ok(py.None()),
    }
}

fn pattern(py: Python<'_>, value: &SlicePattern) -> PyResult<Py<PyAny>> {
    match value {
        SlicePattern::At(index) => index.into_py_any(py),
        SlicePattern::Modes(modes) => tuple_of(py, modes, pattern),
        SlicePattern::Any => Ok(py.None()),
    }
}

/// Converts a value to its Python object.
pub(crate) fn object(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Integer(value) => value.into_py_any(py),
        Value::Bool(holds) => holds.into_py_any(py),
        Value::Answer(answer) => known(answer).into_py_any(py),
        Value::Tuple(tuple) => Ok(to_python(py, &tuple)?.unbind()),
        Value::Layout(layout) => PyLayout(layout).into_py_any(py),
        Value::Named(named) => PyNamed(*named).into_py_any(py),
        Value::Pairs(pairs) => PyPairs(*pairs).into_py_any(py),
        Value::Points(points) => PyPoints(*points).into_py_any(py),
        Value::Composed(composed) => PyComposed(*composed).into_py_any(py),
        Value::Swizzle(swizzle) => PySwizzle(swizzle).into_py_any(py),
        Value::Tiler(value) => tiler(py, &value),
        Value::Pattern(value) => pattern(py, &value),
    }
}

/// The part of a nested tuple read so far: short tuples that contain each other many times have many leaves.
#[derive(Default)]
struct Read {
    depth: usize,
    objects: usize,
}

impl Read {
    /// Reads one more object; an error if a tuple is too deep or has too many elements.
    fn one<T>(&mut self, read: impl FnOnce(&mut Read) -> Answer<T>) -> Answer<T> {
        const MOST: usize = MAX_LEAVES * MAX_DEPTH;
        self.depth += 1;
        self.objects += 1;
        if self.depth > MAX_DEPTH + 1 {
            return Err(refused("nested", format!("a tuple nested more than {MAX_DEPTH} deep")));
        }
        if self.objects > MOST {
            return Err(refused("nested", format!("a tuple of more than {MOST} parts")));
        }
        let made = read(self);
        self.depth -= 1;
        made
    }
}

fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>()
}

/// Converts an object to a value.
///
/// It is a layout, an int, a text to evaluate, or a tuple of these, which is a tiler unless all are ints.
pub(crate) fn value(object: &Bound<'_, PyAny>) -> Answer<Value> {
    Read::default().one(|read| value_of(object, read))
}

fn value_of(object: &Bound<'_, PyAny>, read: &mut Read) -> Answer<Value> {
    if let Ok(layout) = object.cast::<PyLayout>() {
        return Ok(Value::Layout(layout.get().0.clone()));
    }
    if let Ok(value) = object.extract::<i64>() {
        return Ok(Value::Integer(value));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(evaluate(&words(text)?)?);
    }
    if is_sequence(object) {
        let parts = items(object)?
            .map(|part| {
                let part = part?;
                read.one(|read| value_of(&part, read))
            })
            .collect::<Answer<Vec<_>>>()?;
        let tuples: Option<Vec<IntTuple>> = parts.iter().map(Value::to_tuple).collect();
        return Ok(match tuples {
            Some(tuples) => IntTuple::tuple(&tuples)?.into(),
            None => Value::tiler(&parts)?,
        });
    }
    if object.is_none() {
        return Ok(Value::Tiler(Tiler::Any));
    }
    if let Ok(composed) = object.cast::<PyComposed>() {
        return Ok(composed.get().0.clone().into());
    }
    if let Ok(swizzle) = object.cast::<PySwizzle>() {
        return Ok(Value::Swizzle(swizzle.get().0));
    }
    if let Ok(named) = object.cast::<PyNamed>() {
        return Ok(Value::Named(Box::new(named.get().0.clone())));
    }
    if let Ok(pairs) = object.cast::<PyPairs>() {
        return Ok(Value::Pairs(Box::new(pairs.get().0.clone())));
    }
    if let Ok(points) = object.cast::<PyPoints>() {
        return Ok(Value::Points(Box::new(points.get().0.clone())));
    }
    let name = type_name(object);
    Err(PyTypeError::new_err(format!("expected a layout, an int, a tuple or an expression, found {name}"))
        .into())
}

/// Converts an object to a pattern: an int, None, a tuple of these, or its notation.
pub(crate) fn read_pattern(object: &Bound<'_, PyAny>) -> Answer<SlicePattern> {
    Read::default().one(|read| pattern_of(object, read))
}

fn pattern_of(object: &Bound<'_, PyAny>, read: &mut Read) -> Answer<SlicePattern> {
    if object.is_none() {
        return Ok(SlicePattern::Any);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(words(text)?.parse()?);
    }
    if let Ok(index) = object.extract::<i64>() {
        return Ok(SlicePattern::At(index));
    }
    if is_sequence(object) {
        let parts = items(object)?.map(|part| {
            let part = part?;
            read.one(|read| pattern_of(&part, read))
        });
        return Ok(SlicePattern::Modes(parts.collect::<Answer<_>>()?));
    }
    let name = type_name(object);
    Err(PyTypeError::new_err(format!("expected an int, None or a tuple of them, found {name}")).into())
}

/// The arguments of a function after those that are already values.
pub(crate) fn arguments(
    function: Function,
    mut values: Vec<Value>,
    objects: &[Bound<'_, PyAny>],
) -> Answer<Vec<Value>> {
    for object in objects {
        let is_pattern = function.pattern_argument() == Some(values.len());
        values.push(if is_pattern { Value::Pattern(read_pattern(object)?) } else { value(object)? });
    }
    Ok(values)
}

/// Calls a function with these arguments.
pub(crate) fn call(py: Python<'_>, function: Function, values: &[Value]) -> Answer<Py<PyAny>> {
    let made = py.detach(|| function.call(values)).map_err(|error| {
        if !matches!(error, Error::Parse(_)) {
            return error.into();
        }
        // The error location refers to a text that the caller did not write, so the message quotes that text.
        let text: Vec<String> = values.iter().map(Value::to_string).collect();
        refused(error.code(), format!("{error} of {function}({})", text.join(",")))
    })?;
    Ok(object(py, made)?)
}

/// The value of a layout of any kind, or of a swizzle, at a coordinate.
pub(crate) fn at(py: Python<'_>, value: &Value, coordinate: &Bound<'_, PyTuple>) -> Answer<Py<PyAny>> {
    let mut each =
        coordinate.iter().map(|part| crate::arguments::ints(&part, 0)).collect::<Answer<Vec<_>>>()?;
    let coordinate = match each.pop() {
        Some(single) if each.is_empty() => single,
        last => IntTuple::tuple(&each.into_iter().chain(last).collect::<Vec<_>>())?,
    };
    Ok(object(py, value.apply(&coordinate)?)?)
}

/// Evaluates an expression of the algebra: `evaluate("composition((6,2):(8,2), (4,3):(3,1))")`.
#[pyfunction]
#[pyo3(name = "evaluate")]
fn evaluated(py: Python<'_>, #[pyo3(from_py_with = text)] expression: &str) -> Answer<Py<PyAny>> {
    let made = py.detach(|| evaluate(expression))?;
    Ok(object(py, made)?)
}

/// A function of expressions by its name, of layouts, tuples and ints: `apply("ceil_div", (7, 8), 2)`.
#[pyfunction]
#[pyo3(signature = (name, /, *values))]
fn apply(
    py: Python<'_>,
    #[pyo3(from_py_with = text)] name: &str,
    values: &Bound<'_, PyTuple>,
) -> Answer<Py<PyAny>> {
    let function: Function = name.parse()?;
    let objects: Vec<_> = values.iter().collect();
    call(py, function, &arguments(function, Vec::new(), &objects)?)
}

/// The functions of expressions: for each name its parameters and a description.
#[pyfunction]
fn functions(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyDict>> {
    let all = pyo3::types::PyDict::new(py);
    for function in Function::ALL {
        all.set_item(function.name(), (function.parameters(), function.about()))?;
    }
    Ok(all)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(evaluated, module)?)?;
    module.add_function(wrap_pyfunction!(apply, module)?)?;
    module.add_function(wrap_pyfunction!(functions, module)?)
}
