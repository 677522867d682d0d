//! The zip archives of a checkpoint, and the check of their entries against the stored checksums.
//!
//! The directory of an archive stores the CRC-32 of every entry. PyTorch can be configured to compute none
//! (`torch.serialization.set_crc32_options(False)`); it then stores 0 for all entries. Every PyTorch archive
//! contains some constant entries, such as `little` in `byteorder`, whose checksum is not 0. So an archive
//! with only zeros has no checksums; in any other archive a 0 is an ordinary checksum.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bytes::{self, Bytes, Input};
use super::checkpoint::{Checkpoint, Tensor};
use super::checksum::{Sum32, crc32};
use super::error::{Error, ErrorClass, ErrorKind};
use super::integrity::{PIECE, Problem, Problems};
use super::objects::Object;
use super::observer::{Observer, moved};
use super::peek::Peek;
use super::slab_read::read;
use super::spread::{spread, threads};
use super::zip::{self, Zip};
use crate::shown::Shown;

/// The location of an archive in its file.
#[derive(Clone)]
pub(crate) struct Archive {
    input: Arc<Input>,
    start: u64,
    len: u64,
    /// `true` if its directory stores checksums.
    pub(crate) has_checksums: bool,
    form: Form,
    /// `true` if it is an entry that is not a tensor.
    pub(crate) is_object: bool,
}

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Zip,
    /// A pickle without an archive around it, which is read to its end and has no checksum.
    Pickle,
}

/// The first byte of a pickle.
const PICKLE: u8 = 0x80;

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
    /// Returns the location of an open archive.
    pub(crate) fn of(zip: &Zip<'_>) -> Self {
        let place = zip.place();
        Self {
            input: Arc::clone(place.input),
            start: place.start(),
            len: place.len(),
            has_checksums: zip.has_checksums(),
            form: Form::Zip,
            is_object: false,
        }
    }

    /// Returns the archive of an object.
    ///
    /// Objects are opened only here: a damaged one can be listed and copied, and `verify` reports it.
    pub(crate) fn of_object(place: Peek<'_>, room: &mut [u8]) -> Result<Self, Error> {
        let of_form = |form: Form, has_checksums: bool| Self {
            input: Arc::clone(place.input),
            start: place.start(),
            len: place.len(),
            has_checksums,
            form,
            is_object: true,
        };
        match Zip::open(place, room) {
            Ok(zip) => Ok(Self { is_object: true, ..Self::of(&zip) }),
            Err(error) if error.class() != ErrorClass::Refused => Err(error),
            Err(_) => {
                let head = place.part(0, place.len().min(1)).map_or(Ok(Vec::new()), |head| head.read())?;
                let is_pickle = head == [PICKLE];
                Ok(if is_pickle { of_form(Form::Pickle, false) } else { of_form(Form::Zip, true) })
            }
        }
    }

    pub(crate) fn byte_len(&self) -> u64 {
        self.len
    }

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

/// Sorts archives by file and offset and removes duplicates.
///
/// The order does not depend on the order in which threads opened them.
pub(crate) fn in_order(mut archives: Vec<Archive>) -> Vec<Archive> {
    archives.sort_by(|a, b| (a.input.path(), a.start).cmp(&(b.input.path(), b.start)));
    archives.dedup_by(|a, b| (a.input.path(), a.start, a.len) == (b.input.path(), b.start, b.len));
    archives
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
