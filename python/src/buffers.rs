//! The memory of Python arrays, borrowed for the length of a call: bytes that are read and written without a
//! copy.
//!
//! `reshard._buffers` finds the memory of an array and views it as bytes; here it is held, checked and lent.
#![allow(unsafe_code, reason = "memory that Python owns is read and written in place")]

use std::ops::Range;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use reshard_kernels::DType;

use crate::dtype::by_name;
use crate::failure::{Answer, Failure, mismatched};

/// The Python half: finds the bytes of an array, and makes new arrays.
const HALF: &str = "reshard._buffers";

/// An array whose memory is held.
pub(crate) struct Lent {
    /// Its name in messages, such as `the shard of rank 3`.
    name: String,
    buffer: PyUntypedBuffer,
    /// The type of its elements; u8 may be the bytes of any.
    dtype: DType,
    shape: Vec<usize>,
}

fn shape_text(shape: &[usize]) -> String {
    let numbers: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({})", numbers.join(","))
}

/// Converts an exception of the Python half: a rejection with this wording, any other exception unchanged.
fn told(half: &Bound<'_, PyModule>, error: PyErr, words: impl Fn(String) -> String) -> Failure {
    let value = error.value(half.py());
    let is_refused = half.getattr("Refused").is_ok_and(|class| value.is_instance(&class).unwrap_or(false));
    match value.getattr("kind").and_then(|kind| kind.extract::<String>()) {
        Ok(kind) if is_refused => mismatched(&kind, words(value.to_string())),
        _ => error.into(),
    }
}

/// Succeeds if a buffer has memory for its bytes.
fn check_is_there(buffer: &PyUntypedBuffer, name: &str) -> Answer<()> {
    if buffer.len_bytes() > 0 && buffer.buf_ptr().is_null() {
        return Err(mismatched("storage", format!("{name} has no memory: its address is null")));
    }
    Ok(())
}

impl Lent {
    /// Holds the memory of an array.
    pub(crate) fn new(array: &Bound<'_, PyAny>, name: String) -> Answer<Lent> {
        let half = array.py().import(HALF)?;
        let lent = half
            .call_method1("lend", (array,))
            .map_err(|error| told(&half, error, |why| format!("{name} cannot be lent: {why}")))?;
        let (bytes, dtype, shape) = lent.extract::<(Bound<'_, PyAny>, String, Vec<usize>)>()?;
        let Some(dtype) = by_name(&dtype) else {
            let known = DType::ALL.map(DType::name).join(", ");
            return Err(mismatched(
                "dtype",
                format!("{name} has the unsupported dtype `{dtype}`; expected one of: {known}"),
            ));
        };
        let buffer = PyUntypedBuffer::get(&bytes)?;
        check_is_there(&buffer, &name)?;
        if !buffer.is_c_contiguous() {
            return Err(mismatched("strides", format!("{name} is not C-contiguous; give a contiguous copy")));
        }
        Ok(Lent { name, buffer, dtype, shape })
    }

    /// The same, to be written.
    pub(crate) fn for_writing(array: &Bound<'_, PyAny>, name: String) -> Answer<Lent> {
        let lent = Lent::new(array, name)?;
        if lent.buffer.readonly() {
            return Err(mismatched(
                "read_only",
                format!("{} is read-only; give a writable array", lent.name),
            ));
        }
        Ok(lent)
    }

    /// The type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns `true` if these are the bytes of elements of another type.
    pub(crate) fn is_raw(&self, dtype: DType) -> bool {
        self.dtype == DType::U8 && dtype != DType::U8
    }

    /// Succeeds if it holds elements of this type in this shape, or their bytes; a list of them may be flat.
    pub(crate) fn check(&self, dtype: DType, shape: &[usize]) -> Answer<()> {
        let name = &self.name;
        let numel: usize = shape.iter().product();
        if self.is_raw(dtype) {
            let (needed, given) = (numel * dtype.element_bytes()?, self.buffer.len_bytes());
            if needed != given {
                let message =
                    format!("{name} has {given} bytes, but {} of {dtype} needs {needed}", shape_text(shape));
                return Err(mismatched("shape", message));
            }
            return Ok(());
        }
        if self.dtype != dtype {
            let message = format!(
                "{name} has dtype {}, but {dtype} is needed; give elements of {dtype}, or their bytes as u8",
                self.dtype
            );
            return Err(mismatched("dtype", message));
        }
        if self.shape != shape && self.shape != [numel] {
            let (given, needed) = (shape_text(&self.shape), shape_text(shape));
            return Err(mismatched("shape", format!("{name} has the shape {given}, but {needed} is needed")));
        }
        Ok(())
    }

    /// The addresses of its bytes.
    fn addresses(&self) -> Range<usize> {
        let start = self.buffer.buf_ptr() as usize;
        start..start + self.buffer.len_bytes()
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.buffer.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is C-contiguous, so its `len_bytes` bytes begin at `buf_ptr`; they are not
        // relocated while `self.buffer` holds the export, at least as long as this borrow. Callers of every
        // function that reads arrays must not write them meanwhile, as with NumPy's own functions.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), self.buffer.len_bytes()) }
    }

    /// Borrows its bytes for writing.
    ///
    /// Requires that it was made for writing, and that [`check_apart`] was called for all arrays of the call.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.buffer.len_bytes() == 0 || self.buffer.readonly() {
            return &mut [];
        }
        // SAFETY: as in `bytes`; the memory may be written, since the buffer is not read-only, and this
        // borrow of `self` is the only one. `check_apart` rejects other arrays over the same memory before
        // any write.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.buf_ptr().cast::<u8>(), self.buffer.len_bytes()) }
    }
}

