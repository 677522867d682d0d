//! `sharding.json`: the global tensors and shardings of the rank files of one directory.

use std::collections::BTreeMap;
use std::path::Path;

use reshard_layout::internal::counted;
use reshard_mapping::LocalParts;
use reshard_sharding::{Mesh, Sharding};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use crate::bytes::checksum;
use crate::bytes::read::read;
use crate::error::{Error, ErrorKind};
use crate::formats::objects_file::{Listed, Placed};
use crate::formats::unique;
use crate::job::decision::Move;
use crate::model::by_part::ByPart;
use crate::model::objects::Key;

/// The name of the manifest inside a directory.
pub(crate) const MANIFEST_NAME: &str = "sharding.json";

/// The format name in a manifest.
pub(crate) const FORMAT: &str = "reshard";
const VERSION: u32 = 1;

/// The manifest as it is written: texts in the notations of the library, readable by people.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    mesh: String,
    /// The number of ranks of the job; rank files are named `rank-RRRRR-of-WWWWW`.
    world: usize,
    /// The checksums of the headers of the rank files, in the order of the ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) headers_crc64nvme: Option<String>,
    #[serde(deserialize_with = "unique::map")]
    pub(crate) tensors: BTreeMap<String, Entry>,
    /// The entries that are not tensors, in the order of `others.bin`.
    #[serde(rename = "others", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) objects: Vec<Listed>,
    /// The checksum of this text, computed with zeros instead of the checksum. It is the last field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own_crc64nvme: Option<String>,
}

/// The text before a manifest's own checksum.
const OWN: &[u8] = b"\"own_crc64nvme\": \"";

/// The placeholder for the checksum while it is computed.
const NO_SUM: &str = "0000000000000000";

/// One tensor: its global shape, dtype and sharding.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) sharding: String,
    /// The sharding in the files, if the ranks that hold the same data each have a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stored: Option<String>,
    /// The extents of the parts that every rank concatenates; `sharding` then has placements by part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pieces: Vec<usize>,
    /// The dim of these parts.
    #[serde(default, skip_serializing_if = "is_first")]
    pub(crate) on: usize,
    /// The path in nested dicts and lists, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<Vec<Key>>,
    /// The checksums of its distinct shards, in the order of the first ranks that hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) crc64nvme: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_first(dim: &usize) -> bool {
    *dim == 0
}

impl Entry {
    /// Returns a tensor with one sharding, without checksums.
    pub(crate) fn of(shape: Vec<usize>, dtype: Dtype, sharding: String) -> Self {
        let (stored, pieces, on, path, crc64nvme) = (None, Vec::new(), 0, None, None);
        Self { shape, dtype, sharding, stored, pieces, on, path, crc64nvme }
    }

    /// Returns the parts that every rank concatenates, checked against the shape; `None` if there are none.
    pub(crate) fn parts(&self) -> Option<Result<LocalParts, Error>> {
        if self.pieces.is_empty() {
            return None;
        }
        let sum = self.pieces.iter().try_fold(0_usize, |sum, extent| sum.checked_add(*extent));
        let fits = sum.is_some()
            && sum == self.shape.get(self.on).copied()
            && self.dtype.bitsize().is_multiple_of(8);
        let message = format!(
            "its pieces {:?} on dim {} do not fit {} {:?}",
            self.pieces, self.on, self.dtype, self.shape
        );
        let parts = LocalParts { dim: self.on, extents: self.pieces.clone() };
        Some(if fits { Ok(parts) } else { Err(Error::malformed("manifest", message)) })
    }
}

