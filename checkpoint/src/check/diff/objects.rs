//! Comparison of entries that are not tensors, by the contents of their archives and not their layout.
//!
//! An archive of `torch.save` has fields (times, alignment, format version) that are not part of the object.
//! Its pickle and its storages are the object. Other bytes are compared as they are.

use std::collections::BTreeMap;

use crate::bytes::Bytes;
use crate::bytes::peek::Peek;
use crate::bytes::pieces::{PIECE, read};
use crate::bytes::zip::{self, Zip};
use crate::check::diff::TensorDiff;
use crate::error::{Error, ErrorClass};
use crate::formats::torch_save;
use crate::model::checkpoint::Checkpoint;
use crate::model::objects::Object;
use crate::shown::Shown;

/// The objects of two checkpoints, grouped by how they can be compared.
pub(crate) struct Objects<'a> {
    pub(crate) only_first: Vec<String>,
    pub(crate) only_second: Vec<String>,
    /// The objects in both that have separate bytes.
    pub(crate) pairs: Vec<(&'a Object, &'a Object)>,
    pub(crate) not_compared: Vec<String>,
}

impl<'a> Objects<'a> {
    pub(crate) fn of(first: &'a Checkpoint, second: &'a Checkpoint) -> Self {
        let by_name = |one: &'a Checkpoint| -> BTreeMap<&'a str, &'a Object> {
            one.objects.iter().map(|object| (&object.name[..], object)).collect()
        };
        // A lost object counts as absent.
        let is_there = |one: &&Object| one.archive().is_some();
        let (of_first, mut of_second) = (by_name(first), by_name(second));
        let mut this = Self {
            only_first: Vec::new(),
            only_second: Vec::new(),
            pairs: Vec::new(),
            not_compared: Vec::new(),
        };
        for (name, one) in of_first {
            match of_second.remove(name) {
                Some(two) if is_there(&one) && is_there(&two) => this.pairs.push((one, two)),
                Some(two) if is_there(&one) && two.is_lost() => this.only_first.push(name.to_owned()),
                Some(two) if one.is_lost() && is_there(&two) => this.only_second.push(name.to_owned()),
                None if is_there(&one) => this.only_first.push(name.to_owned()),
                Some(_) | None => this.not_compared.push(name.to_owned()),
            }
        }
        for (name, two) in of_second {
            let list = if is_there(&two) { &mut this.only_second } else { &mut this.not_compared };
            list.push(name.to_owned());
        }
        this.not_compared.sort_unstable();
        this
    }
}

/// Returns the difference between two objects of one name, if there is one.
pub(crate) fn compare_objects(one: &Object, two: &Object) -> Result<Option<TensorDiff>, Error> {
    let (Some(a), Some(b)) = (one.archive(), two.archive()) else { return Ok(None) };
    let about = |error: Error| error.about(format_args!("`{}`", one.name.shown()));
    let what = match (parts(a).map_err(about)?, parts(b).map_err(about)?) {
        (Some(a), Some(b)) => entries_differ(&a, &b).map_err(about)?,
        (_, _) => {
            bytes_differ(a, b).map_err(about)?.map(|at| format!("its bytes differ, the first at byte {at}"))
        }
    };
    Ok(what.map(|what| TensorDiff { name: one.name.clone(), what, first: None }))
}

/// The entries of an archive by location.
type Parts = BTreeMap<Place, Bytes>;

/// The location of an archive entry: in the folder of the pickle, whatever its name, or elsewhere.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Within(String),
    Beside(String),
}

impl Place {
    fn name(&self) -> &str {
        match self {
            Self::Within(name) | Self::Beside(name) => name,
        }
    }
}

/// Returns the archive entries that make up the object; `None` if the bytes are not such an archive.
fn parts(bytes: &Bytes) -> Result<Option<Parts>, Error> {
    let Some((input, start)) = bytes.place() else { return Ok(None) };
    let file = input.open_again()?;
    let zip = match Zip::open(Peek::new(input, &file, start, bytes.len() as u64)?, &mut zip::room()) {
        Ok(zip) => zip,
        Err(error) if error.class() == ErrorClass::Refused => return Ok(None),
        Err(error) => return Err(error),
    };
    // With several pickles it is not known which of them is the object.
    let Some(folder) = torch_save::only_folder(&zip) else { return Ok(None) };
    let mut parts = Parts::new();
    for (name, entry) in zip.entries() {
        let within = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        if within.is_some_and(|name| name.starts_with('.') || name == "version") {
            continue;
        }
        let place =
            within.map_or_else(|| Place::Beside(name.to_owned()), |name| Place::Within(name.to_owned()));
        // A compression method that is not supported: then the bytes are compared as they are.
        let Ok(bytes) = zip.bytes(entry) else { return Ok(None) };
        parts.insert(place, bytes);
    }
    input.check(&file)?;
    Ok(Some(parts))
}

fn entries_differ(one: &Parts, two: &Parts) -> Result<Option<String>, Error> {
    for (place, bytes) in one {
        let name = place.name().shown();
        let Some(other) = two.get(place) else {
            return Ok(Some(format!("its entry `{name}` is only in the first")));
        };
        if let Some(at) = bytes_differ(bytes, other)? {
            return Ok(Some(format!("its entry `{name}` differs, the first at byte {at}")));
        }
    }
    let only = two.keys().find(|place| !one.contains_key(*place));
    Ok(only.map(|place| format!("its entry `{}` is only in the second", place.name().shown())))
}

/// Returns the first byte that differs; if one is a prefix of the other, the length of the prefix.
fn bytes_differ(one: &Bytes, two: &Bytes) -> Result<Option<usize>, Error> {
    let shorter = one.len().min(two.len());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for at in (0..shorter).step_by(PIECE) {
        let len = PIECE.min(shorter - at);
        crate::bytes::resize(&mut a, len)?;
        crate::bytes::resize(&mut b, len)?;
        read(one, at, &mut a)?;
        read(two, at, &mut b)?;
        if let Some(found) = a.iter().zip(&b).position(|(a, b)| a != b) {
            return Ok(Some(at + found));
        }
    }
    Ok((one.len() != two.len()).then_some(shorter))
}
