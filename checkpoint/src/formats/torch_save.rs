//! Files of `torch.save`: zip archives of a pickle, `data.pkl`, and its storages, `data/0`, `data/1`, ..
//!
//! ```text
//! data.pkl    dicts of dicts of .. of calls: a tensor is `_rebuild_tensor_v2(storage, offset, size, stride, ..)`
//! data/KEY    the elements of a storage, stored as they are; several tensors may be parts of one
//! byteorder   `little`; anything else is an error
//! ```
//!
//! No function is called. Names are those of `torch.distributed.checkpoint`, the keys joined by dots:
//!
//! ```text
//! a dict                                entered; an empty one has no entry
//! a list with a tensor or a dict in it  entered, also if that is in a list of the list
//! a tuple with a tensor in it           entered
//! a tensor, a DTensor                   a tensor, or one rank's part of it        (dtensor)
//! anything else                         an object: listed, and not read
//! ```
//!
//! PyTorch never enters a tuple: a tensor there is a part of an object. It is a tensor here, so that it can be read.
//! A single tensor is named `tensor`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use reshard_layout::internal::counted;
use safetensors::Dtype;

use crate::bytes::Input;
use crate::bytes::peek::Peek;
use crate::bytes::read::MOST_BYTES;
use crate::bytes::strided::strided;
use crate::bytes::zip::Zip;
use crate::error::Error;
use crate::formats::dtensor::{self, Part};
use crate::formats::pickle::{Element, Global, Id, Pickle};
use crate::model::archives::Archive;
use crate::model::objects::{Container, Key};
use crate::model::stored::Stored;
use crate::shown::Shown;

/// The deepest nesting of dicts and lists.
const DEEPEST: usize = 32;

/// The name given to a single tensor.
const ALONE: &str = "tensor";

/// The beginning of the names of functions that make tensors.
const REBUILD: &str = "torch._utils._rebuild_";

/// The name of the pickle in an archive.
const PICKLE: &str = "/data.pkl";

/// The contents of an archive.
#[derive(Default)]
pub(crate) struct Saved {
    pub(crate) tensors: BTreeMap<String, Stored>,
    /// The parts of DTensors that one rank has.
    pub(crate) parts: BTreeMap<String, Part>,
    /// The names of other values, with their containers; values with the same name are one.
    pub(crate) objects: BTreeMap<String, Container>,
    /// The path of every name that has one.
    pub(crate) paths: HashMap<String, Vec<Key>>,
}

/// An entry of an archive.
pub(crate) enum Entry {
    Tensor(Stored),
    Part(Box<Part>),
    Object(Container),
}

impl Saved {
    /// Returns all entries below these keys, each with its name and its path.
    pub(crate) fn below(self, above: &[&str]) -> Vec<(String, Option<Vec<Key>>, Entry)> {
        let Self { tensors, parts, objects, mut paths } = self;
        let tensors = tensors.into_iter().map(|(name, stored)| (name, Entry::Tensor(stored)));
        let parts = parts.into_iter().map(|(name, part)| (name, Entry::Part(Box::new(part))));
        let objects = objects.into_iter().map(|(name, container)| (name, Entry::Object(container)));
        let placed = |(name, entry): (String, Entry)| {
            let keys = above.iter().map(|key| Key::Text((*key).to_owned()));
            let path = paths.remove(&name).map(|path| keys.chain(path).collect());
            let name = above.iter().rev().fold(name, |name, key| within(key, &name));
            (name, path, entry)
        };
        tensors.chain(parts).chain(objects).map(placed).collect()
    }

    fn holds(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.parts.contains_key(name)
    }
}

/// Returns the top folder of an archive of `torch.save`; `None` for other archives.
pub(crate) fn folder(zip: &Zip<'_>) -> Option<String> {
    folders(zip).next().map(str::to_owned)
}

/// Returns the top folder, if there is exactly one.
pub(crate) fn only_folder<'z>(zip: &'z Zip<'_>) -> Option<&'z str> {
    let mut folders = folders(zip);
    folders.next().filter(|_| folders.next().is_none())
}

fn folders<'z>(zip: &'z Zip<'_>) -> impl Iterator<Item = &'z str> {
    zip.names().filter_map(|name| name.strip_suffix(PICKLE)).filter(|folder| !folder.contains('/'))
}

