//! The layout itself: `shape:stride`, and its queries.

use std::hash::{Hash, Hasher};

mod build;
mod evaluate;

pub(crate) use build::Tuple;

use crate::modes::{Mode, Modes};
use crate::profile::{MAX_LEAVES, Nest, Profile};
use crate::stride::{Span, Stride};
use crate::{Counted, Error, IntTuple};

/// A nested `shape:stride`, and the function on integers that it denotes.
///
/// ```text
/// (s_1, ..., s_n):(d_1, ..., d_n)    maps    i  to  sum_k c_k d_k    where    c = coordinates of i, leftmost fastest
/// ```
///
/// The domain is `[0, size)`. Nesting does not change the function; it groups the modes. Extents are at least
/// 1, strides are any integers, zero and negative ones too, or elements of another module (see [`Stride`]):
/// [`AxisStride`](crate::AxisStride), whose values are mesh coordinates with an offset there, and pairs, whose values are
/// those of two layouts. The reach of the whole layout is checked when it is created: its size, its least and
/// greatest value and their distance fit in an `i64`, so no later query of the layout overflows.
///
/// `==` is structural; [`is_equivalent`](Self::is_equivalent) compares the functions.
///
/// ```
/// use reshard_layout::Layout;
///
/// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
/// assert_eq!((layout.rank(), layout.depth(), layout.size(), layout.cosize()), (2, 2, 24, 24));
/// let values: Vec<i64> = layout.values().take(8).collect();
/// assert_eq!(values, [0, 2, 4, 6, 1, 3, 5, 7]);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// Source: CuTe, <https://docs.nvidia.com/cutlass/media/docs/cpp/cute/01_layout.html>.
#[derive(Debug)]
pub struct Layout<S: Stride = i64> {
    modes: Modes<S>,
    profile: Profile,
    size: i64,
    reach: S::Reach,
}

impl<S: Stride> Clone for Layout<S> {
    #[inline]
    fn clone(&self) -> Self {
        Self { modes: self.modes.clone(), profile: self.profile.clone(), ..*self }
    }
}

impl<S: Stride> PartialEq for Layout<S> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.modes == other.modes && self.profile == other.profile
    }
}

impl<S: Stride> Eq for Layout<S> {}

impl<S: Stride> Hash for Layout<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.modes.hash(state);
        self.profile.hash(state);
    }
}

impl Layout {
    /// Returns the layout `shape:stride`, of congruent tuples.
    ///
    /// ```
    /// use reshard_layout::{IntTuple, Layout};
    ///
    /// let layout = Layout::new(IntTuple::flat(&[4, 2])?, IntTuple::flat(&[2, 1])?)?;
    /// assert_eq!(layout.to_string(), "(4,2):(2,1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_congruent`, `bad_extent`, `overflow`.
    pub fn new(shape: IntTuple, stride: IntTuple) -> Result<Self, Error> {
        if !shape.is_congruent(&stride) {
            return Err(Error::NotCongruent { shape: Box::new(shape), stride: Box::new(stride) });
        }
        let modes = shape.leaves().iter().zip(stride.leaves());
        let modes = modes.map(|(&extent, &stride)| Mode { extent, stride }).collect();
        Self::assemble(modes, shape.profile().clone())
    }

    /// Returns the flat layout of these `(extent, stride)` pairs, leftmost fastest; `1:0` for none.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// assert_eq!(Layout::from_modes(&[(4, 2), (2, 1)])?.to_string(), "(4,2):(2,1)");
    /// assert_eq!(Layout::from_modes(&[(4, 2)])?.to_string(), "(4,):(2,)");
    /// assert_eq!(Layout::from_modes(&[])?.to_string(), "1:0");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`, `too_large`.
    pub fn from_modes(modes: &[(i64, i64)]) -> Result<Self, Error> {
        Self::from_flat(modes.iter().map(|&(extent, stride)| Mode { extent, stride }).collect())
    }

