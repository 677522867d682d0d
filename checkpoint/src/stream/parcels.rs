//! Directories of safetensors files that store every element once: chunks with offsets, or an index.
//!
//! ```text
//! chunks, as PyTorch:    box k of a tensor on rank R    ->  shard-(R+1)-model-k-of-n.safetensors, with its offsets in the free texts
//! whole tensors:         in sequence                    ->  model-k-of-n.safetensors, a new file before one would exceed the limit
//! ```
//!
//! A name occurs once in a file, so a rank has as many files as it has boxes of a tensor; most have one. The
//! assignment is computed before the files are made, because the headers contain it.

use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::Mesh;

use crate::error::Error;
use crate::formats::dcp::in_safetensors::{self, Offsets};
use crate::formats::dcp::written::{self, Chunk};
use crate::formats::index;
use crate::job::decision::Move;
use crate::model::placed::{Known, Placed};
use crate::model::stored::FreeTexts;

/// The largest number of files that are written.
const MOST_FILES: usize = 1 << 16;

/// The files of a directory, and the assignment of tensors to them.
#[derive(Default)]
pub(super) struct Parcels {
    pub(super) files: Vec<Parcel>,
    /// One entry per tensor, in the order of the redistributions.
    pub(super) tensors: Vec<Parts>,
}

/// One file.
pub(super) struct Parcel {
    pub(super) name: String,
    /// The entries: the number of a tensor, and the shape of the part of it.
    pub(super) entries: Vec<(usize, Vec<usize>)>,
    /// The free texts of its header.
    pub(super) texts: Option<FreeTexts>,
}

/// The parts of a tensor: regions, each in one file, and their offsets in the data of that file.
pub(super) struct Parts {
    pub(super) placed: Arc<Placed>,
    pub(super) chunks: Vec<Chunk>,
}

