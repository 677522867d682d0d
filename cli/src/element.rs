//! Element types of a request: by default f32, and only those that can hold the terms of what a sharding owes.

use reshard_kernels::{CombineOp, DType};
use reshard_sharding::{ReduceOp, Sharding};

use super::error::CliError;

/// The type of this name.
pub(crate) fn dtype(name: Option<&str>) -> Result<DType, CliError> {
    Ok(name.unwrap_or("f32").parse()?)
}

/// Whether elements of this type can be terms of what the sharding owes.
pub(crate) fn computes(dtype: DType, sharding: &Sharding) -> Result<(), CliError> {
    for owed in sharding.partial() {
        match owed.op {
            ReduceOp::Sum => dtype.check_combine(CombineOp::Sum)?,
            ReduceOp::Avg => dtype.check_average()?,
            ReduceOp::Prod => dtype.check_combine(CombineOp::Prod)?,
            ReduceOp::Min => dtype.check_combine(CombineOp::Min)?,
            ReduceOp::Max => dtype.check_combine(CombineOp::Max)?,
        }
    }
    Ok(())
}
