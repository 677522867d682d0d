//! The elements that every rank of an intersection wants and already holds, and its messages, from tables by
//! dim.
//!
//! A rank is in one region of every dim, before and after, and its digits number these regions. All counts of
//! a rank are products over dims of what two regions of one dim share. So only a table of all overlapping
//! pairs is computed for each dim:
//!
//! ```text
//! wanted(r)  = prod_d  sum_{i meets j_d} |i & j_d|        j_d the region of r in the target
//! held(r)    = prod_d  |i_d & j_d|                        i_d its region in the source
//! heard(r)   = prod_d  #{i meets j_d}                     messages, including the one to itself
//! ```
//!
//! Where source and receiver must have the same digits of axes that become partial (anchors), only such `i`
//! of each dim count. Those digits are digits of the number `i`, if anchors and splits nest. Ranks are linear
//! in digits. So the rank that holds regions `i` is that of the receiver, shifted in every dim by the
//! distance of `i` from its own region. Where anchors or axes have no such form, `Intersection` gives the
//! same, rank by rank and slowly: it is the definition.

use std::sync::Arc;

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::model::network::is_linear;
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use crate::regions::table::{ByAnchor, Met, Table};
use reshard_sharding::internal::{axis_of, digit};
use reshard_sharding::{Coordinate, Mesh, Sharding, SubAxis};

/// The counts of one rank of an intersection, in elements and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) wanted: usize,
    pub(crate) held: usize,
    pub(crate) heard: usize,
}

impl Seen {
    pub(crate) fn received(self) -> usize {
        self.wanted - self.held
    }

    /// Returns the number of other ranks from which it receives.
    pub(crate) fn peers(self) -> usize {
        self.heard - usize::from(self.held > 0)
    }
}

/// Region numbers as sums over axes: the summand in every dim, by axis and coordinate.
#[derive(Debug)]
pub(super) struct Numbers {
    dims: usize,
    by_axis: SmallVec<[Vec<usize>; 8]>,
}

pub(super) type Regions = SmallVec<[usize; 5]>;

impl Numbers {
    pub(super) fn new(mesh: &Mesh, dims: &[Modes<AxisStride>]) -> Numbers {
        let mut by_axis: SmallVec<[Vec<usize>; 8]> =
            mesh.axes().iter().map(|a| vec![0; a.size() * dims.len()]).collect();
        for (dim, modes) in dims.iter().enumerate() {
            let mut weight = 1;
            for &m in modes.iter().rev() {
                let of_axis = &mut by_axis[axis_of(m.stride)];
                for (c, adds) in of_axis.chunks_mut(dims.len()).enumerate() {
                    adds[dim] += (c as i64 / m.stride.step() % m.extent) as usize * weight;
                }
                weight *= m.extent as usize;
            }
        }
        Numbers { dims: dims.len(), by_axis }
    }

    /// Returns the partial sums over no axis, one, two, .., all.
    pub(super) fn sums(&self) -> Vec<Regions> {
        vec![Regions::from_elem(0, self.dims); self.by_axis.len() + 1]
    }

    /// Updates the sums of a coordinate whose digits from axis `from` on are new.
    pub(super) fn add_up(&self, sums: &mut [Regions], c: &[usize], from: usize) {
        for axis in from..self.by_axis.len() {
            let adds = &self.by_axis[axis][c[axis] * self.dims..][..self.dims];
            let (before, after) = sums.split_at_mut(axis + 1);
            for ((after, before), add) in after[0].iter_mut().zip(&before[axis]).zip(adds) {
                *after = before + add;
            }
        }
    }

    fn uses(&self, axis: usize) -> bool {
        self.by_axis[axis].iter().any(|&add| add > 0)
    }
}

/// The tables of an intersection.
#[derive(Debug)]
pub(crate) struct Tally {
    of: Arc<Intersection>,
    dims: SmallVec<[Table; 4]>,
    source: Numbers,
    target: Numbers,
    /// `true` if the rank of a source is found by adding.
    linear: bool,
    replicas: Replicas,
}

