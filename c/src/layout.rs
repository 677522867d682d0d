//! Layouts, and expressions of their algebra.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use reshard_layout::expression::{Value, evaluate};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{list, put, put_list, put_text, text};

/// A layout: a function from an index to an offset.
#[derive(Debug)]
pub struct Layout(reshard_layout::Layout);

impl Handled for Layout {
    const NAME: &'static str = "layout";
}

/// The value of an expression of the layout algebra as text: `size((4,2):(1,4))` is `8`.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// A layout from its notation, such as `(4,2):(1,4)`, or from an expression such as `coalesce((4,2):(1,4))`.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_parse(expression: *const c_char, out: *mut *mut Layout) -> Status {
    body!(reshard_layout_parse(expression, out) {
        // SAFETY: as the caller promises.
        let expression = unsafe { text(expression, "expression") }?;
        let Value::Layout(layout) = evaluate(expression)? else {
            return Err(Fault::refused("usage", format!("`{expression}` does not evaluate to a layout of integers")));
        };
        // SAFETY: as the caller promises.
        unsafe { handles::put(Layout(layout), out) }
    })
}

/// A flat layout of `modes` extents and strides, the leftmost fastest.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// Frees a layout; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_layout_free(layout: *mut Layout) -> Status {
    body!(reshard_layout_free() { handles::free(layout) })
}

/// The notation of the layout.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// The number of indices.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_at(layout: *const Layout, index: i64, out: *mut i64) -> Status {
    body!(reshard_layout_at(layout, out) {
        let offset = handles::of(layout)?.0.at(index)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, offset, "out") }
    })
}

/// The extents and strides of the flattened modes, the leftmost fastest; at most `capacity` of each.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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
