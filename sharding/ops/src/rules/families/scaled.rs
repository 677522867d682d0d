//! Products of scaled matrices and of groups of rows, and what unscales gradients.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::terms::{MAX, R, multilinear, row, s};

families! {
    "scaled_mm" ("") => scaled_mm;
    "grouped_mm" ("") => grouped_mm;
    "check_and_unscale" ("") => check_and_unscale;
}

/// `mk,kn,(),()->mn`, or with a scale for each row of one and column of the other: `mk,kn,m1,1n->mn`.
fn scaled_mm(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(4..=4)?;
    let scale = |i: usize, factor: char, row: bool| match r.inputs[i] {
        [] => Ok(String::new()),
        [1] => Ok("1".to_owned()),
        [1, 1] => Ok("11".to_owned()),
        [_, 1] if row => Ok(format!("{factor}1")),
        [1, _] if !row => Ok(format!("1{factor}")),
        _ => Err(r.error(
            "needs scales of one number, of [rows,1] for the first matrix, of [1,columns] for the second",
        )),
    };
    let (a, b) = (scale(2, 'm', true)?, scale(3, 'n', false)?);
    r.op(&format!("mk,kn,{a},{b}->mn").parse()?)
}

/// `tk,gkn,*->tn {g: sum}`: rows of a group times its matrix; the third input gives the ends of groups.
fn grouped_mm(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let rule =
        RuleBuilder::new().input(['t', 'k']).input(['g', 'k', 'n']).input([Dim::Whole]).output(['t', 'n']);
    r.op_to(
        &rule.regions(['t', 'g']).passing(multilinear([0, 1])).build()?,
        &[&[r.input(0)?.first().copied().unwrap_or(0), r.input(1)?.last().copied().unwrap_or(0)]],
    )
}

/// The op takes a gradient, whether an infinity was found before, and a scale.
///
/// It returns the scaled gradient, and whether one was found.
fn check_and_unscale(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let letters = r.letters(r.inputs[0].len())?;
    let rule = RuleBuilder::new()
        .input(letters.iter().copied())
        .inputs(2, super::super::standard::SCALAR)
        .output(letters.iter().copied())
        .output(super::super::standard::SCALAR)
        .roles(letters.iter().copied(), FactorKind::NeedReplication)
        .passings(letters.iter().map(|&c| row([s(c), R, R], [s(c), MAX])))
        .passings(letters.iter().map(|&c| row([s(c), MAX, R], [s(c), MAX])))
        .passing(row([R, MAX, R], [R, MAX]));
    r.op(&rule.build()?)
}
