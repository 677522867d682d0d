//! The encoder as a program: `encoder.txt`, on a mesh of any size.

use reshard_ops::rules::OpTable;
use reshard_program::{Graph, ImplicitRedistribution, Program, ShardingSolver};

/// The text of the program.
pub const TEXT: &str = include_str!("../encoder.txt");

/// The input of tokens, padded.
pub const IDS: &str = "ids";
/// The input that is added to the scores of a token: 0, or for padding the least number.
pub const MASK: &str = "mask";
/// The last hidden state.
pub const HIDDEN: &str = "hidden";

/// Returns the program on `dp` x `tp` ranks, without implicit redistributions.
pub fn program(dp: usize, tp: usize) -> reshard::Result<Program> {
    let graph = Graph::parse_with_axes(OpTable::standard().into(), TEXT, &[("dp", dp), ("tp", tp)])?;
    Ok(ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph)?)
}

/// Returns the name in the checkpoint of a parameter of the program: `w_3` is in layer 3.
pub fn stored_name(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((of, layer)) if layer.bytes().all(|c| c.is_ascii_digit()) => {
            format!("encoder.layer.{layer}.{of}")
        }
        Some(_) | None => name.to_owned(),
    }
}
