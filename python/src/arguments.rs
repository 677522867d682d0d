//! Arguments that Python gives in several forms: one type for each, that holds the Rust value.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};
use reshard_layout::{InlineVec, IntTuple, MAX_LEAVES};
use reshard_sharding::{Mesh, Placement, Placements};

use crate::failure::{Failure, refused};
use crate::mesh::PyMesh;
use crate::numbers::number;
use crate::placement::PyPlacement;
use crate::sequences::{items, listed, printed};
use crate::texts::{text, words};

/// The name of an object's type, for messages.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().qualname().map_or_else(|_| "an object".to_string(), |name| name.to_string())
}

/// The limit of nested tuples: no notation is deeper.
const DEEPEST: usize = 64;

/// A nested tuple of integers: an int, a tuple or a list, or its notation.
#[derive(Debug)]
pub(crate) struct Ints(pub(crate) IntTuple);

/// The nested tuple of integers that an object is.
pub(crate) fn ints(object: &Bound<'_, PyAny>, depth: usize) -> Result<IntTuple, Failure> {
    if depth > DEEPEST {
        return Err(refused("nested", format!("a tuple nested more than {DEEPEST} deep")));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(words(text)?.parse::<IntTuple>()?);
    }
    if let Ok(value) = object.extract::<i64>() {
        return Ok(IntTuple::scalar(value));
    }
    let Ok(items) = items(object) else {
        return Err(PyTypeError::new_err(format!(
            "expected an int of 64 bits or a tuple of them, found {}",
            type_name(object)
        ))
        .into());
    };
    let parts = items
        .take(MAX_LEAVES + 1)
        .map(|item| ints(&item?, depth + 1))
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(IntTuple::tuple(&parts)?)
}

impl<'py> FromPyObject<'_, 'py> for Ints {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Ints> {
        Ok(Ints(ints(&object, 0)?))
    }
}

/// A nested tuple as Python writes it.
pub(crate) fn to_python<'py>(py: Python<'py>, tuple: &IntTuple) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = tuple.as_scalar() {
        return Ok(value.into_pyobject(py)?.into_any());
    }
    let parts = tuple.modes().map(|mode| to_python(py, &mode)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, parts)?.into_any())
}

/// A mesh: itself, its notation, or a dict from names to sizes.
#[derive(Debug)]
pub(crate) struct MeshArgument(pub(crate) Mesh);

impl<'py> FromPyObject<'_, 'py> for MeshArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<MeshArgument> {
        if let Ok(mesh) = object.cast::<PyMesh>() {
            return Ok(MeshArgument(mesh.get().0.clone()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(MeshArgument(words(&text)?.parse().map_err(Failure::from)?));
        }
        if !object.is_instance_of::<PyDict>() {
            return Err(PyTypeError::new_err(format!(
                "expected a Mesh, its notation such as 'dp=2,tp=4', or a dict such as {{'dp': 2, 'tp': 4}}, found {}",
                type_name(&object)
            )));
        }
        Ok(MeshArgument(Mesh::new(object.extract::<AxesArgument>()?.0).map_err(Failure::from)?))
    }
}

/// Numbers of axes by name: a dict, or pairs.
pub(crate) struct AxesArgument(pub(crate) Vec<(String, usize)>);

impl AxesArgument {
    /// The same, with names that are borrowed.
    pub(crate) fn as_text(&self) -> Vec<(&str, usize)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number)).collect()
    }
}

impl<'py> FromPyObject<'_, 'py> for AxesArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<AxesArgument> {
        match object.cast::<PyDict>() {
            Ok(axes) => axes
                .items()
                .iter()
                .map(|axis| text::<(String, Bound<'_, PyAny>)>(&axis))
                .map(|axis| axis.and_then(|(name, size)| Ok((name, number(&size)?))))
                .collect(),
            Err(_) => listed(&object),
        }
        .map(AxesArgument)
    }
}

/// A shape or a coordinate: a sequence of ints, or a single int.
pub(crate) struct ShapeArgument(pub(crate) Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for ShapeArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<ShapeArgument> {
        if object.is_instance_of::<PyInt>() {
            return Ok(ShapeArgument(vec![number(&object)?]));
        }
        match object.extract::<usize>() {
            Ok(single) => Ok(ShapeArgument(vec![single])),
            Err(_) => Ok(ShapeArgument(listed(&object)?)),
        }
    }
}

/// A placement: itself, its notation, or another object that prints as one, such as PyTorch's.
pub(crate) struct PlacementArgument(pub(crate) Placement);

impl<'py> FromPyObject<'_, 'py> for PlacementArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<PlacementArgument> {
        if let Ok(placement) = object.cast::<PyPlacement>() {
            return Ok(PlacementArgument(placement.get().0.clone()));
        }
        Ok(PlacementArgument(printed(&object)?.parse().map_err(Failure::from)?))
    }
}

/// Placements: a text in any notation, or a sequence with one for each axis.
#[derive(Debug)]
pub(crate) struct PlacementsArgument(pub(crate) String);

impl<'py> FromPyObject<'_, 'py> for PlacementsArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<PlacementsArgument> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(PlacementsArgument(words(&text)?.into_owned()));
        }
        if object.get_type().name()? == "PartitionSpec" {
            return Ok(PlacementsArgument(words(&object.str()?)?.into_owned()));
        }
        let each = items(&object)?.map(|item| Ok(item?.extract::<PlacementArgument>()?.0));
        let each = each.collect::<PyResult<InlineVec<Placement, 4>>>()?;
        Ok(PlacementsArgument(Placements(each).to_string()))
    }
}
