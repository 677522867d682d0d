//! A training step of 24 transformer layers: parsing, differentiation, types, and the report.

use reshard_program::{ComputeRates, Error, Graph, ImplicitRedistribution, ShardingSolver};

/// The step as a program, with all redistributions of forward; those of backward are chosen by the solver.
pub const TEXT: &str = include_str!("../layers.txt");

/// The last stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The text is parsed.
    Read,
    /// It is differentiated and typed, and every redistribution of backward is chosen.
    Checked,
    /// Its communication, computation and memory are known.
    Reported,
}

impl Until {
    /// All stages, in order.
    pub const ALL: [Until; 3] = [Until::Read, Until::Checked, Until::Reported];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Until::Read => "layers_read",
            Until::Checked => "layers_checked",
            Until::Reported => "layers_reported",
        }
    }

    /// Runs up to this stage from scratch, and returns a size of its result.
    ///
    /// The size is the number of values, statements or redistributions.
    pub fn run(self) -> Result<usize, Error> {
        let graph: Graph = TEXT.parse()?;
        if self == Until::Read {
            return Ok(graph.values());
        }
        let program =
            ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::LocalOnly).solve(&graph)?;
        if self == Until::Checked {
            return Ok(program.statements().len());
        }
        Ok(program.report(&ComputeRates::uniform()).redistributions.len())
    }
}
