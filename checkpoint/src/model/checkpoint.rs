//! A checkpoint: every tensor with its current shards, and the entries that are not tensors.
//!
//! Opening it reads headers only; the bytes of a tensor are read when it is processed.

use std::path::PathBuf;
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_mapping::LocalParts;
use reshard_sharding::{Mesh, Sharding};
use safetensors::Dtype;

use crate::bytes::{self, Bytes};
use crate::error::Error;
use crate::model::archives::Archive;
use crate::model::objects::{Key, Object, check_sum};
use crate::model::placed::Placed;
use crate::model::stored::{self, FreeTexts, Stored};
use crate::shown::Shown;

/// The tensors of an input; opening reads headers only.
///
/// ```
/// use reshard_checkpoint::Checkpoint;
///
/// let block = Checkpoint::open(None)?; // the embedded one
/// let embedding = block.tensors().iter().find(|tensor| tensor.name() == "embedding.weight").unwrap();
/// assert_eq!((embedding.shape(), embedding.byte_len()), (&[2003, 256][..], 2003 * 256 * 4));
/// assert!(embedding.sharding().is_none()); // a whole tensor
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) free_texts: Option<FreeTexts>,
    pub(crate) origin: Origin,
    /// The manifest's checksums of the header data, if the manifest has checksums.
    pub(crate) sums: Option<Sums>,
    /// The zip archives of its files.
    pub(crate) archives: Vec<Archive>,
    /// The entries that are not tensors, in the order of their names.
    pub(crate) objects: Vec<Object>,
    /// The folders that it was opened from; no output is written into them.
    pub(crate) folders: Vec<PathBuf>,
    /// Files of its folder that its manifest does not list.
    pub(crate) ignored: Vec<String>,
    /// The names of the tensors that a selection left out; the patterns of a spec may match only these.
    pub(crate) unselected: Vec<String>,
}

/// The checksums of everything but tensors.
#[derive(Clone)]
pub(crate) struct Sums {
    pub(crate) manifest: PathBuf,
    /// `true` if the manifest matches the checksum that it contains.
    pub(crate) manifest_is_right: bool,
    /// Every rank file, the checksum of its header, and the checksum that the manifest lists.
    pub(crate) headers: Vec<(PathBuf, u64, u64)>,
}

/// The origin of a checkpoint, which decides the defaults of `--from` and `--mesh`.
#[derive(Clone)]
pub(crate) enum Origin {
    /// Made by this program.
    Embedded,
    /// Whole tensors in files.
    Files,
    /// A directory of an earlier run, sharded over this mesh.
    Sharded(Mesh),
}

/// One tensor of an input.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) name: String,
    /// The path in nested dicts and lists; `None` if only the name is known.
    pub(crate) path: Option<Vec<Key>>,
    /// The dtype of the elements as they are read.
    pub(crate) dtype: Dtype,
    /// The dtype in the files; elements are converted during reading if it differs.
    pub(crate) stored: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Data,
    /// The checksums of the distinct regions, `None` where one has none; empty if there are none at all.
    pub(crate) sums: Vec<Option<u64>>,
    /// The parts that every rank concatenates, each with separate placements; `None` if it has no such parts.
    pub(crate) parts: Option<LocalParts>,
}

/// The bytes of a tensor.
#[derive(Clone)]
pub(crate) enum Data {
    /// All of them, in row-major order.
    Whole(Bytes),
    /// One shard per rank of the sharding's mesh, in the order of its ranks.
    Shards { sharding: Box<Sharding>, shards: Vec<Bytes> },
    /// The chunks of the tensor, in units, each row-major. Where two overlap, the later one holds.
    Chunks { placed: Arc<Placed>, chunks: Vec<Bytes> },
}

impl Checkpoint {
    /// Returns the checkpoint of these tensors, with neither manifest nor archives.
    pub(crate) fn of_tensors(tensors: Vec<Tensor>, origin: Origin, free_texts: Option<FreeTexts>) -> Self {
        Self {
            tensors,
            free_texts,
            origin,
            sums: None,
            archives: Vec::new(),
            objects: Vec::new(),
            folders: Vec::new(),
            ignored: Vec::new(),
            unselected: Vec::new(),
        }
    }

