//! What cases are drawn from.

use std::hash::{BuildHasher, RandomState};

/// The seed that a variable of the environment asks for, a number or `random`, which is another one every time; and if it asks
/// for nothing, the one that is always taken. Whoever draws from it prints it where a case fails.
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
        // The standard library draws the keys of its tables from the system. Short numbers are easier to type again.
        Ok("random") => RandomState::new().hash_one(variable) >> 32,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, or `random`: {text:?}")),
    }
}
