//! Programs: typed lists of ops and redistributions.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use reshard_program::schedule::ValueHashes;
use reshard_program::{ComputeRates, Error, Graph, ImplicitRedistribution, Program, Statement, ValueId};

use crate::call::arguments;
use crate::dtype::{DTypeArgument, PyDType};
use crate::failure::Answer;
use crate::graph::{PyGraph, meshes_to_python};
use crate::mesh::PyMesh;
use crate::numbers::number;
use crate::ranks::PyRanks;
use crate::rates::PyRates;
use crate::report::PyReport;
use crate::run::{on_device, on_ranks};
use crate::schedule::{PyEvent, PySchedule, ScheduleOptions};
use crate::sequences::listed;
use crate::sharding::PySharding;
use crate::solver::PyElaborator;
use crate::stop::stoppable;
use crate::table::{PyTable, table_or_standard};
use crate::texts::text;
use crate::value::Reduced;

/// A typed training step: the strategies, forward and backward, and every redistribution are written out.
///
/// `Program(text)` reads a program in which every redistribution is written; `Graph.elaborate` makes one of a
/// graph, `reshard.program` one of a function.
#[pyclass(frozen, name = "Program", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyProgram(pub(crate) Arc<Program>);

impl PyProgram {
    fn made(program: Program) -> PyProgram {
        PyProgram(Arc::new(program))
    }

    pub(crate) fn named(&self, name: &str) -> Answer<ValueId> {
        let reason = || Error::Graph { reason: format!("there is no value {name}") };
        self.0.value(name).ok_or_else(|| reason().into())
    }
}

/// A value of a program: its name, its elements, its sharding and that of its gradient.
#[pyclass(frozen, name = "Value", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyValue {
    value: reshard_program::Value,
    written: String,
}

#[pymethods]
impl PyValue {
    fn __repr__(&self) -> String {
        format!("<Value {}>", self.__str__())
    }

    fn __str__(&self) -> String {
        let shape: Vec<String> = self.value.shape().iter().map(usize::to_string).collect();
        format!("{}: {}[{}] {}", self.value.name, self.value.dtype, shape.join(","), self.written)
    }

    /// Its name, which is unique in the program.
    #[getter]
    fn name(&self) -> &str {
        &self.value.name
    }

    /// The type of its elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.value.dtype)
    }

    /// `True` for a value inside one kernel of a framework, which is never written to memory.
    #[getter]
    fn inner(&self) -> bool {
        self.value.inner
    }

    /// The shape of the global tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.value.shape())
    }

    /// Its type as text, such as `"S(0),I"`, with the name of its mesh if that is not the first mesh.
    #[getter]
    fn r#type(&self) -> &str {
        &self.written
    }

    /// The sharding of the value.
    #[getter]
    fn sharding(&self) -> PySharding {
        PySharding(self.value.ty.value.clone())
    }

    /// The sharding of its gradient; None if it has no gradient.
    #[getter]
    fn gradient(&self) -> Option<PySharding> {
        self.value.ty.gradient.clone().map(PySharding)
    }
}

/// A statement of a program: an input, an op, a redistribution, or the mark after which there is no gradient.
#[pyclass(frozen, name = "Statement", module = "reshard")]
#[derive(Debug)]
pub(crate) struct PyItem {
    program: Arc<Program>,
    at: usize,
}

impl PyItem {
    pub(crate) fn item(&self) -> &Statement {
        &self.program.statements()[self.at]
    }

    fn names(&self, values: &[ValueId]) -> Vec<String> {
        values.iter().map(|v| self.program.get(*v).name.clone()).collect()
    }
}

#[pymethods]
impl PyItem {
    fn __repr__(&self) -> String {
        let (takes, makes) = (self.inputs().join(", "), self.outputs().join(", "));
        match self.call() {
            Some(call) => format!("<{makes} = {call}({takes})>"),
            None => format!("<{} {makes} {takes}>", self.kind()).replace(" >", ">").replace(" >", ">"),
        }
    }

