//! Reductions that are pending in a partial tensor.
//!
//! An op combines the `n` partial values `x_0 .. x_{n-1}` of the ranks into one value:
//!
//! ```text
//! sum      x_0 + ..               identity -0.0     shards and replicas become partial: one copy stays, the others are the identity
//! avg      (x_0 + ..) / n         none              replicas are already partial values; shards cannot become partial
//! prod     x_0 * ..               1                 as of a sum
//! min max  the least, greatest    inf, -inf         as of a sum
//! normP    (|x_0|^P + ..)^(1/P)   0                 as of a sum, for a tensor without negative elements
//! ```
//!
//! All combine two by two, in any order: that of a norm is `f(a, b) = (|a|^P + |b|^P)^(1/P)`, and
//! `f(f(a, b), c) = f(a, f(b, c))`, as both are the P-th root of the sum of all three powers. (Floats round,
//! as sums do.) `f(a, 0) = |a|`, so 0 is the identity for values that can be a norm. A tensor with a negative
//! element is not a norm, and no partial values of one denote it. The values of a rank may have any sign:
//! `norm1` is the sum of magnitudes, `norminf` the greatest magnitude.
//!
//! Partial values of different norms do not mix: a norm of order 3 of norms of order 2 is not a norm of
//! either order.

use core::fmt;
use core::num::NonZeroU16;
use std::str::FromStr;

use reshard_layout::Exponent;

use crate::Error;
use crate::notation::cursor::Cursor;

/// The op that reduces the partial values of the ranks.
///
/// With `n` partial values `x_0 .. x_{n-1}`: sum `x_0 + ..`, avg `(x_0 + ..) / n`, prod `x_0 * ..`, min and
/// max, and for a norm of exponent `p` `(|x_0|^p + ..)^(1/p)` (NaN propagates).
///
/// ```
/// use reshard_sharding::{Exponent, ReduceOp};
/// assert_eq!("norm2".parse::<ReduceOp>()?, ReduceOp::Norm(Exponent::TWO));
/// assert_eq!("norm2.5".parse::<ReduceOp>()?.to_string(), "norm2.5");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// The sum of the partial values.
    Sum,
    /// The sum of the partial values divided by their number; not for integers.
    Avg,
    /// The product of the partial values.
    Prod,
    /// The least partial value.
    Min,
    /// The greatest partial value.
    Max,
    /// The norm of the partial values with this exponent; not for integers. The value is never negative.
    Norm(Exponent),
}

impl ReduceOp {
    /// One of each kind: of norms the Euclidean one.
    pub const ALL: [ReduceOp; 6] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Norm(Exponent::TWO),
    ];

    /// Returns the op that combines two partial values: avg combines like sum and divides at the end.
    #[must_use]
    #[inline]
    #[doc(hidden)]
    pub fn combining(self) -> ReduceOp {
        match self {
            ReduceOp::Sum | ReduceOp::Avg => ReduceOp::Sum,
            ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max | ReduceOp::Norm(_) => self,
        }
    }

    /// Returns `true` if both may be pending in one tensor: the same op, or sum and avg.
    ///
    /// ```
    /// use reshard_sharding::ReduceOp::{Avg, Max, Sum};
    /// assert!(Sum.mixes_with(Avg) && !Sum.mixes_with(Max));
    /// ```
    #[doc(hidden)]
    pub fn mixes_with(self, other: ReduceOp) -> bool {
        self.combining() == other.combining()
    }

    /// Returns `true` if there is an identity, `x op identity = x`.
    ///
    /// With it a shard, or one of several replicas, becomes a partial value. An average has none. Its partial
    /// values are the replicas themselves, and their sum is [divided](Self::divides).
    #[inline]
    #[doc(hidden)]
    pub const fn has_identity(self) -> bool {
        !self.divides()
    }

    /// Returns `true` if the combined partial values are divided by their number.
    ///
    /// ```
    /// use reshard_sharding::ReduceOp;
    /// assert!(ReduceOp::ALL.into_iter().all(|op| op.divides() == (op == ReduceOp::Avg)));
    /// ```
    #[inline]
    #[doc(hidden)]
    pub const fn divides(self) -> bool {
        match self {
            ReduceOp::Avg => true,
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max | ReduceOp::Norm(_) => false,
        }
    }

    /// Returns `true` if the value is never negative.
    ///
    /// A tensor with a negative element then has no such partial values.
    #[inline]
    #[doc(hidden)]
    pub const fn is_of_magnitudes(self) -> bool {
        match self {
            ReduceOp::Norm(_) => true,
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => false,
        }
    }

    /// Returns a number for each op, of at most 65,005; for hashes and compact storage.
    #[doc(hidden)]
    #[inline]
    pub const fn word(self) -> u16 {
        match self {
            ReduceOp::Sum => 0,
            ReduceOp::Avg => 1,
            ReduceOp::Prod => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Norm(p) => 4 + p.word().get(),
        }
    }

    /// Returns the op with a [`word`](Self::word).
    #[doc(hidden)]
    #[inline]
    pub const fn of_word(word: u16) -> ReduceOp {
        match word {
            0 => ReduceOp::Sum,
            1 => ReduceOp::Avg,
            2 => ReduceOp::Prod,
            3 => ReduceOp::Min,
            more => match NonZeroU16::new(more - 4) {
                None => ReduceOp::Max,
                Some(p) => ReduceOp::Norm(Exponent::of_word(p)),
            },
        }
    }

    /// Reads the exponent of a norm at a cursor.
    pub(crate) fn read_norm(r: &mut Cursor<'_>) -> Result<ReduceOp, Error> {
        let at = r.here();
        let text = r.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        text.parse().map(ReduceOp::Norm).map_err(|e| r.error_at(at, format!("the exponent of a norm ({e})")))
    }

    /// Reads an op at a cursor.
    pub(crate) fn read(r: &mut Cursor<'_>) -> Result<ReduceOp, Error> {
        let at = r.here();
        let word = r.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        match word {
            "sum" => Ok(ReduceOp::Sum),
            "avg" => Ok(ReduceOp::Avg),
            "prod" => Ok(ReduceOp::Prod),
            "min" => Ok(ReduceOp::Min),
            "max" => Ok(ReduceOp::Max),
            "norm0" => Err(r.error_at(at, "sum, for counts of non-zero elements (norm0 is not a norm)")),
            "norm" if r.rest().starts_with("-inf") => {
                Err(r.error_at(at, "min, for least magnitudes (norm-inf is not a norm)"))
            }
            _ => {
                let expected = match word.strip_prefix("norm").map(str::parse::<Exponent>) {
                    Some(Ok(p)) => return Ok(ReduceOp::Norm(p)),
                    Some(Err(e)) => format!("norm2, norm2.5 or norminf ({e})"),
                    None => "sum, avg, prod, min, max or a norm such as norm2 or norminf".to_owned(),
                };
                Err(r.error_at(at, expected))
            }
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReduceOp::Sum => f.write_str("sum"),
            ReduceOp::Avg => f.write_str("avg"),
            ReduceOp::Prod => f.write_str("prod"),
            ReduceOp::Min => f.write_str("min"),
            ReduceOp::Max => f.write_str("max"),
            ReduceOp::Norm(p) => write!(f, "norm{p}"),
        }
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
