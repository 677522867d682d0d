//! Tensors of programs, checkpoints and random numbers: arrays of NumPy where it can be imported, else memoryviews.
//!
//! ```text
//! in    any array, or numbers   --converted to the element type, checked for the shape-->  bytes
//! out   bytes, or a function that writes them  -->  a new array
//! ```
//!
//! Shards of plans are not converted: [`crate::buffers`] lends them as they are, and has the memory of these, too.

use std::ops::Range;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use reshard_kernels::DType;

use crate::buffers::{self, Lent, numpy_dtype};
use crate::failure::{Answer, Failure, refused};
use crate::sequences::listed;

/// NumPy, if it can be imported.
pub(crate) fn numpy(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    py.import("numpy").ok()
}

/// The bytes of a tensor, where a type's elements have whole bytes.
pub(crate) fn bytes_of(dtype: DType, shape: &[usize]) -> Answer<usize> {
    let elements = shape.iter().try_fold(dtype.element_bytes()?, |n, &extent| n.checked_mul(extent));
    elements.filter(|&n| isize::try_from(n).is_ok()).ok_or_else(|| {
        refused("too_many_elements", format!("{dtype}{shape:?} has more bytes than the address space"))
    })
}

/// A new tensor: the function writes its bytes, row-major, without the interpreter's lock.
pub(crate) fn made<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    write: impl FnOnce(&mut [u8]) -> Answer<()> + Send,
) -> Answer<Bound<'py, PyAny>> {
    bytes_of(dtype, shape)?;
    let array = buffers::new(py, dtype, shape)?;
    let mut lent = Lent::for_writing(&array, "a new tensor".to_owned())?;
    let bytes = lent.bytes_mut();
    py.detach(|| write(bytes))?;
    Ok(array)
}

/// A tensor that has these bytes.
pub(crate) fn of<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    bytes: &[u8],
) -> Answer<Bound<'py, PyAny>> {
    let array = buffers::new(py, dtype, shape)?;
    Lent::for_writing(&array, "a new tensor".to_owned())?.bytes_mut().copy_from_slice(bytes);
    Ok(array)
}

/// Allocates `bytes` bytes: returns the array that owns them, and a writable borrow of it.
pub(crate) fn memory(py: Python<'_>, bytes: usize) -> Answer<(Py<PyAny>, Lent)> {
    bytes_of(DType::U8, &[bytes])?;
    let array = buffers::new(py, DType::U8, &[bytes])?;
    let lent = Lent::for_writing(&array, "the memory of a rank".to_owned())?;
    Ok((array.unbind(), lent))
}

/// A read-only tensor in memory of Python.
///
/// A copy of its bytes if NumPy has no such elements or is not installed.
pub(crate) fn seen<'py>(
    memory: &Bound<'py, PyAny>,
    dtype: DType,
    shape: &[usize],
    at: Range<usize>,
    bytes: &[u8],
) -> Answer<Bound<'py, PyAny>> {
    let py = memory.py();
    match numpy_dtype(py, dtype) {
        Some(elements) if numpy(py).is_some() => Ok(buffers::seen(memory, &elements, shape, at)?),
        Some(_) | None => of(py, dtype, shape, bytes),
    }
}

