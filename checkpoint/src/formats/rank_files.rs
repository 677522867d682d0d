//! The rank files of an earlier run, with their manifest.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::{Mesh, Sharding};

use crate::bytes::Bytes;
use crate::bytes::checksum;
use crate::bytes::place;
use crate::error::Error;
use crate::formats::header;
use crate::formats::manifest::{Entry, Manifest, rank_file_name};
use crate::formats::objects_file::Listed;
use crate::model::by_part::ByPart;
use crate::model::checkpoint::{Checkpoint, Data, Origin, Sums, Tensor};
use crate::model::stored::Stored;

/// Opens the rank files of an earlier run, except those of the missing ranks `dead`, which are sorted.
///
/// Manifest and files must agree about every other rank and every tensor.
pub(crate) fn open(dir: &Path, path: &Path, dead: &[usize]) -> Result<Checkpoint, Error> {
    let (manifest, mesh, manifest_is_right) = Manifest::read(path)?;
    let has_checksums = manifest.has_checksums();
    let is_living = |rank: &usize| dead.binary_search(rank).is_err();
    let expected = || mesh.ranks().map(|rank| rank_file_name(rank, mesh.world_size()));
    let refused = |why: String| Err(Error::refused("rank_files", format!("{}: {why}", dir.display())));
    let mut ignored = Vec::new();
    // If no listing is available, a missing file is found when it is opened.
    if let Some(present) = place::safetensors_files(dir)? {
        let mut living = mesh.ranks().filter(is_living);
        if let Some(first) =
            living.find(|&rank| present.binary_search(&rank_file_name(rank, mesh.world_size())).is_err())
        {
            let missing = rank_file_name(first, mesh.world_size());
            let ranks = dead.iter().copied().chain([first]).map(|rank| rank.to_string());
            let ranks = ranks.collect::<Vec<_>>().join(",");
            return refused(format!(
                "the rank file {missing} of mesh `{mesh}` is missing; pass `--missing-ranks {ranks}` to use the data of other ranks"
            ));
        }
        // A manifest cannot declare more ranks than there are files and missing ranks.
        let mut expected: Vec<String> = expected().collect();
        expected.sort_unstable();
        // Files that the manifest does not list are ignored.
        ignored.extend(present.into_iter().filter(|name| expected.binary_search(name).is_err()));
    }
    let mut expected_tensors = Vec::new();
    for (name, entry) in manifest.tensors {
        let about = format!("{}, tensor `{name}`", path.display());
        expected_tensors.push(Expected::of(name, entry, &mesh).map_err(|error| error.about(about))?);
    }
    let said = match &manifest.headers_crc64nvme {
        Some(text) => sums(text).map_err(|error| error.about(path.display()))?,
        None => Vec::new(),
    };
    if !said.is_empty() && said.len() != mesh.size() {
        let message = format!(
            "{}: {} for {}",
            path.display(),
            counted(said.len(), "checksum", "checksums"),
            counted(mesh.size(), "file", "files")
        );
        return Err(Error::malformed("manifest", message));
    }
    let mut headers = Vec::new();
    let mut free_texts = None;
    let mut texts_known = false;
    for (position, rank) in mesh.ranks().enumerate().filter(|(_, rank)| is_living(rank)) {
        let file = rank_file_name(rank, mesh.world_size());
        let opened = header::open(&dir.join(&file))?;
        if let Some(said) = said.get(position) {
            headers.push((dir.join(&file), opened.checksum, *said));
        }
        if !texts_known {
            (free_texts, texts_known) = (opened.free_texts, true);
        }
        take_shards(&mut expected_tensors, opened.tensors, rank)
            .map_err(|why| Error::mismatch("manifest", format!("{}: {why}", dir.join(&file).display())))?;
    }
    let tensors = expected_tensors.into_iter().map(|one| one.tensor(&mesh, dead));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let objects = Listed::open(dir, &manifest.objects)?;
    let names: HashSet<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
    if let Some(twice) = objects.iter().find(|one| names.contains(&one.name[..])) {
        let message = format!("{} lists `{}` as a tensor and as an object", path.display(), twice.name);
        return Err(Error::malformed("manifest", message));
    }
    let sums = has_checksums.then(|| Sums { manifest: path.to_owned(), manifest_is_right, headers });
    let checkpoint = Checkpoint::of_tensors(tensors, Origin::Sharded(mesh), free_texts);
    Ok(Checkpoint { sums, objects, folders: vec![dir.to_owned()], ignored, ..checkpoint })
}

/// A tensor of the manifest, and the shards of it that have been found.
struct Expected {
    /// The tensor, without bytes.
    tensor: Tensor,
    layout: Layout,
    /// The shards of the living ranks, in the order of the ranks.
    shards: Vec<Bytes>,
}

/// The parts of a tensor that the files of the ranks have.
enum Layout {
    One(Box<Sharding>),
    ByPart(Box<ByPart>),
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(sharding) => sharding.fmt(f),
            Self::ByPart(parts) => parts.fmt(f),
        }
    }
}

