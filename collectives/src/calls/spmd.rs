//! A plan as one program for all ranks: frameworks that trace make one for all of them, with tables where they differ.
//!
//! That is possible where the ranks' calls are alike but for offsets. Then of each exchange
//!
//! ```text
//! all ranks have       the loops of a block in the source, the places in the target with their views, the pattern
//! a rank has a row of  packs: the offsets of its blocks;      lands: which received block goes to which place
//! ```
//!
//! so constants are tables of ranks x peers, never of elements. A rank packs by slicing at an offset and a static view; it unpacks by
//! putting blocks in the row's order and a static view.
//!
//! An exchange in which a rank hears from others than it tells is a permutation too. Where the senders of a rank are the receivers of
//! those senders, it is one all-to-all in groups of these; else rounds of a permute, one block each ([`permute`](super::permute)).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use reshard_kernels::{CombineOp, CopySide, DType};
use reshard_layout::{Layout, Modes};
use reshard_planner::internal::combine_op;
use reshard_planner::{Block, Phase, Plan, Step};

use super::exchange::{Head, Kind, native};
use super::fuse::{loops, offset, spread};
use super::permute::rounds;
use super::{Call, Combine, Offer, RankCall, RankCalls, Term, View, Views};
use crate::Error;

/// A number for each rank and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: usize,
    numbers: Vec<usize>,
}

impl Table {
    fn new(rows: &[Vec<usize>]) -> Table {
        Table { columns: rows.first().map_or(0, Vec::len), numbers: rows.concat() }
    }

    /// How many numbers a rank has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The numbers of the rank at a place of [`Spmd::ranks`].
    pub fn row(&self, place: usize) -> &[usize] {
        self.numbers.get(place * self.columns..(place + 1) * self.columns).unwrap_or_default()
    }

    /// All numbers, rank by rank.
    pub fn numbers(&self) -> &[usize] {
        &self.numbers
    }
}

/// Who sends blocks to whom, all ranks at once; groups are lists of ranks, all equally many, each rank in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every rank keeps its blocks.
    Local,
    /// Every rank gets the block of every member, in the group's order.
    AllGather {
        /// Who.
        groups: Vec<Vec<usize>>,
    },
    /// Every rank has a block for every member, and gets the reduction of its own.
    ReduceScatter {
        /// Who.
        groups: Vec<Vec<usize>>,
        /// How two terms combine.
        op: CombineOp,
    },
    /// Every rank gets the reduction of the members' blocks.
    AllReduce {
        /// Who.
        groups: Vec<Vec<usize>>,
        /// How two terms combine.
        op: CombineOp,
    },
    /// Every rank has a block for every member, and gets one from every member, in the group's order.
    AllToAll {
        /// Who.
        groups: Vec<Vec<usize>>,
    },
    /// In each round ranks send their block of that round: `(from, to)`. Who is sent none gets nothing that lands.
    Permute {
        /// The pairs of each round.
        rounds: Vec<Vec<(usize, usize)>>,
    },
}

/// One exchange of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpmdCall {
    /// The step of the plan.
    pub step: usize,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// The loops of a block in the source: the same for all blocks of all ranks.
    pub block: Layout,
    /// Where a rank's blocks begin in its source, in the order of the pattern: of members, or of rounds.
    pub packs: Table,
    /// The loops of a block in the target: the same for all blocks of all ranks.
    pub landed: Layout,
    /// Where blocks begin in the target, ascending: the same for all ranks. Of terms, the one place of all.
    pub places: Vec<usize>,
    /// The blocks at all places, one behind the other.
    pub unpack: Views,
    /// For each place the number of the received block that lands there, as many as there are received ones for none: the place keeps
    /// what [`fill`](SpmdCall::fill) says. Of terms, the blocks in the order in which they combine.
    pub lands: Table,
    /// How received terms combine, if they are reduced by who received them.
    pub combine: Option<CombineOp>,
    /// The op with whose identity the target is filled before anything lands, if it is.
    pub fill: Option<CombineOp>,
    /// What the target is divided by when all has landed.
    pub divisor: usize,
    /// Elements of the buffer before.
    pub source_len: usize,
    /// Elements of the buffer after.
    pub target_len: usize,
}

