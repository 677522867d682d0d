//! Outputs for verified tensors: rank files with a manifest, one gathered file, both, or none.
//!
//! Every process writes the files of its ranks. The first process handles everything that exists once per
//! job: the directory under its hidden name, the manifest, the gathered file, the renaming. The manifest comes last,
//! since it has the checksums of all files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reshard_sharding::Mesh;
use safetensors::Dtype;

use crate::bytes::checksum;
use crate::engine::exchange::Exchange;
use crate::engine::together::{Stop, together};
use crate::error::Error;
use crate::formats::manifest::{MANIFEST_NAME, Manifest, rank_file_name};
use crate::formats::objects_file;
use crate::job::ReshardJob;
use crate::job::decision::Move;
use crate::job::wish::Wish;
use crate::model::checkpoint::Checkpoint;
use crate::model::placed::Known;
use crate::parallel;
use crate::write::shard_files::ShardFile;
use crate::write::staging::{self, Staging};

/// The number of files synced at a time.
const SYNCS: usize = 16;

/// This process's part of outputs that have been begun, and appear when they are finished.
pub(crate) struct Outputs {
    /// The directory and its number of rank files, in the first process.
    directory: Option<(Staging, usize)>,
    /// The files of this process's ranks, in ascending order.
    files: Vec<(usize, Mutex<ShardFile>)>,
    /// The gathered file, in the first process.
    gathered: Option<(Staging, ShardFile)>,
    /// `true` if there is a gathered file, in any process.
    gathers: bool,
    /// `true` to write checksums.
    checked: bool,
}

/// Rejects outputs that may not be replaced, before anything is exchanged or written.
pub(crate) fn check(job: &ReshardJob, inputs: &[PathBuf]) -> Result<(), Error> {
    let (out, gather) = (job.out.as_deref(), job.gather.as_deref());
    staging::check(out, gather, job.force)?;
    staging::check_outside(out, gather, inputs)
}

impl Outputs {
    /// Creates every file with its header.
    pub(crate) fn begin<X: Exchange>(
        job: &ReshardJob,
        exchange: &mut X,
        wish: &Wish<'_>,
        moves: &[Move<'_>],
        checkpoint: &Checkpoint,
    ) -> Result<Self, Stop> {
        let mesh = &wish.mesh;
        let first = exchange.process() == 0;
        let staged = if first { stage(job, moves, checkpoint) } else { Ok((None, None)) };
        let (directory, gathered) = together(exchange, staged)?;
        // The first process has made the directory, and shares its number.
        let number = directory.as_ref().map_or(0, Staging::number);
        let numbers = exchange.share(&[number])?.concat();
        let files = match (&job.out, numbers.first()) {
            (Some(out), Some(number)) => {
                let held = mesh.ranks().filter(|rank| exchange.holds(*rank));
                staging::staged_in(out, *number).and_then(|staged| {
                    let file =
                        |rank| Ok((rank, Mutex::new(rank_file(&staged, rank, mesh, moves, checkpoint)?)));
                    held.map(file).collect::<Result<Vec<_>, _>>()
                })
            }
            (_, _) => Ok(Vec::new()),
        };
        let mut files = together(exchange, files)?;
        files.sort_unstable_by_key(|(rank, _)| *rank);
        let directory = directory.map(|staging| (staging, mesh.size()));
        Ok(Self { directory, files, gathered, gathers: job.gather.is_some(), checked: job.verify })
    }

    /// Returns `true` if there is a gathered file, in any process.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers
    }

    /// Writes a rank's new shard of the next tensor, in the order in which the outputs were begun.
    pub(crate) fn write(&self, rank: usize, shard: &[u8]) -> Result<(), Error> {
        let Ok(at) = self.files.binary_search_by_key(&rank, |(rank, _)| *rank) else { return Ok(()) };
        self.files[at].1.lock().unwrap_or_else(PoisonError::into_inner).append(shard)
    }

    /// Writes the next gathered tensor, which must equal the whole.
    pub(crate) fn write_gathered(&mut self, gathered: &[u8], whole: &[u8]) -> Result<(), Error> {
        let Some((_, file)) = &mut self.gathered else { return Ok(()) };
        if *gathered != *whole {
            return Err(Error::verification("the gathered tensor differs from the whole tensor"));
        }
        file.append(gathered)
    }

    /// Returns the checksums of the files of all processes, by rank: `words` of each.
    fn share_sums(
        &self,
        exchange: &mut impl Exchange,
        words: usize,
    ) -> Result<HashMap<usize, Vec<u64>>, Stop> {
        let mut mine = Vec::with_capacity(self.files.len() * (words + 1));
        for (rank, file) in &self.files {
            mine.push(*rank as u64);
            mine.extend_from_slice(file.lock().unwrap_or_else(PoisonError::into_inner).sums());
        }
        // All processes share equally many words: one without a file has a rank that no mesh has.
        if mine.is_empty() {
            mine.resize(words + 1, u64::MAX);
        }
        let all = exchange.share(&mine)?.concat();
        let of_file = |file: &[u64]| Some((*file.first()? as usize, file.get(1..)?.to_vec()));
        Ok(all.chunks(words + 1).filter_map(of_file).collect())
    }

