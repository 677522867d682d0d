//! Sharding types: the sharding of a value, and that of its gradient.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use crate::error::{Status, body};
use crate::handles::{self, Handled};
use crate::memory::{list, put, put_text, text};
use crate::mesh::Mesh;
use crate::sharding::Sharding;

/// The sharding of a value and that of its gradient.
#[derive(Debug)]
pub struct Type(reshard_sharding::ShardingType);

impl Handled for Type {
    const NAME: &'static str = "type";
}

/// Parses a sharding type: the sharding of a value and that of its gradient, such as `R|S(0),I`.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_type_parse(
    mesh: *const Mesh,
    shape: *const usize,
    dims: usize,
    notation: *const c_char,
    out: *mut *mut Type,
) -> Status {
    body!(reshard_sharding_type_parse(mesh, notation, out) {
        let mesh = handles::of(mesh)?;
        // SAFETY: as the caller promises.
        let (shape, notation) = unsafe { (list(shape, dims, "shape")?, text(notation, "notation")?) };
        let made = reshard_sharding::ShardingType::parse(&mesh.0, shape, notation)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Type(made), out) }
    })
}

/// Frees a type; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_sharding_type_free(type_: *mut Type) -> Status {
    body!(reshard_sharding_type_free() { handles::free(type_) })
}

/// The notation of the type.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_type_text(
    type_: *const Type,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_sharding_type_text(type_, length) {
        let type_ = handles::of(type_)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&type_.0.to_string(), buffer, size, length) }
    })
}

/// The sharding of the value.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_type_value(type_: *const Type, out: *mut *mut Sharding) -> Status {
    body!(reshard_sharding_type_value(type_, out) {
        let value = handles::of(type_)?.0.value.clone();
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(value), out) }
    })
}

/// The sharding of the gradient; null if there is none.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_sharding_type_gradient(
    type_: *const Type,
    out: *mut *mut Sharding,
) -> Status {
    body!(reshard_sharding_type_gradient(type_, out) {
        let Some(gradient) = handles::of(type_)?.0.gradient.clone() else {
            // SAFETY: as the caller promises.
            return unsafe { put(out, std::ptr::null_mut(), "out") };
        };
        // SAFETY: as the caller promises.
        unsafe { handles::put(Sharding(gradient), out) }
    })
}