impl Manifest {
    pub(crate) fn new(mesh: &Mesh, tensors: BTreeMap<String, Entry>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            mesh: mesh.to_string(),
            world: mesh.world_size(),
            headers_crc64nvme: None,
            tensors,
            objects: Vec::new(),
            own_crc64nvme: None,
        }
    }

    /// Returns the manifest of a job's output, with the checksums of each of its tensors if there are any.
    pub(crate) fn of_moves(mesh: &Mesh, moves: &[Move<'_>], sums: &dyn Fn(usize) -> Option<String>) -> Self {
        let mut tensors = BTreeMap::new();
        for (at, one) in moves.iter().enumerate() {
            let (tensor, shape) = (one.tensor, one.tensor.shape.clone());
            let (sharding, path) = (one.wanted(), tensor.path.clone());
            let (pieces, on) = match &one.parts {
                Some(by_part) => (by_part.parts.extents.clone(), by_part.parts.dim),
                None => (Vec::new(), 0),
            };
            let stored = one.wanted.is_some().then(|| one.to.to_string());
            let (dtype, crc64nvme) = (tensor.dtype, sums(at));
            let entry = Entry { shape, dtype, sharding, stored, pieces, on, path, crc64nvme };
            tensors.insert(tensor.name.clone(), entry);
        }
        Self::new(mesh, tensors)
    }

    /// Adds the entries that are not tensors.
    pub(crate) fn with_objects(self, objects: &[Placed<'_>]) -> Self {
        Self { objects: objects.iter().map(Listed::of).collect(), ..self }
    }

    /// Adds the checksums of the headers of its files, and prepares its own checksum.
    pub(crate) fn with_headers(self, headers: &[u64]) -> Self {
        Self {
            headers_crc64nvme: Some(checksum::to_text(headers)),
            own_crc64nvme: Some(NO_SUM.to_owned()),
            ..self
        }
    }

    /// Returns `true` if it has any checksum.
    pub(crate) fn has_checksums(&self) -> bool {
        self.headers_crc64nvme.is_some()
            || self.own_crc64nvme.is_some()
            || self.tensors.values().any(|entry| entry.crc64nvme.is_some())
    }

    /// Reads the manifest and its mesh; the flag is `true` if its own checksum is right or not required.
    pub(crate) fn read(path: &Path) -> Result<(Self, Mesh, bool), Error> {
        let text = read(path).map_err(|error| {
            Error::unreadable_as("manifest", format!("{} cannot be read: {error}", path.display()))
        })?;
        let (manifest, mesh) = Self::of(&text, path)?;
        let right = !manifest.has_checksums() || is_as_it_says(text);
        Ok((manifest, mesh, right))
    }

    /// Parses a manifest's text and the mesh that it names; errors name the path.
    fn of(text: &[u8], path: &Path) -> Result<(Self, Mesh), Error> {
        let manifest: Self = serde_json::from_slice(text).map_err(|error| {
            Error::malformed("manifest", format!("{} is not a manifest: {error}", path.display()))
        })?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            let (format, version) = (&manifest.format, manifest.version);
            let message = format!(
                "{} has format `{format}` version {version}, but this program reads `{FORMAT}` version {VERSION}",
                path.display()
            );
            return Err(Error::unsupported("manifest", message));
        }
        let mesh: Mesh = manifest.mesh.parse().map_err(|error| Error::from(error).about(path.display()))?;
        if mesh.world_size() != manifest.world {
            return Err(Error::malformed(
                "world",
                format!(
                    "{} declares world {}, but its mesh `{mesh}` has {}",
                    path.display(),
                    manifest.world,
                    counted(mesh.world_size(), "rank", "ranks")
                ),
            ));
        }
        Ok((manifest, mesh))
    }

    pub(crate) fn to_text(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self).map(|text| text + "\n").map_err(|error| {
            Error::failed(
                ErrorKind::Internal,
                "manifest",
                format!("the manifest cannot be written as JSON: {error}"),
            )
        })?;
        let Some(at) = own_sum(text.as_bytes()).filter(|_| self.own_crc64nvme.is_some()) else {
            return Ok(text);
        };
        let zeroed = [&text[..at], NO_SUM, &text[at + NO_SUM.len()..]].concat();
        let sum = checksum::to_text(&[checksum::checksum(zeroed.as_bytes())]);
        Ok([&zeroed[..at], &sum, &zeroed[at + sum.len()..]].concat())
    }
}

/// Returns the offset of a manifest's own checksum in its text.
fn own_sum(text: &[u8]) -> Option<usize> {
    let at = text.windows(OWN.len()).rposition(|window| window == OWN)? + OWN.len();
    (text.len() >= at + NO_SUM.len()).then_some(at)
}

/// Returns `true` if a manifest's text matches the checksum that it contains.
fn is_as_it_says(mut text: Vec<u8>) -> bool {
    let Some(at) = own_sum(&text) else { return false };
    let place = at..at + NO_SUM.len();
    let said = std::str::from_utf8(&text[place.clone()]).ok().and_then(checksum::of_text);
    text[place].copy_from_slice(NO_SUM.as_bytes());
    said.is_some_and(|said| said == [checksum::checksum(&text)])
}

/// Parses a manifest's text and its shardings, and writes it again.
#[doc(hidden)]
pub fn manifest_again(text: &[u8]) -> Result<String, Error> {
    let (manifest, mesh) = Manifest::of(text, Path::new(MANIFEST_NAME))?;
    let mut tensors = BTreeMap::new();
    for (name, entry) in manifest.tensors {
        let sharding = match entry.parts() {
            Some(parts) => ByPart::parse(&mesh, &entry.shape, &parts?, &entry.sharding)?.to_string(),
            None => Sharding::parse(&mesh, &entry.shape, &entry.sharding)?.to_string(),
        };
        tensors.insert(name, Entry { sharding, ..entry });
    }
    let (headers_crc64nvme, own_crc64nvme) = (manifest.headers_crc64nvme, manifest.own_crc64nvme);
    let objects = manifest.objects;
    Manifest { headers_crc64nvme, objects, own_crc64nvme, ..Manifest::new(&mesh, tensors) }.to_text()
}

/// Returns the name of the file of one rank.
pub(crate) fn rank_file_name(rank: usize, world: usize) -> String {
    format!("rank-{rank:05}-of-{world:05}.safetensors")
}

/// Returns `true` if a rank could have a file of this name.
pub(crate) fn is_rank_file_name(name: &str) -> bool {
    let numbers = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let numbers = numbers.and_then(|numbers| numbers.split_once("-of-"));
    let parsed = numbers.and_then(|(rank, world)| Some((rank.parse().ok()?, world.parse().ok()?)));
    parsed.is_some_and(|(rank, world)| rank < world && rank_file_name(rank, world) == name)
}
