//! The redistributions that a solver may add without being written in the program.

use core::fmt;
use core::str::FromStr;

use crate::Error;
use crate::notation::refused;

/// The implicit redistributions that the solver may add.
///
/// ```
/// use reshard_program::ImplicitRedistribution;
/// assert_eq!("local-only".parse::<ImplicitRedistribution>()?, ImplicitRedistribution::LocalOnly);
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ImplicitRedistribution {
    /// All redistributions: `allow`.
    #[default]
    Allow,
    /// Only redistributions that communicate in neither direction: `local-only`.
    LocalOnly,
    /// No redistribution: `deny`.
    Deny,
}

impl ImplicitRedistribution {
    const ALL: [Self; 3] = [Self::Allow, Self::LocalOnly, Self::Deny];

    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::LocalOnly => "local-only",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for ImplicitRedistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ImplicitRedistribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match Self::ALL.into_iter().find(|one| one.as_str() == text) {
            Some(one) => Ok(one),
            None => refused(format!(
                "unknown implicit redistribution `{text}`; expected one of: allow, local-only, deny"
            )),
        }
    }
}
