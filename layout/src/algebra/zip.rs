//! Zipping and splitting: two layouts as one of pairs, and one layout split at the boundaries of a shape.
//!
//! ```text
//! zip(A, B)(i)    =  (A(i), B(i))                            the modes of both, split at each other's boundaries
//! split(A, (n_0, n_1, ..))  =  (A_0, A_1, ..)  of these sizes with  concat(A_0, A_1, ..)(i) = A(i)
//! ```
//!
//! Both walk from the fastest mode on and split the longer mode where the shorter one, or the requested size,
//! ends. A mode can be split there if the rest divides; where it does not there is no such layout, and the
//! [`Boundary`] gives the position. For coalesced layouts that is a proof: a mode of a coalesced layout ends
//! exactly where its function stops being linear, so in any layout of both functions a mode has to end there.
//!
//! `split` is composition with the compact layout of the shape, `A o column_major(shape)`, for strides of any
//! kind.

use smallvec::SmallVec;

use crate::modes::{Mode, Modes, size_of};
use crate::stride::Stride;
use crate::{Error, Layout, Quantity};

/// The boundary where two layouts, or a layout and a shape, do not nest: the number of indices below it.
///
/// A mode of one has to end there, inside a mode of the other that does not divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Boundary(pub i64);

/// Returns the common refinement of two lists of modes of one domain.
///
/// ```text
/// zip(A, B)(i) = (A(i), B(i))  for all i
/// ```
///
/// Requires equal sizes. Modes of extent 1 vanish; neighbours are not merged.
///
/// ```
/// use reshard_layout::{Boundary, Layout, Mode, algebra::zip};
///
/// let (a, b): (Layout, Layout) = ("12:1".parse()?, "(3,4):(4,1)".parse()?);
/// let zipped = zip(a.flat(), b.flat()).unwrap();
/// assert_eq!(zipped.as_slice(), [Mode::new(3, (1, 4)), Mode::new(4, (3, 1))]);
/// let c: Layout = "(2,6):(6,1)".parse()?;
/// assert_eq!(zip(b.flat(), c.flat()), Err(Boundary(2)));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// # Errors
///
/// The boundary where the two do not nest.
pub fn zip<S: Stride, T: Stride>(a: &[Mode<S>], b: &[Mode<T>]) -> Result<Modes<(S, T)>, Boundary> {
    let mut zipped = Modes::new();
    zip_into(a, b, &mut zipped)?;
    Ok(zipped)
}

/// Appends the result of [`zip`] to a list; after an error the appended modes are unspecified.
///
/// # Errors
///
/// As [`zip`].
#[doc(hidden)]
#[inline]
pub fn zip_into<S: Stride, T: Stride>(
    a: &[Mode<S>],
    b: &[Mode<T>],
    zipped: &mut Modes<(S, T)>,
) -> Result<(), Boundary> {
    let (mut a, mut b) = (a.iter().filter(|m| m.extent > 1), b.iter().filter(|m| m.extent > 1));
    let (Some(&x), Some(&y)) = (a.next(), b.next()) else { return Ok(()) };
    let (mut x, mut y) = (x, y);
    let mut below = 1;
    loop {
        let extent = x.extent.min(y.extent);
        zipped.push(Mode { extent, stride: (x.stride, y.stride) });
        below *= extent;
        let (left, right) = (x.extent, y.extent);
        if left == extent {
            let Some(&next) = a.next() else { return Ok(()) };
            x = next;
        } else {
            x = x.cut(extent).ok_or(Boundary(below))?.1;
        }
        if right == extent {
            let Some(&next) = b.next() else { return Ok(()) };
            y = next;
        } else {
            y = y.cut(extent).ok_or(Boundary(below))?.1;
        }
    }
}

