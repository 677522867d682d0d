//! The elementwise operations of a reduction.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What [`combine`](crate::combine) does with two elements; all propagate NaN, integers wrap around.
///
/// Minimum and maximum take -0.0 to be below 0.0, so that they do not depend on the order of their operands.
/// An average is a [`Sum`](CombineOp::Sum) that is divided once at the end, see [`Divide`](crate::Divide).
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
}

impl CombineOp {
    /// All of them.
    pub const ALL: [CombineOp; 4] = [CombineOp::Sum, CombineOp::Prod, CombineOp::Min, CombineOp::Max];

    /// `sum`, `prod`, `min` or `max`.
    pub fn name(self) -> &'static str {
        match self {
            CombineOp::Sum => "sum",
            CombineOp::Prod => "prod",
            CombineOp::Min => "min",
            CombineOp::Max => "max",
        }
    }
}

impl fmt::Display for CombineOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
