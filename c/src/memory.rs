//! Access to the caller's memory: texts, lists and output buffers. All unsafe reads and writes of it are
//! here.
#![allow(unsafe_code, reason = "reads and writes memory of the caller")]

use std::ffi::{CStr, c_char};
use std::{mem, ptr, slice};

use crate::error::{Fault, Status};

/// The longest list that is accepted or returned; a longer length was most likely never initialized.
pub(crate) const LONGEST: usize = 1 << 24;

/// Fails if a pointer is null.
pub(crate) fn not_null<T>(pointer: *const T, name: &str) -> Result<(), Fault> {
    if pointer.is_null() {
        return Err(Fault::new(Status::NullPointer, "null", format!("`{name}` is null")));
    }
    Ok(())
}

/// Fails if a pointer is null or misaligned.
pub(crate) fn aligned<T>(pointer: *const T, name: &str) -> Result<(), Fault> {
    not_null(pointer, name)?;
    if pointer.is_aligned() {
        return Ok(());
    }
    let (at, to) = (pointer.addr(), align_of::<T>());
    Err(Fault::refused("alignment", format!("`{name}` is at {at:#x}, but must be aligned to {to} bytes")))
}

/// Reads a text.
///
/// # Safety
///
/// A pointer that is not null points to bytes that end with a 0 and do not change during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Fault> {
    not_null(pointer, name)?;
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| {
        Fault::refused("utf8", format!("`{name}` is not UTF-8: {:?}: {error}", text.to_string_lossy()))
    })
}

/// Reads an optional text; null is `None`.
///
/// # Safety
///
/// As for [`text`].
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
            format!("`{name}` has {len} entries, but at most {most} are allowed"),
        ));
    }
    Ok(true)
}

/// Reads a list; it may be null if it is empty.
///
/// # Safety
///
/// A pointer that is not null points to `len` values, which do not change during the call.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T], Fault> {
    if !checked(pointer, len, LONGEST, name)? {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises; it is not null, aligned, and no longer than memory.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Reads `len` bytes; unlike lists their number is not limited.
///
/// # Safety
///
/// As for [`list`].
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize, name: &str) -> Result<&'a [u8], Fault> {
    if !checked(pointer, len, isize::MAX as usize, name)? {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Borrows `len` bytes for writing.
///
/// # Safety
///
/// `len` bytes at a pointer that is not null can be read and written, and are not used otherwise during the
/// call.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize, name: &str) -> Result<&'a mut [u8], Fault> {
    if !checked(pointer, len, isize::MAX as usize, name)? {
        return Ok(&mut []);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
}

/// Writes a result.
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

/// Writes a list and its length.
///
/// The length is written even if the list does not fit; a `capacity` of 0 requests it alone.
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

/// Like [`put_list`], for values made one at a time, and only if all of them fit.
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
        let message = format!("the buffer has space for {capacity} values, but {len} are needed");
        return Err(Fault::new(Status::OutOfRange, "room", message));
    }
    for (at, value) in values.take(len).enumerate() {
        // SAFETY: `at` is below `len`, and the buffer has the capacity for `len` values.
        unsafe { out.add(at).write(value) };
    }
    Ok(())
}

/// Writes a text with a final 0, and its length without that 0.
///
/// The length is written even if the text does not fit; a `size` of 0 requests it alone.
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
            format!("the buffer has {size} bytes, but the text with its final 0 needs {}", text.len() + 1);
        return Err(Fault::new(Status::OutOfRange, "room", message));
    }
    // SAFETY: `size` is larger than the text, as was checked above.
    unsafe { truncated(text, buffer, size) };
    Ok(())
}

/// Writes as much of a text as fits, with a final 0, and returns the length of the whole text.
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

/// Returns the size that the caller has set in a struct that begins with its size.
///
/// # Safety
///
/// A pointer that is not null points to a size.
unsafe fn size_of_theirs<T>(at: *const T, least: usize, name: &str) -> Result<usize, Fault> {
    aligned(at, name)?;
    // SAFETY: as the caller promises; a struct that begins with its size is aligned for it.
    let size = unsafe { at.cast::<usize>().read() };
    // An uninitialized size can have any value.
    if (least..=1 << 16).contains(&size) {
        return Ok(size);
    }
    let message =
        format!("`{name}->size` is {size}; set it to the size of the struct, {} here", size_of::<T>());
    Err(Fault::refused("size", message))
}

/// Writes a struct that begins with its size, up to the caller's size; its size becomes the bytes written.
///
/// # Safety
///
/// A pointer that is not null points to a writable struct that begins with its size.
pub(crate) unsafe fn put_sized<T>(out: *mut T, value: T, least: usize, name: &str) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_of_theirs(out, least, name) }?.min(size_of::<T>());
    let value = mem::ManuallyDrop::new(value);
    // SAFETY: both have `size` bytes, and `value` is a local.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(&*value).cast::<u8>(), out.cast::<u8>(), size);
        out.cast::<usize>().write(size);
    }
    Ok(())
}
