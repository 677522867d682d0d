//! Planners, with their network and options.

use std::sync::{Arc, LazyLock};

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use reshard_planner::{Arithmetic, Explanation, Objective, PlanCache, Planner, SearchBudget, Topology};
use reshard_sharding::Sharding;

use crate::arguments::type_name;
use crate::dtype::DTypeArgument;
use crate::failure::{Answer, Failure, refused};
use crate::group::{PatternArgument, PyGroupPattern};
use crate::numbers::number_if_any;
use crate::plan::PyPlan;
use crate::sequences::listed_if_any;
use crate::sharding::PySharding;
use crate::stop::stoppable;
use crate::texts::{text, words};
use crate::topology::{PyTopology, TopologyArgument, pickled_profile};
use crate::value::hash_of;

/// The number of plans that a planner caches.
const KEPT: usize = 4096;

/// The pickle of a planner: its settings, and the profile of a network that has no notation.
type Pickled = (String, Option<String>);

/// A planner for one network and one objective, with a cache of its plans.
///
/// The objective is time, bytes or peak; `max_peak_bytes` limits the bytes of any rank; only the given
/// `groups` are used; a `deterministic` planner reduces in one order; the arithmetic is that of kernels or of
/// a framework; the budget is a number of units of work, or "none".
#[pyclass(frozen, eq, name = "Planner", module = "reshard")]
pub(crate) struct PyPlanner {
    planner: Planner,
    cache: PlanCache,
}

impl PartialEq for PyPlanner {
    fn eq(&self, other: &PyPlanner) -> bool {
        self.planner == other.planner
    }
}

/// A budget: a number of units of work, or its notation.
struct BudgetArgument(SearchBudget);

impl<'py> FromPyObject<'_, 'py> for BudgetArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<BudgetArgument> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(BudgetArgument(words(&text)?.parse().map_err(Failure::from)?));
        }
        object.extract().map(|work| BudgetArgument(SearchBudget::new(work))).map_err(|e| {
            let units = format!("expected a budget of 0 to {} units of work, or 'none', found", u64::MAX);
            let py = object.py();
            if e.is_instance_of::<PyOverflowError>(py) {
                refused(
                    "number",
                    format!(
                        "{units} {}",
                        object.str().map_or_else(
                            |_| "a number with too many digits".to_owned(),
                            |text| text.to_string()
                        )
                    ),
                )
                .into()
            } else {
                PyTypeError::new_err(format!("{units} {}", type_name(&object)))
            }
        })
    }
}

impl PyPlanner {
    pub(crate) fn new(planner: Planner) -> PyPlanner {
        PyPlanner { planner, cache: PlanCache::new(KEPT) }
    }

    /// Makes a planner with these options.
    fn of(
        topology: Option<TopologyArgument>,
        objective: Option<&str>,
        max_peak_bytes: Option<u64>,
        groups: Option<Vec<PatternArgument>>,
        deterministic: bool,
        arithmetic: Option<&str>,
        budget: Option<BudgetArgument>,
    ) -> Answer<Planner> {
        let mut planner = Planner::new().deterministic(deterministic);
        if let Some(topology) = topology {
            planner = planner.topology(topology.0);
        }
        if let Some(objective) = objective {
            planner = planner.objective(objective.parse::<Objective>()?);
        }
        if let Some(bytes) = max_peak_bytes {
            planner = planner.max_peak_bytes(bytes);
        }
        if let Some(groups) = groups {
            planner = planner.with_groups(groups.into_iter().map(|group| group.0));
        }
        if let Some(arithmetic) = arithmetic {
            planner = planner.arithmetic(arithmetic.parse::<Arithmetic>()?);
        }
        Ok(match budget {
            None => planner,
            Some(BudgetArgument(budget)) => planner.budget(budget),
        })
    }

    /// The planner in Rust.
    pub(crate) fn rust(&self) -> &Planner {
        &self.planner
    }