/// Succeeds if no target overlaps a source or another target.
pub(crate) fn check_apart(sources: &[Lent], targets: &[Lent]) -> Answer<()> {
    let both = sources.iter().map(|lent| (lent, false)).chain(targets.iter().map(|lent| (lent, true)));
    let mut all: Vec<(&Lent, bool)> = both.filter(|(lent, _)| lent.buffer.len_bytes() > 0).collect();
    all.sort_by_key(|(lent, is_target)| (lent.addresses().start, !is_target));
    // The array with the highest end so far, and the target with the highest end so far.
    let (mut furthest, mut furthest_target): (Option<&Lent>, Option<&Lent>) = (None, None);
    let end = |lent: Option<&Lent>| lent.map_or(0, |lent| lent.addresses().end);
    for (lent, is_target) in all {
        let before = if is_target { furthest } else { furthest_target };
        if let Some(other) = before.filter(|other| other.addresses().end > lent.addresses().start) {
            let message =
                format!("{} and {} share memory; give each target separate memory", other.name, lent.name);
            return Err(mismatched("aliasing", message));
        }
        if lent.addresses().end > end(furthest) {
            furthest = Some(lent);
        }
        if is_target && lent.addresses().end > end(furthest_target) {
            furthest_target = Some(lent);
        }
    }
    Ok(())
}

/// An array that can be lent: the array itself, or a contiguous copy.
pub(crate) fn dense<'py>(array: &Bound<'py, PyAny>, name: &str) -> Answer<Bound<'py, PyAny>> {
    by_half(array, name, "dense")
}

/// An array, or numbers in nested sequences, as an array of NumPy.
pub(crate) fn numbers<'py>(array: &Bound<'py, PyAny>, name: &str) -> Answer<Bound<'py, PyAny>> {
    by_half(array, name, "numbers")
}

fn by_half<'py>(array: &Bound<'py, PyAny>, name: &str, function: &str) -> Answer<Bound<'py, PyAny>> {
    let half = array.py().import(HALF)?;
    half.call_method1(function, (array,))
        .map_err(|error| told(&half, error, |why| format!("{name} cannot be read: {why}")))
}

/// New arrays like one that was given, of these shapes; of bytes if that one was of bytes.
pub(crate) fn make<'py>(
    like: &Bound<'py, PyAny>,
    raw: bool,
    dtype: DType,
    shapes: Vec<Vec<usize>>,
) -> Answer<Bound<'py, PyList>> {
    let arguments = (like, raw, dtype.framework_name(), dtype.element_bytes()?, shapes);
    let half = like.py().import(HALF)?;
    let made = half.call_method1("make", arguments).map_err(|error| told(&half, error, |why| why))?;
    made.cast_into::<PyList>().map_err(|error| PyErr::from(error).into())
}

/// Makes a new NumPy array, or a memoryview if NumPy has no such element type or is not installed.
pub(crate) fn new<'py>(py: Python<'py>, dtype: DType, shape: &[usize]) -> Answer<Bound<'py, PyAny>> {
    let arguments = (dtype.framework_name(), dtype.element_bytes()?, PyTuple::new(py, shape)?);
    let half = py.import(HALF)?;
    half.call_method1("new", arguments).map_err(|error| told(&half, error, |why| why))
}

/// A part of an array of bytes as an array of other elements, to be read.
pub(crate) fn seen<'py>(
    memory: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    shape: &[usize],
    at: Range<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = (memory, dtype, PyTuple::new(memory.py(), shape)?, at.start, at.end);
    memory.py().import(HALF)?.call_method1("seen", arguments)
}

/// The NumPy dtype of an element type; `None` if NumPy or ml_dtypes is not installed, or has no such type.
pub(crate) fn numpy_dtype(py: Python<'_>, dtype: DType) -> Option<Bound<'_, PyAny>> {
    dtype.element_bytes().ok()?;
    let found = py.import(HALF).ok()?.call_method1("numpy_dtype", (dtype.framework_name(),)).ok()?;
    (!found.is_none()).then_some(found)
}
