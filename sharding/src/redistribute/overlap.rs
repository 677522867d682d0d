//! The direct plan: whatever source and target share moves from one holder to every wanter, in one exchange.
//!
//! Ranks that differ only in axes that shard nothing hold the same: they are replicas. Ranks that differ in others hold
//! disjoint regions, each a product over dims. So what receiver `c` wants splits, dim by dim, over the coordinates that
//! shard that dim; for every combination one replica is the source:
//!
//! ```text
//! in the innermost unit of the network around the receiver that holds a replica:
//!     the replica at the receiver's own coordinates (itself, if it holds it), if it is there
//!     else replica number (receiver's index mod number of replicas there)
//! ```
//!
//! which is a pure function of both shardings and the network, so senders find the same blocks by asking it for every
//! wanter.
//!
//! **Terms.** Where axes of the target become partial, the terms of each element are its value, once, and the identity.
//! Who has the value is the receiver that shares the sources' digits of those axes, so that nothing moves along them;
//! where they were replicated, the one at coordinate 0.

use std::sync::{Arc, OnceLock};

use reshard_layout::{At, Mode, Modes};
use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::mesh::{Coordinate, digit, set_digit};
use crate::redistribute::cost::Topology;
use crate::redistribute::grid::Grid;
use crate::redistribute::messages::{Block, Message, Phase, Reduce, members};
use crate::redistribute::partition::{Partition, Shares, Side};
use crate::region::{Run, shared, shared_len};
use crate::{Error, ReduceOp, Sharding};

/// Two shardings of one tensor whose regions overlap; the meshes may differ.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) from: Sharding,
    pub(crate) to: Sharding,
    /// What becomes partial and was replicated: only coordinate 0 receives, the rest is filled.
    embeds: Modes<At>,
    /// What becomes partial and sharded: source and receiver have the same digit.
    anchors: Modes<At>,
    pub(crate) fill: Option<ReduceOp>,
    /// Ranks of a unit of each inner level of the network.
    units: SmallVec<[usize; 2]>,
    partitions: Arc<OnceLock<Partitions>>,
}

/// The regions of every dim of both sides.
#[derive(Debug)]
struct Partitions {
    source: SmallVec<[Partition; 4]>,
    target: SmallVec<[Partition; 4]>,
}

/// By dim and region of the target: the regions of the source that it meets, and in how many indices.
pub(crate) type Meetings = Vec<Vec<Vec<(usize, usize)>>>;

impl Overlap {
    pub(crate) fn new(from: &Sharding, to: &Sharding) -> Overlap {
        Overlap {
            from: from.clone(),
            to: to.clone(),
            embeds: Modes::new(),
            anchors: Modes::new(),
            fill: None,
            units: SmallVec::new(),
            partitions: Arc::default(),
        }
    }

    /// The same on a network: sources are near.
    pub(crate) fn on(self, topology: &Topology) -> Overlap {
        let units = topology.levels().iter().filter_map(|l| l.ranks).collect();
        Overlap { units, ..self }
    }

    /// Whether a source may be another replica than the one at the receiver's coordinates.
    pub(crate) fn picks_replicas(&self) -> bool {
        !self.units.is_empty()
    }

    /// The same where a sub-axis of the target becomes partial, of which the source owes nothing.
    pub(crate) fn into_terms(mut self, sub: SubAxis, op: ReduceOp) -> Overlap {
        self.fill = Some(op);
        let replicated: SmallVec<[SubAxis; 4]> =
            if self.one_mesh() { self.from.replicated_axes() } else { SmallVec::from_slice(&[sub]) };
        let end = |s: SubAxis| s.pre * s.size;
        let mut pre = sub.pre;
        let (mut embeds, mut anchors) = (SmallVec::<[SubAxis; 2]>::new(), SmallVec::<[SubAxis; 2]>::new());
        for r in replicated.iter().filter(|r| r.axis == sub.axis && r.pre < end(sub) && sub.pre < end(**r)) {
            let (low, high) = (r.pre.max(sub.pre), end(*r).min(end(sub)));
            let nests = |s: SubAxis| low.is_multiple_of(s.pre) && end(s).is_multiple_of(high);
            if !nests(sub) || !nests(*r) || !high.is_multiple_of(low) || !low.is_multiple_of(pre) {
                // No digit of both: the one at coordinate 0 receives everything.
                self.embeds.push(self.to.mesh().mode(sub));
                return self;
            }
            if low > pre {
                anchors.push(SubAxis { pre, size: low / pre, ..sub });
            }
            embeds.push(SubAxis { pre: low, size: high / low, ..sub });
            pre = high;
        }
        if end(sub) > pre {
            anchors.push(SubAxis { pre, size: end(sub) / pre, ..sub });
        }
        self.embeds.extend(embeds.iter().map(|&s| self.to.mesh().mode(s)));
        self.anchors.extend(anchors.iter().map(|&s| self.to.mesh().mode(s)));
        self
    }

