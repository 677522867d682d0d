//! The redistribution that makes a view free.
//!
//! Some modes along axes prevent the view: as few as possible are made local, so that the rest splits into
//! both shapes. Each of them goes to a local mode that ends where dims of both shapes end, the slowest that
//! its extent divides, which keeps the shards as small as they are; one that finds none is gathered.
//!
//! Where there is no layout, splits prevent the view. As few as possible are replaced, by plain chunks of any
//! dim or by none. Of the candidates from which the view is free, the one is taken for which the worst rank
//! receives least.

use reshard_layout::algebra::zip;
use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use super::{ending_at, ends_of, reshaped};
use crate::layout::make_dense;
use crate::partition::DimCut;
use crate::region::shared_len;
use crate::sharding::{AxisCut, Cuts};
use crate::{Error, Sharding, SubAxis};

/// More modes along axes than this are not tried in every combination: all are made local.
const MOST_MODES: usize = 10;

/// Limit on uneven splits that are tried in every combination.
///
/// The others stay as they are, or all are gathered.
const MOST_CUTS: usize = 6;

/// Limit on coordinates that are counted individually.
const COUNTED: usize = 1 << 10;

/// Limit on candidates for replacing some splits.
const MOST_WAYS: usize = 1 << 8;

/// Returns a sharding from which the view is free.
///
/// Also returns the number of elements that the worst rank receives for it.
pub fn advised(s: &Sharding, shape: &[usize]) -> Result<(Sharding, u64), Error> {
    match s.modes() {
        Some(modes) => best(s, modes, shape),
        None => recut(s, shape),
    }
}

/// Returns the error of a view that `reason` prevents, with the sharding to redistribute to.
pub(super) fn needs_redistribute(s: &Sharding, shape: &[usize], reason: String) -> Error {
    let Ok((first, elements)) = advised(s, shape) else {
        return Error::View { reason };
    };
    Error::NeedsRedistribution { reason, first: first.to_string(), elements }
}

/// Returns the cheapest of the shardings that differ in as few splits as possible.
///
/// The sub-axes of the replaced splits gather, or chunk a dim of either shape plainly.
fn recut(s: &Sharding, shape: &[usize]) -> Result<(Sharding, u64), Error> {
    let cuts = s.cuts().unwrap_or_default();
    let n = cuts.len().min(MOST_CUTS);
    let mut subsets: Vec<usize> = (1..1usize << n).collect();
    subsets.sort_by_key(|m| m.count_ones());
    let mut found: Option<(Sharding, u64, u32)> = None;
    for subset in subsets {
        if found.as_ref().is_some_and(|f| f.2 < subset.count_ones()) {
            break;
        }
        let is_kept = |i: usize| subset >> i & 1 == 0;
        let kept = cuts.iter().enumerate().filter(|(i, _)| is_kept(*i)).map(|(_, c)| c.clone()).collect();
        let subs: SmallVec<[SubAxis; 4]> =
            cuts.iter().enumerate().filter(|(i, _)| !is_kept(*i)).map(|(_, c)| c.sub).collect();
        let Ok(kept) = Sharding::from_cuts(s.mesh(), s.shape(), kept, s.partial().iter().copied().collect())
        else {
            continue;
        };
        // Chunks of dims of this shape, and chunks of dims of the other one, viewed as this one.
        let mut firsts = placed(&kept, &subs);
        if let Ok(there) = super::regrouped(&kept, shape) {
            firsts.extend(placed(&there, &subs).iter().filter_map(|t| super::regrouped(t, s.shape()).ok()));
        }
        for first in firsts {
            if super::regrouped(&first, shape).is_ok() {
                let elements = received(s, &first)?;
                if found.as_ref().is_none_or(|f| elements < f.1) {
                    found = Some((first, elements, subset.count_ones()));
                }
            }
        }
    }
    match found {
        Some((first, elements, _)) => Ok((first, elements)),
        None => whole(s),
    }
}