    /// Returns the layout `extent:stride` of a single leaf.
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`.
    pub fn scalar(extent: i64, stride: i64) -> Result<Self, Error> {
        Self::assemble(Modes::from_slice(&[Mode { extent, stride }]), Profile::scalar())
    }

    /// Returns `1:0`, the function of one index to 0.
    #[doc(hidden)]
    pub fn unit() -> Self {
        Self::unit_of()
    }

    /// Returns the tuple of these layouts, each one mode, leftmost fastest.
    ///
    /// ```text
    /// concat(A, B)(i)  =  A(i mod size(A)) + B(i div size(A))
    /// ```
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout = Layout::concat(&["4:1".parse()?, "(2,3):(20,4)".parse()?])?;
    /// assert_eq!(layout.to_string(), "(4,(2,3)):(1,(20,4))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `overflow`, `too_deep`, `too_large`; for no modes the answer is `1:0`.
    pub fn concat(modes: &[Self]) -> Result<Self, Error> {
        Self::tuple(modes)
    }

    /// Returns the least value; 0 unless a stride is negative.
    #[inline]
    pub fn min_value(&self) -> i64 {
        let Span { min, .. } = self.reach;
        min
    }

    /// Returns the greatest value; 0 unless a stride is positive.
    #[inline]
    pub fn max_value(&self) -> i64 {
        let Span { max, .. } = self.reach;
        max
    }

    /// Returns the length of the interval of values, `max - min + 1`.
    ///
    /// For strides that are not negative this is one more than the greatest value.
    #[inline]
    pub fn cosize(&self) -> i64 {
        let Span { min, max } = self.reach;
        max - min + 1
    }

    /// Returns the strides, congruent to the shape.
    pub fn stride(&self) -> IntTuple {
        IntTuple::from_parts(self.modes.iter().map(|mode| mode.stride).collect(), self.profile.clone())
    }
}

