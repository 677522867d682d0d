//! Plans: the steps from one sharding to another.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use reshard_collectives::calls::{FrameworkGroups, RankCalls, SpmdProgram};
use reshard_draw::{Limits, notebook, plan as drawn_plan};
use reshard_planner::{Message, Plan, Planner};

use crate::calls::{PyOffers, PyRankCalls};
use crate::dtype::{DTypeArgument, PyDType};
use crate::engine;
use crate::failure::{Answer, refused};
use crate::group::PyGroupPattern;
use crate::json;
use crate::numbers::number;
use crate::planner::PyPlanner;
use crate::sequences::{listed, listed_if_any};
use crate::sharding::PySharding;
use crate::spmd::PySpmd;
use crate::step::{PyMessage, PyPhase, PyStep, steps};
use crate::stop::stoppable;
use crate::texts::text;
use crate::value::hash_of;

/// The derivation of a plan that is not the planner's direct answer.
#[derive(Clone, Debug)]
struct Detour {
    /// The plan whose request this answers.
    origin: Arc<Plan>,
    /// `true` if it is the axis-by-axis planner's.
    greedy: bool,
    /// The number of transpositions since.
    transposed: usize,
}

/// The steps from one sharding to another, such as `plan(from_, to, "f32")`.
#[pyclass(frozen, eq, name = "Plan", module = "reshard")]
#[derive(Clone)]
pub(crate) struct PyPlan {
    plan: Arc<Plan>,
    detour: Option<Box<Detour>>,
}

impl PyPlan {
    /// The planner's plan.
    pub(crate) fn new(plan: Arc<Plan>) -> PyPlan {
        PyPlan { plan, detour: None }
    }

    /// A plan of the axis-by-axis planner for the request of another plan.
    pub(crate) fn greedy(origin: Arc<Plan>, plan: Plan) -> PyPlan {
        PyPlan {
            plan: Arc::new(plan),
            detour: Some(Box::new(Detour { origin, greedy: true, transposed: 0 })),
        }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the plan that was requested, `true` if axis by axis, and the number of transpositions.
    fn made(&self) -> (&Plan, bool, usize) {
        match &self.detour {
            None => (&self.plan, false, 0),
            Some(detour) => (&detour.origin, detour.greedy, detour.transposed),
        }
    }

    fn turned(&self) -> Answer<PyPlan> {
        let detour = match &self.detour {
            None => Detour { origin: Arc::clone(&self.plan), greedy: false, transposed: 1 },
            Some(detour) => Detour { transposed: detour.transposed + 1, ..(**detour).clone() },
        };
        Ok(PyPlan { plan: Arc::new(self.plan.transposed()?), detour: Some(Box::new(detour)) })
    }
}

/// A plan is a pure function of its request.
impl PartialEq for PyPlan {
    fn eq(&self, other: &PyPlan) -> bool {
        let ((a, greedy, transposed), (b, greedy_too, transposed_too)) = (self.made(), other.made());
        (greedy, transposed) == (greedy_too, transposed_too)
            && (a.from(), a.to(), a.dtype(), a.options()) == (b.from(), b.to(), b.dtype(), b.options())
    }
}

#[pymethods]
impl PyPlan {
    /// The sharding before.
    #[getter]
    fn from_(&self) -> PySharding {
        PySharding(self.plan.from().clone())
    }

    /// The sharding after.
    #[getter]
    fn to(&self) -> PySharding {
        PySharding(self.plan.to().clone())
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.plan.dtype())
    }

    /// The planner with the options of this plan.
    #[getter]
    fn planner(&self) -> PyPlanner {
        PyPlanner::new(Planner::from(self.plan.options().clone()))
    }

    /// The steps in order; empty if every rank already holds its target.
    #[getter]
    fn steps(&self) -> Vec<PyStep> {
        steps(&self.plan)
    }

    fn __len__(&self) -> usize {
        self.plan.steps().len()
    }

    /// The number of steps in which ranks communicate.
    #[getter]
    fn communicating_steps(&self) -> usize {
        self.plan.communicating_steps()
    }

