//! Orbax, the checkpoints of JAX: zarr arrays of one or more chunks, as folders or as keys of one OCDBT database.
//!
//! ```text
//! _METADATA                      the leaves of the saved tree: key paths and types
//! manifest.ocdbt                 the root of the database, if there is one
//! NAME/.zarray, NAME/1.0         an array in zarr 2: its metadata, a chunk
//! NAME/zarr.json, NAME/c/1/0     an array in zarr 3
//! ```

//!
//! A compressed chunk is decoded whole when a part of it is read. Of other chunks only the requested
//! bytes are read.

mod metadata;
mod ocdbt;
mod zarr;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::inflated::{Codec, Inflated, Last, Packed};
use crate::bytes::packing::Packing;
use crate::bytes::place;
use crate::bytes::read::read_at_most;
use crate::bytes::strided::{nest, strided};
use crate::bytes::{self, Bytes, Input};
use crate::error::Error;
use crate::model::checkpoint::{Checkpoint, Origin, Tensor};
use crate::model::objects::{Container, Key, Object};
use crate::model::parts;
use crate::shown::Shown;
use metadata::{Leaf, LeafKind, Metadata};
use ocdbt::{Entries, MANIFEST, Source, Value};
use zarr::{Array, Storage};

/// The file that lists the leaves.
pub(crate) const METADATA_NAME: &str = metadata::FILE;

/// The most bytes of the list of leaves.
const MOST_METADATA: u64 = 128 << 20;

/// The most bytes of the metadata of an array.
const MOST_ARRAY: usize = 1 << 20;

/// The most chunks of all arrays.
const MOST_CHUNKS: usize = 1 << 21;

/// The bytes of decoded chunks that are cached: those of a few tensors of which ranks read parts in turn.
const CACHED: usize = 256 << 20;

/// The longest text of a file that is repeated in a message, in characters.
const LONGEST: usize = 120;

/// Opens the folder of a checkpoint of Orbax.
pub(crate) fn open(dir: &Path) -> Result<Checkpoint, Error> {
    let path = dir.join(METADATA_NAME);
    let text = read_at_most(&path, MOST_METADATA).map_err(|error| {
        Error::unreadable_as("orbax", format!("{} cannot be read: {error}", path.display()))
    })?;
    let metadata = Metadata::parse(&text).map_err(|error| error.about(dir.display()))?;
    let folder = Folder { dir, inputs: RefCell::default() };
    let has_manifest = place::exists(&dir.join(MANIFEST))?;
    if metadata.use_ocdbt == Some(true) && !has_manifest {
        let message = format!("{} has no {MANIFEST}, which holds its arrays", dir.display());
        return Err(Error::refused("orbax", message));
    }
    let entries = if has_manifest {
        Some(ocdbt::read(&folder).map_err(|error| error.about(dir.display()))?)
    } else {
        None
    };
    let chunks = Cell::new(0);
    let arrays = Arrays { folder, metadata: &metadata, entries, last: Last::of(CACHED), chunks };
    let (mut tensors, mut objects) = (Vec::new(), Vec::new());
    for leaf in &metadata.leaves {
        let (name, path) = (leaf.name(), Some(leaf.keys()));
        match leaf.kind {
            LeafKind::Array | LeafKind::Scalar => {
                let about = |error: Error| error.about_tensor(&name).about(dir.display());
                tensors.push(Tensor { path, ..arrays.tensor(leaf, &name).map_err(about)? });
            }
            LeafKind::Text | LeafKind::Empty | LeafKind::Other => {
                let container = Container::Orbax(leaf.value_type.as_str().into());
                objects.push(Object { path, ..Object::part_of(name, container) });
            }
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    objects.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Checkpoint { objects, ..Checkpoint::of_tensors(tensors, Origin::Files, None) })
}

impl Leaf {
    fn keys(&self) -> Vec<Key> {
        let key = |key: &metadata::Key| match key {
            metadata::Key::Index(text) => text.parse().map_or_else(|_| Key::Text(text.clone()), Key::Index),
            metadata::Key::Name(text) => Key::Text(text.clone()),
        };
        self.path.iter().map(key).collect()
    }
}

/// A folder, and the files in it that are open.
struct Folder<'a> {
    dir: &'a Path,
    inputs: RefCell<HashMap<String, Arc<Input>>>,
}

