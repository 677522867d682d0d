//! Writing safetensors files tensor by tensor.
//!
//! All shapes are known before any data is, so every header is written first and then each tensor's bytes are
//! appended to every file in the same order. Memory holds one tensor at a time, whatever the checkpoint's size.
//!
//! A file must be on the disk before it is renamed into place. What has been appended is synced in the background
//! while the next tensors are exchanged, so that little is left to wait for at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use safetensors::Dtype;

use super::header::{self, FreeTexts};
use crate::error::Error;

/// The order of tensors in a file: widest elements first, so that all stay aligned, then by name.
pub(crate) fn file_order(left: (&str, Dtype), right: (&str, Dtype)) -> std::cmp::Ordering {
    right.1.cmp(&left.1).then_with(|| left.0.cmp(right.0))
}

/// So many bytes are worth a sync of their own.
const WORTH_A_SYNC: usize = 4 << 20;

/// One file that is being written.
pub(crate) struct ShardFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// Bytes that each tensor must bring, in order; the last is next.
    expected: Vec<usize>,
    /// Bytes appended since the last sync began.
    unsynced: usize,
    syncing: Option<JoinHandle<io::Result<()>>>,
}

impl ShardFile {
    /// Creates the file and writes its header.
    pub(crate) fn create<'a>(
        path: &Path,
        tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])> + Clone,
        free_texts: Option<&FreeTexts>,
    ) -> Result<Self, Error> {
        let header = header::encode(tensors.clone(), free_texts)?;
        let mut expected: Vec<usize> =
            tensors.map(|(_, dtype, shape)| header::byte_len(dtype, shape).unwrap_or(0)).collect();
        expected.reverse();
        let file = File::create_new(path).map_err(|error| Error::io("creating", path, &error))?;
        let mut this = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 16, file),
            expected,
            unsynced: 0,
            syncing: None,
        };
        this.write(&header)?;
        Ok(this)
    }

    /// Appends the next tensor.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let expected = self.expected.pop();
        if expected != Some(bytes.len()) {
            let expected = expected.map_or("no more tensors".to_owned(), |len| format!("{len} bytes"));
            let message = format!(
                "{} expects {expected} next and was given {} bytes",
                self.path.display(),
                bytes.len()
            );
            return Err(Error::failed("internal", message));
        }
        self.write(bytes)
    }

    /// Flushes and syncs; every tensor must have come.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if !self.expected.is_empty() {
            let message = format!("{} lacks {} tensors", self.path.display(), self.expected.len());
            return Err(Error::failed("internal", message));
        }
        self.join_sync()
            .and_then(|()| self.file.flush())
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(|error| self.failed(&error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| self.failed(&error))?;
        self.unsynced += bytes.len();
        if self.unsynced < WORTH_A_SYNC || self.syncing.as_ref().is_some_and(|sync| !sync.is_finished()) {
            return Ok(());
        }
        self.unsynced = 0;
        self.begin_sync().map_err(|error| self.failed(&error))
    }

    /// Syncs in the background what has been written so far.
    fn begin_sync(&mut self) -> io::Result<()> {
        self.join_sync()?;
        let file = self.file.get_ref().try_clone()?;
        self.syncing = Some(thread::Builder::new().spawn(move || file.sync_data())?);
        Ok(())
    }

    /// The outcome of the sync that was begun last. Its errors are told to the one who asked first, and to nobody else.
    fn join_sync(&mut self) -> io::Result<()> {
        match self.syncing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(outcome) => outcome.unwrap_or_else(|_| Err(io::Error::other("the syncing thread panicked"))),
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::io("writing", &self.path, error)
    }
}
