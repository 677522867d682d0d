//! What to redistribute to before a view that is not free.
//!
//! Some digits of the mesh stand in the way: as few as possible are taken out of the word, so that the rest regroups.
//! Each of them goes to a local position that ends where dims of both shapes end, the most significant that its radix
//! divides, which keeps the shards as small as they are; one that finds none is gathered.
//!
//! Where there are no digits, cuts stand in the way: as few as possible are placed anew, as plain chunks of any dim or
//! nowhere, and of those placements that have the view the one is taken for which the worst rank receives least.

use smallvec::SmallVec;

use super::{ending_at, ends_of, linear, regroup};
use crate::cut::Cut;
use crate::digits::{Digit, Digits, Owner, canonical};
use crate::redistribute::{Objective, Planner};
use crate::region::shared_len;
use crate::sharding::{AxisCut, Cuts, cuts_of};
use crate::{Error, Sharding, SubAxis};

/// More digits than this are not tried in every combination: all are taken out.
const MOST_DIGITS: usize = 10;

/// More uneven cuts than this are not tried in every combination: the others stay as they are, or all are gathered.
const MOST_CUTS: usize = 6;

/// More coordinates than this are not counted one by one.
const COUNTED: usize = 1 << 10;

/// More ways to place some cuts anew are not tried.
const MOST_WAYS: usize = 1 << 8;

/// A sharding from which the view is free, and how many elements the worst rank receives on the way there.
pub(crate) fn advised(s: &Sharding, shape: &[usize]) -> Result<(Sharding, u64), Error> {
    match s.digits() {
        Some(digits) => best(s, digits, shape),
        None => recut(s, shape),
    }
}

/// The error of a view that `reason` stands in the way of, with what to do about it.
pub(super) fn needs_redistribute(s: &Sharding, shape: &[usize], reason: String) -> Error {
    let Ok((first, elements)) = advised(s, shape) else {
        return Error::View { reason };
    };
    Error::NeedsRedistribute { reason, first: first.to_string(), elements }
}

/// The cheapest of the shardings that differ in as few cuts as possible: the sub-axes of those gather, or chunk a dim of
/// either shape plainly.
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

/// The shardings in which each of some free sub-axes chunks a dim plainly, or none; nothing if those are too many.
fn placed(kept: &Sharding, subs: &[SubAxis]) -> Vec<Sharding> {
    let choices = kept.shape().len() + 1;
    let Some(ways) = choices.checked_pow(subs.len() as u32).filter(|&w| w <= MOST_WAYS) else {
        return Vec::new();
    };
    let way = |way: usize| {
        let mut left = way;
        let mut all = cuts(kept);
        for &sub in subs {
            let dim = left % choices;
            left /= choices;
            if dim < kept.shape().len() {
                all.push(AxisCut { dim, sub, cut: Cut::chunks(1, sub.size) });
            }
        }
        let partial = kept.partial().iter().copied().collect();
        let made = Sharding::from_cuts(kept.mesh(), kept.shape(), all, partial).ok();
        made.filter(Sharding::has_notation)
    };
    (0..ways).filter_map(way).collect()
}

/// Every dim gathered.
fn whole(s: &Sharding) -> Result<(Sharding, u64), Error> {
    let first = Sharding::from_cuts(s.mesh(), s.shape(), Cuts::new(), s.partial().iter().copied().collect())?;
    let elements = received(s, &first)?;
    Ok((first, elements))
}

/// How many elements the worst rank wants and does not hold, of two shardings of one mesh with the same partial axes.
///
/// Counted at every coordinate of the axes that cut while these are at most [`COUNTED`], and otherwise at the corners:
/// where some axis has its first or last pieces, its short ones, or those in the middle.
fn received(from: &Sharding, to: &Sharding) -> Result<u64, Error> {
    let mesh = from.mesh();
    let mut places: SmallVec<[SmallVec<[usize; 16]>; 4]> = SmallVec::new();
    let cuts_of_both: Cuts = [from, to].into_iter().flat_map(cuts).collect();
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
                of_axis.extend(corners.take(COUNTED).map(|i| i * c.sub.post(size(axis))));
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

/// The cuts of a sharding, whatever its form.
fn cuts(s: &Sharding) -> Cuts {
    (0..s.shape().len())
        .flat_map(|dim| {
            let of_dim = || s.cuts().unwrap_or_default().iter().filter(|c| c.dim == dim).cloned().collect();
            s.word(dim).map_or_else(of_dim, |word| cuts_of(&word))
        })
        .collect()
}

fn best(s: &Sharding, digits: &[Digit], shape: &[usize]) -> Result<(Sharding, u64), Error> {
    let word = refined(&linear(digits), s.shape(), shape);
    let owned: SmallVec<[usize; 8]> = (0..word.len()).filter(|&i| word[i].owner != Owner::Local).collect();
    let all = (1usize << owned.len().min(MOST_DIGITS)) - 1;
    let mut subsets: Vec<usize> = if owned.len() > MOST_DIGITS { Vec::new() } else { (1..=all).collect() };
    subsets.sort_by_key(|m| m.count_ones());
    subsets.push(usize::MAX);
    let mut found: Option<(Sharding, u64, u32)> = None;
    for subset in subsets {
        if found.as_ref().is_some_and(|f| f.2 < subset.count_ones()) {
            break;
        }
        let taken =
            |i: usize| owned.iter().position(|&o| o == i).is_some_and(|k| k > 63 || subset >> k & 1 == 1);
        let Some(freed) = without(&word, taken, s.shape(), shape) else { continue };
        let Ok(back) = regroup(&freed, s.shape()) else { continue };
        let first = Sharding::from_digits(s.mesh(), s.shape(), back, s.partial().iter().copied())?;
        let plan = Planner::new().objective(Objective::Bytes).plan(s, &first, 1)?;
        if found.as_ref().is_none_or(|f| plan.received_bytes() < f.1) {
            found = Some((first, plan.received_bytes(), subset.count_ones()));
        }
    }
    found.map(|f| (f.0, f.1)).ok_or_else(|| Error::View { reason: String::new() })
}

/// The word without some of its digits, each of which moves to a local position where there is one; `None` if what
/// is left does not regroup into both shapes.
fn without(word: &[Digit], taken: impl Fn(usize) -> bool, from: &[usize], to: &[usize]) -> Option<Digits> {
    let local = |i: usize, d: Digit| if taken(i) { Digit { owner: Owner::Local, ..d } } else { d };
    let mut rest: Digits = word.iter().enumerate().map(|(i, &d)| local(i, d)).collect();
    rest = refined(&canonical(rest), from, to);
    fits(&rest, from, to).then_some(())?;
    for (i, &d) in word.iter().enumerate() {
        if !taken(i) {
            continue;
        }
        let at = rest.iter().position(|x| x.owner == Owner::Local && x.radix.is_multiple_of(d.radix));
        if let Some(at) = at {
            let mut placed = rest.clone();
            placed[at] = d;
            placed.insert(at + 1, Digit { owner: Owner::Local, radix: rest[at].radix / d.radix, ..d });
            if fits(&placed, from, to) {
                rest = placed;
            }
        }
    }
    Some(rest)
}

fn fits(word: &[Digit], from: &[usize], to: &[usize]) -> bool {
    regroup(word, from).is_ok() && regroup(word, to).is_ok()
}

/// The word with its digits cut where dims of either shape end, wherever they divide.
fn refined(word: &[Digit], from: &[usize], to: &[usize]) -> Digits {
    let mut ends = ends_of(from);
    ends.extend(ends_of(to));
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ending_at(word, 1, &ends)
}
