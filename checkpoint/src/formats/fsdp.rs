//! Files that each rank of a job wrote by `torch.save`: `NAME_world_size_N_rank_R.pt`, as trainers with FSDP do.
//!
//! ```text
//! model_world_size_4_rank_0.pt          DTensors say which region they are; plain tensors are replicas   model.*
//! optim_world_size_4_rank_0.pt          the same                                                         optim.*
//! extra_state_world_size_4_rank_0.pt    states of this rank                                              extra_state.rank_0.*
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reshard_layout::internal::counted;

use crate::bytes::zip;
use crate::error::Error;
use crate::formats::dtensor::Part;
use crate::formats::held::{Held, joined};
use crate::formats::torch_save::{self, Entry, Saved};
use crate::model::archives::{self, Archive};
use crate::model::checkpoint::{Checkpoint, Origin, Tensor};
use crate::model::objects::{Key, Object};
use crate::parallel;

/// The files whose entries belong to one rank each, by the first part of their names.
const BY_RANK: &str = "extra_state";

/// The number of threads that open files: each waits for the disk.
const THREADS: usize = 4;

/// A file of one rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankFile {
    prefix: String,
    rank: usize,
    world: usize,
}

impl RankFile {
    /// Parses a file name; `None` for other names.
    fn of(name: &str) -> Option<Self> {
        let (rest, rank) = name.strip_suffix(".pt")?.rsplit_once("_rank_")?;
        let (prefix, world) = rest.rsplit_once("_world_size_")?;
        let file = Self { prefix: prefix.to_owned(), rank: rank.parse().ok()?, world: world.parse().ok()? };
        (file.name() == name).then_some(file)
    }

    fn name(&self) -> String {
        format!("{}_world_size_{}_rank_{}.pt", self.prefix, self.world, self.rank)
    }
}

/// Returns the files of ranks among these names, in the order of prefixes and ranks.
pub(crate) fn rank_files(names: &[String]) -> Vec<RankFile> {
    let mut files: Vec<RankFile> = names.iter().filter_map(|name| RankFile::of(name)).collect();
    files.sort_unstable();
    files
}

/// Opens the files of all ranks; there must be one of each rank, and all of one world.
pub(crate) fn open(dir: &Path, files: &[RankFile]) -> Result<Checkpoint, Error> {
    check_complete(dir, files)?;
    let opened = Mutex::new(Vec::with_capacity(files.len()));
    let mut numbered: Vec<(usize, PathBuf)> =
        files.iter().map(|file| dir.join(file.name())).enumerate().collect();
    parallel::for_each(THREADS, &mut numbered, zip::room, |room, (number, path)| {
        let (saved, archive) = torch_save::file(path, room).map_err(|error| error.about(path.display()))?;
        opened.lock().unwrap_or_else(PoisonError::into_inner).push((*number, saved, archive));
        Ok(())
    })?;
    let mut opened = opened.into_inner().unwrap_or_else(PoisonError::into_inner);
    opened.sort_by_key(|(number, ..)| *number);
    let mut found = Found::default();
    let mut archives = Vec::with_capacity(files.len());
    for (number, saved, archive) in opened {
        let (file, path): (&RankFile, &Path) = (&files[number], &numbered[number].1);
        found.add(file, path, saved).map_err(|error| error.about(path.display()))?;
        archives.push(archive);
    }
    found.finish(archives)
}

fn check_complete(dir: &Path, files: &[RankFile]) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("rank_files", format!("{}: {why}", dir.display())));
    let worlds: BTreeSet<usize> = files.iter().map(|file| file.world).collect();
    let [world] = worlds.iter().copied().collect::<Vec<_>>()[..] else {
        return refused(format!(
            "it has files of ranks of several jobs, with {worlds:?} ranks; put those of one job into a separate folder"
        ));
    };
    let prefixes: BTreeSet<&str> = files.iter().map(|file| &file.prefix[..]).collect();
    for prefix in prefixes {
        let mut ranks = files.iter().filter(|file| file.prefix == prefix).map(|file| file.rank);
        let missing = (0..world).find(|rank| ranks.next() != Some(*rank));
        if let Some(rank) = missing {
            let name = RankFile { prefix: prefix.to_owned(), rank, world }.name();
            return refused(format!("the file {name} is missing"));
        }
        if let Some(rank) = ranks.next() {
            return refused(format!(
                "rank {rank} of `{prefix}` is beyond its {}",
                counted(world, "rank", "ranks")
            ));
        }
    }
    Ok(())
}

/// The entries of all files.
#[derive(Default)]
struct Found<'a> {
    tensors: BTreeMap<String, (Option<Vec<Key>>, Vec<Held<'a>>)>,
    objects: BTreeMap<String, Object>,
}

impl<'a> Found<'a> {
    fn add(&mut self, file: &RankFile, path: &'a Path, saved: Saved) -> Result<(), Error> {
        let of_rank = format!("rank_{}", file.rank);
        let above = [&file.prefix[..], &of_rank];
        let above = if file.prefix == BY_RANK { &above[..] } else { &above[..1] };
        for (name, nesting, entry) in saved.below(above) {
            let held = match entry {
                Entry::Object(container) => {
                    let object = Object { path: nesting, ..Object::part_of(name.clone(), container) };
                    self.objects.entry(name).or_insert(object);
                    continue;
                }
                Entry::Tensor(stored) => Some(Held::whole(path, stored)),
                Entry::Part(part) if part.rank != file.rank => {
                    let message = format!("its DTensors were saved by rank {}", part.rank);
                    return Err(Error::mismatch("rank_files", message).about_tensor(&name));
                }
                // A rank outside of the mesh of a tensor has none of it.
                Entry::Part(part) => {
                    let Part { local: stored, shape, region, .. } = *part;
                    region.map(|region| Held { file: path, shape, region, stored })
                }
            };
            let all = self.tensors.entry(name).or_default();
            all.0 = all.0.take().or(nesting);
            all.1.extend(held);
        }
        Ok(())
    }

    fn finish(self, archives: Vec<Archive>) -> Result<Checkpoint, Error> {
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for (name, (path, held)) in self.tensors {
            tensors.push(Tensor { path, ..joined(&name, held)? });
        }
        let objects = self.objects.into_values().collect();
        let checkpoint = Checkpoint::of_tensors(tensors, Origin::Files, None);
        Ok(Checkpoint { archives: archives::in_order(archives), objects, ..checkpoint })
    }
}
