//! Losses: a pointwise op and a reduction of it.

use crate::Error;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::FactorKind;
use crate::rules::op::Op;
use crate::rules::passing::PartialRule;
use crate::rules::request::BoundCall;
use crate::rules::standard::SCALAR;
use reshard_sharding::ReduceOp;

/// What is done with the losses: the role of a factor that is reduced, or none where it passes. What a mean divides by may be told
/// by all of them.
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

/// The same of so many inputs.
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
    // A mean is divided by the weights of all rows, which take all classes to know.
    let of_classes =
        if weighted && r.word("reduction")? == "mean" { FactorKind::NeedReplication } else { of_classes };
    // A rank with some of the classes has to know which.
    let region = matches!(of_classes, FactorKind::Reduction(_)).then_some('c');
    let inputs = [&*format!("bc{space}"), &*format!("b{space}"), "c"];
    let inputs = &inputs[..r.inputs.len()];
    let counted = weighted || r.call.argument("ignore_index").is_some();
    reduced(r, RuleBuilder::new().regions(region), inputs, of_classes, terms, counted)
}

/// Operands of these letters: `c` is what a class is told by, `b` and those after `c` are what there is a loss for, and all
/// others stay whole.
pub(super) fn rows(
    r: &BoundCall<'_>,
    inputs: &[&str],
    of_classes: FactorKind,
    terms: Vec<PartialRule>,
) -> Result<Op, Error> {
    reduced(r, RuleBuilder::new(), inputs, of_classes, terms, false)
}

/// The same of a rule that says of them what else there is to say.
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
