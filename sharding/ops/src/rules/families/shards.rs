//! Shards as slices: the parts that ranks have of a dim, each as an index of a dim of its own, and back.
//!
//! ```text
//! split_shards(x, parts=2)      zigzag: 0 1 2 3 4 5 6 7  ->  0 1 6 7        out[p] is what rank p of 2 has of x sharded so
//!                                                            2 3 4 5
//! join_shards                   the same elements back
//! ```
//!
//! On ranks of which each has as many slices as any other nothing moves: a rank's slices are what it has. So a shard of the dim is
//! one of the slices, and the other way round, wherever the ranks divide the slices.

use super::Family;
use crate::Error;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, Role};
use crate::rules::op::Op;
use crate::rules::passing::Passing;
use crate::rules::request::Request;
use crate::rules::strategy::{Part, Strategy};
use crate::rules::terms::{ALL, selecting};
use reshard_sharding::Placement;

families! {
    "split_shards" ("dim: dim = 0, at: new dim = 0, parts: number >= 1, cut: zigzag|strided = zigzag, tiles: number >= 1 = 1") => split;
    "join_shards" ("dim: number >= 0 = 0, at: dim = 0, cut: zigzag|strided = zigzag, tiles: number >= 1 = 1") => join;
}

/// `i*->pi* {p: replicate even, (Z(1)->S(p))}`.
fn split(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (dim, at, parts) = (r.dim("dim")?, r.dim("at")?, r.size("parts")?);
    let mut shape = r.inputs[0].to_vec();
    let chunks = chunks(r, parts)?;
    if !shape[dim].is_multiple_of(chunks) {
        return Err(r.error(format!(
            "cuts the {} of dim {dim} into {chunks} chunks, which are not of one size",
            shape[dim]
        )));
    }
    shape[dim] /= parts;
    shape.insert(at, parts);
    let (whole, slices, p) = dims(r, shape.len() - 1, dim, at)?;
    let row = Strategy { inputs: vec![Part::Fixed(cut(r, dim)?)], outputs: vec![Part::Factor(p)] };
    let rule =
        RuleBuilder::new().input(whole).output(slices).passing(selecting(ALL)).passing(Passing::Row(row));
    r.op_to(&rule.role(p, Role::Replicate).even(p).build()?, &[&shape])
}

/// `pi*->i* {p: replicate even, (S(p)->Z(1))}`.
fn join(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (dim, at) = (r.size("dim")?, r.dim("at")?);
    let mut shape = r.inputs[0].to_vec();
    let parts = shape.remove(at);
    if dim >= shape.len() {
        return Err(r.error(format!("joins dim {dim} of a result that has {}", shape.len())));
    }
    let (own, chunks) = (shape[dim], chunks(r, parts)? / parts.max(1));
    if !own.is_multiple_of(chunks) {
        return Err(
            r.error(format!("joins slices of {own} in {chunks} chunks each, which are not of one size"))
        );
    }
    shape[dim] = own.checked_mul(parts).ok_or_else(|| Error::overflow(format!("dim {dim} of {}", r.call)))?;
    let (whole, slices, p) = dims(r, shape.len(), dim, at)?;
    let row = Strategy { inputs: vec![Part::Factor(p)], outputs: vec![Part::Fixed(cut(r, dim)?)] };
    let rule =
        RuleBuilder::new().input(slices).output(whole).passing(selecting(ALL)).passing(Passing::Row(row));
    r.op_to(&rule.role(p, Role::Replicate).even(p).build()?, &[&shape])
}

/// Into how many chunks of one size a dim is cut for so many parts.
fn chunks(r: &Request<'_>, parts: usize) -> Result<usize, Error> {
    let each = match r.word("cut")?.as_str() {
        "zigzag" => 2,
        _ => r.size("tiles")?,
    };
    parts.checked_mul(each).ok_or_else(|| Error::overflow(format!("the chunks of {}", r.call)))
}

/// How ranks cut the dim whose parts are slices.
fn cut(r: &Request<'_>, dim: usize) -> Result<Placement, Error> {
    Ok(match r.word("cut")?.as_str() {
        "zigzag" => Placement::zigzag(dim),
        _ => Placement::StridedShard { dim, split_factor: r.size("tiles")? },
    })
}

/// The dims of the whole, which has so many, those of the slices, and the letter of the slices' own.
fn dims(r: &Request<'_>, rank: usize, dim: usize, at: usize) -> Result<(Vec<Dim>, Vec<Dim>, char), Error> {
    let letters = r.letters(rank + 1)?;
    let p = letters[rank];
    let mut whole: Vec<Dim> = letters[..rank].iter().map(|&letter| letter.into()).collect();
    whole[dim] = Dim::Whole;
    let mut slices = whole.clone();
    slices.insert(at, p.into());
    Ok((whole, slices, p))
}