/// Reads all tensors of a file; returns its archive too.
pub(crate) fn file(path: &Path, room: &mut [u8]) -> Result<(Saved, Archive), Error> {
    let input = Arc::new(Input::open(path)?);
    let opened = input.open_again()?;
    let zip = Zip::open(Peek::new(&input, &opened, 0, input.len())?, room)?;
    let folder = folder(&zip).ok_or_else(|| malformed("it was not written by `torch.save`"))?;
    let saved = saved(&zip, &folder)?;
    input.check(&opened)?;
    Ok((saved, Archive::of(&zip)))
}

/// Reads all tensors of an archive.
pub(crate) fn saved(zip: &Zip<'_>, folder: &str) -> Result<Saved, Error> {
    let bytes = pickle_of(zip, folder)?;
    let pickle = Pickle::read(&bytes)?;
    let reader = Reader { zip, folder, pickle: &pickle };
    let mut saved = Saved::default();
    if let Some(class) = pickle.unknown_class(pickle.root()) {
        let message = format!(
            "it is one object of the class `{class}`, which is not known: pickles are parsed, never executed; save a dict of tensors, like a `state_dict()`"
        );
        return Err(Error::unsupported("torch", message));
    }
    if !reader.take(pickle.root(), ALONE, &mut saved)? {
        reader.collect(pickle.root(), "", &mut Vec::new(), &mut saved)?;
    }
    Ok(saved)
}

/// Reads the one tensor of an archive that is a part of a file.
pub(crate) fn only_tensor(archive: Peek<'_>, room: &mut [u8]) -> Result<(Stored, Archive), Error> {
    let zip = Zip::open(archive, room)?;
    let folder = folder(&zip).ok_or_else(|| malformed("it was not written by `torch.save`"))?;
    let bytes = pickle_of(&zip, &folder)?;
    let pickle = Pickle::read(&bytes)?;
    let tensor = Reader { zip: &zip, folder: &folder, pickle: &pickle }.tensor(pickle.root())?;
    let tensor = tensor.ok_or_else(|| Error::malformed("torch", "it is not a tensor"))?;
    Ok((tensor, Archive::of(&zip)))
}

/// Returns the bytes of the pickle, if the byte order of the archive is supported.
fn pickle_of(zip: &Zip<'_>, folder: &str) -> Result<Vec<u8>, Error> {
    let small = |name: &str| -> Result<Vec<u8>, Error> {
        let entry = zip.get(name)?.stored()?;
        if entry.len() > MOST_BYTES {
            let message = format!(
                "`{name}` has {}, and at most {MOST_BYTES} are read",
                counted(entry.len(), "byte", "bytes")
            );
            return Err(Error::unsupported("torch", message));
        }
        entry.read()
    };
    let order = format!("{folder}/byteorder");
    if zip.names().any(|name| name == order) && small(&order)? != b"little" {
        return Err(Error::unsupported(
            "torch",
            "its numbers are big-endian; only little-endian ones are supported",
        ));
    }
    small(&format!("{folder}{PICKLE}"))
}

struct Reader<'a> {
    zip: &'a Zip<'a>,
    folder: &'a str,
    pickle: &'a Pickle<'a>,
}

