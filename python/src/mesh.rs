//! Meshes: ranks with named axes, and recipes of parallel training.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use reshard_draw::{Limits, mesh as drawn_mesh, notebook};
use reshard_layout::InlineVec;
use reshard_sharding::recipes::{Parallelism, Recipe, Role};
use reshard_sharding::{AxisName, Mesh, SubAxis};

use crate::arguments::{AxesArgument, MeshArgument, ShapeArgument};
use crate::failure::{Answer, Failure};
use crate::group::{PyGroupPattern, PyProcessGroup, PyProcessGroups, check_listed, rank_of};
use crate::json;
use crate::layout::PyLayout;
use crate::numbers::number;
use crate::sequences::{listed, nested};
use crate::texts::{Names, text, words};
use crate::value::{by_notation, hash_of};

/// Ranks on named axes, such as `Mesh("dp=2,tp=4")` or `Mesh({"dp": 2, "tp": 4})`; the last axis is the fastest.
#[pyclass(frozen, eq, hash, name = "Mesh", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyMesh(pub(crate) Mesh);

/// The sub-axes of names such as `dp` or `tp:(1)2`.
pub(crate) fn sub_axes(mesh: &Mesh, names: &[String]) -> Answer<InlineVec<SubAxis, 4>> {
    Ok(mesh.sub_axes(&names.join(","))?)
}

