//! A PyTorch distributed checkpoint to be written: the assignment of chunks to files, and `.metadata`.
//!
//! A rank's shard is a box for every combination of the intervals that it holds of the dims; each box is a
//! chunk. Data that several ranks hold is written once: each of them writes a part of it, or one of them in turn
//! if there is little of it. This works for any shards, chunks and mesh, and assumes nothing about the PyTorch
//! program that reads the result.

use reshard_sharding::{Interval, Region};
use safetensors::Dtype;

use crate::error::Error;
use crate::formats::dcp::frame::{Frame, names};
use crate::formats::objects_file::Placed as PlacedObject;
use crate::formats::pickle::Writer;
use crate::model::boxes::{each_box, of_box};
use crate::model::objects::Key;
use crate::model::placed::{Placed, all};
use crate::model::stored;

/// The largest number of chunks of a tensor.
const MOST_CHUNKS: usize = 1 << 16;

/// The writer's name in PyTorch's field for it; by this `--force` recognizes the output of a run.
pub(crate) const WRITER: &str = "reshard";

const METADATA: &str = "torch.distributed.checkpoint.metadata";

/// Returns the name of the file of one rank.
pub(crate) fn file_name(rank: usize) -> String {
    format!("__{rank}_0.distcp")
}

/// Returns `true` if a rank could have a file of this name.
pub(crate) fn is_file_name(name: &str) -> bool {
    let rank = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("_0.distcp"));
    rank.and_then(|rank| rank.parse().ok()).is_some_and(|rank: usize| file_name(rank) == name)
}

/// One chunk, and the location of its archive.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) start: Vec<usize>,
    pub(crate) shape: Vec<usize>,
    /// The group rank of the rank whose file it is in.
    pub(crate) place: usize,
    /// The offset of its archive in that file; its length follows.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The offset of its bytes in the file.
    pub(crate) bytes: u64,
}

/// Rejects a type that PyTorch lacks, or that its reader of safetensors files does not know.
pub(crate) fn check(dtype: Dtype, in_safetensors: bool) -> Result<(), Error> {
    let unsupported = |why: &str| Err(Error::unsupported("dcp", format!("its elements are {dtype}, {why}")));
    match names(dtype) {
        None => unsupported("for which PyTorch has no type"),
        Some(_) if in_safetensors && dtype == Dtype::F8_E8M0 => {
            unsupported("which PyTorch does not read from safetensors files; use `--format dcp`")
        }
        Some(_) => Ok(()),
    }
}

/// The bytes of a shard above which the ranks that hold it each write a part.
const WORTH_PARTS: usize = 64 << 10;

