//! Propagation: the strategy of least cost for an op on a mesh.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use reshard_ops::propagate::{OpSharding, Operand, OutputConstraint, Propagator};
use reshard_planner::{Planner, SearchBudget};
use reshard_sharding::{Mesh, Sharding};

use crate::arguments::{MeshArgument, type_name};
use crate::failure::{Answer, refused};
use crate::numbers::{number, number_if_any};
use crate::op::PyOp;
use crate::operand::operand;
use crate::planner::PyPlanner;
use crate::sequences::items;
use crate::sharding::PySharding;
use crate::stop::stoppable;
use crate::texts::words;
use crate::topology::TopologyArgument;
use crate::value::not_pickled;

/// Reads the constraints of all outputs.
fn constraints(object: &Bound<'_, PyAny>, op: &PyOp, mesh: &Mesh) -> Answer<Vec<OutputConstraint>> {
    let outputs = op.op.outputs();
    if let Ok(word) = object.cast::<PyString>() {
        let of = match &*words(word)? {
            "any" => Some(OutputConstraint::Any),
            "reduced" => Some(OutputConstraint::Reduced),
            _ => None,
        };
        if let Some(all) = of {
            return Ok(vec![all; outputs.len()]);
        }
        return Ok(vec![constraint(object, outputs.first().map_or(&[], Vec::as_slice), mesh)?]);
    }
    if object.is_none() {
        return Ok(Vec::new());
    }
    if object.cast::<PySharding>().is_ok() {
        return Ok(vec![constraint(object, &[], mesh)?]);
    }
    let each = items(object)?.collect::<PyResult<Vec<_>>>()?;
    if each.len() > outputs.len() {
        let reason =
            format!("{} constraints for the {} outputs of {}", each.len(), outputs.len(), op.op.name());
        return Err(refused("usage", reason));
    }
    each.iter().zip(outputs).map(|(object, shape)| constraint(object, shape, mesh)).collect()
}

/// Reads the constraint of one output.
///
/// It is None, "any", "reduced", a sharding, or a sharding and the penalty of any other.
fn constraint(object: &Bound<'_, PyAny>, shape: &[usize], mesh: &Mesh) -> Answer<OutputConstraint> {
    if object.is_none() {
        return Ok(OutputConstraint::Any);
    }
    if let Ok(sharding) = object.cast::<PySharding>() {
        return Ok(OutputConstraint::Exactly(sharding.get().0.clone()));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(match &*words(text)? {
            "any" => OutputConstraint::Any,
            "reduced" => OutputConstraint::Reduced,
            placements => OutputConstraint::Exactly(Sharding::parse(mesh, shape, placements)?),
        });
    }
    let Ok((wanted, penalty_us)) = object.extract::<(Bound<'_, PyAny>, f64)>() else {
        return Err(PyTypeError::new_err(format!(
            "expected an output constraint: 'any', 'reduced', a Sharding, or a pair of a Sharding and a penalty in microseconds, found {}",
            type_name(object)
        ))
        .into());
    };
    match constraint(&wanted, shape, mesh)? {
        OutputConstraint::Exactly(sharding) => Ok(OutputConstraint::Prefer { sharding, penalty_us }),
        OutputConstraint::Any | OutputConstraint::Reduced | OutputConstraint::Prefer { .. } => Err(refused(
            "usage",
            "a penalty needs a preferred sharding, not 'any', 'reduced' or another penalty",
        )),
    }
}

/// The redistribution of an operand.
#[pyclass(frozen, name = "OperandRedistribution", module = "reshard")]
pub(crate) struct PyOperandMove {
    /// The operand: `input 0` or `output 0`.
    #[pyo3(get)]
    operand: String,
    /// Its sharding before.
    #[pyo3(get)]
    from_: PySharding,
    /// Its sharding after.
    #[pyo3(get)]
    to: PySharding,
    /// The bytes that the worst rank receives.
    #[pyo3(get)]
    received_bytes: u64,
    /// Its cost, in microseconds.
    #[pyo3(get)]
    cost_us: f64,
    /// The kinds of operation of the plan's steps.
    #[pyo3(get)]
    steps: Vec<String>,
}

#[pymethods]
impl PyOperandMove {
    fn __repr__(&self) -> String {
        let (from, to) = (&self.from_.0, &self.to.0);
        format!("<{}: {from} -> {to}, {} bytes, {:.1} us>", self.operand, self.received_bytes, self.cost_us)
    }
}

/// A strategy for every axis, with the shardings of inputs and outputs.
#[pyclass(frozen, name = "OpSharding", module = "reshard")]
pub(crate) struct PyChoice {
    choice: OpSharding,
    inputs: Vec<Operand>,
    mesh: Mesh,
}

