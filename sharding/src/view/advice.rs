//! What to redistribute to before a view that is not free.
//!
//! Some digits of the mesh stand in the way: as few as possible are taken out of the word, so that the rest regroups.
//! Each of them goes to a local position that ends where dims of both shapes end, the most significant that its radix
//! divides, which keeps the shards as small as they are; one that finds none is gathered.

use smallvec::SmallVec;

use super::{linear, regroup};
use crate::digits::{Digit, Digits, Owner, canonical};
use crate::redistribute::{Objective, Planner};
use crate::{Error, Sharding};

/// More digits than this are not tried in every combination: all are taken out.
const MOST_DIGITS: usize = 10;

/// The error of a view that `reason` stands in the way of, with what to do about it.
pub(super) fn needs_redistribute(s: &Sharding, shape: &[usize], reason: String) -> Error {
    let first = match s.digits() {
        Some(digits) => best(s, digits, shape),
        None => whole(s),
    };
    let Ok((first, elements)) = first else {
        return Error::View { reason };
    };
    Error::NeedsRedistribute { reason, first: first.to_string(), elements }
}

/// Every dim gathered.
fn whole(s: &Sharding) -> Result<(Sharding, u64), Error> {
    let first =
        Sharding::from_cuts(s.mesh(), s.shape(), SmallVec::new(), s.partial().iter().copied().collect())?;
    // Each rank lacks what it does not hold.
    let least = s.mesh().ranks().take(1 << 12).map(|r| s.local_shape(r).map(|l| l.iter().product::<usize>()));
    let least = least.collect::<Result<Vec<usize>, Error>>()?.into_iter().min().unwrap_or(0);
    Ok((first, (s.numel() - least) as u64))
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
    let mut ends: SmallVec<[usize; 8]> = SmallVec::new();
    for shape in [from, to] {
        let mut weight = 1;
        for &len in shape.iter().rev() {
            weight *= len;
            ends.push(weight);
        }
    }
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let mut out = Digits::new();
    let mut weight: usize = word.iter().map(|d| d.radix).product();
    for &d in word {
        let mut left = d;
        for &end in &ends {
            let below = weight / left.radix;
            if end < weight && end > below && end.is_multiple_of(below) && weight.is_multiple_of(end) {
                let (major, minor) = left.split(weight / end);
                out.push(major);
                left = minor;
                weight = end;
            }
        }
        weight /= left.radix;
        out.push(left);
    }
    out
}
