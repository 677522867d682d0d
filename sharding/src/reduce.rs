//! Reductions that are pending in a partial tensor.

use core::fmt;
use std::str::FromStr;

use crate::Error;
use crate::notation::cursor::Cursor;

/// How the terms that ranks hold make the value.
///
/// With `n` terms `x_0 .. x_{n-1}`: sum `x_0 + ..`, avg `(x_0 + ..) / n`, prod `x_0 * ..`, min and max (NaN propagates).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// The sum of the terms.
    Sum,
    /// The sum of the terms divided by their number; not for integers.
    Avg,
    /// The product of the terms.
    Prod,
    /// The least term.
    Min,
    /// The greatest term.
    Max,
}

impl ReduceOp {
    /// All of them.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

    /// The name: `sum`, `avg`, `prod`, `min` or `max`.
    pub fn as_str(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
        }
    }

    /// The op that combines two terms: avg combines like sum and divides at the end.
    #[must_use]
    pub fn combining(self) -> ReduceOp {
        match self {
            ReduceOp::Sum | ReduceOp::Avg => ReduceOp::Sum,
            ReduceOp::Prod => ReduceOp::Prod,
            ReduceOp::Min => ReduceOp::Min,
            ReduceOp::Max => ReduceOp::Max,
        }
    }

    /// Whether both may be pending in one tensor: the same op, or sum and avg.
    ///
    /// ```
    /// use reshard_sharding::ReduceOp::{Avg, Max, Sum};
    /// assert!(Sum.mixes_with(Avg) && !Sum.mixes_with(Max));
    /// ```
    pub fn mixes_with(self, other: ReduceOp) -> bool {
        self.combining() == other.combining()
    }

    /// Reads an op at a cursor.
    pub(crate) fn read(r: &mut Cursor<'_>) -> Result<ReduceOp, Error> {
        let at = r.here();
        let word = r.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        ReduceOp::ALL
            .into_iter()
            .find(|op| op.as_str() == word)
            .ok_or_else(|| r.error_at(at, "sum, avg, prod, min or max"))
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ReduceOp {
    type Err = Error;
    fn from_str(s: &str) -> Result<ReduceOp, Error> {
        let mut r = Cursor::new("reduce op", s);
        let op = ReduceOp::read(&mut r)?;
        r.finish()?;
        Ok(op)
    }
}
