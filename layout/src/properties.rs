//! The predicates used in preconditions.
//!
//! Most are decided from the leaves. Let these be sorted by the absolute value of their stride, with `u_k`
//! the reach of those below leaf `k`, the sum of `(s-1)|d|`:
//!
//! ```text
//! |d_k| > u_k       for all k    (radix-separable, orthogonal)   implies injective
//! d_k <= u_k + 1    for all k, no stride negative                exactly if the values are all of [0, max]
//! ```

use std::fmt;
use std::str::FromStr;

use crate::algebra::ENUMERATION_BUDGET;
use crate::error::ParseError;
use crate::modes::{Mode, Modes};
use crate::{Error, ErrorCode, IntTuple, Layout};

/// The answer of a predicate that may be too expensive to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Answer {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// The leaves do not decide it, and there are more than 2^18 values.
    Unknown,
}

impl From<bool> for Answer {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

impl FromStr for Answer {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        let all = [Self::Yes, Self::No, Self::Unknown];
        all.into_iter().find(|answer| answer.to_string() == word).ok_or_else(|| {
            let message = "expected yes, no or unknown".to_owned();
            Error::Parse(Box::new(ParseError::new(ErrorCode::Parse, word, 0, message)))
        })
    }
}

/// Returns the leaves of extent > 1 by absolute stride.
fn by_stride<'a>(leaves: impl Iterator<Item = &'a Mode>) -> Modes {
    let mut leaves: Modes = leaves.filter(|leaf| leaf.extent > 1).copied().collect();
    leaves.sort_by_key(|leaf| leaf.stride.unsigned_abs());
    leaves
}

/// Returns `true` if each stride exceeds the reach of those below.
fn is_chain(sorted: &[Mode]) -> bool {
    let mut reach = 0_u64;
    sorted.iter().all(|leaf| {
        let stride = leaf.stride.unsigned_abs();
        let separate = stride > reach;
        // The reach of a layout fits; that of two of them may not, and then saturates.
        reach = reach.saturating_add(stride.saturating_mul(leaf.extent as u64 - 1));
        separate
    })
}

fn sorted_values(layout: &Layout) -> Vec<i64> {
    let mut values: Vec<i64> = layout.values().collect();
    values.sort_unstable();
    values
}

impl Layout {
    /// Returns `true` if the modes are radix-separable: sorted, each stride exceeds the reach of those below.
    ///
    /// Ensures: then the layout is injective, and every value determines its coordinates.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// assert!("(2,3):(10,3)".parse::<Layout>()?.is_orthogonal());
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_orthogonal(&self) -> bool {
        is_chain(&by_stride(self.flat().iter()))
    }

    /// Returns whether different indices have different values.
    ///
    /// The leaves decide, or else enumeration within the budget.
    ///
    /// ```
    /// use reshard_layout::{Answer, Layout};
    ///
    /// assert_eq!("(2,3):(10,3)".parse::<Layout>()?.is_injective(), Answer::Yes);
    /// assert_eq!("(4,4):(3,4)".parse::<Layout>()?.is_injective(), Answer::Yes);
    /// assert_eq!("(5,4):(3,4)".parse::<Layout>()?.is_injective(), Answer::No);
    /// assert_eq!("(2,3):(0,1)".parse::<Layout>()?.is_injective(), Answer::No);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_injective(&self) -> Answer {
        let sorted = by_stride(self.flat().iter());
        if is_chain(&sorted) {
            return Answer::Yes;
        }
        let repeats =
            sorted.windows(2).any(|pair| pair[0].stride.unsigned_abs() == pair[1].stride.unsigned_abs());
        if repeats || sorted.first().is_some_and(|leaf| leaf.stride == 0) || self.size() > self.cosize() {
            return Answer::No;
        }
        if self.size() > ENUMERATION_BUDGET {
            return Answer::Unknown;
        }
        sorted_values(self).windows(2).all(|pair| pair[0] != pair[1]).into()
    }

    /// Returns `true` if the values are exactly `[0, bound)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(3,4):(1,2)".parse()?;
    /// assert!(layout.is_surjective_onto(9));
    /// assert!(!layout.is_surjective_onto(10));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_surjective_onto(&self, bound: i64) -> bool {
        if self.min_value() < 0 || self.cosize() != bound {
            return false;
        }
        let mut reach = 0_i64;
        by_stride(self.flat().iter()).iter().all(|leaf| {
            let reached = leaf.stride - 1 <= reach;
            reach += (leaf.extent - 1) * leaf.stride;
            reached
        })
    }

    /// Returns `true` if the layout is a permutation of `[0, size)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// assert!("(2,3):(3,1)".parse::<Layout>()?.is_compact());
    /// assert!(!"(2,3):(4,1)".parse::<Layout>()?.is_compact());
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_compact(&self) -> bool {
        // As many values as indices, and all of [0, size): no two are equal.
        self.is_surjective_onto(self.size())
    }

    /// Returns whether 0 is the only value that both layouts have.
    ///
    /// ```
    /// use reshard_layout::{Answer, Layout};
    ///
    /// let layout: Layout = "4:2".parse()?;
    /// assert_eq!(layout.is_disjoint(&"(2,2):(1,8)".parse()?), Answer::Yes);
    /// assert_eq!(layout.is_disjoint(&"3:3".parse()?), Answer::No);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_disjoint(&self, other: &Self) -> Answer {
        let moving = |leaf: &&Mode| leaf.stride != 0;
        let both = self.flat().iter().filter(moving).chain(other.flat().iter().filter(moving));
        if is_chain(&by_stride(both)) {
            return Answer::Yes;
        }
        if self.size().saturating_add(other.size()) > ENUMERATION_BUDGET {
            return Answer::Unknown;
        }
        let values = sorted_values(other);
        let shared = |value: i64| value != 0 && values.binary_search(&value).is_ok();
        (!self.values().any(shared)).into()
    }

    /// Returns `true` if both have the same nesting.
    pub fn is_congruent(&self, other: &Self) -> bool {
        self.profile() == other.profile()
    }

    /// Returns `true` if the shape of `other` refines that of this layout.
    ///
    /// Every coordinate into this layout is then one into `other`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,6):(1,4)".parse()?;
    /// assert!(layout.is_compatible(&"((2,2),6):((1,2),4)".parse()?));
    /// assert!(!layout.is_compatible(&"(2,12):(1,2)".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_compatible(&self, other: &Self) -> bool {
        self.shape().is_compatible(&other.shape())
    }
}

impl IntTuple {
    /// Returns `true` if `other`, as a shape, refines this one.
    ///
    /// Every leaf of this one is then an equal number or a tuple with that product in `other`.
    pub fn is_compatible(&self, other: &Self) -> bool {
        if let Some(extent) = self.as_scalar() {
            return other.product() == Ok(extent);
        }
        // Recursion is as deep as the tuple, which is at most MAX_DEPTH.
        other.as_scalar().is_none()
            && self.rank() == other.rank()
            && self.modes().zip(other.modes()).all(|(mine, other)| mine.is_compatible(&other))
    }
}