    /// `"input"`, `"op"`, `"move"` or `"no_grad"`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.item() {
            Statement::Input(_) => "input",
            Statement::Op { .. } => "op",
            Statement::Redistribute { .. } => "move",
            Statement::NoGrad => "no_grad",
        }
    }

    /// The names of its operands.
    #[getter]
    fn inputs(&self) -> Vec<String> {
        self.names(self.item().inputs())
    }

    /// The names of its results.
    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.names(self.item().outputs())
    }

    /// The name of the op that a statement calls; None for other statements.
    #[getter]
    fn call(&self) -> Option<String> {
        match self.item() {
            Statement::Op { call, .. } => Some(call.to_string()),
            Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => None,
        }
    }

    /// The arguments of the op.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.item() {
            Statement::Op { call, .. } => arguments(py, call),
            Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => Ok(PyDict::new(py)),
        }
    }

    /// The strategy of an op along each axis, by the name of the axis.
    #[getter]
    fn strategies(&self) -> Vec<(String, String)> {
        match self.item() {
            Statement::Op { strategy, outputs, .. } => {
                let mesh = outputs.first().map(|v| self.program.get(*v).ty.value.mesh());
                let axes = mesh.map_or(&[][..], |mesh| mesh.axes());
                let row = |(axis, row): &(reshard_sharding::SubAxis, reshard_ops::rules::Strategy)| {
                    (axis.printed(axes), row.to_string())
                };
                strategy.rows.iter().map(row).collect()
            }
            Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => Vec::new(),
        }
    }

    /// `True` if the result on every rank is its operand, byte for byte.
    #[getter]
    fn is_view(&self) -> bool {
        matches!(self.item(), Statement::Op { is_view: true, .. })
    }

    /// The number of operations of the rank that does most; 0 if the statement is not an op.
    #[getter]
    fn operations(&self) -> f64 {
        match self.item() {
            Statement::Op { operations, .. } => *operations,
            Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => 0.0,
        }
    }

    /// The bytes that the worst rank receives in a redistribution, forward and backward.
    ///
    /// The second is None if the value has no gradient.
    #[getter]
    fn received_bytes(&self) -> (u64, Option<u64>) {
        match self.item() {
            Statement::Redistribute { forward, backward, .. } => {
                (forward.received_bytes(), backward.as_ref().map(|plan| plan.received_bytes()))
            }
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => (0, None),
        }
    }
}

