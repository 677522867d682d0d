//! The notation: tuples `(4,(2,3))` and layouts `(4,(2,3)):(2,(1,8))`, written and read.
//!
//! ```text
//! layout = tuple ':' tuple
//! tuple  = leaf | '(' tuple ',' ')' | '(' tuple (',' tuple)+ [','] ')' | '(' tuple ')'
//! leaf   = integer                                      of a shape, and of strides in memory or in ranks
//!        | integer | integer '@' axis                   of strides on a mesh
//!        | '(' leaf ',' leaf ')'                        of pairs of strides, nested exactly like the shape
//! axis   = integer | name                               names in expressions, and for [`Named`](crate::Named)
//! name   = ( letter | '_' ) { letter | digit | '_' | '-' | '.' | '/' }
//! point  = integer [ '@' axis ] { '+' integer [ '@' axis ] }
//! ```
//!
//! As in Python, `(4,)` is the tuple of one and `(4)` is just 4. White space is allowed between the parts.
//! Reading is not recursive, so no text exhausts the stack.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{ErrorCode, ParseError};
use crate::modes::Mode;
use crate::profile::{MAX_DEPTH, MAX_LEAVES, Nest, Nests, Profile};
use crate::stride::{AxisStride, ReadStride, Stride};
use crate::{Error, IntTuple, Layout};