/// A plan as one program for all ranks.
///
/// ```
/// use reshard_collectives::calls::{Pattern, Spmd};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::{Mesh, Sharding};
///
/// let mesh: Mesh = "x=2,y=2".parse()?;
/// let from = Sharding::parse(&mesh, &[4, 4], "S(0),S(1)")?;
/// let to = Sharding::parse(&mesh, &[4, 4], "S(1),S(1)")?;
/// let spmd = Spmd::new(&Planner::new().plan(&from, &to, DType::F32)?, DType::F32)?;
/// let [call] = spmd.calls() else { panic!("{spmd}") };
/// assert!(matches!(call.pattern, Pattern::Permute { .. } | Pattern::AllToAll { .. }), "{spmd}");
/// assert_eq!((call.block.to_string(), call.packs.row(0)), ("2:2".to_string(), &[0, 1][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Spmd {
    ranks: Vec<usize>,
    dtype: DType,
    calls: Vec<SpmdCall>,
}

impl Spmd {
    /// The plan as one program for all ranks, for elements of a type.
    ///
    /// Errors: [`Error::NotAlike`] where ranks differ by more than offsets, as with uneven dims, and with shardings that do not nest;
    /// others as [`RankCalls::new`].
    pub fn new(plan: &Plan, dtype: DType) -> Result<Spmd, Error> {
        let arithmetic = plan.options().arithmetic();
        arithmetic.check(plan.from(), dtype)?;
        arithmetic.check(plan.to(), dtype)?;
        let ranks = plan.ranks();
        let holds = |rank: &usize| plan.from().mesh().contains(*rank) && plan.to().mesh().contains(*rank);
        if let Some(one) = ranks.iter().find(|rank| !holds(rank)) {
            return Err(not_alike(0, format!("rank {one} is on one of two meshes only")));
        }
        let mut calls = Vec::with_capacity(plan.steps().len());
        for (at, step) in plan.steps().iter().enumerate() {
            let phases = ranks.iter().map(|rank| step.phases(*rank)).collect::<Result<Vec<_>, _>>()?;
            let head = Head::new(plan, at);
            if let Some(whole) = all_reduce(at, step, phases.iter().map(|both| &both[0]))? {
                calls.push(whole);
                continue;
            }
            for index in 0..step.exchanges() {
                let phases: Vec<&Phase> = phases.iter().filter_map(|phases| phases.get(index)).collect();
                if phases.len() != ranks.len() {
                    return Err(not_alike(at, "some ranks have no part".to_string()));
                }
                calls.push(All { head, ranks: &ranks, phases: &phases }.call()?);
            }
        }
        Ok(Spmd { ranks, dtype, calls })
    }

    /// The ranks, ascending; tables have a row for each.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The exchanges in order: each reads what the one before has written. None: the target is the source.
    pub fn calls(&self) -> &[SpmdCall] {
        &self.calls
    }

    /// The program as one rank's calls, on groups that are named by their first members; rounds are messages.
    ///
    /// Errors: [`Error::NotInPlan`].
    pub fn at(&self, rank: usize) -> Result<RankCalls, Error> {
        let place = self.ranks.binary_search(&rank).map_err(|_| Error::NotInPlan { rank })?;
        let calls = self.calls.iter().map(|call| call.at(rank, place)).collect::<Result<_, _>>()?;
        Ok(RankCalls::of(rank, self.dtype, calls))
    }
}

