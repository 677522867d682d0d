//! Properties of programs, one file per concept.

use reshard_program::{Graph, Program, ShardingSolver};

/// Returns the solved program of a text, with implicit types and redistributions.
fn elaborated(text: &str) -> Program {
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    ShardingSolver::new().solve(&graph).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

mod again;
mod elements;
mod megatron;
mod meshes;
mod models;
mod norms;
mod notes;
mod one_rank;
mod parallelize;
mod pipeline;
mod report;
mod schedules;
mod strategies;
mod texts;
mod timeline;
