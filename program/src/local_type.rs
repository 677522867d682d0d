//! Placements of a value along one axis of its mesh, independent of the other axes.
//!
//! ```text
//! along tp       value            gradient
//! R              replicas         partial values   ranks do different work with the value
//! I              replicas         replicas         ranks do the same work with the value
//! P              partial values   replicas
//! S(0), RO(0,1)  a shard          the same shard   tp splits the dim before all other axes
//! ```
//!
//! Other axes may shard a dim within the parts of this axis. When this axis no longer shards it, they retain
//! their share of each part: `S(0),S(0)` becomes `R,SS(0,2)`, and that `S(0),S(0)` again.
//!
//! A list of these, with `_` for unspecified axes, is a part of a type: `S(0),_`.

use core::fmt;
use core::str::FromStr;

use reshard_sharding::internal::outside_brackets;
use reshard_sharding::internal::{AxisCut, DimCut};
use reshard_sharding::{Mesh, PartialAxis, Placement, ReduceOp, Sharding, ShardingType, SubAxis};

use crate::Error;
use crate::replication::Replication;

/// The placement of a value along an axis: replication, or the placement of its shards.
pub(crate) type Along = Replication<Placement>;

/// Placements along some axes of a mesh, by axis number, sorted.
pub(crate) type Partly = Vec<(usize, Along)>;

impl Along {
    /// Returns a sharding with this placement along an axis, and the same along all others.
    fn of_sharding(&self, is: &Sharding, axis: usize) -> Option<Sharding> {
        let size = is.mesh().axes().get(axis)?.size();
        let sub = SubAxis { axis, pre_size: 1, size };
        // Other axes that shard within the parts of this axis keep their share of each part.
        let mut kept: Vec<AxisCut> = Vec::new();
        for dim in 0..is.shape().len() {
            let mut parts = 1usize;
            for cut in is.dim_cuts(dim) {
                if cut.sub.axis == axis {
                    parts = parts.checked_mul(cut.cut.ranks())?;
                } else if parts > 1 && cut.cut.is_chunks() {
                    let pieces = cut.cut.pieces().checked_mul(parts)?;
                    kept.push(AxisCut { cut: DimCut::chunks(pieces, cut.cut.ranks()), ..cut });
                } else {
                    kept.push(cut);
                }
            }
        }
        let own = match self {
            Along::Varying(placement) => {
                let (dim, cut) = placement.cut(size)?;
                (dim < is.shape().len()).then_some(Some(AxisCut { dim, sub, cut }))?
            }
            Along::Replicated | Along::Invariant | Along::Partial => None,
        };
        // If this axis shards the dim again, divide the blocks of the other axes among its parts.
        if let Some(own) = own.as_ref().filter(|own| own.cut.is_chunks() && own.cut.pieces() == 1) {
            for cut in kept.iter_mut().filter(|cut| cut.dim == own.dim && cut.cut.is_chunks()) {
                let pieces = cut.cut.pieces();
                if size > 0 && pieces.is_multiple_of(size) {
                    cut.cut = DimCut::chunks(pieces / size, cut.cut.ranks());
                }
            }
        }
        let terms = is.partial().iter().copied().filter(|p| p.sub.axis != axis);
        let own_terms = (*self == Along::Partial).then_some(PartialAxis { sub, op: ReduceOp::Sum });
        let cuts = own.into_iter().chain(kept).collect();
        Sharding::from_cuts(is.mesh(), is.shape(), cuts, terms.chain(own_terms).collect()).ok()
    }

    /// Returns the type with this placement along an axis; `None` if there is no such type.
    fn of(&self, is: &ShardingType, axis: usize) -> Option<ShardingType> {
        let value = self.of_sharding(&is.value, axis)?;
        let gradient = match &is.gradient {
            None => None,
            Some(gradient) => Some(self.clone().gradient().of_sharding(gradient, axis)?),
        };
        Some(ShardingType::new(value, gradient))
    }
}

/// Sorts by axis. Not generic: every instance of a sort is much code.
pub(crate) fn in_order(mut partly: Partly) -> Partly {
    partly.sort_by_key(|(axis, _)| *axis);
    partly
}

/// Returns the type with these placements, and the same along all other axes.
///
/// If several axes shard one dim, the first of them is the outermost.
pub(crate) fn put(partly: &[(usize, Along)], is: &ShardingType) -> Option<ShardingType> {
    let mut is = is.clone();
    for (axis, along) in partly.iter().rev() {
        is = along.of(&is, *axis)?;
    }
    Some(is)
}

