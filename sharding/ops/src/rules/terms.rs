//! Short names for how terms pass, in which the table is written.

use super::passing::{Operands, Passing};
use super::strategy::{Part, Strategy};
use reshard_sharding::{Exponent, ReduceOp};

/// Every input.
pub(super) const ALL: Operands = Operands::All;

/// Replicated.
pub(super) const R: Part = Part::Replicate;
/// Terms of a sum.
pub(super) const P: Part = Part::Partial(ReduceOp::Sum);
/// Terms of an average.
pub(super) const AVG: Part = Part::Partial(ReduceOp::Avg);
/// Terms of a product.
pub(super) const PROD: Part = Part::Partial(ReduceOp::Prod);
/// Terms of a minimum.
pub(super) const MIN: Part = Part::Partial(ReduceOp::Min);
/// Terms of a maximum.
pub(super) const MAX: Part = Part::Partial(ReduceOp::Max);

/// Terms of a Euclidean norm.
pub(super) const NORM2: Part = norm(Exponent::TWO);

/// Terms of a norm.
pub(super) const fn norm(p: Exponent) -> Part {
    Part::Partial(ReduceOp::Norm(p))
}

/// A shard of a factor.
pub(super) const fn s(factor: char) -> Part {
    Part::Factor(factor)
}

/// Exactly this row.
pub(super) fn row<const I: usize, const O: usize>(inputs: [Part; I], outputs: [Part; O]) -> Passing {
    Passing::Row(Strategy { inputs: inputs.into(), outputs: outputs.into() })
}

pub(super) fn linear(inputs: impl Into<Operands>) -> Passing {
    Passing::Linear(inputs.into())
}

pub(super) fn multilinear(inputs: impl Into<Operands>) -> Passing {
    Passing::Multilinear(inputs.into())
}

pub(super) fn affine(inputs: impl Into<Operands>) -> Passing {
    Passing::Affine(inputs.into())
}

pub(super) fn increasing(inputs: impl Into<Operands>) -> Passing {
    Passing::Increasing(inputs.into())
}

pub(super) fn decreasing(inputs: impl Into<Operands>) -> Passing {
    Passing::Decreasing(inputs.into())
}

pub(super) fn selecting(inputs: impl Into<Operands>) -> Passing {
    Passing::Selecting(inputs.into())
}
