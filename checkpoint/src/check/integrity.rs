//! Verification of a checkpoint: every checksum of its manifest is recomputed, and every replica is compared.
//!
//! ```text
//! sharding.json            its own checksum
//! header of a rank file    the manifest's checksum of it
//! shard of a tensor        the manifest's checksum of its region; without one, that of the first rank that holds the region
//! entry of a zip archive   the archive's checksum of it, if there is one
//! ```
//!
//! The first three cover all bytes of all files of a run. So any flipped bit is found here, or when the
//! checkpoint is opened.

mod archives;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::bytes;
use crate::bytes::checksum::{Sum, checksum};
use crate::bytes::pieces::{PIECE, path, read};
use crate::check::problem::{Problem, Problems};
use crate::error::Error;
use crate::formats::objects_file::objects_file;
use crate::job::observer::{Observer, moved};
use crate::model::archives::Archive;
use crate::model::checkpoint::{Checkpoint, Sums, Tensor};
use crate::model::placed::Known;
use crate::reading::Source;
use crate::spread::{spread, threads};

/// The result of a verification.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The number of tensors.
    pub tensors: usize,
    /// The number of entries that are not tensors, those of a `.pt` or `.npz` file included.
    pub others: usize,
    /// The number of shards that were read, including replicas.
    pub shards: usize,
    /// The number of tensor bytes that were read.
    pub bytes: u64,
    /// `true` if there are checksums to compare with; otherwise only replicas are compared.
    pub checksums: bool,
    /// The problems, in the order of the tensors; empty if there are none.
    pub problems: Vec<Problem>,
}

/// A shard that is being read in blocks.
struct Shard<'a> {
    at: (usize, usize),
    tensor: &'a Tensor,
    source: Arc<Source<'a>>,
    sum: Sum,
    left: AtomicUsize,
}

/// The checksums of shards, by the number of the tensor and the position of the rank.
type Found<'a> = Mutex<Vec<((usize, usize), &'a Tensor, Arc<Source<'a>>, u64)>>;

impl Checkpoint {
    /// Reads everything, and compares all checksums and all replicas.
    ///
    /// Problems are listed in the result; they are not errors.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    /// let verified = Checkpoint::open(None)?.verify(&mut ())?;
    /// assert!(verified.problems.is_empty() && !verified.checksums); // no manifest
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn verify(&self, observer: &mut dyn Observer) -> Result<VerifyReport, Error> {
        let mut problems = self.sums.as_ref().map(Sums::problems).unwrap_or_default();
        let shards: usize = self.tensors.iter().map(|tensor| tensor.files().len()).sum();
        let archives: u64 = self.archives.iter().map(Archive::byte_len).sum();
        let lens = self.tensors.iter().flat_map(|tensor| tensor.files().iter().map(|file| file.len() as u64));
        let bytes = lens.sum();
        // An archive stores each entry once, so there are no replicas to compare.
        observer.on_start(if archives > 0 { archives } else { bytes });
        problems.extend(if archives > 0 { self.check_archives(observer) } else { self.compare(observer) }?);
        problems.extend(self.check_objects()?);
        observer.on_finish();
        let checksums = self.has_checksums();
        let (tensors, others) = (self.tensors.len(), self.objects.len());
        Ok(VerifyReport { tensors, others, shards, bytes, checksums, problems })
    }

    /// Returns an error if the manifest or a header is wrong; called before the input is used.
    pub(crate) fn check_headers(&self) -> Result<(), Error> {
        match self.sums.as_ref().and_then(|sums| sums.problems().into_iter().next()) {
            None => Ok(()),
            Some(problem) => Err(Error::mismatch(
                "checksum",
                format!("{problem}; pass `--no-verify` to use the input anyway"),
            )),
        }
    }

    /// Returns the problems of objects whose checksums are known.
    fn check_objects(&self) -> Result<Vec<Problem>, Error> {
        let mut problems = Vec::new();
        for object in &self.objects {
            if object.is_lost() {
                problems.push(Problem {
                    file: self
                        .folders
                        .first()
                        .map_or_else(String::new, |dir| objects_file(dir).display().to_string()),
                    tensor: None,
                    object: Some(object.name.clone()),
                    what: "its bytes are missing".to_owned(),
                });
            }
            let (Some(said), Some(bytes)) = (object.sum, object.archive()) else { continue };
            let found = object.each_piece(&mut |_, _| Ok(()))?;
            if found != said {
                problems.push(Problem {
                    file: path(bytes),
                    tensor: None,
                    object: Some(object.name.clone()),
                    what: format!("checksum mismatch: computed {found:016x}, recorded {said:016x}"),
                });
            }
        }
        Ok(problems)
    }

