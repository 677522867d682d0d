//! Construction of one program for all ranks: compares their phases at one point of the plan.

use std::collections::BTreeSet;

use reshard_kernels::CopySide;
use reshard_layout::{Layout, Modes};
use reshard_planner::internal::combine_op;
use reshard_planner::{Block, Phase, Step};

use super::{CommPattern, RankTable, SpmdCall};
use crate::Error;
use crate::calls::exchange::{Head, Kind, native};
use crate::calls::fuse::{loops, offset, spread};
use crate::calls::permute::rounds;
use crate::calls::{View, Views};

pub(super) fn not_alike(step: usize, message: String) -> Error {
    Error::PlanMismatch { step, message }
}

/// Returns the two phases of a chunked all-reduce as one call.
pub(super) fn all_reduce<'a>(
    at: usize,
    step: &Step,
    mut scatters: impl Iterator<Item = &'a Phase> + Clone,
) -> Result<Option<SpmdCall>, Error> {
    let Some(first) = scatters.clone().next() else { return Ok(None) };
    let Some((reduce, op)) = first.reduce.and_then(|reduce| Some((reduce, native(reduce)?))) else {
        return Ok(None);
    };
    if step.exchanges() != 2 {
        return Ok(None);
    }
    if scatters.clone().any(|phase| phase.source_len != first.source_len) {
        return Err(not_alike(at, "ranks have partial values of different sizes".to_string()));
    }
    let groups: BTreeSet<Vec<usize>> = scatters.clone().map(|phase| phase.members.clone()).collect();
    let unpack = View::run(0, first.source_len)?;
    let block = unpack.first().map_or_else(Layout::unit, |view| view.layout().clone());
    let places = unpack.iter().map(View::offset).collect();
    let row = |_| if first.source_len > 0 { vec![0] } else { Vec::new() };
    let rows: Vec<Vec<usize>> = scatters.by_ref().map(row).collect();
    Ok(Some(SpmdCall {
        step: at,
        pattern: CommPattern::AllReduce { groups: groups.into_iter().collect(), op },
        target_block: block.clone(),
        block,
        source_offsets: RankTable::new(&rows),
        target_offsets: places,
        unpack,
        arrival_order: RankTable::new(&rows),
        combine: None,
        fill: None,
        divisor: reduce.divisor,
        source_len: first.source_len,
        target_len: first.source_len,
    }))
}

/// A block with the rank indices of its sender and receiver.
#[derive(Clone, Copy, Debug)]
struct Edge<'a> {
    from: usize,
    to: usize,
    block: &'a Block,
}

/// The phases of all ranks at one point of the plan.
pub(super) struct All<'a> {
    pub(super) head: Head,
    pub(super) ranks: &'a [usize],
    pub(super) phases: &'a [&'a Phase],
}

/// The communication pattern, each rank's packed blocks, and for each edge the index of its received block.
struct Sent {
    pattern: CommPattern,
    packs: Vec<Vec<usize>>,
    places: Vec<usize>,
    /// The number of blocks that a rank receives.
    received: usize,
}

