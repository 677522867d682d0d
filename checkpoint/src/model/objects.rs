//! Entries that are not tensors: hyperparameters, steps, random states. They are copied exactly, never run.
//!
//! ```text
//! .metadata    a name with one range of a .distcp file, an archive of torch.save     -->  the same bytes at another offset
//! others.bin   the same archives, contiguous, listed in sharding.json                -->  the same
//! .pt, .npz    a part of one pickle, which has no bytes that could be copied          -->  named in the report
//! ```
//!
//! [`Others`](crate::job::carried::Others) records if they are in an output.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use reshard_layout::internal::counted;
use serde::{Deserialize, Serialize};

use crate::bytes::checksum::{Sum, checksum, crc32};
use crate::bytes::pieces::PIECE;
use crate::bytes::{self, Bytes, Input};
use crate::error::Error;
use crate::shown::Shown;

/// One step of a path into nested dicts and lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Key {
    /// A key of a dict.
    Text(String),
    /// An index of a list.
    Index(u64),
}

/// An entry that is not a tensor.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, Key, CheckpointWriter};
/// use reshard_sharding::{Mesh, Sharding};
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("step_1000");
/// let mesh: Mesh = "dp=2".parse()?;
/// let rows = Sharding::parse(&mesh, &[4], "S(0)")?;
/// let writer = CheckpointWriter::begin(&out, &mesh, [("w", "U8", &rows)], false)?;
/// let path = [Key::Text("optim".into()), Key::Text("lr".into())];
/// writer.save_object("optim.lr", Some(&path), b"what torch.save wrote")?;
/// mesh.ranks().try_for_each(|rank| writer.save(rank, [("w", &[0_u8; 2][..])]))?;
/// writer.commit()?;
/// let saved = Checkpoint::open(Some(&out))?;
/// assert_eq!((saved.objects()[0].name(), saved.objects()[0].path()), ("optim.lr", Some(&path[..])));
/// assert_eq!(saved.object("optim.lr")?, b"what torch.save wrote");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Object {
    pub(crate) name: String,
    pub(crate) path: Option<Vec<Key>>,
    pub(crate) content: Content,
    /// The checksum of its bytes, if a manifest has it.
    pub(crate) sum: Option<u64>,
}

/// A callback that receives a block of bytes and its offset.
type Take<'a> = dyn FnMut(usize, &[u8]) -> Result<(), Error> + 'a;

/// The content of an object.
#[derive(Clone)]
pub(crate) enum Content {
    /// Separate bytes.
    Archive(Bytes),
    /// A part of a file that is read as a whole or not at all.
    PartOf(Container),
}

/// The container of an object that has no separate bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    TorchSave,
    /// A part of a `.pt` file of this class, with tensors in it.
    AroundTensors(Arc<str>),
    Numpy,
    /// A part of a `.pt` file below a dict key that is neither a text nor an integer.
    NamelessKey,
    /// A tensor in a rank's file that is not below the key of the tensors.
    OfOneRank,
    /// A leaf of Orbax of this type, which is not an array.
    Orbax(Arc<str>),
    /// A file of objects next to `.metadata`.
    BesideDcp,
    /// `others.bin`, which is missing, or ends before its bytes do.
    Missing,
    /// A missing object, after the caller accepted a partial checkpoint.
    GivenUp,
}

impl Container {
    pub(crate) fn why(&self) -> Cow<'static, str> {
        let why = match self {
            Self::AroundTensors(class) => {
                return format!(
                    "it is an object ({class}) with tensors in it, which are not read; save these tensors in a dict"
                )
                .into();
            }
            Self::Orbax(kind) => {
                return format!(
                    "it is a leaf of type {kind} in a checkpoint of Orbax, of which only arrays are read"
                )
                .into();
            }
            Self::TorchSave => {
                "it is part of a torch.save file, of which only tensors are read; torch.distributed.checkpoint.save keeps it"
            }
            Self::Numpy => {
                "it is an array of objects or strings in an .npz file, of which only numbers are read"
            }
            Self::NamelessKey => {
                "it is in a torch.save file below a key that is neither a string nor an integer, so it has no name; save it under a string"
            }
            Self::OfOneRank => {
                "it is in the files of ranks, outside of the key `under` of the source, and may differ by rank"
            }
            Self::BesideDcp => {
                "it is a torch.save file next to .metadata, as Megatron-Core writes it, which is not read; copy it next to the output"
            }
            Self::Missing | Self::GivenUp => "its bytes were in others.bin, which is missing or truncated",
        };
        why.into()
    }
}

