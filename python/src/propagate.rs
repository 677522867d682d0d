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

/// What is wanted of outputs.
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

/// Of one output: None, "any", "reduced", a sharding, or a sharding and what any other costs more.
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
            "what is wanted of an output is 'any', 'reduced', a Sharding, or a pair of one and a penalty in microseconds, not {}",
            type_name(object)
        ))
        .into());
    };
    match constraint(&wanted, shape, mesh)? {
        OutputConstraint::Exactly(sharding) => Ok(OutputConstraint::Prefer { sharding, penalty_us }),
        OutputConstraint::Any | OutputConstraint::Reduced | OutputConstraint::Prefer { .. } => {
            Err(refused("usage", "a penalty is of a sharding that is preferred"))
        }
    }
}

/// How an operand gets where it has to be.
#[pyclass(frozen, name = "OperandMove", module = "reshard")]
pub(crate) struct PyOperandMove {
    /// Which operand: `input 0` or `output 0`.
    #[pyo3(get)]
    operand: String,
    /// What it was.
    #[pyo3(get)]
    from_: PySharding,
    /// What it becomes.
    #[pyo3(get)]
    to: PySharding,
    /// The bytes that the worst rank receives.
    #[pyo3(get)]
    received_bytes: u64,
    /// What it costs, in microseconds.
    #[pyo3(get)]
    cost_us: f64,
    /// The steps of its plan, by what kind of operation they are.
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

/// A strategy for every axis, what the inputs become for it, and what comes out.
#[pyclass(frozen, name = "Choice", module = "reshard")]
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
        format!("<Choice {inputs} -> {outputs}, {:.1} us>", self.choice.cost_us)
    }

    fn __str__(&self) -> String {
        self.describe().join("\n")
    }

    /// What each input has to be.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shardings(py, self.choice.inputs.iter())
    }

    /// What each output is, after what was wanted of it.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shardings(py, self.choice.outputs.iter())
    }

    /// What the op itself makes of each output, before what was wanted of it.
    #[getter]
    fn made<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shardings(py, self.choice.computed())
    }

    /// The strategy of each axis with more than one rank, by its name; none of a view.
    #[getter]
    fn strategies(&self) -> Vec<(String, String)> {
        let name = |axis: &reshard_sharding::SubAxis| axis.printed(self.mesh.axes());
        self.choice.strategies.iter().map(|(axis, strategy)| (name(axis), strategy.to_string())).collect()
    }

    /// The axes for whose strategy the op has to know which part of the whole a rank holds.
    #[getter]
    fn regions(&self) -> Vec<String> {
        self.choice.regions().map(|axis| axis.printed(self.mesh.axes())).collect()
    }

    /// What is redistributed, inputs first.
    #[getter]
    fn moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
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

    /// What all plans cost together, and the penalty of outputs that are not as preferred, in microseconds.
    #[getter]
    fn cost_us(&self) -> f64 {
        self.choice.cost_us
    }

    /// The bytes that the worst rank of each plan receives, added up.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.choice.received_bytes()
    }

    /// How many steps of all plans communicate.
    #[getter]
    fn communicating_steps(&self) -> usize {
        self.choice.communicating_steps()
    }

    /// Whether a budget ran out: it is the best of what was looked at, and not surely the cheapest.
    #[getter]
    fn is_exhausted(&self) -> bool {
        self.choice.is_budget_exhausted()
    }

    /// One line for each input: what it is and what it becomes.
    fn describe(&self) -> Vec<String> {
        self.choice.describe(&self.inputs)
    }
}

/// What is asked: an op, a mesh, inputs and constraints.
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
                    "an op is an Op, or the text of one such as 'softmax(dim=1)', not {found}"
                ))
                .into());
            }
        };
        let mesh = mesh.map(|mesh| mesh.0).or_else(|| inputs.first().map(|x| x.sharding.mesh().clone()));
        let reason = || format!("{} has no inputs, whose mesh it would be on: say mesh=", op.op.name());
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
        not_pickled::<PyPropagator>("pickle its planner and its budget, and make it again")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// For a network; `budget` is how much a search over strategies looks at, and 0 is without a limit.
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

    /// How much a search over strategies looks at, as text; `none` is without a limit.
    #[getter]
    fn budget(&self) -> String {
        self.0.budget().to_string()
    }

    /// The cheapest strategy: least cost of redistributing the inputs, plus what is wanted of the outputs.
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

    /// The cheapest strategies, best first: at least one, at most `most`.
    #[pyo3(signature = (op, inputs, most, constraint=None, *, mesh=None))]
    fn advise(
        &self,
        py: Python<'_>,
        op: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] most: usize,
        constraint: Option<&Bound<'_, PyAny>>,
        mesh: Option<MeshArgument>,
    ) -> Answer<Vec<PyChoice>> {
        let asked = Question::of(op, inputs, mesh, constraint)?;
        let all = stoppable(py, || {
            self.0.cheapest(&asked.op.op, &asked.mesh, &asked.inputs, &asked.constraints, most)
        })??;
        Ok(all.into_iter().map(|choice| asked.answered(choice)).collect())
    }

    /// What comes out if no input may be redistributed; refused with the cheapest ways out where no strategy takes them as they are.
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

/// The strategy of least cost for an op on inputs that lie somehow; the text of an op is one on inputs of their shapes.
///
/// Of outputs is wanted `"any"`, `"reduced"` (terms cost what reducing them would), a sharding, a sharding with a penalty, or a list
/// with one of these for each.
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