/// Splits modes at the ends of parts of these sizes and appends them to `cut`, each part coalesced.
///
/// `part` is called with the length of `cut` after every part. Modes beyond the last part are dropped.
///
/// # Errors
///
/// The boundary of a part that is inside a mode and does not divide it.
#[doc(hidden)]
#[inline]
pub fn split_into<S: Stride>(
    modes: &[Mode<S>],
    sizes: impl IntoIterator<Item = i64>,
    cut: &mut Modes<S>,
    mut part: impl FnMut(usize),
) -> Result<(), Boundary> {
    let mut rest = modes.iter().copied();
    let mut next = rest.next();
    // The number of indices so far, and where the part ends: reached exactly, or inside a mode.
    let (mut below, mut end) = (1_i64, 1_i64);
    for size in sizes {
        let start = cut.len();
        end = end.saturating_mul(size.max(1));
        while below < end {
            let Some(mode) = next else { break };
            let above = below.saturating_mul(mode.extent);
            if above <= end {
                if mode.extent > 1 {
                    cut.push_coalesced(start, mode);
                }
                (below, next) = (above, rest.next());
            } else {
                let inside = if end % below == 0 { mode.cut(end / below) } else { None };
                let (low, high) = inside.ok_or(Boundary(end))?;
                cut.push_coalesced(start, low);
                (below, next) = (end, Some(high));
            }
        }
        part(cut.len());
    }
    Ok(())
}

impl<S: Stride> Layout<S> {
    /// Returns both layouts side by side, as one layout of pairs over the common refinement of their shapes.
    ///
    /// ```text
    /// zip(A, B)(i) = (A(i), B(i))  for all i
    /// ```
    ///
    /// Ensures: coalesced.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let (a, b): (Layout, Layout) = ("12:1".parse()?, "(3,4):(4,1)".parse()?);
    /// assert_eq!(a.zip(&b)?.to_string(), "(3,4):((1,4),(3,1))");
    /// let c: Layout = "(2,6):(6,1)".parse()?;
    /// assert_eq!(b.zip(&c).unwrap_err().code(), "not_nesting");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_nesting` where neither of two extents divides the other, or the sizes differ.
    pub fn zip<T: Stride>(&self, other: &Layout<T>) -> Result<Layout<(S, T)>, Error> {
        let boundary = if self.size() == other.size() {
            match zip(self.coalesce().flat(), other.coalesce().flat()) {
                Ok(zipped) => return Ok(Layout::known_flat(zipped.coalesce())),
                Err(Boundary(boundary)) => boundary,
            }
        } else {
            self.size().min(other.size())
        };
        Err(Error::NotNesting { left: Box::new(self.shape()), right: Box::new(other.shape()), boundary })
    }

    /// Splits the layout into modes of these sizes, each coalesced.
    ///
    /// It is the same function with another shape.
    ///
    /// ```text
    /// split(A, shape)  =  A o column_major(shape)                concat undoes it
    /// ```
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout};
    ///
    /// let a: Layout<AxisStride> = "(4,4):(1,1@0)".parse()?;
    /// assert_eq!(a.split(&[2, 8])?.to_string(), "(2,(2,4)):(1,(2,1@0))");
    /// assert_eq!(a.split(&[8, 2])?.to_string(), "((4,2),2):((1,1@0),2@0)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_nesting` where a part ends inside a mode that it does not divide, or the sizes do not multiply to
    /// that of the layout; `bad_extent`.
    pub fn split(&self, sizes: &[i64]) -> Result<Self, Error> {
        let mut total = 1_i64;
        for &extent in sizes {
            if extent < 1 {
                return Err(Error::BadExtent { extent });
            }
            let overflow = Error::Overflow { quantity: Quantity::Size, left: total, right: extent };
            total = total.checked_mul(extent).ok_or(overflow)?;
        }
        let whole = self.coalesce();
        let (mut modes, mut ends) = (Modes::new(), SmallVec::<[usize; 8]>::new());
        let cut = if total == self.size() {
            split_into(whole.flat(), sizes.iter().copied(), &mut modes, |end| ends.push(end))
        } else {
            Err(Boundary(total.min(self.size())))
        };
        if let Err(Boundary(boundary)) = cut {
            let right = crate::IntTuple::flat(sizes)?;
            return Err(Error::NotNesting { left: Box::new(self.shape()), right: Box::new(right), boundary });
        }
        debug_assert_eq!(size_of(&modes), self.size());
        Self::nested(&modes, &ends)
    }
}
