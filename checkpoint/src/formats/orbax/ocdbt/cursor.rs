//! A position in decoded bytes, from which numbers and ranges are read.

use crate::error::Error;

/// The rest of some bytes.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads this number of bytes.
    pub(crate) fn take(&mut self, len: u64) -> Result<&'a [u8], Error> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (taken, rest) = split.ok_or_else(|| {
            Error::malformed(
                "orbax",
                format!("{len} bytes are required, but only {} remain", self.rest.len()),
            )
        })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        let (byte, rest) = self.rest.split_first().ok_or_else(short)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// Reads a little-endian integer of `N` bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Reads an unsigned LEB128 integer.
    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::malformed("orbax", "a varint exceeds 64 bits"))
    }

    /// Reads an integer of at most `most`; `name` is for the message.
    pub(crate) fn varint_to(&mut self, most: u64, name: &str) -> Result<u64, Error> {
        let value = self.varint()?;
        if value > most {
            return Err(Error::malformed(
                "orbax",
                format!("{name} is {value}, but at most {most} is allowed"),
            ));
        }
        Ok(value)
    }

    /// Reads the number of elements of an array that takes at least `each` bytes per element.
    pub(crate) fn count(&mut self, most: usize, each: usize, name: &str) -> Result<usize, Error> {
        let count = self.varint_to(most as u64, name)? as usize;
        // Checked before anything is allocated for them.
        if count.saturating_mul(each) > self.remaining() {
            return Err(Error::malformed(
                "orbax",
                format!("{name} is {count}, but only {} bytes remain", self.remaining()),
            ));
        }
        Ok(count)
    }

    /// Reads one integer per element.
    pub(crate) fn column(&mut self, count: usize, most: u64, name: &str) -> Result<Vec<u64>, Error> {
        (0..count).map(|_| self.varint_to(most, name)).collect()
    }

    /// Returns an error unless all bytes were read.
    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Error::malformed("orbax", format!("{} bytes follow its last field", self.rest.len())))
    }
}

fn short() -> Error {
    Error::malformed("orbax", "it ends in the middle of a field")
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn varints_are_read_up_to_64_bits() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varint().ok();
        assert_eq!(read(&[0]), Some(0));
        assert_eq!(read(&[0x80, 0x01]), Some(128));
        assert_eq!(read(&[0xff; 9]), None);
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Some(u64::MAX));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(read(&[0x80; 11]), None);
    }

    #[test]
    fn counts_are_bounded_by_the_remaining_bytes() {
        assert_eq!(Cursor::new(&[2, 0, 0]).count(9, 1, "n").unwrap(), 2);
        Cursor::new(&[3, 0, 0]).count(9, 1, "n").unwrap_err();
        Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).count(usize::MAX, 8, "n").unwrap_err();
    }
}
