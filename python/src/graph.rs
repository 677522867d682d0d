//! Graphs: programs before they are typed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_program::{Error, Graph, Meshes, ValueId};
use reshard_sharding::ShardingType;

use crate::arguments::{MeshArgument, ShapeArgument};
use crate::call::call;
use crate::dtype::{DTypeArgument, PyDType};
use crate::failure::{Answer, refused};
use crate::mesh::PyMesh;
use crate::program::PyProgram;
use crate::sequences::{listed, listed_if_any};
use crate::solver::PyElaborator;
use crate::stop::stoppable;
use crate::table::{PyTable, standard, table_or_standard};
use crate::texts::text;

/// A list of statements over named values: `Graph("dp=2,tp=2")` without statements, `Graph.parse("mesh dp=2..")` of a text.
///
/// Values are called by their names. Methods add statements; `str` is the text.
#[pyclass(frozen, name = "Graph", module = "reshard")]
#[derive(Debug)]
pub(crate) struct PyGraph(Mutex<Graph>);

impl PyGraph {
    pub(crate) fn of(graph: Graph) -> PyGraph {
        PyGraph(Mutex::new(graph))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Graph> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the value of a name.
pub(crate) fn value(graph: &Graph, name: &str) -> Answer<ValueId> {
    let reason = || Error::Graph { reason: format!("there is no value {name}") };
    graph.value(name).ok_or_else(|| reason().into())
}

fn values(graph: &Graph, names: &[String]) -> Answer<Vec<ValueId>> {
    names.iter().map(|name| value(graph, name)).collect()
}

fn names(graph: &Graph, values: &[ValueId]) -> Vec<String> {
    values.iter().map(|v| graph.name(*v).to_owned()).collect()
}

/// Borrows texts as slices.
pub(crate) fn slices(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Parses a sharding type; ` on` and a name select its mesh.
fn type_of(meshes: &Meshes, shape: &[usize], text: &str) -> Answer<ShardingType> {
    match text.rsplit_once(" on ") {
        None => Ok(ShardingType::parse(meshes.first(), shape, text)?),
        Some((is, on)) => Ok(ShardingType::parse(meshes.get(on.trim())?, shape, is)?),
    }
}

/// Meshes by name, the first as `default`.
pub(crate) fn meshes_to_python<'py>(py: Python<'py>, meshes: &Meshes) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, mesh) in meshes.iter() {
        all.set_item(name, PyMesh(mesh.clone()))?;
    }
    Ok(all)
}

#[pymethods]
impl PyGraph {
    #[new]
    #[pyo3(signature = (mesh, *, table=None))]
    fn new(mesh: MeshArgument, table: Option<&PyTable>) -> PyGraph {
        PyGraph::of(Graph::with_table(&mesh.0, table_or_standard(table)))
    }

