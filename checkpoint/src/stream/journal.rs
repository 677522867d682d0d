//! The journal of a run: it records finished tensors, so that a killed run can be resumed.
//!
//! ```text
//! .NAME.reshard-HASH-N/journal    reshard 1 FINGERPRINT
//!                                 TENSOR INFINITE WHOLE SHARDS,.. CHUNKS,.. SUM      one line for each tensor that is done
//!                                 placing                                            before the output is put in place
//! ```
//!
//! The fingerprint covers everything that determines the output bytes: the input files with their sizes and
//! modification times, the derived tensors, shardings and formats. A line without a matching sum was being
//! written; it and everything after it are ignored. Lines are not trusted either: they are checksums, and all
//! written bytes, by any run, are read and compared with them before the output is put in place. If that
//! fails, all of the work is discarded.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bytes::Input;
use crate::bytes::checksum::{checksum, of_text, to_text};
use crate::error::Error;
use crate::job::ReshardJob;
use crate::job::decision::Move;
use crate::model::checkpoint::Data;
use crate::model::objects::Object;

/// The name of the journal in a hidden folder.
pub(crate) const JOURNAL: &str = "journal";

/// The line that is written before an output is put in place.
const PLACING: &str = "placing";

/// The checksums of a finished tensor, as in [`crate::stream::Sums`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) shards: Vec<u64>,
    pub(super) whole: u64,
    pub(super) chunks: Vec<u64>,
    pub(super) infinite: u64,
}

/// The tensors that were finished earlier, by number.
pub(super) type Before = HashMap<usize, Done>;

/// An open journal, to which finished tensors are appended.
pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    /// The length of the journal before the placing line was written.
    closed_at: Mutex<Option<u64>>,
}

impl Journal {
    /// Creates a journal.
    pub(super) fn begin(folder: &Path, fingerprint: u64) -> Result<Self, Error> {
        let path = folder.join(JOURNAL);
        let failed = |error| Error::io("writing", &path, &error);
        let mut file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(failed)?;
        file.write_all(first_line(fingerprint).as_bytes()).map_err(failed)?;
        Ok(Self { path, file: Mutex::new(file), closed_at: Mutex::default() })
    }

    /// Opens an existing journal and reads its entries; `None` if its fingerprint differs.
    pub(super) fn go_on(folder: &Path, fingerprint: u64) -> Result<Option<(Self, Before)>, Error> {
        let path = folder.join(JOURNAL);
        let failed = |error| Error::io("reading", &path, &error);
        let text = fs::read(&path).map_err(failed)?;
        let Some((done, end)) = read(&text, fingerprint) else { return Ok(None) };
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        // Remove a partly written line.
        file.set_len(end as u64).map_err(failed)?;
        Ok(Some((Self { path, file: Mutex::new(file), closed_at: Mutex::default() }, done)))
    }

    /// Appends a finished tensor.
    pub(super) fn note(&self, tensor: usize, done: &Done) -> Result<(), Error> {
        self.append(&line(tensor, done))
    }

    /// Closes the journal; from here on no run can resume from it.
    pub(super) fn close(&self) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error| Error::io("writing", &self.path, &error);
        let end = file.metadata().map_err(failed)?.len();
        *self.closed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        file.write_all(format!("{PLACING}\n").as_bytes()).map_err(failed)?;
        file.sync_all().map_err(|error| Error::io("syncing", &self.path, &error))
    }

    /// Reopens the journal after nothing was put in place, if possible, so that another run can resume.
    pub(super) fn open_again(&self) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = self.closed_at.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = file.set_len(end);
        }
    }

    fn append(&self, line: &str) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(|error| Error::io("writing", &self.path, &error))
    }
}

/// Returns `true` if a folder has a journal from which a run with this fingerprint can resume.
pub(crate) fn is_of(folder: &Path, fingerprint: u64) -> bool {
    fs::read(folder.join(JOURNAL)).is_ok_and(|text| read(&text, fingerprint).is_some())
}

fn first_line(fingerprint: u64) -> String {
    format!("reshard 1 {fingerprint:016x}\n")
}

fn line(tensor: usize, done: &Done) -> String {
    let comma = |sums: &[u64]| to_text(sums).replace(' ', ",");
    let Done { shards, whole, chunks, infinite } = done;
    let said = format!("{tensor} {infinite} {whole:016x} {} {}", comma(shards), comma(chunks));
    let sum = checksum(said.as_bytes());
    format!("{said} {sum:016x}\n")
}

