//! The direct plan: whatever source and target share moves from one holder to every wanter, in one exchange.
//!
//! Ranks that differ only in axes that shard nothing hold the same: they are replicas. Ranks that differ in others hold
//! disjoint regions, each a product over dims. So what receiver `c` wants splits, dim by dim, over the coordinates that
//! shard that dim; for every combination one replica is the source:
//!
//! ```text
//! the receiver itself if it holds it, else the replica at the receiver's own coordinates, else (no coordinates there)
//! replica number (receiver's index mod number of replicas)
//! ```
//!
//! which is a pure function of both shardings, so senders find the same blocks by asking it for every wanter.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::mesh::Coordinate;
use crate::redistribute::messages::{Block, Message, Mode, Phase, Reduce, members};
use crate::redistribute::partition::{Partition, Shares, Side};
use crate::region::{Intervals, Run, shared, shared_len};
use crate::{Error, ReduceOp, Sharding};

/// Two shardings of one tensor whose regions overlap; the meshes may differ.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    pub(crate) from: Sharding,
    pub(crate) to: Sharding,
    /// The sub-axes of the target that become partial, of which only coordinate 0 receives; the rest is filled.
    pub(crate) embeds: SmallVec<[SubAxis; 2]>,
    pub(crate) fill: Option<ReduceOp>,
    /// Nothing moves between ranks: everyone keeps what it holds of its target.
    pub(crate) local: bool,
    partitions: Arc<OnceLock<Partitions>>,
}

/// A sharding as a grid: for each dim the sub-axes that shard it.
struct Grid<'a> {
    sharding: &'a Sharding,
    dims: SmallVec<[SmallVec<[SubAxis; 4]>; 4]>,
}

