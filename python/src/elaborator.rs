//! Elaboration: which moves may be made that nobody wrote, and by which costs the rest is chosen.

use pyo3::prelude::*;
use reshard_planner::Planner;
use reshard_program::{ComputeRates, ImplicitRedistribution, ShardingSolver};

use crate::failure::{Answer, refused};
use crate::graph::PyGraph;
use crate::numbers::number_if_any;
use crate::planner::PyPlanner;
use crate::program::PyProgram;
use crate::rates::PyRates;
use crate::stop::stoppable;
use crate::texts::text;
use crate::topology::TopologyArgument;

/// Makes programs of graphs: `Elaborator(moves="any", topology="h100")`.
///
/// `moves` is which moves may be made that nobody wrote: `"any"`, `"free"` (those that communicate in neither direction) or
/// `"written"` (none). Costs are those of a network and of rates of computing, which are the network's where they are not given; a `planner` has a network and an objective of its own.
#[pyclass(frozen, name = "Elaborator", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyElaborator {
    pub(crate) elaborator: ShardingSolver,
    text: String,
}

impl PyElaborator {
    /// What is given, or one for the uniform network.
    pub(crate) fn or_new(given: Option<&PyElaborator>) -> ShardingSolver {
        given.map_or_else(ShardingSolver::new, |given| given.elaborator.clone())
    }
}

#[pymethods]
impl PyElaborator {
    #[new]
    #[pyo3(signature = (moves="any", topology=None, *, planner=None, rates=None, most_states=None))]
    fn new(
        #[pyo3(from_py_with = text)] moves: &str,
        topology: Option<TopologyArgument>,
        planner: Option<&PyPlanner>,
        rates: Option<&PyRates>,
        #[pyo3(from_py_with = number_if_any)] most_states: Option<usize>,
    ) -> Answer<PyElaborator> {
        let which = match moves {
            "any" => ImplicitRedistribution::Allow,
            "free" => ImplicitRedistribution::LocalOnly,
            "written" => ImplicitRedistribution::Deny,
            other => {
                let reason = format!("moves is {other:?}, and should be \"any\", \"free\" or \"written\"");
                return Err(refused("usage", reason));
            }
        };
        let mut text = format!("Elaborator('{moves}'");
        let mut elaborator = ShardingSolver::new().implicit_redistribution(which);
        if let Some(TopologyArgument(topology)) = topology {
            text = format!("{text}, '{topology}'");
            elaborator = elaborator
                .rates(ComputeRates::for_topology(&topology))
                .planner(Planner::new().topology(topology));
        }
        if let Some(planner) = planner {
            text = format!("{text}, planner=Planner({})", planner.arguments().join(", "));
            elaborator = elaborator.planner(planner.rust().clone());
        }
        if let Some(rates) = rates {
            text = format!("{text}, rates=Rates({:?}, {:?})", rates.0.ops_per_us, rates.0.memory_per_us);
            elaborator = elaborator.rates(rates.0);
        }
        if let Some(most_states) = most_states {
            text = format!("{text}, most_states={most_states}");
            elaborator = elaborator.beam_width(most_states);
        }
        text.push(')');
        Ok(PyElaborator { elaborator, text })
    }

    fn __repr__(&self) -> &str {
        &self.text
    }

    /// The program of a graph; refused where nothing that is allowed leads there, with what to write instead.
    fn elaborate(&self, py: Python<'_>, graph: &PyGraph) -> Answer<PyProgram> {
        let graph = graph.lock().clone();
        let program = stoppable(py, || self.elaborator.solve(&graph))??;
        Ok(PyProgram(std::sync::Arc::new(program)))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyElaborator>()
}
