//! What a value is along one axis of its mesh, whatever it is along the others.
//!
//! ```text
//! along tp       value        gradient
//! R              replicas     terms       ranks do different work with the same
//! I              replicas     replicas    ranks do the same work with the same
//! P              terms        replicas
//! S(0), RO(0,1)  a shard      the same shard: tp cuts the dim before all other axes
//! ```
//!
//! Where other axes cut a dim within the parts of this one, they keep what they have of each part when it cuts the dim no longer: `S(0),S(0)`
//! becomes `R,SS(0,2)`, and that `S(0),S(0)` again.
//!
//! A list of these, with `_` for axes of which nothing is said, is a part of a type: `S(0),_`.

use core::fmt;
use core::str::FromStr;

use reshard_sharding::internal::{AxisCut, DimCut};
use reshard_sharding::{Mesh, PartialAxis, Placement, ReduceOp, Sharding, ShardingType, SubAxis};

use crate::Error;

/// What a value is along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Along {
    /// Replicas that meet different work: `R`.
    Different,
    /// Replicas that meet the same work: `I`.
    Same,
    /// Terms of a sum: `P`.
    Terms,
    /// A shard.
    Cut(Placement),
}

/// What a value is along some axes of a mesh, by their numbers in order.
pub(crate) type Partly = Vec<(usize, Along)>;

impl Along {
    /// What the gradient is.
    fn dual(&self) -> Along {
        match self {
            Along::Different => Along::Terms,
            Along::Same => Along::Same,
            Along::Terms => Along::Different,
            Along::Cut(placement) => Along::Cut(placement.clone()),
        }
    }

    /// A sharding that is this along an axis, and as before along all others.
    fn of_sharding(&self, is: &Sharding, axis: usize) -> Option<Sharding> {
        let size = is.mesh().axes().get(axis)?.size();
        let sub = SubAxis { axis, pre_size: 1, size };
        // What others cut of the parts of this axis they keep of each part.
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
            Along::Cut(placement) => {
                let (dim, cut) = placement.cut(size)?;
                (dim < is.shape().len()).then_some(Some(AxisCut { dim, sub, cut }))?
            }
            Along::Different | Along::Same | Along::Terms => None,
        };
        // And where it cuts the dim again, each part is one of theirs.
        if let Some(own) = own.as_ref().filter(|own| own.cut.is_chunks() && own.cut.pieces() == 1) {
            for cut in kept.iter_mut().filter(|cut| cut.dim == own.dim && cut.cut.is_chunks()) {
                let pieces = cut.cut.pieces();
                if size > 0 && pieces.is_multiple_of(size) {
                    cut.cut = DimCut::chunks(pieces / size, cut.cut.ranks());
                }
            }
        }
        let terms = is.partial().iter().copied().filter(|p| p.sub.axis != axis);
        let own_terms = (*self == Along::Terms).then_some(PartialAxis { sub, op: ReduceOp::Sum });
        let cuts = own.into_iter().chain(kept).collect();
        Sharding::from_cuts(is.mesh(), is.shape(), cuts, terms.chain(own_terms).collect()).ok()
    }

    /// A type that is this along an axis, and as before along all others; none where there is no such type.
    fn of(&self, is: &ShardingType, axis: usize) -> Option<ShardingType> {
        let value = self.of_sharding(&is.value, axis)?;
        let gradient = match &is.gradient {
            None => None,
            Some(gradient) => Some(self.dual().of_sharding(gradient, axis)?),
        };
        Some(ShardingType { value, gradient })
    }
}

/// The same in the order of the axes. One function for all lists: a sort is much code.
pub(crate) fn in_order(mut partly: Partly) -> Partly {
    partly.sort_by_key(|(axis, _)| *axis);
    partly
}

/// A type that is so along these axes, and as before along all others. Where several cut one dim, the first cuts it first.
pub(crate) fn put(partly: &[(usize, Along)], is: &ShardingType) -> Option<ShardingType> {
    let mut is = is.clone();
    for (axis, along) in partly.iter().rev() {
        is = along.of(&is, *axis)?;
    }
    Some(is)
}

/// Whether a type is so along these axes.
pub(crate) fn holds(partly: &[(usize, Along)], is: &ShardingType) -> bool {
    put(partly, is).as_ref() == Some(is)
}

/// The whole type, where something is said of every axis.
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
        match self {
            Along::Different => f.write_str("R"),
            Along::Same => f.write_str("I"),
            Along::Terms => f.write_str("P"),
            Along::Cut(placement) => placement.fmt(f),
        }
    }
}

impl FromStr for Along {
    type Err = Error;

    fn from_str(text: &str) -> Result<Along, Error> {
        let text = text.trim();
        if text == "I" {
            return Ok(Along::Same);
        }
        match text.parse::<Placement>()? {
            Placement::Replicate => Ok(Along::Different),
            Placement::Partial(ReduceOp::Sum) => Ok(Along::Terms),
            Placement::Partial(op) => Err(Error::Graph {
                reason: format!("P({op}) is said of no single axis here: R, I, P, or a shard like S(0)"),
            }),
            cut @ (Placement::Shard(_)
            | Placement::StridedShard { .. }
            | Placement::Ragged { .. }
            | Placement::Custom { .. }) => Ok(Along::Cut(cut)),
        }
    }
}

/// A list as text: `S(0),_`.
pub(crate) fn written(partly: &[(usize, Along)], mesh: &Mesh) -> String {
    let word = |axis: usize| {
        let said = partly.iter().find(|(known, _)| *known == axis);
        said.map_or_else(|| "_".to_owned(), |(_, along)| along.to_string())
    };
    (0..mesh.axes().len()).map(word).collect::<Vec<_>>().join(",")
}

/// Reads a list that leaves an axis open; none of any other text.
pub(crate) fn read(text: &str, mesh: &Mesh) -> Result<Option<Partly>, Error> {
    let words: Vec<&str> = crate::notation::outside_brackets(text).map(str::trim).collect();
    if !words.contains(&"_") {
        return Ok(None);
    }
    if words.len() != mesh.axes().len() {
        return Err(Error::Graph {
            reason: format!(
                "{text} says of {} axes what something is, and {mesh} has {}: a word or _ for each",
                words.len(),
                mesh.axes().len()
            ),
        });
    }
    let said = words.iter().enumerate().filter(|(_, word)| **word != "_");
    said.map(|(axis, word)| Ok((axis, word.parse()?))).collect::<Result<Partly, Error>>().map(Some)
}
