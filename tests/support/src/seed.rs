//! The seed of random cases.

use std::hash::{BuildHasher, RandomState};

/// Returns the seed that an environment variable requests, a number or `random`, or a default.
///
/// `random` is another seed every time. The caller prints the seed where a case fails.
///
/// ```
/// use reshard_test_support::seed;
/// assert_eq!(seed("RESHARD_NO_SUCH_SEED", 1), 1);
/// ```
///
/// # Panics
///
/// If the variable is neither `random` nor a number.
pub fn seed(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable).as_deref() {
        Err(_) | Ok("") => otherwise,
        // The standard library draws the keys of its tables from the system. Short numbers are easier to type
        // again.
        Ok("random") => RandomState::new().hash_one(variable) >> 32,
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("{variable} must be a number or `random`, not {text:?}"))
        }
    }
}
