//! A plan as one program for all ranks, for frameworks that trace one program, with tables of what differs by
//! rank.
//!
//! This is possible if the ranks' calls differ only in offsets. Then of each exchange
//!
//! ```text
//! for all ranks      the loops of a block in the source, the target offsets with their views, the pattern
//! one row per rank   source_offsets: where its blocks begin; arrival_order: the block for each target offset
//! ```
//!
//! so constants are tables of ranks x peers, never of elements. A rank packs by slicing at an offset and a
//! static view; it unpacks by arranging blocks in the row's order and a static view.
//!
//! An exchange in which a rank receives from other ranks than it sends to is also a permutation. If the
//! senders of a rank are the receivers of those senders, it is one all-to-all in groups of these. Otherwise
//! it is rounds of a permute, one block each ([`permute`](super::permute)).

mod build;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use reshard_kernels::{CombineOp, DType};
use reshard_layout::{Layout, Modes};
use reshard_planner::{Phase, Plan};

use self::build::{All, all_reduce, not_alike};
use super::exchange::Head;
use super::fuse::spread;
use super::{CollectiveCall, Combine, FrameworkGroup, PartialInput, RankCall, RankCalls, View, Views};
use crate::Error;

/// A number for each rank and column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct RankTable {
    columns: usize,
    numbers: Vec<usize>,
}

impl RankTable {
    fn new(rows: &[Vec<usize>]) -> RankTable {
        RankTable { columns: rows.first().map_or(0, Vec::len), numbers: rows.concat() }
    }

    /// Returns the number of columns: the numbers per rank.
    #[doc(hidden)]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the numbers of the rank at an index of [`SpmdProgram::ranks`].
    pub fn row(&self, place: usize) -> &[usize] {
        self.numbers.get(place * self.columns..(place + 1) * self.columns).unwrap_or_default()
    }

    /// Returns all numbers, rank by rank.
    #[doc(hidden)]
    pub fn numbers(&self) -> &[usize] {
        &self.numbers
    }
}

/// The sender and receiver of each block, for all ranks.
///
/// Groups are lists of ranks of equal length, and each rank is in one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum CommPattern {
    /// Every rank retains its blocks.
    Local,
    /// Every rank receives the block of every member, in the group's order.
    AllGather {
        /// The groups of the call.
        groups: Vec<Vec<usize>>,
    },
    /// Every rank has a block for every member, and receives the reduction of the blocks for it.
    ReduceScatter {
        /// The groups of the call.
        groups: Vec<Vec<usize>>,
        /// The operation on two partial values.
        op: CombineOp,
    },
    /// Every rank receives the reduction of the members' blocks.
    AllReduce {
        /// The groups of the call.
        groups: Vec<Vec<usize>>,
        /// The operation on two partial values.
        op: CombineOp,
    },
    /// Every rank has a block for every member, and receives one from every member, in the group's order.
    AllToAll {
        /// The groups of the call.
        groups: Vec<Vec<usize>>,
    },
    /// In each round, ranks send their block of that round: `(from, to)`.
    ///
    /// A rank that is sent none in a round ignores its received block.
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
    /// The communication pattern.
    pub pattern: CommPattern,
    /// The loops of a block in the source: the same for all blocks of all ranks.
    pub block: Layout,
    /// The offsets of a rank's blocks in its source, in the order of the pattern: of members, or of rounds.
    pub source_offsets: RankTable,
    /// The loops of a block in the target: the same for all blocks of all ranks.
    pub target_block: Layout,
    /// The offsets of blocks in the target, ascending: the same for all ranks.
    ///
    /// Partial values all have the same single offset.
    pub target_offsets: Vec<usize>,
    /// The blocks at all target offsets, in sequence.
    pub unpack: Views,
    /// For each target offset, the index of the received block that is written there.
    ///
    /// An index equal to the number of received blocks means none: the elements retain the value of
    /// [`fill`](SpmdCall::fill). For partial values, the blocks in the order in which they are combined.
    pub arrival_order: RankTable,
    /// The op that combines received partial values, if the receiver reduces them.
    pub combine: Option<CombineOp>,
    /// The op with whose identity the target is filled before any write, if it is filled.
    pub fill: Option<CombineOp>,
    /// The divisor of the target after all writes.
    pub divisor: usize,
    /// Number of elements of the buffer before the call.
    pub source_len: usize,
    /// Number of elements of the buffer after the call.
    pub target_len: usize,
}

/// A plan as one program for all ranks.
///
/// ```
/// use reshard_collectives::calls::{CommPattern, SpmdProgram};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::{Mesh, Sharding};
///
/// let mesh: Mesh = "x=2,y=2".parse()?;
/// let from = Sharding::parse(&mesh, &[4, 4], "S(0),S(1)")?;
/// let to = Sharding::parse(&mesh, &[4, 4], "S(1),S(1)")?;
/// let spmd = SpmdProgram::new(&Planner::new().plan(&from, &to, DType::F32)?, DType::F32)?;
/// let [call] = spmd.calls() else { panic!("{spmd}") };
/// // Rank 0 receives from ranks 0 and 2, and sends to ranks 0 and 1: two rounds of one column each.
/// let CommPattern::Permute { rounds } = &call.pattern else { panic!("{spmd}") };
/// assert_eq!(rounds.len(), 2);
/// assert_eq!((call.block.to_string(), call.source_offsets.row(0)), ("2:2".to_string(), &[1, 0][..]));
/// assert_eq!(call.target_offsets, [0, 2]);
/// assert_eq!(call.unpack[0].to_string(), "0+(4:1)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SpmdProgram {
    ranks: Vec<usize>,
    dtype: DType,
    calls: Vec<SpmdCall>,
}

