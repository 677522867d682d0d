//! Short lists.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// A list of mostly at most `N` values, which then needs no heap: a slice that can be extended.
///
/// ```
/// use reshard_layout::InlineVec;
/// let mut list: InlineVec<usize, 4> = [2, 3].into_iter().collect();
/// list.push(5);
/// assert_eq!((list.len(), list.iter().product::<usize>()), (3, 30));
/// assert_eq!(list, [2, 3, 5]);
/// ```
#[derive(Clone)]
pub struct InlineVec<T, const N: usize>(SmallVec<[T; N]>);

impl<T, const N: usize> InlineVec<T, N> {
    /// Returns a list of nothing.
    #[inline]
    pub fn new() -> InlineVec<T, N> {
        InlineVec(SmallVec::new())
    }

    /// Puts a value at the end.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.0.push(value);
    }

    /// Returns an empty list with space for `capacity` values.
    #[doc(hidden)]
    #[inline]
    pub fn with_capacity(capacity: usize) -> InlineVec<T, N> {
        InlineVec(SmallVec::with_capacity(capacity))
    }

    /// Takes the value at the end out, if there is one.
    #[doc(hidden)]
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Puts a value before the one at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is past the end.
    #[doc(hidden)]
    #[inline]
    pub fn insert(&mut self, index: usize, value: T) {
        self.0.insert(index, value);
    }

    /// Takes the value at `index` out.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[doc(hidden)]
    #[inline]
    pub fn remove(&mut self, index: usize) -> T {
        self.0.remove(index)
    }

    /// Returns the list as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// Returns the list as a `Vec`.
    #[doc(hidden)]
    pub fn into_vec(self) -> Vec<T> {
        self.0.into_vec()
    }
}

impl<T: Clone, const N: usize> InlineVec<T, N> {
    /// Returns a list of `n` equal values.
    #[doc(hidden)]
    #[inline]
    pub fn from_elem(value: T, n: usize) -> InlineVec<T, N> {
        InlineVec(SmallVec::from_elem(value, n))
    }
}

impl<T: Copy, const N: usize> InlineVec<T, N> {
    /// Returns a copy of a slice.
    #[inline]
    #[doc(hidden)]
    pub fn from_slice(slice: &[T]) -> InlineVec<T, N> {
        InlineVec(SmallVec::from_slice(slice))
    }

    /// Puts copies of these values at the end.
    #[doc(hidden)]
    #[inline]
    pub fn extend_from_slice(&mut self, slice: &[T]) {
        self.0.extend_from_slice(slice);
    }
}

impl<T, const N: usize> Default for InlineVec<T, N> {
    #[inline]
    fn default() -> InlineVec<T, N> {
        InlineVec::new()
    }
}

impl<T, const N: usize> Deref for InlineVec<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> DerefMut for InlineVec<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for InlineVec<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PartialEq, const N: usize, L: AsRef<[T]> + ?Sized> PartialEq<L> for InlineVec<T, N> {
    #[inline]
    fn eq(&self, other: &L) -> bool {
        **self == *other.as_ref()
    }
}

impl<T: Eq, const N: usize> Eq for InlineVec<T, N> {}

impl<T: Hash, const N: usize> Hash for InlineVec<T, N> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T, const N: usize> AsRef<[T]> for InlineVec<T, N> {
    #[inline]
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T, const N: usize> FromIterator<T> for InlineVec<T, N> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> InlineVec<T, N> {
        InlineVec(values.into_iter().collect())
    }
}

impl<T, const N: usize> Extend<T> for InlineVec<T, N> {
    #[inline]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.0.extend(values);
    }
}

impl<T, const N: usize> IntoIterator for InlineVec<T, N> {
    type Item = T;
    type IntoIter = Values<T, N>;

    #[inline]
    fn into_iter(self) -> Values<T, N> {
        Values(self.0.into_iter())
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a InlineVec<T, N> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> core::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a mut InlineVec<T, N> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    #[inline]
    fn into_iter(self) -> core::slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

/// The values of an [`InlineVec`], as an iterator.
#[doc(hidden)]
#[derive(Debug)]
pub struct Values<T, const N: usize>(smallvec::IntoIter<[T; N]>);

impl<T, const N: usize> Iterator for Values<T, N> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T, const N: usize> DoubleEndedIterator for Values<T, N> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        self.0.next_back()
    }
}

impl<T, const N: usize> ExactSizeIterator for Values<T, N> {}

impl<T: Serialize, const N: usize> Serialize for InlineVec<T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for InlineVec<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InlineVec<T, N>, D::Error> {
        SmallVec::deserialize(deserializer).map(InlineVec)
    }
}
