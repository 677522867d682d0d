//! The encoder as a program: `encoder.txt`, on a mesh of any size.

use reshard_ops::rules::Table;
use reshard_program::{Elaborator, Graph, Moves, Program};

use crate::Error;

/// The text of the program.
pub const TEXT: &str = include_str!("../encoder.txt");

/// The tokens of the sentences, padded.
pub const IDS: &str = "ids";
/// What is added to the scores of a token: 0, or for padding the least number.
pub const MASK: &str = "mask";
/// The last hidden state.
pub const HIDDEN: &str = "hidden";

/// The program on so many ranks. Nothing is moved that is not written.
pub fn program(dp: usize, tp: usize) -> Result<Program, Error> {
    let graph = Graph::parse_with_axes(Table::standard().into(), TEXT, &[("dp", dp), ("tp", tp)])?;
    Ok(Elaborator::new().moves(Moves::Written).elaborate(&graph)?)
}

/// What the checkpoint calls a parameter of the program: `w_3` is in layer 3.
pub fn stored_name(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((of, layer)) if layer.bytes().all(|c| c.is_ascii_digit()) => {
            format!("encoder.layer.{layer}.{of}")
        }
        Some(_) | None => name.to_owned(),
    }
}
