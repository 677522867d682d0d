//! One error type for programs that use several crates of the project.

use std::error::Error as StdError;
use std::fmt;

use reshard_layout::ErrorKind;

/// An error of one of the libraries, which `?` converts; one word, boxed.
///
/// Converted are the errors of `layout`, `sharding`, `kernels`, `planner` and `collectives`, those of `ops` and
/// `program` with the feature `program`, and those of `checkpoint` with the feature `checkpoint`.
///
/// ```
/// fn columns(mesh: &str) -> reshard::Result<String> {
///     let mesh: reshard::sharding::Mesh = mesh.parse()?;
///     let draw: reshard::kernels::DType = "bf16".parse()?;
///     Ok(format!("{} ranks of {draw}", mesh.size()))
/// }
///
/// assert_eq!(columns("dp=2,tp=4")?, "8 ranks of bf16");
/// let error = columns("dp=2,dp=4").unwrap_err();
/// assert_eq!((error.kind(), error.code()), (reshard::ErrorKind::InvalidInput, "mesh"));
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Debug)]
pub struct Error(Box<Inner>);

/// The result of a function that may return an error of several of the libraries.
pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    code: &'static str,
    source: Box<dyn StdError + Send + Sync>,
}

impl Error {
    /// Makes an error of a framework, to which [`get_ref`](Error::get_ref) leads back.
    ///
    /// ```
    /// let error = reshard::Error::new(reshard::ErrorKind::Io, "driver", "the device is busy");
    /// assert_eq!((error.code(), error.to_string().as_str()), ("driver", "the device is busy"));
    /// ```
    pub fn new(
        kind: ErrorKind,
        code: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error(Box::new(Inner { kind, code, source: source.into() }))
    }

    /// Returns the error of the crate or the framework, which can be downcast.
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0.source
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the code of the crate's error, finer than the kind, such as `no_such_axis`.
    pub fn code(&self) -> &'static str {
        self.0.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.source.fmt(f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.source()
    }
}

/// Converts the errors of crates, also those that a framework's kernels or exchanges return boxed.
macro_rules! from_errors {
    ($($(#[$only:meta])? $error:ty),* $(,)?) => {
        $($(#[$only])? impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::new(error.kind(), error.code(), error)
            }
        })*

        /// Returns kind and code of the first error of the project in a chain of sources.
        #[cfg(feature = "program")]
        fn classified(outer: &(dyn StdError + 'static)) -> Option<(ErrorKind, &'static str)> {
            std::iter::successors(Some(outer), |&error| error.source()).find_map(|error| {
                $($(#[$only])? if let Some(error) = error.downcast_ref::<$error>() {
                    return Some((error.kind(), error.code()));
                })*
                error.downcast_ref::<Error>().map(|error| (error.kind(), error.code()))
            })
        }
    };
}

from_errors! {
    reshard_layout::Error,
    reshard_sharding::Error,
    reshard_kernels::Error,
    reshard_planner::Error,
    reshard_collectives::Error,
    #[cfg(feature = "program")]
    reshard_ops::Error,
    #[cfg(feature = "program")]
    reshard_program::Error,
    #[cfg(feature = "checkpoint")]
    reshard_checkpoint::Error,
}

/// A failed kernel or exchange of a schedule, whatever the framework's error types are.
#[cfg(feature = "program")]
impl<K, X> From<reshard_program::schedule::RunError<K, X>> for Error
where
    K: Into<Box<dyn StdError + Send + Sync>>,
    X: Into<Box<dyn StdError + Send + Sync>>,
{
    fn from(error: reshard_program::schedule::RunError<K, X>) -> Error {
        let (source, code) = match error {
            reshard_program::schedule::RunError::Kernel(error) => (error.into(), "kernel"),
            reshard_program::schedule::RunError::Exchange(error) => (error.into(), "exchange"),
        };
        let (kind, code) = classified(&*source).unwrap_or((ErrorKind::RankFailed, code));
        Error::new(kind, code, source)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind};

    /// A framework's error around one of the project.
    #[cfg(feature = "program")]
    #[derive(Debug)]
    struct Wrapped(Error);
    #[cfg(feature = "program")]
    impl std::fmt::Display for Wrapped {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("wrapped")
        }
    }
    #[cfg(feature = "program")]
    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_is_one_word_and_keeps_its_source() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let error = Error::from("S(0".parse::<reshard_sharding::Placement>().unwrap_err());
        let source = error.get_ref().downcast_ref::<reshard_sharding::Error>().unwrap();
        assert_eq!((error.to_string(), error.kind()), (source.to_string(), ErrorKind::Parse));
    }

    #[cfg(feature = "program")]
    #[test]
    fn a_failed_run_keeps_the_kind_of_what_failed() {
        use reshard_program::schedule::RunError;
        let exchange = reshard_collectives::Error::WorldTooSmall { needed: 4, given: 2 };
        let error = Error::from(RunError::<std::fmt::Error, _>::Exchange(exchange));
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, "rank"));
        let error = Error::from(RunError::<_, std::fmt::Error>::Kernel(std::fmt::Error));
        assert_eq!((error.kind(), error.code()), (ErrorKind::RankFailed, "kernel"));

        let inner = Error::new(ErrorKind::Unsupported, "no_kernel", "no kernel");
        let error = Error::from(RunError::<_, std::fmt::Error>::Kernel(Wrapped(inner)));
        assert_eq!(
            (error.kind(), error.code(), error.to_string().as_str()),
            (ErrorKind::Unsupported, "no_kernel", "wrapped")
        );
    }
}
