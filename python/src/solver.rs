//! Sharding solver: the implicit redistributions that it may insert, and the costs by which it chooses.

use pyo3::prelude::*;
use reshard_planner::Planner;
use reshard_program::{ComputeRates, ImplicitRedistribution, ShardingSolver};

use crate::failure::Answer;
use crate::graph::PyGraph;
use crate::numbers::number_if_any;
use crate::planner::PyPlanner;
use crate::program::PyProgram;
use crate::rates::PyRates;
use crate::stop::stoppable;
use crate::texts::text;
use crate::topology::TopologyArgument;

/// Makes programs of graphs: `ShardingSolver("allow", topology="h100")`.
///
/// `implicit_redistribution` selects those that may be inserted: `"allow"` (all), `"local-only"` (those that
/// communicate in neither direction) or `"deny"` (none). Costs are those of a network and of compute
/// rates, which default to the network's; a `planner` has its own network and objective.
#[pyclass(frozen, name = "ShardingSolver", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyElaborator {
    pub(crate) solver: ShardingSolver,
    text: String,
}

impl PyElaborator {
    /// Returns the given solver, or one for the uniform network.
    pub(crate) fn or_new(given: Option<&PyElaborator>) -> ShardingSolver {
        given.map_or_else(ShardingSolver::new, |given| given.solver.clone())
    }
}

#[pymethods]
impl PyElaborator {
    #[new]
    #[pyo3(signature = (implicit_redistribution="allow", topology=None, *, planner=None, rates=None, beam_width=None))]
    fn new(
        #[pyo3(from_py_with = text)] implicit_redistribution: &str,
        topology: Option<TopologyArgument>,
        planner: Option<&PyPlanner>,
        rates: Option<&PyRates>,
        #[pyo3(from_py_with = number_if_any)] beam_width: Option<usize>,
    ) -> Answer<PyElaborator> {
        let which: ImplicitRedistribution = implicit_redistribution.parse()?;
        let mut text = format!("ShardingSolver('{which}'");
        let mut solver = ShardingSolver::new().implicit_redistribution(which);
        if let Some(TopologyArgument(topology)) = topology {
            text = format!("{text}, '{topology}'");
            solver = solver
                .rates(ComputeRates::for_topology(&topology))
                .planner(Planner::new().topology(topology));
        }
        if let Some(planner) = planner {
            text = format!("{text}, planner=Planner({})", planner.arguments().join(", "));
            solver = solver.planner(planner.rust().clone());
        }
        if let Some(rates) = rates {
            text =
                format!("{text}, rates=ComputeRates({:?}, {:?})", rates.0.ops_per_us, rates.0.memory_per_us);
            solver = solver.rates(rates.0);
        }
        if let Some(beam_width) = beam_width {
            text = format!("{text}, beam_width={beam_width}");
            solver = solver.beam_width(beam_width);
        }
        text.push(')');
        Ok(PyElaborator { solver, text })
    }

    fn __repr__(&self) -> &str {
        &self.text
    }

    /// The program of a graph.
    ///
    /// If the allowed redistributions do not suffice, the error lists what to write instead.
    fn solve(&self, py: Python<'_>, graph: &PyGraph) -> Answer<PyProgram> {
        let graph = graph.lock().clone();
        let program = stoppable(py, || self.solver.solve(&graph))??;
        Ok(PyProgram(std::sync::Arc::new(program)))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyElaborator>()
}
