//! The parts that ranks have of a dim, each as a slice, and back.

use super::Body::By;
use super::Ops;
use crate::Error;
use crate::arrays::{at, make, with};
use crate::ask::{Ask, Made};

pub(super) const OPS: Ops = &[("split_shards", By(split)), ("join_shards", By(join))];

/// In which chunk of the dim the slice `p` of so many has its chunk `t`.
fn chunk(r: &Ask<'_>, slices: usize, p: usize, t: usize) -> Result<usize, Error> {
    Ok(match (r.word("cut")?.as_str(), t) {
        ("zigzag", 0) => p,
        ("zigzag", _) => 2 * slices - 1 - p,
        _ => t * slices + p,
    })
}

/// Of each chunk of the dim, of so many slices, which slice has it and where.
fn owners(r: &Ask<'_>, slices: usize) -> Result<Vec<(usize, usize)>, Error> {
    let each = if r.word("cut")? == "zigzag" { 2 } else { r.size("tiles")? };
    let mut owners = vec![(0, 0); slices * each];
    for p in 0..slices {
        for t in 0..each {
            owners[chunk(r, slices, p, t)?] = (p, t);
        }
    }
    Ok(owners)
}

fn split(r: &Ask<'_>) -> Made {
    let (a, dim, new) = (r.x(0)?, r.dim("dim")?, r.dim("at")?);
    let shape = r.target(0)?.shape();
    let owners = owners(r, shape[new])?;
    // How long a chunk is.
    let length = a.shape()[dim] / owners.len().max(1);
    let of = |p: usize, t: usize| owners.iter().position(|&owner| owner == (p, t)).unwrap_or_default();
    Ok(vec![make(&shape, |i| {
        let mut from = i.to_vec();
        let p = from.remove(new);
        let j = from[dim];
        at(a, &with(&from, dim, of(p, j / length) * length + j % length))
    })])
}

fn join(r: &Ask<'_>) -> Made {
    let (a, dim, new) = (r.x(0)?, r.size("dim")?, r.dim("at")?);
    let shape = r.target(0)?.shape();
    let owners = owners(r, a.shape()[new])?;
    let length = shape[dim] / owners.len().max(1);
    Ok(vec![make(&shape, |i| {
        let (p, t) = owners[i[dim] / length];
        let mut from = with(i, dim, t * length + i[dim] % length);
        from.insert(new, p);
        at(a, &from)
    })])
}