impl Folder<'_> {
    fn input(&self, path: &str) -> Result<Arc<Input>, Error> {
        if let Some(input) = self.inputs.borrow().get(path) {
            return Ok(Arc::clone(input));
        }
        let input = Arc::new(Input::open(&self.dir.join(path))?);
        self.inputs.borrow_mut().insert(path.to_owned(), Arc::clone(&input));
        Ok(input)
    }

    /// Returns a range of a file; an error if the file is shorter.
    fn range(&self, path: &str, offset: u64, len: u64) -> Result<Bytes, Error> {
        let input = self.input(path)?;
        if offset.checked_add(len).is_none_or(|end| end > input.len()) {
            let message =
                format!("{path} has {} bytes, which end before {len} bytes at {offset}", input.len());
            return Err(Error::malformed("orbax", message));
        }
        Ok(Bytes::InFile { input, start: offset, len: len as usize })
    }
}

impl Source for Folder<'_> {
    fn whole(&self, path: &str, most: usize) -> Result<Vec<u8>, Error> {
        let input = self.input(path)?;
        if input.len() > most as u64 {
            let message = format!("{path} has {} bytes, and at most {most} are read", input.len());
            return Err(Error::unsupported("orbax", message));
        }
        input.read(0, input.len() as usize)
    }

    fn part(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        read(&self.range(path, offset, len as u64)?, usize::MAX)
    }
}

/// The arrays of a checkpoint: as keys of a database, or as files.
struct Arrays<'a> {
    folder: Folder<'a>,
    metadata: &'a Metadata,
    entries: Option<Entries>,
    last: Last,
    /// The chunks so far.
    chunks: Cell<usize>,
}

