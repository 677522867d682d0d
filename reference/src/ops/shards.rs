//! The ranks' parts of a dim, each as a slice, and back.

use super::Body::By;
use super::Ops;
use crate::Error;
use crate::arrays::{at, make, with};
use crate::ask::{Ask, Made};

pub(super) const OPS: Ops = &[("split_shards", By(split)), ("join_shards", By(join))];

/// Returns the indices of the dim of each slice, in their order; the whole has `whole` indices.
///
/// A rank with one slice has its own indices alone, in sequence.
fn indices(r: &Ask<'_>, slices: usize, whole: usize) -> Result<Vec<Vec<usize>>, Error> {
    if slices == 1 {
        return Ok(vec![(0..whole).collect()]);
    }
    let (zigzag, each) = match r.word("cut")?.as_str() {
        "zigzag" => (true, 2),
        "strided" => (false, r.size("tiles")?),
        "ragged" => return counted(r, slices, &|i| i),
        // The counts of all sources for the same slice.
        _ => return counted(r, slices, &|i| i % slices),
    };
    // The chunk of the dim that is chunk `t` of slice `p`.
    let chunk = |p: usize, t: usize| if zigzag && t == 1 { 2 * slices - 1 - p } else { t * slices + p };
    let length = whole / (slices * each).max(1);
    let of = |p: usize| (0..each).flat_map(move |t| (0..length).map(move |i| (p, t, i)));
    Ok((0..slices).map(|p| of(p).map(|(p, t, i)| chunk(p, t) * length + i).collect()).collect())
}

/// Returns the indices if `counts` are given: each count assigns the next indices to slice `of(i)`.
fn counted(r: &Ask<'_>, slices: usize, of: &dyn Fn(usize) -> usize) -> Result<Vec<Vec<usize>>, Error> {
    let mut lists = vec![Vec::new(); slices];
    let mut next = 0;
    for (i, count) in r.sizes("counts")?.into_iter().enumerate() {
        lists[of(i)].extend(next..next + count);
        next += count;
    }
    Ok(lists)
}

fn split(r: &Ask<'_>) -> Made {
    let (a, dim, new) = (r.x(0)?, r.dim("dim")?, r.dim("at")?);
    let shape = r.target(0)?.shape();
    let indices = indices(r, shape[new], a.shape()[dim])?;
    Ok(vec![make(&shape, &|i| {
        let mut from = i.to_vec();
        let p = from.remove(new);
        // After its own indices a slice has zeros.
        indices[p].get(from[dim]).map_or(0.0, |&index| at(a, &with(&from, dim, index)))
    })])
}

fn join(r: &Ask<'_>) -> Made {
    let (a, dim, new) = (r.x(0)?, r.size("dim")?, r.dim("at")?);
    let shape = r.target(0)?.shape();
    let indices = indices(r, a.shape()[new], shape[dim])?;
    let mut owners = vec![(0, 0); shape[dim]];
    for (p, own) in indices.iter().enumerate() {
        for (j, &index) in own.iter().enumerate() {
            owners[index] = (p, j);
        }
    }
    Ok(vec![make(&shape, &|i| {
        let (p, j) = owners[i[dim]];
        let mut from = with(i, dim, j);
        from.insert(new, p);
        at(a, &from)
    })])
}
