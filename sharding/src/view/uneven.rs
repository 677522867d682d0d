//! Views of dims that do not divide: the same splits of the row-major index, compared exactly.
//!
//! A split of one dim is a split of the row-major index of its run of dims. With `P` and `Q` the local
//! extents before and after the dim, `L` its own, `c = ceil(L/k)` and `p = ceil(L/c)` chunks of which the
//! last has `l <= c`:
//!
//! ```text
//! S/SS(dim,k) over n   =   P times:  p blocks of c*Q, rank i keeping [i s, (i+1) s) of each, s = ceil(c/n) * Q;
//!                                    the last block has l*Q and s' = ceil(l/n) * Q
//! ```
//!
//! A split with these numbers of another dim of another shape keeps the same elements on every rank. The
//! splits of a run are matched in order of application, over every combination of local extents that ranks
//! have at that point. There are few, because a split leaves few different lengths, so no rank is enumerated.

use core::ops::Range;
use std::sync::Arc;

use reshard_layout::Boundary;
use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use super::{ending_at, ends_of, reshaped, runs, straddles};
use crate::layout::encode::{cuts_of, dim_of_cuts};
use crate::layout::{dim_of, make_dense};
use crate::partition::{DimCut, Made};
use crate::sharding::{AxisCut, Cuts};
use crate::{Error, Sharding};

type Lens = SmallVec<[usize; 6]>;

/// Limit on combinations of local extents that are compared; three uneven splits of one dim make at most 8.
const MOST_VARIANTS: usize = 64;

/// Maximum length of lists of sizes that are created implicitly, when the caller did not give sizes.
const MOST_SIZES: usize = 1 << 12;

/// The local extents of some ranks, before and after the view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variant {
    from: Lens,
    to: Lens,
}

/// The effect of a split on a row-major index; equal values keep the same elements.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// The dim is empty: there is nothing to split.
    Nothing,
    /// Rank 0 keeps everything.
    First,
    /// `count` chunks of `len`, of each of which every rank keeps `step` indices.
    Even { count: usize, len: usize, step: usize },
    /// One range per rank, of these lengths, `outer` times.
    Sizes { outer: usize, sizes: SmallVec<[usize; 8]> },
    /// The ranges of a custom partition of `len` runs of `behind` indices, `outer` times.
    Other { outer: usize, made: Arc<Made>, len: usize, behind: usize },
    /// `outer` times `count` chunks, of which the last has another length and step.
    Short { outer: usize, count: usize, len: usize, step: usize, last: (usize, usize) },
}

impl Effect {
    fn of(lens: &[usize], at: usize, cut: &DimCut) -> Effect {
        let (before, behind) =
            (lens[..at].iter().product::<usize>(), lens[at + 1..].iter().product::<usize>());
        let len = lens[at];
        if len == 0 || before == 0 || behind == 0 {
            return Effect::Nothing;
        }
        let (pieces, ranks) = match cut {
            DimCut::Chunks { pieces, ranks } => (*pieces, *ranks),
            DimCut::Sizes(sizes) => {
                return Effect::Sizes { outer: before, sizes: sizes.iter().map(|s| s * behind).collect() };
            }
            DimCut::Other(made) => {
                return Effect::Other { outer: before, made: Arc::clone(made), len, behind };
            }
        };
        let c = len.div_ceil(pieces);
        if c == 1 {
            return Effect::First;
        }
        let count = len.div_ceil(c);
        let last = len - (count - 1) * c;
        let step = c.div_ceil(ranks) * behind;
        if last == c {
            return Effect::Even { count: before * count, len: c * behind, step };
        }
        let last = (last * behind, last.div_ceil(ranks) * behind);
        Effect::Short { outer: before, count, len: c * behind, step, last }
    }