impl<'a> Grid<'a> {
    fn new(sharding: &'a Sharding) -> Grid<'a> {
        let of_dim = |dim: usize| -> SmallVec<[SubAxis; 4]> {
            match (sharding.digits(), sharding.cuts()) {
                (Some(digits), _) => digits
                    .iter()
                    .filter(|d| d.dim == dim)
                    .filter_map(crate::digits::Digit::sub_axis)
                    .collect(),
                (None, cuts) => {
                    cuts.unwrap_or_default().iter().filter(|c| c.dim == dim).map(|c| c.sub).collect()
                }
            }
        };
        Grid { sharding, dims: (0..sharding.shape().len()).map(of_dim).collect() }
    }

    fn axis_size(&self, s: SubAxis) -> usize {
        self.sharding.mesh().axes()[s.axis].size()
    }

    /// How many different regions a dim has.
    fn regions(&self, dim: usize) -> usize {
        self.dims[dim].iter().map(|s| s.size).product()
    }

    /// Sets the digits that shard a dim to those of its region `i`.
    fn set(&self, c: &mut Coordinate, dim: usize, i: usize) {
        let mut left = i;
        for &s in self.dims[dim].iter().rev() {
            let n = self.axis_size(s);
            c[s.axis] = c[s.axis] - s.digit(c[s.axis], n) * s.post(n) + left % s.size * s.post(n);
            left /= s.size;
        }
    }

    /// Which region of every dim a coordinate holds.
    fn regions_of(&self, c: &[usize]) -> SmallVec<[usize; 4]> {
        let region = |subs: &SmallVec<[SubAxis; 4]>| {
            subs.iter().fold(0, |i, &s| i * s.size + s.digit(c[s.axis], self.axis_size(s)))
        };
        self.dims.iter().map(region).collect()
    }

    fn intervals(&self, dim: usize, i: usize) -> Result<Intervals, Error> {
        let mut c = Coordinate::from_elem(0, self.sharding.mesh().axes().len());
        self.set(&mut c, dim, i);
        self.sharding.intervals(dim, &c)
    }
}

/// The regions of every dim of both sides.
#[derive(Debug)]
struct Partitions {
    source: SmallVec<[Partition; 4]>,
    target: SmallVec<[Partition; 4]>,
}

impl Overlap {
    pub(crate) fn new(from: &Sharding, to: &Sharding) -> Overlap {
        Overlap {
            from: from.clone(),
            to: to.clone(),
            embeds: SmallVec::new(),
            fill: None,
            local: false,
            partitions: Arc::default(),
        }
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

    pub(crate) fn members(&self, axes: &[SubAxis], rank: usize) -> Result<Vec<usize>, Error> {
        if self.one_mesh() { members(self.from.mesh(), axes, rank) } else { Ok(self.ranks()) }
    }

    /// The rank that `receiver` gets these regions of the source from.
    fn source_of(&self, grid: &Grid<'_>, receiver: usize, regions: &[usize]) -> usize {
        let mesh = self.from.mesh();
        let mut c = mesh.coordinate(receiver).unwrap_or_else(|| {
            let mut c = Coordinate::from_elem(0, mesh.axes().len());
            let mut left = self.to.mesh().index_of(receiver).unwrap_or(0);
            for s in self.from.replicated_axes().iter().rev() {
                c[s.axis] += left % s.size * s.post(mesh.axes()[s.axis].size());
                left /= s.size;
            }
            c
        });
        for (dim, &i) in regions.iter().enumerate() {
            grid.set(&mut c, dim, i);
        }
        mesh.rank_at(&c).expect("digits are below their radix")
    }

    /// Whether a rank of the target receives, or is only filled.
    fn receives(&self, rank: usize) -> bool {
        let mesh = self.to.mesh();
        let Some(c) = mesh.coordinate(rank) else { return false };
        self.embeds.iter().all(|s| s.digit(c[s.axis], mesh.axes()[s.axis].size()) == 0)
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
            let peer = self.source_of(&source, rank, regions);
            let blocks = blocks(runs, &self.from.local_shape(peer)?, &self.to.local_shape(rank)?);
            messages.push(Message { peer, blocks });
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
        if self.local {
            if phase.source_len > 0 && self.receives(rank) {
                let blocks = between(&self.from, rank, &self.to, rank)?;
                if !blocks.is_empty() {
                    phase.receives.push(Message { peer: rank, blocks });
                }
            }
            return Ok(phase);
        }
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
            let mut others = self.to.replicated_axes();
            others.extend(self.to.partial().iter().map(|p| p.sub));
            for_each_choice(&shares, &mut |regions, runs| {
                let mut c = Coordinate::from_elem(0, mesh.axes().len());
                for (dim, &i) in regions.iter().enumerate() {
                    target.set(&mut c, dim, i);
                }
                let first = mesh.rank_at(&c).expect("digits are below their radix");
                for receiver in super::messages::members(mesh, &others, first)? {
                    if receiver != rank
                        && self.receives(receiver)
                        && self.source_of(&source, receiver, &my_regions) == rank
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

    /// For every dim and region of the target, how many regions of the source it meets.
    pub(crate) fn meetings(&self) -> Result<Vec<Vec<usize>>, Error> {
        let target = Grid::new(&self.to);
        let parts = &self.partitions()?.source;
        (0..parts.len())
            .map(|dim| {
                let met = |j: usize| Ok(parts[dim].met(&target.intervals(dim, j)?));
                (0..target.regions(dim)).map(met).collect()
            })
            .collect()
    }

    /// How many ranks a rank hears from, by the meetings of its regions, itself included.
    pub(crate) fn sources(&self, rank: usize, meetings: &[Vec<usize>]) -> usize {
        let Some(c) = self.to.mesh().coordinate(rank).filter(|_| self.receives(rank)) else { return 0 };
        Grid::new(&self.to).regions_of(&c).iter().zip(meetings).map(|(&j, met)| met[j]).product()
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
        let mut block = Block { source_offset: 0, target_offset: 0, modes: SmallVec::new() };
        for (d, &i) in at.iter().enumerate() {
            let r = runs[d][i];
            block.source_offset += r.source * s[d];
            block.target_offset += r.target * t[d];
            block.push(Mode {
                extent: r.count,
                source_stride: r.source_step * s[d],
                target_stride: r.target_step * t[d],
            });
            block.push(Mode { extent: r.len, source_stride: s[d], target_stride: t[d] });
        }
        out.push(block);
        let Some(d) = (0..runs.len()).rev().find(|&d| at[d] + 1 < runs[d].len()) else { return out };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}
