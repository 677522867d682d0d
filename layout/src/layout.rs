//! The layout itself: `shape:stride`, and what can be asked of it.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

mod build;
mod evaluate;

pub(crate) use build::Tuple;

use crate::profile::{Nest, Profile};
use crate::{Error, IntTuple};

/// One leaf: `extent` steps of `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf {
    pub(crate) extent: i64,
    pub(crate) stride: i64,
}

pub(crate) type Leaves = SmallVec<[Leaf; 8]>;

/// A nested `shape:stride`, and the function on integers that it denotes.
///
/// ```text
/// (s_1, ..., s_n):(d_1, ..., d_n)    maps    i  to  sum_k c_k d_k    where    c = coordinates of i, leftmost fastest
/// ```
///
/// The domain is `[0, size)`. Nesting does not change the function; it says which modes belong together. Extents are
/// at least 1, strides are any integers, zero and negative ones too. What the whole layout can reach is checked when
/// it is made: its size, its least and greatest value and their distance fit in an `i64`, so nothing that is asked of
/// a layout afterwards overflows.
///
/// `==` is structural; [`same_function`](Self::same_function) compares the functions.
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
pub struct Layout {
    leaves: Leaves,
    profile: Profile,
    size: i64,
    min: i64,
    max: i64,
}

impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Self {
        Self { leaves: SmallVec::from_slice(&self.leaves), profile: self.profile.clone(), ..*self }
    }
}

impl PartialEq for Layout {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.leaves == other.leaves && self.profile == other.profile
    }
}

impl Eq for Layout {}

impl Hash for Layout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.leaves.hash(state);
        self.profile.hash(state);
    }
}

impl Layout {
    /// `shape:stride`, congruent tuples.
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
        let leaves = shape.leaves().iter().zip(stride.leaves());
        let leaves = leaves.map(|(&extent, &stride)| Leaf { extent, stride }).collect();
        Self::assemble(leaves, shape.profile().clone())
    }

    /// The flat layout of these `(extent, stride)` pairs, leftmost fastest; `1:0` for none.
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
        Self::from_flat(modes.iter().map(|&(extent, stride)| Leaf { extent, stride }).collect())
    }

    /// The layout `extent:stride` of a single leaf.
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`.
    pub fn scalar(extent: i64, stride: i64) -> Result<Self, Error> {
        Self::assemble(SmallVec::from_slice(&[Leaf { extent, stride }]), Profile::scalar())
    }

    /// `1:0`, the function of one index to 0.
    pub fn unit() -> Self {
        Self::known(SmallVec::from_slice(&[Leaf { extent: 1, stride: 0 }]), Profile::scalar())
    }

    /// The tuple of these layouts, each one mode, leftmost fastest.
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
        let mut tuple = Tuple::new();
        for mode in modes {
            tuple.push(mode)?;
        }
        tuple.finish()
    }

    #[inline]
    pub(crate) fn raw_leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    #[inline]
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The leaves from right to left, nested in the mirror image.
    pub(crate) fn mirror(&self) -> Self {
        let nests = self.profile.nests().iter().rev();
        let profile =
            Profile::from_nests(nests.map(|nest| Nest { open: nest.close, close: nest.open }).collect());
        Self { leaves: self.leaves.iter().rev().copied().collect(), profile, ..*self }
    }

    /// The extents.
    pub fn shape(&self) -> IntTuple {
        IntTuple::from_parts(self.leaves.iter().map(|leaf| leaf.extent).collect(), self.profile.clone())
    }

    /// The strides, congruent to the shape.
    pub fn stride(&self) -> IntTuple {
        IntTuple::from_parts(self.leaves.iter().map(|leaf| leaf.stride).collect(), self.profile.clone())
    }

    /// The `(extent, stride)` of every leaf, leftmost first.
    #[inline]
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (i64, i64)> + DoubleEndedIterator + Clone + '_ {
        self.leaves.iter().map(|leaf| (leaf.extent, leaf.stride))
    }

    /// The number of modes; 1 for a scalar layout like `4:1`.
    pub fn rank(&self) -> usize {
        self.profile.rank()
    }

    /// How deep modes nest; 0 for a scalar layout.
    pub fn depth(&self) -> usize {
        self.profile.depth()
    }

    /// Whether the layout is a single leaf without parentheses.
    pub fn is_scalar(&self) -> bool {
        self.profile.is_scalar()
    }

    /// The number of indices, the product of the extents.
    #[inline]
    pub fn size(&self) -> i64 {
        self.size
    }

    /// The least value; 0 unless a stride is negative.
    #[inline]
    pub fn min_value(&self) -> i64 {
        self.min
    }

    /// The greatest value; 0 unless a stride is positive.
    #[inline]
    pub fn max_value(&self) -> i64 {
        self.max
    }

    /// The length of the interval of values, `max - min + 1`: for strides that are not negative, one more than the
    /// greatest value.
    #[inline]
    pub fn cosize(&self) -> i64 {
        self.max - self.min + 1
    }

    /// Mode `index`, from the left; a scalar layout is its own mode 0.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// assert_eq!(layout.mode(1)?.to_string(), "(2,3):(1,8)");
    /// assert_eq!(layout.mode(2).unwrap_err().kind(), "no_such_mode");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode`.
    pub fn mode(&self, index: usize) -> Result<Self, Error> {
        self.modes().nth(index).ok_or_else(|| Error::NoSuchMode { mode: index, rank: self.rank() })
    }

    /// The modes, leftmost first.
    pub fn modes(&self) -> impl Iterator<Item = Self> + '_ {
        self.profile.modes().map(|range| {
            Self::known(SmallVec::from_slice(&self.leaves[range.clone()]), self.profile.mode(range))
        })
    }
}
