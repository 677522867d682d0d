//! NumPy's files: `.npy`, one array, and `.npz`, a zip archive of `.npy` files.
//!
//! ```text
//! \x93NUMPY  version  length  {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  elements
//! ```
//!
//! The header is a Python dict of three entries, and only that syntax is parsed. Arrays of Python objects are
//! pickles; these, texts and records are not tensors.

use reshard_layout::internal::counted;
use safetensors::Dtype;

use crate::bytes::Bytes;
use crate::bytes::peek::Peek;
use crate::bytes::strided::strided;
use crate::bytes::zip::Zip;
use crate::error::Error;
use crate::formats::torch_save::Saved;
use crate::model::objects::Container;
use crate::model::stored::{MOST_DIMS, Stored, byte_len};
use crate::shown::Shown;

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// The largest size in bytes of a header, with everything before it.
const LONGEST: usize = 64 << 10;

/// The name given to the array of an `.npy` file.
const ALONE: &str = "array";

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
    /// The offset of the elements.
    data: usize,
}

/// Reads the array of a file.
pub(crate) fn array(file: Peek<'_>) -> Result<Saved, Error> {
    let head = file.part(0, file.len().min(LONGEST as u64)).map_or(Ok(Vec::new()), |head| head.read())?;
    let header = Header::read(&head)?;
    let Some(dtype) = header.dtype()? else { return Err(header.no_tensor()) };
    let mut saved = Saved::default();
    saved.tensors.insert(ALONE.to_owned(), header.stored(dtype, &file.bytes())?);
    Ok(saved)
}

/// Reads the arrays of an archive; `None` if it has none.
pub(crate) fn arrays(zip: &Zip<'_>) -> Result<Option<Saved>, Error> {
    let mut saved = Saved::default();
    let mut any = false;
    for name in zip.names() {
        let Some(array) = name.strip_suffix(".npy") else {
            saved.objects.insert(name.to_owned(), Container::Numpy);
            continue;
        };
        any = true;
        let about = |error: Error| error.about_tensor(array);
        let entry = zip.get(name)?;
        let header = Header::read(&entry.head(LONGEST)?).map_err(about)?;
        match header.dtype().map_err(about)? {
            None => {
                saved.objects.insert(array.to_owned(), Container::Numpy);
            }
            Some(dtype) => {
                let stored = zip.bytes(entry).and_then(|bytes| header.stored(dtype, &bytes));
                saved.tensors.insert(array.to_owned(), stored.map_err(about)?);
            }
        }
    }
    Ok(any.then_some(saved))
}