impl fmt::Display for Spmd {
    /// A line for each exchange.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, call) in self.calls.iter().enumerate() {
            let views: Vec<String> = call.unpack.iter().map(View::to_string).collect();
            let pattern = match &call.pattern {
                Pattern::Local => "local".to_string(),
                Pattern::AllGather { groups } => format!("all_gather {groups:?}"),
                Pattern::ReduceScatter { groups, op } => format!("reduce_scatter {op} {groups:?}"),
                Pattern::AllReduce { groups, op } => format!("all_reduce {op} {groups:?}"),
                Pattern::AllToAll { groups } => format!("all_to_all {groups:?}"),
                Pattern::Permute { rounds } => format!("permute {rounds:?}"),
            };
            let start = if i > 0 { "\n" } else { "" };
            write!(f, "{start}{} x {} -> {pattern} -> {}", call.packs.columns, call.block, views.join(" "))?;
        }
        Ok(())
    }
}

fn not_alike(step: usize, message: String) -> Error {
    Error::NotAlike { step, message }
}

/// The two phases of an all-reduce in pieces as one.
fn all_reduce<'a>(
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
        return Err(not_alike(at, "ranks have terms of different sizes".to_string()));
    }
    let groups: BTreeSet<Vec<usize>> = scatters.clone().map(|phase| phase.members.clone()).collect();
    let unpack = View::run(0, first.source_len)?;
    let block = unpack.first().map_or_else(Layout::unit, |view| view.layout().clone());
    let places = unpack.iter().map(View::offset).collect();
    let row = |_| if first.source_len > 0 { vec![0] } else { Vec::new() };
    let rows: Vec<Vec<usize>> = scatters.by_ref().map(row).collect();
    Ok(Some(SpmdCall {
        step: at,
        pattern: Pattern::AllReduce { groups: groups.into_iter().collect(), op },
        landed: block.clone(),
        block,
        packs: Table::new(&rows),
        places,
        unpack,
        lands: Table::new(&rows),
        combine: None,
        fill: None,
        divisor: reduce.divisor,
        source_len: first.source_len,
        target_len: first.source_len,
    }))
}

/// A block on its way: places of the ranks, and the block.
#[derive(Clone, Copy, Debug)]
struct Edge<'a> {
    from: usize,
    to: usize,
    block: &'a Block,
}

/// The phases of all ranks at one place of the plan.
struct All<'a> {
    head: Head,
    ranks: &'a [usize],
    phases: &'a [&'a Phase],
}

/// Who sends to whom, each rank's packed blocks, and for each edge, in order, where the block is among those received.
struct Sent {
    pattern: Pattern,
    packs: Vec<Vec<usize>>,
    places: Vec<usize>,
    /// How many blocks a rank receives.
    received: usize,
}