/// Returns the chunks of a tensor: disjoint boxes, each with the one rank that writes it.
///
/// `number` is that of the tensor, and `item_bytes` the size of a unit.
pub(crate) fn chunks(
    placed: &Placed,
    shape: &[usize],
    number: usize,
    item_bytes: usize,
) -> Result<Placed, Error> {
    if shape.contains(&0) {
        return Ok(Placed::apart(vec![all(shape)]));
    }
    let mut chunks = Placed { regions: Vec::new(), of_rank: Vec::new(), holders: Vec::new() };
    for (region, holders) in placed.regions.iter().zip(&placed.holders) {
        let count = region
            .dims
            .iter()
            .try_fold(chunks.regions.len().max(1), |count, dim| count.checked_mul(dim.len().max(1)));
        if count.is_none_or(|count| count > MOST_CHUNKS) {
            let message = format!(
                "its shards consist of more than {MOST_CHUNKS} boxes, each of which would be a chunk; choose longer blocks"
            );
            return Err(Error::unsupported("chunks", message));
        }
        let parts = if region.numel() * item_bytes < WORTH_PARTS { 1 } else { holders.len() };
        each_box(region, &mut |intervals| {
            for (part, region) in along_the_longest_dim(intervals, parts).into_iter().enumerate() {
                let place = holders[(number + part) % holders.len()];
                chunks.regions.push(region);
                chunks.holders.push(vec![place]);
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(chunks)
}

/// Splits a box into at most this many boxes of nearly equal size.
fn along_the_longest_dim(intervals: &[Interval], parts: usize) -> Vec<Region> {
    let longest = intervals.iter().enumerate().rev().max_by_key(|(_, interval)| interval.len);
    let (Some((dim, Interval { start, len })), true) = (longest, parts > 1) else {
        return vec![of_box(intervals)];
    };
    let bound = |part: usize| start + (*len as u128 * part as u128 / parts as u128) as usize;
    let part = |part: usize| {
        let mut intervals = intervals.to_vec();
        intervals[dim] = Interval { start: bound(part), len: bound(part + 1) - bound(part) };
        (intervals[dim].len > 0).then(|| of_box(&intervals))
    };
    (0..parts).filter_map(part).collect()
}

/// Appends a chunk to the end of its file.
pub(crate) fn place(region: &Region, dtype: Dtype, place: usize, end: &mut u64) -> Option<Chunk> {
    let (start, shape) = bounds(region);
    let bytes = stored::byte_len(dtype, &shape)? as u64;
    let frame = Frame::new(dtype, &shape, bytes, 0)?;
    let offset = *end;
    let begin = offset + frame.head.len() as u64;
    *end = begin + bytes + frame.tail.len() as u64;
    Some(Chunk { start, shape, place, offset, len: *end - offset, bytes: begin })
}

/// Appends a chunk without an archive around it: `bytes` is its offset after the preceding chunks.
pub(crate) fn bare(region: &Region, dtype: Dtype, place: usize, end: &mut u64) -> Option<Chunk> {
    let (start, shape) = bounds(region);
    let len = stored::byte_len(dtype, &shape)? as u64;
    let bytes = std::mem::replace(end, *end + len);
    Some(Chunk { start, shape, place, offset: bytes, len, bytes })
}

/// Returns the start of a box, and its shape.
fn bounds(region: &Region) -> (Vec<usize>, Vec<usize>) {
    let one =
        |dim: &reshard_sharding::Intervals| dim.first().copied().unwrap_or(Interval { start: 0, len: 0 });
    region.dims.iter().map(|dim| (one(dim).start, one(dim).len)).unzip()
}

/// A tensor as `.metadata` describes it.
pub(crate) struct Tensor<'a> {
    pub(crate) name: &'a str,
    /// The path of nested keys; `None` if only the name is known.
    pub(crate) path: Option<&'a [Key]>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) chunks: &'a [Chunk],
}

/// Returns the text of `.metadata`; `rank` maps a group rank to a rank.
pub(crate) fn metadata(
    tensors: &[Tensor<'_>],
    objects: &[PlacedObject<'_>],
    rank: impl Fn(usize) -> usize,
) -> Vec<u8> {
    let mut w = Writer::new();
    w.object(METADATA, "Metadata", |w| {
        w.dict(|w| {
            w.text("state_dict_metadata");
            w.dict(|w| {
                for tensor in tensors {
                    w.text(tensor.name);
                    w.object(METADATA, "TensorStorageMetadata", |w| {
                        w.dict(|w| {
                            w.text("properties");
                            w.object(METADATA, "TensorProperties", |w| properties(w, tensor.dtype));
                            w.text("size");
                            size(w, tensor.shape);
                            w.text("chunks");
                            w.list(|w| {
                                for chunk in tensor.chunks {
                                    w.object(METADATA, "ChunkStorageMetadata", |w| {
                                        w.dict(|w| {
                                            w.text("offsets");
                                            size(w, &chunk.start);
                                            w.text("sizes");
                                            size(w, &chunk.shape);
                                        });
                                    });
                                }
                            });
                        });
                    });
                }
                for object in objects {
                    w.text(object.object.name());
                    w.empty_object(METADATA, "BytesStorageMetadata");
                }
            });
            w.text("planner_data");
            w.dict(|w| {
                let of_objects = objects.iter().map(|one| (one.object.name(), one.object.path()));
                for (name, path) in tensors.iter().map(|one| (one.name, one.path)).chain(of_objects) {
                    w.text(name);
                    w.tuple(|w| match path {
                        None => w.text(name),
                        Some(keys) => keys.iter().for_each(|key| match key {
                            Key::Text(text) => w.text(text),
                            Key::Index(index) => w.size(*index),
                        }),
                    });
                }
            });
            w.text("storage_data");
            w.dict(|w| {
                for (tensor, chunk) in
                    tensors.iter().flat_map(|tensor| tensor.chunks.iter().map(move |chunk| (tensor, chunk)))
                {
                    index(w, tensor.name, Some(&chunk.start));
                    info(w, rank(chunk.place), chunk.offset, chunk.len);
                }
                for PlacedObject { object, place, offset, len, .. } in objects {
                    index(w, object.name(), None);
                    info(w, rank(*place), *offset, *len);
                }
            });
            w.text("storage_meta");
            w.object(METADATA, "StorageMeta", |w| {
                w.dict(|w| {
                    for name in ["checkpoint_id", "load_id"] {
                        w.text(name);
                        w.none();
                    }
                    w.text("save_id");
                    w.text(WRITER);
                    w.text("modules");
                    w.list(|_| {});
                });
            });
        });
    });
    w.finish()
}

fn size(w: &mut Writer, sizes: &[usize]) {
    w.call("torch", "Size", |w| w.sizes(sizes));
}

/// Writes a key of `storage_data`: a chunk with its start, an object without one.
fn index(w: &mut Writer, name: &str, start: Option<&[usize]>) {
    w.object(METADATA, "MetadataIndex", |w| {
        w.dict(|w| {
            w.text("fqn");
            w.text(name);
            w.text("offset");
            match start {
                Some(start) => size(w, start),
                None => w.none(),
            }
            w.text("index");
            w.none();
        });
    });
}

/// Writes a value of `storage_data`: a range of the file of a rank.
fn info(w: &mut Writer, rank: usize, offset: u64, len: u64) {
    w.object("torch.distributed.checkpoint.filesystem", "_StorageInfo", |w| {
        w.dict(|w| {
            w.text("relative_path");
            w.text(&file_name(rank));
            w.text("offset");
            w.size(offset);
            w.text("length");
            w.size(len);
        });
    });
}

/// Writes type, layout, gradient requirement, dim order and memory pinning.
fn properties(w: &mut Writer, dtype: Dtype) {
    w.tuple(|w| {
        if let Some((_, name)) = names(dtype) {
            w.global("torch", name);
        }
        w.call("torch.serialization", "_get_layout", |w| w.text("torch.strided"));
        w.no();
        w.call(METADATA, "_MEM_FORMAT_ENCODING", |w| w.size(0));
        w.no();
    });
}