    /// The arguments that differ from the default.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let (options, default) = (self.planner.options(), Planner::new());
        let mut arguments = Vec::new();
        if options.cost_model() != default.options().cost_model() {
            arguments.push(format!("topology='{}'", options.cost_model()));
        }
        if options.objective() != default.options().objective() {
            arguments.push(format!("objective='{}'", options.objective()));
        }
        if let Some(bytes) = options.max_peak_bytes() {
            arguments.push(format!("max_peak_bytes={bytes}"));
        }
        if let Some(groups) = options.groups() {
            let groups: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
            arguments.push(format!("groups=[{}]", groups.join(", ")));
        }
        if options.is_deterministic() {
            arguments.push("deterministic=True".to_owned());
        }
        if options.arithmetic() != default.options().arithmetic() {
            arguments.push(format!("arithmetic='{}'", options.arithmetic()));
        }
        if options.budget() != default.options().budget() {
            arguments.push(format!("budget='{}'", options.budget()));
        }
        arguments
    }

    /// Reads a target: a sharding, or placements on the mesh of the source.
    fn target(from: &PySharding, to: &Bound<'_, PyAny>) -> Answer<Sharding> {
        if let Ok(to) = to.cast::<PySharding>() {
            return Ok(to.get().0.clone());
        }
        let Ok(text) = to.cast::<PyString>() else {
            let found = type_name(to);
            let reason = format!(
                "expected a target Sharding, or placements on the same mesh such as 'S(0),R', found {found}"
            );
            return Err(PyTypeError::new_err(reason).into());
        };
        Ok(Sharding::parse(from.0.mesh(), from.0.shape(), &words(text)?)?)
    }

    fn planned(
        &self,
        py: Python<'_>,
        from: &PySharding,
        to: &Bound<'_, PyAny>,
        dtype: DTypeArgument,
    ) -> Answer<PyPlan> {
        let to = PyPlanner::target(from, to)?;
        let plan = stoppable(py, || self.cache.plan(&self.planner, &from.0, &to, dtype.0))??;
        Ok(PyPlan::new(plan))
    }
}

#[pymethods]
impl PyPlanner {
    #[new]
    #[pyo3(signature = (*, topology=None, objective=None, max_peak_bytes=None, groups=None, deterministic=false, arithmetic=None, budget=None))]
    #[allow(clippy::too_many_arguments, reason = "one argument per option, all by keyword")]
    fn from_options(
        topology: Option<TopologyArgument>,
        #[pyo3(from_py_with = text)] objective: Option<&str>,
        #[pyo3(from_py_with = number_if_any)] max_peak_bytes: Option<u64>,
        #[pyo3(from_py_with = listed_if_any)] groups: Option<Vec<PatternArgument>>,
        deterministic: bool,
        #[pyo3(from_py_with = text)] arithmetic: Option<&str>,
        budget: Option<BudgetArgument>,
    ) -> Answer<PyPlanner> {
        let planner =
            PyPlanner::of(topology, objective, max_peak_bytes, groups, deterministic, arithmetic, budget)?;
        Ok(PyPlanner::new(planner))
    }

    /// The plan from one sharding to another of the same tensor, or to placements on the same mesh.
    #[pyo3(signature = (from_, to, dtype=DTypeArgument::F32))]
    fn plan(
        &self,
        py: Python<'_>,
        from_: &PySharding,
        to: &Bound<'_, PyAny>,
        dtype: DTypeArgument,
    ) -> Answer<PyPlan> {
        self.planned(py, from_, to, dtype)
    }

    /// The plan compared with the axis-by-axis one, and every candidate of the search.
    #[pyo3(signature = (from_, to, dtype=DTypeArgument::F32))]
    fn explain(
        &self,
        py: Python<'_>,
        from_: &PySharding,
        to: &PySharding,
        dtype: DTypeArgument,
    ) -> Answer<PyExplanation> {
        Ok(PyExplanation(stoppable(py, || self.planner.explain(&from_.0, &to.0, dtype.0))??))
    }

