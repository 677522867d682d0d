//! The place in a text where reading failed.

use std::fmt;

use super::ErrorKind;

/// The place in a text that could not be read, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParseError {
    pub(super) kind: ErrorKind,
    offset: usize,
    message: String,
    /// The part of the line around the place, and the column of the place within it.
    window: String,
    column: usize,
}

impl ParseError {
    /// How much of a long line is kept on either side of the place.
    const MARGIN: usize = 60;

    pub(crate) fn new(kind: ErrorKind, text: &str, offset: usize, message: String) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line_start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let before: Vec<char> = text[line_start..offset].chars().rev().take(Self::MARGIN).collect();
        let after = text[offset..].chars().take_while(|c| *c != '\n').take(Self::MARGIN);
        // A control character would move the caret away from its place.
        let window =
            before.iter().rev().copied().chain(after).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { kind, offset, message, window, column: before.len() }
    }

    /// The byte offset of the place in the text.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The line of the text with a caret under the place; of a long line, the part around the place.
    ///
    /// ```
    /// use reshard_layout::{Error, Layout};
    ///
    /// let Err(Error::Parse(error)) = "(4,2:(1,4)".parse::<Layout>() else { panic!() };
    /// assert_eq!(error.offset(), 4);
    /// assert_eq!(error.caret(), "(4,2:(1,4)\n    ^");
    /// ```
    pub fn caret(&self) -> String {
        format!("{}\n{}^", self.window, " ".repeat(self.column))
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)
    }
}
