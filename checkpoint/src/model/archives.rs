//! The zip archives of a checkpoint.
//!
//! The directory of an archive stores the CRC-32 of every entry. PyTorch can be configured to compute none
//! (`torch.serialization.set_crc32_options(False)`); it then stores 0 for all entries. Every PyTorch archive
//! contains some constant entries, such as `little` in `byteorder`, whose checksum is not 0. So an archive
//! with only zeros has no checksums; in any other archive a 0 is an ordinary checksum.

use std::sync::Arc;

use crate::bytes::Input;
use crate::bytes::peek::Peek;
use crate::bytes::zip::Zip;
use crate::error::{Error, ErrorClass};

/// The location of an archive in its file.
#[derive(Clone)]
pub(crate) struct Archive {
    pub(crate) input: Arc<Input>,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// `true` if its directory stores checksums.
    pub(crate) has_checksums: bool,
    pub(crate) form: Form,
    /// `true` if it is an entry that is not a tensor.
    pub(crate) is_object: bool,
}

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Zip,
    /// A pickle without an archive around it, which is read to its end and has no checksum.
    Pickle,
}

/// The first byte of a pickle.
const PICKLE: u8 = 0x80;

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
}

/// Sorts archives by file and offset and removes duplicates.
///
/// The order does not depend on the order in which threads opened them.
pub(crate) fn in_order(mut archives: Vec<Archive>) -> Vec<Archive> {
    archives.sort_by(|a, b| (a.input.path(), a.start).cmp(&(b.input.path(), b.start)));
    archives.dedup_by(|a, b| (a.input.path(), a.start, a.len) == (b.input.path(), b.start, b.len));
    archives
}
