//! What every rank of an intersection sends, from tables by dim.
//!
//! A receiver takes data from the rank that has its own digits, except those that shard the source. So on one
//! mesh the receivers of a sender have the sender's digits that do not shard the source, and its digits of
//! axes that become partial. Those digits are *fixed*, all others are *free*. With `i` the regions of the
//! sender in the source, and `j` over the regions of the target that have the fixed digits,
//!
//! ```text
//! sent(r)  = alike * prod_d  sum_j |i_d & j_d|         alike: values of free digits that number no region of the target
//! told(r)  = alike * prod_d  #{j meets i_d}            messages, including the one to itself
//! ```
//!
//! Where digits of the target are neither fixed nor free, there is no table, and messages are counted.

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::model::Level;
use crate::model::exchange::Direction;
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use crate::regions::tally::{Numbers, Regions, Tally};
use reshard_sharding::internal::axis_of;

/// The sum over the regions of the target that have some fixed digits: their number, and the shared indices.
type OfFixed = (usize, usize, usize);

/// The tables of all senders.
pub(crate) struct Senders<'t> {
    tally: &'t Tally,
    /// By dim and region of the source, the sums by number of the fixed digits, ascending.
    dims: SmallVec<[Vec<SmallVec<[OfFixed; 4]>>; 4]>,
    fixed: Numbers,
    alike: usize,
}

/// Returns `true` if all digits of a mode are digits of one of the others.
fn nests_in(m: Mode<AxisStride>, others: &[Mode<AxisStride>]) -> bool {
    let range = |m: Mode<AxisStride>| (m.stride.step(), m.stride.step() * m.extent);
    let (low, high) = range(m);
    others.iter().any(|&other| {
        let (start, end) = range(other);
        axis_of(other.stride) == axis_of(m.stride)
            && start <= low
            && high <= end
            && low % start == 0
            && end % high == 0
    })
}