#[pymethods]
impl PyProgram {
    #[new]
    #[pyo3(signature = (text, *, table=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] text: &str,
        table: Option<&PyTable>,
    ) -> Answer<PyProgram> {
        let table = table_or_standard(table);
        let written = PyElaborator::or_new(None).implicit_redistribution(ImplicitRedistribution::Deny);
        let program = stoppable(py, || written.solve(&Graph::parse(table, text)?))??;
        Ok(PyProgram::made(program))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Program({})", PyString::new(py, &self.0.to_string()).repr()?))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __eq__(&self, other: &PyProgram) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.to_string() == other.0.to_string()
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (String,)> {
        (py.get_type::<PyProgram>(), (self.0.to_string(),))
    }

    /// The first mesh, which has all ranks.
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.0.mesh().clone())
    }

    /// All meshes by name; the first is `default`.
    #[getter]
    fn meshes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        meshes_to_python(py, self.0.meshes())
    }

    /// The values, in the order of the program.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let value = |value: &reshard_program::Value| PyValue {
            value: value.clone(),
            written: value.type_text(self.0.meshes()),
        };
        PyTuple::new(py, self.0.values().iter().map(value).collect::<Vec<_>>())
    }

    /// A value by its name.
    fn __getitem__(&self, #[pyo3(from_py_with = text)] name: &str) -> Answer<PyValue> {
        let value = self.0.get(self.named(name)?).clone();
        let written = value.type_text(self.0.meshes());
        Ok(PyValue { value, written })
    }

    fn __contains__(&self, #[pyo3(from_py_with = text)] name: &str) -> bool {
        self.0.value(name).is_some()
    }

    /// The statements, in order.
    #[getter]
    fn statements<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let items = (0..self.0.statements().len()).map(|at| PyItem { program: Arc::clone(&self.0), at });
        PyTuple::new(py, items.collect::<Vec<_>>())
    }

    /// The number of statements in the forward pass: those above `no_grad`, or all if nothing is marked.
    #[getter]
    fn forward(&self) -> usize {
        self.0.forward().len()
    }

    /// The names of the inputs, in order.
    #[getter]
    fn inputs(&self) -> Vec<String> {
        let input = |item: &Statement| match item {
            Statement::Input(v) => Some(self.0.get(*v).name.clone()),
            Statement::Op { .. } | Statement::Redistribute { .. } | Statement::NoGrad => None,
        };
        self.0.statements().iter().filter_map(input).collect()
    }

    /// The redistributions as texts, each with its bytes forward and backward.
    #[getter]
    fn redistributions(&self) -> Vec<String> {
        self.0.redistributions().map(|m| m.to_string()).collect()
    }

    /// An upper bound of the time lost to the cheapest choices, in microseconds.
    ///
    /// 0 if the choices are the cheapest.
    #[getter]
    fn optimality_gap_us(&self) -> f64 {
        self.0.optimality_gap_us()
    }

    /// A report of the communication, the computation and the memory of the program.
    #[pyo3(signature = (rates=None))]
    fn report(&self, py: Python<'_>, rates: Option<&PyRates>) -> PyReport {
        let rates = rates.map_or_else(ComputeRates::uniform, |rates| rates.0);
        PyReport(py.detach(|| self.0.report(&rates)))
    }

    /// The graph of the program: its statements, including every redistribution.
    fn graph(&self) -> Answer<PyGraph> {
        Ok(PyGraph::of(self.0.graph()?))
    }

    /// The same program, in which backward rematerializes these values right before it uses them.
    fn rematerialize(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = listed)] names: Vec<String>,
    ) -> Answer<PyProgram> {
        let values = names.iter().map(|name| self.named(name)).collect::<Answer<Vec<_>>>()?;
        Ok(PyProgram::made(stoppable(py, || self.0.rematerialize(&values))??))
    }

    /// The names of the parameter copies that forward gathers.
    ///
    /// Rematerialize them to gather them in backward too.
    fn gathered_parameters(&self) -> Vec<String> {
        self.0.gathered_parameters().into_iter().map(|v| self.0.get(v).name.clone()).collect()
    }

    /// The same program, in which backward recomputes, in least time, the activations above `limit_bytes`.
    #[pyo3(signature = (limit_bytes, rates=None))]
    fn rematerialize_to_fit(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] limit_bytes: u64,
        rates: Option<&PyRates>,
    ) -> Answer<PyProgram> {
        let rates = rates.map_or_else(ComputeRates::uniform, |rates| rates.0);
        Ok(PyProgram::made(stoppable(py, || self.0.rematerialize_to_fit(limit_bytes, &rates))??))
    }

    /// The same program, with a redistribution and its consumer split into `chunks` overlap chunks.
    ///
    /// `redistribution` is the name of its result.
    #[pyo3(signature = (redistribution, chunks, solver=None))]
    fn overlap_value(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] redistribution: &str,
        #[pyo3(from_py_with = number)] chunks: usize,
        solver: Option<&PyElaborator>,
    ) -> Answer<PyProgram> {
        let (value, solver) = (self.named(redistribution)?, PyElaborator::or_new(solver));
        Ok(PyProgram::made(stoppable(py, || self.0.overlap_value(value, chunks, &solver))??))
    }

    /// Like `overlap_value`, for every redistribution that can be split.
    #[pyo3(signature = (chunks, solver=None))]
    fn overlap_all(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] chunks: usize,
        solver: Option<&PyElaborator>,
    ) -> Answer<PyProgram> {
        let solver = PyElaborator::or_new(solver);
        Ok(PyProgram::made(stoppable(py, || self.0.overlap_all(chunks, &solver))??))
    }

    /// The same program, with overlap chunks where the timeline gets shorter by them.
    #[pyo3(signature = (solver=None, *, liveness=true, in_flight_bytes=0, bucket_bytes=0, order="program"))]
    fn overlap(
        &self,
        py: Python<'_>,
        solver: Option<&PyElaborator>,
        liveness: bool,
        #[pyo3(from_py_with = number)] in_flight_bytes: u64,
        #[pyo3(from_py_with = number)] bucket_bytes: u64,
        #[pyo3(from_py_with = text)] order: &str,
    ) -> Answer<PyProgram> {
        let solver = PyElaborator::or_new(solver);
        let options = ScheduleOptions { liveness, in_flight_bytes, bucket_bytes, order }.read()?;
        Ok(PyProgram::made(stoppable(py, || self.0.overlap(&options, &solver))??))
    }

    /// The same program with all real numbers in one dtype, and its redistributions planned for that dtype.
    ///
    /// Integers, truth values and complex numbers keep their dtypes.
    fn with_dtype(&self, py: Python<'_>, dtype: DTypeArgument) -> Answer<PyProgram> {
        Ok(PyProgram::made(stoppable(py, || self.0.with_dtype(dtype.0))??))
    }

    /// Compiles the program for one rank, to a schedule without types.
    ///
    /// `in_flight_bytes` lets redistributions begin early, `bucket_bytes` fuses those with the same steps into
    /// one exchange, `order` is `"program"` or `"1f1b"`; without `liveness` no two values share bytes. No
    /// option changes a bit of any result.
    #[pyo3(signature = (rank, *, liveness=true, in_flight_bytes=0, bucket_bytes=0, order="program"))]
    fn compile(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] rank: usize,
        liveness: bool,
        #[pyo3(from_py_with = number)] in_flight_bytes: u64,
        #[pyo3(from_py_with = number)] bucket_bytes: u64,
        #[pyo3(from_py_with = text)] order: &str,
    ) -> Answer<PySchedule> {
        let options = ScheduleOptions { liveness, in_flight_bytes, bucket_bytes, order }.read()?;
        let made = py.detach(|| -> Result<_, Error> {
            let program = match self.0.lower_comm_dtypes()? {
                Cow::Borrowed(_) => Arc::clone(&self.0),
                Cow::Owned(wired) => Arc::new(wired),
            };
            Ok((self.0.compile(rank, &options)?, program))
        })?;
        let (schedule, program) = made;
        Ok(PySchedule { schedule, table: Arc::clone(self.0.table()), program })
    }

    /// Computes all values of the program on one device, from global inputs; redistributions do nothing.
    ///
    /// `kernels` are functions `(call, *arrays) -> array` by the names of ops, in place of NumPy's, or `"reference"`.
    #[pyo3(signature = (inputs, *, kernels=None))]
    fn on_one_device<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        kernels: Option<&Bound<'py, PyAny>>,
    ) -> Answer<Bound<'py, PyDict>> {
        on_device(&self.0, py, inputs, kernels)
    }

    /// Runs the schedules of all ranks from global inputs; returns the values that they hold at the end.
    ///
    /// Each rank is a thread with its own arena; calls are Python functions, exchanges are the library's.
    /// Without `liveness` all values are returned, else those that are live at the end. `hashed` records
    /// hashes of the values of each rank, for `Program.replicas`. The other options are those of `compile`,
    /// and `kernels` that of `on_one_device`.
    #[pyo3(signature = (inputs, *, kernels=None, liveness=true, in_flight_bytes=0, bucket_bytes=0, order="program", hashed=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn on_ranks(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyDict>,
        kernels: Option<&Bound<'_, PyAny>>,
        liveness: bool,
        #[pyo3(from_py_with = number)] in_flight_bytes: u64,
        #[pyo3(from_py_with = number)] bucket_bytes: u64,
        #[pyo3(from_py_with = text)] order: &str,
        hashed: bool,
    ) -> Answer<PyRanks> {
        let options = ScheduleOptions { liveness, in_flight_bytes, bucket_bytes, order };
        on_ranks(&self.0, py, inputs, kernels, options, hashed)
    }

    /// The events of a rank, statement by statement, from types and plans; its schedule does the same.
    fn trace<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<Bound<'py, PyTuple>> {
        Ok(PyEvent::all(py, self.0.trace(rank)?)?)
    }

    /// Compares the hashes of values that must be equal on several ranks by their types.
    ///
    /// Returns the number compared.
    ///
    /// The hashes are texts, one for each rank, as `Ranks.hashes` has them.
    fn check_replicas(&self, #[pyo3(from_py_with = listed)] hashes: Vec<String>) -> Answer<usize> {
        let hashes = hashes.iter().map(|text| text.parse()).collect::<Result<Vec<ValueHashes>, Error>>()?;
        Ok(self.0.check_replicas(&hashes)?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyValue>()?;
    module.add_class::<PyItem>()?;
    module.add_class::<PyProgram>()
}