impl SpmdProgram {
    /// Compiles the plan to one program for all ranks, for elements of a type.
    ///
    /// Errors: [`Error::PlanMismatch`] if ranks differ in more than offsets, as with uneven dims, and for
    /// shardings that do not nest; others as [`RankCalls::new`].
    pub fn new(plan: &Plan, dtype: DType) -> Result<SpmdProgram, Error> {
        let arithmetic = plan.options().arithmetic();
        arithmetic.check(plan.from(), dtype)?;
        arithmetic.check(plan.to(), dtype)?;
        let ranks = plan.ranks();
        let holds = |rank: &usize| plan.from().mesh().contains(*rank) && plan.to().mesh().contains(*rank);
        if let Some(one) = ranks.iter().find(|rank| !holds(rank)) {
            return Err(not_alike(0, format!("rank {one} is on only one of the two meshes")));
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
                    return Err(not_alike(at, "some ranks do not take part".to_string()));
                }
                calls.push(All { head, ranks: &ranks, phases: &phases }.call()?);
            }
        }
        Ok(SpmdProgram { ranks, dtype, calls })
    }

    /// Returns the ranks, ascending; tables have a row for each.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the type of the elements.
    #[doc(hidden)]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the exchanges in order: each reads the output of the one before.
    ///
    /// If the list is empty, the target is the source.
    pub fn calls(&self) -> &[SpmdCall] {
        &self.calls
    }

    /// Returns the calls of one rank, on groups named by their first members; rounds become messages.
    ///
    /// Errors: [`Error::NotInPlan`].
    pub fn at(&self, rank: usize) -> Result<RankCalls, Error> {
        let place = self.ranks.binary_search(&rank).map_err(|_| Error::NotInPlan { rank })?;
        let calls = self.calls.iter().map(|call| call.at(rank, place)).collect::<Result<_, _>>()?;
        Ok(RankCalls::of(rank, self.dtype, calls))
    }
}

impl fmt::Display for SpmdProgram {
    /// Writes one line per exchange.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, call) in self.calls.iter().enumerate() {
            let views: Vec<String> = call.unpack.iter().map(View::to_string).collect();
            let pattern = match &call.pattern {
                CommPattern::Local => "local".to_string(),
                CommPattern::AllGather { groups } => format!("all_gather {groups:?}"),
                CommPattern::ReduceScatter { groups, op } => format!("reduce_scatter {op} {groups:?}"),
                CommPattern::AllReduce { groups, op } => format!("all_reduce {op} {groups:?}"),
                CommPattern::AllToAll { groups } => format!("all_to_all {groups:?}"),
                CommPattern::Permute { rounds } => format!("permute {rounds:?}"),
            };
            let start = if i > 0 { "\n" } else { "" };
            write!(
                f,
                "{start}{} x {} -> {pattern} -> {}",
                call.source_offsets.columns,
                call.block,
                views.join(" ")
            )?;
        }
        Ok(())
    }
}

impl SpmdCall {
    /// Returns the call of one of these ranks.
    fn at(&self, rank: usize, place: usize) -> Result<RankCall, Error> {
        let group = |groups: &[Vec<usize>]| {
            let members = groups.iter().find(|group| group.contains(&rank)).cloned().unwrap_or_default();
            Ok::<_, Error>(Arc::new(FrameworkGroup::new(
                format!("{}", members.first().copied().unwrap_or_default()),
                members,
            )?))
        };
        let block = self.block.size() as usize;
        let row = self.source_offsets.row(place);
        let mut offsets: Vec<usize> = row.to_vec();
        // The numbers of the blocks that this rank receives at all, and the block for each target offset.
        let lands = self.arrival_order.row(place);
        let mut numbers: Vec<usize> = lands.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let call = match &self.pattern {
            CommPattern::Local => {
                numbers.retain(|number| *number < self.source_offsets.columns);
                offsets.truncate(numbers.len());
                CollectiveCall::Local
            }
            CommPattern::AllGather { groups } => CollectiveCall::AllGather { group: group(groups)? },
            CommPattern::ReduceScatter { groups, op } => {
                CollectiveCall::ReduceScatter { group: group(groups)?, op: *op }
            }
            CommPattern::AllReduce { groups, op } => {
                CollectiveCall::AllReduce { group: group(groups)?, op: *op }
            }
            CommPattern::AllToAll { groups } => {
                let group = group(groups)?;
                let counts = vec![block; group.members().len()];
                CollectiveCall::AllToAll { group, sends: counts.clone(), receives: counts }
            }
            CommPattern::Permute { rounds } => {
                let to = |pairs: &Vec<(usize, usize)>| Some(pairs.iter().find(|(from, _)| *from == rank)?.1);
                let from = |pairs: &Vec<(usize, usize)>| Some(pairs.iter().find(|(_, to)| *to == rank)?.0);
                let sent: Vec<(usize, usize)> = rounds
                    .iter()
                    .enumerate()
                    .filter_map(|(round, pairs)| Some((round, to(pairs)?)))
                    .collect();
                offsets = sent.iter().map(|(round, _)| row[*round]).collect();
                numbers.retain(|number| *number < rounds.len());
                CollectiveCall::Messages {
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
            let term = |number: &usize| {
                Some(PartialInput { start: at.get(number)? * block, views: 0..unpack.len() })
            };
            combine = Some(Combine { op, terms: lands.iter().filter_map(term).collect() });
        } else {
            // In the order in which blocks arrive.
            let of = |number: &usize| lands.iter().position(|lands| lands == number);
            let came: Vec<i64> =
                numbers.iter().filter_map(of).map(|at| self.target_offsets[at] as i64).collect();
            unpack = Views::new();
            if !came.is_empty() {
                spread(&came, &Modes::from_slice(self.target_block.flat()).coalesce(), &mut unpack)?;
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
