//! Checkpoints of worlds in which ranks have died: what the others still hold, and what is lost.
//!
//! ```text
//! a region of a tensor --somebody living holds it--> read from there, as if the dead had never been
//!                      '-nobody does--> lost: named, or read from another checkpoint
//! ```
//!
//! Where another checkpoint fills what is lost, its regions that have an element of that come first, and those of the living
//! after them. Where two regions have something in common the later one holds, so everything that lives is newer than what is filled.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::internal::shared_len;
use reshard_sharding::{Mesh, Region};
use serde::Serialize;

use super::bytes::Bytes;
use super::checkpoint::{Checkpoint, Data, Tensor};
use super::error::Error;
use super::manifest::MANIFEST_NAME;
use super::objects::{Container, Content};
use super::place;
use super::placed::{Known, Placed};
use crate::shown::Shown;

/// So many are named in a sentence.
const NAMED: usize = 4;

/// What is left of the rank files of a world with dead ranks.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, Options, Spec, diff, reshard};
///
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("step_1000");
/// let block = Checkpoint::open(None)?;
/// let spec = Spec::new([("*.weight", "S(0),R"), ("*", "R,R")])?;
/// reshard(&block, &"tp=4,dp=2".parse()?, &spec, &out, Options::default())?; // ranks 2 and 3 are replicas
/// std::fs::remove_file(out.join("rank-00003-of-00008.safetensors"))?;
/// let remains = Checkpoint::open_without(&out, &[3])?;
/// assert!(remains.lost().is_empty()); // rank 2 holds what rank 3 did
/// assert!(diff(&block, &remains.whole()?, &mut ())?.equal);
/// let without_both = Checkpoint::open_without(&out, &[2, 3])?;
/// assert_eq!(without_both.lost()[0].ranks, [2, 3]);
/// assert!(diff(&block, &without_both.filled(&block)?, &mut ())?.equal);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DegradedCheckpoint {
    /// Of its tensors some regions may be missing.
    checkpoint: Checkpoint,
    dead: Vec<usize>,
    lost: Vec<LostRegion>,
    /// The tensor of each of those that are lost, and the region in units.
    places: Vec<(usize, Region)>,
}

/// A region of a tensor that no living rank holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostRegion {
    /// The tensor.
    pub tensor: String,
    /// The dead ranks that held it.
    pub ranks: Vec<usize>,
    /// How many bytes it has.
    pub bytes: u64,
}

impl fmt::Display for LostRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} of `{}` of rank {}",
            counted(self.bytes, "byte", "bytes"),
            self.tensor.shown(),
            ranks.join(", ")
        )
    }
}

impl Checkpoint {
    /// Opens a folder of rank files without those of some ranks, which may be missing, or damaged.
    pub fn open_degraded(path: &Path, dead: &[usize]) -> Result<DegradedCheckpoint, Error> {
        let manifest = path.join(MANIFEST_NAME);
        if !place::exists(&manifest)? {
            let message = format!(
                "{} is no folder of rank files with a {MANIFEST_NAME}, so there is no rank that could be dead",
                path.display()
            );
            return Err(Error::refused("dead", message));
        }
        let mut dead = dead.to_vec();
        dead.sort_unstable();
        dead.dedup();
        let mut checkpoint = Self::open_sharded(path, &manifest, &dead)?;
        let Some(mesh) = checkpoint.mesh().cloned() else {
            return Err(Error::failed("internal", "rank files have no mesh"));
        };
        if let Some(stranger) = dead.iter().find(|rank| !mesh.ranks().any(|one| one == **rank)) {
            let message = format!("rank {stranger} cannot be dead, as it is not in the mesh `{mesh}`");
            return Err(Error::refused("dead", message));
        }
        let (mut lost, mut places, mut known) = (Vec::new(), Vec::new(), Known::default());
        for (number, tensor) in checkpoint.tensors.iter_mut().enumerate() {
            let about = |error: Error| error.about_tensor(&tensor.name);
            let (data, sums, gone) = living(tensor, &mesh, &dead, &mut known).map_err(about)?;
            for (region, ranks) in gone {
                let bytes = (region.numel() * tensor.units().bytes) as u64;
                lost.push(LostRegion { tensor: tensor.name.clone(), ranks, bytes });
                places.push((number, region));
            }
            (tensor.data, tensor.sums) = (data, sums);
        }
        // What was in the one file of all ranks is lost with it, and is named by whoever writes what is left.
        for object in checkpoint.objects.iter_mut().filter(|one| one.is_lost()) {
            object.content = Content::PartOf(Container::GivenUp);
        }
        Ok(DegradedCheckpoint { checkpoint, dead, lost, places })
    }
}

impl DegradedCheckpoint {
    /// What no living rank holds, in the order of the tensors.
    pub fn lost(&self) -> &[LostRegion] {
        &self.lost
    }

    /// The checkpoint, if nothing of it is lost.
    pub fn whole(self) -> Result<Checkpoint, Error> {
        if self.lost.is_empty() {
            return Ok(self.checkpoint);
        }
        let named: Vec<String> = self.lost.iter().take(NAMED).map(ToString::to_string).collect();
        let more = match self.lost.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let dead: Vec<String> = self.dead.iter().map(ToString::to_string).collect();
        let message = format!(
            "without rank {} nobody holds {}{more}; --fill-from reads that from another checkpoint",
            dead.join(", "),
            named.join(", ")
        );
        Err(Error::refused("lost", message))
    }

