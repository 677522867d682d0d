//! Slicing and dicing: fixing some coordinates, keeping the others.
//!
//! ```text
//! A(c_0, c_1)  with c_1 = k fixed   =   k d_1  +  A_0(c_0)          offset + what `_` keeps
//! ```

use std::fmt;
use std::str::FromStr;

use crate::layout::Tuple;
use crate::notation::Cursor;
use crate::{Error, Layout};

/// A coordinate in which some positions are open, `(_,(2,_))`.
///
/// ```
/// use reshard_layout::algebra::SlicePattern;
///
/// let pattern: SlicePattern = "( _, (2,_), 3 )".parse()?;
/// assert_eq!(pattern.to_string(), "(_,(2,_),3)");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SlicePattern {
    /// `_`: any coordinate.
    Any,
    /// This index into the mode.
    At(i64),
    /// One pattern for each mode.
    Modes(Vec<SlicePattern>),
}

impl fmt::Display for SlicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("_"),
            Self::At(index) => index.fmt(f),
            Self::Modes(patterns) => {
                f.write_str("(")?;
                for (at, pattern) in patterns.iter().enumerate() {
                    write!(f, "{}{pattern}", if at > 0 { "," } else { "" })?;
                }
                f.write_str(if patterns.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

impl FromStr for SlicePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut cursor = Cursor::new(text);
        let pattern = cursor.pattern(0)?;
        cursor.finish()?;
        Ok(pattern)
    }
}

impl Cursor<'_> {
    /// Recursion is as deep as the text nests, at most as [`Cursor::check_depth`] allows.
    pub(crate) fn pattern(&mut self, depth: usize) -> Result<SlicePattern, Error> {
        self.check_depth(depth)?;
        if self.eat('_') {
            return Ok(SlicePattern::Any);
        }
        if !self.eat('(') {
            return self.integer().map(SlicePattern::At);
        }
        let mut patterns = vec![self.pattern(depth + 1)?];
        let mut comma = false;
        while self.eat(',') {
            comma = true;
            if self.peek() == Some(')') {
                break;
            }
            patterns.push(self.pattern(depth + 1)?);
        }
        self.expect(')')?;
        match (comma, patterns.pop()) {
            (false, Some(pattern)) => Ok(pattern),
            (true, Some(pattern)) => {
                patterns.push(pattern);
                Ok(SlicePattern::Modes(patterns))
            }
            (_, None) => Err(self.expected("a pattern")),
        }
    }
}

/// Walks pattern and layout in parallel, and returns the value of the fixed modes.
///
/// Open modes go to `open`, fixed ones to `fixed`.
fn split(layout: &Layout, pattern: &SlicePattern, open: &mut Tuple, fixed: &mut Tuple) -> Result<i64, Error> {
    match pattern {
        SlicePattern::Any => {
            open.push(layout)?;
            Ok(0)
        }
        SlicePattern::At(index) => {
            let value = layout.at(*index)?;
            fixed.push(layout)?;
            Ok(value)
        }
        SlicePattern::Modes(patterns) => {
            let rank = layout.rank();
            if patterns.len() != rank {
                return Err(Error::NotOneEach { given: patterns.len(), rank });
            }
            // Values of different modes add up to a value of the layout, which fits.
            layout.modes().zip(patterns).try_fold(0_i64, |value, (mode, pattern)| {
                Ok(value.wrapping_add(split(&mode, pattern, open, fixed)?))
            })
        }
    }
}

impl Layout {
    /// Returns the modes that a pattern leaves open, and the value of the coordinates that it fixes.
    ///
    /// Ensures: `A(c) = offset + R(open coordinates of c)`. Open modes of nested tuples follow each other in
    /// one flat list; if there are none the layout is `1:0`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,(2,3)):(6,(1,2))".parse()?;
    /// let (row, offset) = a.slice(&"(2,_)".parse()?)?;
    /// assert_eq!((row.to_string(), offset), ("((2,3),):((1,2),)".to_owned(), 12));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode` if pattern and layout do not match, `out_of_domain`.
    pub fn slice(&self, pattern: &SlicePattern) -> Result<(Self, i64), Error> {
        if *pattern == SlicePattern::Any {
            return Ok((self.clone(), 0));
        }
        let mut open = Tuple::new();
        let offset = split(self, pattern, &mut open, &mut Tuple::new())?;
        Ok((open.finish()?, offset))
    }

    /// Returns the modes that a pattern fixes: those that [`slice`](Self::slice) leaves out.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,(2,3)):(6,(1,2))".parse()?;
    /// assert_eq!(a.dice(&"(2,(_,0))".parse()?)?.to_string(), "(4,3):(6,2)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`slice`](Self::slice).
    pub fn dice(&self, pattern: &SlicePattern) -> Result<Self, Error> {
        if matches!(pattern, SlicePattern::At(_)) {
            return split(self, pattern, &mut Tuple::new(), &mut Tuple::new()).map(|_| self.clone());
        }
        let mut fixed = Tuple::new();
        split(self, pattern, &mut Tuple::new(), &mut fixed)?;
        fixed.finish()
    }
}
