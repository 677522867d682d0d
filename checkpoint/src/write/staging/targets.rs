//! Checks of output paths.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bytes::place;
use crate::error::Error;
use crate::select::replaced;
use crate::write::staging::hidden::absolute;

/// Returns `true` if an output name is one file of whole tensors, `false` for a directory.
///
/// Names of formats that are only read are errors.
pub(crate) fn is_whole_file(out: &Path) -> Result<bool, Error> {
    let suffix = out.extension().map(|suffix| suffix.to_string_lossy().to_lowercase());
    match suffix.as_deref() {
        Some("safetensors") => Ok(true),
        Some(read @ ("pt" | "pth" | "npy" | "npz" | "distcp")) => {
            let message = format!(
                "`--out {}`: .{read} files are read but not written; use a name that ends in .safetensors for a file of whole tensors, or any other for a directory",
                out.display()
            );
            Err(Error::refused("output", message))
        }
        Some(_) | None => Ok(false),
    }
}

/// Checks that the outputs may be begun: absent or replaceable, and not inside each other.
pub(crate) fn check(dir: Option<&Path>, file: Option<&Path>, force: bool) -> Result<(), Error> {
    dir.map_or(Ok(()), |dir| check_directory(dir, force))?;
    file.map_or(Ok(()), |file| check_file(file, force))?;
    match (dir, file) {
        (Some(dir), Some(file)) => check_apart(dir, file),
        (Some(_) | None, _) => Ok(()),
    }
}

/// Rejects an output inside an input folder, which would then no longer be a valid checkpoint.
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
                let message = format!(
                    "`{flag} {target}` is inside the input folder {input}; write it to another folder"
                );
                return Err(Error::refused("output", message));
            }
        }
    }
    Ok(())
}

/// Checks that `dir` may become the output: absent, empty, or an earlier output with `force`.
pub(super) fn check_directory(dir: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("output", format!("`--out {}` {why}", dir.display())));
    let Ok(kind) = fs::symlink_metadata(dir) else { return check_above("--out", dir) };
    if !kind.is_dir() {
        return refused("exists and is not a directory".to_owned());
    }
    if fs::read_dir(dir).map_err(|error| Error::io("reading", dir, &error))?.next().is_none() {
        return Ok(());
    }
    if !force {
        return refused("is not empty; pass `--force` to replace the output of an earlier run".to_owned());
    }
    match replaced::directory(dir)? {
        None => Ok(()),
        Some(why) => {
            refused(format!("{why}, and `--force` replaces only the output of a run; choose another name"))
        }
    }
}

/// Checks that `file` may become the output: absent, or an earlier output with `force`.
pub(super) fn check_file(file: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::refused("output", format!("`--gather {}` {why}", file.display())));
    if file.file_name().is_none() {
        return refused("does not name a file");
    }
    let slash = |c: u8| std::path::is_separator(c.into());
    if file.as_os_str().as_encoded_bytes().last().copied().is_some_and(slash) {
        return refused("ends in a slash, so it does not name a file");
    }
    match fs::symlink_metadata(file) {
        Ok(_) if file.is_dir() => refused("is a directory"),
        Ok(_) if !force => refused("already exists; pass `--force` to replace the output of an earlier run"),
        Ok(_) => match replaced::file(file) {
            None => Ok(()),
            Some(why) => refused(&format!(
                "{why}, and `--force` replaces only the output of a run; choose another name"
            )),
        },
        Err(_) => check_above("--gather", file),
    }
}

/// Checks that the folders above a missing output can be made.
fn check_above(flag: &str, target: &Path) -> Result<(), Error> {
    let target = absolute(target)?;
    let there = target.ancestors().skip(1).find(|above| above.exists());
    match there {
        Some(above) if !above.is_dir() => {
            let message = format!(
                "`{flag} {}` is below {}, which is not a directory",
                target.display(),
                above.display()
            );
            Err(Error::refused("output", message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that neither output is inside the other, because they are put in place in sequence.
fn check_apart(dir: &Path, file: &Path) -> Result<(), Error> {
    let (real_dir, real_file) = (real(dir)?, real(file)?);
    let refused = |how: &str| {
        let message =
            format!("`--gather {}` is {how} `--out {}`; choose another path", file.display(), dir.display());
        Err(Error::refused("output", message))
    };
    if real_file == real_dir {
        return refused("the same path as");
    }
    if real_file.starts_with(&real_dir) {
        return refused("inside");
    }
    if real_dir.starts_with(&real_file) {
        return refused("a folder above");
    }
    Ok(())
}

/// Resolves the links in the existing folders above a path.
fn real(target: &Path) -> Result<PathBuf, Error> {
    let target = absolute(target)?;
    for above in target.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), target.strip_prefix(above)) {
            return Ok(real.join(rest));
        }
    }
    Ok(target)
}
