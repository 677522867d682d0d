//! Layouts that step along named axes, layouts of pairs of such steps, and the points that are their values.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard_layout::{AxisStride, NamedLayout, NamedPoint, Point};

use crate::arguments::to_python;
use crate::failure::Answer;
use crate::operations::operations;
use crate::texts::text;
use crate::value::{Reduced, hash_of};

/// A layout that steps along axes, such as `NamedLayout("(4,2):(1@tp,8)")`: its values are points.
#[pyclass(frozen, eq, hash, name = "NamedLayout", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyNamed(pub(crate) NamedLayout);

/// Two layouts of one domain, such as `PairsLayout("(3,4):((1,4),(3,1@tp))")`: its values are pairs.
#[pyclass(frozen, eq, hash, name = "PairsLayout", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyPairs(pub(crate) NamedLayout<(AxisStride, AxisStride)>);

macro_rules! with_axes {
    ($class:ident, $inner:ty { $($by_hand:tt)* }) => {
        operations! {
            $class {
                $($by_hand)*

                #[new]
                fn new(#[pyo3(from_py_with = text)] text: &str) -> Answer<$class> {
                    Ok($class(text.parse::<$inner>()?))
                }

                fn __len__(&self) -> PyResult<usize> {
                    Ok(usize::try_from(self.0.layout().size())?)
                }

                /// The names of the axes.
                #[getter]
                fn names(&self) -> Vec<String> {
                    self.0.names().map(str::to_owned).collect()
                }

                /// The extents, nested.
                #[getter]
                fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                    to_python(py, &self.0.layout().shape())
                }

                /// The strides as points, nested like the shape.
                #[getter]
                fn stride(&self) -> Answer<PyPoints> {
                    Ok(PyPoints(self.0.stride()?))
                }

                /// The number of modes.
                #[getter]
                fn rank(&self) -> usize {
                    self.0.layout().rank()
                }

                /// The nesting depth of modes.
                #[getter]
                fn depth(&self) -> usize {
                    self.0.layout().depth()
                }

                /// The number of indices.
                #[getter]
                fn size(&self) -> i64 {
                    self.0.layout().size()
                }
            }
            coalesce(; profile) = Coalesce "Returns the shortest layout of the same function, or that by profile."
            flatten() = Flatten "Returns all leaves as modes."
            group(begin, end) = Group "Groups modes [begin, end) into one mode."
            reversed() = Reversed "Reverses the order of the modes."
            mode(k) = Mode "Returns mode k."
            split(shape) = Split "Splits self into modes of these sizes, each coalesced."
            zip(other) = Zip "Returns the layout of pairs (self(i), other(i))."
            is_equivalent(other) = SameFunction "Returns `True` if self(i) = other(i) for all i, on the same domain."
            is_compatible(other) = Compatible "Returns True if the shape of other refines that of self."
            is_congruent(other) = Congruent "Returns True if both have the same nesting."
        }
    };
}

with_axes!(PyNamed, NamedLayout {});
with_axes!(PyPairs, NamedLayout<(AxisStride, AxisStride)> {});

/// A point on named axes, such as `NamedPoint("3+1@tp")`, or a nested tuple of points.
#[pyclass(frozen, eq, name = "NamedPoint", module = "reshard")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PyPoints(pub(crate) NamedPoint);

#[pymethods]
impl PyPoints {
    #[new]
    fn new(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyPoints> {
        Ok(PyPoints(text.parse()?))
    }

    fn __repr__(&self) -> String {
        format!("NamedPoint('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (String,)> {
        (py.get_type::<PyPoints>(), (self.0.to_string(),))
    }

    /// `True` if it is a single point that is not a tuple.
    #[getter]
    fn is_scalar(&self) -> bool {
        self.0.is_scalar()
    }

    /// The names of the axes.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.0.names().map(str::to_owned).collect()
    }

    /// For every point its offset in the local buffer, and its coordinate along each axis that it names.
    fn points(&self) -> Vec<(i64, BTreeMap<String, i64>)> {
        let names: Vec<&str> = self.0.names().collect();
        let along = |at: &AxisStride| Some(((*names.get(at.axis()? as usize)?).to_owned(), at.step()));
        let point = |point: &Point| (point.local, point.steps().iter().filter_map(along).collect());
        self.0.points().iter().map(point).collect()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNamed>()?;
    module.add_class::<PyPairs>()?;
    module.add_class::<PyPoints>()
}