impl Reader<'_> {
    /// Collects the tensors below a dict or a list by name.
    fn collect(&self, at: Id, name: &str, path: &mut Vec<Key>, saved: &mut Saved) -> Result<(), Error> {
        if path.len() > DEEPEST {
            let message = format!("dicts are nested deeper than {DEEPEST} at `{name}`");
            return Err(Error::unsupported("torch", message));
        }
        let mut children = Vec::new();
        if let Some(entries) = self.pickle.entries(at)? {
            if let Some(attributes) = self.pickle.attributes(at) {
                self.take_attributes(attributes, name, saved)?;
            }
            // For duplicate keys the last value holds; the text `1` and the integer 1 are different keys.
            let mut last: BTreeMap<(String, bool), Id> = BTreeMap::new();
            for (number, (key, value)) in entries.iter().enumerate() {
                if let Some(said) = self.pickle.key(*key)? {
                    last.insert((said, self.pickle.is_text(*key)), *value);
                    continue;
                }
                let nameless = format!("<key {number}, {}>", self.pickle.kind(*key));
                let name = within(name, &nameless);
                self.pickle.pay(name.len() as u64)?;
                saved.objects.insert(name, Container::NamelessKey);
            }
            children.extend(last.into_iter().map(|((key, text), child)| (key, text, child)));
        } else if let Some(parts) = self
            .pickle
            .parts(at)?
            .filter(|_| path.is_empty())
            .map_or_else(|| self.entered(at), |parts| Ok(Some(parts)))?
        {
            children.extend(parts.iter().enumerate().map(|(index, part)| (index.to_string(), false, *part)));
        } else {
            let name = if name.is_empty() { "value" } else { name };
            saved.objects.entry(name.to_owned()).or_insert(self.container(at)?);
            saved.paths.insert(name.to_owned(), path.clone());
            return Ok(());
        }
        for (key, is_text, child) in children {
            let name = within(name, &key);
            self.pickle.pay(name.len() as u64)?;
            let index = if is_text { None } else { key.parse().ok() };
            path.push(index.map_or(Key::Text(key), Key::Index));
            if saved.holds(&name) && self.is_tensor(child)? {
                let message = format!(
                    "two tensors are named `{}`, by keys with dots or by an integer and a string; save them under other keys",
                    name.shown()
                );
                return Err(Error::unsupported("torch", message));
            }
            if self.take(child, &name, saved).map_err(|error| error.about_tensor(&name))? {
                saved.paths.insert(name, path.clone());
            } else {
                self.collect(child, &name, path, saved)?;
            }
            path.pop();
        }
        Ok(())
    }

    /// Takes a tensor, or a rank's part of one; returns `false` for other values.
    fn take(&self, at: Id, name: &str, saved: &mut Saved) -> Result<bool, Error> {
        if let Some(parts) = dtensor::parts(self.pickle, at)? {
            let local =
                self.tensor(parts.local)?.ok_or_else(|| malformed("a DTensor has no local tensor"))?;
            saved.parts.insert(name.to_owned(), Part::of(self.pickle, parts, local)?);
            return Ok(true);
        }
        let Some(tensor) = self.tensor(at)? else { return Ok(false) };
        saved.tensors.insert(name.to_owned(), tensor);
        if let Some((
            Global::RebuildFromType | Global::RebuildParameterWithState,
            [_, _, _, attributes, ..],
        )) = self.pickle.call(at)?
        {
            self.take_attributes(*attributes, name, saved)?;
        }
        Ok(true)
    }

    /// Lists the attributes of a tensor or of a dict, if there are tensors in them.
    fn take_attributes(&self, attributes: Id, name: &str, saved: &mut Saved) -> Result<(), Error> {
        let container = self.container(attributes)?;
        if let Container::AroundTensors(_) = container {
            saved.objects.insert(within(name, "<attributes>"), container);
        }
        Ok(())
    }

    /// Returns the parts of a list that has a tensor or a dict in it, or of a tuple that has a tensor in it.
    fn entered(&self, at: Id) -> Result<Option<&[Id]>, Error> {
        let Some(parts) = self.pickle.parts(at)? else { return Ok(None) };
        let enters = if self.pickle.is_list(at) { self.enters_list(at, 0)? } else { self.has_tensors(at)? };
        Ok(enters.then_some(parts))
    }

    /// Returns `true` for a list that has a tensor or a dict in it, also in a list of the list.
    fn enters_list(&self, at: Id, depth: usize) -> Result<bool, Error> {
        if depth > DEEPEST {
            return Ok(true);
        }
        for part in self.pickle.parts(at)?.unwrap_or_default() {
            let enters = if self.pickle.is_list(*part) {
                self.enters_list(*part, depth + 1)?
            } else {
                self.pickle.entries(*part)?.is_some() || self.has_tensors(*part)?
            };
            if enters {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns `true` if a tensor is in a value, or is the value, and not inside of an object.
    fn has_tensors(&self, at: Id) -> Result<bool, Error> {
        if self.pickle.unknown_class(at).is_some() {
            return Ok(false);
        }
        self.pickle.any_within(at, &mut |id| self.is_tensor(id))
    }

    fn is_tensor(&self, at: Id) -> Result<bool, Error> {
        Ok(match self.pickle.call(at)? {
            Some((
                Global::RebuildTensor
                | Global::RebuildTensorOfType
                | Global::RebuildParameter
                | Global::RebuildParameterWithState
                | Global::RebuildFromType,
                _,
            )) => true,
            Some(_) => false,
            // Of a kind that is not known: quantised, sparse, without data.
            None => self.pickle.unknown_class(at).is_some_and(|class| class.starts_with(REBUILD)),
        })
    }

    /// Returns the container of a value that is not a tensor, which names its class if that is unknown.
    fn container(&self, at: Id) -> Result<Container, Error> {
        if !self.pickle.any_within(at, &mut |id| self.is_tensor(id))? {
            return Ok(Container::TorchSave);
        }
        let class = self.pickle.unknown_class(at);
        Ok(Container::AroundTensors(class.unwrap_or_else(|| self.pickle.kind(at).to_owned()).into()))
    }

    /// Returns a tensor; `None` for other values.
    fn tensor(&self, id: Id) -> Result<Option<Stored>, Error> {
        let (by, args) = match self.pickle.call(id)? {
            // A parameter stands for the tensor from which it was made.
            Some((Global::RebuildParameter | Global::RebuildParameterWithState, args)) => {
                let inner = args.first().map(|inner| self.pickle.call(*inner)).transpose()?.flatten();
                inner.ok_or_else(|| malformed("a parameter has no tensor"))?
            }
            // A tensor of a subclass stands for the tensor with the same elements.
            Some((Global::RebuildFromType, [by, _, args, ..])) => {
                let by = self.pickle.global(*by).unwrap_or(Global::Plain);
                (by, self.pickle.tuple(*args, "the arguments of a tensor")?)
            }
            Some(call) => call,
            None => return Ok(None),
        };
        let (storage, offset, size, stride, dtype, metadata) = match (by, args) {
            (Global::RebuildTensor, [storage, offset, size, stride, _, _, rest @ ..]) => {
                (storage, offset, size, stride, None, rest.first())
            }
            (Global::RebuildTensorOfType, [storage, offset, size, stride, _, _, dtype, rest @ ..]) => {
                (storage, offset, size, stride, Some(*dtype), rest.first())
            }
            (Global::RebuildTensor | Global::RebuildTensorOfType, _) => {
                return Err(malformed("a tensor has too few arguments"));
            }
            (Global::RebuildWrapperSubclass, _) => {
                return Err(unsupported(
                    "it is a tensor of a subclass without a storage; save the tensors in it",
                ));
            }
            _ => return Ok(None),
        };
        for metadata in metadata.into_iter().filter(|metadata| !self.pickle.is_none(**metadata)) {
            if self.pickle.entries(*metadata)?.is_none_or(|entries| !entries.is_empty()) {
                return Err(unsupported(
                    "the tensor is a conjugated or negated view; save it as `.resolve_conj().resolve_neg()`",
                ));
            }
        }
        let (dtype, bytes) = self.storage(*storage, dtype)?;
        let shape = self.pickle.sizes(*size, "the shape of a tensor")?;
        let strides = self.pickle.sizes(*stride, "the strides of a tensor")?;
        let first = self.pickle.size(*offset, "the offset of a tensor")?;
        let bytes = strided(bytes, dtype.bitsize() / 8, first as usize, &shape, &strides)?;
        Ok(Some(Stored { dtype, shape, bytes }))
    }

    /// Returns the bytes of a storage, and the dtype of its elements.
    fn storage(&self, id: Id, dtype: Option<Id>) -> Result<(Dtype, crate::bytes::Bytes), Error> {
        let key = self.pickle.persistent(id).ok_or_else(|| malformed("a tensor has no storage"))?;
        let [kind, class, key, _, numel] = *self.pickle.tuple(key, "a storage")? else {
            return Err(malformed("a storage has an unknown form"));
        };
        if self.pickle.text(kind, "the kind of a storage")? != "storage" {
            return Err(malformed("a persistent value is not a storage"));
        }
        let dtype = dtype.map(|dtype| self.pickle.global(dtype));
        let (element, unit) = match (self.pickle.global(class), dtype) {
            (Some(Global::Storage(element)), None) => (element, None),
            (Some(Global::UntypedStorage), Some(Some(Global::Dtype(element)))) => (element, Some(1)),
            _ => return Err(malformed("a storage has an unknown class")),
        };
        let dtype = known(element)?;
        let unit = unit.unwrap_or(dtype.bitsize() / 8);
        let len = (self.pickle.size(numel, "the length of a storage")? as usize).checked_mul(unit);
        let key = self.pickle.text(key, "the key of a storage")?;
        let entry = self.zip.get(&format!("{}/data/{key}", self.folder))?;
        let len = len.filter(|len| *len as u64 <= entry.len()).ok_or_else(|| {
            malformed(&format!("storage {} is shorter than its declared length", key.shown()))
        })?;
        Ok((dtype, self.zip.bytes(entry)?.part(0, len)))
    }
}

/// Returns the name of a child from its parent's name and its key.
fn within(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") }
}

/// Returns the safetensors dtype for one of PyTorch.
pub(crate) fn known(element: Element) -> Result<Dtype, Error> {
    match element {
        Element::Known(dtype) => Ok(dtype),
        Element::Lacking(name) => {
            Err(unsupported(&format!("its elements are {name}, for which safetensors has no type")))
        }
    }
}

fn malformed(why: &str) -> Error {
    Error::malformed("torch", why)
}

fn unsupported(why: &str) -> Error {
    Error::unsupported("torch", why)
}