    /// The checkpoint, with what is lost from another one, in which these tensors must be of the same types and shapes. Checksums
    /// are compared of tensors of which both have them.
    pub fn filled(self, other: &Checkpoint) -> Result<Checkpoint, Error> {
        let mut checkpoint = self.checkpoint;
        checkpoint.folders.extend(other.folders.iter().cloned());
        let mut known = Known::default();
        let fillers: HashMap<&str, &Tensor> = other.tensors.iter().map(|one| (&one.name[..], one)).collect();
        // In the order of the tensors.
        for some in self.places.chunk_by(|(one, _), (two, _)| one == two) {
            let Some(tensor) = checkpoint.tensors.get_mut(some[0].0) else { continue };
            let lost: Vec<&Region> = some.iter().map(|(_, region)| region).collect();
            let filled = fill(tensor, &lost, fillers.get(&tensor.name[..]).copied(), &mut known);
            (tensor.data, tensor.sums) = filled.map_err(|error| error.about_tensor(&tensor.name))?;
        }
        Ok(checkpoint)
    }
}

/// What the living have of a tensor: its bytes, its checksums, and the regions that are lost with the ranks that held them.
type Living = (Data, Option<Vec<u64>>, Vec<(Region, Vec<usize>)>);

fn living(tensor: &Tensor, mesh: &Mesh, dead: &[usize], known: &mut Known) -> Result<Living, Error> {
    let Data::Shards { sharding, shards } = &tensor.data else {
        return Err(Error::failed("internal", "it is not in rank files"));
    };
    let of_units = tensor.units().sharding(sharding).map_err(|why| Error::refused("packed", why))?;
    let placed = known.placed(&of_units)?;
    if let Some(sums) = tensor.sums.as_ref().filter(|sums| sums.len() != placed.regions.len()) {
        let message = format!(
            "the manifest has {} for its {}",
            counted(sums.len(), "checksum", "checksums"),
            counted(placed.regions.len(), "shard", "shards")
        );
        return Err(Error::refused("manifest", message));
    }
    let ranks: Vec<usize> = mesh.ranks().collect();
    // The files of the living, by the places of their ranks.
    let mut files = shards.iter();
    let files: Vec<Option<&Bytes>> =
        ranks.iter().map(|rank| if dead.binary_search(rank).is_ok() { None } else { files.next() }).collect();
    let (mut left, mut chunks, mut gone) = (Placed::apart(Vec::new()), Vec::new(), Vec::new());
    let mut sums = tensor.sums.as_ref().map(|_| Vec::new());
    for (number, (region, holders)) in placed.regions.iter().zip(&placed.holders).enumerate() {
        let held: Vec<&Bytes> = holders.iter().filter_map(|place| files[*place]).collect();
        if held.is_empty() {
            if region.numel() > 0 {
                gone.push((region.clone(), holders.iter().map(|place| ranks[*place]).collect()));
            }
            continue;
        }
        left.push(region.clone(), held.len());
        chunks.extend(held.into_iter().cloned());
        if let (Some(sums), Some(said)) = (&mut sums, &tensor.sums) {
            sums.push(said[number]);
        }
    }
    Ok((Data::Chunks { placed: Arc::new(left), chunks }, sums, gone))
}

/// A tensor with what is lost of it from another checkpoint.
fn fill(
    tensor: &Tensor,
    lost: &[&Region],
    filler: Option<&Tensor>,
    known: &mut Known,
) -> Result<(Data, Option<Vec<u64>>), Error> {
    let filler = filler.ok_or_else(|| {
        Error::refused("lost", "the checkpoint that is to fill what is lost has no tensor of this name")
    })?;
    if (filler.dtype, &filler.shape) != (tensor.dtype, &tensor.shape) || filler.stored != tensor.stored {
        let said = |one: &Tensor| format!("{} {:?}", one.dtype, one.shape);
        let message = format!("it is {}, and what is to fill it is {}", said(tensor), said(filler));
        return Err(Error::refused("lost", message));
    }
    let Data::Chunks { placed: own, chunks: own_chunks } = &tensor.data else {
        return Err(Error::failed("internal", "it is not in chunks"));
    };
    let source = filler.source(&tensor.units(), known)?;
    let (mut placed, mut chunks) = (Placed::apart(Vec::new()), Vec::new());
    let mut sums = tensor.sums.as_ref().and(filler.sums.as_ref()).map(|_| Vec::new());
    let meet = |a: &Region, b: &Region| a.dims.iter().zip(&b.dims).all(|(a, b)| shared_len(a, b) > 0);
    for (number, (region, holders)) in source.placed.regions.iter().zip(&source.placed.holders).enumerate() {
        if !lost.iter().any(|lost| meet(lost, region)) {
            continue;
        }
        placed.push(region.clone(), holders.len());
        chunks.extend(holders.iter().map(|place| source.files[*place].clone()));
        if let (Some(sums), Some(said)) = (&mut sums, &filler.sums) {
            sums.push(said[number]);
        }
    }
    placed.append(own, Region::clone);
    chunks.extend(own_chunks.iter().cloned());
    if let (Some(sums), Some(own)) = (&mut sums, &tensor.sums) {
        sums.extend(own);
    }
    Ok((Data::Chunks { placed: Arc::new(placed), chunks }, sums))
}
