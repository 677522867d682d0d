//! Checkpoints with missing ranks: the data that other ranks still hold, and the data that is lost.
//!
//! ```text
//! a region of a tensor --a surviving rank holds it--> read from there
//!                      '-no rank does--> lost: reported, or read from another checkpoint
//! ```
//!
//! If another checkpoint fills the lost data, its regions that overlap with it come first, and those of the
//! surviving ranks after them. If two regions overlap the later one holds, so surviving data takes precedence
//! over the filler.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::internal::shared_len;
use reshard_sharding::{Mesh, Region};
use serde::Serialize;

use crate::bytes::Bytes;
use crate::bytes::place;
use crate::error::Error;
use crate::formats::manifest::MANIFEST_NAME;
use crate::formats::rank_files;
use crate::model::checkpoint::{Checkpoint, Data, Tensor};
use crate::model::objects::{Container, Content};
use crate::model::placed::{Known, Placed};
use crate::shown::Shown;

/// The largest number of regions that a message names.
const NAMED: usize = 4;

/// The rest of a checkpoint whose rank files are partly missing.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, PlacementSpec, ReshardJob, diff};
///
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("step_1000");
/// let block = Checkpoint::open(None)?;
/// let spec = PlacementSpec::new([("*.weight", "S(0),R"), ("*", "R,R")])?;
/// let job = ReshardJob { mesh: Some("tp=4,dp=2".into()), out: Some(out.clone()), ..ReshardJob::default() };
/// job.run_on(&block, Some(&spec), &mut ())?; // ranks 2 and 3 are replicas
/// std::fs::remove_file(out.join("rank-00003-of-00008.safetensors"))?;
/// let remains = Checkpoint::open_degraded(&out, &[3])?;
/// assert!(remains.lost().is_empty()); // rank 2 holds the same shards as rank 3
/// assert!(diff(&block, &remains.whole()?, &mut ())?.equal);
/// let without_both = Checkpoint::open_degraded(&out, &[2, 3])?;
/// assert_eq!(without_both.lost()[0].ranks, [2, 3]);
/// assert!(diff(&block, &without_both.filled(&block)?, &mut ())?.equal);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DegradedCheckpoint {
    /// The opened checkpoint; some regions of its tensors may be missing.
    checkpoint: Checkpoint,
    dead: Vec<usize>,
    lost: Vec<LostRegion>,
    /// The tensor of each lost region, and the region in units.
    places: Vec<(usize, Region)>,
}

/// A region of a tensor that no surviving rank holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostRegion {
    /// The name of the tensor.
    pub tensor: String,
    /// The missing ranks that held it.
    pub ranks: Vec<usize>,
    /// The number of bytes.
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
                "{} is not a folder of rank files with a {MANIFEST_NAME}, so no rank can be missing",
                path.display()
            );
            return Err(Error::refused("dead", message));
        }
        let mut dead = dead.to_vec();
        dead.sort_unstable();
        dead.dedup();
        let mut checkpoint = rank_files::open(path, &manifest, &dead)?;
        let Some(mesh) = checkpoint.mesh().cloned() else {
            return Err(Error::internal("rank files have no mesh"));
        };
        if let Some(stranger) = dead.iter().find(|rank| !mesh.ranks().any(|one| one == **rank)) {
            let message = format!("missing rank {stranger} is not in the mesh `{mesh}`");
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
        // Objects in the one file of all ranks are lost with it; the writer of the output names them.
        for object in checkpoint.objects.iter_mut().filter(|one| one.is_lost()) {
            object.content = Content::PartOf(Container::GivenUp);
        }
        Ok(DegradedCheckpoint { checkpoint, dead, lost, places })
    }
}

impl DegradedCheckpoint {
    /// Returns the regions that no surviving rank holds, in the order of the tensors.
    pub fn lost(&self) -> &[LostRegion] {
        &self.lost
    }

    /// Returns the checkpoint, if no region is lost.
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
            "without rank {} no rank holds {}{more}; pass `--fill-from` to read it from another checkpoint",
            dead.join(", "),
            named.join(", ")
        );
        Err(Error::refused("lost", message))
    }

    /// Returns the checkpoint, with lost regions taken from another one.
    ///
    /// These tensors must have the same types and shapes there. Checksums are compared where either has them.
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

/// The surviving bytes of a tensor, its checksums, and the lost regions with the ranks that held them.
type Living = (Data, Vec<Option<u64>>, Vec<(Region, Vec<usize>)>);

