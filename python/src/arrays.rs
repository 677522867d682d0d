//! Tensors as Python has them: arrays of NumPy where it can be imported, else memoryviews.
//!
//! NumPy is imported where an array is made or read, and nowhere else.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyTuple};
use reshard_kernels::DType;

use crate::failure::{Answer, Failure, refused};
use crate::sequences::listed;

/// What NumPy or ml_dtypes call a type, and what a memoryview calls it; none where neither has it.
fn names(dtype: DType) -> (Option<(&'static str, &'static str)>, Option<&'static str>) {
    let numpy = |name, format| (Some(("numpy", name)), Some(format));
    let ml = |name| (Some(("ml_dtypes", name)), None);
    match dtype {
        DType::Bool => numpy("bool_", "?"),
        DType::I8 => numpy("int8", "b"),
        DType::U8 => numpy("uint8", "B"),
        DType::I16 => numpy("int16", "h"),
        DType::U16 => numpy("uint16", "H"),
        DType::I32 => numpy("int32", "i"),
        DType::U32 => numpy("uint32", "I"),
        DType::I64 => numpy("int64", "q"),
        DType::U64 => numpy("uint64", "Q"),
        DType::F16 => (Some(("numpy", "float16")), None),
        DType::F32 => numpy("float32", "f"),
        DType::F64 => numpy("float64", "d"),
        DType::C64 => (Some(("numpy", "complex64")), None),
        DType::BF16 => ml("bfloat16"),
        DType::F8_E5M2 => ml("float8_e5m2"),
        DType::F8_E4M3 => ml("float8_e4m3fn"),
        DType::F8_E8M0 => ml("float8_e8m0fnu"),
        DType::F8_E4M3FNUZ => ml("float8_e4m3fnuz"),
        DType::F8_E5M2FNUZ => ml("float8_e5m2fnuz"),
        DType::F4 | DType::F6_E2M3 | DType::F6_E3M2 => (None, None),
    }
}

/// NumPy, if it can be imported.
pub(crate) fn numpy(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    py.import("numpy").ok()
}

/// The dtype of NumPy that elements have; none where NumPy or ml_dtypes is not there, or has no such type.
pub(crate) fn dtype_of(py: Python<'_>, dtype: DType) -> Option<Bound<'_, PyAny>> {
    let (module, name) = names(dtype).0?;
    numpy(py)?.getattr("dtype").ok()?.call1((py.import(module).ok()?.getattr(name).ok()?,)).ok()
}

/// The bytes of a tensor, where a type's elements have whole bytes.
pub(crate) fn bytes_of(dtype: DType, shape: &[usize]) -> Answer<usize> {
    let elements = shape.iter().try_fold(dtype.item_bytes()?, |n, &extent| n.checked_mul(extent));
    elements.filter(|&n| isize::try_from(n).is_ok()).ok_or_else(|| {
        refused("too_many_elements", format!("{dtype}{shape:?} is more bytes than memory has"))
    })
}

/// A new tensor: the function writes its bytes, row-major, without the interpreter's lock.
pub(crate) fn made<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    write: impl FnOnce(&mut [u8]) -> Answer<()> + Send,
) -> Answer<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, bytes_of(dtype, shape)?, |bytes| {
        py.detach(|| write(bytes)).map_err(PyErr::from)
    })?;
    shaped(py, bytes.into_any(), dtype, shape)
}

/// A tensor that has these bytes.
pub(crate) fn of<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    bytes: &[u8],
) -> Answer<Bound<'py, PyAny>> {
    shaped(py, PyByteArray::new(py, bytes).into_any(), dtype, shape)
}

/// Bytes as a tensor, which keeps them.
fn shaped<'py>(
    py: Python<'py>,
    bytes: Bound<'py, PyAny>,
    dtype: DType,
    shape: &[usize],
) -> Answer<Bound<'py, PyAny>> {
    let shape = PyTuple::new(py, shape)?;
    if let (Some(numpy), Some(dtype)) = (numpy(py), dtype_of(py, dtype)) {
        let flat = numpy.call_method1("frombuffer", (bytes, dtype))?;
        return Ok(flat.call_method1("reshape", (shape,))?);
    }
    let view = PyMemoryView::from(&bytes)?.into_any();
    let is_empty = bytes.len()? == 0;
    match names(dtype).1 {
        // What is empty has no shape as a memoryview.
        Some(format) if !is_empty => Ok(view.call_method1("cast", (format, shape))?),
        Some(_) | None => Ok(view),
    }
}

/// A tensor that Python gives, as an array of NumPy of these elements and this shape; none where NumPy or the type is not there.
///
/// Numbers are rounded as NumPy does; numbers that are not whole are refused where whole ones are wanted.
pub(crate) fn checked<'py>(
    object: &Bound<'py, PyAny>,
    dtype: DType,
    shape: &[usize],
    name: &str,
) -> Answer<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let (Some(numpy), Some(as_numpy)) = (numpy(py), dtype_of(py, dtype)) else { return Ok(None) };
    let array = numpy.call_method1("asarray", (object,))?;
    let given: Vec<usize> = listed(&array.getattr("shape")?)?;
    if given != shape {
        return Err(unfit(name, dtype, shape, &format!("{given:?}")));
    }
    let has = array.getattr("dtype")?;
    let kind: String = has.getattr("kind")?.extract()?;
    if dtype.is_integral() && matches!(kind.as_str(), "f" | "c") {
        return Err(unfit(name, dtype, shape, &format!("{has}, whose numbers need not be whole")));
    }
    // Texts, times and objects are parsed or taken for NaN by NumPy, and of complex numbers it takes a part.
    let no_numbers = matches!(kind.as_str(), "O" | "S" | "U" | "M" | "m");
    if no_numbers || kind == "c" && dtype != DType::C64 {
        return Err(unfit(name, dtype, shape, &format!("{has}, which are no such numbers")));
    }
    Ok(Some(if has.eq(&as_numpy)? { array } else { array.call_method1("astype", (as_numpy,))? }))
}

/// The bytes of a tensor that Python gives, row-major, as elements of a type.
pub(crate) fn bytes<'py>(
    object: &Bound<'py, PyAny>,
    dtype: DType,
    shape: &[usize],
    name: &str,
) -> Answer<Bound<'py, PyBytes>> {
    let wanted = bytes_of(dtype, shape)?;
    let source = match checked(object, dtype, shape, name)? {
        Some(array) => array,
        None => PyMemoryView::from(object)?.into_any(),
    };
    let bytes = source.call_method0("tobytes")?.cast_into::<PyBytes>().map_err(PyErr::from)?;
    let given = bytes.as_bytes().len();
    if given == wanted { Ok(bytes) } else { Err(unfit(name, dtype, shape, &format!("{given} bytes"))) }
}

/// The same as bytes of our own.
pub(crate) fn read(object: &Bound<'_, PyAny>, dtype: DType, shape: &[usize], name: &str) -> Answer<Vec<u8>> {
    Ok(bytes(object, dtype, shape, name)?.as_bytes().to_vec())
}

fn unfit(name: &str, dtype: DType, shape: &[usize], given: &str) -> Failure {
    refused("input", format!("{name} is {dtype}{shape:?}, and is given as {given}"))
}
