//! Space sampled at points, and channels in another order.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::op::Op;

families! {
    "grid_sample" ("mode: linear|nearest|cubic = linear") => grid_sample;
    "affine_grid" ("size: spatial >= 1") => affine_grid;
    "channel_shuffle" ("groups: number >= 1") => channel_shuffle;
    "pixel_unshuffle" ("factor: number >= 1") => pixel_unshuffle;
}

/// `bc**,bhw*->bchw`: each point is a mean of its neighbours.
fn grid_sample(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let space = match r.inputs[0].len() {
        4 => "hw",
        5 => "dhw",
        _ => return Err(r.error("needs an input with batch, channels and 2 or 3 spatial dims")),
    };
    let terms = if r.word("mode")? == "nearest" { "selecting(0)" } else { "multilinear(0)" };
    r.op(&format!("bc{},b{space}*->bc{space} {{{terms}}}", "*".repeat(space.len())).parse()?)
}

/// `b**->bhw*`: points of a plane, transformed by a matrix each.
fn affine_grid(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (space, size) = match r.inputs[0] {
        [_, 2, 3] => ("hw", r.spatial("size", 2)?),
        [_, 3, 4] => ("dhw", r.spatial("size", 3)?),
        _ => return Err(r.error("needs a batch of matrices of [2,3] or [3,4]")),
    };
    let sizes: Vec<String> = space.chars().zip(&size).map(|(c, n)| format!("{c}: region {n}")).collect();
    let rule = format!("b**->b{space}* {{{}, linear}}", sizes.join(", ")).parse()?;
    r.op_to(&rule, &[&[&r.inputs[0][..1], &size[..], &[space.len()]].concat()])
}

/// `b(gc)xy->b(cg)xy`; a rank with a part of the groups has to know their number.
fn channel_shuffle(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    r.op(&format!("b(gc)...->b(cg)... {{g: region {}, selecting}}", r.size("groups")?).parse()?)
}

/// `bc(hr)(ws)->b(crs)hw`.
fn pixel_unshuffle(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let f = r.size("factor")?;
    r.op(&format!("bc(hr)(ws)->b(crs)hw {{r: {f} replicate, s: {f} replicate, selecting}}").parse()?)
}
