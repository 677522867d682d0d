//! Losses: a pointwise op and a reduction of it.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::FactorKind;
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::standard::SCALAR;
use reshard_sharding::ReduceOp;

/// Returns the role of a factor whose losses are reduced, or `None` if it passes.
///
/// A mean with `counted` divides by a number that depends on all of them, so it replicates.
fn role(r: &BoundCall<'_>, counted: bool) -> Result<Option<FactorKind>, Error> {
    Ok(match r.word("reduction")?.as_str() {
        "mean" if counted => Some(FactorKind::NeedReplication),
        "mean" => Some(FactorKind::Reduction(ReduceOp::Avg)),
        "sum" => Some(FactorKind::Reduction(ReduceOp::Sum)),
        _ => None,
    })
}

/// `ab,ab-> {a: avg, b: avg}`.
pub(super) fn pointwise(r: &BoundCall<'_>, terms: Vec<PartialRule>) -> Result<Op, Error> {
    pointwise_of(r, 2, terms)
}

/// Returns the pointwise loss of `inputs` inputs.
pub(super) fn pointwise_of(r: &BoundCall<'_>, inputs: usize, terms: Vec<PartialRule>) -> Result<Op, Error> {
    r.inputs_of(inputs..=inputs)?;
    let letters = r.letters(r.inputs[0].len())?;
    let rule = RuleBuilder::new().inputs(inputs, letters.iter().copied()).passings(terms);
    let rule = match role(r, false)? {
        None => rule.output(letters),
        Some(role) => rule.output(SCALAR).roles(letters, role),
    };
    r.op(&rule.build()?)
}

/// `bc,b->`: a class for each row, or `bcxy,bxy->` for each point of space; a weight for each class may be the third input.
pub(super) fn classes(
    r: &BoundCall<'_>,
    of_classes: FactorKind,
    terms: Vec<PartialRule>,
) -> Result<Op, Error> {
    let weighted = r.inputs_of(2..=3)? == 3;
    let space = r.inputs[0].len().saturating_sub(2);
    let space: String = r.letters(26)?.into_iter().filter(|c| !"bc".contains(*c)).take(space).collect();
    // A mean is divided by the weights of all rows, which depend on all classes.
    let of_classes =
        if weighted && r.word("reduction")? == "mean" { FactorKind::NeedReplication } else { of_classes };
    // A rank with some of the classes has to know their indices.
    let region = matches!(of_classes, FactorKind::Reduction(_)).then_some('c');
    let inputs = [&*format!("bc{space}"), &*format!("b{space}"), "c"];
    let inputs = &inputs[..r.inputs.len()];
    let counted = weighted || r.call.argument("ignore_index").is_some();
    reduced(r, RuleBuilder::new().regions(region), inputs, of_classes, terms, counted)
}

/// Returns the op on operands of these letters.
///
/// `c` indexes the classes, `b` and the letters after `c` index the losses, and all others stay whole.
pub(super) fn rows(
    r: &BoundCall<'_>,
    inputs: &[&str],
    of_classes: FactorKind,
    terms: Vec<PartialRule>,
) -> Result<Op, Error> {
    reduced(r, RuleBuilder::new(), inputs, of_classes, terms, false)
}

/// Returns the op of a rule that already has its other properties.
fn reduced(
    r: &BoundCall<'_>,
    rule: RuleBuilder,
    inputs: &[&str],
    of_classes: FactorKind,
    terms: Vec<PartialRule>,
    counted: bool,
) -> Result<Op, Error> {
    r.inputs_of(inputs.len()..=inputs.len())?;
    let (before, space) = inputs[0].split_once('c').unwrap_or((inputs[0], ""));
    let kept: Vec<char> = before.chars().filter(|&c| c == 'b').chain(space.chars()).collect();
    let mut others: Vec<char> = inputs.iter().flat_map(|dims| dims.chars()).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|c| *c != 'c' && !kept.contains(c));
    let rule = inputs.iter().fold(rule, |rule, dims| rule.input(dims.chars()));
    let rule = rule.role('c', of_classes).roles(others, FactorKind::NeedReplication).passings(terms);
    let rule = match role(r, counted)? {
        None => rule.output(kept),
        Some(role) => rule.output(SCALAR).roles(kept, role),
    };
    r.op(&rule.build()?)
}
