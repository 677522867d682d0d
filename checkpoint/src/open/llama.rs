//! Files of Meta's Llama: `consolidated.00.pth`, .., one for each rank of tensor parallelism.
//!
//! They do not describe their parts, but the placements follow from the names. The token embedding is split by
//! columns up to Llama 2 and by rows since Llama 3; the length of `norm.weight` decides which it is.

use std::path::Path;

use crate::error::Error;
use crate::model::checkpoint::Checkpoint;
use crate::open::source::SourceSpec;
use crate::open::{by_content, by_source};

/// The placements by name, but that of the token embedding.
const PLACEMENTS: [(&str, &str); 12] = [
    ("output.weight", "S(0)"),
    ("norm.weight", "R"),
    ("rope.freqs", "R"),
    ("*.attention.wq.weight", "S(0)"),
    ("*.attention.wk.weight", "S(0)"),
    ("*.attention.wv.weight", "S(0)"),
    ("*.attention.wo.weight", "S(1)"),
    ("*.feed_forward.w1.weight", "S(0)"),
    ("*.feed_forward.w2.weight", "S(1)"),
    ("*.feed_forward.w3.weight", "S(0)"),
    ("*.attention_norm.weight", "R"),
    ("*.ffn_norm.weight", "R"),
];

const EMBEDDING: &str = "tok_embeddings.weight";

/// Returns the number of ranks, if some names are those of files of ranks; an error if there are gaps.
pub(super) fn ranks(dir: &Path, names: &[String]) -> Result<Option<usize>, Error> {
    let rank = |name: &String| {
        let digits = name.strip_prefix("consolidated.")?.strip_suffix(".pth")?;
        digits.parse::<usize>().ok().filter(|rank| format!("{rank:02}") == digits)
    };
    let mut ranks: Vec<usize> = names.iter().filter_map(rank).collect();
    ranks.sort_unstable();
    match ranks.iter().enumerate().find(|(expected, rank)| expected != *rank) {
        None => Ok(Some(ranks.len()).filter(|ranks| *ranks > 1)),
        Some((missing, last)) => {
            let message = format!(
                "{} has consolidated.{last:02}.pth, but not consolidated.{missing:02}.pth",
                dir.display()
            );
            Err(Error::refused("rank_files", message))
        }
    }
}

/// Opens the files of all ranks.
pub(super) fn open(dir: &Path, ranks: usize) -> Result<Checkpoint, Error> {
    let first = by_content::open(&dir.join("consolidated.00.pth"))?;
    let shape = |name: &str| first.tensors.iter().find(|one| one.name == name).map(|one| &one.shape[..]);
    let (embedding, dim) = (shape(EMBEDDING), shape("norm.weight"));
    let by_rows = match (embedding, dim) {
        (Some([_, columns]), Some([dim])) => {
            // A file may be missing at the end: then the columns of all files are not all columns.
            if columns != dim && columns.checked_mul(ranks) != Some(*dim) {
                let message = format!(
                    "{}: `{EMBEDDING}` has {columns} columns in each of {ranks} files, and `norm.weight` has {dim}; a file is missing, or it is not of Llama: describe it with `--source FILE`",
                    dir.display()
                );
                return Err(Error::mismatch("rank_files", message));
            }
            columns == dim
        }
        _ => false,
    };
    let embedding = (EMBEDDING, if by_rows { "S(0)" } else { "S(1)" });
    let placements = PLACEMENTS.into_iter().chain([embedding]);
    let source = SourceSpec::of("consolidated.{tp:02}.pth", &format!("tp={ranks}"), placements)?;
    by_source::open(dir, &source).map_err(|error| {
        error.about(format!("{}, as files of Llama (`--source FILE` describes others)", dir.display()))
    })
}
