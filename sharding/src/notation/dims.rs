//! From the digits that a notation lists for each dim to a sharding, and back.
//!
//! A list reads as digits, most significant first. On a dim that does not divide, nested chunks, strided
//! chunks and flat chunks differ. The list is then rejected unless all readings agree, or unless the notation
//! prescribes one of them. XLA's tiles are flat chunks: [`flat`] converts chunks to blocks.

use core::num::NonZeroUsize;

use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::layout::encode::{cuts_of, dim_of_parts};
use crate::partition::{DimCut, NamedPartition, chunk};
use crate::region::{Interval, Intervals, push};
use crate::sharding::{AxisCut, Cuts, PartialAxis};
use crate::{Error, Mesh, Sharding};

/// Limit on the number of shards for which the readings of an uneven dim are compared individually.
const COMPARED: usize = 1 << 16;

/// One digit of a dim as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    Local(usize),
    Sub(SubAxis),
}

/// The interpretation of a list of digits on a dim that does not divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Nothing, unless nested chunks, strided chunks and flat chunks agree.
    Any,
    /// Flat chunks.
    Flat,
}

/// Returns the sharding in which each dim has these digits, most significant first; the rest is local.
pub(crate) fn build(
    mesh: &Mesh,
    shape: &[usize],
    text: &str,
    dims: &[SmallVec<[Token; 4]>],
    partial: SmallVec<[PartialAxis; 2]>,
) -> Result<Sharding, Error> {
    build_as(Reading::Any, mesh, shape, text, dims, partial)
}

/// Returns the same, with a reading of dims that do not divide.
pub(crate) fn build_as(
    reading: Reading,
    mesh: &Mesh,
    shape: &[usize],
    text: &str,
    dims: &[SmallVec<[Token; 4]>],
    partial: SmallVec<[PartialAxis; 2]>,
) -> Result<Sharding, Error> {
    let replicated = Sharding::replicated(mesh, shape)?;
    let divides = |len: usize, tokens: &[Token]| {
        let mut left = len;
        len > 0
            && tokens.iter().all(|t| {
                let radix = radix(*t);
                let ok = left.is_multiple_of(radix);
                left /= if ok { radix } else { 1 };
                ok
            })
    };
    let modes = |dim: usize, tokens: &[Token]| -> Modes<AxisStride> {
        let part = |t: &Token| match *t {
            Token::Local(extent) => (None, extent),
            Token::Sub(s) => (Some(s), s.size),
        };
        dim_of_parts(mesh, shape[dim], tokens.iter().map(part))
    };
    if shape.iter().zip(dims).all(|(&len, tokens)| divides(len, tokens)) {
        let all: Modes<AxisStride> =
            dims.iter().enumerate().rev().flat_map(|(dim, t)| modes(dim, t).to_vec()).collect();
        return replicated.with_modes(all.iter().copied()).with_partial(partial);
    }
    let mut cuts: Cuts = Cuts::new();
    for (dim, tokens) in dims.iter().enumerate() {
        let len = shape[dim];
        if divides(len, tokens) {
            cuts.extend(cuts_of(mesh, dim, &modes(dim, tokens)));
            continue;
        }
        let mut of_dim: Cuts = Cuts::new();
        for t in tokens {
            match *t {
                Token::Sub(s) if s.size == 1 => {}
                Token::Sub(sub) => of_dim.push(AxisCut { dim, sub, cut: DimCut::chunks(1, sub.size) }),
                Token::Local(1) => {}
                Token::Local(_) => {
                    return Err(uneven(text, dim, len, "a local digit must divide it"));
                }
            }
        }
        if len > 0 && !readings_agree(len, &of_dim) {
            match reading {
                Reading::Any => {
                    return Err(uneven(
                        text,
                        dim,
                        len,
                        "nested chunks, strided chunks and flat chunks differ",
                    ));
                }
                Reading::Flat => flat(len, &mut of_dim)
                    .ok_or_else(|| uneven(text, dim, len, "the number of its tiles does not fit"))?,
            }
        }
        cuts.extend(of_dim);
    }
    let sharding = Sharding::from_cuts(mesh, shape, cuts, partial)?;
    if reading == Reading::Flat && !sharding.has_notation() {
        return Err(Error::Uneven {
            reason: format!(
                "{text} chunks a dim of {shape:?} that does not divide over several axes of {mesh}, and a dim over \
                 sub-axes, for which there is no notation; split the axis of the mesh"
            ),
        });
    }
    Ok(sharding)
}