    /// Modelled time of the plan in microseconds, without computing its steps where that is possible.
    #[pyo3(signature = (from_, to, dtype=DTypeArgument::F32))]
    fn cost_us(
        &self,
        py: Python<'_>,
        from_: &PySharding,
        to: &PySharding,
        dtype: DTypeArgument,
    ) -> Answer<f64> {
        Ok(stoppable(py, || self.planner.cost_us(&from_.0, &to.0, dtype.0))??)
    }

    /// Time in us that no plan can beat.
    #[pyo3(signature = (from_, to, dtype=DTypeArgument::F32))]
    fn lower_bound_us(
        &self,
        py: Python<'_>,
        from_: &PySharding,
        to: &PySharding,
        dtype: DTypeArgument,
    ) -> Answer<f64> {
        Ok(stoppable(py, || self.planner.lower_bound_us(&from_.0, &to.0, dtype.0))??)
    }

    /// The axis-by-axis plan, or None between two meshes and where the ranks of a step do not form a group.
    #[pyo3(signature = (from_, to, dtype=DTypeArgument::F32))]
    fn axis_by_axis(
        &self,
        py: Python<'_>,
        from_: &PySharding,
        to: &PySharding,
        dtype: DTypeArgument,
    ) -> Answer<Option<PyPlan>> {
        let greedy = stoppable(py, || self.planner.axis_by_axis(&from_.0, &to.0, dtype.0))??;
        let Some(greedy) = greedy else { return Ok(None) };
        let origin = stoppable(py, || self.cache.plan(&self.planner, &from_.0, &to.0, dtype.0))??;
        Ok(Some(PyPlan::greedy(origin, greedy)))
    }

    /// The groups that a plan would use if they existed, each with the microseconds that it would save.
    fn group_savings(&self, py: Python<'_>, plan: &PyPlan) -> Answer<Vec<(PyGroupPattern, f64)>> {
        let savings = stoppable(py, || self.planner.group_savings(plan.plan()))??;
        Ok(savings.into_iter().map(|(group, us)| (PyGroupPattern(group), us)).collect())
    }

    /// The number of cached plans.
    #[getter]
    fn cached(&self) -> usize {
        self.cache.len()
    }

    /// The network.
    #[getter]
    fn topology(&self) -> PyTopology {
        PyTopology(network(&self.planner).clone())
    }

    /// The objective: time, bytes or peak.
    #[getter]
    fn objective(&self) -> &'static str {
        self.planner.options().objective().as_str()
    }

    /// The limit of the bytes of any rank, or None.
    #[getter]
    fn max_peak_bytes(&self) -> Option<u64> {
        self.planner.options().max_peak_bytes()
    }

    /// The only groups that may be used, or None for all.
    #[getter]
    fn groups(&self) -> Option<Vec<PyGroupPattern>> {
        self.planner.options().groups().map(|groups| groups.iter().cloned().map(PyGroupPattern).collect())
    }

    /// `True` if every reduction combines its operands in a fixed order.
    #[getter]
    fn deterministic(&self) -> bool {
        self.planner.options().is_deterministic()
    }

    /// The arithmetic of reductions: kernels or framework.
    #[getter]
    fn arithmetic(&self) -> &'static str {
        self.planner.options().arithmetic().as_str()
    }

    /// The limit of the search, in units of work, or None if it is unlimited.
    #[getter]
    fn budget(&self) -> Option<u64> {
        Some(self.planner.options().budget())
            .filter(|&budget| budget != SearchBudget::UNLIMITED)
            .map(SearchBudget::work)
    }

    fn __repr__(&self) -> String {
        format!("Planner({})", self.arguments().join(", "))
    }

    /// The planner of a text, such as "topology=h100 objective=peak": settings as `name=value`, in any order.
    #[staticmethod]
    fn parse(text: &Bound<'_, PyString>) -> Answer<PyPlanner> {
        Ok(PyPlanner::new(words(text)?.parse::<Planner>()?))
    }

    fn __str__(&self) -> String {
        self.planner.to_string()
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.planner.to_string())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Pickled)> {
        let read = py.import("reshard._reshard")?.getattr("_read_planner")?;
        let topology = network(&self.planner);
        let profile = pickled_profile(topology);
        // The notation of curves, which the profile has, cannot be read.
        let settings = match profile {
            Some(_) => self.planner.clone().topology(topology.lines()).to_string(),
            None => self.planner.to_string(),
        };
        Ok((read, (settings, profile)))
    }
}

