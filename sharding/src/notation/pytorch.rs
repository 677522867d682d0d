//! PyTorch's print of placements and shard order: `S(0)[1]S(0)[0]R`.
//!
//! The number after a shard is the position of its mesh axis among those that shard the same dim, in the
//! order in which they chunk it. Specs in mesh order are printed without numbers.

use core::fmt::Write as _;

use smallvec::SmallVec;

use super::cursor::Cursor;
use super::dims::{axes_of_dims, not_chunks};
use crate::placement::Placement;
use crate::{Error, ReduceOp, Sharding};

const NOTATION: &str = "PyTorch";

/// Returns the order in which axes apply, from the numbers after their shards.
pub(super) fn order(
    r: &Cursor<'_>,
    placements: &[Placement],
    numbers: &[Option<usize>],
) -> Result<SmallVec<[usize; 4]>, Error> {
    let mut keyed: SmallVec<[(usize, usize, usize); 4]> = SmallVec::new();
    for (axis, (p, number)) in placements.iter().zip(numbers).enumerate() {
        match (p, *number) {
            (Placement::Shard(dim), number) => keyed.push((*dim, number.unwrap_or(0), axis)),
            (Placement::StridedShard { .. } | Placement::Ragged { .. } | Placement::Custom { .. }, _) => {
                return Err(r.error_at(
                    0,
                    "only plain shards together with numbered ones: numbers are an order of plain shards",
                ));
            }
            (Placement::Replicate | Placement::Partial(_), _) => {}
        }
    }
    keyed.sort_unstable();
    let mut next = (0, 0);
    for &(dim, number, _) in &keyed {
        let want = if next.0 == dim { next.1 } else { 0 };
        if number != want {
            return Err(r.error_at(0, format!("the axes of dim {dim} numbered from 0, each once")));
        }
        next = (dim, want + 1);
    }
    Ok(keyed.into_iter().map(|k| k.2).collect())
}

/// Writes partial placements as PyTorch prints them: those of a norm are a separate class.
fn write_partial(text: &mut String, op: ReduceOp) -> core::fmt::Result {
    match op {
        ReduceOp::Norm(p) => write!(text, "_NormP({p})"),
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => {
            write!(text, "P({op})")
        }
    }
}

impl Sharding {
    /// Returns the sharding as PyTorch prints a spec, with the shard order where it is not that of the mesh.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),S(0)")?;
    /// assert_eq!(s.to_pytorch()?, "S(0)[1]S(0)[0]");
    /// let s = Sharding::parse(&mesh, &[64, 32], "SS(0,4),P")?;
    /// assert_eq!(s.to_pytorch()?, "_S(0, 4)P(sum)");
    /// let s = Sharding::parse(&mesh, &[64, 32], "S(0),P(norm2)")?;
    /// assert_eq!(s.to_pytorch()?, "S(0)_NormP(2)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` where neither an order of axes nor strided shards hold it.
    pub fn to_pytorch(&self) -> Result<String, Error> {
        if let Some(text) = self.by_shard_order() {
            return Ok(text);
        }
        let mut text = String::new();
        for p in self.placements()?.iter() {
            // Writing to a string does not fail.
            let _ = match p {
                Placement::StridedShard { dim, split_factor } => write!(text, "_S({dim}, {split_factor})"),
                Placement::Replicate | Placement::Shard(_) | Placement::Ragged { .. } => write!(text, "{p}"),
                Placement::Partial(op) => write_partial(&mut text, *op),
                Placement::Custom { dim, .. } => return Err(not_chunks(self, NOTATION, *dim)),
            };
        }
        Ok(text)
    }

    /// Returns the spec with plain shards in an order of axes, if that is all it is.
    fn by_shard_order(&self) -> Option<String> {
        let order: SmallVec<[(usize, usize); 4]> = match self.cuts() {
            Some(cuts) if self.whole_axes() && cuts.iter().all(|c| c.cut.is_plain()) => {
                cuts.iter().map(|c| (c.dim, c.sub.axis)).collect()
            }
            Some(_) => return None,
            None => {
                let dims = axes_of_dims(self, NOTATION).ok()?;
                let whole = |&s: &crate::SubAxis| self.mesh().is_whole(s).then_some(s.axis);
                let pairs = dims
                    .iter()
                    .enumerate()
                    .flat_map(|(dim, subs)| subs.iter().map(move |s| whole(s).map(|a| (dim, a))));
                pairs.collect::<Option<_>>()?
            }
        };
        let mut text = String::new();
        for axis in 0..self.mesh().axes().len() {
            let shard = order.iter().find(|o| o.1 == axis);
            let partial = self.partial().iter().find(|p| p.sub.axis == axis);
            // Writing to a string does not fail.
            let _ = match (shard, partial) {
                (Some(&(dim, _)), _) => {
                    let of_dim: SmallVec<[usize; 4]> =
                        order.iter().filter(|o| o.0 == dim).map(|o| o.1).collect();
                    if of_dim.is_sorted() {
                        write!(text, "S({dim})")
                    } else {
                        write!(text, "S({dim})[{}]", of_dim.iter().position(|&a| a == axis).unwrap_or(0))
                    }
                }
                (None, Some(p)) if p.sub == self.mesh().known_whole(axis) => write_partial(&mut text, p.op),
                (None, Some(_)) => return None,
                (None, None) => write!(text, "R"),
            };
        }
        Some(text)
    }
}