/// Parses the finished tensors and the end of the last valid line.
///
/// Returns `None` if the fingerprint differs, or if the output was being put in place.
fn read(text: &[u8], fingerprint: u64) -> Option<(HashMap<usize, Done>, usize)> {
    let text = String::from_utf8_lossy(text);
    let first = first_line(fingerprint);
    let rest = text.strip_prefix(&first)?;
    let (mut done, mut end) = (HashMap::new(), first.len());
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == PLACING {
            return None;
        }
        let Some((tensor, one)) = entry(line) else { break };
        done.insert(tensor, one);
        end += line.len();
    }
    Some((done, end))
}

fn entry(line: &str) -> Option<(usize, Done)> {
    let (said, sum) = line.strip_suffix('\n')?.rsplit_once(' ')?;
    if u64::from_str_radix(sum, 16).ok()? != checksum(said.as_bytes()) {
        return None;
    }
    let [tensor, infinite, whole, shards, chunks] = said.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let sums = |text: &str| of_text(&text.replace(',', " "));
    let done = Done {
        shards: sums(shards)?,
        whole: u64::from_str_radix(whole, 16).ok()?,
        chunks: sums(chunks)?,
        infinite: infinite.parse().ok()?,
    };
    Some((tensor.parse().ok()?, done))
}

/// Returns a hash of everything that determines the output bytes.
pub(super) fn fingerprint(moves: &[Move<'_>], objects: &[Object], job: &ReshardJob) -> u64 {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    (job.out.is_some(), job.gather.is_some(), job.format, job.file_bytes).hash(&mut hasher);
    let mut known: HashMap<*const Input, usize> = HashMap::new();
    for one in moves {
        let tensor = one.tensor;
        (&tensor.name, &tensor.path, &tensor.shape).hash(&mut hasher);
        [tensor.dtype, tensor.stored].map(|dtype| dtype.to_string()).hash(&mut hasher);
        (one.to.mesh().to_string(), one.to.to_string()).hash(&mut hasher);
        (one.parts.as_ref().map(|parts| (&parts.parts.extents, parts.parts.dim, parts.to_string())))
            .hash(&mut hasher);
        match &tensor.data {
            Data::Whole(_) => 0.hash(&mut hasher),
            Data::Shards { sharding, .. } => {
                (sharding.mesh().to_string(), sharding.to_string()).hash(&mut hasher);
            }
            Data::Chunks { placed, .. } => (&placed.regions, &placed.of_rank).hash(&mut hasher),
        }
        for bytes in tensor.files() {
            bytes.hash_place(&mut hasher);
            if let Some(input) = bytes.input() {
                let next = known.len();
                let number = *known.entry(Arc::as_ptr(input)).or_insert_with(|| {
                    input.hash_identity(&mut hasher);
                    next
                });
                number.hash(&mut hasher);
            }
        }
    }
    objects.len().hash(&mut hasher);
    for object in objects {
        object.hash_identity(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::{Done, first_line, line, read};

    /// With a truncated end or any changed byte, only lines that were really written count.
    #[test]
    fn only_lines_that_are_whole_count() {
        let all: Vec<Done> = (0..4)
            .map(|n| Done {
                shards: vec![n, u64::MAX - n],
                whole: 7 * n,
                chunks: (0..n).collect(),
                infinite: n,
            })
            .collect();
        let lines: Vec<String> = all.iter().enumerate().map(|(at, done)| line(at, done)).collect();
        let text = first_line(9) + &lines.concat();
        let whole = |text: &[u8]| {
            let (done, end) = read(text, 9)?;
            assert!(done.iter().all(|(at, done)| *done == all[*at]), "{done:?}");
            assert_eq!(end, first_line(9).len() + lines[..done.len()].concat().len());
            Some(done.len())
        };
        for end in 0..=text.len() {
            let expected = (0..=4).rev().find(|n| end >= first_line(9).len() + lines[..*n].concat().len());
            assert_eq!(whole(&text.as_bytes()[..end]), expected, "{end}");
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            let before = (0..=4).rev().find(|n| at >= first_line(9).len() + lines[..*n].concat().len());
            assert_eq!(whole(&other), before, "{at}");
        }
        assert!(read(text.as_bytes(), 8).is_none());
        assert!(read((text + "placing\n").as_bytes(), 9).is_none());
    }
}
