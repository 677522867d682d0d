//! Factorizations of batches of matrices, and products of several matrices.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::op::Op;

families! {
    "qr" ("") => |r| factored(r, "...ik,...kj", |m, n, k| vec![vec![m, k], vec![k, n]]);
    "svd" ("") => |r| factored(r, "...ik,...k,...kj", |m, n, k| vec![vec![m, k], vec![k], vec![k, n]]);
    "svdvals" ("") => |r| factored(r, "...k", |_, _, k| vec![vec![k]]);
    "lu" ("") => |r| factored(r, "...ii,...ik,...kj", |m, n, k| vec![vec![m, m], vec![m, k], vec![k, n]]);
    "geqrf" ("") => |r| factored(r, "...ij,...k", |m, n, k| vec![vec![m, n], vec![k]]);
    "lu_unpack" ("") => lu_unpack;
    "vander" ("columns: number >= 0") => vander;
    "cross" ("dim: dim = -1") => cross;
    "multi_dot" ("") => multi_dot;
    "tensordot" ("dims: number >= 0 = 2") => tensordot;
    "addr" ("beta: real >= 0 = 1, alpha: real = 1") => |r| super::product::added(r, &[], &['m'], &['n'], &['m', 'n']);
    "addbmm" ("beta: real >= 0 = 1, alpha: real = 1") => |r| super::product::added(r, &[], &['b', 'm', 'k'], &['b', 'k', 'n'], &['m', 'n']);
}

/// Factors `...ij` into outputs whose shapes follow from `m`, `n` and the lesser of them.
fn factored(
    r: &BoundCall<'_>,
    outputs: &str,
    shapes: fn(usize, usize, usize) -> Vec<Vec<usize>>,
) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let [batch @ .., m, n] = r.inputs[0] else {
        return Err(r.error("needs a matrix or a batch of them"));
    };
    let rule = format!("...ij->{outputs} {{i: replicate, j: replicate, k: replicate, none}}").parse()?;
    let shapes: Vec<Vec<usize>> =
        shapes(*m, *n, *m.min(n)).into_iter().map(|s| [batch, &s].concat()).collect();
    r.op_to(&rule, &shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// `P`, `L` and `U` of the packed factors of `lu_factor`, and of its pivots.
fn lu_unpack(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let [batch @ .., m, n] = r.inputs[0] else {
        return Err(r.error("needs a matrix or a batch of them"));
    };
    let k = *m.min(n);
    let whole = "i: replicate, j: replicate, k: replicate, none";
    let rule = format!("...ij,...k->...ii,...ik,...kj {{{whole}}}").parse()?;
    r.op_to(&rule, &[&[batch, &[*m, *m]].concat(), &[batch, &[*m, k]].concat(), &[batch, &[k, *n]].concat()])
}

/// The powers of each number.
fn vander(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    r.op_to(&"...->...* {(P(prod) -> P(prod))}".parse()?, &[&[r.inputs[0], &[r.size("columns")?]].concat()])
}

/// `i*,i*->i*`, of vectors of three.
fn cross(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let dim = r.dim("dim")?;
    if r.inputs.iter().any(|s| s.get(dim) != Some(&3)) {
        return Err(r.error(format!("needs 3 along dim {dim}")));
    }
    let dims = r.dims_whole(r.inputs[0].len(), &[dim])?;
    let rule = RuleBuilder::new().inputs(2, dims.clone()).output(dims);
    r.op_to(
        &rule.passing(crate::rules::terms::multilinear(crate::rules::terms::ALL)).build()?,
        &[r.inputs[0]],
    )
}

/// `ab,bc,cd->ad`.
fn multi_dot(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(2..=24)?;
    let letters = r.letters(n + 1)?;
    let rule = letters.windows(2).fold(RuleBuilder::new(), |rule, pair| rule.input(pair.iter().copied()));
    r.op(&rule.output([letters[0], letters[n]]).build()?)
}

/// `abc,bcd->ad`: the last dims of one with the first of the other.
fn tensordot(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let (a, b, dims) = (r.inputs[0].len(), r.inputs[1].len(), r.size("dims")?);
    if dims > a.min(b) {
        return Err(r.error(format!("dims is {dims}, and the inputs have {a} and {b} dims")));
    }
    let letters = r.letters(a + b - dims)?;
    let rule =
        RuleBuilder::new().input(letters[..a].iter().copied()).input(letters[a - dims..].iter().copied());
    r.op(&rule.output([&letters[..a - dims], &letters[a..]].concat()).build()?)
}
