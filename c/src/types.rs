//! Types: a sharding of values, and one of their gradients.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::ffi::c_char;

use crate::error::{Status, body};
use crate::handles::{self, Handled};
use crate::memory::{list, put, put_text, text};
use crate::mesh::Mesh;
use crate::sharding::Sharding;

/// Who holds a value, and who holds its gradient.
#[derive(Debug)]
pub struct Type(reshard_sharding::ShardingType);

impl Handled for Type {
    const NAME: &'static str = "type";
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
        let made = reshard_sharding::ShardingType::parse(&mesh.0, shape, notation)?;
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
