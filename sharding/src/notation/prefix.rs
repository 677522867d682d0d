//! Ragged shards of several dims, and in units: `RG((0,1),[5,3])`, `RG(0,units=[1,2,1])`.
//!
//! A ragged shard of the dims `0 .. k` splits their row-major index, at any position within a row. So the
//! sharding is one of the tensor with these dims as one, which has the same memory:
//!
//! ```text
//! [n_0, .., n_(k-1), n_k, ..]  ->  [n_0 * .. * n_(k-1), n_k, ..]
//! ```
//!
//! and the other placements become those of that tensor, with `m_j` the part of dim `j` that earlier ones
//! leave and `in` the product of the `m` after `d`:
//!
//! ```text
//! S(0)    RG(0,[in * |chunk(m_0, n)_i|])                plain if equal to chunks
//! S(d)    SS(0, m_0 * .. * m_(d-1))                     where m_d divides, or in = 1
//! S(d)    S(d - k + 1)                                  after the prefix
//! ```
//!
//! After a ragged shard of the prefix no part of it is a box, so no other placement shards it then. Before
//! it, in the order that `order={..}` gives, any may.
//!
//! Units are shares: rank `r` gets `units_r` parts of their sum, which divides the remaining length.

use crate::partition::chunk;
use crate::placement::{Placement, Placements, Read};
use crate::{Error, Mesh, Sharding};

fn refused(reason: String) -> Error {
    Error::Placement { reason }
}

/// Returns the shape and the placements without prefixes and units.
///
/// The placements apply in `order`.
pub(super) fn resolved(
    mesh: &Mesh,
    shape: &[usize],
    read: &Read,
    order: Option<&[usize]>,
) -> Result<(Vec<usize>, Placements), Error> {
    let axes: Vec<usize> = match order {
        Some(order) => order.to_vec(),
        None => (0..read.placements.len()).collect(),
    };
    let mut list: Vec<Placement> = read.placements.iter().cloned().collect();
    if list.len() != mesh.axes().len() {
        // Errors of this are reported when the sharding is created.
        return Ok((shape.to_vec(), read.placements.clone()));
    }
    let mut all = shape.to_vec();
    if let Some(k) = read.prefix {
        all = flattened(mesh, shape, k, &mut list, &axes)?;
    }
    for (place, &axis) in axes.iter().enumerate() {
        let Placement::Ragged { dim, sizes } = &list[axis] else { continue };
        if !read.units.get(axis).copied().unwrap_or(false) {
            continue;
        }
        // The length that the earlier placements leave: the same on every rank, or creating the sharding
        // fails.
        let earlier =
            |a: usize| if axes[..place].contains(&a) { list[a].clone() } else { Placement::Replicate };
        let before: Placements = (0..list.len()).map(earlier).collect();
        let before = match order {
            None => Sharding::new(mesh, &all, &before)?,
            Some(_) => super::in_order(mesh, &all, &before, &axes)?,
        };
        let left = before.local_shape(mesh.min_rank())?;
        let Some(&len) = left.get(*dim) else {
            return Err(Error::NoSuchDim {
                dim: *dim,
                dims: all.len(),
                placement: Some(list[axis].to_string()),
            });
        };
        list[axis] = Placement::ragged_in_units(*dim, len, sizes)?;
    }
    Ok((all, list.into_iter().collect()))
}

/// Makes the first `k` dims one: gives the shape, and rewrites the placements.
fn flattened(
    mesh: &Mesh,
    shape: &[usize],
    k: usize,
    list: &mut [Placement],
    axes: &[usize],
) -> Result<Vec<usize>, Error> {
    if k > shape.len() {
        return Err(refused(format!(
            "a ragged shard of the dims 0 to {} of a tensor with {} dims",
            k - 1,
            shape.len()
        )));
    }
    let numel = |dims: &[usize]| {
        dims.iter()
            .try_fold(1usize, |p, &n| p.checked_mul(n).filter(|&n| i64::try_from(n).is_ok()))
            .ok_or_else(|| Error::overflow(format!("the number of indices of the dims {dims:?} as one")))
    };
    // The part of the prefix dims that every rank has left. After a ragged shard it is not a box, and after
    // an uneven split it is not the same on all ranks.
    let mut left = Ok(shape[..k].to_vec());
    for &axis in axes {
        let p = list[axis].clone();
        let n = mesh.axes()[axis].size();
        let Some(dim) = p.dim() else { continue };
        if dim >= k {
            list[axis] = moved(&p, dim + 1 - k);
            continue;
        }
        if let Placement::Ragged { .. } = p {
            left = Err(p);
            continue;
        }
        let m = match &mut left {
            Ok(m) => m,
            Err(Placement::Ragged { .. }) => {
                return Err(refused(format!(
                    "{p} shards the result of a ragged shard of the dims 0 to {}, which is not a box; apply it first, \
                     with order={{..}}",
                    k - 1
                )));
            }
            Err(uneven) => {
                return Err(refused(format!(
                    "{p} shards the result of {uneven} on a ragged prefix, whose size differs between ranks; shard a \
                     dim that divides"
                )));
            }
        };
        let (rows, inner) = (numel(&m[..dim])?, numel(&m[dim + 1..])?);
        let Placement::Shard(_) = p else {
            return Err(refused(format!(
                "{p} shards a dim of a ragged prefix; only S(dim) can be combined with it"
            )));
        };
        let even = m[dim].is_multiple_of(n);
        list[axis] = if dim > 0 && (even || inner == 1) {
            Placement::StridedShard { dim: 0, split_factor: rows.max(1) }
        } else if dim == 0 {
            let sizes: Vec<usize> = (0..n).map(|i| chunk(m[0], n, i).len * inner).collect();
            Placement::ragged(0, &sizes)
        } else {
            return Err(refused(format!(
                "{p} splits the {} indices of dim {dim} unevenly inside a ragged prefix, which has no placement; \
                 shard dim 0, or a dim that divides",
                m[dim]
            )));
        };
        if even {
            m[dim] /= n;
        } else {
            left = Err(p);
        }
    }
    let mut all = vec![numel(&shape[..k])?];
    all.extend_from_slice(&shape[k..]);
    Ok(all)
}

/// Returns the placement for another dim.
fn moved(p: &Placement, dim: usize) -> Placement {
    match p {
        Placement::Replicate | Placement::Partial(_) => p.clone(),
        Placement::Shard(_) => Placement::Shard(dim),
        Placement::StridedShard { split_factor, .. } => {
            Placement::StridedShard { dim, split_factor: *split_factor }
        }
        Placement::Ragged { sizes, .. } => Placement::Ragged { dim, sizes: sizes.clone() },
        Placement::Custom { cut, .. } => Placement::Custom { dim, cut: cut.clone() },
    }
}
