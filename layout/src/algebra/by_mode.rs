//! Tilers, and the functions that lift operations to modes.
//!
//! ```text
//! op(A, <T_0, ..., T_k>)  =  (op(A_0, T_0), ..., op(A_k, T_k), A_{k+1}, ..., A_n)
//! ```
//!
//! Modes that the tiler does not name stay as they are, and so do those that it names by `_`. (CuTe drops the
//! former in a composition, and retains them in divisions and products; here they are always retained, and
//! `take` drops them.)

use std::fmt;
use std::str::FromStr;

use crate::layout::Tuple;
use crate::notation::Cursor;
use crate::stride::Stride;
use crate::{Defect, Error, IntTuple, Layout, Operation};

/// A layout for the whole operand, or one tiler for each of its first modes, written `<4:1, 2:1>`.
///
/// In a tiler the integer `4` is short for `4:1`, and `_` leaves its mode as it is; the zipped, tiled and
/// flat forms take such a mode for a tile and a rest, as in CuTe, so it has two modes.
///
/// ```
/// use reshard_layout::{Layout, algebra::Tiler};
///
/// let tiler: Tiler = "<4, <2:3, 1:0>>".parse()?;
/// assert_eq!(tiler.to_string(), "<4:1,<2:3,1:0>>");
/// let layout: Layout = "(8,2):(2,1)".parse()?;
/// assert_eq!(layout.compose_by(&"<4:1>".parse()?)?.to_string(), "(4,2):(2,1)");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tiler {
    /// Applies to the operand as a whole.
    Layout(Layout),
    /// Applies to its first modes, one each.
    Modes(Vec<Tiler>),
    /// `_`: leaves its mode as it is.
    Any,
}

impl Tiler {
    /// Returns the tiler of a shape: `(4,(2,3))` is `<4:1,<2:1,3:1>>`, and `4` is `4:1`.
    ///
    /// ```
    /// use reshard_layout::algebra::Tiler;
    ///
    /// assert_eq!(Tiler::of_shape(&"(4,(2,3))".parse()?)?.to_string(), "<4:1,<2:1,3:1>>");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`.
    #[doc(hidden)]
    pub fn of_shape(shape: &IntTuple) -> Result<Self, Error> {
        if let Some(extent) = shape.as_scalar() {
            return Layout::scalar(extent, 1).map(Self::Layout);
        }
        // Recursion is as deep as the shape, which is at most MAX_DEPTH.
        shape.modes().map(|mode| Self::of_shape(&mode)).collect::<Result<_, _>>().map(Self::Modes)
    }
}

impl From<Layout> for Tiler {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl fmt::Display for Tiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => layout.fmt(f),
            Self::Modes(tilers) => {
                f.write_str("<")?;
                for (at, tiler) in tilers.iter().enumerate() {
                    write!(f, "{}{tiler}", if at > 0 { "," } else { "" })?;
                }
                f.write_str(">")
            }
            Self::Any => f.write_str("_"),
        }
    }
}

impl FromStr for Tiler {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut cursor = Cursor::new(text);
        let tiler = cursor.tiler(0)?;
        cursor.finish()?;
        Ok(tiler)
    }
}

impl Cursor<'_> {
    /// Recursion is as deep as the text nests, at most as [`Cursor::check_depth`] allows.
    pub(crate) fn tiler(&mut self, depth: usize) -> Result<Tiler, Error> {
        self.check_depth(depth)?;
        if self.eat('_') {
            return Ok(Tiler::Any);
        }
        if !self.eat('<') {
            let shape = self.tuple()?;
            if self.peek() == Some(':') {
                return self.layout_of(shape).map(Tiler::Layout);
            }
            return match shape.as_scalar() {
                Some(extent) => Layout::scalar(extent, 1).map(Tiler::Layout),
                None => Err(self.expected("':' and the strides")),
            };
        }
        let mut tilers = vec![self.tiler(depth + 1)?];
        while self.eat(',') {
            tilers.push(self.tiler(depth + 1)?);
        }
        self.expect('>')?;
        Ok(Tiler::Modes(tilers))
    }
}

