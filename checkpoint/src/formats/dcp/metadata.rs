//! Parses `.metadata`: an object of `torch.distributed.checkpoint.metadata.Metadata`, pickled.
//!
//! ```text
//! state_dict_metadata   name -> properties, size, chunks of offsets and sizes; or bytes (not a tensor)
//! storage_data          (name, offset) -> file, offset and length in it
//! planner_data          name -> the path of keys and indices in the nested state
//! ```
//!
//! Chunks without elements have no bytes, and are left out; a chunk that is listed twice counts once. An entry
//! of bytes is not a tensor: it has one location, without an offset.

use std::collections::{BTreeMap, HashMap, HashSet};

use safetensors::Dtype;

use crate::error::Error;
use crate::formats::pickle::{Global, Id, Pickle};
use crate::formats::torch_save::known;
use crate::model::objects::Key;
use crate::shown::Shown;

/// The start of a chunk, and its shape.
pub(super) type Chunk = (Vec<usize>, Vec<usize>);

/// A tensor and its chunks.
pub(super) struct Tensor {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// The chunks that have elements; all within the shape.
    pub(super) chunks: Vec<Chunk>,
}

/// The location of a chunk's archive.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) file: &'a str,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The parts of the metadata that are used.
pub(super) struct Metadata<'a> {
    pub(super) tensors: BTreeMap<&'a str, Tensor>,
    /// The entries that are not tensors, and their locations.
    pub(super) objects: BTreeMap<&'a str, Item<'a>>,
    /// The paths of nested names, as far as they are known.
    pub(super) paths: HashMap<&'a str, Vec<Key>>,
    items: HashMap<(&'a str, Vec<usize>), Item<'a>>,
}

impl<'a> Metadata<'a> {
    pub(super) fn read(text: &'a [u8]) -> Result<Self, Error> {
        let pickle = Pickle::read(text)?;
        let state = pickle.state(pickle.root(), Global::Metadata, "what it holds")?;
        let storage = pickle.needed(state, "storage_data")?;
        let (mut items, mut places) = (HashMap::new(), HashMap::new());
        for (index, info) in entries(&pickle, storage, "storage_data")? {
            let index = pickle.state(*index, Global::MetadataIndex, "a key of storage_data")?;
            let name = pickle.text(pickle.needed(index, "fqn")?, "a name in storage_data")?;
            // An entry that is not a tensor has no offset.
            let offset = pickle.attribute(index, "offset")?.filter(|offset| !pickle.is_none(*offset));
            let item = Item::read(&pickle, *info).map_err(|error| error.about_tensor(name))?;
            if let Some(offset) = offset {
                items.insert((name, pickle.sizes(offset, "an offset in storage_data")?), item);
            } else {
                places.insert(name, item);
            }
        }
        let (mut tensors, mut objects) = (BTreeMap::new(), BTreeMap::new());
        let all = pickle.needed(state, "state_dict_metadata")?;
        for (name, said) in entries(&pickle, all, "state_dict_metadata")? {
            let name = pickle.text(*name, "a name in state_dict_metadata")?;
            if pickle.is(*said, Global::BytesStorageMetadata) {
                let place = places.get(name).copied().ok_or_else(|| {
                    malformed(format!("`{}` is not a tensor, and its bytes are in no file", name.shown()))
                })?;
                objects.insert(name, place);
                tensors.remove(name);
                continue;
            }
            let tensor = Tensor::read(&pickle, *said).map_err(|error| error.about_tensor(name))?;
            tensors.insert(name, tensor);
            objects.remove(name);
        }
        let paths = paths(&pickle, state)?;
        Ok(Self { tensors, objects, paths, items })
    }