impl Object {
    /// Returns its name: the keys of its path, joined by dots.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path in nested dicts and lists; `None` if only the name is known.
    pub fn path(&self) -> Option<&[Key]> {
        self.path.as_deref()
    }

    /// Returns the number of its bytes; `None` for a part of a `.pt` or `.npz` file.
    #[doc(hidden)]
    pub fn byte_len(&self) -> Option<u64> {
        self.archive().map(|bytes| bytes.len() as u64)
    }

    /// Returns its bytes, if it has separate ones.
    pub(crate) fn archive(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Archive(bytes) => Some(bytes),
            Content::PartOf(_) => None,
        }
    }

    /// Returns `true` if its bytes are lost: `others.bin` is missing, or ends before them.
    #[doc(hidden)]
    pub fn is_lost(&self) -> bool {
        matches!(self.content, Content::PartOf(Container::Missing | Container::GivenUp))
    }

    /// Returns an object of which only the name is known.
    pub(crate) fn part_of(name: String, container: Container) -> Self {
        Self { name, path: None, content: Content::PartOf(container), sum: None }
    }

    /// Passes its bytes to `take`, a block at a time; returns their checksum.
    pub(crate) fn each_piece(&self, take: &mut Take<'_>) -> Result<u64, Error> {
        let Some(bytes) = self.archive() else { return Err(self.has_no_bytes()) };
        let about = |error: Error| error.about(format_args!("`{}`", self.name.shown()));
        let (access, sum, mut piece) = (bytes.access()?, Sum::default(), Vec::new());
        for at in (0..bytes.len()).step_by(PIECE) {
            let len = PIECE.min(bytes.len() - at);
            bytes::resize(&mut piece, len)?;
            access.read_at(at, &mut piece).map_err(about)?;
            sum.add(checksum(&piece), bytes.len() - at - len);
            take(at, &piece)?;
        }
        access.finish().map_err(about)?;
        Ok(sum.get())
    }

    fn has_no_bytes(&self) -> Error {
        let why = match &self.content {
            Content::Archive(_) => "it has bytes".into(),
            Content::PartOf(container) => container.why(),
        };
        Error::refused("object", why).about(format_args!("`{}`", self.name.shown()))
    }

    /// Returns the position of the rank whose file holds it; any function of its name would do.
    pub(crate) fn holder(&self, ranks: usize) -> usize {
        crc32(self.name.as_bytes()) as usize % ranks.max(1)
    }

    /// Hashes everything that determines its bytes in an output.
    pub(crate) fn hash_identity(&self, hasher: &mut impl Hasher) {
        (&self.name, &self.path, self.sum).hash(hasher);
        if let Some(bytes) = self.archive() {
            bytes.hash_place(hasher);
            if let Some(input) = bytes.input() {
                input.hash_identity(hasher);
            }
        }
    }
}

/// Rejects objects that total more bytes than their file: overlaps would make copies of unbounded size.
pub(crate) fn check_total(file: &Input, lens: impl Iterator<Item = u64>) -> Result<(), Error> {
    let total = lens.fold(0, u64::saturating_add);
    if total <= file.len() {
        return Ok(());
    }
    let message = format!(
        "{} has {}, but its non-tensor entries have {total}: some of them overlap",
        file.path().display(),
        counted(file.len(), "byte", "bytes")
    );
    Err(Error::malformed("objects", message))
}

pub(crate) fn check_sum(object: &Object, found: u64) -> Result<(), Error> {
    match object.sum.filter(|said| *said != found) {
        None => Ok(()),
        Some(said) => {
            let message = format!(
                "`{}`: checksum mismatch: computed {found:016x}, the manifest has {said:016x}; pass `--no-verify` to use it anyway",
                object.name.shown()
            );
            Err(Error::mismatch("checksum", message))
        }
    }
}
