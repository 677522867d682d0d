//! Lines of a batch, with a limit: a longer line is skipped, so that no input fills the memory.

use std::io::{self, BufRead, Read};

/// The longest line of a batch: 16 MiB.
pub(crate) const LONGEST: usize = 16 << 20;

/// The result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line, which has been read.
    Line,
    /// A line of more bytes than [`LONGEST`], which has been skipped.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads one line into `line`, replacing its contents.
pub(crate) fn next<R: BufRead + ?Sized>(input: &mut R, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    // One byte more distinguishes a line that is too long from one that ends at the limit.
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

/// The message for a skipped line.
pub(crate) fn too_long() -> String {
    format!("a line is longer than {LONGEST} bytes")
}
