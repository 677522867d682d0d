//! Safetensors files that are written tensor by tensor.
//!
//! All shapes are known before any data is, so every header is written first and then each tensor's bytes are
//! appended to every file in the same order. Memory holds one tensor at a time, for a checkpoint of any size.
//!
//! A file must be on the disk before it gets its final name. Appended bytes are synced in the background
//! while the next tensors are exchanged, so that little waiting is left at the end.
//!
//! There may be more files than a process may have open, so a file is open only while it is written to. Small
//! tensors are buffered in memory until there is enough to open it for.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use reshard_layout::internal::counted;
use safetensors::Dtype;

use crate::bytes::checksum::checksum;
use crate::error::Error;
use crate::formats::header;
use crate::job::decision::Move;
use crate::model::stored::{self, FreeTexts};

/// Compares tensors by their order in a file: widest elements first for alignment, then by name.
pub(crate) fn file_order(left: (&str, Dtype), right: (&str, Dtype)) -> std::cmp::Ordering {
    right.1.cmp(&left.1).then_with(|| left.0.cmp(right.0))
}

/// Sorts redistributions in the order of the files to which they are written.
pub(crate) fn in_file_order(moves: &mut [Move<'_>]) {
    moves.sort_by(|a, b| file_order((&a.tensor.name, a.tensor.dtype), (&b.tensor.name, b.tensor.dtype)));
}

/// The number of bytes that justifies a separate sync.
const WORTH_A_SYNC: usize = 4 << 20;

/// The number of files that are synced in the background at a time.
const SYNCS: usize = 4;

/// The number of background syncs in progress.
static SYNCING: AtomicUsize = AtomicUsize::new(0);

/// The stack size of a thread that syncs, which needs little.
const STACK: usize = 128 << 10;

/// The limit of buffered bytes: over all files of a directory, and per file.
const WAITING: (usize, usize) = (8 << 20, 64 << 10);

/// One file that is being written.
pub(crate) struct ShardFile {
    path: PathBuf,
    waiting: Vec<u8>,
    /// The limit of buffered bytes of this file.
    most: usize,
    /// The bytes of each tensor still expected, in reverse order: the last one is next.
    expected: Vec<usize>,
    /// The bytes appended since the last sync began.
    unsynced: usize,
    syncing: Option<JoinHandle<io::Result<()>>>,
    /// The checksums of the header and of the tensors appended so far.
    sums: Vec<u64>,
}

impl ShardFile {
    /// Creates one of `files` files, and writes its header.
    pub(crate) fn create<'a>(
        path: &Path,
        files: usize,
        tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])> + Clone,
        free_texts: Option<&FreeTexts>,
    ) -> Result<Self, Error> {
        let header = header::encode(&mut tensors.clone(), free_texts)?;
        let mut expected: Vec<usize> =
            tensors.map(|(_, dtype, shape)| stored::byte_len(dtype, shape).unwrap_or(0)).collect();
        expected.reverse();
        File::create_new(path).map_err(|error| Error::io("creating", path, &error))?;
        let mut this = Self {
            path: path.to_owned(),
            waiting: Vec::new(),
            most: (WAITING.0 / files.max(1)).min(WAITING.1),
            expected,
            unsynced: 0,
            syncing: None,
            sums: vec![checksum(&header)],
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
                "{} expects {expected} next, but got {}",
                self.path.display(),
                counted(bytes.len(), "byte", "bytes")
            );
            return Err(Error::internal(message));
        }
        self.sums.push(checksum(bytes));
        self.write(bytes)
    }

    /// Returns the checksum of the header, then those of the tensors appended so far.
    pub(crate) fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Flushes and syncs; every tensor must have been appended.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if !self.expected.is_empty() {
            let message = format!(
                "{} lacks {}",
                self.path.display(),
                counted(self.expected.len(), "tensor", "tensors")
            );
            return Err(Error::internal(message));
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

    /// Writes the buffered bytes, then these.
    fn put(&mut self, bytes: &[u8]) -> io::Result<File> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(&self.waiting)?;
        file.write_all(bytes)?;
        self.unsynced += self.waiting.len() + bytes.len();
        self.waiting.clear();
        Ok(file)
    }

    /// Starts a background sync of everything written so far.
    ///
    /// Skips it if enough others are in progress, or if no thread can be spawned: then a later sync does the
    /// work.
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

    /// Returns the result of the last background sync; the system reports a sync error only once.
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
