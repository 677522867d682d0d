//! Layouts, meshes, shardings and types.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::ffi::c_char;

use reshard_layout::expression::{Value, evaluate};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{list, put, put_each, put_list, put_text, text};

/// Where is an element: a function from an index to an offset.
#[derive(Debug)]
pub struct Layout(reshard_layout::Layout);

/// Ranks along named axes.
#[derive(Debug)]
pub struct Mesh(pub(crate) reshard_sharding::Mesh);

/// Who holds which elements of a tensor.
#[derive(Debug)]
pub struct Sharding(pub(crate) reshard_sharding::Sharding);

/// Who holds a value, and who holds its gradient.
#[derive(Debug)]
pub struct Type(reshard_sharding::Type);

impl Handled for Layout {
    const NAME: &'static str = "layout";
}

impl Handled for Mesh {
    const NAME: &'static str = "mesh";
}

impl Handled for Sharding {
    const NAME: &'static str = "sharding";
}

impl Handled for Type {
    const NAME: &'static str = "type";
}

/// Indices one behind the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Interval {
    /// The first.
    pub start: usize,
    /// How many.
    pub length: usize,
}

/// What an expression of the layout algebra comes to, as text: `size((4,2):(1,4))` is `8`.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_evaluate(
    expression: *const c_char,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_evaluate(expression, length) {
        // SAFETY: as the caller promises.
        let expression = unsafe { text(expression, "expression") }?;
        let value = evaluate(expression)?.to_string();
        // SAFETY: as the caller promises.
        unsafe { put_text(&value, buffer, size, length) }
    })
}

/// A layout, of its notation such as `(4,2):(1,4)`, or of an expression that comes to one, such as `coalesce((4,2):(1,4))`.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_parse(expression: *const c_char, out: *mut *mut Layout) -> Status {
    body!(reshard_layout_parse(expression, out) {
        // SAFETY: as the caller promises.
        let expression = unsafe { text(expression, "expression") }?;
        let Value::Layout(layout) = evaluate(expression)? else {
            return Err(Fault::refused("usage", format!("{expression} comes to no layout of integers")));
        };
        // SAFETY: as the caller promises.
        unsafe { handles::put(Layout(layout), out) }
    })
}

/// A flat layout of `modes` extents and strides, the leftmost fastest.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_new(
    extents: *const i64,
    strides: *const i64,
    modes: usize,
    out: *mut *mut Layout,
) -> Status {
    body!(reshard_layout_new(out) {
        // SAFETY: as the caller promises.
        let (extents, strides) = unsafe { (list(extents, modes, "extents")?, list(strides, modes, "strides")?) };
        let modes: Vec<(i64, i64)> = extents.iter().copied().zip(strides.iter().copied()).collect();
        let layout = reshard_layout::Layout::from_modes(&modes)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Layout(layout), out) }
    })
}

/// Frees a layout; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_layout_free(layout: *mut Layout) -> Status {
    body!(reshard_layout_free() { handles::free(layout) })
}

/// Its notation.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_text(
    layout: *const Layout,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_layout_text(layout, length) {
        let layout = handles::of(layout)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&layout.0.to_string(), buffer, size, length) }
    })
}

/// How many indices it has.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_size(layout: *const Layout, out: *mut i64) -> Status {
    body!(reshard_layout_size(layout, out) {
        let layout = handles::of(layout)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, layout.0.size(), "out") }
    })
}

/// The offset of an index below the size.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_at(layout: *const Layout, index: i64, out: *mut i64) -> Status {
    body!(reshard_layout_at(layout, out) {
        let offset = handles::of(layout)?.0.at(index)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, offset, "out") }
    })
}

/// Its modes without their nesting, the leftmost fastest: extents and strides, `capacity` of each at most.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_modes(
    layout: *const Layout,
    extents: *mut i64,
    strides: *mut i64,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_layout_modes(layout, count) {
        let layout = handles::of(layout)?;
        let (all, steps): (Vec<i64>, Vec<i64>) = layout.0.flat().iter().map(|mode| (mode.extent, mode.stride)).unzip();
        // SAFETY: as the caller promises.
        unsafe {
            put_list(&all, extents, capacity, count)?;
            put_list(&steps, strides, capacity, count)
        }
    })
}

