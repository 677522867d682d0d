//! Extracts the part of one rank from a plan.

use std::collections::HashMap;

use crate::boxes::coalesced;
use crate::class::ClassBox;
use crate::part::{Entry, Loop, Named, RankPart, Template};
use crate::senders::{Sender, Share};
use crate::transfer::{Transfer, Unit};

/// A box of a class that a rank has a role in.
struct Role<'a> {
    one: &'a ClassBox,
    owners: &'a [usize],
    /// The wanters that are not owners, in the order of their requests.
    remote: Vec<usize>,
    /// `true` if the rank wants it.
    is_wanted: bool,
    /// The index of the rank in the owners.
    owner: Option<usize>,
}

/// A box with bases, before templates are numbered.
struct Found {
    peer: Option<usize>,
    class: usize,
    loops: usize,
    share: Option<Share>,
    unit: Unit,
    offsets: [u64; 2],
}

impl Transfer {
    /// Returns the part of a rank; it is empty for a rank of neither side.
    pub fn part(&self, rank: usize) -> RankPart {
        let mut lists: [Vec<Found>; 3] = [Vec::new(), Vec::new(), Vec::new()];
        let roles: Vec<Vec<Role<'_>>> =
            (0..self.classes.list.len()).map(|class| self.roles(class, rank)).collect();
        for unit in &self.units {
            for role in &roles[unit.class] {
                self.add(*unit, role, rank, &mut lists);
            }
        }
        self.assembled(rank, &lists)
    }

