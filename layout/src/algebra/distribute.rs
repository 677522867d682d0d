//! Distributing a number of workers over a domain whose extents they do not divide.
//!
//! ```text
//! n_0 = n,   g_k = gcd(s_k, n_k),   n_{k+1} = n_k / g_k           R  =  coalesce( (g_0, g_1, ...) : (1, s_0, s_0 s_1, ...) )
//! ```
//!
//! From the left, each extent takes the greatest common divisor of it and the rest of `n`. So `R` picks
//! `size(R)` indices of the domain, a divisor of `n`, in ascending order, and any layout of that domain
//! composes with it: no mode of `R` crosses a boundary of the shape.

use crate::modes::{Mode, Modes};
use crate::{Error, IntTuple, Layout};

/// Returns the greatest number that divides both; of numbers that are at least 1.
#[doc(hidden)]
pub fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Layout {
    /// Indices of a domain of this shape for `count` workers, or for as many as divide its extents.
    ///
    /// Ensures: coalesced, ascending, `size(R)` divides `count`, and `A o R` exists for every `A` of this
    /// shape.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let over = Layout::domain_distribute(&"(15,14)".parse()?, 6)?;
    /// assert_eq!(over.to_string(), "(3,2):(1,15)");
    /// let a: Layout = "(15,14):(14,1)".parse()?;
    /// assert_eq!(a.compose(&over)?.to_string(), "(3,2):(14,1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent` if an extent or the count is less than 1, `overflow`.
    pub fn domain_distribute(shape: &IntTuple, count: i64) -> Result<Self, Error> {
        if let Some(&extent) = shape.leaves().iter().chain([&count]).find(|extent| **extent < 1) {
            return Err(Error::BadExtent { extent });
        }
        // The strides are below the size, which is checked here.
        shape.product()?;
        let (mut left, mut stride, mut modes) = (count, 1, Modes::new());
        for &extent in shape.leaves() {
            let share = gcd(extent, left);
            modes.push(Mode { extent: share, stride });
            left /= share;
            stride *= extent;
        }
        Self::coalesced(&modes)
    }
}