impl All<'_> {
    fn not_alike(&self, message: String) -> Error {
        not_alike(self.head.step, message)
    }

    /// Returns the phases as one exchange.
    pub(super) fn call(&self) -> Result<SpmdCall, Error> {
        let first = self.phases[0];
        let same = |phase: &&&Phase| {
            (phase.source_len, phase.target_len, phase.fill_identity, phase.reduce)
                == (first.source_len, first.target_len, first.fill_identity, first.reduce)
        };
        if let Some(other) = self.phases.iter().position(|phase| !same(&phase)) {
            let (a, b) = (self.ranks[0], self.ranks[other]);
            return Err(self.not_alike(format!("ranks {a} and {b} have buffers of different sizes")));
        }
        let edges = self.edges()?;
        let side = |side| edges.first().map_or_else(Modes::new, |edge| loops(edge.block, side).coalesce());
        let (source, target) = (side(CopySide::Source), side(CopySide::Target));
        let alike = |edge: &&Edge<'_>| {
            loops(edge.block, CopySide::Source).coalesce() == source
                && loops(edge.block, CopySide::Target).coalesce() == target
        };
        if let Some(edge) = edges.iter().find(|edge| !alike(edge)) {
            let (from, to) = (self.ranks[edge.from], self.ranks[edge.to]);
            return Err(self.not_alike(format!(
                "the block from rank {from} to rank {to} has other loops than the first block"
            )));
        }
        let reduce = first.reduce;
        let kind = self.head.kind(self.ranks[0], first);
        let sent = self.sent(kind, &edges)?;
        let reduced = matches!(kind, Kind::ReduceScatter(_) | Kind::AllReduce(_));
        let (places, lands) = self.lands(&edges, &sent, reduced)?;
        let mut unpack = Views::new();
        if !places.is_empty() {
            spread(&places, &target, &mut unpack)?;
        }
        Ok(SpmdCall {
            step: self.head.step,
            pattern: sent.pattern,
            block: Layout::coalesced(&source)?,
            source_offsets: RankTable::new(&sent.packs),
            target_block: Layout::coalesced(&target)?,
            target_offsets: places.into_iter().map(|place| place as usize).collect(),
            unpack,
            arrival_order: RankTable::new(&lands),
            combine: reduce.filter(|_| !reduced).map(|reduce| combine_op(reduce.op)),
            fill: first.fill_identity.map(combine_op),
            divisor: reduce.map_or(1, |reduce| reduce.divisor),
            source_len: first.source_len,
            target_len: first.target_len,
        })
    }

    /// Returns all blocks by receiver, those of each receiver in the order in which it lists them.
    fn edges(&self) -> Result<Vec<Edge<'_>>, Error> {
        let mut edges = Vec::new();
        for (to, phase) in self.phases.iter().enumerate() {
            for message in phase.receives.iter().filter(|message| message.numel() > 0) {
                let from = self.ranks.binary_search(&message.peer);
                let (Ok(from), [block]) = (from, message.blocks.as_slice()) else {
                    let (from, to, n) = (message.peer, self.ranks[to], message.blocks.len());
                    return Err(
                        self.not_alike(format!("the message from rank {from} to rank {to} has {n} blocks"))
                    );
                };
                edges.push(Edge { from, to, block });
            }
        }
        Ok(edges)
    }

    fn sent(&self, kind: Kind, edges: &[Edge<'_>]) -> Result<Sent, Error> {
        let groups = || -> Vec<Vec<usize>> {
            let groups: BTreeSet<&Vec<usize>> = self.phases.iter().map(|phase| &phase.members).collect();
            groups.into_iter().cloned().collect()
        };
        let of_group = |pattern: CommPattern, packs: Vec<Vec<usize>>| {
            let place = |edge: &Edge<'_>| {
                let place = self.phases[edge.to].members.binary_search(&self.ranks[edge.from]);
                place.map_err(|_| self.not_alike("a rank receives from outside its group".to_string()))
            };
            let received = self.phases[0].members.len();
            let places = edges.iter().map(place).collect::<Result<_, Error>>()?;
            Ok(Sent { pattern, packs, places, received })
        };
        let own = || self.own_offsets(edges);
        match kind {
            Kind::AllGather => of_group(CommPattern::AllGather { groups: groups() }, own()),
            Kind::AllReduce(op) => of_group(CommPattern::AllReduce { groups: groups(), op }, own()),
            Kind::ReduceScatter(op) => {
                let packs = self.offsets_by(edges, |edge| self.ranks[edge.to]);
                of_group(CommPattern::ReduceScatter { groups: groups(), op }, packs)
            }
            Kind::Blocks => Ok(self.blocks(edges)),
        }
    }

    /// Returns the offset of the one block that each rank has for all.
    fn own_offsets(&self, edges: &[Edge<'_>]) -> Vec<Vec<usize>> {
        let mut rows = vec![Vec::new(); self.ranks.len()];
        for edge in edges.iter().filter(|edge| edge.from == edge.to) {
            rows[edge.from].push(edge.block.source_offset);
        }
        rows
    }

    /// Returns the offsets of each rank's blocks, ordered by a key.
    fn offsets_by(&self, edges: &[Edge<'_>], key: impl Fn(&Edge<'_>) -> usize) -> Vec<Vec<usize>> {
        let mut rows: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.ranks.len()];
        for edge in edges {
            rows[edge.from].push((key(edge), edge.block.source_offset));
        }
        let sorted = |mut row: Vec<(usize, usize)>| {
            row.sort_unstable();
            row.into_iter().map(|(_, offset)| offset).collect()
        };
        rows.into_iter().map(sorted).collect()
    }

    /// Returns the exchange of blocks between ranks: local, in groups, or in rounds.
    fn blocks(&self, edges: &[Edge<'_>]) -> Sent {
        if edges.iter().all(|edge| edge.from == edge.to) {
            let received = usize::from(!edges.is_empty());
            let mut packs = self.own_offsets(edges);
            for row in &mut packs {
                row.resize(received, 0);
            }
            return Sent { pattern: CommPattern::Local, packs, places: vec![0; edges.len()], received };
        }
        let mut senders: Vec<Vec<usize>> = vec![Vec::new(); self.ranks.len()];
        for edge in edges {
            senders[edge.to].push(edge.from);
        }
        for list in &mut senders {
            list.sort_unstable();
        }
        let size = senders[0].len();
        let closed = |(rank, list): (usize, &Vec<usize>)| {
            list.len() == size && list.contains(&rank) && list.iter().all(|from| senders[*from] == *list)
        };
        if senders.iter().enumerate().all(closed) {
            let groups: BTreeSet<&Vec<usize>> = senders.iter().collect();
            let ranks = |list: &Vec<usize>| list.iter().map(|place| self.ranks[*place]).collect();
            let pattern = CommPattern::AllToAll { groups: groups.into_iter().map(ranks).collect() };
            let place = |edge: &Edge<'_>| senders[edge.to].binary_search(&edge.from).unwrap_or_default();
            let packs = self.offsets_by(edges, |edge| edge.to);
            return Sent { pattern, packs, places: edges.iter().map(place).collect(), received: size };
        }
        let pairs: Vec<(usize, usize)> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let places = rounds(&pairs);
        let received = places.iter().max().map_or(0, |last| last + 1);
        let mut all: Vec<Vec<(usize, usize)>> = vec![Vec::new(); received];
        let mut packs = vec![vec![0; received]; self.ranks.len()];
        for (edge, &round) in edges.iter().zip(&places) {
            all[round].push((self.ranks[edge.from], self.ranks[edge.to]));
            packs[edge.from][round] = edge.block.source_offset;
        }
        for pairs in &mut all {
            pairs.sort_unstable();
        }
        Sent { pattern: CommPattern::Permute { rounds: all }, packs, places, received }
    }

    /// Returns the target offsets, and for each rank the received block that is written at each.
    fn lands(
        &self,
        edges: &[Edge<'_>],
        sent: &Sent,
        reduced: bool,
    ) -> Result<(Vec<i64>, Vec<Vec<usize>>), Error> {
        let target = |edge: &Edge<'_>| offset(edge.block, CopySide::Target);
        let places: BTreeSet<i64> = edges.iter().map(target).collect();
        let places: Vec<i64> = places.into_iter().collect();
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); self.ranks.len()];
        if self.phases[0].reduce.is_some() {
            if places.len() > 1 {
                return Err(self.not_alike("partial values have different target offsets".to_string()));
            }
            if reduced {
                return Ok((places, vec![vec![0]; self.ranks.len()]));
            }
            edges.iter().zip(&sent.places).for_each(|(edge, place)| rows[edge.to].push(*place));
            if rows.iter().any(|row| row.len() != rows[0].len()) {
                return Err(self.not_alike("ranks receive different numbers of partial values".to_string()));
            }
            return Ok((places, rows));
        }
        for row in &mut rows {
            row.resize(places.len(), sent.received);
        }
        for (edge, place) in edges.iter().zip(&sent.places) {
            if let Ok(at) = places.binary_search(&target(edge)) {
                rows[edge.to][at] = *place;
            }
        }
        let gap = rows.iter().position(|row| row.contains(&sent.received));
        match gap.filter(|_| self.phases[0].fill_identity.is_none()) {
            Some(rank) => {
                let rank = self.ranks[rank];
                Err(self.not_alike(format!("rank {rank} receives at other offsets than the other ranks")))
            }
            None => Ok((places, rows)),
        }
    }
}