/// The replicas of a source whose ranks are linear.
#[derive(Debug)]
struct Replicas {
    modes: SmallVec<[Mode<AxisStride>; 4]>,
    /// Distances of all replicas from the first, ascending.
    offsets: Vec<i64>,
}

impl Replicas {
    fn new(of: &Intersection, linear: bool) -> Replicas {
        let mesh = of.from.mesh();
        let modes: SmallVec<[Mode<AxisStride>; 4]> =
            of.from.replicated_axes().into_iter().map(|s| mesh.known_mode(s)).collect();
        let mut offsets = vec![0i64];
        for &m in modes.iter().filter(|_| linear && of.picks_replicas()) {
            let steps = (0..m.extent).map(|i| i * step_of(mesh, m));
            offsets = steps.flat_map(|step| offsets.iter().map(move |at| at + step)).collect();
        }
        offsets.sort_unstable();
        Replicas { modes, offsets }
    }

    /// Returns the distance of the rank at a coordinate from the first replica.
    fn at(&self, mesh: &Mesh, c: &[usize]) -> i64 {
        self.modes.iter().map(|&m| digit(c, m) * step_of(mesh, m)).sum()
    }

    /// Returns the distance of the replica with this number from the first.
    fn number(&self, mesh: &Mesh, number: usize) -> i64 {
        let (mut left, mut at) = (number as i64, 0);
        for &m in self.modes.iter().rev() {
            at += left % m.extent * step_of(mesh, m);
            left /= m.extent;
        }
        at
    }

    /// Returns the replica from which a receiver gets data: in the innermost domain that has one.
    ///
    /// `first` is the first of the replicas, and `own` the one at the receiver's coordinates, if any.
    fn nearest(
        &self,
        sizes: &[usize],
        receiver: usize,
        index: usize,
        first: i64,
        own: Option<usize>,
    ) -> Option<usize> {
        for &size in sizes {
            let low = receiver / size * size;
            if let Some(own) = own.filter(|own| (low..low + size).contains(own)) {
                return Some(own);
            }
            let below = |rank: usize| self.offsets.partition_point(|at| first + at < rank as i64);
            let near = below(low)..below(low + size);
            if !near.is_empty() {
                return Some((first + self.offsets[near.start + index % near.len()]) as usize);
            }
        }
        own
    }
}

/// The regions of the source that each rank holds, by rank.
pub(super) struct HeldByRank {
    low: usize,
    dims: usize,
    regions: Vec<usize>,
    /// The rank with the same digits otherwise that holds the first regions.
    first: Vec<i64>,
}

impl HeldByRank {
    /// Returns the regions of `peer` if it may be a source of `rank`.
    pub(super) fn of(&self, peer: usize, rank: usize) -> Option<&[usize]> {
        let first = |rank: usize| self.first.get(rank.checked_sub(self.low)?).copied();
        let at = first(peer).filter(|&first| first > i64::MIN)?;
        (first(rank) == Some(at)).then(|| &self.regions[(peer - self.low) * self.dims..][..self.dims])
    }
}

/// Returns the distance of ranks from one value of a digit to the next.
fn step_of(mesh: &Mesh, m: Mode<AxisStride>) -> i64 {
    let axis = &mesh.axes()[axis_of(m.stride)];
    axis.layout().flat().first().map_or(0, |one| one.stride * m.stride.step())
}

