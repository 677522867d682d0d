//! The whole number of an option.

use std::str::FromStr;

/// Parses the whole number of an option.
pub(crate) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}