/// Converts a sequence of plain chunks to flat ones: blocks of the same length on every rank.
fn flat(len: usize, cuts: &mut [AxisCut]) -> Option<()> {
    let total = cuts.iter().try_fold(1usize, |p, c| p.checked_mul(c.cut.ranks()))?;
    let mut block = len.div_ceil(total);
    for c in cuts.iter_mut().rev() {
        let ranks = c.cut.ranks();
        c.cut = DimCut::by(&NamedPartition::block(NonZeroUsize::new(block)?), ranks);
        // A block beyond the dim is all of it.
        block = block.saturating_mul(ranks);
    }
    Some(())
}

fn radix(t: Token) -> usize {
    match t {
        Token::Local(n) => n,
        Token::Sub(s) => s.size,
    }
}

fn uneven(text: &str, dim: usize, len: usize, why: &str) -> Error {
    Error::Uneven {
        reason: format!(
            "{text} does not divide dim {dim} of {len}: {why}; write placements, such as S(0),S(0), instead"
        ),
    }
}

/// Returns `true` if nested chunks in this order, the placements of this order, and flat chunks are the same.
fn readings_agree(len: usize, cuts: &[AxisCut]) -> bool {
    if cuts.len() <= 1 {
        return true;
    }
    let total = cuts.iter().try_fold(1usize, |p, c| p.checked_mul(c.cut.ranks()));
    let Some(total) = total.filter(|&t| t <= COMPARED) else { return false };
    // The placements that spell the order: in mesh order, each axis after the later ones that precede it.
    let mut literal: Cuts = cuts.iter().cloned().collect();
    for i in 0..literal.len() {
        let k = cuts[..i].iter().filter(|c| c.sub > cuts[i].sub).map(|c| c.cut.ranks()).product();
        literal[i].cut = DimCut::chunks(k, cuts[i].cut.ranks());
    }
    literal.sort_by_key(|c| c.sub);
    let flat_chunks = |flat: usize| {
        let mut want = Intervals::new();
        push(&mut want, chunk(len, total, flat));
        want
    };
    (0..total).all(|flat| {
        let want = Some(flat_chunks(flat));
        let c = coordinates(cuts, flat);
        kept(len, cuts, &c) == want && kept(len, &literal, &c) == want
    })
}

/// Returns the coordinates `(sub-axis, index)` of some splits, the last fastest.
fn coordinates(cuts: &[AxisCut], flat: usize) -> SmallVec<[(SubAxis, usize); 4]> {
    let mut left = flat;
    cuts.iter()
        .rev()
        .map(|c| {
            let i = left % c.cut.ranks();
            left /= c.cut.ranks();
            (c.sub, i)
        })
        .collect()
}

/// Returns the indices that splits of one dim leave the rank at a coordinate; `None` if it is too fragmented.
fn kept(len: usize, cuts: &[AxisCut], c: &[(SubAxis, usize)]) -> Option<Intervals> {
    let mut list = Intervals::new();
    push(&mut list, Interval { start: 0, len });
    for x in cuts {
        let i = c.iter().find(|v| v.0 == x.sub).map_or(0, |v| v.1);
        list = x.cut.keep(&list, i, x.dim).ok()?;
    }
    Some(list)
}

/// Returns `true` if two lists of splits of one dim by the same axes keep the same indices on every rank.
///
/// Returns `false` where there are too many ranks to compare.
pub(crate) fn same_elements(len: usize, a: &[AxisCut], b: &[AxisCut]) -> bool {
    let total = a.iter().try_fold(1usize, |p, c| p.checked_mul(c.cut.ranks())).filter(|&t| t <= COMPARED);
    total.is_some_and(|total| {
        (0..total).all(|flat| {
            let c = coordinates(a, flat);
            kept(len, a, &c).is_some_and(|x| Some(x) == kept(len, b, &c))
        })
    })
}

