//! The position in a text where reading failed.

use std::fmt;

use super::{ErrorCode, Excerpt};

/// The position in a text that could not be read, and the text expected there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParseError {
    pub(super) code: ErrorCode,
    offset: usize,
    message: String,
    excerpt: Excerpt,
}

impl ParseError {
    pub(crate) fn new(code: ErrorCode, text: &str, offset: usize, message: String) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        Self { code, offset, message, excerpt: Excerpt::around(text, offset) }
    }

    /// Returns the byte offset of the error in the text.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the line with a caret under the position; of a long line, the part around it.
    ///
    /// ```
    /// use reshard_layout::{Error, Layout};
    ///
    /// let Err(Error::Parse(error)) = "(4,2:(1,4)".parse::<Layout>() else { panic!() };
    /// assert_eq!(error.offset(), 4);
    /// assert_eq!(error.caret(), "(4,2:(1,4)\n    ^");
    /// ```
    pub fn caret(&self) -> String {
        self.excerpt.caret()
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)
    }
}
