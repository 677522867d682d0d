//! Meshes.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{LONGEST, list, put, put_each, put_list, put_text, text};

/// Ranks along named axes.
#[derive(Debug)]
pub struct Mesh(pub(crate) reshard_sharding::Mesh);

impl Handled for Mesh {
    const NAME: &'static str = "mesh";
}

/// A mesh from its notation, such as `dp=2,tp=4`.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_parse(notation: *const c_char, out: *mut *mut Mesh) -> Status {
    body!(reshard_mesh_parse(notation, out) {
        // SAFETY: as the caller promises.
        let mesh = unsafe { text(notation, "notation") }?.parse()?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Mesh(mesh), out) }
    })
}

/// Frees a mesh; shardings over it stay valid. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_mesh_free(mesh: *mut Mesh) -> Status {
    body!(reshard_mesh_free() { handles::free(mesh) })
}

/// The notation of the mesh.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_text(
    mesh: *const Mesh,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_mesh_text(mesh, length) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&mesh.0.to_string(), buffer, size, length) }
    })
}

/// The number of ranks.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_size(mesh: *const Mesh, out: *mut usize) -> Status {
    body!(reshard_mesh_size(mesh, out) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, mesh.0.size(), "out") }
    })
}

/// All ranks in the order of their coordinates, the last axis fastest.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_ranks(
    mesh: *const Mesh,
    values: *mut usize,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_mesh_ranks(mesh, count) {
        let mesh = &handles::of(mesh)?.0;
        // SAFETY: as the caller promises.
        unsafe { put_each(mesh.size(), mesh.ranks(), values, capacity, count) }
    })
}

/// The name and the size of an axis; axes are counted from the outermost.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_axis(
    mesh: *const Mesh,
    axis: usize,
    ranks: *mut usize,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_mesh_axis(mesh, ranks, length) {
        let mesh = handles::of(mesh)?;
        let axes = mesh.0.axes();
        let axis = axes.get(axis).ok_or_else(|| Fault::past_the_end("axis", axis, axes.len()))?;
        // SAFETY: as the caller promises.
        unsafe {
            put(ranks, axis.size(), "ranks")?;
            put_text(axis.name().as_str(), buffer, size, length)
        }
    })
}

/// The coordinate of a rank along each axis.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_coordinate(
    mesh: *const Mesh,
    rank: usize,
    values: *mut usize,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_mesh_coordinate(mesh, count) {
        let mesh = handles::of(mesh)?;
        let coordinate = mesh.0.coordinate(rank);
        let mesh = || mesh.0.to_string();
        let coordinate = coordinate.ok_or_else(|| reshard_sharding::Error::NoSuchRank { rank, mesh: mesh() })?;
        // SAFETY: as the caller promises.
        unsafe { put_list(&coordinate, values, capacity, count) }
    })
}

/// The rank at a coordinate of `axes` numbers.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_rank_at(
    mesh: *const Mesh,
    coordinate: *const usize,
    axes: usize,
    out: *mut usize,
) -> Status {
    body!(reshard_mesh_rank_at(mesh, out) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        let coordinate = unsafe { list(coordinate, axes, "coordinate") }?;
        let rank = mesh.0.rank_at(coordinate).ok_or_else(|| {
            Fault::refused("coordinate", format!("{coordinate:?} is not a coordinate of mesh {}", mesh.0))
        })?;
        // SAFETY: as the caller promises.
        unsafe { put(out, rank, "out") }
    })
}

/// The ranks of a rank's group along axes, such as `dp` or `dp,tp`, ascending, the rank among them.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_group(
    mesh: *const Mesh,
    axes: *const c_char,
    rank: usize,
    values: *mut usize,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_mesh_group(mesh, axes, count) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        let axes = unsafe { text(axes, "axes") }?;
        let axes = axes.split(',').map(|axis| mesh.0.full_axis(mesh.0.axis(axis.trim())?));
        let axes = axes.collect::<Result<Vec<_>, _>>()?;
        let group = mesh.0.members(&axes, rank)?;
        if group.size() > LONGEST {
            let message = format!("the group has {} ranks, but at most {LONGEST} can be listed", group.size());
            return Err(Fault::refused("too_many_ranks", message));
        }
        let members: Vec<usize> = group.iter().collect();
        // SAFETY: as the caller promises.
        unsafe { put_list(&members, values, capacity, count) }
    })
}
