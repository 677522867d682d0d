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

                /// How many modes it has.
                #[getter]
                fn rank(&self) -> usize {
                    self.0.layout().rank()
                }

                /// How deep modes nest.
                #[getter]
                fn depth(&self) -> usize {
                    self.0.layout().depth()
                }

                /// How many indices it has.
                #[getter]
                fn size(&self) -> i64 {
                    self.0.layout().size()
                }
            }
            coalesce(; profile) = Coalesce "The shortest layout of the same function, or that by profile."
            flatten() = Flatten "All leaves as modes."
            group(begin, end) = Group "Modes [begin, end) as one mode."
            reversed() = Reversed "The modes from right to left."
            mode(k) = Mode "Mode k."
            split(shape) = Split "self cut into modes of these sizes, each coalesced."
            zip(other) = Zip "The layout of pairs (self(i), other(i))."
            same_function(other) = SameFunction "Whether self(i) = other(i) for all i, on the same domain."
            is_compatible(other) = Compatible "Whether the shape of other refines that of self."
            is_congruent(other) = Congruent "Whether both are nested alike."
        }
    };
}

with_axes!(PyNamed, NamedLayout {});
with_axes!(PyPairs, NamedLayout<(AxisStride, AxisStride)> {});

/// A point on named axes, such as `Points("3+1@tp")`, or a nested tuple of points.
#[pyclass(frozen, eq, name = "Points", module = "reshard")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PyPoints(pub(crate) NamedPoint);

#[pymethods]
impl PyPoints {
    #[new]
    fn new(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyPoints> {
        Ok(PyPoints(text.parse()?))
    }

    fn __repr__(&self) -> String {
        format!("Points('{}')", self.0)
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

    /// Whether it is one point that is no tuple.
    #[getter]
    fn is_scalar(&self) -> bool {
        self.0.is_scalar()
    }

    /// The names of the axes.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.0.names().map(str::to_owned).collect()
    }

    /// Of every point, in order, where it is: its offset in the local buffer, and its coordinate along each axis that it names.
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