    /// Returns the location of the chunk of a tensor that starts at `start`.
    pub(super) fn item(&self, name: &'a str, start: &[usize]) -> Result<Item<'a>, Error> {
        let item = self.items.get(&(name, start.to_vec())).copied();
        item.ok_or_else(|| malformed(format!("its chunk at {start:?} is in no file")))
    }
}

impl<'a> Item<'a> {
    fn read(pickle: &Pickle<'a>, info: Id) -> Result<Self, Error> {
        let state = pickle.state(info, Global::StorageInfo, "a value of storage_data")?;
        let transforms = pickle.attribute(state, "transform_descriptors")?;
        if let Some(transforms) = transforms.filter(|transforms| !pickle.is_none(*transforms))
            && pickle.parts(transforms)?.is_none_or(|parts| !parts.is_empty())
        {
            let why = "its bytes were compressed or encrypted when they were written, which is not supported";
            return Err(Error::unsupported("dcp", why));
        }
        Ok(Self {
            file: pickle.text(pickle.needed(state, "relative_path")?, "the file of a chunk")?,
            offset: pickle.size(pickle.needed(state, "offset")?, "the offset of a chunk in its file")?,
            len: pickle.size(pickle.needed(state, "length")?, "the length of a chunk in its file")?,
        })
    }
}

impl Tensor {
    fn read(pickle: &Pickle<'_>, said: Id) -> Result<Self, Error> {
        let state = pickle.state(said, Global::TensorStorageMetadata, "a value of state_dict_metadata")?;
        let properties = pickle.needed(state, "properties")?;
        let properties = pickle.state(properties, Global::TensorProperties, "its properties")?;
        let Some(dtype) = pickle.tuple(properties, "its properties")?.first().copied() else {
            return Err(malformed("its properties do not begin with a dtype".to_owned()));
        };
        let Some(Global::Dtype(element)) = pickle.global(dtype) else {
            return Err(pickle.wrong(dtype, "its dtype", "a dtype of PyTorch"));
        };
        let dtype = known(element)?;
        let shape = pickle.sizes(pickle.needed(state, "size")?, "its size")?;
        let said = pickle.needed(state, "chunks")?;
        let said = pickle.parts(said)?.ok_or_else(|| malformed("its chunks are not a list".to_owned()))?;
        let (mut chunks, mut seen) = (Vec::new(), HashSet::new());
        for chunk in said {
            let chunk = pickle.state(*chunk, Global::ChunkStorageMetadata, "a chunk")?;
            let start = pickle.sizes(pickle.needed(chunk, "offsets")?, "the offsets of a chunk")?;
            let len = pickle.sizes(pickle.needed(chunk, "sizes")?, "the sizes of a chunk")?;
            let within = |((start, len), extent): ((&usize, &usize), &usize)| {
                start.checked_add(*len).is_some_and(|end| end <= *extent)
            };
            if start.len() != shape.len()
                || len.len() != shape.len()
                || !start.iter().zip(&len).zip(&shape).all(within)
            {
                return Err(malformed(format!("a chunk of {len:?} at {start:?} is not within {shape:?}")));
            }
            if !len.contains(&0) && seen.insert((start.clone(), len.clone())) {
                chunks.push((start, len));
            }
        }
        Ok(Self { dtype, shape, chunks })
    }
}

/// Reads the paths of nested names.
///
/// Planners may store anything there, so values that are not paths are ignored.
fn paths<'a>(pickle: &Pickle<'a>, state: Id) -> Result<HashMap<&'a str, Vec<Key>>, Error> {
    let mut paths = HashMap::new();
    let Some(planned) = pickle.attribute(state, "planner_data")? else { return Ok(paths) };
    for (name, path) in pickle.entries(planned)?.into_iter().flatten() {
        let (true, Some(keys)) = (pickle.is_text(*name), pickle.parts(*path)?) else { continue };
        let keys: Option<Vec<Key>> = keys.iter().map(|key| path_key(pickle, *key)).collect();
        if let (Ok(name), Some(keys)) = (pickle.text(*name, "a name"), keys.filter(|keys| !keys.is_empty())) {
            paths.insert(name, keys);
        }
    }
    Ok(paths)
}

fn path_key(pickle: &Pickle<'_>, key: Id) -> Option<Key> {
    if pickle.is_text(key) {
        return pickle.text(key, "a key").ok().map(|text| Key::Text(text.to_owned()));
    }
    pickle.size(key, "an index").ok().map(Key::Index)
}

/// Returns the name of the writer, if there is one.
pub(super) fn writer(text: &[u8]) -> Result<Option<String>, Error> {
    let pickle = Pickle::read(text)?;
    let state = pickle.state(pickle.root(), Global::Metadata, "what it holds")?;
    let Some(meta) = pickle.attribute(state, "storage_meta")?.filter(|meta| !pickle.is_none(*meta)) else {
        return Ok(None);
    };
    let meta = pickle.state(meta, Global::StorageMeta, "its origin")?;
    let writer = pickle.attribute(meta, "save_id")?.map(|writer| pickle.text(writer, "its writer"));
    Ok(writer.transpose()?.map(str::to_owned))
}

/// Returns the entries of a value that must be a dict.
fn entries<'p>(pickle: &'p Pickle<'_>, id: Id, what: &str) -> Result<&'p [(Id, Id)], Error> {
    pickle.entries(id)?.ok_or_else(|| malformed(format!("{what} is not a dict")))
}

fn malformed(why: String) -> Error {
    Error::malformed("dcp", why)
}