impl Tally {
    /// Creates the tables; `None` where anchors and splits do not nest.
    pub(crate) fn new(of: &Arc<Intersection>) -> Result<Option<Tally>, Error> {
        let (source, target) = (Grid::new(&of.from), Grid::new(&of.to));
        let mesh = of.from.mesh();
        let linear = is_linear(mesh);
        let meetings = of.meetings()?;
        let mut dims: SmallVec<[Table; 4]> = SmallVec::new();
        for (modes, met) in source.dims.iter().zip(meetings) {
            let regions: usize = modes.iter().map(|m| m.extent as usize).product();
            let all = met.iter().map(|met| (met.len(), met.iter().map(|m| m.1).sum())).collect();
            let mut table =
                Table { met, all, of_anchor: Vec::new(), anchored: Vec::new(), offset: vec![0; regions] };
            let mut weight = 1;
            for &m in modes.iter().rev() {
                let n = m.extent as usize;
                let Some(fixed) = of.fixes(m) else { return Ok(None) };
                if fixed {
                    table.anchored.resize(regions, 0);
                    let numbers = table.anchored.iter_mut().enumerate();
                    numbers.for_each(|(i, number)| *number += i / weight % n * weight);
                }
                if linear {
                    let step = step_of(mesh, m);
                    let offsets = table.offset.iter_mut().enumerate();
                    offsets.for_each(|(i, offset)| *offset += (i / weight % n) as i64 * step);
                }
                weight *= n;
            }
            if !table.anchored.is_empty() {
                table.of_anchor =
                    table.by_anchor(|_| (0, 0), |sum, (_, shared)| *sum = (sum.0 + 1, sum.1 + shared));
            }
            dims.push(table);
        }
        let (source, target) = (Numbers::new(mesh, &source.dims), Numbers::new(of.to.mesh(), &target.dims));
        let replicas = Replicas::new(of, linear);
        Ok(Some(Tally { of: Arc::clone(of), dims, source, target, linear, replicas }))
    }

    /// Returns the counts of a receiver with these regions.
    pub(super) fn seen(&self, regions: &[usize], own: Option<&[usize]>) -> Seen {
        let mut seen = Seen { wanted: 1, held: usize::from(own.is_some()), heard: 1 };
        for (dim, table) in self.dims.iter().enumerate() {
            let (j, own) = (regions[dim], own.map(|own| own[dim]));
            let (heard, wanted) = table.seen(j, own);
            let shared = own.and_then(|own| {
                let at = table.met[j].binary_search_by_key(&own, |m| m.0).ok()?;
                Some(table.met[j][at].1)
            });
            seen.wanted *= wanted;
            seen.heard *= heard;
            seen.held *= shared.unwrap_or(0);
        }
        seen
    }

    /// Calls `f` with every receiver: its coordinate in both meshes, and its regions in both.
    ///
    /// Of ranks that differ only in axes that number no region, it calls with one, unless `all` is set.
    pub(super) fn receivers(
        &self,
        all: bool,
        f: &mut impl FnMut(&[usize], Option<&[usize]>, &[usize], Option<&[usize]>),
    ) {
        let (mesh, one_mesh) = (self.of.to.mesh(), self.of.one_mesh());
        let counts = |axis: usize| {
            all || !one_mesh || self.target.uses(axis) || self.source.uses(axis) || self.of.fills(axis)
        };
        let sizes: SmallVec<[usize; 8]> =
            mesh.axes().iter().enumerate().map(|(axis, a)| if counts(axis) { a.size() } else { 1 }).collect();
        let mut c = Coordinate::from_elem(0, sizes.len());
        let mut target = self.target.sums();
        let mut source = self.source.sums();
        let mut from = 0;
        loop {
            self.target.add_up(&mut target, &c, from);
            if one_mesh {
                self.source.add_up(&mut source, &c, from);
            }
            if self.of.receives_at(&c) {
                let theirs;
                let (own, regions): (Option<&[usize]>, Option<&[usize]>) = if one_mesh {
                    (Some(&c), source.last().map(SmallVec::as_slice))
                } else {
                    theirs = mesh.rank_at(&c).and_then(|rank| self.of.from.mesh().coordinate(rank));
                    if let Some(own) = &theirs {
                        self.source.add_up(&mut source, own, 0);
                    }
                    (theirs.as_deref(), theirs.as_ref().and(source.last()).map(SmallVec::as_slice))
                };
                f(&c, own, &target[sizes.len()], regions);
            }
            let Some(axis) = (0..sizes.len()).rev().find(|&a| c[a] + 1 < sizes[a]) else { return };
            c[axis] += 1;
            c[axis + 1..].fill(0);
            from = axis;
        }
    }

