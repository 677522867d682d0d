//! Shards as slices: each rank's part of a dim becomes an index of a separate dim, and back.
//!
//! ```text
//! split_shards(x, parts=2)      zigzag: 0 1 2 3 4 5 6 7  ->  0 1 6 7        out[p] is what rank p of 2 has of x sharded so
//!                                                            2 3 4 5
//! join_shards                   the same elements back
//!
//! split_shards(x, parts=2, cut=ragged, counts=[1,3], room=4)
//!                               parts of 1 and 3                         0 1 2 3        ->  0 _ _ _
//!                                                                                           1 2 3 _
//! split_shards(x, parts=2, cut=counts, counts=[1,2,0,3], room=5)
//!                               a block from each of 2 sources, of each  0 1 2 | 3 4 5  ->  0 _ _ _ _
//!                               1 and 2, 0 and 3 for the ranks                              1 2 3 4 5
//! ```
//!
//! Parts of several sizes are the first indices of slices with the capacity of `room`. The remaining indices
//! are zeros, which join_shards drops. As placements they are `RG` and [`CN`](Counts).
//!
//! If all ranks have equally many slices, nothing is communicated: a rank's slices are its own shards. So a
//! shard of the dim is one of the slices, and vice versa, wherever the ranks divide the slices.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::strategy::{OperandPlacement, Strategy};
use crate::rules::terms::{ALL, selecting};
use reshard_sharding::{Counts, Placement};

families! {
    "split_shards" ("dim: dim = 0, at: new dim = 0, parts: number >= 1, cut: zigzag|strided|ragged|counts = zigzag, tiles: number >= 1 = 1, counts: numbers >= 0 = none, room: number >= 0 = none") => split;
    "join_shards" ("dim: number >= 0 = 0, at: dim = 0, cut: zigzag|strided|ragged|counts = zigzag, tiles: number >= 1 = 1, counts: numbers >= 0 = none") => join;
}

/// `i*->pi* {p: replicate even, (Z(1)->S(p))}`.
fn split(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (dim, at, parts) = (r.dim("dim")?, r.dim("at")?, r.size("parts")?);
    let mut shape = r.inputs[0].to_vec();
    let parted = Parted::of(r, parts)?;
    shape[dim] = match parted.sizes(r, parts)? {
        Sizes::Chunks { chunks, .. } if shape[dim].is_multiple_of(chunks) => shape[dim] / parts,
        Sizes::Chunks { chunks, .. } => {
            return Err(r.error(format!(
                "splits the {} of dim {dim} into {chunks} chunks of different sizes",
                shape[dim]
            )));
        }
        Sizes::Counted { total, .. } if shape[dim] != total => {
            return Err(r.error(format!("counts {total} indices of dim {dim}, which has {}", shape[dim])));
        }
        Sizes::Counted { most, .. } if r.has("room")? => enough(r, r.size("room")?, most)?,
        Sizes::Counted { most, .. } => most,
    };
    shape.insert(at, parts);
    let (whole, slices, p) = dims(r, shape.len() - 1, dim, at)?;
    let row = Strategy {
        inputs: vec![OperandPlacement::Fixed(parted.placed(dim))],
        outputs: vec![OperandPlacement::Factor(p)],
    };
    let rule =
        RuleBuilder::new().input(whole).output(slices).passing(selecting(ALL)).passing(PartialRule::Row(row));
    r.op_to(&rule.role(p, FactorKind::NeedReplication).even(p).build()?, &[&shape])
}

/// `pi*->i* {p: replicate even, (S(p)->Z(1))}`.
fn join(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (dim, at) = (r.size("dim")?, r.dim("at")?);
    let mut shape = r.inputs[0].to_vec();
    let parts = shape.remove(at);
    if dim >= shape.len() {
        return Err(r.error(format!("joins dim {dim} of a result that has {}", shape.len())));
    }
    let own = shape[dim];
    let parted = Parted::of(r, parts)?;
    shape[dim] = match parted.sizes(r, parts)? {
        Sizes::Chunks { each, .. } if own.is_multiple_of(each) => {
            own.checked_mul(parts).ok_or_else(|| Error::overflow(format!("dim {dim} of {}", r.call)))?
        }
        Sizes::Chunks { each, .. } => {
            return Err(r.error(format!("joins slices of {own} in {each} chunks each, which differ in size")));
        }
        Sizes::Counted { total, most } => enough(r, own, most).map(|_| total)?,
    };
    let (whole, slices, p) = dims(r, shape.len(), dim, at)?;
    let row = Strategy {
        inputs: vec![OperandPlacement::Factor(p)],
        outputs: vec![OperandPlacement::Fixed(parted.placed(dim))],
    };
    let rule =
        RuleBuilder::new().input(slices).output(whole).passing(selecting(ALL)).passing(PartialRule::Row(row));
    r.op_to(&rule.role(p, FactorKind::NeedReplication).even(p).build()?, &[&shape])
}