/// Returns the shardings in which each of some free sub-axes chunks a dim plainly, or none.
///
/// Returns an empty list if those are too many.
fn placed(kept: &Sharding, subs: &[SubAxis]) -> Vec<Sharding> {
    let choices = kept.shape().len() + 1;
    let Some(ways) = choices.checked_pow(subs.len() as u32).filter(|&w| w <= MOST_WAYS) else {
        return Vec::new();
    };
    let way = |way: usize| {
        let mut left = way;
        let mut all: Cuts = (0..kept.shape().len()).flat_map(|dim| kept.dim_cuts(dim)).collect();
        for &sub in subs {
            let dim = left % choices;
            left /= choices;
            if dim < kept.shape().len() {
                all.push(AxisCut { dim, sub, cut: DimCut::chunks(1, sub.size) });
            }
        }
        let partial = kept.partial().iter().copied().collect();
        let made = Sharding::from_cuts(kept.mesh(), kept.shape(), all, partial).ok();
        made.filter(Sharding::has_notation)
    };
    (0..ways).filter_map(way).collect()
}

/// Returns every dim gathered.
fn whole(s: &Sharding) -> Result<(Sharding, u64), Error> {
    let first = Sharding::from_cuts(s.mesh(), s.shape(), Cuts::new(), s.partial().iter().copied().collect())?;
    let elements = received(s, &first)?;
    Ok((first, elements))
}

/// Returns the number of elements that the worst rank needs and does not hold, for equal partial axes.
///
/// Counted at every coordinate of the axes that shard while these are at most [`COUNTED`], and otherwise at
/// the corners: where some axis has its first or last chunks, its short ones, or those in the middle.
fn received(from: &Sharding, to: &Sharding) -> Result<u64, Error> {
    let mesh = from.mesh();
    let mut places: SmallVec<[SmallVec<[usize; 16]>; 4]> = SmallVec::new();
    let cuts_of = |s: &Sharding, dim: usize| s.dim_cuts(dim);
    let dims = 0..from.shape().len();
    let cuts_of_both: Cuts =
        [from, to].into_iter().flat_map(|s| dims.clone().flat_map(|dim| cuts_of(s, dim))).collect();
    let size = |axis: usize| mesh.axes()[axis].size();
    let mut axes: SmallVec<[usize; 8]> = cuts_of_both.iter().map(|c| c.sub.axis).collect();
    axes.sort_unstable();
    axes.dedup();
    let all = axes.iter().try_fold(1usize, |n, &a| n.checked_mul(size(a))).is_some_and(|n| n <= COUNTED);
    for axis in 0..mesh.axes().len() {
        let mut of_axis: SmallVec<[usize; 16]> = SmallVec::from_slice(&[0]);
        if all && axes.contains(&axis) {
            of_axis.extend(1..size(axis));
        } else {
            for c in cuts_of_both.iter().filter(|c| c.sub.axis == axis) {
                let corners = c.cut.places(from.shape()[c.dim]).into_iter().chain([c.cut.ranks() / 2]);
                of_axis.extend(corners.take(COUNTED).map(|i| i * c.sub.known_post(size(axis))));
            }
        }
        of_axis.sort_unstable();
        of_axis.dedup();
        places.push(of_axis);
    }
    let count = places.iter().try_fold(1usize, |n, p| n.checked_mul(p.len())).unwrap_or(usize::MAX);
    let mut most = 0;
    for i in 0..count.min(COUNTED) {
        let mut left = i;
        let mut c = crate::mesh::Coordinate::new();
        for of_axis in &places {
            c.push(of_axis[left % of_axis.len()]);
            left /= of_axis.len();
        }
        let (mut wanted, mut held) = (1, 1);
        for dim in 0..from.shape().len() {
            let (a, b) = (from.intervals(dim, &c)?, to.intervals(dim, &c)?);
            wanted *= b.iter().map(|x| x.len).sum::<usize>();
            held *= shared_len(&a, &b);
        }
        most = most.max((wanted - held) as u64);
    }
    Ok(most)
}

