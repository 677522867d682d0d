//! `sharding.json`: what the rank files of one directory are shards of.

use std::collections::BTreeMap;
use std::path::Path;

use reshard_sharding::{Mesh, Sharding};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::read::read;

/// The name of the manifest inside a directory.
pub(crate) const MANIFEST_NAME: &str = "sharding.json";

/// What a manifest says that it is.
pub(crate) const FORMAT: &str = "reshard";
const VERSION: u32 = 1;

/// The manifest as it is written: texts in the notations of the library, so that people can read it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    mesh: String,
    /// How many ranks the job has; rank files are named `rank-RRRRR-of-WWWWW`.
    world: usize,
    pub(crate) tensors: BTreeMap<String, Entry>,
}

/// One tensor: the whole of it, and how it is sharded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) sharding: String,
}

impl Manifest {
    pub(crate) fn new(mesh: &Mesh, tensors: BTreeMap<String, Entry>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            mesh: mesh.to_string(),
            world: mesh.world(),
            tensors,
        }
    }

    /// Reads the manifest and the mesh it names.
    pub(crate) fn read(path: &Path) -> Result<(Self, Mesh), Error> {
        let bad = |why: String| Error::refused("manifest", format!("{} {why}", path.display()));
        let text = read(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
        Self::of(&text, path)
    }

    /// Reads a manifest's text and the mesh that it names; errors name the path.
    fn of(text: &[u8], path: &Path) -> Result<(Self, Mesh), Error> {
        let bad = |why: String| Error::refused("manifest", format!("{} {why}", path.display()));
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| bad(format!("is not a manifest: {error}")))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            let (format, version) = (&manifest.format, manifest.version);
            return Err(bad(format!(
                "has format `{format}` version {version}, and this program reads `{FORMAT}` version {VERSION}"
            )));
        }
        let mesh: Mesh = manifest.mesh.parse().map_err(|error| Error::from(error).about(path.display()))?;
        if mesh.world() != manifest.world {
            return Err(Error::refused(
                "world",
                format!(
                    "{} says world {}, but its mesh `{mesh}` needs {} ranks",
                    path.display(),
                    manifest.world,
                    mesh.world()
                ),
            ));
        }
        Ok((manifest, mesh))
    }

    pub(crate) fn to_text(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n").map_err(|error| {
            Error::failed("manifest", format!("the manifest cannot be written as JSON: {error}"))
        })
    }
}

/// A manifest read from its text and written again, with all that its texts mean.
#[doc(hidden)]
pub fn manifest_again(text: &[u8]) -> Result<String, Error> {
    let (manifest, mesh) = Manifest::of(text, Path::new(MANIFEST_NAME))?;
    let mut tensors = BTreeMap::new();
    for (name, entry) in manifest.tensors {
        let sharding = Sharding::parse(&mesh, &entry.shape, &entry.sharding)?.to_string();
        tensors.insert(name, Entry { sharding, ..entry });
    }
    Manifest::new(&mesh, tensors).to_text()
}

/// The name of the file of one rank.
pub(crate) fn rank_file_name(rank: usize, world: usize) -> String {
    format!("rank-{rank:05}-of-{world:05}.safetensors")
}

/// Whether a rank could have a file of this name.
pub(crate) fn is_rank_file_name(name: &str) -> bool {
    let numbers = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let numbers = numbers.and_then(|numbers| numbers.split_once("-of-"));
    let parsed = numbers.and_then(|(rank, world)| Some((rank.parse().ok()?, world.parse().ok()?)));
    parsed.is_some_and(|(rank, world)| rank < world && rank_file_name(rank, world) == name)
}