    /// Returns the split over `n` ranks that could have this effect on dim `at` of these extents.
    fn cut(self, lens: &[usize], at: usize, n: usize) -> Option<DimCut> {
        let behind = lens[at + 1..].iter().product::<usize>();
        match self {
            Effect::Nothing => None,
            Effect::First => Some(DimCut::chunks(lens[at].max(1), n)),
            Effect::Even { len, .. } | Effect::Short { len, .. } => (behind > 0
                && len.is_multiple_of(behind))
            .then(|| DimCut::chunks(lens[at].div_ceil(len / behind).max(1), n)),
            // The same split of the same number of runs.
            Effect::Other { made, len, behind: runs, .. } => {
                (len == lens[at] && runs == behind).then_some(DimCut::Other(made))
            }
            Effect::Sizes { sizes, .. } => {
                let whole = behind > 0 && sizes.iter().all(|s| s.is_multiple_of(behind));
                let total = sizes.iter().sum::<usize>().checked_div(behind);
                let sizes = sizes.iter().map(|s| s / behind.max(1)).collect::<Vec<usize>>();
                (whole && total == Some(lens[at])).then(|| DimCut::Sizes(sizes.into()))
            }
        }
    }
}

/// Returns the view of a sharding without digits.
pub(super) fn view(s: &Sharding, shape: &[usize]) -> Result<Sharding, Error> {
    let cuts = s.cuts().unwrap_or_default();
    let mut out = Cuts::new();
    if s.numel() == 0 {
        out.extend(empty(s, cuts, shape));
    } else {
        for (from, to) in runs(s.shape(), shape) {
            let of_run: Cuts = cuts.iter().filter(|c| from.contains(&c.dim)).cloned().collect();
            if of_run.is_empty() {
                continue;
            }
            if s.shape()[from.clone()] == shape[to.clone()] {
                out.extend(of_run.into_iter().map(|c| AxisCut { dim: to.start + c.dim - from.start, ..c }));
                continue;
            }
            let dims =
                from.clone().rev().map(|dim| s.dim_modes(dim)).collect::<Option<Vec<Modes<AxisStride>>>>();
            if let Some(dims) = dims {
                // Nothing of this run is uneven: its modes split at the other dims.
                let modes: Modes<AxisStride> =
                    dims.iter().flatten().copied().filter(|m| m.extent > 1).collect();
                let run = &shape[to.clone()];
                let layout = reshaped(modes.clone(), run).map_err(|Boundary(_)| {
                    let mut whole = modes;
                    make_dense(&mut whole);
                    straddles(s, &whole.coalesce(), run, shape)
                })?;
                for (dim, at) in to.clone().enumerate() {
                    out.extend(cuts_of(s.mesh(), at, dim_of(&layout, run.len(), dim)));
                }
                continue;
            }
            let matched = forms(s, &from, shape, &to, of_run)
                .iter()
                .flat_map(orders)
                .find_map(|order| match_cuts(s.shape(), &from, shape, &to, &order));
            let Some(matched) = matched else {
                return Err(Error::View {
                    reason: format!(
                        "dims {from:?} of {:?} do not divide among the ranks of {s}, and no chunks of {:?} give each \
                         rank the same elements",
                        s.shape(),
                        &shape[to]
                    ),
                });
            };
            out.extend(matched);
        }
    }
    let view = Sharding::from_cuts(s.mesh(), shape, out, s.partial().iter().copied().collect());
    let view = view.map_err(|e| {
        // Sizes that fit ranks with elements may not fit empty ranks: report that as an error of the view.
        if let Error::Placement { reason } = e { Error::View { reason } } else { e }
    })?;
    if view.has_notation() {
        return Ok(view);
    }
    Err(Error::View {
        reason: format!(
            "{s} of {:?} as {shape:?} has an uneven shard that only placements can express, and sub-axes, which they \
             cannot",
            s.shape()
        ),
    })
}

