//! Objectives: the quantity that a plan minimizes.

use core::fmt;
use std::str::FromStr;

use crate::Error;

/// The quantity that the chosen plan minimizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Objective {
    /// Modelled time.
    #[default]
    Time,
    /// Received bytes, then time.
    Bytes,
    /// Peak bytes, then time.
    Peak,
}

impl Objective {
    /// All variants.
    #[doc(hidden)]
    pub const ALL: [Objective; 3] = [Objective::Time, Objective::Bytes, Objective::Peak];

    /// Returns the name: `time`, `bytes` or `peak`.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Objective::Time => "time",
            Objective::Bytes => "bytes",
            Objective::Peak => "peak",
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Objective {
    type Err = Error;
    fn from_str(s: &str) -> Result<Objective, Error> {
        Objective::ALL
            .into_iter()
            .find(|o| o.as_str() == s)
            .ok_or_else(|| Error::unknown("objective", s, "time, bytes or peak"))
    }
}
