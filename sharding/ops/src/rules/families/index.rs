//! Indexing: the indexed tensor may be sharded, as a rank knows from its region the elements it lacks.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::standard::pointwise;
use crate::rules::strategy::OperandPlacement;
use crate::rules::terms::{
    MAX, MIN, NORM2, P, PROD, R, affine, increasing, linear, multilinear, row, s, selecting,
};
use reshard_sharding::ReduceOp;

/// The passings of an indexed tensor: every result is one element, or nothing if the rank does not hold it.
pub(super) fn looked_up() -> [PartialRule; 5] {
    let of = |terms: OperandPlacement| row([terms.clone(), R], [terms]);
    [multilinear([0]), of(PROD), of(MIN), of(MAX), of(NORM2)]
}

/// The passings of an overwritten tensor.
pub(super) fn copied() -> Vec<PartialRule> {
    vec![selecting([0, 2]), affine([0, 2]), increasing([0, 2])]
}

/// The passings of a tensor that is added to.
pub(super) fn added() -> Vec<PartialRule> {
    vec![row([P, s('k'), s('k')], [P]), linear([0, 2]), affine([0, 2]), increasing([0])]
}

/// The passings of a tensor that is raised to a maximum.
pub(super) fn raised() -> Vec<PartialRule> {
    vec![
        row([MAX, s('k'), s('k')], [MAX]),
        row([MAX, R, MAX], [MAX]),
        row([MAX, R, R], [MAX]),
        row([R, R, MAX], [MAX]),
        row([MIN, R, R], [MIN]),
    ]
}

/// The letters of a tensor, none of which is `k`.
pub(super) fn letters_but_k(r: &BoundCall<'_>, rank: usize) -> Result<Vec<char>, Error> {
    Ok(r.letters(rank + 1)?.into_iter().filter(|&c| c != 'k').take(rank).collect())
}

/// Returns the dims of a tensor and of an index into one of its dims, which is `k` in the second.
///
/// A dim is `*` if its sizes differ, so that only a leading part of it is used.
fn beside(r: &BoundCall<'_>, dim: usize, index: &[usize]) -> Result<(Vec<Dim>, Vec<Dim>), Error> {
    let x = r.input(0)?;
    if index.len() != x.len() {
        return Err(r.error(format!("the index has {} dims, and the input {}", index.len(), x.len())));
    }
    let letters = letters_but_k(r, x.len())?;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for d in 0..x.len() {
        let letter = Dim::from(letters[d]);
        if d == dim {
            a.push(letter);
            b.push(Dim::from('k'));
        } else if x[d] == index[d] {
            a.push(letter.clone());
            b.push(letter);
        } else if index[d] > x[d] {
            return Err(r.error(format!("the index has {} along dim {d}, and the input {}", index[d], x[d])));
        } else {
            a.push(Dim::Whole);
            b.push(Dim::Whole);
        }
    }
    Ok((a, b))
}

/// `ij,ik->ik`: along `j` the sum of what each rank finds.
pub(super) fn gather(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let dim = r.dim("dim")?;
    let (a, b) = beside(r, dim, r.inputs[1])?;
    let rule = RuleBuilder::new().regions([a[dim].clone()]).input(a).input(b.clone()).output(b);
    let rule = rule.passings(looked_up());
    r.op_to(&rule.build()?, &[r.inputs[1]])
}

/// `ij,k->ik`.
pub(super) fn select(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let dim = r.dim("dim")?;
    let letters = letters_but_k(r, r.inputs[0].len())?;
    let mut output = letters.clone();
    output[dim] = 'k';
    let rule = RuleBuilder::new().regions([letters[dim]]).input(letters).input(['k']).output(output);
    let rule = rule.passings(looked_up());
    r.op(&rule.build()?)
}

/// `ij,ik,ik->ij`, or `ij,k,ik->ij` with one index for all: each rank writes the elements that it holds.
pub(super) fn scatter(r: &BoundCall<'_>, one_index: bool, terms: Vec<PartialRule>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    scattered(r, r.dim("dim")?, one_index, terms)
}

fn scattered(r: &BoundCall<'_>, dim: usize, one_index: bool, terms: Vec<PartialRule>) -> Result<Op, Error> {
    let (a, b) = beside(r, dim, r.inputs[2])?;
    if !one_index && r.inputs[1] != r.inputs[2] {
        return Err(r.error("the index and the source have different shapes"));
    }
    let index = if one_index { vec![Dim::from('k')] } else { b.clone() };
    let rule = RuleBuilder::new().regions([a[dim].clone()]).input(a.clone()).input(index).input(b).output(a);
    r.op_to(&rule.role('k', FactorKind::NeedReplication).passings(terms).build()?, &[r.inputs[0]])
}

/// `x[index] = value`, or `+=`, along the first dim.
pub(super) fn put(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    if r.inputs[0].is_empty() {
        return Err(r.error("the first input has no dim to be indexed"));
    }
    scattered(r, 0, true, if r.flag("accumulate")? { added() } else { copied() })
}

/// Returns the op of a rule with a dim `c` of `classes` classes; partial values do not pass.
fn classes(r: &BoundCall<'_>, rule: RuleBuilder) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let n = r.size("classes")?;
    r.op(&rule.size('c', n).regions(['c']).passings([]).build()?)
}

/// `...->...c`.
pub(super) fn one_hot(r: &BoundCall<'_>) -> Result<Op, Error> {
    classes(r, RuleBuilder::new().input([Dim::Rest]).output([Dim::Rest, 'c'.into()]))
}

/// `i->c`.
pub(super) fn bincount(r: &BoundCall<'_>) -> Result<Op, Error> {
    classes(r, RuleBuilder::new().input(['i']).output(['c']))
}

/// `vd,bl->bd`: rows of a table, summed or averaged over a bag.
pub(super) fn bag(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let op = match r.word("mode")?.as_str() {
        "mean" => ReduceOp::Avg,
        _ => ReduceOp::Sum,
    };
    let rule = RuleBuilder::new().input(['v', 'd']).input(['b', 'l']).output(['b', 'd']);
    r.op(&rule.role('l', FactorKind::Reduction(op)).regions(['v']).passing(multilinear([0])).build()?)
}

/// `where(mask, value, x)`.
pub(super) fn masked_fill(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    // The fill value has to be its own partial value.
    let its_own = match r.has("value")?.then(|| r.word("value")).transpose()?.as_deref() {
        Some("0") => Some(selecting([0])),
        Some("1") => Some(row([PROD, R], [PROD])),
        _ => None,
    };
    r.op(&pointwise(2).passings(its_own).passings([affine([0]), increasing([0])]).build()?)
}
