//! Replication: how the ranks along a mesh axis hold a value.
//!
//! ```text
//! R    replicated    equal on all ranks, each does different work with it       its gradient is P
//! I    invariant     equal on all ranks, all do the same work with it           its gradient is I
//! P    partial       partial values of a sum                                    its gradient is R
//! V    varying       different on each rank: a shard, or a slice                its gradient is V
//! ```

use core::fmt;
use core::str::FromStr;

use crate::Error;

/// The replication of a value along an axis; `V` specifies how the value varies, where that is known.
///
/// These are the four types of spmd_types, and JAX's invariant, unreduced, reduced and varying.
///
/// ```
/// use reshard_program::Replication;
/// let kept: Replication = "P".parse()?;
/// assert_eq!(kept, Replication::Partial);
/// assert_eq!(kept.gradient().to_string(), "R");
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replication<V = ()> {
    /// `R`: equal on all ranks, each of which does different work with it; its gradient is partial.
    Replicated,
    /// `I`: equal on all ranks, all of which do the same work with it; so is its gradient.
    Invariant,
    /// `P`: partial values of a sum; its gradient is equal on all ranks.
    Partial,
    /// `V`: different on each rank, and so is its gradient.
    Varying(V),
}

impl<V> Replication<V> {
    /// Returns the replication of the gradient.
    #[must_use]
    pub fn gradient(self) -> Replication<V> {
        match self {
            Replication::Replicated => Replication::Partial,
            Replication::Partial => Replication::Replicated,
            same @ (Replication::Invariant | Replication::Varying(_)) => same,
        }
    }

    /// Returns the same with another account of how it varies.
    pub(crate) fn map<W>(self, varying: impl FnOnce(V) -> W) -> Replication<W> {
        match self {
            Replication::Replicated => Replication::Replicated,
            Replication::Invariant => Replication::Invariant,
            Replication::Partial => Replication::Partial,
            Replication::Varying(how) => Replication::Varying(varying(how)),
        }
    }

    /// Returns how it varies, for a value that does.
    pub(crate) fn varying(&self) -> Option<&V> {
        match self {
            Replication::Varying(how) => Some(how),
            Replication::Replicated | Replication::Invariant | Replication::Partial => None,
        }
    }

    /// Returns its letter.
    pub(crate) fn letter(&self) -> &'static str {
        match self {
            Replication::Replicated => "R",
            Replication::Invariant => "I",
            Replication::Partial => "P",
            Replication::Varying(_) => "V",
        }
    }
}

impl fmt::Display for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.letter())
    }
}

impl FromStr for Replication {
    type Err = Error;

    fn from_str(text: &str) -> Result<Replication, Error> {
        let all =
            [Replication::Replicated, Replication::Invariant, Replication::Partial, Replication::Varying(())];
        all.into_iter().find(|one| one.letter() == text.trim()).ok_or_else(|| Error::Graph {
            reason: format!("`{text}` is not a replication along an axis; use R, I, P or V"),
        })
    }
}
