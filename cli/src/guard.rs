//! The last resort: a panic is a bug of this program, and still every question gets its answer.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use super::error::CliError;

/// What `answer` returns, or an error of the kind `internal` where it panics. What panicked, and where, has been said on the
/// stderr of the process by then.
pub(crate) fn guarded<T>(answer: impl FnOnce() -> Result<T, CliError>) -> Result<T, CliError> {
    // Nothing that a panic left half done is looked at again: a question shares nothing with the next.
    panic::catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|panic| Err(internal(&*panic)))
}

/// The error that a panic is.
fn internal(panic: &(dyn Any + Send)) -> CliError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let said = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why");
    CliError::failed(
        "internal",
        format!("this is a bug of reshard, please report it with the request: {said}"),
    )
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