/// A position in a text that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the byte offset of the next token.
    #[inline]
    pub(crate) fn place(&mut self) -> usize {
        // Nearly always a visible ASCII character comes next.
        if !self.text.as_bytes().get(self.at).is_some_and(u8::is_ascii_graphic) {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
        }
        self.at
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns the next character that is not white space, which is not consumed.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<char> {
        let place = self.place();
        match self.text.as_bytes().get(place) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            Some(_) | None => self.rest().chars().next(),
        }
    }

    /// Consumes `token` if it comes next.
    pub(crate) fn eat(&mut self, token: char) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.at += token.len_utf8();
        }
        found
    }

    pub(crate) fn expect(&mut self, token: char) -> Result<(), Error> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// Consumes the longest word of letters, digits and underscores.
    pub(crate) fn word(&mut self) -> &'a str {
        self.place();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Returns the error that something else was expected here.
    pub(crate) fn expected(&mut self, what: &str) -> Error {
        let found = match self.peek() {
            None => "the text ends".to_owned(),
            Some(found) => format!("found {found:?}"),
        };
        self.error_at(self.at, ErrorCode::Parse, format!("expected {what}, {found}"))
    }

    /// Returns the error that something else was expected at an earlier position.
    pub(crate) fn expected_at(&self, place: usize, what: &str) -> Error {
        self.error_at(place, ErrorCode::Parse, format!("expected {what}"))
    }

    /// Returns the error that the number at a position is too large.
    pub(crate) fn overflow_at(&self, place: usize) -> Error {
        self.error_at(place, ErrorCode::Overflow, "the integer does not fit in 64 bits".to_owned())
    }

    pub(crate) fn error_at(&self, offset: usize, code: ErrorCode, message: String) -> Error {
        Error::Parse(Box::new(ParseError::new(code, self.text, offset, message)))
    }

    /// Fails if parentheses nest deeper than [`MAX_DEPTH`].
    ///
    /// Recursive readers then stay within their stack.
    pub(crate) fn check_depth(&mut self, depth: usize) -> Result<(), Error> {
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        let place = self.place();
        Err(self.error_at(place, ErrorCode::TooDeep, format!("nesting is deeper than {MAX_DEPTH}")))
    }

    pub(crate) fn integer(&mut self) -> Result<i64, Error> {
        let start = self.place();
        let bytes = self.text.as_bytes();
        let negative = bytes.get(start) == Some(&b'-');
        let first = start + usize::from(negative);
        // Counted downwards, because there is one more negative number than there are positive ones.
        let (mut at, mut value) = (first, Some(0_i64));
        while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
            let digit = i64::from(digit - b'0');
            value = value.and_then(|value| value.checked_mul(10)).and_then(|value| value.checked_sub(digit));
            at += 1;
        }
        if at == first {
            return Err(self.expected("an integer"));
        }
        self.at = at;
        let value = if negative { value } else { value.and_then(i64::checked_neg) };
        value.ok_or_else(|| self.overflow_at(start))
    }

    pub(crate) fn tuple(&mut self) -> Result<IntTuple, Error> {
        let (values, profile) = self.tuple_of(Self::integer)?;
        Ok(IntTuple::from_parts(values, profile))
    }

    /// Returns a tuple of leaves that do not begin with a parenthesis.
    pub(crate) fn tuple_of<T>(
        &mut self,
        mut leaf: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<(SmallVec<[T; 8]>, Profile), Error> {
        // For each open parenthesis: the first leaf inside, and whether there was a comma.
        let mut open: SmallVec<[(usize, bool); 8]> = SmallVec::new();
        let mut values: SmallVec<[T; 8]> = SmallVec::new();
        let mut nests = Nests::new();
        let mut pending = 0_u8;
        loop {
            while self.peek() == Some('(') {
                self.check_depth(open.len() + 1)?;
                self.at += 1;
                open.push((values.len(), false));
                pending += 1;
            }
            if values.len() == MAX_LEAVES {
                let message = format!("there are more than {MAX_LEAVES} leaves");
                return Err(self.error_at(self.at, ErrorCode::TooLarge, message));
            }
            values.push(leaf(self)?);
            nests.push(Nest { open: pending, close: 0 });
            pending = 0;
            loop {
                let Some((first, comma)) = open.last_mut() else {
                    return Ok((values, Profile::from_nests(nests)));
                };
                let more = self.eat(',');
                *comma |= more;
                if self.eat(')') {
                    if *comma {
                        if let Some(last) = nests.last_mut() {
                            last.close += 1;
                        }
                    } else {
                        // Only parentheses around a value: the tuple never was.
                        nests[*first].open -= 1;
                    }
                    open.pop();
                } else if more {
                    break;
                } else {
                    return Err(self.expected("',' or ')'"));
                }
            }
        }
    }

    pub(crate) fn layout<S: ReadStride>(&mut self) -> Result<Layout<S>, Error> {
        let shape = self.tuple()?;
        self.layout_of(shape)
    }

    /// Returns the rest of a layout whose shape has been read.
    pub(crate) fn layout_of<S: ReadStride>(&mut self, shape: IntTuple) -> Result<Layout<S>, Error> {
        self.expect(':')?;
        S::read_strides(self, shape)
    }

    /// Returns the strides of a shape, where a stride does not begin with a parenthesis.
    pub(crate) fn strides_of<S>(
        &mut self,
        shape: &IntTuple,
        leaf: impl FnMut(&mut Self) -> Result<S, Error>,
    ) -> Result<SmallVec<[S; 8]>, Error> {
        let place = self.place();
        let (strides, profile) = self.tuple_of(leaf)?;
        self.check_nested(place, shape, &profile)?;
        Ok(strides)
    }

    /// Fails if the strides that begin at this position are not nested like the shape.
    pub(crate) fn check_nested(
        &self,
        place: usize,
        shape: &IntTuple,
        strides: &Profile,
    ) -> Result<(), Error> {
        if strides == shape.profile() {
            return Ok(());
        }
        Err(self.expected_at(place, &format!("strides that are nested like the shape {shape}")))
    }

    /// Reads the strides of a shape; its parentheses determine which belong to a stride.
    pub(crate) fn nested_strides_of<S>(
        &mut self,
        shape: &IntTuple,
        mut leaf: impl FnMut(&mut Self) -> Result<S, Error>,
    ) -> Result<SmallVec<[S; 8]>, Error> {
        let mut strides: SmallVec<[S; 8]> = SmallVec::new();
        for (at, nest) in shape.profile().nests().iter().enumerate() {
            if at > 0 {
                self.expect(',')?;
            }
            for _ in 0..nest.open {
                self.expect('(')?;
            }
            strides.push(leaf(self)?);
            for _ in 0..nest.close {
                self.eat(',');
                self.expect(')')?;
            }
        }
        Ok(strides)
    }

    /// Returns the axis after an `@`: a name, or a number.
    pub(crate) fn axis(&mut self) -> Result<Arc<str>, Error> {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        if self.peek().is_some_and(starts) {
            let continues = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            let rest = self.rest();
            let end = rest.find(|c: char| !continues(c)).unwrap_or(rest.len());
            self.at += end;
            return Ok(rest[..end].into());
        }
        if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Err(self.expected("an axis such as tp or 0"));
        }
        let place = self.place();
        match u32::try_from(self.integer()?) {
            Ok(axis) if axis <= AxisStride::MAX_AXIS => Ok(axis.to_string().into()),
            Ok(_) | Err(_) => Err(self.expected_at(place, "the number of an axis")),
        }
    }
}