/// Returns the network of a planner.
fn network(planner: &Planner) -> &Topology {
    planner.options().topology().expect("Python has no other cost models")
}

#[pyfunction]
fn _read_planner(
    #[pyo3(from_py_with = text)] settings: &str,
    #[pyo3(from_py_with = text)] profile: Option<&str>,
) -> Answer<PyPlanner> {
    let planner = settings.parse::<Planner>()?;
    Ok(PyPlanner::new(match profile {
        Some(profile) => planner.topology(PyTopology::of_profile(profile)?.0),
        None => planner,
    }))
}

/// A plan compared with the axis-by-axis one; its text is the explanation.
#[pyclass(frozen, name = "Explanation", module = "reshard")]
pub(crate) struct PyExplanation(Explanation);

#[pymethods]
impl PyExplanation {
    /// The plan.
    #[getter]
    fn plan(&self) -> PyPlan {
        PyPlan::new(Arc::new(self.0.plan.clone()))
    }

    /// The axis-by-axis plan, or None between two meshes and where the ranks of a step do not form a group.
    #[getter]
    fn greedy(&self) -> Option<PyPlan> {
        let greedy = self.0.greedy.clone()?;
        Some(PyPlan::greedy(Arc::new(self.0.plan.clone()), greedy))
    }

    /// Every candidate of the search, in order, as text.
    #[getter]
    fn candidates(&self) -> Vec<String> {
        self.0.candidates.iter().map(ToString::to_string).collect()
    }

    /// The index of the chosen candidate, or None if the plan is empty.
    #[getter]
    fn chosen(&self) -> Option<usize> {
        self.0.chosen
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Explanation of {} -> {}>", self.0.plan.from(), self.0.plan.to())
    }
}

/// The plan from one sharding to another of the same tensor, or to placements on the same mesh.
///
/// Options are those of `Planner`. The last few thousand plans are cached.
#[pyfunction]
#[pyo3(signature = (from_, to, dtype=DTypeArgument::F32, *, topology=None, objective=None, max_peak_bytes=None, groups=None, deterministic=false, arithmetic=None, budget=None))]
#[allow(clippy::too_many_arguments, reason = "one argument per option, all by keyword")]
fn plan(
    py: Python<'_>,
    from_: &PySharding,
    to: &Bound<'_, PyAny>,
    dtype: DTypeArgument,
    topology: Option<TopologyArgument>,
    #[pyo3(from_py_with = text)] objective: Option<&str>,
    #[pyo3(from_py_with = number_if_any)] max_peak_bytes: Option<u64>,
    #[pyo3(from_py_with = listed_if_any)] groups: Option<Vec<PatternArgument>>,
    deterministic: bool,
    #[pyo3(from_py_with = text)] arithmetic: Option<&str>,
    budget: Option<BudgetArgument>,
) -> Answer<PyPlan> {
    static SHARED: LazyLock<PlanCache> = LazyLock::new(|| PlanCache::new(KEPT));
    let planner =
        PyPlanner::of(topology, objective, max_peak_bytes, groups, deterministic, arithmetic, budget)?;
    let to = PyPlanner::target(from_, to)?;
    Ok(PyPlan::new(stoppable(py, || SHARED.plan(&planner, &from_.0, &to, dtype.0))??))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPlanner>()?;
    module.add_class::<PyExplanation>()?;
    module.add_function(wrap_pyfunction!(_read_planner, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)
}
