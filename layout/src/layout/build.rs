//! Constructing layouts: filling them in place, and checking their reach.

use super::Layout;
use crate::modes::{Mode, Modes, coalesce_into};
use crate::profile::{MAX_DEPTH, MAX_LEAVES, Nests, Profile};
use crate::stride::Stride;
use crate::{Counted, Error};

impl<S: Stride> Layout<S> {
    /// Returns the layout of these modes, nested like this, with everything it can reach checked.
    pub(crate) fn assemble(modes: Modes<S>, profile: Profile) -> Result<Self, Error> {
        debug_assert_eq!(modes.len(), profile.len());
        let (size, reach) = S::seal(modes.iter().copied())?;
        Ok(Self { modes, profile, size, reach })
    }

    /// Returns the layout of these modes, of which it is known that everything it reaches fits.
    #[inline]
    pub(crate) fn known(modes: Modes<S>, profile: Profile) -> Self {
        let (size, reach) = S::known(modes.iter().copied());
        let layout = Self { modes, profile, size, reach };
        layout.debug_check();
        layout
    }

    /// Returns the layout of these modes, without checks.
    ///
    /// Requires that they are coalesced and that their reach fits.
    pub(crate) fn known_flat(modes: Modes<S>) -> Self {
        let mut layout = Self::blank();
        layout.modes = modes;
        layout.nest_coalesced();
        layout.seal();
        layout
    }

    /// Returns `1:0`.
    pub(crate) fn unit_of() -> Self {
        Self::known_flat(Modes::new())
    }

    /// Returns an incomplete layout without modes, which the operations fill in place.
    ///
    /// Copying a layout that has just been written costs as much as computing it. The creator must seal it
    /// before use.
    #[inline]
    pub(crate) fn blank() -> Self {
        let (size, reach) = S::known(core::iter::empty());
        Self { modes: Modes::new(), profile: Profile::blank(), size, reach }
    }

    #[inline]
    pub(crate) fn modes_mut(&mut self) -> &mut Modes<S> {
        &mut self.modes
    }

    #[inline]
    pub(crate) fn parts_mut(&mut self) -> (&mut Modes<S>, &mut Nests) {
        (&mut self.modes, self.profile.nests_mut())
    }

    /// Computes the reach of the modes, which is known to fit.
    #[inline]
    pub(crate) fn seal(&mut self) {
        (self.size, self.reach) = S::known(self.modes.iter().copied());
        self.debug_check();
    }

    #[inline]
    fn debug_check(&self) {
        debug_assert_eq!(Self::assemble(self.modes.clone(), self.profile.clone()).as_ref(), Ok(self));
    }

    /// Computes the reach of the modes, and fails if it does not fit.
    pub(crate) fn seal_checked(&mut self) -> Result<(), Error> {
        (self.size, self.reach) = S::seal(self.modes.iter().copied())?;
        Ok(())
    }

    /// Nests the leaves as coalesced ones are: a scalar for one, and for none, which become `1:0`.
    #[inline]
    pub(crate) fn nest_coalesced(&mut self) {
        if self.modes.is_empty() {
            self.modes.push(Mode { extent: 1, stride: S::ZERO });
        }
        self.profile.make_coalesced(self.modes.len());
    }

    /// Returns the coalesced layout of these modes.
    ///
    /// ```
    /// use reshard_layout::{Layout, Mode};
    ///
    /// let layout = Layout::coalesced(&[Mode::new(2, 4), Mode::new(1, 7), Mode::new(3, 8)])?;
    /// assert_eq!(layout.to_string(), "6:4");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`, `too_large`.
    #[doc(hidden)]
    pub fn coalesced(modes: &[Mode<S>]) -> Result<Self, Error> {
        if modes.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        if let Some(mode) = modes.iter().find(|mode| mode.extent < 1) {
            return Err(Error::BadExtent { extent: mode.extent });
        }
        let mut layout = Self::blank();
        coalesce_into(modes, &mut layout.modes);
        layout.nest_coalesced();
        // The reach of coalesced modes is that of all.
        layout.seal_checked()?;
        Ok(layout)
    }

    /// Returns the flat layout of these modes; `1:0` for none.
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout, Mode};
    ///
    /// let modes = [Mode::new(4, AxisStride::local(1)), Mode::new(2, AxisStride::along(1, 0))];
    /// assert_eq!(Layout::from_flat(modes.into_iter().collect())?.to_string(), "(4,2):(1,1@0)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`, `too_large`.
    #[doc(hidden)]
    pub fn from_flat(modes: Modes<S>) -> Result<Self, Error> {
        if modes.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        if modes.is_empty() {
            return Ok(Self::unit_of());
        }
        let profile = Profile::flat(modes.len());
        Self::assemble(modes, profile)
    }
}

/// A tuple of layouts that is being made, each one mode; nothing is on the heap up to 8 leaves.
pub(crate) struct Tuple<S: Stride = i64> {
    layout: Layout<S>,
    depth: usize,
}

impl<S: Stride> Tuple<S> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { layout: Layout::blank(), depth: 0 }
    }

    /// Appends a mode.
    pub(crate) fn push(&mut self, mode: &Layout<S>) -> Result<(), Error> {
        if self.layout.modes.len() + mode.modes.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        self.depth = self.depth.max(mode.depth());
        self.layout.modes.extend_from_slice(&mode.modes);
        self.layout.profile.nests_mut().extend_from_slice(mode.profile.nests());
        Ok(())
    }

    /// Returns the tuple of the modes so far, and `1:0` for none.
    pub(crate) fn finish(mut self) -> Result<Layout<S>, Error> {
        if self.layout.modes.is_empty() {
            return Ok(Layout::unit_of());
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

    /// Returns the tuple of modes that may fail.
    pub(crate) fn collect(modes: impl Iterator<Item = Result<Layout<S>, Error>>) -> Result<Layout<S>, Error> {
        let mut tuple = Self::new();
        for mode in modes {
            tuple.push(&mode?)?;
        }
        tuple.finish()
    }
}
