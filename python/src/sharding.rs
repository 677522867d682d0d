//! Shardings: the elements of a tensor that each rank holds.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_draw::{Limits, notebook, sharding as drawn_sharding};
use reshard_layout::NamedLayout;
use reshard_sharding::notation::{HloSharding, inlined_mesh};
use reshard_sharding::{Mesh, PartialAxis, Placements, ReduceOp, Sharding, Strided};

use crate::arguments::{MeshArgument, PlacementsArgument, ShapeArgument};
use crate::dtype::DTypeArgument;
use crate::failure::{Answer, refused};
use crate::group::check_listed;
use crate::json;
use crate::layout::PyLayout;
use crate::mesh::{PyMesh, sub_axes};
use crate::named_layout::PyNamed;
use crate::numbers::{number, number_if_any};
use crate::placement::PyPlacement;
use crate::region::PyRegion;
use crate::sequences::{check_list, listed};
use crate::shards;
use crate::texts::text;
use crate::value::Reduced;

/// The elements of a tensor on every rank of a mesh, such as `Sharding("dp=2,tp=4", (64, 32), "S(0),R")`.
///
/// Placements are one for every axis of the mesh, as a text or a list, or a text in another notation: by tensor `[{dp},{}]`,
/// Shardy, XLA's `{devices=[8,1]<=[8]}`, JAX's `PartitionSpec('dp', None)` or PyTorch's. The mesh may be None where the text
/// brings its own.
#[pyclass(frozen, eq, hash, name = "Sharding", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PySharding(pub(crate) Sharding);

/// The mesh that was given, or the one in the text.
pub(crate) fn mesh_of(mesh: Option<MeshArgument>, text: &str) -> Answer<Mesh> {
    if let Some(mesh) = mesh {
        return Ok(mesh.0);
    }
    inlined_mesh(text)?
        .ok_or_else(|| refused("mesh", "no mesh; give one, or a Shardy text with an inlined mesh"))
}

#[pymethods]
impl PySharding {
    #[new]
    fn new(
        mesh: Option<MeshArgument>,
        shape: ShapeArgument,
        placements: PlacementsArgument,
    ) -> Answer<PySharding> {
        let mesh = mesh_of(mesh, &placements.0)?;
        Ok(PySharding(Sharding::parse(&mesh, &shape.0, &placements.0)?))
    }