impl Header {
    /// Parses the header at the start of some bytes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let short = || malformed("it ends in the middle of its header");
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| malformed("it does not begin with the magic bytes of NumPy"))?;
        let (version, rest) = rest.split_at_checked(2).ok_or_else(short)?;
        let (len, rest) = match version[0] {
            1 => rest.split_first_chunk::<2>().map(|(len, rest)| (u32::from(u16::from_le_bytes(*len)), rest)),
            2 | 3 => rest.split_first_chunk::<4>().map(|(len, rest)| (u32::from_le_bytes(*len), rest)),
            other => {
                return Err(unsupported(format!(
                    "its format version is {other}; versions 1 to 3 are supported"
                )));
            }
        }
        .ok_or_else(short)?;
        let text = rest.get(..len as usize).ok_or_else(short)?;
        let text = std::str::from_utf8(text).map_err(|_| malformed("its header is not UTF-8"))?;
        let data = bytes.len() - rest.len() + text.len();
        let mut literal = Literal { rest: text };
        let header = literal.header(data).ok_or_else(|| {
            malformed(format!(
                "its header `{}` is not a dict of descr, fortran_order and shape",
                text.trim_end().chars().take(120).collect::<String>().shown()
            ))
        })?;
        if header.shape.len() > MOST_DIMS {
            let dims = header.shape.len();
            return Err(unsupported(format!(
                "it has {dims}, and at most {MOST_DIMS} are supported",
                dims = counted(dims, "dim", "dims")
            )));
        }
        Ok(header)
    }

    /// Returns the dtype of the elements; `None` if they are not numbers.
    fn dtype(&self) -> Result<Option<Dtype>, Error> {
        let (order, kind) = self.descr.split_at_checked(1).unwrap_or(("", ""));
        let dtype = match kind {
            "b1" => Dtype::BOOL,
            "i1" => Dtype::I8,
            "u1" => Dtype::U8,
            "i2" => Dtype::I16,
            "u2" => Dtype::U16,
            "f2" => Dtype::F16,
            "i4" => Dtype::I32,
            "u4" => Dtype::U32,
            "f4" => Dtype::F32,
            "i8" => Dtype::I64,
            "u8" => Dtype::U64,
            "f8" => Dtype::F64,
            "c8" => Dtype::C64,
            _ if kind.starts_with(['O', 'U', 'S', 'M', 'm']) || self.descr.is_empty() => return Ok(None),
            _ => return Err(self.no_tensor()),
        };
        match order {
            "<" | "|" => Ok(Some(dtype)),
            ">" if dtype.bitsize() == 8 => Ok(Some(dtype)),
            _ => Err(unsupported(format!(
                "its elements `{}` are big-endian; only little-endian ones are supported",
                self.descr.shown()
            ))),
        }
    }

    fn no_tensor(&self) -> Error {
        let what = if self.descr.is_empty() { "records" } else { &self.descr };
        unsupported(format!("its elements are `{}`, for which safetensors has no type", what.shown()))
    }

    /// Returns the array in the bytes that begin with this header.
    fn stored(self, dtype: Dtype, bytes: &Bytes) -> Result<Stored, Error> {
        let len = byte_len(dtype, &self.shape);
        let held = bytes.len().saturating_sub(self.data);
        if len != Some(held) || bytes.len() < self.data {
            return Err(malformed(format!(
                "an array of {dtype} {:?} needs {}, but {held} are stored",
                self.shape,
                counted(
                    len.map_or_else(|| "more than 2^64".to_owned(), |len| len.to_string()),
                    "byte",
                    "bytes"
                )
            )));
        }
        let mut strides = vec![0; self.shape.len()];
        let mut stride = 1_usize;
        let mut next = |dim: usize| {
            strides[dim] = stride;
            stride = stride.saturating_mul(self.shape[dim]);
        };
        if self.fortran {
            (0..self.shape.len()).for_each(&mut next);
        } else {
            (0..self.shape.len()).rev().for_each(&mut next);
        }
        let data = bytes.part(self.data, held);
        let bytes = strided(data, dtype.bitsize() / 8, 0, &self.shape, &strides)?;
        Ok(Stored { dtype, shape: self.shape, bytes })
    }
}

/// A Python literal that is being parsed.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn header(&mut self, data: usize) -> Option<Header> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.token("{")?;
        while self.token("}").is_none() {
            let key = self.quoted()?;
            self.token(":")?;
            match key {
                "descr" if descr.is_none() => descr = Some(self.descr()?),
                "fortran_order" if fortran.is_none() => fortran = Some(self.truth()?),
                "shape" if shape.is_none() => shape = Some(self.shape()?),
                _ => return None,
            }
            if self.token(",").is_none() {
                self.token("}")?;
                break;
            }
        }
        self.rest.trim().is_empty().then_some(())?;
        Some(Header { descr: descr?, fortran: fortran?, shape: shape?, data })
    }

    fn token(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(token)?;
        Some(())
    }

    fn quoted(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (text, rest) = rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text)
    }

    /// Parses a dtype; a list of fields yields an empty string.
    fn descr(&mut self) -> Option<String> {
        if !self.rest.trim_start().starts_with('[') {
            return self.quoted().map(str::to_owned);
        }
        let (mut depth, mut end) = (0_usize, None);
        for (at, byte) in self.rest.bytes().enumerate() {
            match byte {
                b'[' | b'(' => depth += 1,
                b']' | b')' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if byte == b']' && depth == 0 {
                end = Some(at + 1);
                break;
            }
        }
        self.rest = &self.rest[end?..];
        Some(String::new())
    }

    fn truth(&mut self) -> Option<bool> {
        self.token("True").map(|()| true).or_else(|| self.token("False").map(|()| false))
    }

    fn shape(&mut self) -> Option<Vec<usize>> {
        self.token("(")?;
        let mut shape = Vec::new();
        while self.token(")").is_none() {
            let rest = self.rest.trim_start();
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            shape.push(rest[..digits].parse().ok()?);
            // Python 2 wrote long integers with this suffix.
            self.rest = rest[digits..].strip_prefix('L').unwrap_or(&rest[digits..]);
            if self.token(",").is_none() {
                self.token(")")?;
                break;
            }
        }
        Some(shape)
    }
}

fn malformed(why: impl std::fmt::Display) -> Error {
    Error::malformed("numpy", format!("unsupported NumPy array: {why}"))
}

fn unsupported(why: impl std::fmt::Display) -> Error {
    Error::unsupported("numpy", format!("unsupported NumPy array: {why}"))
}
