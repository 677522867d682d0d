//! Element types of a request: by default f32.

use reshard_kernels::DType;

use super::error::CliError;

/// The type of this name.
pub(crate) fn dtype(name: Option<&str>) -> Result<DType, CliError> {
    Ok(name.unwrap_or("f32").parse()?)
}
