//! The choice of senders: ranks that hold one region share the requests for it.
//!
//! The requests of one set of owners, of the whole model, have `L` bytes in all. Each of the `k` owners is to send
//! `L / k` of them, which is the least that the busiest can send: jointly they must send `L`.
//!
//! ```text
//! large   requests over L / (128 k): laid end to end, and owner h sends the h-th k-th of that line (the wrap-around
//!         rule of the planner). A request at the end of a range is split along its longest loop
//! others  each whole, in the order of the plan, by the owner with the least bytes so far
//! ```
//!
//! After the first step all owners have equal loads up to one row of the split loop; after the second, loads differ by
//! at most the largest request, which is below 1 % of `L / k`. The others are not laid on the line, because the owners
//! of a line send one after another: layer by layer, all owners are busy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::class::Classes;
use crate::error::{Error, ErrorKind};
use crate::transfer::Unit;

/// The fraction of an owner's share up to which a request is small.
const SMALL: u64 = 128;

/// The largest number of requests to regions that several ranks hold.
const MOST_REQUESTS: usize = 1 << 26;

/// The steps `start .. stop` of a loop of a request, which one owner sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Index in the set of owners.
    pub(crate) owner: usize,
    pub(crate) start: u64,
    pub(crate) stop: u64,
}

/// The sender of each request.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    /// By request: an index in the set of owners, or the number of a split request from `SPLIT` on.
    choices: Vec<u32>,
    /// The shares of each split request.
    splits: Vec<Vec<Share>>,
}

const SPLIT: u32 = 1 << 31;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender<'a> {
    /// Index in the set of owners.
    Owner(usize),
    /// Several owners, each some steps of the longest loop.
    Split(&'a [Share]),
}

impl Senders {
    pub(crate) fn of(&self, request: usize) -> Sender<'_> {
        let choice = self.choices[request];
        match choice.checked_sub(SPLIT) {
            Some(number) => Sender::Split(&self.splits[number as usize]),
            None => Sender::Owner(choice as usize),
        }
    }

    /// Chooses the senders of all requests, in the order of the units.
    pub(crate) fn choose(classes: &Classes, units: &[Unit]) -> Result<Self, Error> {
        let requests: usize = units.iter().map(|unit| classes.list[unit.class].requests).sum();
        if requests > MOST_REQUESTS {
            let message = format!(
                "the plan has {requests} requests to regions that several ranks hold, over the limit of {MOST_REQUESTS}"
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let sets = &classes.ranks.lists;
        let mut totals = vec![0_u64; sets.len()];
        each(classes, units, &mut |owners, bytes, requests, _, _| {
            totals[owners] = totals[owners].saturating_add(bytes.saturating_mul(requests as u64));
        });
        let small: Vec<u64> =
            totals.iter().zip(sets).map(|(total, set)| total / set.len().max(1) as u64 / SMALL).collect();
        let mut large = vec![0_u64; sets.len()];
        each(classes, units, &mut |owners, bytes, requests, _, _| {
            if bytes > small[owners] {
                large[owners] = large[owners].saturating_add(bytes.saturating_mul(requests as u64));
            }
        });
        let mut senders = Self { choices: vec![0; requests], splits: Vec::new() };
        let mut loads: Vec<Vec<u64>> = sets.iter().map(|_| Vec::new()).collect();
        let mut next = vec![0_u64; sets.len()];
        each(classes, units, &mut |owners, bytes, count, first, longest| {
            if bytes <= small[owners] {
                return;
            }
            let k = sets[owners].len();
            loads[owners].resize(k, 0);
            for request in first..first + count {
                let shares = on_line(next[owners], bytes, large[owners], k, longest);
                next[owners] += bytes;
                for share in &shares {
                    loads[owners][share.owner] += times(share.stop - share.start, bytes, longest);
                }
                senders.choices[request] = if let [one] = shares[..] {
                    one.owner as u32
                } else {
                    senders.splits.push(shares);
                    SPLIT + senders.splits.len() as u32 - 1
                };
            }
        });
        let mut least: Vec<BinaryHeap<Reverse<(u64, usize)>>> = Vec::with_capacity(sets.len());
        for (set, loads) in sets.iter().zip(&loads) {
            let load = |owner: usize| loads.get(owner).copied().unwrap_or(0);
            least.push((0..set.len()).map(|owner| Reverse((load(owner), owner))).collect());
        }
        each(classes, units, &mut |owners, bytes, count, first, _| {
            if bytes > small[owners] {
                return;
            }
            for request in first..first + count {
                let Some(mut top) = least[owners].peek_mut() else { continue };
                senders.choices[request] = top.0.1 as u32;
                top.0.0 += bytes;
            }
        });
        Ok(senders)
    }
}

/// Calls `f` with the owners, the bytes of a request, the number of requests, the first request, and the extent of the
/// longest loop, for each box of each unit that several ranks hold.
fn each(classes: &Classes, units: &[Unit], f: &mut impl FnMut(usize, u64, usize, usize, u64)) {
    for unit in units {
        let class = &classes.list[unit.class];
        if class.requests == 0 {
            continue;
        }
        for one in &class.boxes {
            let (Some(owners), true) = (one.owners, one.requests > 0) else { continue };
            let bytes = one.elements.saturating_mul(class.bytes);
            f(owners, bytes, one.requests, unit.first_request + one.requests_before, classes.longest(one));
        }
    }
}

/// Returns `floor(a b / c)`.
fn times(a: u64, b: u64, c: u64) -> u64 {
    (u128::from(a) * u128::from(b) / u128::from(c.max(1))) as u64
}

/// Returns the shares of the request at `start` of a line, in steps of a loop of `longest` steps.
fn on_line(start: u64, bytes: u64, len: u64, k: usize, longest: u64) -> Vec<Share> {
    let k = k as u64;
    let owner_at = |at: u64| (((u128::from(at) + 1) * u128::from(k) - 1) / u128::from(len.max(1))) as u64;
    let (first, last) = (owner_at(start).min(k - 1), owner_at(start + bytes - 1).min(k - 1));
    let mut shares = Vec::new();
    let mut from = 0;
    for owner in first..=last {
        let end = times(owner + 1, len, k).saturating_sub(start).min(bytes);
        let stop = if owner == last { longest } else { times(end, longest, bytes) };
        if stop > from {
            shares.push(Share { owner: owner as usize, start: from, stop });
            from = stop;
        }
    }
    shares
}
