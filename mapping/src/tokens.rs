//! Splits the text of a rule into tokens.

use crate::error::{Error, ErrorKind};

/// The kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name, a number or an identifier.
    Word,
    /// `'..'`, without the quotes.
    Quoted,
    /// `[..]`, without the brackets.
    Ranges,
    /// One of `| + ( ) ,`.
    Sign,
    /// The end of the rule.
    End,
}

/// A token and the column of its first character, from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    pub(crate) column: usize,
}

/// Returns the tokens of a rule, with one of the kind `End` at the end.
pub(crate) fn tokens(rule: &str) -> Result<Vec<Token<'_>>, Error> {
    let (mut found, mut rest, mut column) = (Vec::new(), rest_of(rule), 1);
    column += rule.chars().count() - rest.chars().count();
    while let Some(c) = rest.chars().next() {
        let closed = |close: char| {
            rest[1..].find(close).map(|end| (&rest[1..=end], end + 2)).ok_or_else(|| {
                let message = format!("`{c}` (column {column}) is not closed; add `{close}`");
                Error::new(ErrorKind::Syntax, message)
            })
        };
        let (kind, text, length) = match c {
            '\'' => closed('\'').map(|(text, length)| (TokenKind::Quoted, text, length))?,
            '[' => closed(']').map(|(text, length)| (TokenKind::Ranges, text, length))?,
            ']' => {
                let message = format!("`]` (column {column}) has no `[`; remove it");
                return Err(Error::new(ErrorKind::Syntax, message));
            }
            '|' | '+' | '(' | ')' | ',' => (TokenKind::Sign, &rest[..1], 1),
            _ => {
                let length = rest.find(ends_word).unwrap_or(rest.len());
                (TokenKind::Word, &rest[..length], length)
            }
        };
        found.push(Token { kind, text, column });
        let after = rest_of(&rest[length..]);
        column += rest[..rest.len() - after.len()].chars().count();
        rest = after;
    }
    found.push(Token { kind: TokenKind::End, text: "", column });
    Ok(found)
}

fn rest_of(text: &str) -> &str {
    text.trim_start()
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '|' | '+' | '(' | ')' | ',' | '\'' | '[' | ']')
}
