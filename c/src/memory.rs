//! What the caller lends for a call: texts, lists, places for answers. All that is unsafe about them is here.
#![allow(unsafe_code, reason = "memory of the caller is read and written")]

use std::ffi::{CStr, c_char};
use std::{mem, ptr, slice};

use crate::error::{Fault, Status};

/// The longest list that is taken or given: of more nobody asks, and a length that was never set is longer.
pub(crate) const LONGEST: usize = 1 << 24;

/// Fails for a null pointer.
pub(crate) fn not_null<T>(pointer: *const T, name: &str) -> Result<(), Fault> {
    if pointer.is_null() {
        return Err(Fault::new(Status::NullPointer, "null", format!("`{name}` is null")));
    }
    Ok(())
}

/// Fails for a pointer that is null or misaligned.
pub(crate) fn aligned<T>(pointer: *const T, name: &str) -> Result<(), Fault> {
    not_null(pointer, name)?;
    if pointer.is_aligned() {
        return Ok(());
    }
    let (at, to) = (pointer.addr(), align_of::<T>());
    Err(Fault::refused("alignment", format!("`{name}` is at {at:#x}, and must be at a multiple of {to}")))
}

/// A text.
///
/// # Safety
///
/// A pointer that is not null leads to bytes that end with a 0 and stay as they are meanwhile.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Fault> {
    not_null(pointer, name)?;
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| {
        Fault::refused(
            "utf8",
            format!("`{name}` is {:?}, which is not UTF-8: {error}", text.to_string_lossy()),
        )
    })
}

/// A text that may be left out.
///
/// # Safety
///
/// As of [`text`].
pub(crate) unsafe fn text_if_any<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { text(pointer, name) }.map(Some)
}

fn checked<T>(pointer: *const T, len: usize, most: usize, name: &str) -> Result<bool, Fault> {
    if len == 0 {
        return Ok(false);
    }
    aligned(pointer, name)?;
    if len > most {
        return Err(Fault::refused(
            "too_many",
            format!("`{name}` has {len} entries, and at most {most} are taken"),
        ));
    }
    Ok(true)
}

/// A list; null is none if it is empty.
///
/// # Safety
///
/// So many values lie at a pointer that is not null, and stay as they are meanwhile.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T], Fault> {
    if !checked(pointer, len, LONGEST, name)? {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises; it is not null, aligned, and no longer than memory.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// So many bytes, of any number that memory can have.
///
/// # Safety
///
/// As of [`list`].
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize, name: &str) -> Result<&'a [u8], Fault> {
    if !checked(pointer, len, isize::MAX as usize, name)? {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// So many bytes to be written.
///
/// # Safety
///
/// So many bytes at a pointer that is not null can be read and written, by nobody else meanwhile.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize, name: &str) -> Result<&'a mut [u8], Fault> {
    if !checked(pointer, len, isize::MAX as usize, name)? {
        return Ok(&mut []);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
}

/// Writes an answer.
///
/// # Safety
///
/// A value can be written at a pointer that is not null.
pub(crate) unsafe fn put<T>(out: *mut T, value: T, name: &str) -> Result<(), Fault> {
    aligned(out, name)?;
    // SAFETY: as the caller promises; it is not null, and aligned.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a list, and how many it has, which is written also where it does not fit; nothing but that where `capacity` is 0.
///
/// # Safety
///
/// `capacity` values can be written at `out`, and one at `count`.
pub(crate) unsafe fn put_list<T: Copy>(
    values: &[T],
    out: *mut T,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    unsafe { put_each(values.len(), values.iter().copied(), out, capacity, count) }
}

/// The same of so many values that are made one by one, and only where there is room for all.
///
/// # Safety
///
/// As for [`put_list`].
pub(crate) unsafe fn put_each<T: Copy>(
    len: usize,
    values: impl Iterator<Item = T>,
    out: *mut T,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    unsafe { put(count, len, "count") }?;
    if capacity == 0 {
        return Ok(());
    }
    aligned(out, "values")?;
    if capacity < len {
        let message = format!("there is room for {capacity} values, and they are {len}");
        return Err(Fault::new(Status::OutOfRange, "room", message));
    }
    for (at, value) in values.take(len).enumerate() {
        // SAFETY: `at` is below `len`, and there is room for as many.
        unsafe { out.add(at).write(value) };
    }
    Ok(())
}

/// Writes a text and a 0 behind it, and its length without that, which is written also where it does not fit; nothing but that where
/// `size` is 0.
///
/// # Safety
///
/// `size` bytes can be written at `buffer`, and a value at `length`.
pub(crate) unsafe fn put_text(
    text: &str,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    unsafe { put(length, text.len(), "length") }?;
    if size == 0 {
        return Ok(());
    }
    not_null(buffer, "buffer")?;
    if size <= text.len() {
        let message =
            format!("there is room for {size} bytes, and the text with its 0 has {}", text.len() + 1);
        return Err(Fault::new(Status::OutOfRange, "room", message));
    }
    // SAFETY: there is room for it.
    unsafe { truncated(text, buffer, size) };
    Ok(())
}

/// Writes what fits of a text and a 0 behind it; the length of all of it.
///
/// # Safety
///
/// `size` bytes can be written at `buffer`, if that is not null.
pub(crate) unsafe fn truncated(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if !buffer.is_null() && size > 0 {
        let end = text.floor_char_boundary(size - 1);
        // SAFETY: `end` is less than `size`, and the text has as many bytes.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), end);
            buffer.add(end).write(0);
        }
    }
    text.len()
}

/// Of a struct that begins with its size, the size that the caller has set.
///
/// # Safety
///
/// A size lies at a pointer that is not null.
unsafe fn size_of_theirs<T>(at: *const T, least: usize, name: &str) -> Result<usize, Fault> {
    aligned(at, name)?;
    // SAFETY: as the caller promises; a struct that begins with its size is aligned for it.
    let size = unsafe { at.cast::<usize>().read() };
    // Who never set it has any number there.
    if (least..=1 << 16).contains(&size) {
        return Ok(size);
    }
    let message =
        format!("`{name}->size` is {size}: set it to the sizeof of the struct, {} here", size_of::<T>());
    Err(Fault::refused("size", message))
}

/// Writes a struct that begins with its size, as much of it as the caller's has; its size is what was written.
///
/// # Safety
///
/// At a pointer that is not null lies a struct that begins with its size, and can be written.
pub(crate) unsafe fn put_sized<T>(out: *mut T, value: T, least: usize, name: &str) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_of_theirs(out, least, name) }?.min(size_of::<T>());
    let value = mem::ManuallyDrop::new(value);
    // SAFETY: both have so many bytes, and the value is the library's own.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(&*value).cast::<u8>(), out.cast::<u8>(), size);
        out.cast::<usize>().write(size);
    }
    Ok(())
}

/// Reads a struct that begins with its size; what the caller's does not have stays as in `value`.
///
/// # Safety
///
/// At a pointer that is not null lies a struct that begins with its size.
pub(crate) unsafe fn sized<T: Copy>(
    at: *const T,
    mut value: T,
    least: usize,
    name: &str,
) -> Result<T, Fault> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_of_theirs(at, least, name) }?.min(size_of::<T>());
    // SAFETY: both have so many bytes; structs that are read here are of numbers and pointers, which any bytes are.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), ptr::from_mut(&mut value).cast::<u8>(), size) };
    Ok(value)
}
