//! Selects what reduces partial values: our kernels, or the framework that executes the plan.

use core::fmt;
use core::str::FromStr;

use reshard_kernels::{CombineOp, DType};
use reshard_sharding::{ReduceOp, Sharding};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The arithmetic that reduces partial values, and so the element types that may be partial.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_planner::{Arithmetic, Planner};
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "x=2".parse()?;
/// let (from, to) = (Sharding::parse(&mesh, &[8], "P")?, Sharding::parse(&mesh, &[8], "S(0)")?);
/// assert_eq!(Planner::new().plan(&from, &to, DType::C64).unwrap_err().to_string(), "sum is not defined for c64");
/// assert!(Planner::new().arithmetic(Arithmetic::Framework).plan(&from, &to, DType::C64).is_ok());
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Arithmetic {
    /// Our kernels: planning rejects a reduction that they cannot compute.
    #[default]
    Kernels,
    /// The arithmetic of whatever executes the plan: planning rejects nothing.
    ///
    /// Our engines still reject reductions that they cannot compute.
    Framework,
}

impl Arithmetic {
    /// All variants.
    #[doc(hidden)]
    pub const ALL: [Arithmetic; 2] = [Arithmetic::Kernels, Arithmetic::Framework];

    /// Returns the lower-case name, as [`FromStr`] parses it.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Arithmetic::Kernels => "kernels",
            Arithmetic::Framework => "framework",
        }
    }

    /// Succeeds if this arithmetic can reduce elements of `dtype` as the sharding requires.
    #[inline]
    #[doc(hidden)]
    pub fn check(self, sharding: &Sharding, dtype: DType) -> Result<(), Error> {
        match self {
            Arithmetic::Framework => {}
            Arithmetic::Kernels => {
                for partial in sharding.partial() {
                    if partial.op.divides() {
                        dtype.check_average()?;
                    } else {
                        dtype.check_combine(combine_op(partial.op))?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Arithmetic {
    type Err = Error;
    fn from_str(s: &str) -> Result<Arithmetic, Error> {
        let found = Arithmetic::ALL.into_iter().find(|a| a.as_str() == s);
        found.ok_or_else(|| Error::unknown("arithmetic", s, "kernels or framework"))
    }
}

/// Returns the operation that combines two partial values.
///
/// Those of an average are summed, and the sum is divided once.
#[inline]
pub fn combine_op(op: ReduceOp) -> CombineOp {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => CombineOp::Sum,
        ReduceOp::Prod => CombineOp::Prod,
        ReduceOp::Min => CombineOp::Min,
        ReduceOp::Max => CombineOp::Max,
        ReduceOp::Norm(p) => CombineOp::Norm(p),
    }
}
