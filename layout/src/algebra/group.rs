//! Grouping modes and flattening them: the function stays, the nesting changes.

use std::ops::Range;

use crate::layout::Tuple;
use crate::modes::Modes;
use crate::profile::Profile;
use crate::stride::Stride;
use crate::{Error, Layout};

impl<S: Stride> Layout<S> {
    /// Returns the modes of a range made one mode.
    ///
    /// Ensures: the same function.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,3,5,7):(1,2,6,30)".parse()?;
    /// assert_eq!(a.group(1..3)?.to_string(), "(2,(3,5),7):(1,(2,6),30)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode` if the range is empty or ends beyond the rank, `too_deep`.
    pub fn group(&self, range: Range<usize>) -> Result<Self, Error> {
        let rank = self.rank();
        if range.is_empty() || range.end > rank {
            return Err(Error::NoSuchRange { begin: range.start, end: range.end, rank });
        }
        let group = Tuple::collect(self.modes().take(range.end).skip(range.start).map(Ok));
        let (before, after) = (self.modes().take(range.start), self.modes().skip(range.end));
        Tuple::collect(before.map(Ok).chain([group]).chain(after.map(Ok)))
    }

    /// Returns all leaves as modes.
    ///
    /// Ensures: the same function; a scalar stays one.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,(3,(5,))):(1,(2,(6,)))".parse()?;
    /// assert_eq!(a.flatten().to_string(), "(2,3,5):(1,2,6)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[must_use]
    pub fn flatten(&self) -> Self {
        if self.is_scalar() {
            return self.clone();
        }
        let profile = Profile::flat(self.flat().len());
        Self::known(Modes::from_slice(self.flat()), profile)
    }
}