fn shardings<'a>(py: Python<'_>, list: impl Iterator<Item = &'a Sharding>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, list.map(|s| PySharding(s.clone())).collect::<Vec<_>>())
}

#[pymethods]
impl PyChoice {
    fn __repr__(&self) -> String {
        let list = |all: Vec<String>| all.join("; ");
        let of = |all: &[Sharding]| list(all.iter().map(ToString::to_string).collect());
        let (inputs, outputs) = (of(&self.choice.inputs), of(&self.choice.outputs));
        format!("<OpSharding {inputs} -> {outputs}, {:.1} us>", self.choice.cost_us)
    }

    fn __str__(&self) -> String {
        self.describe().join("\n")
    }

    /// The sharding that the op needs of each input.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shardings(py, self.choice.inputs.iter())
    }

    /// The sharding of each output, after its constraint is satisfied.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shardings(py, self.choice.outputs.iter())
    }

    /// The sharding of each output as the op computes it, before its constraint is satisfied.
    #[getter]
    fn computed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shardings(py, self.choice.computed())
    }

    /// The strategy of each axis with more than one rank, by its name; empty for a view.
    #[getter]
    fn strategies(&self) -> Vec<(String, String)> {
        let name = |axis: &reshard_sharding::SubAxis| axis.printed(self.mesh.axes());
        self.choice.strategies.iter().map(|(axis, strategy)| (name(axis), strategy.to_string())).collect()
    }

    /// The axes along which the op must know the region of the global tensor that a rank holds.
    #[getter]
    fn regions(&self) -> Vec<String> {
        self.choice.regions().map(|axis| axis.printed(self.mesh.axes())).collect()
    }

    /// The redistributions, of inputs first.
    #[getter]
    fn redistributions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let moves = self.choice.redistributions().map(|(operand, plan)| PyOperandMove {
            operand: operand.to_string(),
            from_: PySharding(plan.from().clone()),
            to: PySharding(plan.to().clone()),
            received_bytes: plan.received_bytes(),
            cost_us: plan.cost_us(),
            steps: plan.steps().iter().map(|step| step.op().to_string()).collect(),
        });
        PyTuple::new(py, moves.collect::<Vec<_>>())
    }

    /// The cost of all plans, plus the penalty of outputs that are not as preferred, in microseconds.
    #[getter]
    fn cost_us(&self) -> f64 {
        self.choice.cost_us
    }

    /// The sum over the plans of the bytes that the worst rank receives.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.choice.received_bytes()
    }

    /// The number of communicating steps of all plans.
    #[getter]
    fn communicating_steps(&self) -> usize {
        self.choice.communicating_steps()
    }

    /// `True` if the search budget ran out: the strategy is then the best found, and not always the cheapest.
    #[getter]
    fn is_budget_exhausted(&self) -> bool {
        self.choice.is_budget_exhausted()
    }

    /// One line for each input: its sharding before and after.
    fn describe(&self) -> Vec<String> {
        self.choice.describe(&self.inputs)
    }
}

/// A request: an op, a mesh, inputs and constraints.
struct Question {
    op: PyOp,
    mesh: Mesh,
    inputs: Vec<Operand>,
    constraints: Vec<OutputConstraint>,
}

impl Question {
    fn of(
        op: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        mesh: Option<MeshArgument>,
        wanted: Option<&Bound<'_, PyAny>>,
    ) -> Answer<Question> {
        let inputs = items(inputs)?.map(|object| operand(&object?)).collect::<Answer<Vec<_>>>()?;
        let op = match (op.cast::<PyOp>(), op.cast::<PyString>()) {
            (Ok(op), _) => op.get().clone(),
            (Err(_), Ok(text)) => {
                let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.sharding.shape()).collect();
                PyOp::standard(&words(text)?, &shapes)?
            }
            (Err(_), Err(_)) => {
                let found = type_name(op);
                return Err(PyTypeError::new_err(format!(
                    "expected an Op, or a text such as 'softmax(dim=1)', found {found}"
                ))
                .into());
            }
        };
        let mesh = mesh.map(|mesh| mesh.0).or_else(|| inputs.first().map(|x| x.sharding.mesh().clone()));
        let reason = || format!("{} has no inputs that determine its mesh; give `mesh`", op.op.name());
        let mesh = mesh.ok_or_else(|| refused("usage", reason()))?;
        let constraints = wanted.map_or_else(|| Ok(Vec::new()), |wanted| constraints(wanted, &op, &mesh))?;
        Ok(Question { op, mesh, inputs, constraints })
    }

    fn answered(&self, choice: OpSharding) -> PyChoice {
        PyChoice { choice, inputs: self.inputs.clone(), mesh: self.mesh.clone() }
    }
}

