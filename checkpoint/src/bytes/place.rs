//! Input locations: local files and folders, or objects at URLs (feature `remote`).

use std::fs;
use std::io;
use std::path::{Component, Path};

#[cfg(feature = "remote")]
use crate::bytes::remote;
use crate::error::Error;

/// The kind of an input location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// The URL schemes of inputs.
const SCHEMES: [&str; 9] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https"];

/// Returns `true` if a path is a URL of an input.
pub(crate) fn is_url(path: &Path) -> bool {
    path.to_str().and_then(|text| text.split_once("://")).is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// Rejects an output at a URL.
pub(crate) fn is_here(path: Option<&Path>) -> Result<(), Error> {
    match path.filter(|path| is_url(path)) {
        None => Ok(()),
        Some(url) => {
            let message = format!("{} is a URL, but outputs must be local files", shown(url));
            Err(Error::refused("usage", message))
        }
    }
}

/// Rejects a URL with more than a location.
///
/// A query after `?` or a fragment after `#` would be ignored, and a password would be part of every message.
pub(crate) fn is_plain(path: &Path) -> io::Result<()> {
    let text = path.to_string_lossy();
    let (_, rest) = text.split_once("://").unwrap_or(("", &text));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return Err(io::Error::other(
            "a URL must not contain a password; credentials are taken from the environment",
        ));
    }
    match rest.chars().find(|letter| matches!(letter, '?' | '#')) {
        None => Ok(()),
        Some('?') => Err(io::Error::other(
            "the part of a URL after `?`, such as a signature or a version, is not supported; credentials are taken from the environment, and a `?` in a name is written `%3F`",
        )),
        Some(_) => Err(io::Error::other("a `#` in a name is written `%23` in a URL")),
    }
}

/// Returns a URL without secrets: without its password, and without its query, which may be a signature.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    let Some((scheme, rest)) = text.split_once("://") else { return text.into_owned() };
    let rest = match rest.split_once('?') {
        Some((before, _)) => format!("{before}?.."),
        None => rest.to_owned(),
    };
    let (host, behind) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match host.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{scheme}://{user}:..@{host}{behind}"),
        None => format!("{scheme}://{rest}"),
    }
}

/// Returns the error for a URL in a build without the feature.
#[cfg(not(feature = "remote"))]
pub(crate) fn not_built() -> io::Error {
    io::Error::other("URLs are not compiled in; rebuild with `--features remote`")
}

/// Returns the kind of a path; a URL that ends in `/`, or at which there is no object, is a folder.
pub(crate) fn kind(path: &Path) -> io::Result<Kind> {
    if is_url(path) {
        is_plain(path)?;
    } else {
        return Ok(if fs::metadata(path)?.is_dir() { Kind::Directory } else { Kind::File });
    }
    #[cfg(feature = "remote")]
    {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Ok(Kind::Directory);
        }
        let found = remote::find(path)?;
        // Some programs create an empty object to represent a folder.
        if found.as_ref().is_some_and(|object| object.len() > 0) {
            return Ok(Kind::File);
        }
        match remote::names(path)? {
            Some(names) if !names.is_empty() => Ok(Kind::Directory),
            _ if found.is_some() => Ok(Kind::File),
            Some(_) => Err(io::Error::other("there is no object with this name, and none below it")),
            None => Err(io::Error::other("there is no such file; the URL of a folder ends in /")),
        }
    }
    #[cfg(not(feature = "remote"))]
    Err(not_built())
}

/// Returns `true` if there is a file.
pub(crate) fn exists(path: &Path) -> Result<bool, Error> {
    if !is_url(path) {
        return Ok(path.exists());
    }
    #[cfg(feature = "remote")]
    let found = remote::find(path).map(|found| found.is_some());
    #[cfg(not(feature = "remote"))]
    let found = Err(not_built());
    found.map_err(|error| Error::unreadable(format!("{} cannot be read: {error}", path.display())))
}

/// Returns `true` if a path is within its folder; foreign files must not make this program read others.
pub(crate) fn is_inside(path: &str) -> bool {
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && !path.contains('\0') && Path::new(path).components().all(normal)
}

/// Returns the names in a folder; `None` if it cannot be listed.
pub(crate) fn names(dir: &Path) -> io::Result<Option<Vec<String>>> {
    if !is_url(dir) {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        return fs::read_dir(dir)?.map(name).collect::<io::Result<Vec<String>>>().map(Some);
    }
    #[cfg(feature = "remote")]
    return remote::names(dir);
    #[cfg(not(feature = "remote"))]
    Err(not_built())
}

/// Reads a file at a URL of at most `most` bytes; `None` for a path that is not a URL.
pub(crate) fn read_at_most(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    if !is_url(path) {
        return Ok(None);
    }
    #[cfg(feature = "remote")]
    {
        let object = remote::find(path)?.ok_or_else(|| io::Error::other("there is no such object"))?;
        if object.len() > most {
            return Err(io::Error::other(format!("it is longer than {most} bytes")));
        }
        let mut bytes = vec![0; object.len() as usize];
        object.read_exact_at(0, &mut bytes)?;
        Ok(Some(bytes))
    }
    #[cfg(not(feature = "remote"))]
    {
        let _ = most;
        Err(not_built())
    }
}

/// Returns the sorted names of all `.safetensors` files of a directory; `None` if it cannot be listed.
pub(crate) fn safetensors_files(dir: &Path) -> Result<Option<Vec<String>>, Error> {
    let mut names = names(dir).map_err(|error| Error::io("reading", dir, &error))?;
    let is_one = |name: &String| {
        let suffix = Path::new(name).extension();
        suffix.is_some_and(|suffix| suffix == "safetensors") && !name.starts_with('.')
    };
    if let Some(names) = &mut names {
        names.retain(is_one);
        names.sort_unstable();
        names.dedup();
    }
    Ok(names)
}
