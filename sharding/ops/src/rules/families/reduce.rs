//! Reductions over given dims.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::terms::{self, row, s};
use reshard_sharding::{Exponent, ReduceOp};

/// The passings of partial values; `None` if they follow from the equation.
pub(super) type Terms = Option<Vec<PartialRule>>;

/// No partial values pass.
pub(super) const NONE: Terms = Some(Vec::new());

/// `abc->ac {b: op}`: each of the dims is combined by its role, with the given passings.
pub(super) fn fold(r: &BoundCall<'_>, role: FactorKind, terms: Terms) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    over(r, &r.dims("dims")?, 1, role, terms)
}

/// `(sum |x|^p)^(1/p)` over given dims, for any p; sharded dims give partial values of the norm.
///
/// ```text
/// p        sharded              partial ops that pass   because
/// 0        P(sum)               none                    counts of non-zero elements add up
/// 1        P(sum), P(norm1)     P(norm1)                values of ranks are not negative, so sums are norms
/// inf      P(max), P(norminf)   P(norminf)              likewise
/// -inf     P(min)               none                    the least magnitude
/// other    P(norm p)            P(norm p)               the norm of norms is the norm
/// < 0                           none                    no reduce op for it, nor for an invalid exponent
/// ```
pub(super) fn norm(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let p = r.word("p")?;
    let op = match (p.parse::<Exponent>(), p.as_str(), p.parse::<f64>()) {
        (Ok(p @ Exponent::ONE), ..) => fold(r, FactorKind::Reduction(ReduceOp::Sum), Some(also_norm(r, p)?)),
        (Ok(p @ Exponent::INFINITY), ..) => {
            fold(r, FactorKind::Reduction(ReduceOp::Max), Some(also_norm(r, p)?))
        }
        (Ok(p), ..) => fold(r, FactorKind::Reduction(ReduceOp::Norm(p)), None),
        (Err(_), "-inf", _) => fold(r, FactorKind::Reduction(ReduceOp::Min), NONE),
        (Err(_), _, Ok(0.0)) => fold(r, FactorKind::Reduction(ReduceOp::Sum), NONE),
        (Err(_), _, Ok(p)) if p.is_finite() => fold(r, FactorKind::NeedReplication, NONE),
        (Err(_), ..) => Err(r.error(format!("p is {p}, and should be a number, inf or -inf"))),
    }?;
    Ok(op.with_nonnegative_outputs())
}

/// Returns the rows of a norm whose partial values are also those of another op.
fn also_norm(r: &BoundCall<'_>, p: Exponent) -> Result<Vec<PartialRule>, Error> {
    let rank = r.inputs[0].len();
    let letters = r.letters(rank)?;
    let sharded = r.dims("dims")?.into_iter().map(|d| row([s(letters[d])], [terms::norm(p)]));
    Ok(sharded.chain([row([terms::norm(p)], [terms::norm(p)])]).collect())
}

/// One dim, which is needed whole, or all of them where none is given.
pub(super) fn one_dim(r: &BoundCall<'_>, outputs: usize) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    over(r, &r.dims("dim")?, outputs, FactorKind::NeedReplication, NONE)
}

/// These dims, as many outputs, a role for each dim.
pub(super) fn over(
    r: &BoundCall<'_>,
    dims: &[usize],
    outputs: usize,
    role: FactorKind,
    terms: Terms,
) -> Result<Op, Error> {
    let rank = r.inputs[0].len();
    let keep = r.flag("keepdim")?;
    let letters = r.letters(rank)?;
    let output = (0..rank)
        .filter(|d| keep || !dims.contains(d))
        .map(|d| if dims.contains(&d) { Dim::ONE } else { letters[d].into() });
    let mut rule = RuleBuilder::new()
        .outputs(outputs, output)
        .input(letters.iter().copied())
        .roles(dims.iter().map(|&d| letters[d]), role);
    if let Some(terms) = terms {
        rule = rule.passings(terms);
    }
    r.op(&rule.build()?)
}