/// Propagates shardings through ops on one network: `Propagator("h100")`.
#[pyclass(frozen, eq, name = "Propagator", module = "reshard")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PyPropagator(Propagator);

#[pymethods]
impl PyPropagator {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyPropagator>("pickle its planner and its budget")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// A propagator for a network; `budget` limits the search over strategies, and 0 is unlimited.
    #[new]
    #[pyo3(signature = (topology=None, *, planner=None, budget=None))]
    fn new(
        topology: Option<TopologyArgument>,
        planner: Option<&PyPlanner>,
        #[pyo3(from_py_with = number_if_any)] budget: Option<u64>,
    ) -> PyPropagator {
        let planner = planner.map_or_else(Planner::new, |planner| planner.rust().clone());
        let planner = topology.map_or(planner.clone(), |topology| planner.topology(topology.0));
        let propagator = Propagator::new().with_planner(planner);
        PyPropagator(match budget {
            None => propagator,
            Some(0) => propagator.with_budget(SearchBudget::UNLIMITED),
            Some(work) => propagator.with_budget(SearchBudget::new(work)),
        })
    }

    fn __repr__(&self) -> String {
        format!("<Propagator, budget {}>", self.0.budget())
    }

    /// The limit of the search over strategies, as text; `none` is unlimited.
    #[getter]
    fn budget(&self) -> String {
        self.0.budget().to_string()
    }

    /// The cheapest strategy: least cost of redistributing the inputs, plus the penalty of the outputs.
    #[pyo3(signature = (op, inputs, constraint=None, *, mesh=None))]
    fn propagate(
        &self,
        py: Python<'_>,
        op: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        constraint: Option<&Bound<'_, PyAny>>,
        mesh: Option<MeshArgument>,
    ) -> Answer<PyChoice> {
        let asked = Question::of(op, inputs, mesh, constraint)?;
        let choice = stoppable(py, || {
            self.0.propagate(&asked.op.op, &asked.mesh, &asked.inputs, &asked.constraints)
        })??;
        Ok(asked.answered(choice))
    }

    /// The cheapest strategies, best first: at least one, at most `limit`.
    #[pyo3(signature = (op, inputs, limit, constraint=None, *, mesh=None))]
    fn cheapest(
        &self,
        py: Python<'_>,
        op: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] limit: usize,
        constraint: Option<&Bound<'_, PyAny>>,
        mesh: Option<MeshArgument>,
    ) -> Answer<Vec<PyChoice>> {
        let asked = Question::of(op, inputs, mesh, constraint)?;
        let all = stoppable(py, || {
            self.0.cheapest(&asked.op.op, &asked.mesh, &asked.inputs, &asked.constraints, limit)
        })??;
        Ok(all.into_iter().map(|choice| asked.answered(choice)).collect())
    }

    /// The outputs if no input may be redistributed.
    ///
    /// Where no strategy takes the inputs as they are, the error lists the cheapest redistributions.
    #[pyo3(signature = (op, inputs, *, mesh=None))]
    fn explicit(
        &self,
        py: Python<'_>,
        op: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        mesh: Option<MeshArgument>,
    ) -> Answer<PyChoice> {
        let asked = Question::of(op, inputs, mesh, None)?;
        let choice = stoppable(py, || self.0.explicit(&asked.op.op, &asked.mesh, &asked.inputs))??;
        Ok(asked.answered(choice))
    }
}

/// The cheapest strategy of an op for inputs of the given shardings.
///
/// An op as text takes its shapes from them.
///
/// The constraint of an output is `"any"`, `"reduced"` (partial values cost their reduction), a sharding, or
/// a sharding with a penalty; a list has one of these for each output.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "keywords of Python")]
#[pyo3(signature = (op, inputs, constraint=None, *, mesh=None, topology=None, planner=None, budget=None))]
fn propagate(
    py: Python<'_>,
    op: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    constraint: Option<&Bound<'_, PyAny>>,
    mesh: Option<MeshArgument>,
    topology: Option<TopologyArgument>,
    planner: Option<&PyPlanner>,
    #[pyo3(from_py_with = number_if_any)] budget: Option<u64>,
) -> Answer<PyChoice> {
    let reduced = PyString::new(py, "reduced").into_any();
    let constraint = Some(constraint.unwrap_or(&reduced));
    PyPropagator::new(topology, planner, budget).propagate(py, op, inputs, constraint, mesh)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOperandMove>()?;
    module.add_class::<PyChoice>()?;
    module.add_class::<PyPropagator>()?;
    module.add_function(wrap_pyfunction!(propagate, module)?)
}
