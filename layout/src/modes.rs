//! Flat lists of modes: the elements of layouts, and their coalescing.
//!
//! Two neighbouring modes merge where the second continues the first exactly at its end:
//!
//! ```text
//! (s, t):(d, e)  =  s*t : d    where    e = s*d              a mode of extent 1 contributes nothing
//! ```
//!
//! Doing this from left to right until nothing changes gives a **complete invariant** of the function, in
//! every abelian group of strides: two lists denote the same function exactly if their coalesced forms are
//! equal. For, of a coalesced list `(s_1, ...):(d_1, ...)` of size > 1, `d_1 = f(1)`, and `s_1` is the
//! greatest `m` with `f(c) = c f(1)` for all `c < m`, because `f(s_1) = d_2`, and `d_2 = s_1 d_1` would have
//! been merged; the rest follows for `i -> f(s_1 i)`. So the function determines the modes.

use std::fmt;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::stride::Stride;

/// One mode: `extent` steps of `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode<S = i64> {
    /// The number of coordinates, at least 1.
    pub extent: i64,
    /// The step of the value per coordinate.
    pub stride: S,
}

impl<S> Mode<S> {
    /// Returns the mode `extent : stride`.
    #[inline]
    pub const fn new(extent: i64, stride: S) -> Mode<S> {
        Mode { extent, stride }
    }

    /// Returns the mode with another stride.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn map<T>(self, to: impl FnOnce(S) -> T) -> Mode<T> {
        Mode { extent: self.extent, stride: to(self.stride) }
    }
}

impl<S: Stride> Mode<S> {
    /// Splits into the faster `low` coordinates and the rest.
    ///
    /// Returns `None` where `low` does not divide the extent.
    ///
    /// ```text
    /// s:d  =  (low, s/low) : (d, low*d)
    /// ```
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn cut(self, low: i64) -> Option<(Mode<S>, Mode<S>)> {
        let high = self.extent / low;
        let rest = Mode { extent: high, stride: self.stride.times(low) };
        (high * low == self.extent).then_some((Mode { extent: low, ..self }, rest))
    }
}

impl<S: fmt::Display> fmt::Display for Mode<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.extent, self.stride)
    }
}

/// A flat list of modes, leftmost fastest; nothing is on the heap up to 8.
///
/// ```
/// use reshard_layout::{AxisStride, Mode, Modes};
///
/// let modes: Modes<AxisStride> = [Mode::new(2, AxisStride::along(1, 0)), Mode::new(4, AxisStride::along(2, 0))].into_iter().collect();
/// assert_eq!(modes.coalesce().as_slice(), [Mode::new(8, AxisStride::along(1, 0))]);
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Modes<S = i64>(SmallVec<[Mode<S>; 8]>);

impl<S: Copy> Clone for Modes<S> {
    /// Returns a plain copy, not mode by mode.
    #[inline]
    fn clone(&self) -> Self {
        Modes(SmallVec::from_slice(&self.0))
    }
}

impl<S> Default for Modes<S> {
    fn default() -> Self {
        Modes::new()
    }
}

impl<S> Modes<S> {
    /// Returns no modes: the function of one index.
    #[inline]
    pub fn new() -> Self {
        Modes(SmallVec::new())
    }

    /// Returns the modes, leftmost first.
    #[inline]
    pub fn as_slice(&self) -> &[Mode<S>] {
        &self.0
    }

    /// Appends a mode as it is.
    #[inline]
    pub fn push(&mut self, mode: Mode<S>) {
        self.0.push(mode);
    }

    /// Inserts a mode as it is.
    #[doc(hidden)]
    #[inline]
    pub fn insert(&mut self, at: usize, mode: Mode<S>) {
        self.0.insert(at, mode);
    }

    /// Takes the last mode away.
    #[doc(hidden)]
    #[inline]
    pub fn pop(&mut self) -> Option<Mode<S>> {
        self.0.pop()
    }

    /// Takes all modes away.
    #[doc(hidden)]
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps the modes for which `keep` holds: the function on the indices whose other coordinates are 0.
    #[doc(hidden)]
    pub fn retain(&mut self, mut keep: impl FnMut(&Mode<S>) -> bool) {
        self.0.retain(|mode| keep(mode));
    }
}

