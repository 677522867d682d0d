//! The partial values that pass through an op.

use core::fmt;

use super::strategy::{OperandPlacement, Strategy, write_list};
use reshard_sharding::Exponent;
use reshard_sharding::ReduceOp::{self, Avg, Max, Min, Sum};

/// The inputs to which a passing applies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operands {
    /// Every input.
    All,
    /// These inputs, counted from 0.
    Listed(Vec<usize>),
}

impl Operands {
    /// Returns the inputs, of an op with `inputs` inputs.
    fn listed(&self, inputs: usize) -> Vec<usize> {
        match self {
            Operands::All => (0..inputs).collect(),
            Operands::Listed(list) => list.clone(),
        }
    }

    /// Returns for each op the row in which all of these inputs and the outputs are its partial values.
    fn together(&self, inputs: usize, outputs: usize, ops: &[ReduceOp]) -> Vec<Strategy> {
        let list = self.listed(inputs);
        ops.iter().map(|&op| row(inputs, outputs, &list, op, op)).collect()
    }
}

/// Returns the row in which these inputs are partial values of one op, and the outputs of another.
fn row(inputs: usize, outputs: usize, partial: &[usize], before: ReduceOp, after: ReduceOp) -> Strategy {
    let mut row = Strategy::replicated(inputs, 0);
    for &i in partial {
        row.inputs[i] = OperandPlacement::Partial(before);
    }
    row.outputs = vec![OperandPlacement::Partial(after); outputs];
    row
}

impl<const N: usize> From<[usize; N]> for Operands {
    fn from(list: [usize; N]) -> Operands {
        Operands::Listed(list.to_vec())
    }
}

/// A kind of partial values that pass.
///
/// An operand that is `P(op)` along an axis is `x = op_r x_r` over that axis' ranks. Partial values pass `f`
/// if running it on them gives partial values of the result:
///
/// | keyword | partial values of | that pass | because |
/// |---|---|---|---|
/// | `linear` | all listed inputs at once | `P -> P`, `P(avg) -> P(avg)` | `f(sum x_r, sum y_r) = sum f(x_r, y_r)` |
/// | `multilinear` | exactly one listed input | `P -> P`, `P(avg) -> P(avg)` | `f(sum x_r, y) = sum f(x_r, y)` |
/// | `affine` | exactly one listed input | `P(avg) -> P(avg)` | `f(avg x_r, y) = avg f(x_r, y)`, as in `x + y` |
/// | `increasing` | exactly one listed input | `P(max) -> P(max)`, `P(min) -> P(min)` | `f(max x_r, y) = max f(x_r, y)` |
/// | `decreasing` | exactly one listed input | `P(max) -> P(min)`, `P(min) -> P(max)` | `f(max x_r, y) = min f(x_r, y)` |
/// | `selecting` | all listed inputs at once | every op | every output element is one input element |
///
/// Inputs that are not listed are replicated. Where the rule itself has a reduction, only partial values of
/// that reduction pass: `max_j min_r x` is not `min_r max_j x`.
///
/// Norms have many exponents. The rows of a selecting op name the exponent 2; propagation adds rows
/// of others when an input holds such partial values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartialRule {
    /// Sums and averages, of all listed inputs at once.
    Linear(Operands),
    /// Sums and averages, of one listed input.
    Multilinear(Operands),
    /// Averages, of one listed input.
    Affine(Operands),
    /// Greatest and least, of one listed input.
    Increasing(Operands),
    /// Greatest and least, swapped, of one listed input.
    Decreasing(Operands),
    /// Every op, of all listed inputs at once.
    Selecting(Operands),
    /// Exactly this row, which may shard a factor: `(P,S(k),S(k) -> P)`.
    Row(Strategy),
}

impl PartialRule {
    /// Returns the rows of an op with these numbers of inputs and outputs.
    pub(super) fn rows(&self, inputs: usize, outputs: usize) -> Vec<Strategy> {
        let together = |o: &Operands, ops: &[ReduceOp]| o.together(inputs, outputs, ops);
        let one_each = |o: &Operands, ops: &[(ReduceOp, ReduceOp)]| {
            let list = o.listed(inputs);
            ops.iter()
                .flat_map(|&(before, after)| {
                    list.iter().map(move |&i| (i, before, after)).collect::<Vec<_>>()
                })
                .map(|(i, before, after)| row(inputs, outputs, &[i], before, after))
                .collect::<Vec<_>>()
        };
        match self {
            PartialRule::Linear(o) => together(o, &[Sum, Avg]),
            PartialRule::Multilinear(o) => one_each(o, &[(Sum, Sum), (Avg, Avg)]),
            PartialRule::Affine(o) => one_each(o, &[(Avg, Avg)]),
            PartialRule::Increasing(o) => one_each(o, &[(Max, Max), (Min, Min)]),
            PartialRule::Decreasing(o) => one_each(o, &[(Max, Min), (Min, Max)]),
            PartialRule::Selecting(o) => together(o, &ReduceOp::ALL),
            PartialRule::Row(row) => vec![row.clone()],
        }
    }

    /// Returns the rows that pass partial norms of these exponents, if those of every norm pass.
    pub(super) fn rows_of_norms(
        &self,
        inputs: usize,
        outputs: usize,
        exponents: &[Exponent],
    ) -> Vec<Strategy> {
        match self {
            PartialRule::Selecting(o) => {
                let ops: Vec<ReduceOp> = exponents.iter().map(|&p| ReduceOp::Norm(p)).collect();
                o.together(inputs, outputs, &ops)
            }
            PartialRule::Linear(_)
            | PartialRule::Multilinear(_)
            | PartialRule::Affine(_)
            | PartialRule::Increasing(_)
            | PartialRule::Decreasing(_)
            | PartialRule::Row(_) => Vec::new(),
        }
    }

    /// Returns the inputs that it lists; `None` if it applies to all of them, or is a row.
    pub(super) fn listed(&self) -> Option<&[usize]> {
        match self {
            PartialRule::Linear(o)
            | PartialRule::Multilinear(o)
            | PartialRule::Affine(o)
            | PartialRule::Increasing(o)
            | PartialRule::Decreasing(o)
            | PartialRule::Selecting(o) => match o {
                Operands::All => None,
                Operands::Listed(list) => Some(list),
            },
            PartialRule::Row(_) => None,
        }
    }
}

impl fmt::Display for PartialRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, operands) = match self {
            PartialRule::Linear(o) => ("linear", o),
            PartialRule::Multilinear(o) => ("multilinear", o),
            PartialRule::Affine(o) => ("affine", o),
            PartialRule::Increasing(o) => ("increasing", o),
            PartialRule::Decreasing(o) => ("decreasing", o),
            PartialRule::Selecting(o) => ("selecting", o),
            PartialRule::Row(row) => return write!(f, "({row})"),
        };
        f.write_str(word)?;
        match operands {
            Operands::All => Ok(()),
            Operands::Listed(list) => {
                f.write_str("(")?;
                write_list(f, list)?;
                f.write_str(")")
            }
        }
    }
}
