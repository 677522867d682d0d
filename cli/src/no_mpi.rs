//! The answer to `--engine mpi` where MPI is not compiled in.

use crate::error::CliError;

/// Returns the error of `--engine mpi` in a program without MPI.
pub(crate) fn no_mpi() -> CliError {
    CliError::refused(
        "no_such_engine",
        "engine `mpi` is not compiled in; rebuild with `--features mpi`, or use `--engine threads`",
    )
}
