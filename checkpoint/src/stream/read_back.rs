//! Verification of written files: they are read and compared with the checksums.

use std::collections::HashMap;

use reshard_sharding::Region;

use crate::error::Error;
use crate::formats::dcp::written::Chunk;
use crate::formats::objects_file::Placed;
use crate::job::decision::Move;
use crate::model::checkpoint::{Checkpoint, Data, Tensor};
use crate::stream::Sums;
use crate::stream::files::Files;

impl Files {
    /// Reads everything that was written, as a user would open it, and compares it with the checksums.
    pub(super) fn read_back(
        &self,
        moves: &[Move<'_>],
        sums: &[Sums],
        objects: &[Placed<'_>],
    ) -> Result<(), Error> {
        let told = |result: Result<Checkpoint, Error>| {
            result.map_err(|error| Error::verification(format!("the output cannot be read: {error}")))
        };
        let mut opened = Vec::new();
        if let Some((staging, _)) = &self.directory {
            let mut ranks = told(Checkpoint::open(Some(&staging.path())))?;
            let known: HashMap<&str, u64> =
                objects.iter().map(|placed| (placed.object.name(), placed.sum)).collect();
            if known.len() != ranks.objects.len() {
                let (found, wrote) = (ranks.objects.len(), known.len());
                let message = format!("the output lists {found} non-tensor entries, not {wrote}");
                return Err(Error::verification(message));
            }
            // Objects are compared with the checksums of the input bytes, even if these are not a valid
            // archive.
            ranks.archives.retain(|archive| !archive.is_object);
            for object in &mut ranks.objects {
                object.sum = known.get(&object.name[..]).copied();
            }
            let of_moves = sums_of(moves, sums);
            for found in &mut ranks.tensors {
                if let Some(sums) = of_moves.get(&found.name[..]).filter(|sums| !sums.chunks.is_empty()) {
                    found.sums = of_chunks(found, sums).into_iter().map(Some).collect();
                }
            }
            opened.push(ranks);
        }
        if let Some((_, made)) = &self.gathered {
            let mut whole = told(Checkpoint::open(Some(&made.path)))?;
            let of_moves = sums_of(moves, sums);
            for found in &mut whole.tensors {
                found.sums = of_moves.get(&found.name[..]).map(|sums| Some(sums.whole)).into_iter().collect();
            }
            opened.push(whole);
        }
        for checkpoint in opened {
            if let Some(problem) = checkpoint.verify(&mut ())?.problems.into_iter().next() {
                return Err(Error::verification(format!("the output is wrong: {problem}")));
            }
        }
        Ok(())
    }
}

/// Returns the checksums of the written tensors, by name.
fn sums_of<'a>(moves: &'a [Move<'_>], sums: &'a [Sums]) -> HashMap<&'a str, &'a Sums> {
    moves.iter().zip(sums).map(|(tensor, sums)| (&tensor.tensor.name[..], sums)).collect()
}

/// Returns the checksums of a written tensor, in the order of its chunks in the opened checkpoint.
fn of_chunks(found: &Tensor, sums: &Sums) -> Vec<u64> {
    let Data::Chunks { placed, .. } = &found.data else { return sums.shards.clone() };
    let start = |chunk: &Chunk| chunk.start.clone();
    let known: HashMap<Vec<usize>, u64> =
        sums.chunks.iter().zip(&sums.shards).map(|((chunk, _), sum)| (start(chunk), *sum)).collect();
    let begins = |region: &Region| region.dims.iter().map(|dim| dim.first().map_or(0, |x| x.start)).collect();
    // A chunk that was not written gets the checksum 0, which does not match.
    placed
        .regions
        .iter()
        .map(|region| known.get::<Vec<usize>>(&begins(region)).copied().unwrap_or(0))
        .collect()
}
