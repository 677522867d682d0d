//! Where verified tensors go: rank files with a manifest, one gathered file, both, or nowhere.

use std::fs::{self, File};
use std::path::Path;

use reshard_sharding::Mesh;
use safetensors::Dtype;

use super::checkpoint::Checkpoint;
use super::decision::Move;
use super::manifest::{Entry, MANIFEST_NAME, Manifest, rank_file_name};
use super::parallel;
use super::shard_files::ShardFile;
use super::staging::{self, Staging};
use super::verify;
use crate::error::Error;

/// How many files are synced at a time.
const SYNCS: usize = 16;

/// Outputs that have been begun, and appear when they are finished.
pub(crate) struct Outputs {
    directory: Option<(Staging, Vec<ShardFile>)>,
    gathered: Option<(Staging, ShardFile)>,
}

impl Outputs {
    /// Refuses what may not be replaced, then creates every file with its header and the manifest.
    pub(crate) fn begin(
        out: Option<&Path>,
        gather: Option<&Path>,
        force: bool,
        mesh: &Mesh,
        moves: &[Move<'_>],
        checkpoint: &Checkpoint,
    ) -> Result<Self, Error> {
        staging::check(out, gather, force)?;
        let free_texts = checkpoint.free_texts.as_ref();
        let directory = match out {
            None => None,
            Some(dir) => {
                let staging = Staging::directory(dir, force)?;
                write_manifest(staging.path(), mesh, moves)?;
                let mut files = Vec::with_capacity(mesh.size());
                for rank in mesh.ranks() {
                    let shapes = moves.iter().map(|tensor| tensor.to.local_shape(rank));
                    let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
                    let tensors = moves.iter().zip(&shapes).map(|(tensor, shape)| describe(tensor, shape));
                    let path = staging.path().join(rank_file_name(rank, mesh.world()));
                    files.push(ShardFile::create(&path, tensors, free_texts)?);
                }
                Some((staging, files))
            }
        };
        let gathered = match gather {
            None => None,
            Some(file) => {
                let staging = Staging::file(file, force)?;
                let tensors = moves.iter().map(|tensor| describe(tensor, &tensor.tensor.shape));
                let file = ShardFile::create(staging.path(), tensors, free_texts)?;
                Some((staging, file))
            }
        };
        Ok(Self { directory, gathered })
    }

    /// Takes the next tensor, in the order of the moves that the outputs were begun with.
    pub(crate) fn write(&mut self, tensor: &Move<'_>, shards: &[Vec<u8>]) -> Result<(), Error> {
        if let Some((_, files)) = &mut self.directory {
            let threads = parallel::threads_for(shards.iter().map(Vec::len).sum());
            let mut appends: Vec<(&mut ShardFile, &Vec<u8>)> = files.iter_mut().zip(shards).collect();
            parallel::for_each(threads, &mut appends, |(file, shard)| file.append(shard))?;
        }
        if let Some((_, file)) = &mut self.gathered {
            let shards: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
            file.append(&verify::assemble(&tensor.unit_to, tensor.units.bytes, &shards)?)?;
        }
        Ok(())
    }

    /// Syncs everything and puts it in place; says where it is.
    pub(crate) fn finish(self) -> Result<Vec<String>, Error> {
        let mut written = Vec::new();
        let mut ready = Vec::new();
        if let Some((staging, mut files)) = self.directory {
            let count = files.len();
            // Syncing waits for the disk, which takes many files at once.
            parallel::for_each(SYNCS, &mut files, ShardFile::finish)?;
            written.push(format!("{count} rank files and {MANIFEST_NAME} in {}", staging.target().display()));
            ready.push(staging);
        }
        if let Some((staging, mut file)) = self.gathered {
            file.finish()?;
            written.push(format!("whole tensors in {}", staging.target().display()));
            ready.push(staging);
        }
        ready.into_iter().try_for_each(Staging::put_in_place)?;
        Ok(written)
    }
}

/// A tensor as a file that holds so much of it says it.
pub(crate) fn describe<'a>(tensor: &'a Move<'_>, shape: &'a [usize]) -> (&'a str, Dtype, &'a [usize]) {
    (&tensor.tensor.name, tensor.tensor.dtype, shape)
}

/// Writes and syncs the manifest of a directory.
pub(crate) fn write_manifest(dir: &Path, mesh: &Mesh, moves: &[Move<'_>]) -> Result<(), Error> {
    let entry = |tensor: &Move<'_>| Entry {
        shape: tensor.tensor.shape.clone(),
        dtype: tensor.tensor.dtype,
        sharding: tensor.to.to_string(),
    };
    let tensors = moves.iter().map(|tensor| (tensor.tensor.name.clone(), entry(tensor))).collect();
    let path = dir.join(MANIFEST_NAME);
    let text = Manifest::new(mesh, tensors).to_text()?;
    fs::write(&path, text)
        .and_then(|()| File::open(&path)?.sync_all())
        .map_err(|error| Error::io("writing", &path, &error))
}