impl<S: Stride> Layout<S> {
    pub(crate) fn side_by_side(shape: &IntTuple, strides: SmallVec<[S; 8]>) -> Result<Self, Error> {
        let modes = shape.leaves().iter().zip(strides).map(|(&extent, stride)| Mode { extent, stride });
        Self::assemble(modes.collect(), shape.profile().clone())
    }
}

pub(crate) fn read<'a, T>(
    text: &'a str,
    part: impl FnOnce(&mut Cursor<'a>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut cursor = Cursor::new(text);
    let value = part(&mut cursor)?;
    cursor.finish()?;
    Ok(value)
}

/// Reads a tuple, the inverse of `Display`.
///
/// ```
/// use reshard_layout::IntTuple;
///
/// let tuple: IntTuple = " ( 4, ((2),3) ) ".parse()?;
/// assert_eq!(tuple.to_string(), "(4,(2,3))");
/// assert_eq!("(4,".parse::<IntTuple>().unwrap_err().render(), "expected an integer, the text ends at byte 3\n(4,\n   ^");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
impl FromStr for IntTuple {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text, Cursor::tuple)
    }
}

/// Reads a layout, the inverse of `Display`.
impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text, Cursor::layout)
    }
}

/// Reads a layout whose strides may go along axes, the inverse of `Display`.
impl FromStr for Layout<AxisStride> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text, Cursor::layout)
    }
}

/// Reads a layout of pairs, the inverse of `Display`.
///
/// ```
/// use reshard_layout::Layout;
///
/// let copy: Layout<(i64, i64)> = "(3,4):((1,4),(3,1))".parse()?;
/// assert_eq!(copy.value(5)?, (5, 9));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[allow(private_bounds, reason = "the strides that have a notation are those of this crate")]
impl<S: ReadStride, T: ReadStride> FromStr for Layout<(S, T)> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text, Cursor::layout)
    }
}

/// Writes a tuple of these values, nested like this.
pub(crate) fn write_tuple<T>(
    f: &mut fmt::Formatter<'_>,
    values: impl Iterator<Item = T>,
    nests: &[Nest],
    write: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    // How many components each open parenthesis has so far.
    let mut components: SmallVec<[u32; 8]> = SmallVec::new();
    for (at, (value, nest)) in values.zip(nests).enumerate() {
        if at > 0 {
            f.write_str(",")?;
        }
        for _ in 0..nest.open {
            f.write_str("(")?;
            components.push(0);
        }
        write(f, value)?;
        for _ in 0..nest.close {
            if let Some(count) = components.last_mut() {
                *count += 1;
            }
            let count = components.pop();
            f.write_str(if count == Some(1) { ",)" } else { ")" })?;
        }
        if let Some(count) = components.last_mut() {
            *count += 1;
        }
    }
    Ok(())
}

impl fmt::Display for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tuple(f, self.leaves().iter().copied(), self.profile().nests(), |f, n| ReadStride::write(n, f))
    }
}

#[allow(private_bounds, reason = "the strides that have a notation are those of this crate")]
impl<S: ReadStride> fmt::Display for Layout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_layout(f, self, |f, stride| stride.write(f))
    }
}

/// Writes a layout with the given notation of strides.
pub(crate) fn write_layout<S: Stride>(
    f: &mut fmt::Formatter<'_>,
    layout: &Layout<S>,
    stride: impl Fn(&mut fmt::Formatter<'_>, S) -> fmt::Result,
) -> fmt::Result {
    let nests = layout.profile().nests();
    write_tuple(f, layout.leaves().map(|(extent, _)| extent), nests, |f, n| ReadStride::write(n, f))?;
    f.write_str(":")?;
    write_tuple(f, layout.leaves().map(|(_, stride)| stride), nests, stride)
}
