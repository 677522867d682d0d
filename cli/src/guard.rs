//! The last resort: a panic is a bug of this program, and still every request gets an answer.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use super::error::CliError;

/// Runs `answer`; a panic becomes an error of the kind `internal`.
///
/// The panic message and location are on the stderr of the process by then.
pub(crate) fn guarded<T>(answer: impl FnOnce() -> Result<T, CliError>) -> Result<T, CliError> {
    // Unwind safety: state that a panic left inconsistent is not used again, since requests share nothing.
    panic::catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|panic| Err(internal(&*panic)))
}

/// Converts a panic to an error.
fn internal(panic: &(dyn Any + Send)) -> CliError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let said = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    CliError::failed("internal", format!("internal error: {said}; please report it with the request"))
}

#[cfg(test)]
mod tests {
    use super::guarded;
    use crate::error::CliError;

    #[test]
    fn a_panic_is_an_error_of_the_kind_internal() {
        for error in [
            guarded::<()>(|| panic!("an index is 7\nof 5")).unwrap_err(),
            guarded::<()>(|| std::panic::panic_any(3)).unwrap_err(),
        ] {
            assert_eq!((error.code(), error.status()), ("internal", 1));
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
        let refused = guarded::<()>(|| Err(CliError::refused("usage", "no"))).unwrap_err();
        assert_eq!((refused.code(), refused.status()), ("usage", 2));
        assert_eq!(guarded(|| Ok(3)).unwrap(), 3);
    }
}