impl Parcels {
    /// Returns the files of a PyTorch distributed checkpoint in safetensors.
    pub(super) fn of_chunks(
        mesh: &Mesh,
        moves: &[Move<'_>],
        texts: Option<&FreeTexts>,
    ) -> Result<Self, Error> {
        let ranks: Vec<usize> = mesh.ranks().collect();
        // The number of files of each rank: the most boxes that it has of one tensor.
        let mut boxes = vec![0; ranks.len()];
        let mut known = Known::default();
        let mut all = Vec::with_capacity(moves.len());
        for (number, tensor) in moves.iter().enumerate() {
            let about = |error: Error| error.about_tensor(&tensor.tensor.name);
            let shards = tensor.placed(&mut known).map_err(about)?;
            let chunks =
                written::chunks(&shards, tensor.units.shape(), number, tensor.units.bytes).map_err(about)?;
            let mut seen = vec![0; ranks.len()];
            for place in chunks.holders.iter().flatten() {
                seen[*place] += 1;
                boxes[*place] = seen[*place].max(boxes[*place]);
            }
            all.push(chunks);
        }
        let total: usize = boxes.iter().sum();
        if total > MOST_FILES {
            let message = format!(
                "{total} would be written, one for each box of a shard, but {MOST_FILES} is the limit; choose longer blocks",
                total = counted(total, "file", "files")
            );
            return Err(Error::unsupported("chunks", message));
        }
        let most = boxes.iter().copied().max().unwrap_or(0);
        let (mut files, mut first) = (Vec::with_capacity(total), Vec::with_capacity(ranks.len()));
        for (rank, count) in ranks.iter().zip(&boxes) {
            first.push(files.len());
            let name = |number: usize| in_safetensors::file_name(*rank, number, most);
            files.extend((0..*count).map(|number| Parcel::new(name(number))));
        }
        let mut ends = vec![0; files.len()];
        let mut offsets: Vec<Offsets> = files.iter().map(|_| Offsets::default()).collect();
        let mut tensors = Vec::with_capacity(all.len());
        for (number, (tensor, mut placed)) in moves.iter().zip(all).enumerate() {
            let mut next = first.clone();
            let mut chunks = Vec::with_capacity(placed.regions.len());
            for (region, holders) in placed.regions.iter().zip(&mut placed.holders) {
                for holder in holders.iter_mut() {
                    next[*holder] += 1;
                    *holder = next[*holder] - 1;
                }
                let file = holders.first().copied().unwrap_or(0);
                let chunk = written::bare(region, tensor.tensor.dtype, file, &mut ends[file]);
                let chunk = chunk.ok_or_else(|| Error::internal("a chunk has no length"))?;
                offsets[file].insert(&tensor.tensor.name, &chunk.start);
                files[file].entries.push((number, chunk.shape.clone()));
                chunks.push(chunk);
            }
            tensors.push(Parts { placed: Arc::new(placed), chunks });
        }
        for (file, offsets) in files.iter_mut().zip(offsets) {
            file.texts = Some(offsets.texts(texts));
        }
        Ok(Self { files, tensors })
    }

    /// Distributes whole tensors over files of at most `most` bytes, or of one tensor.
    pub(super) fn of_wholes(moves: &[Move<'_>], most: u64, texts: Option<&FreeTexts>) -> Result<Self, Error> {
        let lens: Vec<u64> = moves.iter().map(|tensor| tensor.tensor.byte_len()).collect();
        let (places, count) = in_turn(&lens, most);
        if count > MOST_FILES {
            let message = format!(
                "there would be {count} files of at most {most}, but {MOST_FILES} is the limit; allow larger files",
                most = counted(most, "byte", "bytes")
            );
            return Err(Error::unsupported("files", message));
        }
        let named =
            |number: usize| Parcel { texts: texts.cloned(), ..Parcel::new(index::file_name(number, count)) };
        let mut files: Vec<Parcel> = (0..count).map(named).collect();
        let mut ends = vec![0; count];
        let mut tensors = Vec::with_capacity(moves.len());
        for (number, (tensor, file)) in moves.iter().zip(places).enumerate() {
            let units = tensor.units.shape();
            let mut placed = Placed::whole(units);
            placed.holders = vec![vec![file]];
            let (start, len) = (vec![0; units.len()], tensor.tensor.byte_len());
            let bytes = ends[file];
            ends[file] += len;
            let chunk = Chunk { start, shape: units.to_vec(), place: file, offset: bytes, len, bytes };
            files[file].entries.push((number, tensor.tensor.shape.clone()));
            tensors.push(Parts { placed: Arc::new(placed), chunks: vec![chunk] });
        }
        Ok(Self { files, tensors })
    }
}

impl Parcel {
    fn new(name: String) -> Self {
        Self { name, entries: Vec::new(), texts: None }
    }
}

/// Returns the file number of each length, filled in sequence, and the number of files: at least one.
fn in_turn(lens: &[u64], most: u64) -> (Vec<usize>, usize) {
    let (mut file, mut filled) = (0, 0_u64);
    let place = |len: &u64| {
        if *len > 0 && filled > 0 && filled.checked_add(*len).is_none_or(|end| end > most) {
            (file, filled) = (file + 1, 0);
        }
        filled = filled.saturating_add(*len);
        file
    };
    let places: Vec<usize> = lens.iter().map(place).collect();
    (places, file + 1)
}

#[cfg(test)]
mod tests {
    use super::in_turn;
    use reshard_test_support::Random;

    /// Only a file of one tensor is too long, none is empty, and no tensor fits into the file before.
    #[test]
    fn files_are_filled_in_turn() {
        assert_eq!(in_turn(&[], 5), (vec![], 1));
        assert_eq!(in_turn(&[3, 2, 1, 9, 0, 5], 5), (vec![0, 0, 1, 2, 2, 3], 4));
        assert_eq!(in_turn(&[u64::MAX, u64::MAX], u64::MAX), (vec![0, 1], 2));
        let mut r = Random(7);
        for _ in 0..2000 {
            let lens: Vec<u64> = (0..r.below(9)).map(|_| r.below(12) as u64).collect();
            let most = r.below(16) as u64;
            let (places, count) = in_turn(&lens, most);
            assert!(places.is_sorted() && places.iter().all(|place| *place < count));
            let of = |file: usize| -> u64 {
                lens.iter().zip(&places).filter(|(_, place)| **place == file).map(|(len, _)| len).sum()
            };
            for file in 0..count {
                let held = places.iter().filter(|place| **place == file).count();
                let long =
                    lens.iter().zip(&places).filter(|(len, place)| **place == file && **len > 0).count();
                assert!((of(file) <= most || long == 1) && (held > 0 || lens.is_empty()), "{lens:?} {most}");
                let next = places.iter().position(|place| *place == file + 1).map(|at| lens[at]);
                assert!(next.is_none_or(|next| of(file) + next > most), "{lens:?} {most}");
            }
        }
    }
}