/// A tensor passed from Python, as a NumPy array of this element type and shape.
///
/// It is `None` if NumPy or the type is not available. Numbers are rounded as NumPy does; fractional numbers
/// are rejected for integer types.
pub(crate) fn checked<'py>(
    object: &Bound<'py, PyAny>,
    dtype: DType,
    shape: &[usize],
    name: &str,
) -> Answer<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let (Some(_), Some(as_numpy)) = (numpy(py), numpy_dtype(py, dtype)) else { return Ok(None) };
    let array = buffers::numbers(object, name)?;
    let given: Vec<usize> = listed(&array.getattr("shape")?)?;
    if given != shape {
        return Err(unfit(name, dtype, shape, &format!("{given:?}")));
    }
    let has = array.getattr("dtype")?;
    let kind: String = has.getattr("kind")?.extract()?;
    if dtype.is_integral() && matches!(kind.as_str(), "f" | "c") {
        return Err(unfit(name, dtype, shape, &format!("{has}, which is not an integer dtype")));
    }
    // Texts, times and objects are parsed or taken for NaN by NumPy, and of complex numbers it takes a part.
    let no_numbers = matches!(kind.as_str(), "O" | "S" | "U" | "M" | "m");
    if no_numbers || kind == "c" && dtype != DType::C64 {
        return Err(unfit(name, dtype, shape, &format!("{has}, which cannot be converted")));
    }
    if has.eq(&as_numpy)? {
        return Ok(Some(array));
    }
    let converted = array.call_method1("astype", (as_numpy,)).map_err(|error| {
        if error.is_instance_of::<PyMemoryError>(py) {
            refused("memory", format!("there is no memory for {name} as {dtype}{shape:?}"))
        } else {
            error.into()
        }
    })?;
    Ok(Some(converted))
}

/// Lends a function the bytes of a tensor that Python gives, row-major, as elements of a type.
fn with_bytes<T>(
    object: &Bound<'_, PyAny>,
    dtype: DType,
    shape: &[usize],
    name: &str,
    take: impl FnOnce(&[u8]) -> T,
) -> Answer<T> {
    let wanted = bytes_of(dtype, shape)?;
    let source = match checked(object, dtype, shape, name)? {
        Some(array) => buffers::dense(&array, name)?,
        None => object.clone(),
    };
    let lent = Lent::new(&source, name.to_owned())?;
    let given = lent.bytes();
    if given.len() == wanted {
        Ok(take(given))
    } else {
        Err(unfit(name, dtype, shape, &format!("{} bytes", given.len())))
    }
}

/// The bytes of a tensor that Python gives, row-major, as elements of a type.
pub(crate) fn read(object: &Bound<'_, PyAny>, dtype: DType, shape: &[usize], name: &str) -> Answer<Vec<u8>> {
    with_bytes(object, dtype, shape, name, copied)?
}

/// A tensor that Python gives as it is, without any conversion: its elements, its shape and a copy of its bytes, row-major.
pub(crate) fn whole(object: &Bound<'_, PyAny>, name: &str) -> Answer<(DType, Vec<usize>, Vec<u8>)> {
    let source = buffers::dense(object, name)?;
    let lent = Lent::new(&source, name.to_owned())?;
    let (dtype, shape) = (lent.dtype(), lent.shape().to_vec());
    if lent.bytes().len() != bytes_of(dtype, &shape)? {
        return Err(unfit(name, dtype, &shape, &format!("{} bytes", lent.bytes().len())));
    }
    let bytes = copied(lent.bytes())?;
    Ok((dtype, shape, bytes))
}

/// Copies bytes; an error if memory for the copy cannot be allocated.
pub(crate) fn copied(bytes: &[u8]) -> Answer<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| refused("memory", format!("there is no memory for a copy of {} bytes", bytes.len())))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Writes the bytes of a tensor passed from Python, if their number matches.
pub(crate) fn read_into(
    object: &Bound<'_, PyAny>,
    dtype: DType,
    shape: &[usize],
    name: &str,
    target: &mut [u8],
) -> Answer<()> {
    let to = target.as_ptr_range();
    let apart = |from: Range<*const u8>| from.end <= to.start || to.end <= from.start;
    // The result of a kernel may be a view of its operand in the arena.
    let kept = with_bytes(object, dtype, shape, name, |bytes| {
        if apart(bytes.as_ptr_range()) {
            target.copy_from_slice(bytes);
            None
        } else {
            Some(copied(bytes))
        }
    })?;
    if let Some(kept) = kept {
        target.copy_from_slice(&kept?);
    }
    Ok(())
}

fn unfit(name: &str, dtype: DType, shape: &[usize], given: &str) -> Failure {
    refused("input", format!("{name} must be {dtype}{shape:?}, not {given}"))
}