impl All<'_> {
    fn not_alike(&self, message: String) -> Error {
        not_alike(self.head.step, message)
    }

    fn call(&self) -> Result<SpmdCall, Error> {
        let first = self.phases[0];
        let same = |phase: &&&Phase| {
            (phase.source_len, phase.target_len, phase.fill, phase.reduce)
                == (first.source_len, first.target_len, first.fill, first.reduce)
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
                "the block from rank {from} to rank {to} has other loops than the first"
            )));
        }
        let reduce = first.reduce;
        let kind = self.head.kind(self.ranks[0], first)?;
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
            packs: Table::new(&sent.packs),
            landed: Layout::coalesced(&target)?,
            places: places.into_iter().map(|place| place as usize).collect(),
            unpack,
            lands: Table::new(&lands),
            combine: reduce.filter(|_| !reduced).map(|reduce| combine_op(reduce.op)),
            fill: first.fill.map(combine_op),
            divisor: reduce.map_or(1, |reduce| reduce.divisor),
            source_len: first.source_len,
            target_len: first.target_len,
        })
    }

    /// All blocks by their receivers, each receiver's in the order in which it lists them.
    fn edges(&self) -> Result<Vec<Edge<'_>>, Error> {
        let mut edges = Vec::new();
        for (to, phase) in self.phases.iter().enumerate() {
            for message in phase.receives.iter().filter(|message| message.numel() > 0) {
                let from = self.ranks.binary_search(&message.peer);
                let (Ok(from), [block]) = (from, message.blocks.as_slice()) else {
                    let (from, to, n) = (message.peer, self.ranks[to], message.blocks.len());
                    return Err(
                        self.not_alike(format!("the message from rank {from} to rank {to} is of {n} blocks"))
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
        let of_group = |pattern: Pattern, packs: Vec<Vec<usize>>| {
            let place = |edge: &Edge<'_>| {
                let place = self.phases[edge.to].members.binary_search(&self.ranks[edge.from]);
                place.map_err(|_| self.not_alike("a rank hears from outside of its group".to_string()))
            };
            let received = self.phases[0].members.len();
            let places = edges.iter().map(place).collect::<Result<_, Error>>()?;
            Ok(Sent { pattern, packs, places, received })
        };
        let own = || self.own_offsets(edges);
        match kind {
            Kind::AllGather => of_group(Pattern::AllGather { groups: groups() }, own()),
            Kind::AllReduce(op) => of_group(Pattern::AllReduce { groups: groups(), op }, own()),
            Kind::ReduceScatter(op) => {
                let packs = self.offsets_by(edges, |edge| self.ranks[edge.to]);
                of_group(Pattern::ReduceScatter { groups: groups(), op }, packs)
            }
            Kind::Blocks => self.blocks(edges),
        }
    }

    /// The offset of the one block that each rank has for all.
    fn own_offsets(&self, edges: &[Edge<'_>]) -> Vec<Vec<usize>> {
        let mut rows = vec![Vec::new(); self.ranks.len()];
        for edge in edges.iter().filter(|edge| edge.from == edge.to) {
            rows[edge.from].push(edge.block.source_offset);
        }
        rows
    }

    /// The offsets of each rank's blocks in the order of a key.
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

    /// Blocks that go from ranks to ranks: nowhere, in groups, or in rounds.
    fn blocks(&self, edges: &[Edge<'_>]) -> Result<Sent, Error> {
        if edges.iter().all(|edge| edge.from == edge.to) {
            let received = usize::from(!edges.is_empty());
            let mut packs = self.own_offsets(edges);
            packs.iter_mut().for_each(|row| row.resize(received, 0));
            return Ok(Sent { pattern: Pattern::Local, packs, places: vec![0; edges.len()], received });
        }
        let mut senders: Vec<Vec<usize>> = vec![Vec::new(); self.ranks.len()];
        edges.iter().for_each(|edge| senders[edge.to].push(edge.from));
        senders.iter_mut().for_each(|list| list.sort_unstable());
        let size = senders[0].len();
        let closed = |(rank, list): (usize, &Vec<usize>)| {
            list.len() == size && list.contains(&rank) && list.iter().all(|from| senders[*from] == *list)
        };
        if senders.iter().enumerate().all(closed) {
            let groups: BTreeSet<&Vec<usize>> = senders.iter().collect();
            let ranks = |list: &Vec<usize>| list.iter().map(|place| self.ranks[*place]).collect();
            let pattern = Pattern::AllToAll { groups: groups.into_iter().map(ranks).collect() };
            let place = |edge: &Edge<'_>| senders[edge.to].binary_search(&edge.from).unwrap_or_default();
            let packs = self.offsets_by(edges, |edge| edge.to);
            return Ok(Sent { pattern, packs, places: edges.iter().map(place).collect(), received: size });
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
        all.iter_mut().for_each(|pairs| pairs.sort_unstable());
        Ok(Sent { pattern: Pattern::Permute { rounds: all }, packs, places, received })
    }

    /// The places in the target, and for each rank the received block that lands at each.
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
                return Err(self.not_alike("terms land in different places".to_string()));
            }
            if reduced {
                return Ok((places, vec![vec![0]; self.ranks.len()]));
            }
            edges.iter().zip(&sent.places).for_each(|(edge, place)| rows[edge.to].push(*place));
            if rows.iter().any(|row| row.len() != rows[0].len()) {
                return Err(self.not_alike("ranks receive different numbers of terms".to_string()));
            }
            return Ok((places, rows));
        }
        rows.iter_mut().for_each(|row| row.resize(places.len(), sent.received));
        for (edge, place) in edges.iter().zip(&sent.places) {
            if let Ok(at) = places.binary_search(&target(edge)) {
                rows[edge.to][at] = *place;
            }
        }
        let gap = rows.iter().position(|row| row.contains(&sent.received));
        match gap.filter(|_| self.phases[0].fill.is_none()) {
            Some(rank) => {
                let rank = self.ranks[rank];
                Err(self.not_alike(format!("rank {rank} receives in other places than others")))
            }
            None => Ok((places, rows)),
        }
    }
}

impl SpmdCall {
    /// What one rank of these does.
    fn at(&self, rank: usize, place: usize) -> Result<RankCall, Error> {
        let group = |groups: &[Vec<usize>]| {
            let members = groups.iter().find(|group| group.contains(&rank)).cloned().unwrap_or_default();
            Ok::<_, Error>(Arc::new(Offer::new(
                format!("{}", members.first().copied().unwrap_or_default()),
                members,
            )?))
        };
        let block = self.block.size() as usize;
        let row = self.packs.row(place);
        let mut offsets: Vec<usize> = row.to_vec();
        // The received blocks that this rank has at all, by their numbers, and which one lands at each place.
        let lands = self.lands.row(place);
        let mut numbers: Vec<usize> = lands.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let call = match &self.pattern {
            Pattern::Local => {
                numbers.retain(|number| *number < self.packs.columns);
                offsets.truncate(numbers.len());
                Call::Local
            }
            Pattern::AllGather { groups } => Call::AllGather { group: group(groups)? },
            Pattern::ReduceScatter { groups, op } => Call::ReduceScatter { group: group(groups)?, op: *op },
            Pattern::AllReduce { groups, op } => Call::AllReduce { group: group(groups)?, op: *op },
            Pattern::AllToAll { groups } => {
                let group = group(groups)?;
                let counts = vec![block; group.members().len()];
                Call::AllToAll { group, sends: counts.clone(), receives: counts }
            }
            Pattern::Permute { rounds } => {
                let to = |pairs: &Vec<(usize, usize)>| Some(pairs.iter().find(|(from, _)| *from == rank)?.1);
                let from = |pairs: &Vec<(usize, usize)>| Some(pairs.iter().find(|(_, to)| *to == rank)?.0);
                let sent: Vec<(usize, usize)> = rounds
                    .iter()
                    .enumerate()
                    .filter_map(|(round, pairs)| Some((round, to(pairs)?)))
                    .collect();
                offsets = sent.iter().map(|(round, _)| row[*round]).collect();
                numbers.retain(|number| *number < rounds.len());
                Call::Messages {
                    sends: sent.into_iter().map(|(_, peer)| (peer, block)).collect(),
                    receives: rounds.iter().filter_map(|pairs| Some((from(pairs)?, block))).collect(),
                }
            }
        };
        let mut pack = Views::new();
        let offsets: Vec<i64> = offsets.into_iter().map(|offset| offset as i64).collect();
        if !offsets.is_empty() {
            spread(&offsets, &Modes::from_slice(self.block.flat()).coalesce(), &mut pack)?;
        }
        let (mut unpack, mut combine) = (self.unpack.clone(), None);
        if let Some(op) = self.combine {
            let at: BTreeMap<usize, usize> =
                numbers.iter().enumerate().map(|(at, number)| (*number, at)).collect();
            let term = |number: &usize| Some(Term { start: at.get(number)? * block, views: 0..unpack.len() });
            combine = Some(Combine { op, terms: lands.iter().filter_map(term).collect() });
        } else {
            // In the order in which blocks come.
            let of = |number: &usize| lands.iter().position(|lands| lands == number);
            let came: Vec<i64> = numbers.iter().filter_map(of).map(|at| self.places[at] as i64).collect();
            unpack = Views::new();
            if !came.is_empty() {
                spread(&came, &Modes::from_slice(self.landed.flat()).coalesce(), &mut unpack)?;
            }
        }
        Ok(RankCall {
            step: self.step,
            call,
            pack,
            unpack,
            combine,
            fill: self.fill,
            divisor: self.divisor,
            source_len: self.source_len,
            target_len: self.target_len,
        })
    }
}