/// Returns the sharding of an empty tensor.
///
/// Dims that stay in place retain their splits, the other splits go to the first dim of size 0.
fn empty(s: &Sharding, cuts: &[AxisCut], shape: &[usize]) -> Cuts {
    let zero = shape.iter().position(|&n| n == 0).unwrap_or(0);
    cuts.iter()
        .map(|c| {
            let stays = s.shape()[..=c.dim] == shape[..shape.len().min(c.dim + 1)];
            AxisCut { dim: if stays { c.dim } else { zero }, ..c.clone() }
        })
        .collect()
}

/// Returns the splits of a run in the forms that may match.
///
/// These are the splits as they are, then with the axes of dims that divide in mesh order, where that is
/// possible. The last form has their digits, and those of splits that divide before one that does not, ending
/// where the dims of the other shape do.
fn forms(
    s: &Sharding,
    from: &Range<usize>,
    shape: &[usize],
    to: &Range<usize>,
    cuts: Cuts,
) -> SmallVec<[Cuts; 3]> {
    let ends = ends_of(&shape[to.clone()]);
    let mut refined = Cuts::new();
    let mut in_mesh_order = Cuts::new();
    for dim in from.clone() {
        let len = s.shape()[dim];
        let behind: i64 = s.shape()[dim + 1..from.end].iter().map(|&n| n as i64).product();
        let of_dim: Cuts = cuts.iter().filter(|c| c.dim == dim).cloned().collect();
        // The longest prefix of splits that divides, and its modes.
        let divide =
            (0..=of_dim.len()).rev().find_map(|n| Some((n, dim_of_cuts(s.mesh(), dim, len, &of_dim[..n])?)));
        let (n, modes) = divide.unwrap_or_default();
        refined.extend(cuts_of(s.mesh(), dim, &ending_at(&modes, behind, &ends)));
        refined.extend(of_dim[n..].iter().cloned());
        in_mesh_order.extend(if n == of_dim.len() {
            in_order_of_axes(cuts_of(s.mesh(), dim, &modes))
        } else {
            of_dim
        });
    }
    let mut all: SmallVec<[Cuts; 3]> = SmallVec::from_iter([cuts]);
    for form in [in_mesh_order, refined] {
        if !all.contains(&form) {
            all.push(form);
        }
    }
    all
}

/// Returns the splits of a dim that divides with the axes in mesh order.
///
/// Each skips the local indices and the later sub-axes above it.
fn in_order_of_axes(mut cuts: Cuts) -> Cuts {
    for i in 0..cuts.len() {
        let later: usize = cuts[..i].iter().filter(|c| c.sub > cuts[i].sub).map(|c| c.cut.ranks()).product();
        cuts[i].cut = DimCut::chunks(cuts[i].cut.pieces() * later, cuts[i].cut.ranks());
    }
    cuts.sort_by_key(|c| c.sub);
    cuts
}

/// Returns the orders in which splits may be taken: mesh order first; splits of one dim stay in order.
fn orders(cuts: &Cuts) -> impl Iterator<Item = Cuts> + '_ {
    let n = cuts.len();
    let count = (1..=n.min(6)).product::<usize>();
    let mut by_axis: Cuts = cuts.iter().cloned().collect();
    by_axis.sort_by_key(|c| c.sub);
    (0..count).filter_map(move |i| {
        let mut left = i;
        let mut pool = by_axis.clone();
        let order: Cuts = (0..n)
            .map(|k| {
                let choices = n - k;
                let pick = left % choices;
                left /= choices;
                pool.remove(pick)
            })
            .collect();
        let place = |c: &AxisCut| order.iter().position(|x| x == c);
        let kept = cuts.windows(2).all(|w| w[0].dim != w[1].dim || place(&w[0]) < place(&w[1]));
        kept.then_some(order)
    })
}

