//! Where inputs are: files and folders here, or objects at URLs (feature `remote`).

use std::fs;
use std::io;
use std::path::{Component, Path};

use crate::error::Error;
#[cfg(feature = "remote")]
use crate::remote;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// Schemes of URLs that are inputs.
const SCHEMES: [&str; 9] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https"];

/// Whether a path is a URL of an input.
pub(crate) fn is_url(path: &Path) -> bool {
    path.to_str().and_then(|text| text.split_once("://")).is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// Refuses an output at a URL.
pub(crate) fn is_here(path: Option<&Path>) -> Result<(), Error> {
    match path.filter(|path| is_url(path)) {
        None => Ok(()),
        Some(url) => {
            let message = format!("{} is a URL, and outputs are written to files here", shown(url));
            Err(Error::refused("usage", message))
        }
    }
}

/// Refuses a URL that says more than where something is: what stands behind a `?` or a `#` would be asked for by nobody, and a
/// password in it would be in every sentence about it.
pub(crate) fn is_plain(path: &Path) -> io::Result<()> {
    let text = path.to_string_lossy();
    let (_, rest) = text.split_once("://").unwrap_or(("", &text));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return Err(io::Error::other(
            "passwords are no part of a URL here: credentials are taken from the environment",
        ));
    }
    match rest.chars().find(|letter| matches!(letter, '?' | '#')) {
        None => Ok(()),
        Some('?') => Err(io::Error::other(
            "what stands behind `?` in a URL is not asked for, be it a signature or a version: credentials are taken from the environment, and a `?` of a name is written `%3F`",
        )),
        Some(_) => Err(io::Error::other("a `#` of a name is written `%23` in a URL")),
    }
}

/// A URL as it may be shown to anybody: without a password, and without what follows a `?`, which may be what lets one in.
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

/// Why nothing at a URL can be read.
#[cfg(not(feature = "remote"))]
pub(crate) fn not_built() -> io::Error {
    io::Error::other("it is a URL, and those are read by a build with the feature `remote`")
}

/// What a path leads to. A URL that ends in `/` is a folder, and so is one of which there is no object.
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
        // Some programs put an empty object where they mean a folder.
        if found.as_ref().is_some_and(|object| object.len() > 0) {
            return Ok(Kind::File);
        }
        match remote::names(path)? {
            Some(names) if !names.is_empty() => Ok(Kind::Directory),
            _ if found.is_some() => Ok(Kind::File),
            Some(_) => Err(io::Error::other("there is no object of this name, and none below it")),
            None => Err(io::Error::other("there is no such file; the URL of a folder ends in /")),
        }
    }
    #[cfg(not(feature = "remote"))]
    Err(not_built())
}

/// Whether there is a file.
pub(crate) fn exists(path: &Path) -> Result<bool, Error> {
    if !is_url(path) {
        return Ok(path.exists());
    }
    #[cfg(feature = "remote")]
    let found = remote::find(path).map(|found| found.is_some());
    #[cfg(not(feature = "remote"))]
    let found = Err(not_built());
    found.map_err(|error| Error::refused("input", format!("{} cannot be read: {error}", path.display())))
}

/// Whether a path that a file says is one of its folder: files from somewhere else must not make us read what is outside.
pub(crate) fn is_inside(path: &str) -> bool {
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && !path.contains('\0') && Path::new(path).components().all(normal)
}

/// The names of what is in a folder; None where nobody has a list.
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

/// The bytes of a file at a URL of at most so many bytes; None of a path that is no URL.
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
