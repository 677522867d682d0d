//! Parses rules by recursive descent.

use crate::axes::Axes;
use crate::dtype;
use crate::error::{Error, ErrorKind, shown};
use crate::expr::{Cat, Expr, Range, Share};
use crate::name::Name;
use crate::number::Number;
use crate::tokens::{Token, TokenKind, tokens};

/// The deepest nesting of calls.
const MOST_NESTED: usize = 32;

/// The calls of the grammar, for messages.
const CALLS: &str = "cast, cat, pad, rearrange, stack, unstack";

/// A side of a rule with the `on` and `by` at its end.
struct Side {
    expr: Expr,
    dim: Option<Number>,
    blocks: Option<Number>,
}

/// Parses `SIDE = SIDE` to its left and right side.
pub(crate) fn rule(text: &str) -> Result<(Expr, Expr), Error> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let left = parser.side()?;
    parser.expect_equals()?;
    if parser.peek().text == "unstack" && parser.peek_after().text == "(" {
        return parser.unstacked(left);
    }
    let right = parser.side()?;
    parser.end()?;
    sides(left, right)
}

/// Assigns the `on` and `by` at the end of a rule to the concatenation on the right, or else on the left.
fn sides(left: Side, right: Side) -> Result<(Expr, Expr), Error> {
    let bad = |why: &str| Err(Error::new(ErrorKind::Syntax, why));
    let left_has_own = left.dim.is_some() || left.blocks.is_some();
    let Expr::Cat(mut cat) = left.expr else {
        if left_has_own || right.dim.is_some() || right.blocks.is_some() {
            return bad(
                "`on` and `by` need several parts on one side; within a call, write `on` before its )",
            );
        }
        return Ok((left.expr, right.expr));
    };
    if matches!(right.expr, Expr::Cat(_)) {
        if right.dim.is_some() || right.blocks.is_some() || left_has_own {
            return bad("`on` and `by` after cat(..) have no effect; write them within cat(..)");
        }
    } else {
        if left_has_own || cat.dim.is_some() || cat.blocks.is_some() {
            return bad("`on` and `by` of the left side are at the end of the rule; write them there");
        }
        if cat.local && right.blocks.is_some() {
            return bad("blocks are of +, and | has none; remove `by`");
        }
        (cat.dim, cat.blocks) = (right.dim, right.blocks);
    }
    Ok((Expr::Cat(cat), right.expr))
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn peek_after(&self) -> Token<'a> {
        self.tokens[(self.next + 1).min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Takes the next token if it is this sign.
    fn takes(&mut self, sign: &str) -> bool {
        let token = self.peek();
        let found = token.kind == TokenKind::Sign && token.text == sign;
        self.next += usize::from(found);
        found
    }

    fn unexpected<T>(token: Token<'_>, expected: &str) -> Result<T, Error> {
        let found = match token.kind {
            TokenKind::End => "the rule ends".to_owned(),
            TokenKind::Quoted => format!("found `'{}'`", shown(token.text)),
            TokenKind::Ranges => format!("found `[{}]`", shown(token.text)),
            TokenKind::Word | TokenKind::Sign => format!("found `{}`", shown(token.text)),
        };
        let message = format!("{found} (column {}), expected {expected}", token.column);
        Err(Error::new(ErrorKind::Syntax, message))
    }

    fn expect(&mut self, sign: &str) -> Result<(), Error> {
        if self.takes(sign) { Ok(()) } else { Self::unexpected(self.peek(), &format!("`{sign}`")) }
    }

    fn expect_equals(&mut self) -> Result<(), Error> {
        let token = self.take();
        if token.kind == TokenKind::Word && token.text == "=" {
            return Ok(());
        }
        Self::unexpected(token, "` = ` between the side that is made and the side that exists")
    }

    fn end(&mut self) -> Result<(), Error> {
        let token = self.peek();
        if token.kind == TokenKind::End { Ok(()) } else { Self::unexpected(token, "the end of the rule") }
    }

    /// Parses `unstack(PIECE on DIM)` as the right side: `B = unstack(A)` is `stack(B) = A`.
    fn unstacked(&mut self, left: Side) -> Result<(Expr, Expr), Error> {
        self.next += 2;
        let mut dim = None;
        let inner = self.piece()?;
        self.on(&mut dim)?;
        self.expect(")")?;
        self.end()?;
        if left.dim.is_some() || left.blocks.is_some() || !matches!(left.expr, Expr::Name(_)) {
            let message = "only a name is made by unstack(..); write stack(..) on the left side";
            return Err(Error::new(ErrorKind::Syntax, message));
        }
        Ok((Expr::Stack { inner: Box::new(left.expr), dim: without(dim, 0) }, inner))
    }

    /// Parses parts with `+` or `|` between them, then `on` and `by`.
    fn side(&mut self) -> Result<Side, Error> {
        let mut parts = vec![self.share()?];
        let mut sign: Option<&str> = None;
        loop {
            let token = self.peek();
            if token.kind != TokenKind::Sign || !matches!(token.text, "+" | "|") {
                break;
            }
            if sign.is_some_and(|sign| sign != token.text) {
                let message = format!(
                    "a side has both + and | (column {}); write one of them within cat(..)",
                    token.column
                );
                return Err(Error::new(ErrorKind::Syntax, message));
            }
            sign = Some(token.text);
            self.next += 1;
            parts.push(self.share()?);
        }
        let (mut dim, mut blocks) = (None, None);
        while matches!(self.peek().text, "on" | "by") && self.peek().kind == TokenKind::Word {
            let key = self.take();
            let number = self.number("a number")?;
            if key.text == "by" && number == Number::Literal(0) {
                return Self::unexpected(key, "at least one block");
            }
            let given = if key.text == "on" { &mut dim } else { &mut blocks };
            if given.replace(number).is_some() {
                return Self::unexpected(key, "it at most once");
            }
        }
        let local = sign == Some("|");
        if local && blocks.is_some() {
            return Err(Error::new(ErrorKind::Syntax, "blocks are of +, and | has none; remove `by`"));
        }
        let (dim, blocks) = (without(dim, 0), without(blocks, 1));
        if sign.is_none()
            && let [Share { shares: None, .. }] = &parts[..]
            && let Some(part) = parts.pop()
        {
            return Ok(Side { expr: part.expr, dim, blocks });
        }
        Ok(Side { expr: Expr::Cat(Cat { parts, dim, blocks, local }), dim: None, blocks: None })
    }

    /// Parses `[SHARES] PIECE`.
    fn share(&mut self) -> Result<Share, Error> {
        let token = self.peek();
        let mut shares = None;
        if token.kind == TokenKind::Word
            && let Some(number) = Number::parse(token.text)?
        {
            if number == Number::Literal(0) {
                return Self::unexpected(token, "at least one share");
            }
            self.next += 1;
            shares = Some(number);
        }
        Ok(Share { shares, expr: self.piece()? })
    }

    fn piece(&mut self) -> Result<Expr, Error> {
        let token = self.take();
        if token.kind != TokenKind::Word || token.text == "=" {
            return Self::unexpected(token, &format!("a name or one of: {CALLS}"));
        }
        let expr = if self.takes("(") {
            self.depth += 1;
            if self.depth > MOST_NESTED {
                let message = format!("calls are nested more than {MOST_NESTED} deep; use two mappings");
                return Err(Error::new(ErrorKind::TooComplex, message));
            }
            let expr = self.call(token)?;
            self.depth -= 1;
            expr
        } else {
            Expr::Name(Name::parse(token.text)?)
        };
        let mut ranges = Vec::new();
        while self.peek().kind == TokenKind::Ranges {
            let group = self.ranges()?;
            if !group.is_empty() {
                ranges.push(group);
            }
        }
        Ok(if ranges.is_empty() { expr } else { Expr::Slice { inner: Box::new(expr), ranges } })
    }

    /// Parses the arguments of a call and its `)`.
    fn call(&mut self, name: Token<'a>) -> Result<Expr, Error> {
        let mut dim = None;
        let expr = match name.text {
            "cat" => {
                let side = self.side()?;
                if side.dim.is_some() || side.blocks.is_some() || !matches!(side.expr, Expr::Cat(_)) {
                    return Self::unexpected(self.peek(), "several parts within cat(..)");
                }
                side.expr
            }
            "stack" => {
                let inner = Box::new(self.piece()?);
                self.on(&mut dim)?;
                Expr::Stack { inner, dim: without(dim, 0) }
            }
            "pad" => {
                let inner = Box::new(self.piece()?);
                self.on(&mut dim)?;
                self.expect(",")?;
                let size = self.number("the extent after padding")?;
                self.on(&mut dim)?;
                Expr::Pad { inner, size, dim: without(dim, 0) }
            }
            "rearrange" => {
                let inner = Box::new(self.piece()?);
                self.expect(",")?;
                let pattern = self.take();
                if pattern.kind != TokenKind::Quoted {
                    return Self::unexpected(pattern, "a pattern such as 'a b -> b a'");
                }
                let mut sizes = Vec::new();
                while self.takes(",") {
                    sizes.push(self.size()?);
                }
                Expr::Rearrange { inner, axes: Axes::parse(pattern.text, sizes)? }
            }
            "cast" => {
                let inner = Box::new(self.piece()?);
                self.expect(",")?;
                let to = self.take();
                if to.kind != TokenKind::Word {
                    return Self::unexpected(to, "one of: f16, bf16, f32, f64");
                }
                Expr::Cast { inner, to: dtype::float(to.text)? }
            }
            "unstack" => {
                let expected = "it only as the whole right side: NAME = unstack(..)";
                return Self::unexpected(name, expected);
            }
            _ => return Self::unexpected(name, &format!("one of: {CALLS}")),
        };
        if self.peek().kind == TokenKind::Sign && matches!(self.peek().text, "+" | "|") {
            return Self::unexpected(self.peek(), "`)`; several parts are one within cat(..)");
        }
        self.expect(")")?;
        Ok(expr)
    }

    fn on(&mut self, dim: &mut Option<Number>) -> Result<(), Error> {
        let token = self.peek();
        if token.kind == TokenKind::Word && token.text == "on" {
            self.next += 1;
            if dim.replace(self.number("a dim")?).is_some() {
                return Self::unexpected(token, "`on` at most once");
            }
        }
        Ok(())
    }

    fn number(&mut self, expected: &str) -> Result<Number, Error> {
        let token = self.take();
        let number = if token.kind == TokenKind::Word { Number::parse(token.text)? } else { None };
        number.map_or_else(|| Self::unexpected(token, expected), Ok)
    }

    /// Parses `AXIS=N`.
    fn size(&mut self) -> Result<(String, Number), Error> {
        let token = self.take();
        if token.kind == TokenKind::Word
            && let Some((axis, number)) = token.text.split_once('=')
            && let Some(number) = Number::parse(number)?
        {
            return Ok((axis.to_owned(), number));
        }
        Self::unexpected(token, "the extent of an axis such as h=32")
    }

    /// Parses `[A:B, C:D]`; dims at the end that are taken whole are left out.
    fn ranges(&mut self) -> Result<Vec<Option<Range>>, Error> {
        let token = self.take();
        let mut ranges = Vec::new();
        for text in token.text.split(',') {
            let text = text.trim();
            let (start, stop) = match text.split_once(':') {
                Some((start, stop)) => (start.trim(), stop.trim()),
                None if text.is_empty() => ("", ""),
                None => return Self::unexpected(token, "ranges such as [0:4] or [:, 2:]"),
            };
            let bound = |text: &str| {
                if text.is_empty() {
                    return Ok(None);
                }
                let number = Number::parse(text)?;
                number.map_or_else(
                    || Self::unexpected(token, "ranges such as [0:4] or [:, 2:]"),
                    |n| Ok(Some(n)),
                )
            };
            let (start, stop) = (bound(start)?, bound(stop)?);
            ranges.push(match (start, stop) {
                (None, None) => None,
                (start, stop) => Some(Range { start: start.unwrap_or(Number::Literal(0)), stop }),
            });
        }
        while ranges.last() == Some(&None) {
            ranges.pop();
        }
        Ok(ranges)
    }
}

/// Returns the number, or `None` if it is the default.
fn without(number: Option<Number>, default: usize) -> Option<Number> {
    number.filter(|number| *number != Number::Literal(default))
}