impl<'t> Senders<'t> {
    /// Returns the tables; `None` between two meshes, where sources are near, and where digits do not nest.
    pub(crate) fn new(tally: &'t Tally) -> Option<Senders<'t>> {
        let of: &Intersection = tally.of();
        if !of.one_mesh() || of.picks_replicas() || of.spread.is_some() {
            return None;
        }
        let mesh = of.from.mesh();
        let grid = Grid::new(&of.from);
        let mut free: SmallVec<[Mode<AxisStride>; 8]> = SmallVec::new();
        let mut fixed: SmallVec<[Mode<AxisStride>; 8]> =
            of.from.replicated_axes().into_iter().map(|s| mesh.known_mode(s)).collect();
        // Partial axes of the source are the receiver's own, too.
        fixed.extend(of.from.partial().iter().map(|p| mesh.known_mode(p.sub)));
        for &m in grid.dims.iter().flatten() {
            if of.fixes(m)? { fixed.push(m) } else { free.push(m) }
        }
        if of.embeds().iter().any(|&m| !nests_in(m, &fixed)) {
            return None;
        }
        let target = Grid::new(&of.to);
        let mut alike = mesh.size() / fixed.iter().map(|m| m.extent as usize).product::<usize>();
        let (mut dims, mut of_dims) = (SmallVec::new(), Vec::new());
        for (modes, table) in target.dims.iter().zip(tally.dims()) {
            let mut digits: SmallVec<[(usize, usize, usize); 4]> = SmallVec::new();
            let (mut fixed_of_dim, mut weight) = (Modes::new(), 1usize);
            for &m in modes {
                if nests_in(m, &fixed) {
                    fixed_of_dim.push(m);
                } else if nests_in(m, &free) {
                    alike /= m.extent as usize;
                } else {
                    return None;
                }
            }
            let mut numbers = 1usize;
            for &m in modes.iter().rev() {
                let n = m.extent as usize;
                if fixed_of_dim.contains(&m) {
                    digits.push((weight, n, numbers));
                    numbers *= n;
                }
                weight *= n;
            }
            let number = |j: usize| digits.iter().map(|&(w, n, number)| j / w % n * number).sum::<usize>();
            let mut sums: Vec<SmallVec<[OfFixed; 4]>> = vec![SmallVec::new(); table.offset.len()];
            for (j, met) in table.met.iter().enumerate() {
                let fixed = number(j);
                for &(i, shared) in met {
                    sums[i].push((fixed, 1, shared));
                }
            }
            for of_region in &mut sums {
                of_region.sort_unstable_by_key(|x| x.0);
                of_region.dedup_by(|b, a| {
                    let same = a.0 == b.0;
                    if same {
                        (a.1, a.2) = (a.1 + b.1, a.2 + b.2);
                    }
                    same
                });
            }
            dims.push(sums);
            of_dims.push(fixed_of_dim);
        }
        let fixed = Numbers::new(mesh, &of_dims);
        Some(Senders { tally, dims, fixed, alike })
    }

    /// Calls `f` with the coordinate, elements and peers of each rank that sends; `all` as for receivers.
    pub(crate) fn each(&self, all: bool, f: &mut impl FnMut(&[usize], usize, usize)) {
        let mut sums = self.fixed.sums();
        self.tally.receivers(all, &mut |c, _, regions, own| {
            let Some(own) = own else { return };
            self.fixed.add_up(&mut sums, c, 0);
            let fixed: &Regions = &sums[c.len()];
            let (mut sent, mut told) = (self.alike, self.alike);
            for (dim, table) in self.dims.iter().enumerate() {
                let of_region = &table[own[dim]];
                let at = of_region.binary_search_by_key(&fixed[dim], |x| x.0);
                let (count, shared) = at.map_or((0, 0), |at| (of_region[at].1, of_region[at].2));
                (sent, told) = (sent * shared, told * count);
            }
            let held = self.tally.seen(regions, Some(own)).held;
            f(c, sent - held, told - usize::from(held > 0));
        });
    }

    /// Calls `f` with the elements and peers over each level of every rank, as receiver and as sender.
    ///
    /// Returns `None` where ranks are not linear. Only pairs of ranks inside one domain are examined: all
    /// other data crosses the outermost level.
    pub(crate) fn by_level(
        &self,
        levels: &[Level],
        f: &mut impl FnMut(Direction, &[(usize, usize)]),
    ) -> Option<()> {
        let mesh = self.tally.of().from.mesh();
        let held = self.tally.held_by_rank()?;
        let (low, inner) = (mesh.min_rank(), levels.len() - 1);
        let mut sent = vec![(0, 0); (mesh.world_size() - low) * inner];
        let mut heard: SmallVec<[(usize, usize); 3]> = SmallVec::from_elem((0, 0), levels.len());
        let outermost = |of_levels: &mut [(usize, usize)], all: (usize, usize)| {
            let (last, inner) = of_levels.split_last_mut().expect("a network has a level");
            let within = inner.iter().fold((0, 0), |sum, x| (sum.0 + x.0, sum.1 + x.1));
            *last = (all.0 - within.0, all.1 - within.1);
        };
        self.tally.receivers(true, &mut |c, _, regions, own| {
            let Some(rank) = mesh.rank_at(c) else { return };
            heard.fill((0, 0));
            let mut done = rank..rank + 1;
            for (l, domain) in levels.iter().enumerate().filter_map(|(l, x)| Some((l, x.ranks?))) {
                let start = rank / domain * domain;
                for peer in (start..start + domain).filter(|peer| !done.contains(peer)) {
                    let Some(theirs) = held.of(peer, rank) else { continue };
                    let numel = self.tally.shared(regions, theirs, own);
                    if numel > 0 {
                        heard[l] = (heard[l].0 + numel, heard[l].1 + 1);
                        let at = &mut sent[(peer - low) * inner + l];
                        *at = (at.0 + numel, at.1 + 1);
                    }
                }
                done = start..start + domain;
            }
            let seen = self.tally.seen(regions, own);
            outermost(&mut heard, (seen.received(), seen.peers()));
            f(Direction::In, &heard);
        });
        self.each(true, &mut |c, numel, peers| {
            let Some(rank) = mesh.rank_at(c) else { return };
            heard[..inner].copy_from_slice(&sent[(rank - low) * inner..][..inner]);
            outermost(&mut heard, (numel, peers));
            f(Direction::Out, &heard);
        });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use reshard_sharding::{Mesh, ReduceOp, Sharding};

    /// Both directions of every rank over every level equal what its messages add up to.
    #[test]
    fn tables_say_what_the_messages_do() {
        let placements = ["R", "S(0)", "S(1)", "SS(0,2)"];
        let meshes =
            ["x=3,y=4", "x=4,y=2,z=2", "x=2:6,y=3:2", "x=(2,2):(1,4),y=2:2", "x=2,y=3@[3,1,5,0,2,4]"];
        let (mut count, mut levelled) = (0, 0);
        for text in meshes {
            let mesh: Mesh = text.parse().unwrap();
            let axes = mesh.axes().len() as u32;
            let word = |i: usize| {
                let one = |a| placements[i / placements.len().pow(a) % placements.len()];
                (0..axes).map(one).collect::<Vec<_>>().join(",")
            };
            let all: Vec<Sharding> = (0..placements.len().pow(axes))
                .map(|i| Sharding::parse(&mesh, &[7, 8], &word(i)).unwrap())
                .collect();
            for (i, from) in all.iter().enumerate() {
                for (j, to) in all.iter().enumerate().filter(|(j, _)| (i + 2 * j) % 5 == 0) {
                    let whole = mesh.known_whole((i + j) % mesh.axes().len());
                    let plain = Intersection::new(from, to);
                    let filled = Intersection::new(from, to).into_terms(whole, ReduceOp::Sum);
                    for x in [plain, filled].map(Arc::new) {
                        let Some(tally) = Tally::new(&x).unwrap() else { continue };
                        let Some(senders) = Senders::new(&tally) else { continue };
                        count += 1;
                        levelled += usize::from(compares(&x, &tally, &senders));
                    }
                }
            }
        }
        assert!(count > 1_500 && levelled > 1_000, "{count} {levelled}");
    }

    fn compares(x: &Intersection, tally: &Tally, senders: &Senders<'_>) -> bool {
        let (from, to) = (&x.from, &x.to);
        let level = |ranks| Level { ranks, latency_us: 1.0, gbytes_per_s: 1.0 };
        let levels = [level(Some(2)), level(Some(6)), level(None)];
        let level_of =
            |a: usize, b: usize| levels.iter().position(|l| l.ranks.is_none_or(|n| a / n == b / n)).unwrap();
        let mut slow: [BTreeMap<usize, Vec<(usize, usize)>>; 2] = [BTreeMap::new(), BTreeMap::new()];
        tally.messages(&mut |rank, heard| {
            for &(peer, numel) in heard.iter().filter(|m| m.0 != rank) {
                for (side, of) in [rank, peer].into_iter().enumerate() {
                    let at = &mut slow[side].entry(of).or_insert(vec![(0, 0); 3])[level_of(rank, peer)];
                    *at = (at.0 + numel, at.1 + 1);
                }
            }
        });
        let total = |loads: &[(usize, usize)]| loads.iter().fold((0, 0), |sum, x| (sum.0 + x.0, sum.1 + x.1));
        let mut seen = 0;
        senders.each(true, &mut |c, numel, peers| {
            let rank = from.mesh().rank_at(c).unwrap();
            let slow = slow[1].get(&rank).map_or((0, 0), |loads| total(loads));
            assert_eq!((numel, if numel > 0 { peers } else { 0 }), slow, "{from} -> {to} at {rank}");
            seen += usize::from(numel > 0);
        });
        assert_eq!(seen, slow[1].len(), "{from} -> {to}");
        let none = vec![(0, 0); 3];
        let mut found = [Vec::new(), Vec::new()];
        let known = senders.by_level(&levels, &mut |direction, loads| {
            if total(loads).0 > 0 {
                found[usize::from(direction == Direction::Out)].push(loads.to_vec());
            }
        });
        if known.is_none() {
            return false;
        }
        for (found, slow) in found.iter_mut().zip(slow) {
            let mut slow: Vec<Vec<(usize, usize)>> = slow.into_values().filter(|x| *x != none).collect();
            found.sort();
            slow.sort();
            assert_eq!(*found, slow, "{from} -> {to}");
        }
        true
    }
}