/// Fails for a sharding with a split that only its name describes.
pub(crate) fn only_chunks(s: &Sharding, notation: &'static str) -> Result<(), Error> {
    let other = s.cuts().unwrap_or_default().iter().find(|c| c.cut.other().is_some());
    other.map_or(Ok(()), |c| Err(not_chunks(s, notation, c.dim)))
}

/// Returns the error of a notation that cannot express the split of a dim.
pub(crate) fn not_chunks(s: &Sharding, notation: &'static str, dim: usize) -> Error {
    Error::NotRepresentable {
        notation,
        reason: format!("in {s}, dim {dim} is not split into chunks, and only placements can express that"),
    }
}

/// The sub-axes of each dim, most significant first.
pub(crate) type AxesOfDims = SmallVec<[SmallVec<[SubAxis; 4]>; 4]>;

/// Returns the sub-axes of each dim, if they describe the whole sharding.
///
/// Fails with `not_expressible` where a local digit precedes one (a strided shard), and with `uneven` where
/// the chunks of a dim have more than one reading.
pub(crate) fn axes_of_dims(s: &Sharding, notation: &'static str) -> Result<AxesOfDims, Error> {
    axes_of_dims_as(Reading::Any, s, notation)
}

/// Returns the same in a notation with the given reading of dims that do not divide.
pub(crate) fn axes_of_dims_as(
    reading: Reading,
    s: &Sharding,
    notation: &'static str,
) -> Result<AxesOfDims, Error> {
    let mut dims: AxesOfDims = SmallVec::from_elem(SmallVec::new(), s.shape().len());
    match (s.layout(), s.cuts()) {
        (Some(layout), _) => {
            let mut reversed: SmallVec<[_; 4]> = layout.flat_modes().collect();
            reversed.reverse();
            for (dim, (subs, modes)) in dims.iter_mut().zip(reversed).enumerate() {
                let mut local = None;
                for &m in modes.iter().rev() {
                    match (s.mesh().sub_axis(m), local) {
                        (None, _) => local = Some(m.extent),
                        (Some(sub), Some(extent)) => {
                            let name = sub.printed(s.mesh().axes());
                            return Err(Error::NotRepresentable {
                                notation,
                                reason: format!(
                                    "in {s}, a local digit of {extent} precedes {name} in dim {dim} (a strided \
                                     shard)"
                                ),
                            });
                        }
                        (Some(sub), None) => subs.push(sub),
                    }
                }
            }
        }
        (None, cuts) => {
            for c in cuts.unwrap_or_default() {
                dims[c.dim].push(c.sub);
            }
            let tokens: Vec<SmallVec<[Token; 4]>> =
                dims.iter().map(|subs| subs.iter().map(|&x| Token::Sub(x)).collect()).collect();
            let partial = s.partial().iter().copied().collect();
            let same = build_as(reading, s.mesh(), s.shape(), "it", &tokens, partial);
            if same.as_ref() != Ok(s) {
                only_chunks(s, notation)?;
                return Err(Error::Uneven {
                    reason: format!(
                        "{s} of {:?} does not divide, and in the {notation} notation its chunks would be ambiguous",
                        s.shape()
                    ),
                });
            }
        }
    }
    Ok(dims)
}

/// Returns the partial sub-axes, if the notation can hold them: it supports only sums.
pub(crate) fn sums(s: &Sharding, notation: &'static str) -> Result<SmallVec<[SubAxis; 2]>, Error> {
    let sum = |p: &PartialAxis| {
        if p.op == crate::ReduceOp::Sum {
            return Ok(p.sub);
        }
        Err(Error::NotRepresentable { notation, reason: format!("{s} is partial by {}, not by sum", p.op) })
    };
    s.partial().iter().map(sum).collect()
}
