//! Overlapping regions: the blocks that every rank receives and sends.

use reshard_layout::InlineVec;
use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::message::{Block, Message, Phase};
use crate::regions::grid::Grid;
use crate::regions::intersection::{Intersection, Share};
use crate::regions::partition::{Shares, Side};
use crate::regions::spread::{numel, rows};
use crate::step::Reduction;
use reshard_sharding::Coordinate;
use reshard_sharding::Sharding;
use reshard_sharding::internal::members_along;
use reshard_sharding::internal::{Run, shared};

impl Intersection {
    /// Returns a phase without any messages yet.
    fn still(&self, rank: usize, members: Vec<usize>) -> Result<Phase, Error> {
        Ok(Phase {
            source_len: Intersection::local_len(&self.from, rank)?,
            target_len: Intersection::local_len(&self.to, rank)?,
            fill_identity: None,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: None,
            members,
        })
    }

    /// Returns the messages that a rank receives.
    fn received(&self, rank: usize) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::new();
        if !self.receives(rank) || Intersection::local_len(&self.to, rank)? == 0 {
            return Ok(messages);
        }
        let source = Grid::new(&self.from);
        let region = self.to.region(rank)?;
        let parts = &self.partitions()?.source;
        let shares: Vec<Shares> =
            parts.iter().zip(&region.dims).map(|(part, list)| part.shares(list, Side::Source)).collect();
        if let Some(lines) = self.lines()? {
            let Some(receiver) = lines.receiver(self, &Grid::new(&self.to), rank) else {
                return Ok(messages);
            };
            for_each_choice(&shares, &mut |regions, runs| {
                let lens: SmallVec<[usize; 4]> = runs.iter().map(|runs| numel(runs)).collect();
                for x in receiver.served(regions, &lens) {
                    let blocks = self.blocks_of(x.share, runs, [x.peer, rank])?;
                    messages.push(Message { peer: x.peer, blocks });
                }
                Ok(())
            })?;
            return Ok(messages);
        }
        for_each_choice(&shares, &mut |regions, runs| {
            let Some(own) = self.source_of(&source, rank, regions) else { return Ok(()) };
            for peer in self.senders(own, rank) {
                if let Some(share) = self.share(own, rank, peer) {
                    let blocks = self.blocks_of(share, runs, [peer, rank])?;
                    messages.extend((!blocks.is_empty()).then_some(Message { peer, blocks }));
                }
            }
            Ok(())
        })?;
        Ok(messages)
    }

    /// Returns a share of the common elements of two ranks' regions, given as `runs`, as blocks.
    fn blocks_of(
        &self,
        share: Share,
        runs: &[&[Run]],
        [sender, receiver]: [usize; 2],
    ) -> Result<InlineVec<Block, 1>, Error> {
        let shapes = [self.from.local_shape(sender)?, self.to.local_shape(receiver)?];
        let part = match (share, &self.spread) {
            (Share::Part(part), Some(spread)) => {
                let dim = spread.dim;
                let [of, by] = [&self.from.region(sender)?.dims[dim], &self.to.region(receiver)?.dims[dim]];
                Some((dim, spread.runs(of, by, part)))
            }
            (Share::Rows { dim, start, len }, _) => Some((dim, rows(runs[dim], start, len))),
            (Share::All, _) | (Share::Part(_), None) => None,
        };
        let mut runs: SmallVec<[&[Run]; 4]> = runs.iter().copied().collect();
        if let Some((dim, part)) = &part {
            runs[*dim] = part;
        }
        Ok(blocks(&runs, &shapes[0], &shapes[1]))
    }

    pub(super) fn phase(&self, rank: usize, members: Vec<usize>) -> Result<Phase, Error> {
        let mut phase = self.still(rank, members)?;
        phase.fill_identity = self.fill;
        phase.receives = self.received(rank)?;
        let (source, target) = (Grid::new(&self.from), Grid::new(&self.to));
        if phase.source_len > 0 {
            let region = self.from.region(rank)?;
            let mine = self.from.mesh().coordinate(rank).expect("it holds something");
            let my_regions = source.regions_of(&mine);
            let parts = &self.partitions()?.target;
            let shares: Vec<Shares> =
                parts.iter().zip(&region.dims).map(|(part, list)| part.shares(list, Side::Target)).collect();
            if let Some(lines) = self.lines()? {
                let mut sends = Vec::new();
                lines.each_receiver(self, rank, &mut |x, regions| {
                    sends.push((x.peer, x.share, SmallVec::<[usize; 4]>::from_slice(regions)));
                });
                for (peer, share, regions) in sends.into_iter().filter(|x| x.0 != rank) {
                    let runs: Option<SmallVec<[&[Run]; 4]>> =
                        shares.iter().zip(&regions).map(|(of_dim, &j)| runs_of(of_dim, j)).collect();
                    let runs = runs.expect("they overlap in every dim");
                    let blocks = self.blocks_of(share, &runs, [rank, peer])?;
                    phase.sends.push(Message { peer, blocks });
                }
                return Ok(phase);
            }
            // All ranks with these regions of the target: its replicas and its partial coordinates.
            let mesh = self.to.mesh();
            let partial = self.to.partial().iter().map(|p| p.sub);
            let others: Modes<AxisStride> =
                self.to.replicated_axes().into_iter().chain(partial).map(|s| mesh.known_mode(s)).collect();
            for_each_choice(&shares, &mut |regions, runs| {
                let mut c = Coordinate::from_elem(0, mesh.axes().len());
                for (dim, &i) in regions.iter().enumerate() {
                    target.set(&mut c, dim, i);
                }
                let first = mesh.rank_at(&c).expect("digits are below their radix");
                for receiver in members_along(mesh, &others, first)? {
                    if receiver == rank || !self.receives(receiver) {
                        continue;
                    }
                    let own = self.source_of(&source, receiver, &my_regions);
                    if let Some(share) = own.and_then(|own| self.share(own, receiver, rank)) {
                        let blocks = self.blocks_of(share, runs, [rank, receiver])?;
                        phase
                            .sends
                            .extend((!blocks.is_empty()).then_some(Message { peer: receiver, blocks }));
                    }
                }
                Ok(())
            })?;
        }
        Ok(phase)
    }

    /// The phase in which every rank gets the reduction of its target region over the ranks along some modes.
    pub(super) fn reduced(
        &self,
        rank: usize,
        reduction: &Reduction,
        members: Vec<usize>,
    ) -> Result<Phase, Error> {
        let mut phase = self.still(rank, members)?;
        phase.reduce = Some(reduction.reduce);
        for peer in members_along(self.from.mesh(), &reduction.modes, rank)? {
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
}

/// Returns the common elements of two ranks' regions, as blocks from one local buffer to the other.
fn between(
    from: &Sharding,
    source: usize,
    to: &Sharding,
    target: usize,
) -> Result<InlineVec<Block, 1>, Error> {
    let (s, t) = (from.region(source)?, to.region(target)?);
    let runs: Vec<Vec<Run>> = s.dims.iter().zip(&t.dims).map(|(s, t)| shared(s, t)).collect();
    let runs: Vec<&[Run]> = runs.iter().map(Vec::as_slice).collect();
    Ok(blocks(&runs, &s.local_shape(), &t.local_shape()))
}

/// Returns the runs that are shared with a region of a dim.
fn runs_of(shares: &Shares, region: usize) -> Option<&[Run]> {
    shares.binary_search_by_key(&region, |x| x.0).ok().map(|at| shares[at].1.as_slice())
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

/// Returns one block for every combination of one run per dim.
fn blocks(runs: &[&[Run]], source_shape: &[usize], target_shape: &[usize]) -> InlineVec<Block, 1> {
    let mut out: InlineVec<Block, 1> = InlineVec::new();
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