    /// Reads a graph; `axes` are other sizes of axes of its first mesh.
    #[staticmethod]
    #[pyo3(signature = (text, *, table=None, axes=None))]
    fn parse(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] text: &str,
        table: Option<&PyTable>,
        #[pyo3(from_py_with = listed_if_any)] axes: Option<Vec<(String, usize)>>,
    ) -> Answer<PyGraph> {
        let (table, axes) = (table_or_standard(table), axes.unwrap_or_default());
        let axes: Vec<(&str, usize)> = axes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        Ok(PyGraph::of(py.detach(|| Graph::parse_with_axes(table, text, &axes))?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = pyo3::types::PyString::new(py, &self.__str__());
        Ok(format!("Graph.parse({})", text.repr()?))
    }

    fn __str__(&self) -> String {
        self.lock().to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Answer<(Bound<'py, PyAny>, (String,))> {
        if !Arc::ptr_eq(self.lock().table(), &standard()) {
            return Err(refused("pickle", "a graph with a custom op table cannot be pickled"));
        }
        Ok((py.get_type::<PyGraph>().getattr("parse")?, (self.__str__(),)))
    }

    fn __copy__(&self) -> PyGraph {
        PyGraph::of(self.lock().clone())
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyGraph {
        self.__copy__()
    }

    fn __eq__(&self, other: &PyGraph) -> bool {
        // Never hold two locks: both may be the same graph, or another thread may compare them in the other
        // order.
        let one = self.lock().clone();
        let two = other.lock().clone();
        one == two
    }

    /// The first mesh, which has all ranks.
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.lock().mesh().clone())
    }

    /// All meshes by name; the first is `default`.
    #[getter]
    fn meshes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        meshes_to_python(py, self.lock().meshes())
    }

    /// The names of the inputs, in order.
    #[getter]
    fn inputs(&self) -> Vec<String> {
        let graph = self.lock();
        let inputs: Vec<ValueId> = graph.inputs().collect();
        names(&graph, &inputs)
    }

    /// The gradients that are requested: the differentiated value, and pairs of a value and its gradient.
    #[getter]
    fn gradients(&self) -> Vec<(String, Vec<(String, String)>)> {
        let graph = self.lock();
        let name = |v: ValueId| graph.name(v).to_owned();
        let each = |(loss, list): (ValueId, Vec<(ValueId, ValueId)>)| {
            (name(loss), list.into_iter().map(|(of, g)| (name(of), name(g))).collect())
        };
        graph.gradients().map(each).collect()
    }

    /// The number of values.
    #[getter]
    fn values(&self) -> usize {
        self.lock().values()
    }

    /// The number of statements.
    #[getter]
    fn statements(&self) -> usize {
        self.lock().statements()
    }

    fn __contains__(&self, #[pyo3(from_py_with = text)] name: &str) -> bool {
        self.lock().value(name).is_some()
    }

    /// The shape of a value.
    fn shape<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> Answer<Bound<'py, PyTuple>> {
        let graph = self.lock();
        Ok(PyTuple::new(py, graph.shape(value(&graph, name)?))?)
    }

    /// The element type of a value.
    fn dtype(&self, #[pyo3(from_py_with = text)] name: &str) -> Answer<PyDType> {
        let graph = self.lock();
        Ok(PyDType(graph.dtype(value(&graph, name)?)))
    }

    /// Sets the element type of the results of the last op, where the op leaves that open.
    ///
    /// These are factories such as `ones`, integers, and real results of integers or truth values.
    fn set_dtype(&self, #[pyo3(from_py_with = text)] name: &str, dtype: DTypeArgument) -> Answer<()> {
        let mut graph = self.lock();
        let v = value(&graph, name)?;
        Ok(graph.set_dtype(v, dtype.0)?)
    }

    /// The sharding constraint of a value, as text; None if it has none.
    fn constraint(&self, #[pyo3(from_py_with = text)] name: &str) -> Answer<Option<String>> {
        let graph = self.lock();
        Ok(graph.constraint_text(value(&graph, name)?))
    }

    /// Adds a mesh over ranks of the first, which values can use.
    fn add_mesh(&self, #[pyo3(from_py_with = text)] name: &str, mesh: MeshArgument) -> Answer<()> {
        Ok(self.lock().add_mesh(name, &mesh.0)?)
    }

    /// Adds an input, of a type such as `"S(0),R"` or `"S(0) on experts"`.
    fn input(
        &self,
        #[pyo3(from_py_with = text)] name: &str,
        dtype: DTypeArgument,
        shape: ShapeArgument,
        #[pyo3(from_py_with = text)] r#type: &str,
    ) -> Answer<String> {
        self.lock().input(name, dtype.0, &shape.0, r#type)?;
        Ok(name.to_owned())
    }

    /// Calls an op on values; returns the names of its results, which are generated if not given.
    #[pyo3(signature = (op, inputs, names=vec![], **arguments))]
    fn apply(
        &self,
        #[pyo3(from_py_with = text)] op: &str,
        #[pyo3(from_py_with = listed)] inputs: Vec<String>,
        #[pyo3(from_py_with = listed)] names: Vec<String>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Vec<String>> {
        let call = call(op, arguments)?;
        let mut graph = self.lock();
        let inputs = values(&graph, &inputs)?;
        let made = graph.apply(&call, &inputs, &slices(&names))?;
        Ok(self::names(&graph, &made))
    }

    /// Constrains the sharding type of a value: its producer's result is redistributed to that type.
    fn constrain(
        &self,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = text)] r#type: &str,
    ) -> Answer<()> {
        let mut graph = self.lock();
        let v = value(&graph, name)?;
        let is = type_of(graph.meshes(), graph.shape(v), r#type)?;
        Ok(graph.constrain(v, is)?)
    }

    /// Sets the strategy of the op that computes a value: the shardings of its inputs and of its outputs.
    fn strategy(
        &self,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = listed)] inputs: Vec<String>,
        #[pyo3(from_py_with = listed)] outputs: Vec<String>,
    ) -> Answer<()> {
        let mut graph = self.lock();
        let v = value(&graph, name)?;
        Ok(graph.strategy(v, &slices(&inputs), &slices(&outputs))?)
    }

    /// Redistributes a value to another type, by a name.
    fn redistribute(
        &self,
        #[pyo3(from_py_with = text)] from_: &str,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = text)] r#type: &str,
    ) -> Answer<String> {
        let mut graph = self.lock();
        let from = value(&graph, from_)?;
        let is = type_of(graph.meshes(), graph.shape(from), r#type)?;
        graph.redistribute(from, name, is)?;
        Ok(name.to_owned())
    }

    /// Adds a name of a value that no statement uses, so that the value is live at the end.
    fn keep(
        &self,
        #[pyo3(from_py_with = text)] from_: &str,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> Answer<String> {
        let mut graph = self.lock();
        let from = value(&graph, from_)?;
        graph.keep(from, name)?;
        Ok(name.to_owned())
    }

    /// The gradient of the sum of a value's elements with respect to `wrt`.
    ///
    /// By default to all inputs that have one.
    #[pyo3(signature = (loss, wrt=None, names=None))]
    fn gradient(
        &self,
        #[pyo3(from_py_with = text)] loss: &str,
        #[pyo3(from_py_with = listed_if_any)] wrt: Option<Vec<String>>,
        #[pyo3(from_py_with = listed_if_any)] names: Option<Vec<String>>,
    ) -> Answer<Vec<String>> {
        let mut graph = self.lock();
        let loss = value(&graph, loss)?;
        let trained = |v: &ValueId| graph.constraint(*v).is_some_and(|is| is.gradient.is_some());
        let wrt = match &wrt {
            Some(wrt) => values(&graph, wrt)?,
            None => graph.inputs().filter(trained).collect(),
        };
        let made = match names {
            Some(names) => graph.gradient_as(loss, &wrt, &slices(&names))?,
            None => graph.gradient(loss, &wrt)?,
        };
        Ok(self::names(&graph, &made))
    }

    /// Marks that values computed from here on have no gradient.
    fn no_grad(&self) {
        self.lock().no_grad();
    }

    /// Adds per-device code over some axes, like JAX's `shard_map`.
    ///
    /// `body(region, *values)` is called once, with the operands in their declared types, and returns values
    /// of the out_specs.
    ///
    /// Operands and results are declared as `R`, `I`, `P` or `S(d)`, with one letter for each axis.
    fn shard_map(
        &self,
        py: Python<'_>,
        axes: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = listed)] in_specs: Vec<(String, String)>,
        #[pyo3(from_py_with = listed)] out_specs: Vec<String>,
        body: &Bound<'_, PyAny>,
    ) -> Answer<Vec<String>> {
        crate::local_region::local(py, self, axes, &in_specs, &out_specs, body)
    }

    /// The typed program: open types are solved, and given ones are checked.
    #[pyo3(signature = (solver=None))]
    fn solve(&self, py: Python<'_>, solver: Option<&PyElaborator>) -> Answer<PyProgram> {
        let (graph, solver) = (self.lock().clone(), PyElaborator::or_new(solver));
        let program = stoppable(py, || solver.solve(&graph))??;
        Ok(PyProgram(Arc::new(program)))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGraph>()
}