/// Lifts an operation with a layout to one with a tiler.
pub(crate) fn by_mode(
    layout: &Layout,
    tiler: &Tiler,
    operation: &impl Fn(&Layout, &Layout) -> Result<Layout, Error>,
) -> Result<Layout, Error> {
    match tiler {
        Tiler::Layout(tile) => operation(layout, tile),
        Tiler::Any => Ok(layout.clone()),
        Tiler::Modes(tilers) => {
            let rank = layout.rank();
            if tilers.len() > rank {
                return Err(Error::NoSuchMode { mode: tilers.len() - 1, rank });
            }
            Tuple::collect(layout.modes().enumerate().map(|(at, mode)| match tilers.get(at) {
                Some(tiler) => by_mode(&mode, tiler, operation),
                None => Ok(mode),
            }))
        }
    }
}

/// Lifts an operation on a layout to the modes that a profile names.
///
/// `(1,(1,1))` applies it to mode 0, and to modes 0 and 1 of mode 1.
pub(crate) fn by_profile<S: Stride>(
    layout: &Layout<S>,
    profile: &IntTuple,
    operation: &impl Fn(&Layout<S>) -> Layout<S>,
) -> Result<Layout<S>, Error> {
    if profile.as_scalar().is_some() {
        return Ok(operation(layout));
    }
    let (rank, named) = (layout.rank(), profile.rank());
    if named > rank {
        return Err(Error::NoSuchMode { mode: named - 1, rank });
    }
    let mut profiles = profile.modes();
    Tuple::collect(layout.modes().map(|mode| match profiles.next() {
        Some(profile) => by_profile(&mode, &profile, operation),
        None => Ok(mode),
    }))
}

/// Splits a layout that was divided or multiplied by mode into all tiles and all rests.
///
/// Each mode of the operand is `(tile, rest)`.
///
/// Modes that the tiler does not name belong to the rest. A mode that `_` leaves as it is must be a pair
/// already.
pub(crate) fn unzip(layout: &Layout, tiler: &Tiler) -> Result<(Layout, Layout), Error> {
    match tiler {
        Tiler::Any if layout.rank() != 2 => Err(Error::Inadmissible {
            operation: Operation::Zip,
            operand: Box::new(layout.clone()),
            defect: Defect::NotAPair { rank: layout.rank() },
        }),
        Tiler::Layout(_) | Tiler::Any => Ok((layout.mode(0)?, layout.mode(1)?)),
        Tiler::Modes(tilers) => {
            let (mut tiles, mut rests) = (Tuple::new(), Tuple::new());
            for (at, mode) in layout.modes().enumerate() {
                match tilers.get(at) {
                    Some(tiler) => {
                        let (tile, rest) = unzip(&mode, tiler)?;
                        tiles.push(&tile)?;
                        rests.push(&rest)?;
                    }
                    None => rests.push(&mode)?,
                }
            }
            Ok((tiles.finish()?, rests.finish()?))
        }
    }
}

impl Layout {
    /// Works like [`compose`](Self::compose) by mode: `(A_0 o T_0, A_1 o T_1, ...)`; unnamed modes are
    /// unchanged.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(6,2,8):(16,8,1)".parse()?;
    /// assert_eq!(a.compose_by(&"<3:2, 2:1>".parse()?)?.to_string(), "(3,2,8):(32,8,1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`compose`](Self::compose); `no_such_mode` if the tiler has more modes than the layout.
    pub fn compose_by(&self, tiler: &Tiler) -> Result<Self, Error> {
        by_mode(self, tiler, &|outer, inner| outer.compose(inner))
    }
}

impl<S: Stride> Layout<S> {
    /// Works like [`coalesce`](Self::coalesce), without merging across the modes that the profile names.
    ///
    /// ```text
    /// coalesce(A, 1) = coalesce(A)        coalesce(A, (p, q)) = (coalesce(A_0, p), coalesce(A_1, q), A_2, ...)
    /// ```
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "((2,4),(2,1)):((1,2),(8,0))".parse()?;
    /// assert_eq!(a.coalesce().to_string(), "16:1");
    /// assert_eq!(a.coalesce_by(&"(1,1)".parse()?)?.to_string(), "(8,2):(1,8)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode` if the profile has more modes than the layout.
    pub fn coalesce_by(&self, profile: &IntTuple) -> Result<Self, Error> {
        by_profile(self, profile, &Self::coalesce)
    }
}