    /// Every rank holds the whole tensor.
    #[staticmethod]
    fn replicated(mesh: MeshArgument, shape: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(Sharding::replicated(&mesh.0, &shape.0)?))
    }

    /// PyTorch's other reading of strided shards: plain chunks in the order of axes that the split factors spell.
    #[staticmethod]
    fn with_axis_order(
        mesh: MeshArgument,
        shape: ShapeArgument,
        placements: PlacementsArgument,
    ) -> Answer<PySharding> {
        let placements: Placements = placements.0.parse()?;
        Ok(PySharding(Sharding::with_axis_order(&mesh.0, &shape.0, &placements)?))
    }

    /// Both readings of placements with strided shards: blocks of blocks, and plain chunks in their order.
    ///
    /// The third result is `True` if both are equal.
    #[staticmethod]
    fn strided_readings(
        mesh: MeshArgument,
        shape: ShapeArgument,
        placements: PlacementsArgument,
    ) -> Answer<(PySharding, PySharding, bool)> {
        let placements: Placements = placements.0.parse()?;
        let both = Sharding::strided_readings(&mesh.0, &shape.0, &placements)?;
        Ok((PySharding(both.literal), PySharding(both.ordered), both.agree))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = PyTuple::new(py, self.0.shape())?.repr()?;
        Ok(format!("Sharding('{}', {shape}, '{}')", self.0.mesh(), self.0))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Reduced<'py, (String, Bound<'py, PyTuple>, String)>> {
        let shape = PyTuple::new(py, self.0.shape())?;
        Ok((py.get_type::<PySharding>(), (self.0.mesh().to_string(), shape, self.0.to_string())))
    }

    /// The mesh.
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.0.mesh().clone())
    }

    /// The shape of the global tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The number of elements of the global tensor.
    #[getter]
    fn numel(&self) -> usize {
        self.0.numel()
    }

    /// One placement for every axis of the mesh; an error if no placements express the sharding.
    #[getter]
    fn placements<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyTuple>> {
        let placements = self.0.placements()?;
        Ok(PyTuple::new(py, placements.iter().cloned().map(PyPlacement))?)
    }

    /// The notation by tensor, `[{dp,tp},{}] unreduced={cp}`.
    fn to_dims_notation(&self) -> Answer<String> {
        Ok(self.0.to_dims_notation()?)
    }

    /// XLA's notation, `{devices=[2,4]<=[8]}`; with `v1` its devices are listed.
    #[pyo3(signature = (*, v1=false))]
    fn to_hlo(&self, v1: bool) -> Answer<String> {
        let hlo: HloSharding = self.0.to_hlo()?;
        Ok(if v1 { hlo.v1()?.to_string() } else { hlo.to_string() })
    }

    /// Shardy's notation.
    fn to_shardy(&self) -> Answer<String> {
        Ok(self.0.to_shardy()?)
    }

    /// JAX's notation.
    fn to_partition_spec(&self) -> Answer<String> {
        Ok(self.0.to_partition_spec()?)
    }

    /// PyTorch's notation, which is Python.
    fn to_pytorch(&self) -> Answer<String> {
        Ok(self.0.to_pytorch()?)
    }

    /// The shape of a rank's shard.
    fn local_shape<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<Bound<'py, PyTuple>> {
        let shape = self.0.local_shape(rank)?;
        Ok(PyTuple::new(py, shape.iter().copied())?)
    }

    /// The shape that every rank holds, or None where they differ.
    #[getter]
    fn common_local_shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.common_local_shape().map(|shape| PyTuple::new(py, shape)).transpose()
    }

    /// The number of elements that a rank holds.
    fn local_numel(&self, #[pyo3(from_py_with = number)] rank: usize) -> Answer<usize> {
        Ok(self.0.local_shape(rank)?.iter().product())
    }

    /// The most elements that any rank holds.
    #[getter]
    fn max_local_numel(&self) -> usize {
        self.0.max_local_numel()
    }

    /// The indices that a rank holds.
    fn region(&self, #[pyo3(from_py_with = number)] rank: usize) -> Answer<PyRegion> {
        Ok(PyRegion(self.0.region(rank)?))
    }

    /// The row-major index of every element that a rank holds, in local order.
    fn global_indices(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<Vec<usize>> {
        let count = self.0.local_shape(rank)?.iter().fold(1_usize, |n, extent| n.saturating_mul(*extent));
        check_list(count)?;
        Ok(py.detach(|| self.0.global_indices(rank))?)
    }

    /// The ownership as one layout, from (local index, rank) to the row-major index.
    ///
    /// It is None if some dim does not divide.
    fn ownership(&self, py: Python<'_>) -> Option<PyLayout> {
        py.detach(|| self.0.ownership()).map(PyLayout)
    }

    /// The layout from the row-major index of the tensor to axes of the mesh and the local offset, or None where there is none.
    #[getter]
    fn digits(&self) -> Answer<Option<PyNamed>> {
        let axes = self.0.mesh().axes();
        let name = |axis: u32| axes[axis as usize].name().as_str();
        Ok(self.0.layout().map(|layout| NamedLayout::new(layout, name)).transpose()?.map(PyNamed))
    }

    /// The axes, or parts of axes, along which values are partial, and their reductions.
    #[getter]
    fn partial<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let partial = PyDict::new(py);
        for each in self.0.partial() {
            partial.set_item(each.sub.printed(self.0.mesh().axes()), each.op.to_string())?;
        }
        Ok(partial)
    }

    /// The same sharding, partial along these axes instead: `sharding.with_partial({"tp": "sum"})`.
    fn with_partial(&self, partial: &Bound<'_, PyDict>) -> Answer<PySharding> {
        let mut all = Vec::new();
        for (names, op) in partial.iter() {
            let op: ReduceOp = text::<String>(&op)?.parse()?;
            for sub in &sub_axes(self.0.mesh(), &[text(&names)?])? {
                all.push(PartialAxis { sub: *sub, op });
            }
        }
        Ok(PySharding(self.0.with_partial(all)?))
    }

    /// `True` if ranks hold partial values.
    #[getter]
    fn is_partial(&self) -> bool {
        self.0.is_partial()
    }

    /// The same sharding with reduced values: every rank that holds a partial value holds the value.
    fn reduced(&self) -> PySharding {
        PySharding(self.0.reduced())
    }

    /// The cotangent sharding: that of gradients that each rank computes from its shard.
    ///
    /// Replicated axes become partial, and partial ones replicated.
    fn cotangent(&self) -> Answer<PySharding> {
        Ok(PySharding(self.0.cotangent()?))
    }

    /// The axes, or parts of axes, along which ranks hold replicas.
    #[getter]
    fn replicated_axes(&self) -> Vec<String> {
        self.0.replicated_axes().iter().map(|sub| sub.printed(self.0.mesh().axes())).collect()
    }

    /// The factors above an axis in the dim that it shards; None if it shards none.
    ///
    /// They are `plain` (none), `order` with axes, `view` with a product, or `mixed` with both.
    fn strided(
        &self,
        #[pyo3(from_py_with = text)] axis: &str,
    ) -> Answer<Option<(&'static str, Vec<String>, usize)>> {
        let names = |axes: &[usize]| -> Vec<String> {
            axes.iter().map(|&axis| self.0.mesh().axes()[axis].name().to_string()).collect()
        };
        Ok(self.0.strided(self.0.mesh().axis(axis)?).map(|strided| match strided {
            Strided::Plain => ("plain", Vec::new(), 1),
            Strided::Order(axes) => ("order", names(&axes), 1),
            Strided::View(product) => ("view", Vec::new(), product),
            Strided::Mixed { local, axes } => ("mixed", names(&axes), local),
        }))
    }

    /// The sharding of the tensor in another shape, if no data is sent; else `NeedsRedistribution`.
    fn view(&self, py: Python<'_>, shape: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(py.detach(|| self.0.view(&shape.0))?))
    }

    /// The sharding of the tensor in another shape, or None if data would be sent.
    fn try_view(&self, py: Python<'_>, shape: ShapeArgument) -> Option<PySharding> {
        py.detach(|| self.0.try_view(&shape.0)).map(PySharding)
    }

    /// The sharding with dims [begin, end) as one.
    fn flatten(
        &self,
        #[pyo3(from_py_with = number)] begin: usize,
        #[pyo3(from_py_with = number)] end: usize,
    ) -> Answer<PySharding> {
        Ok(PySharding(self.0.flatten(begin..end)?))
    }

    /// The sharding with one dim as several.
    fn split(&self, #[pyo3(from_py_with = number)] dim: usize, into: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(self.0.split(dim, &into.0)?))
    }

    /// The sharding without a dim of size 1.
    fn squeeze(&self, #[pyo3(from_py_with = number)] dim: usize) -> Answer<PySharding> {
        Ok(PySharding(self.0.squeeze(dim)?))
    }

    /// The sharding with a new dim of size 1 before a dim.
    fn unsqueeze(&self, #[pyo3(from_py_with = number)] dim: usize) -> Answer<PySharding> {
        Ok(PySharding(self.0.unsqueeze(dim)?))
    }

    /// The sharding with its dims in another order.
    fn permute(&self, order: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(self.0.permute(&order.0)?))
    }

    /// The sharding with a dim of size 1 repeated `len` times.
    fn expand(
        &self,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] len: usize,
    ) -> Answer<PySharding> {
        Ok(PySharding(self.0.expand(dim, len)?))
    }

    /// The sharding of the slice [begin, end) of a dim.
    fn narrow(
        &self,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] begin: usize,
        #[pyo3(from_py_with = number)] end: usize,
    ) -> Answer<PySharding> {
        Ok(PySharding(self.0.narrow(dim, begin..end)?))
    }

    /// Shards a global tensor, for every rank or for one, as arrays like the given one.
    ///
    /// Partial values of a sum, a product or a norm are the tensor on coordinate 0 of their axes and the
    /// identity of the reduction elsewhere; those of an average, a minimum or a maximum are the tensor
    /// everywhere. `dtype` is the type of an array of bytes.
    #[pyo3(signature = (array, rank=None, *, dtype=None))]
    fn shard_all<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number_if_any)] rank: Option<usize>,
        dtype: Option<DTypeArgument>,
    ) -> Answer<Bound<'py, PyAny>> {
        let dtype = dtype.map(|dtype| dtype.0);
        if let Some(rank) = rank {
            return Ok(shards::scatter(&self.0, array, &[rank], dtype)?.get_item(0)?);
        }
        check_listed(self.0.mesh().size())?;
        let ranks: Vec<usize> = self.0.mesh().ranks().collect();
        Ok(shards::scatter(&self.0, array, &ranks, dtype)?.into_any())
    }

    /// Assembles the global tensor of shards in the order of `mesh.ranks`; an error if replicas differ.
    #[pyo3(signature = (shards, *, dtype=None))]
    fn assemble<'py>(
        &self,
        #[pyo3(from_py_with = listed)] shards: Vec<Bound<'py, PyAny>>,
        dtype: Option<DTypeArgument>,
    ) -> Answer<Bound<'py, PyAny>> {
        shards::meaning(&self.0, &shards, dtype.map(|dtype| dtype.0))
    }

    /// The sharding as JSON text.
    fn to_json(&self) -> Answer<String> {
        json::write(&self.0)
    }

    /// Reads the text of `to_json`.
    #[staticmethod]
    fn from_json(#[pyo3(from_py_with = text)] text: &str) -> Answer<PySharding> {
        Ok(PySharding(json::read(text)?))
    }

    /// The picture as text: the owners of each element.
    fn draw(&self, py: Python<'_>) -> String {
        py.detach(|| drawn_sharding(&self.0, Limits::USUAL).text(false))
    }

    /// The picture as SVG.
    fn svg(&self, py: Python<'_>) -> String {
        py.detach(|| drawn_sharding(&self.0, Limits::USUAL).svg())
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| notebook(|limits| drawn_sharding(&self.0, limits)))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySharding>()
}