/// Returns splits of the dims `to` of another shape that match.
///
/// They have the effects of these splits of the dims `from`, if there are any.
fn match_cuts(
    shape: &[usize],
    from: &Range<usize>,
    new_shape: &[usize],
    to: &Range<usize>,
    cuts: &[AxisCut],
) -> Option<Cuts> {
    let start = Variant {
        from: SmallVec::from_slice(&shape[from.clone()]),
        to: SmallVec::from_slice(&new_shape[to.clone()]),
    };
    let mut variants: SmallVec<[Variant; 4]> = SmallVec::from_iter([start]);
    let mut out = Cuts::new();
    for c in cuts {
        let at = c.dim - from.start;
        let (dim, cut) = matching(&variants, at, &c.cut)?;
        let mut next: SmallVec<[Variant; 4]> = SmallVec::new();
        for v in &variants {
            let places = c.cut.places(v.from[at]).into_iter().chain(cut.places(v.to[dim]));
            for i in places {
                let mut w = v.clone();
                w.from[at] = c.cut.len(v.from[at], i);
                w.to[dim] = cut.len(v.to[dim], i);
                if !next.contains(&w) {
                    next.push(w);
                }
            }
        }
        if next.len() > MOST_VARIANTS {
            return None;
        }
        variants = next;
        // Sizes that equal chunks of the remaining indices are printed as chunks.
        out.push(AxisCut { dim: to.start + dim, sub: c.sub, cut: cut.simplest() });
    }
    Some(out)
}

/// Returns the dim and split of the new shape with the effect of this split, for all variants.
///
/// Prefers a plain split.
fn matching(variants: &[Variant], at: usize, cut: &DimCut) -> Option<(usize, DimCut)> {
    let effect = |v: &Variant| Effect::of(&v.from, at, cut);
    let dims = variants.first()?.to.len();
    let mut strided = None;
    for dim in 0..dims {
        let mut tried: SmallVec<[DimCut; 4]> = SmallVec::new();
        // Any split fits ranks that hold no elements.
        let could = variants
            .iter()
            .filter_map(|v| effect(v).cut(&v.to, dim, cut.ranks()))
            .chain([DimCut::chunks(1, cut.ranks())]);
        for new in could {
            if tried.contains(&new) {
                continue;
            }
            // Sizes are of one length only, also on ranks that hold nothing.
            let fits = |v: &Variant| new.total().is_none_or(|total| total == v.to[dim]);
            if variants.iter().all(|v| fits(v) && effect(v) == Effect::of(&v.to, dim, &new)) {
                if new.pieces() == 1 {
                    return Some((dim, new));
                }
                strided.get_or_insert((dim, new.clone()));
            }
            tried.push(new);
        }
    }
    strided.or_else(|| as_sizes(variants, at, cut))
}

/// Returns the dim of the new shape on which the chunks are ranges of other sizes, one per rank.
///
/// That holds where every rank keeps one run of the row-major index: one chunk of a dim before which nothing
/// is left.
fn as_sizes(variants: &[Variant], at: usize, cut: &DimCut) -> Option<(usize, DimCut)> {
    let (pieces, ranks) = match cut {
        DimCut::Chunks { pieces, ranks } => (*pieces, *ranks),
        DimCut::Sizes(_) | DimCut::Other(_) => return None,
    };
    if ranks > MOST_SIZES {
        return None;
    }
    let sizes = |v: &Variant| -> Option<Effect> {
        let (before, behind) =
            (v.from[..at].iter().product::<usize>(), v.from[at + 1..].iter().product::<usize>());
        let one = before == 1 && v.from[at].div_ceil(pieces) == v.from[at];
        let sizes = || (0..ranks).map(|i| cut.len(v.from[at], i) * behind).collect();
        one.then(|| Effect::Sizes { outer: 1, sizes: sizes() })
    };
    let first = variants.first()?;
    (0..first.to.len()).find_map(|dim| {
        let new = sizes(first)?.cut(&first.to, dim, ranks)?;
        let same = |v: &Variant| {
            let effect = Effect::of(&v.to, dim, &new);
            effect != Effect::Nothing && sizes(v).as_ref() == Some(&effect)
        };
        variants.iter().all(same).then_some((dim, new))
    })
}