impl<S: Stride> Layout<S> {
    /// Returns the layout of these modes in which each part, up to the next end, is one mode.
    ///
    /// A part without modes is `1:0`, a part of one is not a tuple; no parts at all are `1:0`.
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout, Mode};
    ///
    /// let modes = [Mode::new(512, AxisStride::local(1)), Mode::new(2, AxisStride::along(1, 0)), Mode::new(4, AxisStride::along(1, 1))];
    /// assert_eq!(Layout::nested(&modes, &[2, 2, 3])?.to_string(), "((512,2),1,4):((1,1@0),0,1@1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`, `too_large`; requires ascending ends up to the number of modes.
    #[doc(hidden)]
    pub fn nested(modes: &[Mode<S>], ends: &[usize]) -> Result<Self, Error> {
        let mut layout = Self::blank();
        let (flat, nests) = layout.parts_mut();
        let mut start = 0;
        for &end in ends {
            let part = &modes[start..end];
            if flat.len() + part.len().max(1) > MAX_LEAVES {
                return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
            }
            if part.is_empty() {
                flat.push(Mode { extent: 1, stride: S::ZERO });
            }
            flat.extend_from_slice(part);
            let inside = u8::from(part.len() > 1);
            nests.push(Nest { open: inside, close: 0 });
            for _ in 1..part.len() {
                nests.push(Nest::default());
            }
            if let Some(last) = nests.last_mut() {
                last.close += inside;
            }
            start = end;
        }
        let Some(first) = nests.first_mut() else { return Ok(Self::unit_of()) };
        first.open += 1;
        if let Some(last) = nests.last_mut() {
            last.close += 1;
        }
        layout.seal_checked()?;
        Ok(layout)
    }

    /// Works like [`concat`](Layout::concat), for layouts with strides of any kind.
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout};
    ///
    /// let (a, b): (Layout<AxisStride>, Layout<AxisStride>) = ("4:1".parse()?, "(2,3):(1@0,1@1)".parse()?);
    /// assert_eq!(Layout::tuple(&[a, b])?.to_string(), "(4,(2,3)):(1,(1@0,1@1))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `overflow`, `too_deep`, `too_large`; for no modes the answer is `1:0`.
    pub fn tuple(modes: &[Self]) -> Result<Self, Error> {
        let mut tuple = Tuple::new();
        for mode in modes {
            tuple.push(mode)?;
        }
        tuple.finish()
    }

    /// Returns all modes without their nesting, leftmost first.
    ///
    /// ```
    /// use reshard_layout::{Layout, Mode};
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// assert_eq!(layout.flat(), [Mode::new(4, 2), Mode::new(2, 1), Mode::new(3, 8)]);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[inline]
    pub fn flat(&self) -> &[Mode<S>] {
        &self.modes
    }

    #[inline]
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the leaves from right to left, nested in the mirror image.
    pub(crate) fn mirror(&self) -> Self {
        let nests = self.profile.nests().iter().rev();
        let profile =
            Profile::from_nests(nests.map(|nest| Nest { open: nest.close, close: nest.open }).collect());
        Self { modes: self.modes.iter().rev().copied().collect(), profile, ..*self }
    }

    /// Returns the extents.
    pub fn shape(&self) -> IntTuple {
        IntTuple::from_parts(self.modes.iter().map(|mode| mode.extent).collect(), self.profile.clone())
    }

    /// Returns the `(extent, stride)` of every leaf, leftmost first.
    #[inline]
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (i64, S)> + DoubleEndedIterator + Clone + '_ {
        self.modes.iter().map(|mode| (mode.extent, mode.stride))
    }

    /// Returns the number of modes; 1 for a scalar layout like `4:1`.
    pub fn rank(&self) -> usize {
        self.profile.rank()
    }

    /// Returns the nesting depth of the modes; 0 for a scalar layout.
    pub fn depth(&self) -> usize {
        self.profile.depth()
    }

    /// Returns `true` if the layout is a single leaf without parentheses.
    #[doc(hidden)]
    pub fn is_scalar(&self) -> bool {
        self.profile.is_scalar()
    }

    /// Returns the number of indices, the product of the extents.
    #[inline]
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Returns mode `index`, from the left; a scalar layout is its own mode 0.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// assert_eq!(layout.mode(1)?.to_string(), "(2,3):(1,8)");
    /// assert_eq!(layout.mode(2).unwrap_err().code(), "no_such_mode");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode`.
    pub fn mode(&self, index: usize) -> Result<Self, Error> {
        self.modes().nth(index).ok_or_else(|| Error::NoSuchMode { mode: index, rank: self.rank() })
    }

    /// Returns the modes, leftmost first.
    pub fn modes(&self) -> impl Iterator<Item = Self> + '_ {
        self.profile
            .modes()
            .map(|range| Self::known(Modes::from_slice(&self.modes[range.clone()]), self.profile.mode(range)))
    }

    /// Returns the flat modes of each mode, leftmost first.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// assert_eq!(layout.flat_modes().map(<[_]>::len).collect::<Vec<_>>(), [1, 2]);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn flat_modes(&self) -> impl Iterator<Item = &[Mode<S>]> + '_ {
        self.profile.modes().map(|range| &self.modes[range])
    }

    /// Returns the layout of the same shape with other strides.
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout};
    ///
    /// let mesh: Layout<AxisStride> = "(4,2):(1@0,1@1)".parse()?;
    /// let ranks = mesh.map(|at| if at.axis() == Some(0) { at.step() * 2 } else { at.step() })?;
    /// assert_eq!(ranks, "(4,2):(2,1)".parse()?);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `overflow`.
    pub fn map<T: Stride>(&self, mut to: impl FnMut(S) -> T) -> Result<Layout<T>, Error> {
        Layout::assemble(self.modes.iter().map(|mode| mode.map(&mut to)).collect(), self.profile.clone())
    }
}
