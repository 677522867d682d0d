//! Overlapping regions of two shardings. Data that source and target share is sent from one owner to every
//! rank that wants it, in one exchange.
//!
//! Ranks that differ only in axes that shard nothing hold the same: they are replicas. Ranks that differ in
//! other axes hold disjoint regions, each a product over dims. So the target of receiver `c` splits, dim by
//! dim, over the coordinates that shard that dim. For every combination one replica is the source:
//!
//! ```text
//! in the innermost domain of the network around the receiver that holds a replica:
//!     the replica at the receiver's own coordinates (itself, if it holds it), if it is there
//!     else replica number (receiver's index mod number of replicas there)
//! ```
//!
//! This is a pure function of both shardings and the network. So senders find the same blocks by evaluating
//! it for every receiver.
//!
//! **Partial values.** Where axes of the target become partial, each element has its value as one partial
//! value, and the identity as all others. The value is on the receiver that shares the sources' digits of
//! those axes, so that no data is sent along them. Where they were replicated, it is at coordinate 0.

use reshard_layout::InlineVec;
use std::sync::{Arc, OnceLock};

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::model::Level;
use crate::model::network::are_apart;
use crate::regions::grid::Grid;
use crate::regions::lines::Lines;
use crate::regions::partition::Partition;
use crate::regions::spread::Spread;
use reshard_sharding::Coordinate;
use reshard_sharding::SubAxis;
use reshard_sharding::internal::{axis_of, digit, set_digit};
use reshard_sharding::{ReduceOp, Sharding};

/// Two shardings of one tensor whose regions overlap; the meshes may differ.
#[derive(Clone, Debug)]
pub(crate) struct Intersection {
    pub(crate) from: Sharding,
    pub(crate) to: Sharding,
    /// Digits that become partial and were replicated: only coordinate 0 receives, the rest is filled.
    embeds: Modes<AxisStride>,
    /// Digits that become partial and sharded the source: source and receiver have the same digit.
    anchors: Modes<AxisStride>,
    pub(crate) fill: Option<ReduceOp>,
    /// Ranks per domain of each inner level of the network.
    domain_sizes: SmallVec<[usize; 2]>,
    /// The split of missing data among several replicas; `None` if it comes from one.
    pub(crate) spread: Option<Spread>,
    /// `true` if the owners of a region share its requests.
    shares: bool,
    lines: Arc<OnceLock<Option<Lines>>>,
    partitions: Arc<OnceLock<Partitions>>,
}

/// The share of a receiver's region that one sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    /// One of the parts that a [`Spread`] makes.
    Part(usize),
    /// These rows of one dim of the overlap.
    Rows {
        dim: usize,
        start: usize,
        len: usize,
    },
}

/// The regions of every dim of both sides.
#[derive(Debug)]
pub(crate) struct Partitions {
    pub(crate) source: SmallVec<[Partition; 4]>,
    pub(crate) target: SmallVec<[Partition; 4]>,
}

/// By dim and region of the target: the regions of the source that it overlaps, with the shared length.
pub(crate) type Meetings = Vec<Vec<Vec<(usize, usize)>>>;

impl Intersection {
    pub(crate) fn new(from: &Sharding, to: &Sharding) -> Intersection {
        Intersection {
            from: from.clone(),
            to: to.clone(),
            embeds: Modes::new(),
            anchors: Modes::new(),
            fill: None,
            domain_sizes: SmallVec::new(),
            spread: None,
            shares: false,
            lines: Arc::default(),
            partitions: Arc::default(),
        }
    }

    /// Returns the same on a network, with near sources.
    pub(crate) fn on(self, levels: &[Level]) -> Intersection {
        let domain_sizes = levels.iter().filter_map(|l| l.ranks).collect();
        Intersection { domain_sizes, ..self }
    }

    /// Returns the same, but receivers split missing data among replicas of the source.
    pub(crate) fn spread(self, spread: Spread) -> Intersection {
        Intersection { spread: Some(spread), ..self }
    }

    /// Returns the same, but the nearest owners of a region share its requests.
    ///
    /// `None` if no region has several owners.
    pub(crate) fn shared(self, levels: &[Level]) -> Result<Option<Intersection>, Error> {
        let shared = Intersection { shares: true, lines: Arc::default(), ..self.on(levels) };
        Ok(shared.lines()?.is_some().then_some(shared))
    }

    /// Returns the lines by which owners share; `None` if they do not.
    pub(crate) fn lines(&self) -> Result<Option<&Lines>, Error> {
        if !self.shares {
            return Ok(None);
        }
        if let Some(known) = self.lines.get() {
            return Ok(known.as_ref());
        }
        let made = Lines::new(self)?;
        Ok(self.lines.get_or_init(|| made).as_ref())
    }