    /// The greatest total of bytes that any one rank receives.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.plan.received_bytes()
    }

    /// A lower bound of the bytes that the worst rank must receive; None if no simple bound is known.
    #[getter]
    fn lower_bound_bytes(&self) -> Option<u64> {
        self.plan.lower_bound_bytes()
    }

    /// Modelled time in us.
    #[getter]
    fn cost_us(&self) -> f64 {
        self.plan.cost_us()
    }

    /// Time in us that no plan can beat under the same model.
    #[getter]
    fn lower_bound_us(&self) -> f64 {
        self.plan.lower_bound_us()
    }

    /// The most bytes that any rank holds at one time.
    #[getter]
    fn peak_bytes(&self) -> u64 {
        self.plan.peak_bytes()
    }

    /// Bytes of the largest shard among source, target and intermediate shardings.
    #[getter]
    fn max_shard_bytes(&self) -> u64 {
        self.plan.max_shard_bytes()
    }

    /// `True` if the search budget ran out before all candidates were explored.
    #[getter]
    fn is_budget_exhausted(&self) -> bool {
        self.plan.is_budget_exhausted()
    }

    /// The groups that the communicating steps need, each once, in the order of first use.
    #[getter]
    fn groups(&self) -> Vec<PyGroupPattern> {
        self.plan.groups().into_iter().cloned().map(PyGroupPattern).collect()
    }

    /// All ranks that hold elements before or after, ascending.
    #[getter]
    fn ranks(&self) -> Vec<usize> {
        self.plan.ranks()
    }

    /// The phases of one rank, in order.
    fn phases(&self, py: Python<'_>, #[pyo3(from_py_with = number)] rank: usize) -> Answer<Vec<PyPhase>> {
        let phases = py.detach(|| self.plan.phases(rank))?;
        Ok(phases.into_iter().map(|(step, phase)| PyPhase { step, phase }).collect())
    }

    /// All messages of one rank to and from others: (step, `"send"` or `"receive"`, message).
    fn messages(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<Vec<(usize, &'static str, PyMessage)>> {
        let phases = py.detach(|| self.plan.phases(rank))?;
        let mut all = Vec::new();
        for (step, phase) in phases {
            let mut add = |way, messages: Vec<Message>| {
                let others = messages.into_iter().filter(|message| message.peer != rank);
                all.extend(others.map(|message| (step, way, PyMessage(message))));
            };
            add("send", phase.sends);
            add("receive", phase.receives);
        }
        Ok(all)
    }

    /// The transposed plan, for gradients: from the cotangent sharding of `to` to that of `from_`.
    fn transposed(&self, py: Python<'_>) -> Answer<PyPlan> {
        py.detach(|| self.turned())
    }

    /// Every candidate of the search, and the plan compared with that of the axis-by-axis planner, as text.
    fn explain(&self, py: Python<'_>) -> Answer<String> {
        let plan = &self.plan;
        if self.detour.is_some() {
            return Ok(plan.to_string());
        }
        let planner = Planner::from(plan.options().clone());
        Ok(stoppable(py, || {
            planner.explain(plan.from(), plan.to(), plan.dtype()).map(|text| text.to_string())
        })??)
    }

    /// The plan as one rank's calls of a framework, between strided views of its flat buffers.
    ///
    /// `offers` are the existing process groups, as `FrameworkGroups` takes them; without groups all transfers to
    /// other ranks are messages. `dtype` defaults to the plan's.
    #[pyo3(signature = (rank, offers=None, dtype=None))]
    fn calls(
        &self,
        #[pyo3(from_py_with = number)] rank: usize,
        offers: Option<&Bound<'_, PyAny>>,
        dtype: Option<DTypeArgument>,
    ) -> Answer<PyRankCalls> {
        let dtype = dtype.map_or(self.plan.dtype(), |dtype| dtype.0);
        let calls = match offers {
            Some(offers) => RankCalls::new(&self.plan, rank, dtype, &PyOffers::of(Some(offers))?.0)?,
            None => RankCalls::new(&self.plan, rank, dtype, &FrameworkGroups::none())?,
        };
        Ok(PyRankCalls::new(calls))
    }

    /// The plan as one program for all ranks, for frameworks that trace.
    ///
    /// It is rejected as `not_alike` if ranks differ by more than offsets.
    #[pyo3(signature = (dtype=None))]
    fn spmd(&self, py: Python<'_>, dtype: Option<DTypeArgument>) -> Answer<PySpmd> {
        let dtype = dtype.map_or(self.plan.dtype(), |dtype| dtype.0);
        Ok(PySpmd(Arc::new(py.detach(|| SpmdProgram::new(&self.plan, dtype))?)))
    }

    /// Executes the plan on the shards of `from_`, in the order of the mesh's ranks.
    ///
    /// Returns the shards of `to`.
    ///
    /// Every rank is a thread, and runs without the interpreter lock. Shards are C-contiguous arrays of the
    /// plan's type, or bytes; they are read without a copy. The results are arrays like the first shard, or
    /// `out`, which must not overlap the shards.
    #[pyo3(signature = (shards, out=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = listed)] shards: Vec<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = listed_if_any)] out: Option<Vec<Bound<'py, PyAny>>>,
    ) -> Answer<Bound<'py, PyList>> {
        engine::run(py, &self.plan, &shards, out)
    }

    /// The request as JSON text; the plan is computed again when the text is read.
    fn to_json(&self) -> Answer<String> {
        match self.detour {
            None => Ok(json::write(&*self.plan)?),
            Some(_) => Err(refused(
                "unsupported",
                "a greedy or transposed plan has no JSON; store the plan that the planner returned",
            )),
        }
    }

    /// Reads the text of `to_json`.
    ///
    /// With `greedy` the plan is the axis-by-axis one; it is then transposed `transposed` times.
    #[staticmethod]
    #[pyo3(signature = (text, *, greedy=false, transposed=0))]
    fn from_json(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] text: &str,
        greedy: bool,
        #[pyo3(from_py_with = number)] transposed: usize,
    ) -> Answer<PyPlan> {
        PyPlan::read(py, text, greedy, transposed)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String, bool, usize))> {
        let (origin, greedy, transposed) = self.made();
        let read = py.import("reshard._reshard")?.getattr("_read_plan")?;
        Ok((read, (json::write(origin)?, greedy, transposed)))
    }

    fn __hash__(&self) -> u64 {
        let (origin, greedy, transposed) = self.made();
        hash_of((origin.from(), origin.to(), origin.dtype(), greedy, transposed))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (origin, greedy, transposed) = self.made();
        let shown = |sharding: &reshard_sharding::Sharding| -> PyResult<String> {
            Ok(Bound::new(py, PySharding(sharding.clone()))?.repr()?.to_cow()?.into_owned())
        };
        let options = PyPlanner::new(Planner::from(origin.options().clone())).arguments();
        let (from, to, dtype) = (shown(origin.from())?, shown(origin.to())?, origin.dtype());
        let turned = ".transposed()".repeat(transposed);
        if greedy {
            return Ok(format!(
                "Planner({}).axis_by_axis({from}, {to}, '{dtype}'){turned}",
                options.join(", ")
            ));
        }
        let arguments = [vec![from, to, format!("'{dtype}'")], options].concat();
        Ok(format!("plan({}){turned}", arguments.join(", ")))
    }

    fn __str__(&self) -> String {
        self.plan.to_string()
    }

    /// The picture as text: the cost, and the shardings before and after every step.
    fn draw(&self, py: Python<'_>) -> String {
        py.detach(|| drawn_plan(&self.plan, None, Limits::USUAL).text(false))
    }

    /// The picture as SVG.
    fn svg(&self, py: Python<'_>) -> String {
        py.detach(|| drawn_plan(&self.plan, None, Limits::USUAL).svg())
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| notebook(|limits| drawn_plan(&self.plan, None, limits)))
    }
}

impl PyPlan {
    fn read(py: Python<'_>, text: &str, greedy: bool, transposed: usize) -> Answer<PyPlan> {
        let origin: Arc<Plan> = Arc::new(py.detach(|| json::read::<Plan>(text))?);
        let mut made = PyPlan::new(Arc::clone(&origin));
        if greedy {
            let planner = Planner::from(origin.options().clone());
            let plan = stoppable(py, || planner.axis_by_axis(origin.from(), origin.to(), origin.dtype()))??;
            let plan = plan
                .ok_or_else(|| refused("unsupported", "there is no axis-by-axis plan between two meshes"))?;
            made = PyPlan::greedy(origin, plan);
        }
        for _ in 0..transposed {
            made = made.turned()?;
        }
        Ok(made)
    }
}

#[pyfunction]
fn _read_plan(
    py: Python<'_>,
    #[pyo3(from_py_with = text)] text: &str,
    greedy: bool,
    #[pyo3(from_py_with = number)] transposed: usize,
) -> Answer<PyPlan> {
    PyPlan::read(py, text, greedy, transposed)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPlan>()?;
    module.add_function(wrap_pyfunction!(_read_plan, module)?)
}
