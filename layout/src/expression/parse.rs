//! Reading an expression.

use super::{Function, MAX_CALLS, Node, Term};
use crate::notation::Cursor;
use crate::profile::MAX_DEPTH;
use crate::{Error, ErrorKind};

/// A cursor that counts what is bounded.
struct Reader<'a> {
    cursor: Cursor<'a>,
    depth: usize,
    calls: usize,
}

/// Reads the whole text as one expression.
pub(super) fn read(text: &str) -> Result<Node, Error> {
    let mut reader = Reader { cursor: Cursor::new(text), depth: 0, calls: 0 };
    let node = reader.expression()?;
    reader.cursor.finish()?;
    Ok(node)
}

impl Reader<'_> {
    fn expression(&mut self) -> Result<Node, Error> {
        let place = self.cursor.place();
        if self.depth == MAX_DEPTH {
            let message = format!("nesting is deeper than {MAX_DEPTH}");
            return Err(self.cursor.error_at(place, ErrorKind::TooDeep, message));
        }
        self.depth += 1;
        let mut node = self.operand()?;
        while self.cursor.peek() == Some('(') {
            let arguments = self.arguments()?;
            node = Node { place, term: Term::Apply(Box::new(node), arguments) };
        }
        self.depth -= 1;
        Ok(node)
    }

    fn operand(&mut self) -> Result<Node, Error> {
        let place = self.cursor.place();
        let term = match self.cursor.peek() {
            Some(first) if first.is_ascii_alphabetic() => {
                let word = self.cursor.word();
                if word == "Sw" {
                    let swizzle = self.cursor.swizzle_parameters(place)?;
                    return Ok(Node { place, term: Term::Swizzle(swizzle) });
                }
                let Some(function) = Function::from_name(word) else {
                    // A word may be as long as the text.
                    let word: String = word.chars().take(40).collect();
                    let message = format!("there is no function named {word}");
                    return Err(self.cursor.error_at(place, ErrorKind::Parse, message));
                };
                if matches!(function, Function::Slice | Function::Dice) {
                    Term::Call(function, self.pattern_arguments()?)
                } else {
                    Term::Call(function, self.arguments()?)
                }
            }
            Some('<') => {
                self.cursor.expect('<')?;
                Term::Tiler(self.list('>')?)
            }
            Some('(' | '-' | '0'..='9') => {
                let tuple = self.cursor.tuple()?;
                if self.cursor.peek() == Some(':') {
                    Term::Layout(self.cursor.layout_of(tuple)?)
                } else {
                    Term::Tuple(tuple)
                }
            }
            Some(_) | None => return Err(self.cursor.expected("a function, a layout, a tuple or a tiler")),
        };
        Ok(Node { place, term })
    }

    fn arguments(&mut self) -> Result<Vec<Node>, Error> {
        let place = self.cursor.place();
        self.calls += 1;
        if self.calls > MAX_CALLS {
            let message = format!("there are more than {MAX_CALLS} calls");
            return Err(self.cursor.error_at(place, ErrorKind::TooLarge, message));
        }
        self.cursor.expect('(')?;
        if self.cursor.eat(')') {
            return Ok(Vec::new());
        }
        self.list(')')
    }

    /// `(expression, pattern)`.
    fn pattern_arguments(&mut self) -> Result<Vec<Node>, Error> {
        self.cursor.expect('(')?;
        let layout = self.expression()?;
        self.cursor.expect(',')?;
        let place = self.cursor.place();
        let pattern = Node { place, term: Term::Pattern(self.cursor.pattern(0)?) };
        self.cursor.expect(')')?;
        Ok(vec![layout, pattern])
    }

    fn list(&mut self, close: char) -> Result<Vec<Node>, Error> {
        let mut nodes = vec![self.expression()?];
        while self.cursor.eat(',') {
            nodes.push(self.expression()?);
        }
        if !self.cursor.eat(close) {
            return Err(self.cursor.expected(&format!("',' or '{close}'")));
        }
        Ok(nodes)
    }
}
