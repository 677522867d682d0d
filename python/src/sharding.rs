//! Shardings: who holds which element of a tensor.

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

/// Which elements of a tensor every rank of a mesh holds, such as `Sharding("dp=2,tp=4", (64, 32), "S(0),R")`.
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
        .ok_or_else(|| refused("mesh", "no mesh: give one, or a text of Shardy's that has it inlined"))
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
    fn in_order_of_axes(
        mesh: MeshArgument,
        shape: ShapeArgument,
        placements: PlacementsArgument,
    ) -> Answer<PySharding> {
        let placements: Placements = placements.0.parse()?;
        Ok(PySharding(Sharding::with_axis_order(&mesh.0, &shape.0, &placements)?))
    }

    /// Both readings of placements with strided shards, pieces of pieces and plain chunks in their order, and whether they agree.
    #[staticmethod]
    fn readings(
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

    /// The shape of the whole tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The number of elements of the whole tensor.
    #[getter]
    fn numel(&self) -> usize {
        self.0.numel()
    }

    /// One placement for every axis of the mesh; refused where no placements say it.
    #[getter]
    fn placements<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyTuple>> {
        let placements = self.0.placements()?;
        Ok(PyTuple::new(py, placements.iter().cloned().map(PyPlacement))?)
    }

    /// The notation by tensor, `[{dp,tp},{}] unreduced={cp}`.
    fn by_tensor(&self) -> Answer<String> {
        Ok(self.0.to_dims_notation()?)
    }

    /// XLA's notation, `{devices=[2,4]<=[8]}`; with `v1` its devices are listed.
    #[pyo3(signature = (*, v1=false))]
    fn hlo(&self, v1: bool) -> Answer<String> {
        let hlo: HloSharding = self.0.to_hlo()?;
        Ok(if v1 { hlo.v1()?.to_string() } else { hlo.to_string() })
    }

    /// Shardy's notation.
    fn shardy(&self) -> Answer<String> {
        Ok(self.0.to_shardy()?)
    }

    /// JAX's notation.
    fn partition_spec(&self) -> Answer<String> {
        Ok(self.0.to_partition_spec()?)
    }

    /// PyTorch's notation, which is Python.
    fn pytorch(&self) -> Answer<String> {
        Ok(self.0.to_pytorch()?)
    }

    /// The shape of what a rank holds.
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

    /// Which indices a rank holds.
    fn region(&self, #[pyo3(from_py_with = number)] rank: usize) -> Answer<PyRegion> {
        Ok(PyRegion(self.0.region(rank)?))
    }

    /// The row-major index of every element that a rank holds, in local order.
    fn held(&self, py: Python<'_>, #[pyo3(from_py_with = number)] rank: usize) -> Answer<Vec<usize>> {
        let count = self.0.local_shape(rank)?.iter().fold(1_usize, |n, extent| n.saturating_mul(*extent));
        check_list(count)?;
        Ok(py.detach(|| self.0.global_indices(rank))?)
    }

    /// The whole ownership as one layout, from (local index, rank) to the row-major index, or None where some dim does not divide.
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

    /// The axes, or parts of axes, along which ranks hold terms, and how those make the value.
    #[getter]
    fn partial<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let partial = PyDict::new(py);
        for each in self.0.partial() {
            partial.set_item(each.sub.printed(self.0.mesh().axes()), each.op.to_string())?;
        }
        Ok(partial)
    }

    /// The same with these terms instead: `sharding.with_partial({"tp": "sum"})`.
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

    /// Whether ranks hold terms.
    #[getter]
    fn is_partial(&self) -> bool {
        self.0.is_partial()
    }

    /// The same without terms: every rank that holds one holds the value.
    fn reduced(&self) -> PySharding {
        PySharding(self.0.reduced())
    }

    /// The sharding of the gradients that ranks get each from its own shard: replicas become terms, terms replicas.
    fn dual(&self) -> Answer<PySharding> {
        Ok(PySharding(self.0.cotangent()?))
    }

    /// The axes, or parts of axes, along which ranks hold the same.
    #[getter]
    fn replicated_axes(&self) -> Vec<String> {
        self.0.replicated_axes().iter().map(|sub| sub.printed(self.0.mesh().axes())).collect()
    }

    /// What stands above an axis in the dim that it shards: `plain`, `order` with axes, `view` with a product, or `mixed` with both.
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

    /// The sharding of the tensor in another shape, where nothing moves; else `NeedsRedistribute`.
    fn view(&self, py: Python<'_>, shape: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(py.detach(|| self.0.view(&shape.0))?))
    }

    /// The sharding of the tensor in another shape, or None where something would move.
    fn view_if_free(&self, py: Python<'_>, shape: ShapeArgument) -> Option<PySharding> {
        py.detach(|| self.0.try_view(&shape.0)).map(PySharding)
    }

    /// Dims [begin, end) as one.
    fn flatten(
        &self,
        #[pyo3(from_py_with = number)] begin: usize,
        #[pyo3(from_py_with = number)] end: usize,
    ) -> Answer<PySharding> {
        Ok(PySharding(self.0.flatten(begin..end)?))
    }

    /// One dim as several.
    fn split(&self, #[pyo3(from_py_with = number)] dim: usize, into: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(self.0.split(dim, &into.0)?))
    }

    /// Without a dim of size 1.
    fn squeeze(&self, #[pyo3(from_py_with = number)] dim: usize) -> Answer<PySharding> {
        Ok(PySharding(self.0.squeeze(dim)?))
    }

    /// With a dim of size 1 before a dim.
    fn unsqueeze(&self, #[pyo3(from_py_with = number)] dim: usize) -> Answer<PySharding> {
        Ok(PySharding(self.0.unsqueeze(dim)?))
    }

    /// The dims in another order.
    fn permute(&self, order: ShapeArgument) -> Answer<PySharding> {
        Ok(PySharding(self.0.permute(&order.0)?))
    }

    /// A dim of size 1 repeated so many times.
    fn expand(
        &self,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] len: usize,
    ) -> Answer<PySharding> {
        Ok(PySharding(self.0.expand(dim, len)?))
    }

    /// The part [begin, end) of a dim.
    fn narrow(
        &self,
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] begin: usize,
        #[pyo3(from_py_with = number)] end: usize,
    ) -> Answer<PySharding> {
        Ok(PySharding(self.0.narrow(dim, begin..end)?))
    }

    /// The shards of a whole tensor, for every rank or for one: arrays like the one that is given.
    ///
    /// Terms of a sum, a product or a norm are the whole on coordinate 0 of their axes and the identity of the reduction elsewhere;
    /// those of an average, a minimum or a maximum are the whole everywhere. An array of bytes is one of the `dtype` that is said.
    #[pyo3(signature = (array, rank=None, *, dtype=None))]
    fn scatter<'py>(
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

    /// The one tensor that shards denote, given in the order of `mesh.ranks`; refused where replicas differ.
    #[pyo3(signature = (shards, *, dtype=None))]
    fn meaning<'py>(
        &self,
        #[pyo3(from_py_with = listed)] shards: Vec<Bound<'py, PyAny>>,
        dtype: Option<DTypeArgument>,
    ) -> Answer<Bound<'py, PyAny>> {
        shards::meaning(&self.0, &shards, dtype.map(|dtype| dtype.0))
    }

    /// The JSON text of it.
    fn to_json(&self) -> Answer<String> {
        json::write(&self.0)
    }

    /// What `to_json` wrote.
    #[staticmethod]
    fn from_json(#[pyo3(from_py_with = text)] text: &str) -> Answer<PySharding> {
        Ok(PySharding(json::read(text)?))
    }

    /// The picture as text: who holds what.
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
