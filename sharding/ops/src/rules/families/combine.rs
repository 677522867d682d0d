//! Combinations of vectors and matrices: grids, pairs and blocks.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim;
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::strategy::Strategy;
use crate::rules::terms::{ALL, AVG, MAX, MIN, P, PROD, R, selecting};

families! {
    "meshgrid" ("") => meshgrid;
    "cartesian_prod" ("") => cartesian_prod;
    "block_diag" ("") => block_diag;
}

/// `a,b->ab,ab`: each vector along a separate dim.
fn meshgrid(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(1..=24)?;
    let letters = r.letters(n)?;
    // Partial values of one vector are partial values of its grid.
    let of_one = |i: usize, term: &crate::rules::strategy::OperandPlacement| {
        let mut parts = vec![R; n];
        parts[i] = term.clone();
        PartialRule::Row(Strategy { inputs: parts.clone(), outputs: parts })
    };
    let terms = [P, AVG, PROD, MIN, MAX];
    let rule = letters.iter().fold(RuleBuilder::new(), |rule, &c| rule.input([c]));
    let rule = rule.outputs(n, letters.iter().copied());
    r.op(&rule.passings((0..n).flat_map(|i| terms.iter().map(move |t| of_one(i, t)))).build()?)
}

/// `a,b->(ab)*`: every pair.
fn cartesian_prod(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(2..=24)?;
    let letters = r.letters(n)?;
    let size = |s: &&[usize]| s.first().copied().unwrap_or(1);
    let pairs = r.inputs.iter().map(size).try_fold(1usize, usize::checked_mul);
    let pairs = pairs.ok_or_else(|| Error::overflow("the pairs of a product".to_owned()))?;
    let rule = letters.iter().fold(RuleBuilder::new(), |rule, &c| rule.input([c]));
    let rule = rule.output([Dim::compound(letters), Dim::Whole]).passing(selecting(ALL));
    r.op_to(&rule.build()?, &[&[pairs, n]])
}

/// `**,**->**`: matrices in sequence along the diagonal.
fn block_diag(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(1..=usize::MAX)?;
    let mut shape = [0usize; 2];
    for s in r.inputs {
        let [rows, columns] = s else { return Err(r.error("needs matrices")) };
        for (all, n) in shape.iter_mut().zip([rows, columns]) {
            *all = all.checked_add(*n).ok_or_else(|| Error::overflow("a diagonal of blocks".to_owned()))?;
        }
    }
    let matrix = [Dim::Whole, Dim::Whole];
    let rule = RuleBuilder::new().inputs(n, matrix.clone()).output(matrix).passing(selecting(ALL));
    r.op_to(&rule.build()?, &[&shape])
}