/// The partition of the dim whose parts are slices.
enum Parted {
    Zigzag,
    Strided(usize),
    /// The number of indices of each part.
    Ragged(Vec<usize>),
    /// The count of each source for each rank.
    Counts(Counts),
}

/// The sizes of the parts of a dim, which the slices cover.
enum Sizes {
    /// `chunks` chunks in all, each of `each` indices.
    Chunks { each: usize, chunks: usize },
    /// `total` indices in all, and `most` in the largest part.
    Counted { total: usize, most: usize },
}

impl Parted {
    fn of(r: &BoundCall<'_>, parts: usize) -> Result<Parted, Error> {
        let counts = if r.has("counts")? { r.sizes("counts")? } else { Vec::new() };
        Ok(match r.word("cut")?.as_str() {
            "zigzag" => Parted::Zigzag,
            "strided" => Parted::Strided(r.size("tiles")?),
            "ragged" if counts.len() == parts => Parted::Ragged(counts),
            "ragged" => {
                return Err(r.error(format!("has sizes of {} parts, but {parts} parts", counts.len())));
            }
            // A row for each source.
            _ if parts > 0 && parts.checked_mul(parts) == Some(counts.len()) => {
                Parted::Counts(Counts::new(&counts.chunks(parts).map(<[usize]>::to_vec).collect::<Vec<_>>())?)
            }
            _ => {
                return Err(r.error(format!(
                    "has {} counts; give a count for each of {parts} sources and {parts} ranks, source by source",
                    counts.len()
                )));
            }
        })
    }

    fn placed(&self, dim: usize) -> Placement {
        match self {
            Parted::Zigzag => Placement::zigzag(dim),
            Parted::Strided(split_factor) => Placement::StridedShard { dim, split_factor: *split_factor },
            Parted::Ragged(sizes) => Placement::ragged(dim, sizes),
            Parted::Counts(counts) => counts.target_placement(dim),
        }
    }

    fn sizes(&self, r: &BoundCall<'_>, parts: usize) -> Result<Sizes, Error> {
        let each = match self {
            Parted::Zigzag => 2,
            Parted::Strided(tiles) => *tiles,
            Parted::Ragged(sizes) => {
                let total = sizes.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
                let total = total.ok_or_else(|| Error::overflow(format!("the counts of {}", r.call)))?;
                return Ok(Sizes::Counted { total, most: sizes.iter().copied().max().unwrap_or(0) });
            }
            Parted::Counts(counts) => {
                let most = (0..parts).map(|rank| counts.receives(rank)).max().unwrap_or(0);
                return Ok(Sizes::Counted { total: counts.total(), most });
            }
        };
        let chunks =
            parts.checked_mul(each).ok_or_else(|| Error::overflow(format!("the chunks of {}", r.call)))?;
        Ok(Sizes::Chunks { each, chunks })
    }
}

/// Returns the capacity of a slice, if the largest part fits.
fn enough(r: &BoundCall<'_>, room: usize, most: usize) -> Result<usize, Error> {
    if room < most {
        return Err(r.error(format!("has slices with a capacity of {room}, but a part of {most}")));
    }
    Ok(room)
}

/// Returns the dims of the whole, which has `rank`, those of the slices, and the letter of the slice dim.
fn dims(r: &BoundCall<'_>, rank: usize, dim: usize, at: usize) -> Result<(Vec<Dim>, Vec<Dim>, char), Error> {
    let letters = r.letters(rank + 1)?;
    let p = letters[rank];
    let mut whole: Vec<Dim> = letters[..rank].iter().map(|&letter| letter.into()).collect();
    whole[dim] = Dim::Whole;
    let mut slices = whole.clone();
    slices.insert(at, p.into());
    Ok((whole, slices, p))
}
