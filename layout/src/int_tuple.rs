//! Nested tuples of integers: shapes, strides and coordinates.

use smallvec::SmallVec;

use crate::profile::{MAX_LEAVES, Profile};
use crate::{Counted, Error, Quantity};

/// An integer or a tuple of such tuples, `4` or `(4,(2,3))`.
///
/// Shapes, strides and coordinates are written in it.
///
/// A tuple has at least one component; `(4,)` is the tuple of one. The values are stored flat, with two bytes
/// of nesting each; nothing is on the heap up to 8 leaves.
///
/// ```
/// use reshard_layout::IntTuple;
///
/// let tuple: IntTuple = "(4,(2,3))".parse()?;
/// assert_eq!((tuple.rank(), tuple.depth(), tuple.leaves()), (2, 2, &[4, 2, 3][..]));
/// assert_eq!(tuple.mode(1)?.to_string(), "(2,3)");
/// assert_eq!(tuple.product()?, 24);
/// assert_eq!(tuple, IntTuple::tuple(&[IntTuple::scalar(4), IntTuple::flat(&[2, 3])?])?);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IntTuple {
    values: SmallVec<[i64; 8]>,
    profile: Profile,
}

impl Clone for IntTuple {
    fn clone(&self) -> Self {
        Self { values: SmallVec::from_slice(&self.values), profile: self.profile.clone() }
    }
}

impl IntTuple {
    /// Returns an integer, which is not the tuple of one.
    pub fn scalar(value: i64) -> Self {
        Self { values: SmallVec::from_slice(&[value]), profile: Profile::scalar() }
    }

    /// Returns a tuple of integers.
    ///
    /// # Errors
    ///
    /// `bad_extent` if there are none, `too_large` beyond 1024 leaves.
    pub fn flat(values: &[i64]) -> Result<Self, Error> {
        if values.is_empty() {
            return Err(Error::BadExtent { extent: 0 });
        }
        if values.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        Ok(Self { values: SmallVec::from_slice(values), profile: Profile::flat(values.len()) })
    }

    /// Returns a tuple of tuples.
    ///
    /// # Errors
    ///
    /// `bad_extent` if there are none, `too_large` beyond 1024 leaves, `too_deep` beyond 64
    /// levels.
    pub fn tuple(parts: &[Self]) -> Result<Self, Error> {
        if parts.is_empty() {
            return Err(Error::BadExtent { extent: 0 });
        }
        let profile = Profile::concat(parts.iter().map(|part| &part.profile))?;
        Ok(Self { values: parts.iter().flat_map(|part| part.values.iter().copied()).collect(), profile })
    }

    pub(crate) fn from_parts(values: SmallVec<[i64; 8]>, profile: Profile) -> Self {
        debug_assert_eq!(values.len(), profile.len());
        Self { values, profile }
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the integers, leftmost first.
    pub fn leaves(&self) -> &[i64] {
        &self.values
    }

    /// Returns the integer, if this is one and not a tuple.
    pub fn as_scalar(&self) -> Option<i64> {
        if self.profile.is_scalar() { self.values.first().copied() } else { None }
    }

    /// Returns the number of components; 1 for an integer.
    pub fn rank(&self) -> usize {
        self.profile.rank()
    }

    /// Returns the nesting depth; 0 for an integer.
    pub fn depth(&self) -> usize {
        self.profile.depth()
    }

    /// Returns component `index`, from the left; an integer is its own component 0.
    ///
    /// # Errors
    ///
    /// `no_such_mode`.
    pub fn mode(&self, index: usize) -> Result<Self, Error> {
        let range = self.profile.modes().nth(index);
        let range = range.ok_or_else(|| Error::NoSuchMode { mode: index, rank: self.rank() })?;
        Ok(Self {
            values: SmallVec::from_slice(&self.values[range.clone()]),
            profile: self.profile.mode(range),
        })
    }

    /// Returns the components, leftmost first.
    pub fn modes(&self) -> impl Iterator<Item = Self> + '_ {
        self.profile.modes().map(|range| Self {
            values: SmallVec::from_slice(&self.values[range.clone()]),
            profile: self.profile.mode(range),
        })
    }

    /// Returns the product of the integers.
    ///
    /// # Errors
    ///
    /// `overflow`.
    pub fn product(&self) -> Result<i64, Error> {
        self.values.iter().try_fold(1_i64, |product, value| {
            product.checked_mul(*value).ok_or(Error::Overflow {
                quantity: Quantity::Size,
                left: product,
                right: *value,
            })
        })
    }

    /// Returns `true` if both have the same nesting.
    ///
    /// ```
    /// use reshard_layout::IntTuple;
    ///
    /// let tuple: IntTuple = "(4,(2,3))".parse()?;
    /// assert!(tuple.is_congruent(&"(0,(1,0))".parse()?));
    /// assert!(!tuple.is_congruent(&"(4,2,3)".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_congruent(&self, other: &Self) -> bool {
        self.profile == other.profile
    }
}

impl From<i64> for IntTuple {
    fn from(value: i64) -> Self {
        Self::scalar(value)
    }
}
