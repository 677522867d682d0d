//! A reader over one line of text that knows its position, so that errors can point at it.

use reshard_layout::Layout;

use crate::{Error, GroupPattern};

/// A position in a text being read as `what`.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    what: &'static str,
    input: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the start of a text; `what` names the notation in errors.
    pub fn new(what: &'static str, input: &'a str) -> Cursor<'a> {
        Cursor { what, input, at: 0 }
    }

    /// Returns the whole text.
    pub fn input(&self) -> &'a str {
        self.input
    }

    /// Returns the start of the next token, in bytes.
    pub fn here(&mut self) -> usize {
        self.rest();
        self.at
    }

    /// Returns the remaining text, without leading blanks.
    pub fn rest(&mut self) -> &'a str {
        let rest = &self.input[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    /// Returns `true` if only blanks remain.
    pub fn is_done(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Takes `token` if it comes next.
    pub fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Takes `token` or fails.
    pub fn expect(&mut self, token: &str) -> Result<(), Error> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("{token:?}"))) }
    }

    /// Returns the longest run of characters of which each satisfies `ok`; may be empty.
    pub fn take_while(&mut self, ok: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !ok(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Returns a whole number.
    pub fn number(&mut self, expected: &str) -> Result<usize, Error> {
        let start = self.here();
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.error_at(start, expected));
        }
        match digits.parse::<i64>() {
            Ok(n) => Ok(n as usize),
            Err(_) => Err(self.error_at(start, "a number below 2^63")),
        }
    }

    /// Returns the text up to the bracket that closes an open one, trimmed.
    ///
    /// If no bracket does, returns all of the rest.
    pub(crate) fn up_to_bracket(&mut self) -> &'a str {
        let rest = self.rest();
        let mut depth = 0usize;
        let closes = |(_, c): &(usize, char)| match c {
            '(' | '[' | '{' => {
                depth += 1;
                false
            }
            ')' | ']' | '}' if depth > 0 => {
                depth -= 1;
                false
            }
            ')' | ']' | '}' => true,
            _ => false,
        };
        let end = rest.char_indices().find(closes).map_or(rest.len(), |(i, _)| i);
        self.at += end;
        rest[..end].trim_end()
    }

    /// Returns a layout's text up to (not including) the first of `ends` outside parentheses.
    pub fn until_outside_parens(&mut self, ends: &[char]) -> &'a str {
        let rest = self.rest();
        let mut depth = 0usize;
        for (i, c) in rest.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                c if depth == 0 && ends.contains(&c) => {
                    self.at += i;
                    return rest[..i].trim_end();
                }
                _ => {}
            }
        }
        self.at = self.input.len();
        rest.trim_end()
    }

    /// Returns a layout, up to the first of `ends` outside parentheses.
    pub fn layout(&mut self, ends: &[char]) -> Result<Layout, Error> {
        let at = self.here();
        let text = self.until_outside_parens(ends);
        text.parse::<Layout>().map_err(|e| self.error_at(at, format!("a layout such as 2:4 ({e})")))
    }

    /// Returns a group's pattern, up to the first of `ends` outside parentheses.
    pub fn group(&mut self, ends: &[char]) -> Result<GroupPattern, Error> {
        GroupPattern::new(&self.layout(ends)?)
    }

    /// Fails unless everything was read.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.is_done() { Ok(()) } else { Err(self.error("the end")) }
    }

    /// Returns an error at the next token.
    pub fn error(&mut self, expected: impl Into<String>) -> Error {
        let at = self.here();
        self.error_at(at, expected)
    }

    /// Returns an error at an earlier position.
    pub fn error_at(&self, at: usize, expected: impl Into<String>) -> Error {
        Error::Parse { what: self.what, input: self.input.to_owned(), at, expected: expected.into() }
    }
}