    /// Whether source and receiver may meet: they have the same digits of what becomes partial.
    fn may_meet(&self, source: &[usize], receiver: &[usize]) -> bool {
        self.anchors.iter().all(|&m| digit(source, m) == digit(receiver, m))
    }

    /// The partitions of both sides, made at first use.
    fn partitions(&self) -> Result<&Partitions, Error> {
        if let Some(known) = self.partitions.get() {
            return Ok(known);
        }
        let of = |grid: &Grid<'_>| -> Result<SmallVec<[Partition; 4]>, Error> {
            (0..grid.dims.len())
                .map(|dim| Partition::new(grid.regions(dim), |i| grid.intervals(dim, i)))
                .collect()
        };
        let made = Partitions { source: of(&Grid::new(&self.from))?, target: of(&Grid::new(&self.to))? };
        Ok(self.partitions.get_or_init(|| made))
    }

    /// Whether both shardings are on one mesh.
    pub(crate) fn one_mesh(&self) -> bool {
        self.from.mesh() == self.to.mesh()
    }

    /// Every rank that holds or wants something, ascending.
    pub(crate) fn ranks(&self) -> Vec<usize> {
        let mut ranks: Vec<usize> = self.from.mesh().ranks().chain(self.to.mesh().ranks()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    pub(crate) fn members(&self, axes: &[Mode<At>], rank: usize) -> Result<Vec<usize>, Error> {
        if self.one_mesh() { members(self.from.mesh(), axes, rank) } else { Ok(self.ranks()) }
    }

    /// The rank that `receiver` gets these regions of the source from; `None` if others get them.
    fn source_of(&self, grid: &Grid<'_>, receiver: usize, regions: &[usize]) -> Option<usize> {
        let mesh = self.from.mesh();
        let mine = mesh.coordinate(receiver);
        let mut c = mine.clone().unwrap_or_else(|| Coordinate::from_elem(0, mesh.axes().len()));
        for (dim, &i) in regions.iter().enumerate() {
            grid.set(&mut c, dim, i);
        }
        if let Some(mine) = &mine
            && !self.may_meet(&c, mine)
        {
            return None;
        }
        let own = mesh.rank_at(&c).expect("digits are below their radix");
        let is_near = |rank: usize, unit: usize| rank / unit == receiver / unit;
        if mine.is_some() && self.units.first().is_none_or(|&u| is_near(own, u)) {
            return Some(own);
        }
        let index = self.to.mesh().index_of(receiver).unwrap_or(0);
        let replicated = self.from.replicated_axes();
        if let Ok(replicas) = mesh.members(&replicated, own).as_ref() {
            for &unit in &self.units {
                if mine.is_some() && is_near(own, unit) {
                    break;
                }
                let near = replicas.on_node_of(receiver, unit).unwrap_or(0..0);
                if !near.is_empty() {
                    let offset = replicas.pattern().layout().at((near.start + index % near.len()) as i64);
                    return Some(replicas.first() + offset.expect("it is a member") as usize);
                }
            }
        }
        if mine.is_none() {
            let mut left = index as i64;
            for m in replicated.iter().rev().map(|&s| mesh.mode(s)) {
                set_digit(&mut c, m, left % m.extent);
                left /= m.extent;
            }
        }
        Some(mesh.rank_at(&c).expect("digits are below their radix"))
    }

    /// Whether a rank of the target receives, or is only filled.
    fn receives(&self, rank: usize) -> bool {
        let mesh = self.to.mesh();
        let Some(c) = mesh.coordinate(rank) else { return false };
        self.embeds.iter().all(|&m| digit(&c, m) == 0)
    }

    fn local_len(s: &Sharding, rank: usize) -> Result<usize, Error> {
        if s.mesh().contains(rank) { Ok(s.local_shape(rank)?.iter().product()) } else { Ok(0) }
    }

    /// What a rank receives.
    pub(crate) fn received(&self, rank: usize) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::new();
        if !self.receives(rank) || Overlap::local_len(&self.to, rank)? == 0 {
            return Ok(messages);
        }
        let source = Grid::new(&self.from);
        let region = self.to.region(rank)?;
        let parts = &self.partitions()?.source;
        let shares: Vec<Shares> =
            parts.iter().zip(&region.dims).map(|(part, list)| part.shares(list, Side::Source)).collect();
        for_each_choice(&shares, &mut |regions, runs| {
            if let Some(peer) = self.source_of(&source, rank, regions) {
                let blocks = blocks(runs, &self.from.local_shape(peer)?, &self.to.local_shape(rank)?);
                messages.push(Message { peer, blocks });
            }
            Ok(())
        })?;
        Ok(messages)
    }

    pub(crate) fn phase(&self, rank: usize, members: Vec<usize>) -> Result<Phase, Error> {
        let mut phase = Phase {
            source_len: Overlap::local_len(&self.from, rank)?,
            target_len: Overlap::local_len(&self.to, rank)?,
            fill: self.fill,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: None,
            members,
        };
        phase.receives = self.received(rank)?;
        let (source, target) = (Grid::new(&self.from), Grid::new(&self.to));
        if phase.source_len > 0 {
            let region = self.from.region(rank)?;
            let mine = self.from.mesh().coordinate(rank).expect("it holds something");
            let my_regions = source.regions_of(&mine);
            let parts = &self.partitions()?.target;
            let shares: Vec<Shares> =
                parts.iter().zip(&region.dims).map(|(part, list)| part.shares(list, Side::Target)).collect();
            // Whoever shares these regions of the target: its replicas and its partial coordinates.
            let mesh = self.to.mesh();
            let partial = self.to.partial().iter().map(|p| p.sub);
            let others: Modes<At> =
                self.to.replicated_axes().into_iter().chain(partial).map(|s| mesh.mode(s)).collect();
            for_each_choice(&shares, &mut |regions, runs| {
                let mut c = Coordinate::from_elem(0, mesh.axes().len());
                for (dim, &i) in regions.iter().enumerate() {
                    target.set(&mut c, dim, i);
                }
                let first = mesh.rank_at(&c).expect("digits are below their radix");
                for receiver in super::messages::members(mesh, &others, first)? {
                    if receiver != rank
                        && self.receives(receiver)
                        && self.source_of(&source, receiver, &my_regions) == Some(rank)
                    {
                        let blocks =
                            blocks(runs, &self.from.local_shape(rank)?, &self.to.local_shape(receiver)?);
                        phase.sends.push(Message { peer: receiver, blocks });
                    }
                }
                Ok(())
            })?;
        }
        Ok(phase)
    }

    /// The phase in which every rank gets the reduction of its target region over the members `order`.
    pub(crate) fn reduced(
        &self,
        rank: usize,
        order: &[usize],
        reduce: Reduce,
        members: Vec<usize>,
    ) -> Result<Phase, Error> {
        let mut phase = Phase {
            source_len: Overlap::local_len(&self.from, rank)?,
            target_len: Overlap::local_len(&self.to, rank)?,
            fill: None,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: Some(reduce),
            members,
        };
        for &peer in order {
            if phase.target_len > 0 {
                let blocks = between(&self.from, peer, &self.to, rank)?;
                phase.receives.push(Message { peer, blocks });
            }
            if peer != rank {
                let blocks = between(&self.from, rank, &self.to, peer)?;
                if !blocks.is_empty() {
                    phase.sends.push(Message { peer, blocks });
                }
            }
        }
        Ok(phase)
    }

    /// For every dim and region of the target, the regions of the source that it meets, and in how many indices.
    pub(crate) fn meetings(&self) -> Result<Meetings, Error> {
        let target = Grid::new(&self.to);
        let parts = &self.partitions()?.source;
        (0..parts.len())
            .map(|dim| {
                let met = |j: usize| Ok(parts[dim].met(&target.intervals(dim, j)?));
                (0..target.regions(dim)).map(met).collect()
            })
            .collect()
    }

    /// How many messages are received in all, what ranks send themselves included, as far as a number goes.
    pub(crate) fn message_count(&self, meetings: &Meetings) -> usize {
        let grid = Grid::new(&self.to);
        let of_dim = |(dim, met): (usize, &Vec<Vec<(usize, usize)>>)| {
            // Every region of a dim is that of as many ranks.
            let ranks = self.to.mesh().size() / grid.regions(dim).max(1);
            (met.iter().map(Vec::len).sum::<usize>(), ranks)
        };
        // Regions of different dims meet independently of each other: the mean of a product is the product of means.
        let mean = |(sum, ranks): (usize, usize)| sum as f64 * ranks as f64 / self.to.mesh().size() as f64;
        let each: f64 = meetings.iter().enumerate().map(|x| mean(of_dim(x))).product();
        (each * self.to.mesh().size() as f64) as usize
    }

    /// Calls `f` with every source of a rank, itself perhaps, and the number of elements.
    pub(crate) fn pulls(&self, rank: usize, meetings: &Meetings, f: &mut impl FnMut(usize, usize)) {
        let source = Grid::new(&self.from);
        let Some(c) = self.to.mesh().coordinate(rank).filter(|_| self.receives(rank)) else { return };
        let regions = Grid::new(&self.to).regions_of(&c);
        let met: SmallVec<[&[(usize, usize)]; 4]> =
            regions.iter().zip(meetings).map(|(&j, met)| met[j].as_slice()).collect();
        if met.iter().any(|m| m.is_empty()) {
            return;
        }
        let mut at: SmallVec<[usize; 4]> = SmallVec::from_elem(0, met.len());
        loop {
            let chosen = || met.iter().zip(&at).map(|(m, &i)| m[i]);
            let regions: SmallVec<[usize; 4]> = chosen().map(|x| x.0).collect();
            if let Some(peer) = self.source_of(&source, rank, &regions) {
                f(peer, chosen().map(|x| x.1).product());
            }
            let Some(dim) = (0..met.len()).rev().find(|&d| at[d] + 1 < met[d].len()) else { return };
            at[dim] += 1;
            at[dim + 1..].fill(0);
        }
    }

    /// How many ranks a rank hears from, itself included, if nothing becomes partial.
    pub(crate) fn sources(&self, rank: usize, meetings: &Meetings) -> usize {
        let Some(c) = self.to.mesh().coordinate(rank).filter(|_| self.receives(rank)) else { return 0 };
        Grid::new(&self.to).regions_of(&c).iter().zip(meetings).map(|(&j, met)| met[j].len()).product()
    }

    /// Elements that a rank wants and elements of those that it holds itself.
    pub(crate) fn wanted_and_held(&self, rank: usize) -> Result<(usize, usize), Error> {
        if !self.receives(rank) {
            return Ok((0, 0));
        }
        let want = self.to.region(rank)?;
        let wanted = want.numel();
        if !self.from.mesh().contains(rank) {
            return Ok((wanted, 0));
        }
        let have = self.from.region(rank)?;
        let held = want.dims.iter().zip(&have.dims).map(|(w, h)| shared_len(h, w)).product();
        Ok((wanted, held))
    }
}