    /// Calls `f` with the counts of each rank, once for equivalent ranks.
    pub(crate) fn each(&self, f: &mut impl FnMut(Seen)) {
        self.receivers(false, &mut |_, _, regions, own| f(self.seen(regions, own)));
    }

    /// Returns `true` if any rank receives from another.
    pub(crate) fn is_heard(&self) -> bool {
        let mut heard = false;
        self.each(&mut |seen| heard |= seen.received() > 0);
        heard
    }

    /// Calls `f` with every rank that receives, and its counts.
    pub(crate) fn each_rank(&self, f: &mut impl FnMut(usize, Seen)) {
        let mesh = self.of.to.mesh();
        self.receivers(true, &mut |c, _, regions, own| {
            if let Some(rank) = mesh.rank_at(c) {
                f(rank, self.seen(regions, own));
            }
        });
    }

    /// Returns the number of entries of the tables plus the number of receivers.
    pub(crate) fn size(&self) -> usize {
        let entries = |t: &Table| t.met.iter().map(|met| met.len() + 1).sum::<usize>();
        self.dims.iter().map(entries).sum::<usize>() + self.of.to.mesh().size()
    }

    /// Returns an estimate of the total number of messages, including those from a rank to itself.
    pub(crate) fn message_count(&self) -> usize {
        self.of.expected_messages(self.dims.iter().map(|t| t.met.as_slice()))
    }

    /// Returns the regions of the source by rank; `None` where ranks are not linear.
    pub(super) fn held_by_rank(&self) -> Option<HeldByRank> {
        let sources = self.of.from.mesh();
        if !self.linear {
            return None;
        }
        let (low, high, dims) = (sources.min_rank(), sources.world_size(), self.dims.len());
        let mut held = HeldByRank {
            low,
            dims,
            regions: vec![0; (high - low) * dims],
            first: vec![i64::MIN; high - low],
        };
        let mut sums = self.source.sums();
        for i in 0..sources.size() {
            let Some(c) = sources.coordinate_at(i) else { continue };
            let Some(rank) = sources.rank_at(&c) else { continue };
            self.source.add_up(&mut sums, &c, 0);
            let regions = &sums[c.len()];
            held.regions[(rank - low) * dims..][..dims].copy_from_slice(regions);
            let apart: i64 = self.dims.iter().zip(regions).map(|(table, &i)| table.offset[i]).sum();
            held.first[rank - low] = rank as i64 - apart;
        }
        Some(held)
    }

    /// Returns the most regions of the target that one region of the source overlaps.
    pub(crate) fn most_receivers(&self) -> usize {
        let of_dim = |table: &Table| {
            let mut counts = vec![0usize; table.offset.len()];
            table.met.iter().flatten().for_each(|x| counts[x.0] += 1);
            counts.into_iter().max().unwrap_or(0)
        };
        self.dims.iter().map(of_dim).product()
    }

    /// Returns the intersection.
    pub(crate) fn of(&self) -> &Intersection {
        &self.of
    }

    /// Returns the tables of the dims.
    pub(super) fn dims(&self) -> &[Table] {
        &self.dims
    }

    /// Returns the number of elements that a receiver takes of one combination of source regions.
    pub(super) fn shared(&self, regions: &[usize], theirs: &[usize], own: Option<&[usize]>) -> usize {
        let mut numel = 1;
        for (dim, table) in self.dims.iter().enumerate() {
            if !table.may_meet(theirs[dim], own.map(|own| own[dim])) {
                return 0;
            }
            let met = &table.met[regions[dim]];
            match met.binary_search_by_key(&theirs[dim], |m| m.0) {
                Ok(at) => numel *= met[at].1,
                Err(_) => return 0,
            }
        }
        numel
    }