    /// Returns `true` if a source may be another replica than the one at the receiver's coordinates.
    pub(crate) fn picks_replicas(&self) -> bool {
        self.shares || !self.domain_sizes.is_empty()
    }

    /// Returns the ranks per domain of each inner level, if sources are near.
    pub(crate) fn domain_sizes(&self) -> &[usize] {
        &self.domain_sizes
    }

    /// Returns the same, with a sub-axis of the target that becomes partial and is not partial in the source.
    pub(crate) fn into_terms(mut self, sub: SubAxis, op: ReduceOp) -> Intersection {
        self.fill = Some(op);
        let replicated: InlineVec<SubAxis, 4> =
            if self.one_mesh() { self.from.replicated_axes() } else { InlineVec::from_slice(&[sub]) };
        let end = |s: SubAxis| s.pre_size * s.size;
        let mut pre = sub.pre_size;
        let (mut embeds, mut anchors) = (SmallVec::<[SubAxis; 2]>::new(), SmallVec::<[SubAxis; 2]>::new());
        for r in replicated
            .iter()
            .filter(|r| r.axis == sub.axis && r.pre_size < end(sub) && sub.pre_size < end(**r))
        {
            let (low, high) = (r.pre_size.max(sub.pre_size), end(*r).min(end(sub)));
            let nests = |s: SubAxis| low.is_multiple_of(s.pre_size) && end(s).is_multiple_of(high);
            if !nests(sub) || !nests(*r) || !high.is_multiple_of(low) || !low.is_multiple_of(pre) {
                // They have no common digit: coordinate 0 receives everything.
                self.embeds.push(self.to.mesh().known_mode(sub));
                return self;
            }
            if low > pre {
                anchors.push(SubAxis { pre_size: pre, size: low / pre, ..sub });
            }
            embeds.push(SubAxis { pre_size: low, size: high / low, ..sub });
            pre = high;
        }
        if end(sub) > pre {
            anchors.push(SubAxis { pre_size: pre, size: end(sub) / pre, ..sub });
        }
        self.embeds.extend(embeds.iter().map(|&s| self.to.mesh().known_mode(s)));
        self.anchors.extend(anchors.iter().map(|&s| self.to.mesh().known_mode(s)));
        self
    }

    /// Returns `true` if source and receiver have the same digits of the axes that become partial.
    fn may_meet(&self, source: &[usize], receiver: &[usize]) -> bool {
        self.anchors.iter().all(|&m| digit(source, m) == digit(receiver, m))
    }