impl Arrays<'_> {
    /// Returns a part of the array of a leaf, if it is stored.
    fn value(&self, leaf: &Leaf, part: &str) -> Result<Option<Bytes>, Error> {
        let Some(entries) = &self.entries else {
            let file = leaf.file(part)?;
            if !place::exists(&self.folder.dir.join(&file))? {
                return Ok(None);
            }
            let input = self.folder.input(&file)?;
            let len = input.len() as usize;
            return Ok(Some(Bytes::InFile { input, start: 0, len }));
        };
        match entries.get(&leaf.database_key(part)) {
            None => Ok(None),
            Some(Value::Inline(bytes)) => Ok(Some(Bytes::from(bytes.clone()))),
            Some(Value::InFile { path, offset, len }) => self.folder.range(path, *offset, *len).map(Some),
        }
    }

    fn tensor(&self, leaf: &Leaf, name: &str) -> Result<Tensor, Error> {
        let key = self.metadata.version.metadata_key();
        let declared = self.value(leaf, key)?;
        let declared = declared.ok_or_else(|| Error::malformed("orbax", format!("it has no {key}")))?;
        let array = Array::parse(self.metadata.version, &read(&declared, MOST_ARRAY)?)?;
        self.count(array.grid.count())?;
        let mut chunks: Vec<(Vec<usize>, Vec<usize>, Bytes)> = Vec::new();
        for chunk in array.chunks() {
            let about = |error: Error| error.about(format_args!("chunk {}", chunk.key));
            let stored = self.value(leaf, &chunk.key).map_err(about)?;
            match (&array.storage, stored) {
                (Storage::Chunk(packing), Some(stored)) => {
                    let bytes = self.decoded(&array, packing, array.grid.chunk_shape(), &chunk.shape, stored);
                    chunks.push((chunk.start.clone(), chunk.shape.clone(), bytes.map_err(about)?));
                }
                (Storage::Shard(sharding), Some(stored)) => {
                    let len = stored.len() as u64;
                    let range = sharding.index_range(len).map_err(about)?;
                    let index = stored.part(range.start as usize, (range.end - range.start) as usize);
                    let index = read(&index, usize::MAX).map_err(about)?;
                    let inner_chunks = sharding.inner_chunks(&chunk, &index, len).map_err(about)?;
                    self.count(inner_chunks.len())?;
                    for inner in inner_chunks {
                        let bytes = match inner.range {
                            None => self.filled(&array, &inner.shape),
                            Some(range) => {
                                let part =
                                    stored.part(range.start as usize, (range.end - range.start) as usize);
                                let full = sharding.grid.chunk_shape();
                                self.decoded(&array, &sharding.packing, full, &inner.shape, part)
                            }
                        };
                        chunks.push((inner.start, inner.shape, bytes.map_err(about)?));
                    }
                }
                (Storage::Chunk(_) | Storage::Shard(_), None) => {
                    let bytes = self.filled(&array, &chunk.shape).map_err(about)?;
                    chunks.push((chunk.start.clone(), chunk.shape.clone(), bytes));
                }
            }
        }
        let parts = chunks.iter().map(|(start, shape, bytes)| (&start[..], &shape[..], bytes.clone()));
        let parts = parts.filter(|(_, shape, _)| !shape.contains(&0)).collect();
        parts::of_chunks(name, array.dtype, array.grid.shape(), parts)
    }

    /// Counts chunks, of which a checkpoint has at most [`MOST_CHUNKS`].
    fn count(&self, more: usize) -> Result<(), Error> {
        self.chunks.set(self.chunks.get().saturating_add(more));
        if self.chunks.get() <= MOST_CHUNKS {
            return Ok(());
        }
        let message = format!("the arrays of the checkpoint have more than {MOST_CHUNKS} chunks");
        Err(Error::unsupported("orbax", message))
    }

    /// Returns the elements of a chunk that is stored at its full shape, also past the end of the array.
    fn decoded(
        &self,
        array: &Array,
        packing: &Packing,
        full: &[usize],
        shape: &[usize],
        stored: Bytes,
    ) -> Result<Bytes, Error> {
        let item = zarr::dtype::bytes(array.dtype);
        let len = full.iter().try_fold(item, |len, extent| len.checked_mul(*extent));
        let len = len.ok_or_else(|| Error::malformed("orbax", "it has more than 2^64 bytes"))?;
        let bytes = if packing.is_raw() {
            if stored.len() != len {
                let message = format!("it has {} bytes, but its shape {full:?} requires {len}", stored.len());
                return Err(Error::malformed("orbax", message));
            }
            stored
        } else {
            let packed = match stored {
                Bytes::InFile { input, start, len } => Packed::InFile { input, start, len },
                stored @ (Bytes::Owned(_) | Bytes::Strided(_) | Bytes::Inflated { .. }) => {
                    Packed::Owned(Arc::new(read(&stored, usize::MAX)?))
                }
            };
            self.inflated(packed, Codec::Packing(packing.clone()), len)?
        };
        let stride = |dim: usize| full.iter().skip(dim + 1).product();
        let strides: Vec<usize> = (0..full.len()).map(stride).collect();
        strided(bytes, item, 0, shape, &strides)
    }

    /// Returns the elements of a chunk that is not stored, which is an error if every chunk should be.
    fn filled(&self, array: &Array, shape: &[usize]) -> Result<Bytes, Error> {
        if self.metadata.stores_fill {
            return Err(Error::refused("orbax", "it is missing"));
        }
        let numel = shape.iter().try_fold(1_usize, |numel, extent| numel.checked_mul(*extent));
        let numel = numel.ok_or_else(|| Error::malformed("orbax", "it has more than 2^64 elements"))?;
        if numel == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        nest(Bytes::from(array.fill()?), zarr::dtype::bytes(array.dtype), 0, &[(numel, 0)])
    }

    fn inflated(&self, packed: Packed, codec: Codec, len: usize) -> Result<Bytes, Error> {
        let inflated = Inflated::new(packed, codec, len as u64, self.last.clone())?;
        Ok(Bytes::Inflated { inflated: Arc::new(inflated), start: 0, len })
    }
}

/// Reads all of some bytes, of which there are at most `most`.
fn read(bytes: &Bytes, most: usize) -> Result<Vec<u8>, Error> {
    if bytes.len() > most {
        let message = format!("it has {} bytes, and at most {most} are read", bytes.len());
        return Err(Error::unsupported("orbax", message));
    }
    let mut all = Vec::new();
    bytes::resize(&mut all, bytes.len())?;
    let access = bytes.access()?;
    access.read_at(0, &mut all)?;
    access.finish()?;
    Ok(all)
}

/// Returns a foreign text for a message: on one line, and not longer than a line.
fn shown(text: &str) -> String {
    let mut shown = text.chars().take(LONGEST).collect::<String>().shown();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("..");
    }
    shown
}
