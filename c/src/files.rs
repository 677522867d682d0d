//! Regions of checkpoints.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;
use std::fmt;
use std::path::Path;

use reshard_sharding::{Interval, Region};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::held::Held;
use crate::memory::{bytes_mut, list, put, put_sized, text};
use crate::sharding::Sharding;

/// The tensors of a file or a folder.
pub struct Checkpoint {
    opened: reshard_checkpoint::Checkpoint,
    tensors: Vec<Tensor>,
    /// Owns the data that the structs point to; freed with them.
    _held: Held,
}

// SAFETY: the pointers in these structs point to data that the same value owns and never changes.
unsafe impl Send for Checkpoint {}
// SAFETY: as above; all that is shared is read.
unsafe impl Sync for Checkpoint {}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint of {} tensors", self.tensors.len())
    }
}

impl Handled for Checkpoint {
    const NAME: &'static str = "checkpoint";
}

/// The metadata of a tensor in a checkpoint.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tensor {
    /// The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
    pub size: usize,
    /// Its name.
    pub name: *const c_char,
    /// The type of its elements, such as `f32`.
    pub dtype: *const c_char,
    /// The shape of the global tensor.
    pub shape: *const usize,
    /// The number of dims.
    pub dims: usize,
    /// The bytes of the global tensor.
    pub bytes: u64,
}

impl Checkpoint {
    fn open(path: &str) -> Result<Checkpoint, Fault> {
        let checkpoint = reshard_checkpoint::Checkpoint::open(Some(Path::new(path)))?;
        let mut held = Held::default();
        let tensors = checkpoint.tensors().iter().map(|tensor| {
            Ok(Tensor {
                size: size_of::<Tensor>(),
                name: held.word(tensor.name())?,
                dtype: held.word(&tensor.dtype().to_lowercase())?,
                shape: held.list(tensor.shape().to_vec()),
                dims: tensor.shape().len(),
                bytes: tensor.byte_len(),
            })
        });
        let tensors = tensors.collect::<Result<Vec<_>, Fault>>()?;
        Ok(Checkpoint { opened: checkpoint, tensors, _held: held })
    }
}

/// Writes bytes and their number, which is written even if the bytes do not fit.
///
/// # Safety
///
/// As for [`bytes_mut`]; and a number can be written at `length`.
unsafe fn put_bytes(all: &[u8], out: *mut u8, capacity: usize, length: *mut usize) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    unsafe { put(length, all.len(), "length") }?;
    if capacity == 0 {
        return Ok(());
    }
    if capacity < all.len() {
        let message = format!("the buffer has {capacity} bytes, but {} are needed", all.len());
        return Err(Fault::new(Status::OutOfRange, "room", message));
    }
    // SAFETY: as the caller promises.
    unsafe { bytes_mut(out, all.len(), "bytes") }?.copy_from_slice(all);
    Ok(())
}

/// The tensors of a file or a folder, in any supported format; opening reads headers only.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_checkpoint_open(path: *const c_char, out: *mut *mut Checkpoint) -> Status {
    body!(reshard_checkpoint_open(path, out) {
        // SAFETY: as the caller promises.
        let checkpoint = Checkpoint::open(unsafe { text(path, "path") }?)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(checkpoint, out) }
    })
}

/// Frees a checkpoint, and the data that its tensors point to; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_checkpoint_free(checkpoint: *mut Checkpoint) -> Status {
    body!(reshard_checkpoint_free() { handles::free(checkpoint) })
}

/// The number of tensors.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_checkpoint_tensors(
    checkpoint: *const Checkpoint,
    out: *mut usize,
) -> Status {
    body!(reshard_checkpoint_tensors(checkpoint, out) {
        let checkpoint = handles::of(checkpoint)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, checkpoint.tensors.len(), "out") }
    })
}

/// One tensor; the data that it points to is valid until the checkpoint is freed.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_checkpoint_tensor(
    checkpoint: *const Checkpoint,
    index: usize,
    out: *mut Tensor,
) -> Status {
    body!(reshard_checkpoint_tensor(checkpoint, out) {
        let checkpoint = handles::of(checkpoint)?;
        let tensors = &checkpoint.tensors;
        let tensor = *tensors.get(index).ok_or_else(|| Fault::past_the_end("tensor", index, tensors.len()))?;
        // SAFETY: as the caller promises.
        unsafe { put_sized(out, tensor, size_of::<Tensor>(), "out") }
    })
}

/// The bytes of a region of a tensor, row-major; nothing else of the tensor is read.
///
/// The region has `lengths` indices from `starts` on, along each of `dims` dims. With a `capacity` of 0 only
/// the length is written, but the region is read all the same.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_checkpoint_read(
    checkpoint: *const Checkpoint,
    name: *const c_char,
    starts: *const usize,
    lengths: *const usize,
    dims: usize,
    bytes: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_checkpoint_read(checkpoint, name, length) {
        let checkpoint = handles::of(checkpoint)?;
        // SAFETY: as the caller promises.
        let (name, starts, lengths) =
            unsafe { (text(name, "name")?, list(starts, dims, "starts")?, list(lengths, dims, "lengths")?) };
        let pairs = starts.iter().zip(lengths);
        let whole = |(&start, &len): (&usize, &usize)| {
            if len == 0 { Vec::new() } else { vec![Interval { start, len }] }
        };
        let region = Region { dims: pairs.map(|pair| whole(pair).into_iter().collect()).collect() };
        let read = checkpoint.opened.read(name, &region)?;
        // SAFETY: as the caller promises.
        unsafe { put_bytes(&read, bytes, capacity, length) }
    })
}

/// The bytes of a rank's shard of a tensor; nothing else of the tensor is read.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_checkpoint_shard(
    checkpoint: *const Checkpoint,
    name: *const c_char,
    sharding: *const Sharding,
    rank: usize,
    bytes: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_checkpoint_shard(checkpoint, name, sharding, length) {
        let (checkpoint, sharding) = (handles::of(checkpoint)?, handles::of(sharding)?);
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        let read = checkpoint.opened.shard(name, &sharding.0, rank)?;
        // SAFETY: as the caller promises.
        unsafe { put_bytes(&read, bytes, capacity, length) }
    })
}