    /// Returns the tensor of this name; an error if there is none.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        self.tensors.iter().find(|tensor| tensor.name == name).ok_or_else(|| {
            let message =
                format!("there is no tensor `{name}` among the {} of the input", self.tensors.len());
            Error::refused("no_such_tensor", message)
        })
    }

    /// Returns the entries that are not tensors, in the order of their names.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the bytes of an entry that is not a tensor, as written by `torch.save`; they are never run.
    ///
    /// It is an error if there is no such entry, or if it is a part of a `.pt` or `.npz` file.
    pub fn object(&self, name: &str) -> Result<Vec<u8>, Error> {
        let object = self.objects.iter().find(|object| object.name == name);
        let object = object.ok_or_else(|| {
            let count = counted(self.objects.len(), "non-tensor entry", "non-tensor entries");
            let message = format!("there is no object `{}` among the {count} of the input", name.shown());
            Error::refused("no_such_object", message)
        })?;
        let mut all = Vec::new();
        bytes::reserve(&mut all, object.archive().map_or(0, Bytes::len))?;
        let found = object.each_piece(&mut |_, piece| {
            all.extend_from_slice(piece);
            Ok(())
        })?;
        check_sum(object, found)?;
        Ok(all)
    }

    /// Returns the mesh of its shardings; `None` if its tensors are whole.
    pub fn mesh(&self) -> Option<&Mesh> {
        match &self.origin {
            Origin::Sharded(mesh) => Some(mesh),
            Origin::Embedded | Origin::Files => None,
        }
    }

    /// Returns `true` if it has checksums, which [`Checkpoint::verify`] compares.
    ///
    /// The checksums are those of a manifest, or of zip archives if every archive has them.
    #[doc(hidden)]
    pub fn has_checksums(&self) -> bool {
        let archived = !self.archives.is_empty() && self.archives.iter().all(|archive| archive.has_checksums);
        self.sums.is_some() || archived
    }

    /// Returns the free texts that the writer of the file left.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.free_texts.iter().flatten().map(|(key, text)| (&key[..], &text[..]))
    }

    /// Returns the names of safetensors files in its folder that `sharding.json` omits; they are not read.
    #[doc(hidden)]
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Returns all tensors: an earlier job's output in manifest order, other inputs in file order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl Tensor {
    pub(crate) fn whole(name: String, stored: Stored) -> Self {
        let Stored { dtype, shape, bytes } = stored;
        Self {
            name,
            path: None,
            dtype,
            stored: dtype,
            shape,
            data: Data::Whole(bytes),
            sums: Vec::new(),
            parts: None,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path in nested dicts and lists; `None` if only the name is known.
    pub fn path(&self) -> Option<&[Key]> {
        self.path.as_deref()
    }

    /// Returns the global shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the dtype of the elements, as safetensors names it: `F32`, `BF16`, ..
    pub fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// Returns the sharding in the files; `None` if the tensor is whole or in chunks.
    pub fn sharding(&self) -> Option<&Sharding> {
        match &self.data {
            Data::Whole(_) | Data::Chunks { .. } => None,
            Data::Shards { sharding, .. } => Some(sharding),
        }
    }

    /// Returns the number of chunks, if the tensor is stored in chunks of arbitrary sizes.
    #[doc(hidden)]
    pub fn chunks(&self) -> Option<usize> {
        match &self.data {
            Data::Whole(_) | Data::Shards { .. } => None,
            Data::Chunks { chunks, .. } => Some(chunks.len()),
        }
    }

    /// Returns the checksum of a distinct region, if it has one.
    pub(crate) fn sum(&self, region: usize) -> Option<u64> {
        self.sums.get(region).copied().flatten()
    }

    /// Returns the bytes of the whole tensor.
    pub fn byte_len(&self) -> u64 {
        stored::byte_len(self.dtype, &self.shape).unwrap_or(0) as u64
    }
}