impl<S: Copy> Modes<S> {
    /// Returns a copy of these modes.
    #[inline]
    #[doc(hidden)]
    pub fn from_slice(modes: &[Mode<S>]) -> Self {
        Modes(SmallVec::from_slice(modes))
    }

    /// Appends modes as they are.
    #[doc(hidden)]
    #[inline]
    pub fn extend_from_slice(&mut self, modes: &[Mode<S>]) {
        self.0.extend_from_slice(modes);
    }
}

impl<S: Stride> Modes<S> {
    /// Appends a mode of extent > 1, merged into the last one beyond `start` if it continues that one.
    ///
    /// Modes before `start` belong to another group. Stays correct for extents of 1.
    #[doc(hidden)]
    #[inline]
    pub fn push_coalesced(&mut self, start: usize, mode: Mode<S>) {
        if self.0.len() > start
            && let Some(last) = self.0.last_mut()
            && last.stride.goes_on(last.extent, mode.stride)
            && let Some(extent) = last.extent.checked_mul(mode.extent)
        {
            last.extent = extent;
        } else {
            self.0.push(mode);
        }
    }

    /// Returns the list with the fewest modes of the same function.
    ///
    /// ```text
    /// coalesce(A)(i) = A(i)  for all i
    /// ```
    #[must_use]
    pub fn coalesce(&self) -> Self {
        let mut merged = Modes::new();
        coalesce_into(self, &mut merged);
        merged
    }

    /// Returns the remaining coordinates after fixing some modes, and the value of the fixed ones.
    ///
    /// ```text
    /// A(c)  =  value + R(open coordinates of c)
    /// ```
    ///
    /// `fixed` gives the coordinate of a mode, or `None` to leave it open.
    #[doc(hidden)]
    pub fn slice(&self, mut fixed: impl FnMut(&Mode<S>) -> Option<i64>) -> (Self, S::Value) {
        let (mut open, mut value) = (Modes::new(), S::Value::default());
        for mode in &self.0 {
            match fixed(mode) {
                Some(coordinate) => mode.stride.add_to(coordinate, &mut value),
                None => open.push(*mode),
            }
        }
        (open, value)
    }
}

/// Returns `true` if coalescing would change nothing.
#[inline]
fn is_coalesced<S: Stride>(modes: &[Mode<S>]) -> bool {
    let goes_on = |pair: &[Mode<S>]| pair[0].stride.goes_on(pair[0].extent, pair[1].stride);
    modes.iter().all(|mode| mode.extent != 1) && !modes.windows(2).any(goes_on)
}

/// Returns the coalesced modes, none for a layout of size 1.
///
/// These are the modes themselves if nothing changes, else they are in `storage`.
#[inline]
pub(crate) fn coalesced<'a, S: Stride>(modes: &'a [Mode<S>], storage: &'a mut Modes<S>) -> &'a [Mode<S>] {
    if is_coalesced(modes) {
        return modes;
    }
    coalesce_into(modes, storage);
    storage
}

#[inline]
pub(crate) fn coalesce_into<S: Stride>(modes: &[Mode<S>], merged: &mut Modes<S>) {
    for &mode in modes {
        if mode.extent != 1 {
            merged.push_coalesced(0, mode);
        }
    }
}

/// Returns the number of indices of some modes; requires that it fits.
#[doc(hidden)]
#[inline]
pub fn size_of<S>(modes: &[Mode<S>]) -> i64 {
    modes.iter().map(|mode| mode.extent).product()
}

impl<S> Deref for Modes<S> {
    type Target = [Mode<S>];

    #[inline]
    fn deref(&self) -> &[Mode<S>] {
        &self.0
    }
}

impl<S> DerefMut for Modes<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Mode<S>] {
        &mut self.0
    }
}

impl<S> FromIterator<Mode<S>> for Modes<S> {
    fn from_iter<I: IntoIterator<Item = Mode<S>>>(modes: I) -> Self {
        Modes(modes.into_iter().collect())
    }
}

impl<S> Extend<Mode<S>> for Modes<S> {
    fn extend<I: IntoIterator<Item = Mode<S>>>(&mut self, modes: I) {
        self.0.extend(modes);
    }
}

impl<'a, S> IntoIterator for &'a Modes<S> {
    type Item = &'a Mode<S>;
    type IntoIter = std::slice::Iter<'a, Mode<S>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