    /// Returns the sub-axes along which any rank receives from another.
    ///
    /// `None` where sources are near, between two meshes, and where no rank receives.
    pub(crate) fn moved(&self) -> Option<Vec<SubAxis>> {
        if self.of.picks_replicas() || !self.of.one_mesh() {
            return None;
        }
        let grid = Grid::new(&self.of.from);
        let digits = |modes: &Modes<AxisStride>, mut i: usize| -> SmallVec<[usize; 4]> {
            let of_mode = |m: &Mode<AxisStride>| {
                let digit = i % m.extent as usize;
                i /= m.extent as usize;
                digit
            };
            modes.iter().rev().map(of_mode).collect()
        };
        // The digits that all regions which overlap one region have in common.
        let common: Vec<_> = grid
            .dims
            .iter()
            .zip(&self.dims)
            .map(|(modes, table)| {
                let first =
                    |i| digits(modes, i).into_iter().map(Some).collect::<SmallVec<[Option<usize>; 4]>>();
                table.by_anchor(first, |common, (i, _)| {
                    for (common, digit) in common.iter_mut().zip(digits(modes, i)) {
                        *common = common.filter(|c| *c == digit);
                    }
                })
            })
            .collect();
        let mut moved: Vec<Vec<bool>> = grid.dims.iter().map(|modes| vec![false; modes.len()]).collect();
        self.receivers(false, &mut |_, _, regions, own| {
            let Some(own) = own.filter(|own| self.seen(regions, Some(own)).received() > 0) else { return };
            for (dim, (modes, table)) in grid.dims.iter().zip(&self.dims).enumerate() {
                let Some(common) = table.at_anchor(&common[dim][regions[dim]], own[dim]) else { continue };
                let mine = digits(modes, own[dim]);
                for (moved, (common, mine)) in moved[dim].iter_mut().rev().zip(common.iter().zip(mine)) {
                    *moved |= *common != Some(mine);
                }
            }
        });
        let mesh = self.of.from.mesh();
        let modes = grid.dims.iter().zip(&moved).flat_map(|(modes, moved)| modes.iter().zip(moved));
        let subs: Vec<SubAxis> = modes.filter(|x| *x.1).filter_map(|(&m, _)| mesh.sub_axis(m)).collect();
        (!subs.is_empty()).then_some(subs)
    }

    /// Returns `true` if [`messages`](Tally::messages) finds ranks by adding.
    pub(crate) fn is_linear(&self) -> bool {
        self.linear
    }

    /// Calls `f` with every rank that receives, and its sources with their elements, possibly itself.
    pub(crate) fn messages(&self, f: &mut impl FnMut(usize, &[(usize, usize)])) {
        let (mesh, sources) = (self.of.to.mesh(), self.of.from.mesh());
        let mut heard: Vec<(usize, usize)> = Vec::new();
        if !self.linear {
            let meetings: Vec<Vec<Vec<(usize, usize)>>> = self.dims.iter().map(|d| d.met.clone()).collect();
            let grids = self.of.grids();
            for rank in mesh.ranks() {
                heard.clear();
                self.of.pulls(&grids, rank, &meetings, &mut |peer, numel| heard.push((peer, numel)));
                f(rank, &heard);
            }
            return;
        }
        let near = self.of.domain_sizes();
        // In dims with anchors, the regions that a receiver may overlap, by anchor.
        let anchored =
            |table: &Table| (!table.anchored.is_empty()).then(|| table.by_anchor(|_| Met::new(), Met::push));
        let anchored: SmallVec<[Option<ByAnchor<Met>>; 4]> = self.dims.iter().map(anchored).collect();
        let mut more: Vec<(usize, usize)> = Vec::new();
        self.receivers(true, &mut |c, own, regions, own_regions| {
            let Some(rank) = mesh.rank_at(c) else { return };
            let index = mesh.axes().iter().zip(c).fold(0, |i, (a, &x)| i * a.size() + x);
            // The source of the first regions: at the receiver's coordinates or, if it has none, a replica of
            // them.
            let (base, replica) = if let (Some(own), Some(regions)) = (own, own_regions) {
                let apart: i64 = self.dims.iter().zip(regions).map(|(table, &i)| table.offset[i]).sum();
                (rank as i64 - apart, if near.is_empty() { 0 } else { self.replicas.at(sources, own) })
            } else {
                let replica = self.replicas.number(sources, index);
                (sources.offset() as i64 + replica, replica)
            };
            heard.clear();
            heard.push((base as usize, 1));
            for (dim, table) in self.dims.iter().enumerate() {
                let own = own_regions.map(|own| own[dim]);
                more.clear();
                let met = match (&anchored[dim], own) {
                    (Some(anchored), Some(own)) => {
                        table.at_anchor(&anchored[regions[dim]], own).map(Vec::as_slice).unwrap_or_default()
                    }
                    (None, _) | (_, None) => &table.met[regions[dim]],
                };
                for &(peer, numel) in &heard {
                    let to = |&(i, shared): &(usize, usize)| {
                        (peer.wrapping_add_signed(table.offset[i] as isize), numel * shared)
                    };
                    more.extend(met.iter().map(to));
                }
                core::mem::swap(&mut heard, &mut more);
            }
            if !near.is_empty() {
                for (peer, _) in &mut heard {
                    let first = *peer as i64 - replica;
                    let own_peer = own.map(|_| *peer);
                    if let Some(nearest) = self.replicas.nearest(near, rank, index, first, own_peer) {
                        *peer = nearest;
                    }
                }
            }
            f(rank, &heard);
        });
    }
}

