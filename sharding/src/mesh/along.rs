//! Ranks that differ along some modes of axes only.

use reshard_layout::{AxisStride, Mode};

use super::{Coordinate, Mesh, digit, set_digit};
use crate::Error;

/// Returns the coordinate of a rank that the mesh must hold.
pub fn coordinate_of(mesh: &Mesh, rank: usize) -> Result<Coordinate, Error> {
    mesh.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: mesh.to_string() })
}

/// Calls `f` with the coordinate for every combination of digits along these modes, the first slowest.
pub fn for_each_value(c: &mut Coordinate, modes: &[Mode<AxisStride>], f: &mut impl FnMut(&Coordinate)) {
    let Some((&m, rest)) = modes.split_first() else { return f(c) };
    let own = digit(c, m);
    for value in 0..m.extent {
        set_digit(c, m, value);
        for_each_value(c, rest, f);
    }
    set_digit(c, m, own);
}

/// Returns the ranks whose coordinates differ from a rank's at most along these modes.
///
/// They are in the order of their digits, the first mode slowest.
pub fn members_along(mesh: &Mesh, modes: &[Mode<AxisStride>], rank: usize) -> Result<Vec<usize>, Error> {
    let mut c = coordinate_of(mesh, rank)?;
    for &m in modes {
        set_digit(&mut c, m, 0);
    }
    let mut ranks = Vec::with_capacity(modes.iter().map(|m| m.extent as usize).product());
    for_each_value(&mut c, modes, &mut |c| {
        ranks.push(mesh.rank_at(c).expect("digits are below their extents"));
    });
    Ok(ranks)
}

/// Returns all ranks of two meshes, ascending.
pub fn ranks_of_both(a: &Mesh, b: &Mesh) -> Vec<usize> {
    let mut ranks: Vec<usize> = a.ranks().chain(b.ranks()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
