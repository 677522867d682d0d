//! The check of zip archives: every entry against its stored checksum.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bytes::checksum::{Sum32, crc32};
use crate::bytes::peek::Peek;
use crate::bytes::pieces::{PIECE, read};
use crate::bytes::zip::{self, Zip};
use crate::bytes::{self, Bytes, Input};
use crate::check::problem::{Problem, Problems};
use crate::error::{Error, ErrorClass, ErrorKind};
use crate::job::observer::{Observer, moved};
use crate::model::archives::{Archive, Form};
use crate::model::checkpoint::{Checkpoint, Tensor};
use crate::model::objects::Object;
use crate::shown::Shown;
use crate::spread::{spread, threads};

/// An entry that is being read in blocks.
struct Entry {
    name: String,
    bytes: Bytes,
    /// The byte range in the file, compressed if the entry is.
    place: Range<u64>,
    said: u32,
    sum: Sum32,
    left: AtomicUsize,
}

/// A block of an entry.
struct Piece {
    number: usize,
    entry: Arc<Entry>,
    at: usize,
    len: usize,
}

impl Archive {
    /// Returns the blocks of all entries, and the problems of entries that cannot be read.
    fn pieces(&self, first: usize, room: &mut [u8]) -> Result<(VecDeque<Piece>, Vec<Problem>), Error> {
        let file = self.input.open_again()?;
        let place = Peek::new(&self.input, &file, self.start, self.len)?;
        let (mut pieces, mut problems) = (VecDeque::new(), Vec::new());
        if self.form == Form::Pickle {
            let range = self.start..self.start + self.len;
            pieces.extend(cut(first, "pickle", place.bytes(), range, 0, PIECE));
            return Ok((pieces, problems));
        }
        let zip = match Zip::open(place, room) {
            Ok(zip) => zip,
            Err(error) if error.class() == ErrorClass::Refused => {
                problems.push(Problem {
                    file: self.input.path().display().to_string(),
                    tensor: None,
                    object: None,
                    what: format!("at byte {}: {error}", self.start),
                });
                return Ok((pieces, problems));
            }
            Err(error) => return Err(error),
        };
        for (at, (name, entry)) in zip.entries().enumerate() {
            let bytes = match zip.bytes(entry) {
                Ok(bytes) => bytes,
                Err(error) => {
                    problems.push(self.problem(
                        name,
                        None,
                        &format!("its checksum was not verified: {error}"),
                    ));
                    continue;
                }
            };
            // A compressed entry is inflated once, by one thread.
            let piece = if matches!(bytes, Bytes::Inflated { .. }) { usize::MAX } else { PIECE };
            pieces.extend(cut(first + at, name, bytes, entry.place(), entry.crc32(), piece));
        }
        Ok((pieces, problems))
    }

    fn problem(&self, entry: &str, tensor: Option<&str>, what: &str) -> Problem {
        Problem {
            file: self.input.path().display().to_string(),
            tensor: tensor.map(str::to_owned),
            object: None,
            what: format!("`{}` at byte {}: {what}", entry.shown(), self.start),
        }
    }
}

/// Splits an entry into blocks.
fn cut(
    number: usize,
    name: &str,
    bytes: Bytes,
    place: Range<u64>,
    said: u32,
    piece: usize,
) -> impl Iterator<Item = Piece> {
    let len = bytes.len();
    let left = len.div_ceil(piece).into();
    let entry = Arc::new(Entry { name: name.to_owned(), bytes, place, said, sum: Sum32::default(), left });
    let piece_at = move |at| Piece { number, entry: Arc::clone(&entry), at, len: piece.min(len - at) };
    (0..len).step_by(piece.min(len.max(1))).map(piece_at)
}

impl Piece {
    /// Reads the block. After the last block of an entry, returns its problem, if it has one.
    fn check(&self, says: bool, room: &mut Vec<u8>) -> Result<Option<String>, Error> {
        let entry = &self.entry;
        let done = if let Bytes::Inflated { inflated, .. } = &entry.bytes {
            let mut behind = self.len;
            inflated.each_piece(&mut |piece| {
                behind -= piece.len();
                entry.sum.add(crc32(piece), behind);
            })
        } else {
            bytes::resize(room, self.len)?;
            read(&entry.bytes, self.at, room)
                .map(|()| entry.sum.add(crc32(room), entry.bytes.len() - self.at - self.len))
        };
        match done {
            Ok(()) => {}
            Err(error) if (error.kind(), error.class()) == (ErrorKind::Parse, ErrorClass::Failed) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(error),
        }
        if entry.left.fetch_sub(1, Ordering::AcqRel) > 1 || !says || entry.sum.get() == entry.said {
            return Ok(None);
        }
        let (found, said) = (entry.sum.get(), entry.said);
        Ok(Some(format!("checksum mismatch: computed {found:08x}, the archive has {said:08x}")))
    }
}

impl Checkpoint {
    /// Reads every entry of every archive and compares it with its stored checksum.
    pub(crate) fn check_archives(&self, observer: &mut dyn Observer) -> Result<Vec<Problem>, Error> {
        let wrong = Problems::default();
        // Objects by file and offset; each is in a separate archive.
        let mut objects: HashMap<(&Path, u64), &Object> = HashMap::new();
        for object in &self.objects {
            if let Some((input, start)) = object.archive().and_then(Bytes::place) {
                objects.insert((input.path(), start), object);
            }
        }
        let found = |number: usize, archive: &Archive, problem: Problem| {
            let object = objects.get(&(archive.input.path(), archive.start));
            let object = object.filter(|_| problem.tensor.is_none()).map(|object| object.name.clone());
            wrong.push((number, 0), Problem { object, ..problem });
        };
        let mut room = zip::room();
        let mut archives = self.archives.iter();
        let mut pieces = VecDeque::new();
        let mut first = 0;
        let mut current = None;
        spread(
            threads(),
            || loop {
                if let (Some(piece), Some(archive)) = (pieces.pop_front(), current) {
                    return Ok(Some((archive, piece)));
                }
                let Some(archive) = archives.next() else { return Ok(None) };
                let (more, problems) = archive.pieces(first, &mut room)?;
                for problem in problems {
                    found(first, archive, problem);
                }
                first = more.back().map_or(first, |piece: &Piece| piece.number + 1);
                (pieces, current) = (more, Some(archive));
            },
            Vec::new,
            |room: &mut Vec<u8>, (archive, piece): (&Archive, Piece)| {
                if let Some(what) = piece.check(archive.has_checksums, room)? {
                    let tensor =
                        self.tensors.iter().find(|tensor| tensor.is_in(&archive.input, &piece.entry.place));
                    let problem = archive.problem(&piece.entry.name, tensor.map(Tensor::name), &what);
                    found(piece.number, archive, problem);
                }
                Ok(piece.len as u64)
            },
            &mut |bytes| moved(observer, bytes),
        )?;
        Ok(wrong.in_order())
    }
}

impl Tensor {
    /// Returns `true` if some bytes of the tensor are in this range.
    fn is_in(&self, input: &Arc<Input>, place: &Range<u64>) -> bool {
        let inside = |bytes: &Bytes| {
            bytes.place().is_some_and(|(file, at)| Arc::ptr_eq(file, input) && place.contains(&at))
        };
        self.files().iter().any(inside)
    }
}
