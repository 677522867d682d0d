//! The elementwise operations of a reduction.

use std::fmt;

use reshard_layout::Exponent;

use serde::{Deserialize, Serialize};

/// The operation of [`combine`](crate::combine) on two elements; all propagate NaN, integers wrap around.
///
/// Minimum and maximum order -0.0 below 0.0, so that they do not depend on the order of their operands.
/// An average is a [`Sum`](CombineOp::Sum) that is divided once at the end, see [`PreparedDivide`](crate::PreparedDivide).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CombineOp {
    /// `a + b`, identity -0.0 (0 for integers): adding it changes no bit, while 0.0 would turn -0.0 into 0.0.
    Sum,
    /// `a * b`, identity 1.
    Prod,
    /// The smaller one, identity infinity (the greatest integer).
    Min,
    /// The greater one, identity minus infinity (the least integer).
    Max,
    /// `(|a|^p + |b|^p)^(1/p)`, never negative, with identity 0; floats only.
    Norm(Exponent),
}

impl CombineOp {
    /// The operations that every dtype with arithmetic has.
    #[doc(hidden)]
    pub const ALL: [CombineOp; 4] = [CombineOp::Sum, CombineOp::Prod, CombineOp::Min, CombineOp::Max];

    /// One norm for each algorithm.
    #[doc(hidden)]
    pub const NORMS: [CombineOp; 4] = [
        CombineOp::Norm(Exponent::ONE),
        CombineOp::Norm(Exponent::TWO),
        CombineOp::Norm(Exponent::THREE),
        CombineOp::Norm(Exponent::INFINITY),
    ];

    /// Returns `true` if only floats have the operation: a norm of integers would have to round.
    #[doc(hidden)]
    #[inline]
    pub const fn is_of_floats(self) -> bool {
        match self {
            CombineOp::Norm(_) => true,
            CombineOp::Sum | CombineOp::Prod | CombineOp::Min | CombineOp::Max => false,
        }
    }
}

impl fmt::Display for CombineOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CombineOp::Sum => f.write_str("sum"),
            CombineOp::Prod => f.write_str("prod"),
            CombineOp::Min => f.write_str("min"),
            CombineOp::Max => f.write_str("max"),
            CombineOp::Norm(p) => write!(f, "norm{p}"),
        }
    }
}
