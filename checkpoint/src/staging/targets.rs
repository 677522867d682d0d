//! Where an output may be begun.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::place;
use crate::replaced;
use crate::staging::hidden::absolute;

/// Whether an output of this name is one file of whole tensors, and not a directory; names of formats that are only read are refused.
pub(crate) fn is_whole_file(out: &Path) -> Result<bool, Error> {
    let suffix = out.extension().map(|suffix| suffix.to_string_lossy().to_lowercase());
    match suffix.as_deref() {
        Some("safetensors") => Ok(true),
        Some(read @ ("pt" | "pth" | "npy" | "npz" | "distcp")) => {
            let message = format!(
                "--out {} would be a file .{read}, which is only read: a name that ends in .safetensors is a file of whole tensors, any other a directory",
                out.display()
            );
            Err(Error::refused("output", message))
        }
        Some(_) | None => Ok(false),
    }
}

/// Whether the outputs may be begun: absent, or to be replaced by the user's own wish, and apart from each other.
pub(crate) fn check(dir: Option<&Path>, file: Option<&Path>, force: bool) -> Result<(), Error> {
    dir.map_or(Ok(()), |dir| check_directory(dir, force))?;
    file.map_or(Ok(()), |file| check_file(file, force))?;
    match (dir, file) {
        (Some(dir), Some(file)) => check_apart(dir, file),
        (Some(_) | None, _) => Ok(()),
    }
}

/// Refuses an output inside a folder that is read: the folder would hold what it is not, or be no checkpoint any more.
pub(crate) fn check_outside(
    dir: Option<&Path>,
    file: Option<&Path>,
    inputs: &[PathBuf],
) -> Result<(), Error> {
    for (flag, target) in dir.map(|dir| ("--out", dir)).into_iter().chain(file.map(|file| ("--gather", file)))
    {
        let place = real(target)?;
        for input in inputs.iter().filter(|input| !place::is_url(input)) {
            let input = if input.as_os_str().is_empty() { Path::new(".") } else { input };
            let Ok(folder) = input.canonicalize() else { continue };
            if place != folder && place.starts_with(&folder) {
                let (target, input) = (target.display(), input.display());
                let message =
                    format!("{flag} {target} is inside the input folder {input}: write it to another folder");
                return Err(Error::refused("output", message));
            }
        }
    }
    Ok(())
}

/// Whether `dir` may become the output: absent, empty, or an earlier output that the user wants replaced.
pub(super) fn check_directory(dir: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("output", format!("--out {} {why}", dir.display())));
    let Ok(kind) = fs::symlink_metadata(dir) else { return check_above("--out", dir) };
    if !kind.is_dir() {
        return refused("is there and is not a directory".to_owned());
    }
    if fs::read_dir(dir).map_err(|error| Error::io("reading", dir, &error))?.next().is_none() {
        return Ok(());
    }
    if !force {
        return refused("is not empty; --force replaces what an earlier run wrote".to_owned());
    }
    match replaced::directory(dir)? {
        None => Ok(()),
        Some(why) => {
            refused(format!("{why}, and --force replaces only what a run wrote: choose another name"))
        }
    }
}

/// Whether `file` may become the output: absent, or an earlier output that the user wants replaced.
pub(super) fn check_file(file: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::refused("output", format!("--gather {} {why}", file.display())));
    if file.file_name().is_none() {
        return refused("does not name a file");
    }
    let slash = |c: u8| std::path::is_separator(c.into());
    if file.as_os_str().as_encoded_bytes().last().copied().is_some_and(slash) {
        return refused("ends in a slash, so it does not name a file");
    }
    match fs::symlink_metadata(file) {
        Ok(_) if file.is_dir() => refused("is a directory"),
        Ok(_) if !force => refused("is there already; --force replaces what an earlier run wrote"),
        Ok(_) => match replaced::file(file) {
            None => Ok(()),
            Some(why) => {
                refused(&format!("{why}, and --force replaces only what a run wrote: choose another name"))
            }
        },
        Err(_) => check_above("--gather", file),
    }
}

/// Whether there can be folders above an output that is not there.
fn check_above(flag: &str, target: &Path) -> Result<(), Error> {
    let target = absolute(target)?;
    let there = target.ancestors().skip(1).find(|above| above.exists());
    match there {
        Some(above) if !above.is_dir() => {
            let message =
                format!("{flag} {} is below {}, which is not a directory", target.display(), above.display());
            Err(Error::refused("output", message))
        }
        Some(_) | None => Ok(()),
    }
}

/// The two outputs appear one after the other, so neither may be inside the other.
fn check_apart(dir: &Path, file: &Path) -> Result<(), Error> {
    let (real_dir, real_file) = (real(dir)?, real(file)?);
    let refused = |how: &str| {
        let message =
            format!("--gather {} is {how} --out {}: put it elsewhere", file.display(), dir.display());
        Err(Error::refused("output", message))
    };
    if real_file == real_dir {
        return refused("the same place as");
    }
    if real_file.starts_with(&real_dir) {
        return refused("inside");
    }
    if real_dir.starts_with(&real_file) {
        return refused("a folder above");
    }
    Ok(())
}

/// The path without the links among the folders above it that are there.
fn real(target: &Path) -> Result<PathBuf, Error> {
    let target = absolute(target)?;
    for above in target.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), target.strip_prefix(above)) {
            return Ok(real.join(rest));
        }
    }
    Ok(target)
}
