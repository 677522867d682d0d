//! Reading an expression.

use super::{Function, MAX_CALLS, Node, Term, Value};
use crate::algebra::Tiler;
use crate::named::{NamedStride, Names};
use crate::notation::Cursor;
use crate::{AxisStride, Error, ErrorCode, IntTuple, Layout, NamedLayout};

/// A cursor that counts the limited quantities.
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
        self.deepen()?;
        let outside = self.depth;
        let mut node = self.operand()?;
        while self.cursor.peek() == Some('(') {
            // The applied expression is evaluated one level deeper.
            self.deepen()?;
            let arguments = self.arguments()?;
            node = Node { place, term: Term::Apply(Box::new(node), arguments) };
        }
        self.depth = outside - 1;
        Ok(node)
    }

    fn deepen(&mut self) -> Result<(), Error> {
        self.cursor.check_depth(self.depth + 1)?;
        self.depth += 1;
        Ok(())
    }

    fn operand(&mut self) -> Result<Node, Error> {
        let place = self.cursor.place();
        match self.cursor.peek() {
            Some(first) if first.is_ascii_alphabetic() => match self.function(place)? {
                None => self.swizzle(place),
                Some(function) => {
                    let arguments = match function.pattern_argument() {
                        Some(before) => self.pattern_arguments(before)?,
                        None => self.arguments()?,
                    };
                    Ok(Node { place, term: Term::Call(function, arguments) })
                }
            },
            Some('<') => {
                self.cursor.expect('<')?;
                Ok(Node { place, term: Term::Tiler(self.tilers()?) })
            }
            Some('(' | '-' | '0'..='9') => self.literal(place),
            Some(_) | None => Err(self.cursor.expected("a function, a layout, a tuple or a tiler")),
        }
    }

    /// Returns the function named next, or none for the `Sw` of a swizzle.
    fn function(&mut self, place: usize) -> Result<Option<Function>, Error> {
        let word = self.cursor.word();
        let function = Function::from_name(word);
        if function.is_none() && word != "Sw" {
            // An identifier may be as long as the text.
            let word: String = word.chars().take(40).collect();
            let message = format!("there is no function named {word}");
            return Err(self.cursor.error_at(place, ErrorCode::Parse, message));
        }
        Ok(function)
    }

    fn swizzle(&mut self, place: usize) -> Result<Node, Error> {
        let swizzle = self.cursor.swizzle_parameters(place)?;
        Ok(Node { place, term: Term::Value(Box::new(Value::Swizzle(swizzle))) })
    }

    /// Returns a layout, a tuple or an integer. `():()`, the layout of no modes, is `1:0`.
    fn literal(&mut self, place: usize) -> Result<Node, Error> {
        let mut ahead = self.cursor.clone();
        if ['(', ')', ':', '(', ')'].into_iter().all(|token| ahead.eat(token)) {
            self.cursor = ahead;
            return Ok(Node { place, term: Term::Value(Box::new(Value::Layout(Layout::unit()))) });
        }
        let tuple = self.cursor.tuple()?;
        let value = if self.cursor.peek() == Some(':') { self.layout_of(tuple)? } else { tuple.into() };
        Ok(Node { place, term: Term::Value(Box::new(value)) })
    }

    /// Reads the rest of a layout.
    ///
    /// It has pairs if there is one for every extent, steps along axes if there are any, else integers.
    fn layout_of(&mut self, shape: IntTuple) -> Result<Value, Error> {
        self.cursor.expect(':')?;
        let (mut ahead, mut names) = (self.cursor.clone(), Names::default());
        if let Ok(pairs) = <(AxisStride, AxisStride)>::read_strides(&mut ahead, &shape, &mut names) {
            self.cursor = ahead;
            return NamedLayout::read(&shape, pairs, names).map(Value::from);
        }
        let (place, mut names) = (self.cursor.place(), Names::default());
        let (steps, profile) = self.cursor.tuple_of(|cursor| names.read(cursor))?;
        if names.is_empty() {
            let stride = IntTuple::from_parts(steps.iter().map(|at| at.step()).collect(), profile);
            return Layout::new(shape, stride).map(Value::Layout);
        }
        self.cursor.check_nested(place, &shape, &profile)?;
        NamedLayout::read(&shape, steps, names).map(Value::from)
    }

    fn arguments(&mut self) -> Result<Vec<Node>, Error> {
        let place = self.cursor.place();
        self.calls += 1;
        if self.calls > MAX_CALLS {
            let message = format!("there are more than {MAX_CALLS} calls");
            return Err(self.cursor.error_at(place, ErrorCode::TooLarge, message));
        }
        self.cursor.expect('(')?;
        if self.cursor.eat(')') {
            return Ok(Vec::new());
        }
        self.list(')')
    }

    /// Reads `before` expressions and a pattern.
    fn pattern_arguments(&mut self, before: usize) -> Result<Vec<Node>, Error> {
        self.cursor.expect('(')?;
        let mut nodes = Vec::with_capacity(before + 1);
        for _ in 0..before {
            nodes.push(self.expression()?);
            self.cursor.expect(',')?;
        }
        let place = self.cursor.place();
        let pattern = Node { place, term: Term::Value(Box::new(Value::Pattern(self.cursor.pattern(0)?))) };
        self.cursor.expect(')')?;
        nodes.push(pattern);
        Ok(nodes)
    }

    /// Returns the parts of a tiler, of which `_` is one, and its end.
    fn tilers(&mut self) -> Result<Vec<Node>, Error> {
        let mut nodes = Vec::new();
        loop {
            let place = self.cursor.place();
            nodes.push(if self.cursor.eat('_') {
                Node { place, term: Term::Value(Box::new(Value::Tiler(Tiler::Any))) }
            } else {
                self.expression()?
            });
            if self.cursor.eat('>') {
                return Ok(nodes);
            }
            if !self.cursor.eat(',') {
                return Err(self.cursor.expected("',' or '>'"));
            }
        }
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