impl Layout {
    fn of(entry: &Entry, mesh: &Mesh) -> Result<Self, Error> {
        if let Some(parts) = entry.parts() {
            if entry.stored.is_some() {
                let message =
                    "it has both `pieces` and `stored`; placements by part are written by every rank";
                return Err(Error::malformed("manifest", message));
            }
            let parsed = ByPart::parse(mesh, &entry.shape, &parts?, &entry.sharding)?;
            return Ok(Self::ByPart(Box::new(parsed)));
        }
        let stored = entry.stored.as_ref().unwrap_or(&entry.sharding);
        Ok(Self::One(Box::new(Sharding::parse(mesh, &entry.shape, stored)?)))
    }

    fn is_partial(&self) -> bool {
        match self {
            Self::One(sharding) => sharding.is_partial(),
            Self::ByPart(parts) => parts.shardings().iter().any(Sharding::is_partial),
        }
    }

    fn local_shape(&self, rank: usize) -> Result<Vec<usize>, Error> {
        match self {
            Self::One(sharding) => Ok(sharding.local_shape(rank)?.to_vec()),
            Self::ByPart(parts) => parts.local_shape(rank),
        }
    }
}

impl Expected {
    fn of(name: String, entry: Entry, mesh: &Mesh) -> Result<Self, Error> {
        let layout = Layout::of(&entry, mesh)?;
        if layout.is_partial() {
            let message = format!("it is `{layout}`, but files cannot hold partial values");
            return Err(Error::malformed("manifest", message));
        }
        let Entry { shape, dtype, crc64nvme, path, .. } = entry;
        let sums = crc64nvme.as_deref().map(sums).transpose()?.unwrap_or_default();
        let sums = sums.into_iter().map(Some).collect();
        let data = Data::Whole(Bytes::from(Vec::new()));
        let tensor = Tensor { name, path, dtype, stored: dtype, shape, data, sums, parts: None };
        Ok(Self { tensor, layout, shards: Vec::new() })
    }

    /// Returns the tensor with the bytes of its shards; those of missing ranks by part are empty.
    fn tensor(self, mesh: &Mesh, dead: &[usize]) -> Result<Tensor, Error> {
        let Self { tensor, layout, shards } = self;
        let parts = match layout {
            Layout::One(sharding) => return Ok(Tensor { data: Data::Shards { sharding, shards }, ..tensor }),
            Layout::ByPart(parts) => parts,
        };
        let mut shards = shards.into_iter();
        let missing = |rank: &usize| dead.binary_search(rank).is_ok();
        let of_rank = |rank: usize| if missing(&rank) { None } else { shards.next() };
        let shards: Vec<Option<Bytes>> = mesh.ranks().map(of_rank).collect();
        let (placed, item) = (parts.placed()?, tensor.dtype.bitsize() / 8);
        let mut chunks = vec![Bytes::from(Vec::new()); placed.of_rank.len()];
        for ((region, holders), in_ranks) in
            placed.regions.iter().zip(&placed.holders).zip(parts.in_ranks(&placed)?)
        {
            for (pair, in_rank) in holders.iter().zip(in_ranks) {
                if let Some(local) = &shards[parts.rank_of(*pair)] {
                    chunks[*pair] = in_rank.of(local, item, region.numel())?;
                }
            }
        }
        let data = Data::Chunks { placed: Arc::new(placed), chunks };
        Ok(Tensor { data, parts: Some(parts.parts.clone()), ..tensor })
    }
}

/// Parses the checksums in a manifest's text, at least one.
fn sums(text: &str) -> Result<Vec<u64>, Error> {
    checksum::of_text(text).filter(|sums| !sums.is_empty()).ok_or_else(|| {
        Error::malformed("manifest", "a checksum is not 16 hexadecimal digits (0 to 9, a to f)")
    })
}

/// Gives every tensor its shard from one rank's file, if the file holds exactly the manifest's tensors.
fn take_shards(
    tensors: &mut [Expected],
    mut stored: BTreeMap<String, Stored>,
    rank: usize,
) -> Result<(), String> {
    for Expected { tensor, layout, shards } in tensors {
        let name = &tensor.name;
        let Some(shard) = stored.remove(name) else {
            return Err(format!("tensor `{name}` of the manifest is missing"));
        };
        let local = layout.local_shape(rank).map_err(|error| error.to_string())?;
        if shard.dtype != tensor.dtype || shard.shape != local {
            return Err(format!(
                "tensor `{name}` is {} {:?}, but the manifest's `{layout}` requires {} {local:?}",
                shard.dtype, shard.shape, tensor.dtype
            ));
        }
        shards.push(shard.bytes);
    }
    match stored.into_keys().next() {
        None => Ok(()),
        Some(name) => Err(format!("tensor `{name}` is not in the manifest")),
    }
}