    fn compare(&self, observer: &mut dyn Observer) -> Result<Vec<Problem>, Error> {
        let found: Found<'_> = Mutex::default();
        let wrong = Problems::default();
        let mut pieces =
            Pieces { tensors: self.tensors.iter().enumerate(), known: Known::default(), current: None };
        spread(
            threads(),
            || pieces.next(),
            Vec::new,
            |room: &mut Vec<u8>, (shard, at): (Arc<Shard<'_>>, usize)| {
                let file = &shard.source.files[shard.at.1];
                let len = PIECE.min(file.len() - at);
                bytes::resize(room, len)?;
                read(file, at, room).map_err(|error| error.about_tensor(&shard.tensor.name))?;
                shard.sum.add(checksum(room), file.len() - at - len);
                if shard.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    shard.judge(&found, &wrong);
                }
                Ok(len as u64)
            },
            &mut |bytes| moved(observer, bytes),
        )?;
        // Shards without checksums: compare each replica with the first one of its region.
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let sum_of: HashMap<(usize, usize), u64> = found.iter().map(|(at, _, _, sum)| (*at, *sum)).collect();
        for (at, tensor, source, sum) in &found {
            let first = source.placed.holders[source.placed.of_rank[at.1]][0];
            if sum_of.get(&(at.0, first)).is_some_and(|first| first != sum) {
                let what = format!("it differs from its replica in {}", path(&source.files[first]));
                wrong.push(*at, Problem::of(tensor, &source.files[at.1], what));
            }
        }
        Ok(wrong.in_order())
    }
}

/// Distributes the blocks of all shards.
struct Pieces<'a> {
    tensors: std::iter::Enumerate<std::slice::Iter<'a, Tensor>>,
    known: Known,
    current: Option<Current<'a>>,
}

/// The tensor whose shards are being distributed.
struct Current<'a> {
    number: usize,
    tensor: &'a Tensor,
    source: Arc<Source<'a>>,
    /// The next shard, then the shard with blocks left, from this byte on.
    next: usize,
    shard: Option<(Arc<Shard<'a>>, usize)>,
}

impl<'a> Pieces<'a> {
    fn next(&mut self) -> Result<Option<(Arc<Shard<'a>>, usize)>, Error> {
        loop {
            if let Some(piece) = self.current.as_mut().and_then(Current::next) {
                return Ok(Some(piece));
            }
            let Some((number, tensor)) = self.tensors.next() else { return Ok(None) };
            let source = tensor.source(&tensor.units(), &mut self.known);
            let source = Arc::new(source.map_err(|error| error.about_tensor(&tensor.name))?);
            self.current = Some(Current { number, tensor, source, next: 0, shard: None });
        }
    }
}

impl<'a> Current<'a> {
    fn next(&mut self) -> Option<(Arc<Shard<'a>>, usize)> {
        loop {
            if let Some((shard, at)) = &mut self.shard {
                let begin = *at;
                if begin < self.source.files[shard.at.1].len() {
                    *at += PIECE;
                    return Some((Arc::clone(shard), begin));
                }
            }
            let file = self.source.files.get(self.next)?;
            let shard = Shard {
                at: (self.number, self.next),
                tensor: self.tensor,
                source: Arc::clone(&self.source),
                sum: Sum::default(),
                left: file.len().div_ceil(PIECE).into(),
            };
            self.shard = Some((Arc::new(shard), 0));
            self.next += 1;
        }
    }
}

impl<'a> Shard<'a> {
    /// Compares the checksum with the manifest's, or records it for comparison with its replicas.
    fn judge(&self, found: &Found<'a>, wrong: &Problems) {
        let (sum, region) = (self.sum.get(), self.source.placed.of_rank[self.at.1]);
        match self.tensor.sum(region) {
            Some(said) if said == sum => {}
            Some(said) => {
                let what = format!("checksum mismatch: computed {sum:016x}, recorded {said:016x}");
                let problem = Problem::of(self.tensor, &self.source.files[self.at.1], what);
                wrong.push(self.at, problem);
            }
            None if self.source.placed.holders[region].len() < 2 => {}
            None => {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.push((self.at, self.tensor, Arc::clone(&self.source), sum));
            }
        }
    }
}

impl Sums {
    fn problems(&self) -> Vec<Problem> {
        let problem = |file: &Path, what: String| Problem {
            file: file.display().to_string(),
            tensor: None,
            object: None,
            what,
        };
        let mut problems = Vec::new();
        if !self.manifest_is_right {
            problems
                .push(problem(&self.manifest, "it does not match its own checksum: it was changed".into()));
        }
        for (file, found, said) in &self.headers {
            if found != said {
                let what =
                    format!("checksum mismatch in its header: computed {found:016x}, recorded {said:016x}");
                problems.push(problem(file, what));
            }
        }
        problems
    }
}
