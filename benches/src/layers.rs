//! A training step of 24 transformer layers: read, differentiated and typed, and what it comes to.

use reshard_program::{ComputeRates, Error, Graph, ImplicitRedistribution, ShardingSolver};

/// The step as a program: every move of forward is written, those of backward are to be chosen.
pub const TEXT: &str = include_str!("../layers.txt");

/// How far it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its text is read.
    Read,
    /// It is differentiated and typed, and every move of backward chosen.
    Checked,
    /// What it communicates, computes and holds is known.
    Reported,
}

impl Until {
    /// All of them, each further than the one before.
    pub const ALL: [Until; 3] = [Until::Read, Until::Checked, Until::Reported];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Until::Read => "layers_read",
            Until::Checked => "layers_checked",
            Until::Reported => "layers_reported",
        }
    }

    /// Goes so far once, from nothing; how many values, items or moves there are then.
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
