//! Lines of a batch, up to a limit: what is longer is skipped, so that no input fills the memory.

use std::io::{self, BufRead, Read};

/// The longest line of a batch: 16 MiB.
pub(crate) const LONGEST: usize = 16 << 20;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line, which has been read.
    Line,
    /// A line of more bytes than [`LONGEST`], which has been skipped.
    TooLong,
    /// Nothing any more.
    End,
}

/// Reads one line into `line`, in place of what is there.
pub(crate) fn next<R: BufRead + ?Sized>(input: &mut R, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    // One byte more tells a line that is too long from one that ends there.
    if Read::take(&mut *input, LONGEST as u64 + 1).read_until(b'\n', line)? == 0 {
        return Ok(Next::End);
    }
    if line.len() <= LONGEST || line.last() == Some(&b'\n') {
        return Ok(Next::Line);
    }
    line.clear();
    input.skip_until(b'\n')?;
    Ok(Next::TooLong)
}

/// The sentence about a line that was skipped.
pub(crate) fn too_long() -> String {
    format!("a line is longer than {LONGEST} bytes")
}
