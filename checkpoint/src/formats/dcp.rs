//! Distributed checkpoints of PyTorch (`torch.distributed.checkpoint`), in both of their layouts.
//!
//! ```text
//! .metadata                  a pickle: every tensor with its chunks, and the file, offset and length of each   (metadata)
//! __R_N.distcp               the output of rank R: contiguous archives of torch.save
//!
//! common.pt                  objects of Megatron-Core that are equal on all ranks                                 (beside)
//!
//! shard-*.safetensors        a chunk of every tensor; its offsets are in the file's free texts                 (in_safetensors)
//! ```
//!
//! A tensor is a list of chunks, boxes of any sizes, which must tile it ([`parts`]).

mod beside;
pub(crate) mod frame;
pub(crate) mod in_safetensors;
mod metadata;
pub(crate) mod written;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::bytes::peek::Peek;
use crate::bytes::place;
use crate::bytes::read::read_at_most;
use crate::bytes::zip;
use crate::bytes::{Bytes, Input};
use crate::error::Error;
use crate::formats::torch_save;
use crate::model::archives::{self, Archive};
use crate::model::checkpoint::{Checkpoint, Origin, Tensor};
use crate::model::objects::{self, Content, Object};
use crate::model::parts;
use crate::model::stored::Stored;
use crate::parallel;
use crate::shown::Shown;
use beside::Beside;
use metadata::{Item, Metadata};

/// The file that lists the contents of the others.
pub(crate) const METADATA_NAME: &str = ".metadata";

/// The largest accepted size of a `.metadata` file: 128 MiB, at about 150 bytes per chunk.
const MOST_BYTES: u64 = 128 << 20;

/// A file range that is being looked up.
struct Wanted<'a> {
    what: What,
    item: Item<'a>,
}

/// The contents of a file range, by number.
#[derive(Clone, Copy)]
enum What {
    Chunk { tensor: usize, chunk: usize },
    Object(usize),
}

/// Opens the folder of a `.metadata` file.
pub(crate) fn open(dir: &Path, path: &Path) -> Result<Checkpoint, Error> {
    let text = read_at_most(path, MOST_BYTES).map_err(|error| {
        Error::unreadable_as("dcp", format!("{} cannot be read: {error}", path.display()))
    })?;
    let metadata = Metadata::read(&text).map_err(|error| error.about(path.display()))?;
    let mut files: BTreeMap<&str, Vec<Wanted<'_>>> = BTreeMap::new();
    let mut chunks: Vec<Vec<Option<Bytes>>> = Vec::with_capacity(metadata.tensors.len());
    for (number, (name, tensor)) in metadata.tensors.iter().enumerate() {
        let about = |error: Error| error.about_tensor(name).about(path.display());
        chunks.push(tensor.chunks.iter().map(|_| None).collect());
        for (chunk, (start, _)) in tensor.chunks.iter().enumerate() {
            let item = metadata.item(name, start).map_err(about)?;
            stays_inside(item.file).map_err(about)?;
            let what = What::Chunk { tensor: number, chunk };
            files.entry(item.file).or_default().push(Wanted { what, item });
        }
    }
    for (number, (name, item)) in metadata.objects.iter().enumerate() {
        let about = |error: Error| error.about(format_args!("{}: `{}`", path.display(), name.shown()));
        stays_inside(item.file).map_err(about)?;
        files.entry(item.file).or_default().push(Wanted { what: What::Object(number), item: *item });
    }
    let names: Vec<&str> = metadata.objects.keys().copied().collect();
    let mut contents: Vec<Option<Bytes>> = names.iter().map(|_| None).collect();
    let tensors: Vec<_> = metadata.tensors.iter().collect();
    let found = Mutex::new((&mut chunks, Vec::new(), &mut contents));
    let mut files: Vec<_> = files.into_iter().collect();
    parallel::for_each(THREADS, &mut files, zip::room, |room, (file, wanted)| {
        let input = Arc::new(Input::open(&dir.join(&**file))?);
        let of_objects = wanted.iter().filter(|one| matches!(one.what, What::Object(_)));
        objects::check_total(&input, of_objects.map(|one| one.item.len))?;
        let opened = input.open_again()?;
        for Wanted { what, item } in wanted {
            let (number, chunk) = match what {
                What::Chunk { tensor, chunk } => (tensor, chunk),
                What::Object(number) => {
                    let about = |error: Error| error.about(format_args!("`{}`", names[*number].shown()));
                    let place = Peek::new(&input, &opened, item.offset, item.len).map_err(about)?;
                    let archive = Archive::of_object(place, room).map_err(about)?;
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.1.push(archive);
                    found.2[*number] = Some(place.bytes());
                    continue;
                }
            };
            let (name, tensor) = tensors[*number];
            let about = |error: Error| error.about_tensor(name).about(input.path().display());
            let (stored, archive) = Peek::new(&input, &opened, item.offset, item.len)
                .and_then(|archive| torch_save::only_tensor(archive, room))
                .map_err(about)?;
            let len = &tensor.chunks[*chunk].1;
            if (stored.dtype, &stored.shape) != (tensor.dtype, len) {
                let Stored { dtype, shape, .. } = stored;
                let why = format!(
                    "a chunk is {dtype} {shape:?}, but {METADATA_NAME} declares {} {len:?}",
                    tensor.dtype
                );
                return Err(about(Error::mismatch("dcp", why)));
            }
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.0[*number][*chunk] = Some(stored.bytes);
            found.1.push(archive);
        }
        input.check(&opened)
    })?;
    let (_, mut archives, _) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let path_of = |name: &str| metadata.paths.get(name).cloned();
    let mut all = Vec::with_capacity(tensors.len());
    for ((name, tensor), bytes) in tensors.into_iter().zip(chunks) {
        let parts = tensor
            .chunks
            .iter()
            .zip(bytes)
            .filter_map(|((start, len), bytes)| Some((&start[..], &len[..], bytes?)));
        let made = parts::of_chunks(name, tensor.dtype, &tensor.shape, parts.collect());
        let made = made.map_err(|error| error.about_tensor(name).about(path.display()))?;
        all.push(Tensor { path: path_of(name), ..made });
    }
    let mut objects = Vec::with_capacity(names.len());
    for (name, bytes) in names.iter().zip(contents) {
        let bytes = bytes.ok_or_else(|| Error::internal("an object was not read"))?;
        let content = Content::Archive(bytes);
        objects.push(Object { name: (*name).to_owned(), path: path_of(name), content, sum: None });
    }
    let beside = Beside::read(dir, &all, &objects)?;
    all.extend(beside.tensors);
    all.sort_by(|a, b| a.name.cmp(&b.name));
    objects.extend(beside.objects);
    archives.extend(beside.archives);
    objects.sort_by(|a, b| a.name.cmp(&b.name));
    let checkpoint = Checkpoint::of_tensors(all, Origin::Files, None);
    Ok(Checkpoint { archives: archives::in_order(archives), objects, ..checkpoint })
}

/// Returns the writer named in a `.metadata` file, if any; PyTorch writes a different id every time.
pub(crate) fn writer(path: &Path) -> Option<String> {
    let text = read_at_most(path, MOST_BYTES).ok()?;
    metadata::writer(&text).ok().flatten()
}

/// The number of threads that open files: each waits for the disk.
const THREADS: usize = 4;

fn stays_inside(file: &str) -> Result<(), Error> {
    if place::is_inside(file) {
        return Ok(());
    }
    let message = format!("a chunk refers to `{}`, which is not a file of this folder", file.shown());
    Err(Error::malformed("dcp", message))
}
