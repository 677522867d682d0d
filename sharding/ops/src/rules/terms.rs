//! Short names for the passings of partial values, in which the table is written.

use super::partial_rule::{Operands, PartialRule};
use super::strategy::{OperandPlacement, Strategy};
use reshard_sharding::{Exponent, ReduceOp};

/// Every input.
pub(super) const ALL: Operands = Operands::All;

/// Replicated.
pub(super) const R: OperandPlacement = OperandPlacement::Replicate;
/// Partial values of a sum.
pub(super) const P: OperandPlacement = OperandPlacement::Partial(ReduceOp::Sum);
/// Partial values of an average.
pub(super) const AVG: OperandPlacement = OperandPlacement::Partial(ReduceOp::Avg);
/// Partial values of a product.
pub(super) const PROD: OperandPlacement = OperandPlacement::Partial(ReduceOp::Prod);
/// Partial values of a minimum.
pub(super) const MIN: OperandPlacement = OperandPlacement::Partial(ReduceOp::Min);
/// Partial values of a maximum.
pub(super) const MAX: OperandPlacement = OperandPlacement::Partial(ReduceOp::Max);

/// Partial values of a Euclidean norm.
pub(super) const NORM2: OperandPlacement = norm(Exponent::TWO);

/// Partial values of a norm.
pub(super) const fn norm(p: Exponent) -> OperandPlacement {
    OperandPlacement::Partial(ReduceOp::Norm(p))
}

/// A shard of a factor.
pub(super) const fn s(factor: char) -> OperandPlacement {
    OperandPlacement::Factor(factor)
}

/// Exactly this row.
pub(super) fn row<const I: usize, const O: usize>(
    inputs: [OperandPlacement; I],
    outputs: [OperandPlacement; O],
) -> PartialRule {
    PartialRule::Row(Strategy { inputs: inputs.into(), outputs: outputs.into() })
}

pub(super) fn linear(inputs: impl Into<Operands>) -> PartialRule {
    PartialRule::Linear(inputs.into())
}

pub(super) fn multilinear(inputs: impl Into<Operands>) -> PartialRule {
    PartialRule::Multilinear(inputs.into())
}

pub(super) fn affine(inputs: impl Into<Operands>) -> PartialRule {
    PartialRule::Affine(inputs.into())
}

pub(super) fn increasing(inputs: impl Into<Operands>) -> PartialRule {
    PartialRule::Increasing(inputs.into())
}

pub(super) fn decreasing(inputs: impl Into<Operands>) -> PartialRule {
    PartialRule::Decreasing(inputs.into())
}

pub(super) fn selecting(inputs: impl Into<Operands>) -> PartialRule {
    PartialRule::Selecting(inputs.into())
}