/// Returns [`received`] of two shardings that are layouts, from their zip; `None` where these do not nest.
///
/// Where a mode goes to another axis, some rank holds no needed elements; otherwise every rank holds its own
/// part of each mode that is gathered.
fn received_of_layouts(from: &Sharding, to: &Sharding) -> Option<u64> {
    let zipped = zip(from.modes()?, to.modes()?).ok()?;
    let local: i64 = to.modes()?.iter().filter(|m| m.stride.is_local()).map(|m| m.extent).product();
    let mut gathered = 1;
    for &Mode { extent, stride: (before, after) } in &*zipped {
        if before.is_local() || before == after {
            continue;
        }
        if !after.is_local() {
            return Some(local as u64);
        }
        gathered *= extent;
    }
    Some((local - local / gathered) as u64)
}

fn best(s: &Sharding, modes: &[Mode<AxisStride>], shape: &[usize]) -> Result<(Sharding, u64), Error> {
    let modes = refined(Modes::from_slice(modes), s.shape(), shape);
    // Slowest first, so that ties fall to the slowest.
    let along: SmallVec<[usize; 8]> =
        (0..modes.len()).rev().filter(|&i| !modes[i].stride.is_local()).collect();
    let all = (1usize << along.len().min(MOST_MODES)) - 1;
    let mut subsets: Vec<usize> = if along.len() > MOST_MODES { Vec::new() } else { (1..=all).collect() };
    subsets.sort_by_key(|m| m.count_ones());
    subsets.push(usize::MAX);
    let mut found: Option<(Sharding, u64, u32)> = None;
    for subset in subsets {
        if found.as_ref().is_some_and(|f| f.2 < subset.count_ones()) {
            break;
        }
        let taken =
            |i: usize| along.iter().position(|&o| o == i).is_some_and(|k| k > 63 || subset >> k & 1 == 1);
        let Some(freed) = without(&modes, taken, s.shape(), shape) else { continue };
        let Ok(first) = Sharding::from_modes(s.mesh(), s.shape(), whole_index(freed), s.partial()) else {
            continue;
        };
        let elements = match received_of_layouts(s, &first) {
            Some(elements) => elements,
            None => received(s, &first)?,
        };
        if found.as_ref().is_none_or(|f| elements < f.1) {
            found = Some((first, elements, subset.count_ones()));
        }
    }
    found.map(|f| (f.0, f.1)).ok_or_else(|| Error::View { reason: String::new() })
}

/// Returns the modes without some of those along axes; each becomes a local one if possible.
///
/// Returns `None` if the rest does not split into both shapes.
fn without(
    modes: &Modes<AxisStride>,
    taken: impl Fn(usize) -> bool,
    from: &[usize],
    to: &[usize],
) -> Option<Modes<AxisStride>> {
    let local =
        |(i, &m): (usize, &Mode<AxisStride>)| if taken(i) { m.map(|_| AxisStride::local(1)) } else { m };
    let mut rest = refined(modes.iter().enumerate().map(local).collect(), from, to);
    fits(&rest, from, to).then_some(())?;
    for (_, &m) in modes.iter().enumerate().rev().filter(|&(i, _)| taken(i)) {
        let at = rest.iter().rposition(|x| x.stride.is_local() && x.extent % m.extent == 0);
        if let Some(at) = at {
            let mut placed = rest.clone();
            placed[at].extent /= m.extent;
            placed.insert(at + 1, m);
            if fits(&placed, from, to) {
                rest = placed;
            }
        }
    }
    Some(rest)
}

fn fits(modes: &Modes<AxisStride>, from: &[usize], to: &[usize]) -> bool {
    reshaped(modes.clone(), from).is_ok() && reshaped(modes.clone(), to).is_ok()
}

/// Modes of a row-major index, coalesced as a whole.
fn whole_index(mut modes: Modes<AxisStride>) -> Modes<AxisStride> {
    make_dense(&mut modes);
    modes.coalesce()
}

/// Returns the modes coalesced as a whole, then split where dims of either shape end, wherever that divides.
fn refined(modes: Modes<AxisStride>, from: &[usize], to: &[usize]) -> Modes<AxisStride> {
    let mut ends = ends_of(from);
    ends.extend(ends_of(to));
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ending_at(&whole_index(modes), 1, &ends)
}
