//! Writing safetensors files tensor by tensor.
//!
//! All shapes are known before any data is, so every header is written first and then each tensor's bytes are
//! appended to every file in the same order. Memory holds one tensor at a time, whatever the checkpoint's size.
//!
//! A file must be on the disk before it is renamed into place. What has been appended is synced in the background
//! while the next tensors are exchanged, so that little is left to wait for at the end.
//!
//! There may be more files than a process may have open, so a file is open only while it is written to. Small tensors wait in
//! memory until there is something to open it for.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use reshard_layout::internal::counted;
use safetensors::Dtype;

use super::decision::Move;
use super::header::{self, FreeTexts};
use crate::error::Error;

/// The order of tensors in a file: widest elements first, so that all stay aligned, then by name.
pub(crate) fn file_order(left: (&str, Dtype), right: (&str, Dtype)) -> std::cmp::Ordering {
    right.1.cmp(&left.1).then_with(|| left.0.cmp(right.0))
}

/// Moves in the order of the files that they are written to.
pub(crate) fn in_file_order(moves: &mut [Move<'_>]) {
    moves.sort_by(|a, b| file_order((&a.tensor.name, a.tensor.dtype), (&b.tensor.name, b.tensor.dtype)));
}

/// So many bytes are worth a sync of their own.
const WORTH_A_SYNC: usize = 4 << 20;

/// Files that are synced in the background at a time.
const SYNCS: usize = 4;

/// How many are.
static SYNCING: AtomicUsize = AtomicUsize::new(0);

/// Syncing needs little.
const STACK: usize = 128 << 10;

/// Bytes that wait in memory, of all files of a directory together and of each at most.
const WAITING: (usize, usize) = (8 << 20, 64 << 10);

/// One file that is being written.
pub(crate) struct ShardFile {
    path: PathBuf,
    waiting: Vec<u8>,
    /// Bytes that may wait.
    most: usize,
    /// Bytes that each tensor must bring, in order; the last is next.
    expected: Vec<usize>,
    /// Bytes appended since the last sync began.
    unsynced: usize,
    syncing: Option<JoinHandle<io::Result<()>>>,
}

impl ShardFile {
    /// Creates the file, one of so many, and writes its header.
    pub(crate) fn create<'a>(
        path: &Path,
        files: usize,
        tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])> + Clone,
        free_texts: Option<&FreeTexts>,
    ) -> Result<Self, Error> {
        let header = header::encode(&mut tensors.clone(), free_texts)?;
        let mut expected: Vec<usize> =
            tensors.map(|(_, dtype, shape)| header::byte_len(dtype, shape).unwrap_or(0)).collect();
        expected.reverse();
        File::create_new(path).map_err(|error| Error::io("creating", path, &error))?;
        let mut this = Self {
            path: path.to_owned(),
            waiting: Vec::new(),
            most: (WAITING.0 / files.max(1)).min(WAITING.1),
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
            let expected = expected.map_or("no more tensors".to_owned(), |len| {
                format!("{len}", len = counted(len, "byte", "bytes"))
            });
            let message = format!(
                "{} expects {expected} next and was given {}",
                self.path.display(),
                counted(bytes.len(), "byte", "bytes")
            );
            return Err(Error::failed("internal", message));
        }
        self.write(bytes)
    }

    /// Flushes and syncs; every tensor must have come.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if !self.expected.is_empty() {
            let message = format!(
                "{} lacks {}",
                self.path.display(),
                counted(self.expected.len(), "tensor", "tensors")
            );
            return Err(Error::failed("internal", message));
        }
        self.join_sync()
            .and_then(|()| self.put(&[]))
            .and_then(|file| file.sync_all())
            .map_err(|error| self.failed(&error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.waiting.len() + bytes.len() <= self.most {
            self.waiting.extend_from_slice(bytes);
            return Ok(());
        }
        let file = self.put(bytes).map_err(|error| self.failed(&error))?;
        if self.unsynced < WORTH_A_SYNC || self.syncing.as_ref().is_some_and(|sync| !sync.is_finished()) {
            return Ok(());
        }
        self.begin_sync(file).map_err(|error| self.failed(&error))
    }

    /// Writes what waits, and these bytes behind it.
    fn put(&mut self, bytes: &[u8]) -> io::Result<File> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(&self.waiting)?;
        file.write_all(bytes)?;
        self.unsynced += self.waiting.len() + bytes.len();
        self.waiting.clear();
        Ok(file)
    }

    /// Syncs in the background what has been written so far, unless others are at it or no thread can be had: then a later
    /// sync does it.
    fn begin_sync(&mut self, file: File) -> io::Result<()> {
        self.join_sync()?;
        if SYNCING.fetch_add(1, Ordering::Relaxed) >= SYNCS {
            SYNCING.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        let sync = move || {
            let outcome = file.sync_data();
            SYNCING.fetch_sub(1, Ordering::Relaxed);
            outcome
        };
        match thread::Builder::new().stack_size(STACK).spawn(sync) {
            Ok(handle) => {
                self.syncing = Some(handle);
                self.unsynced = 0;
            }
            Err(_) => {
                SYNCING.fetch_sub(1, Ordering::Relaxed);
            }
        }
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
