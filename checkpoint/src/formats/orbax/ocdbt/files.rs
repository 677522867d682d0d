//! The data file table in the manifest and in every node: paths of files, prefix-compressed.
//!
//! A path is the base path of the node, then the base path of the entry, then a relative path. The first two
//! are the base path of the nodes that are stored in the file:
//!
//! ```text
//! manifest.ocdbt  ""  +  ""                  +  "d/0a1b.."    the root node
//! root node       ""  +  "ocdbt.process_0/"  +  "d/2c3d.."    a value, or a node whose table begins here
//! ```

use std::sync::Arc;

use crate::error::Error;
use crate::formats::orbax::ocdbt::cursor::Cursor;
use crate::formats::orbax::shown;

/// The longest path in bytes, by the format.
const LONGEST: usize = 65_535;

/// The most bytes of the paths of one table: 16 MiB, for 200,000 files.
const MOST_BYTES: usize = 16 << 20;

/// A file of values and nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataFile {
    /// The path relative to the folder of the manifest.
    pub(crate) path: Arc<str>,
    /// The prefix of it that the paths in its nodes begin with.
    pub(crate) base: Arc<str>,
}

/// A range of a data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) file: DataFile,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Reads the table of a node whose paths begin with `base`.
pub(crate) fn table(cursor: &mut Cursor<'_>, base: &str) -> Result<Vec<DataFile>, Error> {
    let longest = LONGEST as u64;
    // At least two lengths per file.
    let count = cursor.count(usize::MAX, 2, "the number of data files")?;
    let Some(after_first) = count.checked_sub(1) else { return Ok(Vec::new()) };
    let mut prefixes = vec![0];
    prefixes.extend(cursor.column(after_first, longest, "the length of a path prefix")?);
    let suffixes = cursor.column(count, longest, "the length of a path suffix")?;
    let bases = cursor.column(count, longest, "the length of a base path")?;
    let mut files: Vec<DataFile> = Vec::new();
    let (mut path, mut before, mut total) = (Vec::new(), 0, 0_usize);
    for ((prefix, suffix), base_len) in prefixes.into_iter().zip(suffixes).zip(bases) {
        let suffix = cursor.take(suffix)?;
        let prefix = prefix as usize;
        if prefix > path.len() || base_len as usize > prefix + suffix.len() {
            return Err(Error::malformed(
                "orbax",
                format!(
                    "a path of prefix {prefix}, suffix {} and base path {base_len} follows a path of {} bytes",
                    suffix.len(),
                    path.len()
                ),
            ));
        }
        if prefix as u64 > base_len.min(before) && base_len != before {
            return Err(Error::malformed(
                "orbax",
                format!(
                    "a path prefix of {prefix} bytes passes the end of base paths of {before} and {base_len} bytes"
                ),
            ));
        }
        before = base_len;
        path.truncate(prefix);
        path.extend_from_slice(suffix);
        let len = base.len() + path.len();
        total += len;
        if len > LONGEST || total > MOST_BYTES {
            return Err(Error::unsupported(
                "orbax",
                format!(
                    "a path of {len} bytes, {total} with those before it, exceeds the limit of {LONGEST} and {MOST_BYTES}"
                ),
            ));
        }
        files.push(file(base, &path, base_len as usize, files.last())?);
    }
    Ok(files)
}

/// Returns the range at `offset` of the file with this number.
pub(crate) fn location(files: &[DataFile], file: u64, offset: u64, len: u64) -> Result<Location, Error> {
    let found = usize::try_from(file).ok().and_then(|file| files.get(file)).ok_or_else(|| {
        Error::malformed("orbax", format!("it refers to data file {file}, but its table has {}", files.len()))
    })?;
    if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Error::malformed(
            "orbax",
            format!("{len} bytes from byte {offset} on pass the largest offset, 2^63"),
        ));
    }
    if found.path.is_empty() {
        return Err(Error::malformed("orbax", format!("data file {file} has an empty path")));
    }
    Ok(Location { file: found.clone(), offset, len })
}

fn file(base: &str, path: &[u8], base_len: usize, before: Option<&DataFile>) -> Result<DataFile, Error> {
    let not_utf8 = |_| Error::malformed("orbax", format!("a path is not UTF-8: {}", path.escape_ascii()));
    let whole = [base.as_bytes(), path].concat();
    let whole = String::from_utf8(whole).map_err(|error| not_utf8(error.utf8_error()))?;
    // The manifest of a database without keys lists an empty path.
    if !whole.is_empty() {
        check(&whole)?;
    }
    let base = whole.get(..base.len() + base_len).ok_or_else(|| {
        Error::malformed("orbax", format!("the base path of `{}` ends inside a character", shown(&whole)))
    })?;
    // All files of a process have one base path; it is stored once.
    let base = match before {
        Some(before) if *before.base == *base => Arc::clone(&before.base),
        _ => Arc::from(base),
    };
    Ok(DataFile { base, path: Arc::from(whole) })
}

/// Returns an error unless the path is relative and stays inside its folder.
pub(crate) fn check(path: &str) -> Result<(), Error> {
    let invalid = |part: &str| matches!(part, "" | "." | "..");
    if path.split('/').any(invalid) || path.contains(['\0', '\\']) {
        return Err(Error::malformed(
            "orbax",
            format!("the path `{}` is not a relative path inside the checkpoint", shown(path)),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check, location, table};
    use crate::formats::orbax::ocdbt::cursor::Cursor;

    #[test]
    fn paths_share_prefixes_and_bases() {
        let bytes = [&[3, 5, 12, 9, 5, 4, 3, 3, 3][..], b"p0/d/ab1", b"d/ef"].concat();
        assert!(table(&mut Cursor::new(&bytes), "x/").is_err());
        // Two files of one base path, then one of another.
        let bytes = [&[3, 6, 1, 7, 1, 6, 3, 3, 3][..], b"p0/d/ab", b"c", b"1/d/ef"].concat();
        let files = table(&mut Cursor::new(&bytes), "x/").unwrap();
        let paths: Vec<_> = files.iter().map(|file| (&*file.base, &*file.path)).collect();
        assert_eq!(paths, [("x/p0/", "x/p0/d/ab"), ("x/p0/", "x/p0/d/ac"), ("x/p1/", "x/p1/d/ef")]);
        location(&files, 2, 5, 7).unwrap();
        location(&files, 3, 5, 7).unwrap_err();
        location(&files, 0, u64::MAX, 7).unwrap_err();
        location(&files, 0, 1 << 62, 1 << 62).unwrap_err();
        for len in 0..bytes.len() {
            table(&mut Cursor::new(&bytes[..len]), "").unwrap_err();
        }
    }

    #[test]
    fn paths_stay_inside_the_folder() {
        for path in ["d/0", "ocdbt.process_0/d/0", "a..b", "..a/b"] {
            check(path).unwrap();
        }
        for path in ["", "/d", "d/", "../d", "d/../d", "d/..", ".", "d//e", "d\0", "d\\e"] {
            check(path).unwrap_err();
        }
        for path in [&b"../../../../etc/passwd"[..], b"/etc/passwd", b"d/\xff"] {
            let bytes = [&[1, path.len() as u8, 0][..], path].concat();
            table(&mut Cursor::new(&bytes), "").unwrap_err();
        }
        assert_eq!(table(&mut Cursor::new(&[1, 0, 0]), "").unwrap().len(), 1);
    }
}