/// What two ranks' regions share, as blocks from one local buffer to the other.
fn between(
    from: &Sharding,
    source: usize,
    to: &Sharding,
    target: usize,
) -> Result<SmallVec<[Block; 1]>, Error> {
    let (s, t) = (from.region(source)?, to.region(target)?);
    let runs: Vec<Vec<Run>> = s.dims.iter().zip(&t.dims).map(|(s, t)| shared(s, t)).collect();
    let runs: Vec<&[Run]> = runs.iter().map(Vec::as_slice).collect();
    Ok(blocks(&runs, &s.local_shape(), &t.local_shape()))
}

/// Calls `f` with every combination of one region per dim and the runs shared there.
fn for_each_choice(
    shares: &[Shares],
    f: &mut impl FnMut(&[usize], &[&[Run]]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = vec![0usize; shares.len()];
    if shares.iter().any(Vec::is_empty) {
        return Ok(());
    }
    loop {
        let regions: SmallVec<[usize; 4]> = shares.iter().zip(&at).map(|(s, &i)| s[i].0).collect();
        let runs: SmallVec<[&[Run]; 4]> = shares.iter().zip(&at).map(|(s, &i)| s[i].1.as_slice()).collect();
        f(&regions, &runs)?;
        let Some(dim) = (0..shares.len()).rev().find(|&d| at[d] + 1 < shares[d].len()) else { return Ok(()) };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
}

/// One block for every combination of one run per dim.
fn blocks(runs: &[&[Run]], source_shape: &[usize], target_shape: &[usize]) -> SmallVec<[Block; 1]> {
    let mut out: SmallVec<[Block; 1]> = SmallVec::new();
    if runs.iter().any(|r| r.is_empty()) {
        return out;
    }
    let strides = |shape: &[usize]| -> SmallVec<[usize; 4]> {
        let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, shape.len());
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d];
        }
        strides
    };
    let (s, t) = (strides(source_shape), strides(target_shape));
    let mut at = vec![0usize; runs.len()];
    loop {
        let mut block = Block { source_offset: 0, target_offset: 0, modes: Modes::new() };
        for (d, &i) in at.iter().enumerate().rev() {
            let r = runs[d][i];
            block.source_offset += r.source * s[d];
            block.target_offset += r.target * t[d];
            for (extent, source, target) in [(r.len, 1, 1), (r.count, r.source_step, r.target_step)] {
                if extent > 1 {
                    let stride = ((source * s[d]) as i64, (target * t[d]) as i64);
                    block.modes.push_coalesced(0, Mode::new(extent as i64, stride));
                }
            }
        }
        out.push(block);
        let Some(d) = (0..runs.len()).rev().find(|&d| at[d] + 1 < runs[d].len()) else { return out };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}