    fn roles<'a>(&'a self, class: usize, rank: usize) -> Vec<Role<'a>> {
        let sets = &self.classes.ranks.lists;
        let role = |one: &'a ClassBox| {
            let (owners, wanters) = (one.owners, one.wanters);
            let owners: &[usize] = owners.map_or(&[], |owners| &sets[owners]);
            let is_wanted = sets[wanters].binary_search(&rank).is_ok();
            let owner = owners.binary_search(&rank).ok();
            (is_wanted || owner.is_some()).then(|| Role {
                one,
                owners,
                remote: self.classes.remote(one).collect(),
                is_wanted,
                owner,
            })
        };
        self.classes.list[class].boxes.iter().filter_map(role).collect()
    }

    /// Appends the boxes of a unit to the receives, sends and fills.
    fn add(&self, unit: Unit, role: &Role<'_>, rank: usize, [receives, sends, fills]: &mut [Vec<Found>; 3]) {
        let one = role.one;
        let found = |peer: Option<usize>, share: Option<Share>| Found {
            peer,
            class: unit.class,
            loops: one.loops,
            share,
            unit,
            offsets: [one.source_offset + unit.shifts[0], one.target_offset + unit.shifts[1]],
        };
        if role.owners.is_empty() {
            fills.push(found(None, None));
            return;
        }
        if role.is_wanted && role.owner.is_some() {
            receives.push(found(Some(rank), None));
        }
        let first = unit.first_request + one.requests_before;
        for (k, wanter) in role.remote.iter().enumerate() {
            if *wanter != rank && role.owner.is_none() {
                continue;
            }
            let sender = if role.owners.len() == 1 { Sender::Owner(0) } else { self.senders.of(first + k) };
            let whole = match sender {
                Sender::Owner(owner) => [Share { owner, start: 0, stop: 0 }],
                Sender::Split(_) => [Share { owner: 0, start: 0, stop: 0 }],
            };
            let (shares, is_split) = match sender {
                Sender::Owner(_) => (&whole[..], false),
                Sender::Split(shares) => (shares, true),
            };
            for share in shares {
                let part = Some(*share).filter(|_| is_split);
                if *wanter == rank {
                    receives.push(found(Some(role.owners[share.owner]), part));
                } else if role.owner == Some(share.owner) {
                    sends.push(found(Some(*wanter), part));
                }
            }
        }
    }

    /// Numbers the templates and the tensors of a part.
    fn assembled(&self, rank: usize, lists: &[Vec<Found>; 3]) -> RankPart {
        let (mut used, mut made) = (vec![false; self.sources.len()], vec![false; self.targets.len()]);
        for found in lists.iter().flatten() {
            if let Some(source) = found.unit.source {
                used[source] = true;
            }
            made[found.unit.target] = true;
        }
        for (made, tensor) in made.iter_mut().zip(&self.targets) {
            *made |= self.frames[tensor.number].buffers.contains_key(&rank);
        }
        let [source_order, target_order] = self.orders();
        let (sources, source_numbers) = sorted(&used, source_order, |number| {
            let tensor = &self.sources[number];
            let shards = &self.shards[tensor.number];
            let held = shards.of_rank(rank).map(|region| &shards.held[region].shape);
            let count = held.map_or(0, |shape| shape.iter().product::<usize>() as u64);
            Named { name: tensor.name.clone(), dtype: tensor.dtype, count }
        });
        let (targets, target_numbers) = sorted(&made, target_order, |number| {
            let tensor = &self.targets[number];
            let buffer = self.frames[tensor.number].buffers.get(&rank);
            let count = buffer.map_or(0, |shape| shape.iter().product::<usize>() as u64);
            Named { name: tensor.name.clone(), dtype: tensor.dtype, count }
        });
        let (mut templates, mut numbers): (Vec<Template>, HashMap<Template, usize>) = Default::default();
        let mut known: HashMap<(Option<usize>, usize, usize), usize> = HashMap::new();
        let mut entry = |found: &Found| {
            let loops = &self.classes.loops.lists[found.loops];
            let mut offsets = found.offsets;
            let mut number = |loops: Vec<Loop>| {
                let chain = &self.classes.list[found.class].chain;
                let cast = if chain.len() > 1 && found.peer.is_some() { chain.clone() } else { Vec::new() };
                let template = Template { peer: found.peer, cast, loops };
                *numbers.entry(template).or_insert_with_key(|template| {
                    templates.push(template.clone());
                    templates.len() - 1
                })
            };
            let template = match found.share {
                Some(share) => {
                    let (steps, loops) = narrowed(loops, share);
                    offsets = [offsets[0] + steps[0], offsets[1] + steps[1]];
                    number(loops)
                }
                None => *known
                    .entry((found.peer, found.class, found.loops))
                    .or_insert_with(|| number(loops.clone())),
            };
            Entry {
                template,
                source: found.unit.source.map_or(0, |source| source_numbers[source]),
                target: target_numbers[found.unit.target],
                source_offset: offsets[0],
                target_offset: offsets[1],
            }
        };
        let [receives, sends, fills] = lists;
        let receives = receives.iter().map(&mut entry).collect();
        let sends = sends.iter().map(&mut entry).collect();
        let fills = fills.iter().map(&mut entry).collect();
        RankPart { hash: self.hash, rank, sources, targets, templates, receives, sends, fills }
    }
}

/// Returns the chosen tensors in canonical order, and their indices in it, by number.
fn sorted(chosen: &[bool], order: &[usize], named: impl Fn(usize) -> Named) -> (Vec<Named>, Vec<usize>) {
    let mut numbers: Vec<usize> = (0..chosen.len()).filter(|number| chosen[*number]).collect();
    numbers.sort_unstable_by_key(|number| order[*number]);
    let mut indices = vec![0; chosen.len()];
    numbers.iter().enumerate().for_each(|(index, number)| indices[*number] = index);
    (numbers.into_iter().map(named).collect(), indices)
}

/// Returns some steps of the longest loop: the offset of the first one in both buffers, and the loops.
fn narrowed(loops: &[Loop], share: Share) -> ([u64; 2], Vec<Loop>) {
    let mut loops = loops.to_vec();
    let longest = loops.iter().map(|one| one.extent).max();
    let Some(one) = loops.iter_mut().find(|one| Some(one.extent) == longest) else { return ([0; 2], loops) };
    let steps = [share.start * one.source_stride, share.start * one.target_stride];
    one.extent = share.stop - share.start;
    (steps, coalesced(loops))
}
