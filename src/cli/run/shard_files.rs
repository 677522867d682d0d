//! Writing safetensors files tensor by tensor.
//!
//! All shapes are known before any data is, so every header is written first and then each tensor's bytes are
//! appended to every file in the same order. Memory holds one tensor at a time, whatever the checkpoint's size.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use super::header::{self, FreeTexts};
use crate::cli::error::CliError;

/// The order of tensors in a file: widest elements first, so that all stay aligned, then by name.
pub(crate) fn file_order(left: (&str, Dtype), right: (&str, Dtype)) -> std::cmp::Ordering {
    right.1.cmp(&left.1).then_with(|| left.0.cmp(right.0))
}

/// One file that is being written.
pub(crate) struct ShardFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// Bytes that each tensor must bring, in order; the last is next.
    expected: Vec<usize>,
}

impl ShardFile {
    /// Creates the file and writes its header.
    pub(crate) fn create<'a>(
        path: &Path,
        tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])> + Clone,
        free_texts: Option<&FreeTexts>,
    ) -> Result<Self, CliError> {
        let header = header::encode(tensors.clone(), free_texts)?;
        let mut expected: Vec<usize> =
            tensors.map(|(_, dtype, shape)| header::byte_len(dtype, shape).unwrap_or(0)).collect();
        expected.reverse();
        let file = File::create_new(path).map_err(|error| CliError::io("creating", path, &error))?;
        let mut this =
            Self { path: path.to_owned(), file: BufWriter::with_capacity(1 << 16, file), expected };
        this.write(&header)?;
        Ok(this)
    }

    /// Appends the next tensor.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let expected = self.expected.pop();
        if expected != Some(bytes.len()) {
            let expected = expected.map_or("no more tensors".to_owned(), |len| format!("{len} bytes"));
            let message = format!(
                "{} expects {expected} next and was given {} bytes",
                self.path.display(),
                bytes.len()
            );
            return Err(CliError::failed("internal", message));
        }
        self.write(bytes)
    }

    /// Flushes and syncs; every tensor must have come.
    pub(crate) fn finish(&mut self) -> Result<(), CliError> {
        if !self.expected.is_empty() {
            let message = format!("{} lacks {} tensors", self.path.display(), self.expected.len());
            return Err(CliError::failed("internal", message));
        }
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(|error| CliError::io("writing", &self.path, &error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.file.write_all(bytes).map_err(|error| CliError::io("writing", &self.path, &error))
    }
}
