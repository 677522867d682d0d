//! How a tuple is nested, without its values.

use smallvec::SmallVec;

use crate::{Counted, Error};

/// The deepest nesting of a tuple, a bound that keeps every text and every operation finite.
#[doc(hidden)]
pub const MAX_DEPTH: usize = 64;

/// The greatest number of leaves of a tuple.
#[doc(hidden)]
pub const MAX_LEAVES: usize = 1024;

/// The parentheses around one leaf: how many open before it and close after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Nest {
    pub(crate) open: u8,
    pub(crate) close: u8,
}

pub(crate) type Nests = SmallVec<[Nest; 8]>;

/// The nesting of a tuple: for each leaf, how many parentheses open before it and close after it.
///
/// `(4,(2,3))` is `(4 ( 2 3 ))`: the leaves open 1, 1, 0 and close 0, 0, 2. A single leaf without parentheses
/// is a scalar. Two bytes a leaf hold any nesting up to [`MAX_DEPTH`], so up to 8 leaves live inside the
/// value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Profile {
    nests: Nests,
}

impl Clone for Profile {
    fn clone(&self) -> Self {
        Self { nests: SmallVec::from_slice(&self.nests) }
    }
}

impl Profile {
    /// Returns a leaf without parentheses.
    #[inline]
    pub(crate) fn scalar() -> Self {
        let mut nests = Nests::new();
        nests.push(Nest::default());
        Self { nests }
    }

    /// Returns an incomplete profile without leaves.
    #[inline]
    pub(crate) fn blank() -> Self {
        Self { nests: Nests::new() }
    }

    #[inline]
    pub(crate) fn nests_mut(&mut self) -> &mut Nests {
        &mut self.nests
    }

    /// Becomes a scalar for one leaf, a flat tuple for more.
    #[inline]
    pub(crate) fn make_coalesced(&mut self, len: usize) {
        self.nests.clear();
        if len == 1 {
            self.nests.push(Nest::default());
            return;
        }
        self.nests.push(Nest { open: 1, close: 0 });
        for _ in 2..len {
            self.nests.push(Nest::default());
        }
        self.nests.push(Nest { open: 0, close: 1 });
    }

    /// Returns a tuple of `len` leaves, `len >= 1`.
    #[inline]
    pub(crate) fn flat(len: usize) -> Self {
        let mut nests: Nests = SmallVec::from_elem(Nest::default(), len.max(1));
        if let Some(first) = nests.first_mut() {
            first.open = 1;
        }
        if let Some(last) = nests.last_mut() {
            last.close = 1;
        }
        Self { nests }
    }

    /// Takes nests that are balanced, at least one, and within [`MAX_DEPTH`].
    #[inline]
    pub(crate) fn from_nests(nests: Nests) -> Self {
        let profile = Self { nests };
        debug_assert!(profile.is_balanced());
        profile
    }

    /// Returns the tuple of these profiles; `parts` must not be empty.
    pub(crate) fn concat<'a>(parts: impl Iterator<Item = &'a Profile>) -> Result<Self, Error> {
        let mut nests = Nests::new();
        let mut depth = 0;
        for part in parts {
            if nests.len() + part.len() > MAX_LEAVES {
                return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
            }
            depth = depth.max(part.depth());
            nests.extend_from_slice(&part.nests);
        }
        if depth >= MAX_DEPTH {
            return Err(Error::TooDeep { limit: MAX_DEPTH });
        }
        if let Some(first) = nests.first_mut() {
            first.open += 1;
        }
        if let Some(last) = nests.last_mut() {
            last.close += 1;
        }
        Ok(Self { nests })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.nests.len()
    }

    #[inline]
    pub(crate) fn nests(&self) -> &[Nest] {
        &self.nests
    }

    /// Returns `true` if this is one leaf without parentheses.
    #[inline]
    pub(crate) fn is_scalar(&self) -> bool {
        self.nests.first().is_some_and(|nest| nest.open == 0)
    }

    /// Returns the deepest nesting: 0 for a scalar, 1 for a flat tuple.
    pub(crate) fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0, 0);
        for nest in &self.nests {
            depth += usize::from(nest.open);
            deepest = deepest.max(depth);
            depth = depth.saturating_sub(usize::from(nest.close));
        }
        deepest
    }

    /// Returns the number of components: 1 for a scalar.
    pub(crate) fn rank(&self) -> usize {
        self.modes().count()
    }

    /// Returns the leaves of each component, as ranges.
    pub(crate) fn modes(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let (mut depth, mut start) = (0_usize, 0);
        self.nests.iter().enumerate().filter_map(move |(at, nest)| {
            depth = (depth + usize::from(nest.open)).saturating_sub(usize::from(nest.close));
            (depth <= 1).then(|| std::mem::replace(&mut start, at + 1)..at + 1)
        })
    }

    /// Returns the nesting of one component, given its leaves.
    pub(crate) fn mode(&self, range: std::ops::Range<usize>) -> Self {
        let (first, last) = (range.start == 0, range.end == self.len());
        let mut nests: Nests = SmallVec::from_slice(&self.nests[range]);
        if !self.is_scalar() {
            if let (true, Some(nest)) = (first, nests.first_mut()) {
                nest.open -= 1;
            }
            if let (true, Some(nest)) = (last, nests.last_mut()) {
                nest.close -= 1;
            }
        }
        Self { nests }
    }

    fn is_balanced(&self) -> bool {
        let mut depth = 0_usize;
        for (at, nest) in self.nests.iter().enumerate() {
            depth += usize::from(nest.open);
            if depth > MAX_DEPTH || depth < usize::from(nest.close) {
                return false;
            }
            depth -= usize::from(nest.close);
            if depth == 0 && at + 1 < self.nests.len() {
                return false;
            }
        }
        depth == 0 && !self.nests.is_empty()
    }
}
