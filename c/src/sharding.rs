//! Shardings.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{list, put, put_list, put_text, text};
use crate::mesh::Mesh;

/// The elements of a tensor that each rank holds.
#[derive(Debug)]
pub struct Sharding(pub(crate) reshard_sharding::Sharding);

impl Handled for Sharding {
    const NAME: &'static str = "sharding";
}

/// A range of consecutive indices.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Interval {
    /// The first index.
    pub start: usize,
    /// The number of indices.
    pub length: usize,
}

/// Parses the sharding of a tensor of `dims` sizes.
///
/// The notation is placements such as `S(0),R`, one for each axis of the mesh, or any other that the library
/// reads.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_parse(
    mesh: *const Mesh,
    shape: *const usize,
    dims: usize,
    notation: *const c_char,
    out: *mut *mut Sharding,
) -> Status {
    body!(reshard_sharding_parse(mesh, notation, out) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        let (shape, notation) = unsafe { (list(shape, dims, "shape")?, text(notation, "notation")?) };
        let sharding = reshard_sharding::Sharding::parse(&mesh.0, shape, notation)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(sharding), out) }
    })
}

/// Reads a sharding from the JSON of `reshard_sharding_json`.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_from_json(json: *const c_char, out: *mut *mut Sharding) -> Status {
    body!(reshard_sharding_from_json(json, out) {
        // SAFETY: as the caller promises.
        let json = unsafe { text(json, "json") }?;
        let sharding = serde_json::from_str(json).map_err(|error| Fault::refused("parse", error.to_string()))?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(sharding), out) }
    })
}

/// Frees a sharding; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_sharding_free(sharding: *mut Sharding) -> Status {
    body!(reshard_sharding_free() { handles::free(sharding) })
}

/// The placements of the sharding.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_text(
    sharding: *const Sharding,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_sharding_text(sharding, length) {
        let sharding = handles::of(sharding)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&sharding.0.to_string(), buffer, size, length) }
    })
}

/// Mesh, shape and placements as a JSON object.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_json(
    sharding: *const Sharding,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_sharding_json(sharding, length) {
        let json = serde_json::to_string(&handles::of(sharding)?.0);
        let json = json.map_err(|error| Fault::refused("json", error.to_string()))?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&json, buffer, size, length) }
    })
}

/// The mesh of the sharding, as a new handle.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_mesh(sharding: *const Sharding, out: *mut *mut Mesh) -> Status {
    body!(reshard_sharding_mesh(sharding, out) {
        let mesh = handles::of(sharding)?.0.mesh().clone();
        // SAFETY: as the caller promises.
        unsafe { handles::put(Mesh(mesh), out) }
    })
}

/// The shape of the global tensor.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_shape(
    sharding: *const Sharding,
    values: *mut usize,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_sharding_shape(sharding, count) {
        let sharding = handles::of(sharding)?;
        // SAFETY: as the caller promises.
        unsafe { put_list(sharding.0.shape(), values, capacity, count) }
    })
}

/// The shape of a rank's shard.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_local_shape(
    sharding: *const Sharding,
    rank: usize,
    values: *mut usize,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_sharding_local_shape(sharding, count) {
        let shape = handles::of(sharding)?.0.local_shape(rank)?;
        // SAFETY: as the caller promises.
        unsafe { put_list(&shape, values, capacity, count) }
    })
}

/// The indices of a dim that a rank holds, in local order.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_region(
    sharding: *const Sharding,
    rank: usize,
    dim: usize,
    values: *mut Interval,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_sharding_region(sharding, count) {
        let region = handles::of(sharding)?.0.region(rank)?;
        let dims = region.dims.len();
        let intervals = region.dims.get(dim).ok_or_else(|| Fault::past_the_end("dim", dim, dims))?;
        let intervals: Vec<Interval> =
            intervals.iter().map(|of| Interval { start: of.start, length: of.len }).collect();
        // SAFETY: as the caller promises.
        unsafe { put_list(&intervals, values, capacity, count) }
    })
}

/// The sharding of the tensor viewed in another shape.
///
/// It is rejected as `needs_redistribute` if elements must be sent.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_view(
    sharding: *const Sharding,
    shape: *const usize,
    dims: usize,
    out: *mut *mut Sharding,
) -> Status {
    body!(reshard_sharding_view(sharding, out) {
        let sharding = handles::of(sharding)?;
        // SAFETY: as the caller promises.
        let shape = unsafe { list(shape, dims, "shape") }?;
        let view = sharding.0.view(shape)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(view), out) }
    })
}

/// 1 if two shardings are equal, else 0.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_equal(
    one: *const Sharding,
    other: *const Sharding,
    out: *mut u8,
) -> Status {
    body!(reshard_sharding_equal(one, other, out) {
        let equal = handles::of(one)?.0 == handles::of(other)?.0;
        // SAFETY: as the caller promises.
        unsafe { put(out, u8::from(equal), "out") }
    })
}