    /// Syncs this process's files; when all have, the first puts everything in place. Returns the locations.
    pub(crate) fn finish(
        mut self,
        exchange: &mut impl Exchange,
        mesh: &Mesh,
        moves: &[Move<'_>],
        checkpoint: &Checkpoint,
    ) -> Result<Vec<String>, Stop> {
        let sums = if self.checked { self.share_sums(exchange, moves.len() + 1)? } else { HashMap::new() };
        let listed = match &self.directory {
            None => Ok(()),
            Some((staging, _)) => write_manifest(&staging.path(), mesh, moves, checkpoint, &sums),
        };
        together(exchange, listed)?;
        // Syncing waits for the disk, which accepts many files at once.
        let mut files: Vec<ShardFile> = std::mem::take(&mut self.files)
            .into_iter()
            .map(|(_, file)| file.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let mut synced = parallel::for_each(SYNCS, &mut files, || (), |(), file| file.finish());
        if let (Ok(()), Some((_, file))) = (&synced, &mut self.gathered) {
            synced = file.finish();
        }
        together(exchange, synced)?;
        let mut written = Vec::new();
        let mut ready = Vec::new();
        if let Some((staging, count)) = self.directory {
            written.push(format!("{count} rank files and {MANIFEST_NAME} in {}", staging.target().display()));
            ready.push(staging);
        }
        if let Some((staging, _)) = self.gathered {
            written.push(format!("whole tensors in {}", staging.target().display()));
            ready.push(staging);
        }
        together(exchange, ready.iter().try_for_each(Staging::put_in_place))?;
        Ok(written)
    }
}

/// The outputs that the first process begins: the directory, and the gathered file.
type Staged = (Option<Staging>, Option<(Staging, ShardFile)>);

fn stage(job: &ReshardJob, moves: &[Move<'_>], checkpoint: &Checkpoint) -> Result<Staged, Error> {
    let (out, gather) = (job.out.as_deref(), job.gather.as_deref());
    let directory = out.map(|dir| Staging::directory(dir, job.force)).transpose()?;
    let gathered = match gather {
        None => None,
        Some(file) => {
            let staging = Staging::file(file, job.force)?;
            let tensors = moves.iter().map(|tensor| describe(tensor, &tensor.tensor.shape));
            let file = ShardFile::create(&staging.path(), 1, tensors, checkpoint.free_texts.as_ref())?;
            Some((staging, file))
        }
    };
    Ok((directory, gathered))
}

/// Creates the file of one rank in the directory under its hidden name.
fn rank_file(
    staged: &Path,
    rank: usize,
    mesh: &Mesh,
    moves: &[Move<'_>],
    checkpoint: &Checkpoint,
) -> Result<ShardFile, Error> {
    let shapes: Vec<_> = moves.iter().map(|tensor| tensor.local_shape(rank)).collect::<Result<_, _>>()?;
    let tensors = moves.iter().zip(&shapes).map(|(tensor, shape)| describe(tensor, shape));
    let path = staged.join(rank_file_name(rank, mesh.world_size()));
    ShardFile::create(&path, mesh.size(), tensors, checkpoint.free_texts.as_ref())
}

/// Returns a tensor's entry in the header of a file that holds this part of it.
fn describe<'a>(tensor: &'a Move<'_>, shape: &'a [usize]) -> (&'a str, Dtype, &'a [usize]) {
    (&tensor.tensor.name, tensor.tensor.dtype, shape)
}

/// Writes and syncs the objects and the manifest of a directory.
///
/// `sums` has the checksums of the files by rank; without them, the manifest has none.
fn write_manifest(
    dir: &Path,
    mesh: &Mesh,
    moves: &[Move<'_>],
    checkpoint: &Checkpoint,
    sums: &HashMap<usize, Vec<u64>>,
) -> Result<(), Error> {
    let objects = objects_file::write_file(dir, &checkpoint.objects[..], true)?;
    let mut known = Known::default();
    let mut shards = Vec::with_capacity(moves.len());
    let ranks: Vec<usize> = mesh.ranks().collect();
    let of_rank = |place: usize| ranks.get(place).and_then(|rank| sums.get(rank));
    for (at, tensor) in moves.iter().enumerate() {
        let placed = tensor.placed(&mut known)?;
        // Replicas were compared with the same whole tensor.
        let of_shard = |holders: &Vec<usize>| Some(*of_rank(*holders.first()?)?.get(at + 1)?);
        let of_shards: Option<Vec<u64>> = placed.holders.iter().map(of_shard).collect();
        shards.push(of_shards.map(|sums| checksum::to_text(&sums)));
    }
    let of_tensor = |at: usize| shards.get(at).cloned().flatten();
    let mut manifest = Manifest::of_moves(mesh, moves, &of_tensor).with_objects(&objects);
    let headers: Option<Vec<u64>> = (0..ranks.len()).map(|place| of_rank(place)?.first().copied()).collect();
    if let Some(headers) = headers {
        manifest = manifest.with_headers(&headers);
    }
    let path = dir.join(MANIFEST_NAME);
    let text = manifest.to_text()?;
    fs::write(&path, text)
        .and_then(|()| File::open(&path)?.sync_all())
        .map_err(|error| Error::io("writing", &path, &error))
}