/// A mesh, such as `dp=2,tp=4`.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_mesh_parse(notation: *const c_char, out: *mut *mut Mesh) -> Status {
    body!(reshard_mesh_parse(notation, out) {
        // SAFETY: as the caller promises.
        let mesh = unsafe { text(notation, "notation") }?.parse()?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Mesh(mesh), out) }
    })
}

/// Frees a mesh; shardings over it stay; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_mesh_free(mesh: *mut Mesh) -> Status {
    body!(reshard_mesh_free() { handles::free(mesh) })
}

/// Its notation.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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
            Fault::refused("coordinate", format!("{coordinate:?} is no coordinate of {}", mesh.0))
        })?;
        // SAFETY: as the caller promises.
        unsafe { put(out, rank, "out") }
    })
}

/// The ranks of a rank's group along axes, such as `dp` or `dp,tp`, ascending, the rank among them.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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
        let axes = axes.split(',').map(|axis| mesh.0.whole(mesh.0.axis(axis.trim())?));
        let axes = axes.collect::<Result<Vec<_>, _>>()?;
        let members: Vec<usize> = mesh.0.members(&axes, rank)?.iter().collect();
        // SAFETY: as the caller promises.
        unsafe { put_list(&members, values, capacity, count) }
    })
}

/// Who holds which elements of a tensor of `dims` sizes: placements such as `S(0),R`, one for each axis of the mesh, or any notation
/// that the library reads.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// What `reshard_sharding_json` wrote.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Frees a sharding; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_sharding_free(sharding: *mut Sharding) -> Status {
    body!(reshard_sharding_free() { handles::free(sharding) })
}

/// Its placements.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Its mesh, a handle of its own.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_mesh(sharding: *const Sharding, out: *mut *mut Mesh) -> Status {
    body!(reshard_sharding_mesh(sharding, out) {
        let mesh = handles::of(sharding)?.0.mesh().clone();
        // SAFETY: as the caller promises.
        unsafe { handles::put(Mesh(mesh), out) }
    })
}

/// The shape of the whole tensor.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// The shape of what a rank holds.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// The sharding of the tensor viewed in another shape, where no element has to move; refused as `needs_redistribute` where one has.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Whether two are equal: 1 or 0.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Who holds a value and who holds its gradient, such as `R|S(0),I`.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_type_parse(
    mesh: *const Mesh,
    shape: *const usize,
    dims: usize,
    notation: *const c_char,
    out: *mut *mut Type,
) -> Status {
    body!(reshard_type_parse(mesh, notation, out) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        let (shape, notation) = unsafe { (list(shape, dims, "shape")?, text(notation, "notation")?) };
        let made = reshard_sharding::Type::parse(&mesh.0, shape, notation)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Type(made), out) }
    })
}

/// Frees a type; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_type_free(type_: *mut Type) -> Status {
    body!(reshard_type_free() { handles::free(type_) })
}

/// Its notation.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_type_text(
    type_: *const Type,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_type_text(type_, length) {
        let type_ = handles::of(type_)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&type_.0.to_string(), buffer, size, length) }
    })
}

/// Who holds the value.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_type_value(type_: *const Type, out: *mut *mut Sharding) -> Status {
    body!(reshard_type_value(type_, out) {
        let value = handles::of(type_)?.0.value.clone();
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(value), out) }
    })
}

/// Who holds the gradient; null where there is none.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_type_gradient(type_: *const Type, out: *mut *mut Sharding) -> Status {
    body!(reshard_type_gradient(type_, out) {
        let Some(gradient) = handles::of(type_)?.0.gradient.clone() else {
            // SAFETY: as the caller promises.
            return unsafe { put(out, std::ptr::null_mut(), "out") };
        };
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(gradient), out) }
    })
}
