//! Files of `torch.save`: zip archives of a pickle, `data.pkl`, and its storages, `data/0`, `data/1`, ..
//!
//! ```text
//! data.pkl    dicts of dicts of .. of calls: a tensor is `_rebuild_tensor_v2(storage, offset, size, stride, ..)`
//! data/KEY    the elements of a storage, stored as they are; several tensors may be parts of one
//! byteorder   `little`; anything else is an error
//! ```
//!
//! No function is called. A tensor in nested dicts and lists is named by its keys, joined by dots; a single
//! one is `tensor`. Values that are not tensors are listed by name, and not read.

use std::collections::BTreeMap;

use reshard_layout::internal::counted;
use safetensors::Dtype;

use crate::bytes::peek::Peek;
use crate::bytes::read::MOST_BYTES;
use crate::bytes::strided::strided;
use crate::bytes::zip::Zip;
use crate::error::Error;
use crate::formats::pickle::{Element, Global, Id, Pickle};
use crate::model::archives::Archive;
use crate::model::objects::Container;
use crate::model::stored::{self, Stored};
use crate::shown::Shown;

/// The deepest nesting of dicts and lists.
const DEEPEST: usize = 32;

/// The name given to a single tensor.
const ALONE: &str = "tensor";

/// The name of the pickle in an archive.
const PICKLE: &str = "/data.pkl";

/// The contents of an archive.
#[derive(Default)]
pub(crate) struct Saved {
    pub(crate) tensors: BTreeMap<String, Stored>,
    /// The names of other values, with their containers; values with the same name are one.
    pub(crate) objects: BTreeMap<String, Container>,
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

/// Reads all tensors of an archive.
pub(crate) fn saved(zip: &Zip<'_>, folder: &str) -> Result<Saved, Error> {
    let bytes = pickle_of(zip, folder)?;
    let pickle = Pickle::read(&bytes)?;
    let reader = Reader { zip, folder, pickle: &pickle };
    let mut saved = Saved::default();
    if let Some(tensor) = reader.tensor(pickle.root())? {
        saved.tensors.insert(ALONE.to_owned(), tensor);
    } else {
        reader.collect(pickle.root(), "", 0, &mut saved)?;
    }
    Ok(saved)
}

/// Reads the one tensor of an archive that is a part of a file.
pub(crate) fn only_tensor(archive: Peek<'_>, room: &mut [u8]) -> Result<(Stored, Archive), Error> {
    let zip = Zip::open(archive, room)?;
    let no_archive = || Error::malformed("torch", "it was not written by `torch.save`");
    let folder = folder(&zip).ok_or_else(no_archive)?;
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
    fn collect(&self, at: Id, name: &str, depth: usize, saved: &mut Saved) -> Result<(), Error> {
        if depth > DEEPEST {
            let message = format!("dicts are nested deeper than {DEEPEST} at `{name}`");
            return Err(Error::unsupported("torch", message));
        }
        let mut children = Vec::new();
        if let Some(entries) = self.pickle.entries(at)? {
            // For duplicate keys the last value holds; the text `1` and the integer 1 are different keys.
            let mut last: BTreeMap<(String, bool), Id> = BTreeMap::new();
            for (number, (key, value)) in entries.iter().enumerate() {
                if let Some(said) = self.pickle.key(*key)? {
                    last.insert((said, self.pickle.is_text(*key)), *value);
                    continue;
                }
                let nameless = format!("<key {number}, {}>", self.pickle.kind(*key));
                let name = within(name, nameless);
                self.pickle.pay(name.len() as u64)?;
                saved.objects.insert(name, Container::NamelessKey);
            }
            children.extend(last.into_iter().map(|((key, _), child)| (key, child)));
        } else if let Some(parts) = self.pickle.parts(at)? {
            children.extend(parts.iter().enumerate().map(|(index, part)| (index.to_string(), *part)));
        } else {
            let name = if name.is_empty() { "value" } else { name };
            saved.objects.entry(name.to_owned()).or_insert(Container::TorchSave);
            return Ok(());
        }
        for (key, child) in children {
            let name = within(name, key);
            self.pickle.pay(name.len() as u64)?;
            let tensor = self.tensor(child).map_err(|error| error.about_tensor(&name))?;
            let Some(tensor) = tensor else {
                self.collect(child, &name, depth + 1, saved)?;
                continue;
            };
            if saved.tensors.contains_key(&name) {
                let message = format!(
                    "two tensors are named `{}`, by keys with dots or by an integer and a string; save them under other keys",
                    name.shown()
                );
                return Err(Error::unsupported("torch", message));
            }
            saved.tensors.insert(name, tensor);
        }
        Ok(())
    }

    /// Returns a tensor; `None` for other values.
    fn tensor(&self, id: Id) -> Result<Option<Stored>, Error> {
        let (by, args) = match self.pickle.call(id)? {
            // A parameter stands for the tensor from which it was made.
            Some((Global::RebuildParameter | Global::RebuildParameterWithState, args)) => {
                let inner = args.first().map(|inner| self.pickle.call(*inner)).transpose()?.flatten();
                inner.ok_or_else(|| malformed("a parameter has no tensor"))?
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
        let shape = sizes(self.pickle, *size, "the shape of a tensor")?;
        let strides = sizes(self.pickle, *stride, "the strides of a tensor")?;
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
fn within(name: &str, key: String) -> String {
    if name.is_empty() { key } else { format!("{name}.{key}") }
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

/// Reads extents or strides: a tuple of integers, or a `torch.Size` of one.
pub(crate) fn sizes(pickle: &Pickle<'_>, id: Id, what: &str) -> Result<Vec<usize>, Error> {
    let id = match pickle.call(id)? {
        Some((Global::Size, [tuple])) => *tuple,
        Some(_) | None => id,
    };
    let parts = pickle.parts(id)?;
    let parts = parts.ok_or_else(|| malformed(&format!("{what} is not a tuple of integers")))?;
    if parts.len() > stored::MOST_DIMS {
        return Err(unsupported(&format!(
            "{what} has {}, and at most {} are read",
            counted(parts.len(), "dim", "dims"),
            stored::MOST_DIMS
        )));
    }
    parts.iter().map(|part| Ok(pickle.size(*part, what)? as usize)).collect()
}

fn malformed(why: &str) -> Error {
    Error::malformed("torch", why)
}

fn unsupported(why: &str) -> Error {
    Error::unsupported("torch", why)
}