/// Returns the number of elements of every rank of a sharding, by position in its mesh.
pub(crate) fn local_numels(s: &Sharding) -> Result<Vec<u64>, Error> {
    let mut numels = vec![0u64; s.mesh().size()];
    if let Some(tally) = Tally::new(&Arc::new(Intersection::new(s, s)))? {
        tally.each_rank(&mut |rank, seen| {
            if let Some(i) = s.mesh().position(rank) {
                numels[i] = seen.wanted as u64;
            }
        });
    }
    Ok(numels)
}

/// Returns the elements that the worst rank of the target wants and lacks, for a source that is not partial.
pub(crate) fn most_missing(from: &Sharding, to: &Sharding) -> Result<u64, Error> {
    let mut most = 0;
    if let Some(tally) = Tally::new(&Arc::new(Intersection::new(from, to)))? {
        tally.each(&mut |seen| most = most.max(seen.received() as u64));
    }
    Ok(most)
}

impl Intersection {
    /// Returns `true` if the digits of a mode that shards the source must be the receiver's own.
    ///
    /// `None` if only some of them must.
    pub(super) fn fixes(&self, m: Mode<AxisStride>) -> Option<bool> {
        let (low, high) = (m.stride.step(), m.stride.step() * m.extent);
        let mut fixed = false;
        for a in self.anchors().iter().filter(|a| axis_of(a.stride) == axis_of(m.stride)) {
            let (start, end) = (a.stride.step(), a.stride.step() * a.extent);
            if high <= start || end <= low {
                continue;
            }
            if !(low % start == 0 && end % high == 0) {
                return None;
            }
            fixed = true;
        }
        Some(fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Level;
    use reshard_sharding::ReduceOp;

    /// The tables give the same counts and sources for each rank as the definition.
    #[test]
    fn tables_say_what_the_definition_does() {
        let placements = ["R", "S(0)", "S(1)", "SS(0,2)"];
        let meshes =
            ["x=3,y=4", "x=4,y=2,z=2", "x=2:6,y=3:2", "x=(2,2):(1,4),y=2:2", "x=2,y=3@[3,1,5,0,2,4]"];
        let mut count = 0;
        for (a, b) in meshes.iter().flat_map(|a| meshes.map(|b| (*a, b))) {
            let (a, b): (Mesh, Mesh) = (a.parse().unwrap(), b.parse().unwrap());
            let all = |mesh: &Mesh| -> Vec<Sharding> {
                let axes = mesh.axes().len() as u32;
                let word = |i: usize| {
                    let one = |a| placements[i / placements.len().pow(a) % placements.len()];
                    (0..axes).map(one).collect::<Vec<_>>().join(",")
                };
                let texts = (0..placements.len().pow(axes)).map(word);
                texts.map(|t| Sharding::parse(mesh, &[7, 8], &t).unwrap()).collect()
            };
            for (i, from) in all(&a).iter().enumerate() {
                for (j, to) in all(&b).iter().enumerate() {
                    if (i + 2 * j) % if a == b { 5 } else { 31 } > 0 {
                        continue;
                    }
                    let near = |ranks| Level { ranks, latency_us: 1.0, gbytes_per_s: 1.0 };
                    let mut all = vec![Intersection::new(from, to)];
                    all.push(Intersection::new(from, to).on(&[near(Some(2)), near(Some(6)), near(None)]));
                    all.push(Intersection::new(from, to).on(&[near(Some(3)), near(None)]));
                    if a == b {
                        let whole = b.known_whole((i + j) % b.axes().len());
                        all.push(Intersection::new(from, to).into_terms(whole, ReduceOp::Sum));
                    }
                    for x in all.into_iter().map(Arc::new) {
                        let x = &x;
                        let Some(tally) = Tally::new(x).unwrap() else { continue };
                        count += 1;
                        let meetings = x.meetings().unwrap();
                        let mut seen = std::collections::BTreeMap::new();
                        tally.each_rank(&mut |rank, it| assert!(seen.insert(rank, it).is_none()));
                        let mut least = Vec::new();
                        tally.each(&mut |it| least.push(it));
                        let mut messages = std::collections::BTreeMap::new();
                        tally.messages(&mut |rank, list| drop(messages.insert(rank, list.to_vec())));
                        if !x.picks_replicas() && x.one_mesh() {
                            let modes: Vec<Mode<AxisStride>> = Grid::new(&x.from)
                                .dims
                                .iter()
                                .flat_map(|of_dim| of_dim.iter().copied())
                                .collect();
                            let at =
                                |rank: usize, m: Mode<AxisStride>| digit(&a.coordinate(rank).unwrap(), m);
                            let is_moved = |m: &Mode<AxisStride>| {
                                let heard = messages
                                    .iter()
                                    .flat_map(|(rank, list)| list.iter().map(|m| (*rank, m.0)));
                                heard.into_iter().any(|(rank, peer)| at(rank, *m) != at(peer, *m))
                            };
                            let slow: Vec<SubAxis> =
                                modes.into_iter().filter(is_moved).filter_map(|m| a.sub_axis(m)).collect();
                            assert_eq!(
                                tally.moved().unwrap_or_default(),
                                slow,
                                "{from} on {a} -> {to} on {b}"
                            );
                        }
                        for rank in to.mesh().ranks() {
                            let mut heard = Vec::new();
                            x.pulls(&x.grids(), rank, &meetings, &mut |peer, numel| {
                                heard.push((peer, numel));
                            });
                            let is = |of: &(usize, usize)| of.0 == rank;
                            let slow = Seen {
                                wanted: heard.iter().map(|m| m.1).sum(),
                                held: heard.iter().filter(|m| is(m)).map(|m| m.1).sum(),
                                heard: heard.len(),
                            };
                            let fast = seen.get(&rank).copied().unwrap_or_default();
                            assert_eq!(
                                (fast.wanted, fast.held),
                                (slow.wanted, slow.held),
                                "{from} -> {to} at {rank}"
                            );
                            assert!(fast.heard == slow.heard || fast.wanted == 0, "{from} -> {to} at {rank}");
                            assert!(!seen.contains_key(&rank) || least.contains(&fast));
                            let mut listed = messages.remove(&rank).unwrap_or_default();
                            listed.sort_unstable();
                            heard.sort_unstable();
                            assert_eq!(listed, heard, "{from} -> {to} at {rank}");
                        }
                    }
                }
            }
        }
        assert!(count > 5_000, "{count}");
    }
}
