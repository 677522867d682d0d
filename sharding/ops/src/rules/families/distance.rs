//! Distances and angles of vectors.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::terms::multilinear;

families! {
    "cdist" ("p: 2|1|0|inf = 2") => |r| apart(r, 2, "...ik,...jk->...ij");
    "pairwise_distance" ("p: 2|1|0|inf = 2, eps: real >= 0 = 0.000001") => |r| apart(r, 2, "...k,...k->...");
    "dist" ("p: 2|1|0|inf = 2") => dist;
    "pdist" ("p: 2|1|0|inf = 2") => pdist;
    "cosine_similarity" ("dim: dim = 1, eps: real >= 0 = 0.00000001") => cosine_similarity;
    "renorm" ("dim: dim, p: real = 2, maxnorm: real >= 0 = none") => renorm;
    "weight_norm" ("dim: dim = 0") => weight_norm;
}

/// Returns how the coordinates of a difference are combined.
fn of_coordinates(r: &BoundCall<'_>) -> Result<&'static str, Error> {
    Ok(match r.word("p")?.as_str() {
        "inf" => "max",
        "2" => "replicate",
        _ => "sum",
    })
}

fn apart(r: &BoundCall<'_>, inputs: usize, equation: &str) -> Result<Op, Error> {
    r.inputs_of(inputs..=inputs)?;
    r.op(&format!("{equation} {{k: {}, none}}", of_coordinates(r)?).parse()?)
}

/// The distance of two tensors as flat vectors.
fn dist(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let letters: String = r.letters(r.inputs[0].len())?.into_iter().collect();
    let role = of_coordinates(r)?;
    let roles: Vec<String> = letters.chars().map(|c| format!("{c}: {role}")).collect();
    r.op(&format!("{letters},{letters}->() {{{}}}", [roles, vec!["none".to_owned()]].concat().join(", "))
        .parse()?)
}

/// The distances of all pairs of rows.
fn pdist(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let n = r.input(0)?.first().copied().unwrap_or(0);
    let pairs =
        n.checked_mul(n.saturating_sub(1)).ok_or_else(|| Error::overflow("pairs of rows".to_owned()))? / 2;
    r.op_to(&format!("*k->* {{k: {}, none}}", of_coordinates(r)?).parse()?, &[&[pairs]])
}

/// Reduces one dim.
fn cosine_similarity(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let (letters, dim) = (r.letters(r.inputs[0].len())?, r.dim("dim")?);
    let mut left = letters.clone();
    left.remove(dim);
    let rule = RuleBuilder::new().inputs(2, letters.iter().copied()).output(left);
    r.op(&rule.role(letters[dim], FactorKind::NeedReplication).passings([]).build()?)
}

/// Scales down each index of a dim whose norm is too large.
fn renorm(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (letters, dim) = (r.letters(r.inputs[0].len())?, r.dim("dim")?);
    let others = letters.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, &c)| c);
    let rule = RuleBuilder::new().input(letters.iter().copied()).output(letters.iter().copied());
    r.op(&rule.roles(others, FactorKind::NeedReplication).passings([]).build()?)
}

/// `ij,i1->ij {j: replicate}`: directions and norms.
fn weight_norm(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let (letters, dim) = (r.letters(r.inputs[0].len())?, r.dim("dim")?);
    let lengths = letters.iter().enumerate().map(|(d, &c)| if d == dim { c.into() } else { Dim::ONE });
    let others = letters.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, &c)| c);
    let rule = RuleBuilder::new()
        .input(letters.iter().copied())
        .input(lengths)
        .output(letters.iter().copied())
        .roles(others, FactorKind::NeedReplication);
    r.op(&rule.passing(multilinear([1])).build()?)
}