fn as_text(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

by_notation! { PyMesh {
    #[new]
    fn new(axes: MeshArgument) -> PyMesh {
        PyMesh(axes.0)
    }

    /// A mesh whose ranks are these, in the order of its coordinates, last axis fastest.
    #[staticmethod]
    fn from_ranks(axes: AxesArgument, #[pyo3(from_py_with = listed)] ranks: Vec<usize>) -> Answer<PyMesh> {
        Ok(PyMesh(Mesh::from_ranks(axes.0, &ranks)?))
    }

    /// A mesh of a nested list of ranks, an axis for each level: `from_nested(["x", "y"], [[0, 1], [2, 3]])`.
    #[staticmethod]
    fn from_nested(#[pyo3(from_py_with = listed)] names: Vec<String>, ranks: &Bound<'_, PyAny>) -> Answer<PyMesh> {
        Ok(PyMesh(Mesh::from_nested(&as_text(&names), &nested(ranks)?)?))
    }

    /// A mesh of axes with layouts from coordinates to rank offsets, from a first rank on.
    #[staticmethod]
    #[pyo3(signature = (axes, offset=0))]
    fn with_layouts(#[pyo3(from_py_with = listed)] axes: Vec<(String, Py<PyLayout>)>, #[pyo3(from_py_with = number)] offset: usize) -> Answer<PyMesh> {
        let axes = axes
            .iter()
            .map(|(name, layout)| Ok((AxisName::new(name)?, layout.get().0.clone())))
            .collect::<Answer<Vec<_>>>()?;
        Ok(PyMesh(Mesh::with_layouts(axes, offset)?))
    }

    /// The mesh of the axes of several meshes that start at the same rank.
    #[staticmethod]
    fn concatenate(#[pyo3(from_py_with = listed)] meshes: Vec<MeshArgument>) -> Answer<PyMesh> {
        let meshes: Vec<Mesh> = meshes.into_iter().map(|mesh| mesh.0).collect();
        Ok(PyMesh(Mesh::concatenate(&meshes)?))
    }

    /// The size of every axis by its name, in order.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let axes = PyDict::new(py);
        for axis in self.0.axes() {
            axes.set_item(axis.name().as_str(), axis.size())?;
        }
        Ok(axes)
    }

    /// The names of the axes.
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.axes().iter().map(|axis| axis.name().as_str()))
    }

    /// The sizes of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.axes().iter().map(reshard_sharding::Axis::size))
    }

    /// The layout of every axis, from coordinates to rank offsets.
    #[getter]
    fn layouts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.axes().iter().map(|axis| PyLayout(axis.layout().clone())))
    }

    /// The index of an axis among the axes.
    fn axis(&self, #[pyo3(from_py_with = text)] name: &str) -> Answer<usize> {
        Ok(self.0.axis(name)?)
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    fn __len__(&self) -> usize {
        self.0.size()
    }

    /// One more than its greatest rank.
    #[getter]
    fn world_size(&self) -> usize {
        self.0.world_size()
    }

    /// The rank at coordinate 0 of all axes.
    #[getter]
    fn offset(&self) -> usize {
        self.0.offset()
    }

    /// The lowest rank.
    #[getter]
    fn min_rank(&self) -> usize {
        self.0.min_rank()
    }

    /// The ranks in the order of coordinates if they do not form a layout, else None.
    #[getter]
    fn rank_table(&self) -> Option<Vec<usize>> {
        self.0.rank_table().map(<[usize]>::to_vec)
    }

    /// The ranks in the order of coordinates, last axis fastest.
    #[getter]
    fn ranks(&self) -> Answer<Vec<usize>> {
        check_listed(self.0.size())?;
        Ok(self.0.ranks().collect())
    }

    fn __contains__(&self, rank: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(rank_of(rank)?.is_some_and(|rank| self.0.contains(rank)))
    }

    /// The coordinate of a rank along every axis.
    fn coordinate<'py>(&self, py: Python<'py>, #[pyo3(from_py_with = number)] rank: usize) -> Answer<Bound<'py, PyTuple>> {
        let place = self.0.coordinate(rank).ok_or_else(|| no_rank(&self.0, rank))?;
        Ok(PyTuple::new(py, place)?)
    }

    /// The rank at a coordinate, or None outside the mesh.
    fn rank_at(&self, coordinate: ShapeArgument) -> Option<usize> {
        self.0.rank_at(&coordinate.0)
    }

    /// The coordinate of the rank at this index of `ranks`.
    fn coordinate_at<'py>(&self, py: Python<'py>, #[pyo3(from_py_with = number)] index: usize) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.coordinate_at(index).map(|place| PyTuple::new(py, place)).transpose()
    }

    /// The index of a rank in `ranks`, or None.
    fn position(&self, #[pyo3(from_py_with = number)] rank: usize) -> Option<usize> {
        self.0.position(rank)
    }

    /// The pattern of a group of these axes, such as `dp` or the part `tp:(1)2` of one.
    #[pyo3(signature = (*names))]
    fn group(&self, names: Names) -> Answer<PyGroupPattern> {
        Ok(PyGroupPattern(self.0.group(&sub_axes(&self.0, &names.0)?)?))
    }

    /// All groups of these axes.
    #[pyo3(signature = (*names))]
    fn groups(&self, names: Names) -> Answer<PyProcessGroups> {
        Ok(PyProcessGroups(self.0.groups(&sub_axes(&self.0, &names.0)?)?))
    }

    /// The group of these axes that holds a rank.
    #[pyo3(signature = (rank, *names))]
    fn members(&self, #[pyo3(from_py_with = number)] rank: usize, names: Names) -> Answer<PyProcessGroup> {
        Ok(PyProcessGroup(self.0.members(&sub_axes(&self.0, &names.0)?, rank)?))
    }

    /// The group of all ranks.
    fn group_of_all(&self) -> Answer<PyGroupPattern> {
        Ok(PyGroupPattern(self.0.group_of_all()?))
    }

    /// XLA's replica groups V3 of these axes.
    #[pyo3(signature = (*names))]
    fn replica_groups_v3(&self, names: Names) -> Answer<String> {
        Ok(self.0.replica_groups_v3(&sub_axes(&self.0, &names.0)?)?.to_string())
    }

    /// Shardy's text of the mesh.
    fn shardy(&self) -> Answer<String> {
        Ok(self.0.to_shardy()?)
    }

    /// The sub-mesh along these axes, in the order given, through coordinate 0 of the others.
    #[pyo3(signature = (*names))]
    fn slice(&self, names: Names) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.slice(&as_text(&names.0))?))
    }

    /// The sub-mesh at fixed coordinates of some axes: `mesh.at({"pp": 1})`.
    fn at(&self, fixed: AxesArgument) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.at(&fixed.as_text())?))
    }

    /// The sub-mesh along these axes that holds a rank.
    #[pyo3(signature = (rank, *names))]
    fn slice_of(&self, #[pyo3(from_py_with = number)] rank: usize, names: Names) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.slice_of(rank, &as_text(&names.0))?))
    }

    /// The mesh with its axes in another order; ranks keep their coordinates.
    #[pyo3(signature = (*names))]
    fn reorder(&self, names: Names) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.reorder(&as_text(&names.0))?))
    }

    /// The mesh with an axis renamed.
    #[pyo3(signature = (from_, to))]
    fn rename(&self, #[pyo3(from_py_with = text)] from_: &str, #[pyo3(from_py_with = text)] to: &str) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.rename(from_, to)?))
    }

    /// The mesh with these axes fused into one, last fastest, at the position of the outermost of them.
    fn flatten(&self, #[pyo3(from_py_with = listed)] names: Vec<String>, #[pyo3(from_py_with = text)] into: &str) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.flatten(&as_text(&names), into)?))
    }

    /// Position in `ranks` to rank offset, where that is a layout.
    fn flat_layout(&self) -> Answer<PyLayout> {
        Ok(PyLayout(self.0.flat_layout()?))
    }

    /// The mesh with one axis as several, last fastest: `mesh.split("dp", {"replicate": 2, "shard": 4})`.
    fn split(&self, #[pyo3(from_py_with = text)] name: &str, into: AxesArgument) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.split(name, &into.as_text())?))
    }

    /// The same list of ranks with other axes, last fastest.
    fn reinterpret(&self, axes: AxesArgument) -> Answer<PyMesh> {
        Ok(PyMesh(self.0.reinterpret(&axes.as_text())?))
    }

    /// `True` if both have the same ranks, in any order and under any axis names.
    fn same_ranks(&self, other: MeshArgument) -> bool {
        self.0.same_ranks(&other.0)
    }

    /// The mesh as JSON text.
    fn to_json(&self) -> Answer<String> {
        json::write(&self.0)
    }

    /// Reads the text of `to_json`.
    #[staticmethod]
    fn from_json(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyMesh> {
        Ok(PyMesh(json::read(text)?))
    }

    /// The picture as text: nested boxes, one level an axis, around tables of ranks.
    fn draw(&self, py: Python<'_>) -> String {
        py.detach(|| drawn_mesh(&self.0, Limits::USUAL).text(false))
    }

    /// The picture as SVG.
    fn svg(&self, py: Python<'_>) -> String {
        py.detach(|| drawn_mesh(&self.0, Limits::USUAL).svg())
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| notebook(|limits| drawn_mesh(&self.0, limits)))
    }
}}