    /// Returns the partitions of both sides, made at first use.
    pub(crate) fn partitions(&self) -> Result<&Partitions, Error> {
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

    /// Returns `true` if both shardings are on one mesh.
    pub(crate) fn one_mesh(&self) -> bool {
        self.from.mesh() == self.to.mesh()
    }

    /// Returns `true` if no domain of the network has ranks of both sides.
    pub(crate) fn is_apart(&self) -> bool {
        let domain = self.domain_sizes.iter().copied().max().unwrap_or(1);
        !self.one_mesh() && are_apart(self.from.mesh(), self.to.mesh(), domain)
    }

    /// Returns the rank that sends these regions of the source to `receiver`; `None` if others get them.
    pub(crate) fn source_of(&self, grid: &Grid<'_>, receiver: usize, regions: &[usize]) -> Option<usize> {
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
        let is_near = |rank: usize, size: usize| rank / size == receiver / size;
        if mine.is_some() && self.domain_sizes.first().is_none_or(|&size| is_near(own, size)) {
            return Some(own);
        }
        let index = self.to.mesh().position(receiver).unwrap_or(0);
        let replicated = self.from.replicated_axes();
        if let Ok(replicas) = mesh.members(&replicated, own).as_ref() {
            for &size in &self.domain_sizes {
                if mine.is_some() && is_near(own, size) {
                    break;
                }
                let near = replicas.on_node_of(receiver, size).unwrap_or(0..0);
                if !near.is_empty() {
                    let near = replicas.rank_at(near.start + index % near.len());
                    return Some(near.expect("it is a member"));
                }
            }
        }
        if mine.is_none() {
            let mut left = index as i64;
            for m in replicated.iter().rev().map(|&s| mesh.known_mode(s)) {
                set_digit(&mut c, m, left % m.extent);
                left /= m.extent;
            }
        }
        Some(mesh.rank_at(&c).expect("digits are below their radix"))
    }

    /// Returns the ranks that send a receiver data of the source at `own`.
    pub(crate) fn senders(&self, own: usize, receiver: usize) -> SmallVec<[usize; 4]> {
        match self.spread.as_ref().filter(|_| own != receiver) {
            Some(spread) => spread.replicas(self.from.mesh(), own).collect(),
            None => SmallVec::from_slice(&[own]),
        }
    }

    /// Returns the share of the data of the source at `own` that a rank sends to a receiver.
    pub(crate) fn share(&self, own: usize, receiver: usize, rank: usize) -> Option<Share> {
        match self.spread.as_ref().filter(|_| own != receiver) {
            Some(spread) => spread.part_of(self.from.mesh(), own, rank).map(Share::Part),
            None => (own == rank).then_some(Share::All),
        }
    }

    /// Returns `true` if a rank of the target receives, and `false` if it is only filled.
    pub(crate) fn receives(&self, rank: usize) -> bool {
        self.to.mesh().coordinate(rank).is_some_and(|c| self.receives_at(&c))
    }

    /// Returns the same for the rank at a coordinate.
    pub(crate) fn receives_at(&self, c: &[usize]) -> bool {
        self.embeds.iter().all(|&m| digit(c, m) == 0)
    }

    /// Returns `true` if only some ranks along an axis receive.
    pub(crate) fn fills(&self, axis: usize) -> bool {
        self.embeds.iter().any(|m| axis_of(m.stride) == axis)
    }

    /// Returns the digits of axes that become partial which source and receiver have in common.
    pub(crate) fn anchors(&self) -> &[Mode<AxisStride>] {
        &self.anchors
    }

    /// Returns the digits that become partial and were replicated, of which only value 0 receives.
    pub(crate) fn embeds(&self) -> &[Mode<AxisStride>] {
        &self.embeds
    }

    pub(crate) fn local_len(s: &Sharding, rank: usize) -> Result<usize, Error> {
        if s.mesh().contains(rank) { Ok(s.local_shape(rank)?.iter().product()) } else { Ok(0) }
    }

    /// Returns the overlaps of every dim and region of the target with the regions of the source.
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

    /// Returns an estimate of the number of messages, including those from a rank to itself.
    ///
    /// By dim, it takes the overlaps of every region of the target.
    pub(crate) fn expected_messages<'m>(
        &self,
        dims: impl Iterator<Item = &'m [Vec<(usize, usize)>]>,
    ) -> usize {
        // Regions of different dims overlap independently: the mean of a product is the product of means.
        let mean = |met: &[Vec<(usize, usize)>]| {
            met.iter().map(Vec::len).sum::<usize>() as f64 / met.len().max(1) as f64
        };
        (dims.map(mean).product::<f64>() * self.to.mesh().size() as f64) as usize
    }

    /// Returns the grids of the source and the target.
    pub(crate) fn grids(&self) -> [Grid<'_>; 2] {
        [Grid::new(&self.from), Grid::new(&self.to)]
    }

    /// Calls `f` with every source of a rank, possibly the rank itself, and the number of elements.
    pub(crate) fn pulls(
        &self,
        [source, target]: &[Grid<'_>; 2],
        rank: usize,
        meetings: &Meetings,
        f: &mut impl FnMut(usize, usize),
    ) {
        let Some(c) = self.to.mesh().coordinate(rank).filter(|_| self.receives(rank)) else { return };
        let regions = target.regions_of(&c);
        let met: SmallVec<[&[(usize, usize)]; 4]> =
            regions.iter().zip(meetings).map(|(&j, met)| met[j].as_slice()).collect();
        each_overlap(&met, &mut |regions, lens| {
            if let Some(peer) = self.source_of(source, rank, regions) {
                f(peer, lens.iter().product());
            }
        });
    }
}

/// Calls `f` with every combination of one region per dim, and the number of shared indices of each dim.
pub(crate) fn each_overlap(met: &[&[(usize, usize)]], f: &mut impl FnMut(&[usize], &[usize])) {
    if met.iter().any(|m| m.is_empty()) {
        return;
    }
    let mut at: SmallVec<[usize; 4]> = SmallVec::from_elem(0, met.len());
    loop {
        let (regions, lens): (SmallVec<[usize; 4]>, SmallVec<[usize; 4]>) =
            met.iter().zip(&at).map(|(m, &i)| m[i]).unzip();
        f(&regions, &lens);
        let Some(dim) = (0..met.len()).rev().find(|&d| at[d] + 1 < met[d].len()) else { return };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
}