fn living(tensor: &Tensor, mesh: &Mesh, dead: &[usize], known: &mut Known) -> Result<Living, Error> {
    let ranks: Vec<usize> = mesh.ranks().collect();
    let is_dead = |rank: &usize| dead.binary_search(rank).is_ok();
    // The files of the surviving ranks, by their positions.
    let (placed, files): (_, Vec<Option<&Bytes>>) = match &tensor.data {
        Data::Shards { sharding, shards } => {
            let of_units = tensor.units().sharding(sharding).map_err(|why| Error::refused("packed", why))?;
            let mut files = shards.iter();
            let of_rank = |rank| if is_dead(rank) { None } else { files.next() };
            (known.placed(&of_units)?, ranks.iter().map(of_rank).collect())
        }
        // Parts that every rank concatenates: a position is a pair of a part and a rank.
        Data::Chunks { placed, chunks } if tensor.parts.is_some() => {
            let all_ranks = ranks.iter().cycle();
            let of_pair = |(bytes, rank)| (!is_dead(rank)).then_some(bytes);
            (Arc::clone(placed), chunks.iter().zip(all_ranks).map(of_pair).collect())
        }
        Data::Whole(_) | Data::Chunks { .. } => return Err(Error::internal("it is not in rank files")),
    };
    if !tensor.sums.is_empty() && tensor.sums.len() != placed.regions.len() {
        let message = format!(
            "the manifest has {} for its {}",
            counted(tensor.sums.len(), "checksum", "checksums"),
            counted(placed.regions.len(), "shard", "shards")
        );
        return Err(Error::malformed("manifest", message));
    }
    let (mut left, mut chunks, mut gone) = (Placed::apart(Vec::new()), Vec::new(), Vec::new());
    let mut sums = Vec::new();
    for (number, (region, holders)) in placed.regions.iter().zip(&placed.holders).enumerate() {
        let held: Vec<&Bytes> = holders.iter().filter_map(|place| files[*place]).collect();
        if held.is_empty() {
            if region.numel() > 0 {
                gone.push((
                    region.clone(),
                    holders.iter().map(|place| ranks[*place % ranks.len()]).collect(),
                ));
            }
            continue;
        }
        left.push(region.clone(), held.len());
        chunks.extend(held.into_iter().cloned());
        sums.push(tensor.sum(number));
    }
    Ok((Data::Chunks { placed: Arc::new(left), chunks }, sums, gone))
}

/// Returns a tensor with its lost regions taken from another checkpoint.
fn fill(
    tensor: &Tensor,
    lost: &[&Region],
    filler: Option<&Tensor>,
    known: &mut Known,
) -> Result<(Data, Vec<Option<u64>>), Error> {
    let filler = filler.ok_or_else(|| {
        Error::refused("lost", "the checkpoint that replaces lost data has no tensor of this name")
    })?;
    if (filler.dtype, &filler.shape) != (tensor.dtype, &tensor.shape) || filler.stored != tensor.stored {
        let said = |one: &Tensor| format!("{} {:?}", one.dtype, one.shape);
        let message = format!("it is {}, but its replacement is {}", said(tensor), said(filler));
        return Err(Error::refused("lost", message));
    }
    let Data::Chunks { placed: own, chunks: own_chunks } = &tensor.data else {
        return Err(Error::internal("it is not in chunks"));
    };
    let source = filler.source(&tensor.units(), known)?;
    let (mut placed, mut chunks) = (Placed::apart(Vec::new()), Vec::new());
    let mut sums = Vec::new();
    let meet = |a: &Region, b: &Region| a.dims.iter().zip(&b.dims).all(|(a, b)| shared_len(a, b) > 0);
    for (number, (region, holders)) in source.placed.regions.iter().zip(&source.placed.holders).enumerate() {
        if !lost.iter().any(|lost| meet(lost, region)) {
            continue;
        }
        placed.push(region.clone(), holders.len());
        chunks.extend(holders.iter().map(|place| source.files[*place].clone()));
        sums.push(filler.sum(number));
    }
    placed.append(own, Region::clone);
    chunks.extend(own_chunks.iter().cloned());
    sums.extend((0..own.regions.len()).map(|number| tensor.sum(number)));
    Ok((Data::Chunks { placed: Arc::new(placed), chunks }, sums))
}
