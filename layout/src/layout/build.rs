//! Making layouts: filling them in place, and checking what they reach.

use super::{Layout, Leaf, Leaves};
use crate::profile::{MAX_DEPTH, MAX_LEAVES, Nests, Profile};
use crate::{Counted, Error, Quantity};

impl Layout {
    /// The layout of these leaves, nested like this, with everything it can reach checked.
    pub(crate) fn assemble(leaves: Leaves, profile: Profile) -> Result<Self, Error> {
        debug_assert_eq!(leaves.len(), profile.len());
        let mut layout = Self { leaves, profile, size: 1, min: 0, max: 0 };
        layout.seal_checked()?;
        Ok(layout)
    }

    /// The layout of these leaves, of which it is known that everything it reaches fits.
    #[inline]
    pub(crate) fn known(leaves: Leaves, profile: Profile) -> Self {
        let mut layout = Self { leaves, profile, size: 1, min: 0, max: 0 };
        layout.seal();
        layout
    }

    /// A layout without leaves, which is none yet: the operations fill it in place, because moving one that has just
    /// been written costs as much as computing it.
    ///
    /// Whoever makes one seals it before anybody sees it.
    #[inline]
    pub(crate) fn blank() -> Self {
        Self { leaves: Leaves::new(), profile: Profile::blank(), size: 1, min: 0, max: 0 }
    }

    #[inline]
    pub(crate) fn leaves_mut(&mut self) -> &mut Leaves {
        &mut self.leaves
    }

    #[inline]
    pub(crate) fn parts_mut(&mut self) -> (&mut Leaves, &mut Nests) {
        (&mut self.leaves, self.profile.nests_mut())
    }

    /// Computes what the leaves reach, of which it is known that it fits.
    #[inline]
    pub(crate) fn seal(&mut self) {
        let (mut size, mut min, mut max) = (1_i64, 0_i64, 0_i64);
        for leaf in &self.leaves {
            size = size.wrapping_mul(leaf.extent);
            let reach = (leaf.extent - 1).wrapping_mul(leaf.stride);
            min = min.wrapping_add(reach.min(0));
            max = max.wrapping_add(reach.max(0));
        }
        (self.size, self.min, self.max) = (size, min, max);
        debug_assert_eq!(Self::assemble(self.leaves.clone(), self.profile.clone()).as_ref(), Ok(&*self));
    }

    /// Computes what the leaves reach, and fails if it does not fit.
    pub(crate) fn seal_checked(&mut self) -> Result<(), Error> {
        let (mut size, mut min, mut max) = (1_i64, 0_i64, 0_i64);
        for &Leaf { extent, stride } in &self.leaves {
            if extent < 1 {
                return Err(Error::BadExtent { extent });
            }
            let overflow = |quantity, left, right| Error::Overflow { quantity, left, right };
            size = size.checked_mul(extent).ok_or_else(|| overflow(Quantity::Size, size, extent))?;
            let reach = (extent - 1).checked_mul(stride);
            let reach = reach.ok_or_else(|| overflow(Quantity::Span, extent, stride))?;
            let bound = if reach < 0 { &mut min } else { &mut max };
            *bound = bound.checked_add(reach).ok_or_else(|| overflow(Quantity::Span, *bound, reach))?;
        }
        if max.checked_sub(min).and_then(|span| span.checked_add(1)).is_none() {
            return Err(Error::Overflow { quantity: Quantity::Span, left: min, right: max });
        }
        (self.size, self.min, self.max) = (size, min, max);
        Ok(())
    }

    /// Nests the leaves as coalesced ones are: a scalar for one, and for none, which become `1:0`.
    #[inline]
    pub(crate) fn nest_coalesced(&mut self) {
        if self.leaves.is_empty() {
            self.leaves.push(Leaf { extent: 1, stride: 0 });
        }
        self.profile.make_coalesced(self.leaves.len());
    }

    /// The flat layout of these leaves; `1:0` for none.
    pub(crate) fn from_flat(mut leaves: Leaves) -> Result<Self, Error> {
        if leaves.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        if leaves.is_empty() {
            leaves.push(Leaf { extent: 1, stride: 0 });
            return Ok(Self::known(leaves, Profile::scalar()));
        }
        let profile = Profile::flat(leaves.len());
        Self::assemble(leaves, profile)
    }
}

/// A tuple of layouts that is being made, each one mode; nothing is on the heap up to 8 leaves.
pub(crate) struct Tuple {
    layout: Layout,
    depth: usize,
}

impl Tuple {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { layout: Layout::blank(), depth: 0 }
    }

    /// Appends a mode.
    pub(crate) fn push(&mut self, mode: &Layout) -> Result<(), Error> {
        if self.layout.leaves.len() + mode.leaves.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        self.depth = self.depth.max(mode.depth());
        self.layout.leaves.extend_from_slice(&mode.leaves);
        self.layout.profile.nests_mut().extend_from_slice(mode.profile.nests());
        Ok(())
    }

    /// The tuple of the modes so far, and `1:0` for none.
    pub(crate) fn finish(mut self) -> Result<Layout, Error> {
        if self.layout.leaves.is_empty() {
            return Ok(Layout::unit());
        }
        if self.depth >= MAX_DEPTH {
            return Err(Error::TooDeep { limit: MAX_DEPTH });
        }
        let nests = self.layout.profile.nests_mut();
        if let Some(first) = nests.first_mut() {
            first.open += 1;
        }
        if let Some(last) = nests.last_mut() {
            last.close += 1;
        }
        self.layout.seal_checked()?;
        Ok(self.layout)
    }

    /// The tuple of modes that may fail.
    pub(crate) fn collect(modes: impl Iterator<Item = Result<Layout, Error>>) -> Result<Layout, Error> {
        let mut tuple = Self::new();
        for mode in modes {
            tuple.push(&mode?)?;
        }
        tuple.finish()
    }
}