/// Returns `true` if a type has these placements.
pub(crate) fn holds(partly: &[(usize, Along)], is: &ShardingType) -> bool {
    put(partly, is).as_ref() == Some(is)
}

/// Returns the whole type; `None` unless every axis is specified.
pub(crate) fn whole(partly: &[(usize, Along)], mesh: &Mesh, shape: &[usize]) -> Option<ShardingType> {
    let same: Vec<SubAxis> = (mesh.axes().iter().enumerate())
        .map(|(axis, a)| SubAxis { axis, pre_size: 1, size: a.size() })
        .collect();
    let all = ShardingType::invariant_along(Sharding::replicated(mesh, shape).ok()?, &same).ok()?;
    (partly.len() == mesh.axes().len()).then_some(())?;
    put(partly, &all)
}

impl fmt::Display for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.varying() {
            Some(placement) => placement.fmt(f),
            None => f.write_str(self.letter()),
        }
    }
}

impl FromStr for Along {
    type Err = Error;

    fn from_str(text: &str) -> Result<Along, Error> {
        let text = text.trim();
        if text == "I" {
            return Ok(Along::Invariant);
        }
        match text.parse::<Placement>()? {
            Placement::Replicate => Ok(Along::Replicated),
            Placement::Partial(ReduceOp::Sum) => Ok(Along::Partial),
            Placement::Partial(op) => Err(Error::Graph {
                reason: format!(
                    "P({op}) is not valid along a single axis; use R, I, P, or a shard such as S(0)"
                ),
            }),
            cut @ (Placement::Shard(_)
            | Placement::StridedShard { .. }
            | Placement::Ragged { .. }
            | Placement::Custom { .. }) => Ok(Along::Varying(cut)),
        }
    }
}

/// Formats a list: `S(0),_`.
pub(crate) fn written(partly: &[(usize, Along)], mesh: &Mesh) -> String {
    let word = |axis: usize| {
        let said = partly.iter().find(|(known, _)| *known == axis);
        said.map_or_else(|| "_".to_owned(), |(_, along)| along.to_string())
    };
    (0..mesh.axes().len()).map(word).collect::<Vec<_>>().join(",")
}

/// Parses an open type: `?`, or a list with `?` along some axes; returns `None` for any other text.
pub(crate) fn read_open(text: &str, mesh: &Mesh) -> Result<Option<Partly>, Error> {
    let is_open = outside_brackets(text, ',').any(|word| word.trim() == "?");
    if is_open { read_some(text, mesh).map(Some) } else { Ok(None) }
}

/// Parses a placement for each axis, or `?` for any; `?` alone is for all axes.
pub(crate) fn read_some(text: &str, mesh: &Mesh) -> Result<Partly, Error> {
    if text.trim() == "?" {
        return Ok(Partly::new());
    }
    read_list(text, "?", mesh)
}

/// Formats an open type: parsing the text gives the same.
pub(crate) fn written_open(given: &[(usize, Along)], mesh: &Mesh) -> String {
    if given.is_empty() { "?".to_owned() } else { written(given, mesh).replace('_', "?") }
}

/// Parses a list with `_` along some axes, which stay as they are; returns `None` for any other text.
pub(crate) fn read(text: &str, mesh: &Mesh) -> Result<Option<Partly>, Error> {
    let is_partly = outside_brackets(text, ',').any(|word| word == "_");
    if is_partly { read_list(text, "_", mesh).map(Some) } else { Ok(None) }
}

/// Parses a placement for each axis that has not this word instead.
fn read_list(text: &str, other: &str, mesh: &Mesh) -> Result<Partly, Error> {
    let words: Vec<&str> = outside_brackets(text, ',').map(str::trim).collect();
    if words.len() != mesh.axes().len() {
        let meaning = if other == "?" { "to leave it open" } else { "for no change" };
        return Err(Error::Graph {
            reason: format!(
                "`{text}` has placements for {} axes, but mesh {mesh} has {}; write one for each, or `{other}` {meaning}",
                words.len(),
                mesh.axes().len()
            ),
        });
    }
    let said = words.iter().enumerate().filter(|(_, word)| **word != other);
    said.map(|(axis, word)| Ok((axis, word.parse()?))).collect()
}