/// The error for a rank that a mesh does not have.
pub(crate) fn no_rank(mesh: &Mesh, rank: usize) -> Failure {
    reshard_sharding::Error::NoSuchRank { rank, mesh: mesh.to_string() }.into()
}

/// The meshes of a kind of parallel training, such as `Recipe("hsdp:dp_replicate=2,dp_shard=4")`.
#[pyclass(frozen, eq, name = "Recipe", module = "reshard")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyRecipe(pub(crate) Recipe);

by_notation! { PyRecipe {
    /// A recipe from its notation, or of a kind with degrees: `Recipe("fsdp", {"dp_shard": 8})`.
    #[new]
    #[pyo3(signature = (kind, degrees=None))]
    fn new(kind: &Bound<'_, PyString>, degrees: Option<AxesArgument>) -> Answer<PyRecipe> {
        let kind = words(kind)?;
        match degrees {
            None => Ok(PyRecipe(kind.parse()?)),
            Some(degrees) => Ok(PyRecipe(Recipe::new(kind.parse()?, &degrees.as_text())?)),
        }
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }

    /// The kinds, with a description of each and its axes.
    #[staticmethod]
    fn kinds(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let kinds = PyDict::new(py);
        for kind in Parallelism::ALL {
            let axes: Vec<&str> = kind.dense_axes().iter().chain(kind.sparse_axes()).copied().collect();
            kinds.set_item(kind.as_str(), (kind.about(), axes))?;
        }
        Ok(kinds)
    }

    /// The same recipe with its one missing degree chosen so that it has `ranks` ranks.
    fn on_world(&self, #[pyo3(from_py_with = number)] ranks: usize) -> Answer<PyRecipe> {
        Ok(PyRecipe(self.0.clone().on_world(ranks)?))
    }

    /// The name of its kind.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind().as_str()
    }

    /// The mesh of dense layers.
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.0.mesh().clone())
    }

    /// The mesh of experts over the same ranks, or None.
    #[getter]
    fn sparse(&self) -> Option<PyMesh> {
        self.0.sparse().cloned().map(PyMesh)
    }

    /// The axes of every role, such as those that share the batch.
    #[getter]
    fn roles<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let roles = PyDict::new(py);
        for role in Role::ALL {
            roles.set_item(role.as_str(), self.0.axes(role).to_vec())?;
        }
        Ok(roles)
    }
}}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMesh>()?;
    module.add_class::<PyRecipe>()
}
