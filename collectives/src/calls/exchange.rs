//! One phase of a plan as one call.
//!
//! A phase lists the blocks that each rank sends and receives. On a group of exactly its members it is the
//! framework's own collective, if the step is one and every rank has the same. If both shardings are digits,
//! all members see the same except for offsets, so each member can decide this by itself. Any other phase is
//! an all-to-all or messages, and the partial values of a reduction are received separately.

use std::sync::Arc;

use reshard_kernels::{CombineOp, CopySide};
use reshard_planner::internal::{DigitPhase, Ends, combine_op};
use reshard_planner::{Block, Message, Phase, Plan, Reduce, Step, StepOp};
use smallvec::SmallVec;

use super::fuse::{fuse, loops, same_block};
use super::{CollectiveCall, Combine, FrameworkGroup, PartialInput, RankCall, View, Views};
use crate::Error;

/// A few blocks of a phase.
type Blocks<'a> = SmallVec<[&'a Block; 16]>;

/// The communication channel of the ranks of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Via<'a> {
    /// No communication.
    Local,
    /// A group of exactly the members.
    Members(&'a Arc<FrameworkGroup>),
    /// A group that contains the members and other ranks.
    Around(&'a Arc<FrameworkGroup>),
    /// Point-to-point messages.
    Messages,
}

/// The kind of framework call for a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllGather,
    ReduceScatter(CombineOp),
    AllReduce(CombineOp),
    /// Blocks from ranks to ranks.
    Blocks,
}

/// The properties of a step that all its members know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Its index in the plan.
    pub(crate) step: usize,
    op: StepOp,
    /// `true` if all members see the same except for offsets.
    even: bool,
}

impl Head {
    pub(crate) fn new(plan: &Plan, step: usize) -> Head {
        let at = &plan.steps()[step];
        Head { step, op: at.op(), even: at.before.layout().is_some() && at.after.layout().is_some() }
    }

    /// Returns the two phases of a chunked all-reduce as one call, if a group of exactly the members exists.
    pub(crate) fn all_reduce(self, step: &Step, len: usize, via: Via<'_>) -> Result<Option<RankCall>, Error> {
        let (Via::Members(group), 2, Some(reduce)) = (via, step.exchanges(), step.reduce()) else {
            return Ok(None);
        };
        let Some(op) = native(reduce) else { return Ok(None) };
        let whole = View::run(0, len)?;
        let call = CollectiveCall::AllReduce { group: group.clone(), op };
        Ok(Some(RankCall { divisor: reduce.divisor, ..self.moved(call, whole.clone(), whole, (len, len)) }))
    }

    /// Returns a phase as one call.
    pub(crate) fn call(self, rank: usize, phase: &Phase, via: Via<'_>) -> Result<RankCall, Error> {
        if let Via::Members(group) = via
            && let Some(call) = self.collective(rank, phase, group)?
        {
            return Ok(call);
        }
        let own = |message: &&Message| message.peer == rank;
        let mut sends: SmallVec<[&Message; 16]> =
            phase.sends.iter().chain(phase.receives.iter().filter(own)).collect();
        let mut receives: SmallVec<[&Message; 16]> = phase.receives.iter().collect();
        let call = match via {
            Via::Local => CollectiveCall::Local,
            Via::Members(group) | Via::Around(group) => CollectiveCall::AllToAll {
                group: group.clone(),
                sends: self.by_place(&mut sends, group)?,
                receives: self.by_place(&mut receives, group)?,
            },
            Via::Messages => {
                CollectiveCall::Messages { sends: counted(&mut sends), receives: counted(&mut receives) }
            }
        };
        let pack = fuse(&blocks(&sends), CopySide::Source)?;
        let lens = (phase.source_len, phase.target_len);
        let Some(reduce) = phase.reduce else {
            let unpack = fuse(&blocks(&receives), CopySide::Target)?;
            return Ok(RankCall {
                fill: phase.fill_identity.map(combine_op),
                ..self.moved(call, pack, unpack, lens)
            });
        };
        let (unpack, combine) = terms(phase, reduce, &receives)?;
        Ok(RankCall {
            combine: Some(combine),
            fill: phase.fill_identity.map(combine_op),
            divisor: reduce.divisor,
            ..self.moved(call, pack, unpack, lens)
        })
    }

    fn moved(
        self,
        call: CollectiveCall,
        pack: Views,
        unpack: Views,
        (source_len, target_len): (usize, usize),
    ) -> RankCall {
        RankCall {
            step: self.step,
            call,
            pack,
            unpack,
            combine: None,
            fill: None,
            divisor: 1,
            source_len,
            target_len,
        }
    }

    /// Returns a call without data.
    pub(crate) fn attendance(self, group: &Arc<FrameworkGroup>, len: usize) -> RankCall {
        let none = vec![0; group.members().len()];
        let call = CollectiveCall::AllToAll { group: group.clone(), sends: none.clone(), receives: none };
        self.moved(call, Views::new(), Views::new(), (len, len))
    }

    /// Returns the kind of framework call for a phase of this step, if it is called on exactly its members.
    pub(crate) fn kind(self, rank: usize, phase: &Phase) -> Kind {
        let Some((own, block)) = own_block(rank, phase) else { return Kind::Blocks };
        let members = phase.members.len();
        let one_each = |message: &Message| message.blocks.len() == 1 && message.numel() == own.numel();
        let all = phase.receives.len() == members && phase.sends.len() + 1 == members;
        let alike = || phase.receives.iter().chain(&phase.sends).all(one_each);
        if !self.even || phase.fill_identity.is_some() || own.numel() == 0 || !all || !alike() {
            return Kind::Blocks;
        }
        let same = |message: &Message| same_block(block, &message.blocks[0], CopySide::Source);
        self.named(phase.reduce, || phase.sends.iter().all(same))
    }

    /// Returns the kind of an exchange of equal blocks among all members, given that all can send the same.
    fn named(self, reduce: Option<Reduce>, sends_the_same: impl FnOnce() -> bool) -> Kind {
        match (self.op, reduce) {
            (StepOp::AllGather, None) if sends_the_same() => Kind::AllGather,
            (StepOp::ReduceScatter, Some(reduce)) => native(reduce).map_or(Kind::Blocks, Kind::ReduceScatter),
            (StepOp::AllReduce, Some(reduce)) => native(reduce).map_or(Kind::Blocks, Kind::AllReduce),
            (
                StepOp::AllToAll | StepOp::Exchange | StepOp::Slice | StepOp::ZeroFill | StepOp::AllGather,
                _,
            )
            | (StepOp::ReduceScatter | StepOp::AllReduce, None) => Kind::Blocks,
        }
    }

    /// Returns the phase as the collective of its step, on a group of exactly its members.
    fn collective(
        self,
        rank: usize,
        phase: &Phase,
        group: &Arc<FrameworkGroup>,
    ) -> Result<Option<RankCall>, Error> {
        let Some((own, block)) = own_block(rank, phase) else { return Ok(None) };
        let one = |side| fuse(&[block], side);
        let of_each = |messages: &[Message], side| {
            let others = messages.iter().filter(|message| message.peer != rank);
            let mut sorted: SmallVec<[&Message; 16]> = others.chain([own]).collect();
            self.by_place(&mut sorted, group)?;
            fuse(&blocks(&sorted), side)
        };
        let each = |side| match side {
            CopySide::Source => of_each(&phase.sends, side),
            CopySide::Target => of_each(&phase.receives, side),
        };
        let Some((call, pack, unpack)) = of_kind(self.kind(rank, phase), group, one, each)? else {
            return Ok(None);
        };
        let divisor = phase.reduce.map_or(1, |reduce| reduce.divisor);
        let lens = (phase.source_len, phase.target_len);
        Ok(Some(RankCall { divisor, ..self.moved(call, pack, unpack, lens) }))
    }

    /// Returns the call of the listed phase from its digits, on a group of exactly its members.
    ///
    /// The blocks of all members are one view at each end: their digits are its outer loops.
    pub(crate) fn of_digits(
        self,
        phase: &DigitPhase,
        group: &Arc<FrameworkGroup>,
    ) -> Result<Option<RankCall>, Error> {
        let (n, numel) = (group.members().len(), phase.own.numel());
        let all = |ends: &Ends| ends.digits.iter().map(|m| m.extent as usize).product::<usize>() == n;
        if !self.even || !group.ascends() || numel == 0 || !all(&phase.receives) || !all(&phase.sends) {
            return Ok(None);
        }
        let one = |side| fuse(&[&phase.own], side);
        let each = |side| {
            let ends = match side {
                CopySide::Source => &phase.sends,
                CopySide::Target => &phase.receives,
            };
            let mut modes = loops(&phase.own, side);
            modes.extend(ends.digits.iter().rev().map(|m| m.map(|(_, offset)| offset)));
            Ok(Views::from_iter([View::of(ends.offset as i64, &modes)?]))
        };
        let kind = self.named(phase.reduce, || phase.sends.digits.iter().all(|m| m.stride.1 == 0));
        let (call, pack, unpack) = match of_kind(kind, group, one, each)? {
            Some(native) => native,
            None if phase.reduce.is_some() => return Ok(None),
            None => {
                let counts = vec![numel; n];
                let call = CollectiveCall::AllToAll {
                    group: group.clone(),
                    sends: counts.clone(),
                    receives: counts,
                };
                (call, each(CopySide::Source)?, each(CopySide::Target)?)
            }
        };
        let divisor = phase.reduce.map_or(1, |reduce| reduce.divisor);
        let lens = (phase.source_len, phase.target_len);
        Ok(Some(RankCall { divisor, ..self.moved(call, pack, unpack, lens) }))
    }

    /// Sorts messages by their peers' group ranks, and counts their elements by group rank.
    fn by_place(
        self,
        messages: &mut SmallVec<[&Message; 16]>,
        group: &FrameworkGroup,
    ) -> Result<Vec<usize>, Error> {
        let mut counts = vec![0; group.members().len()];
        let mut placed: SmallVec<[(usize, &Message); 16]> = SmallVec::with_capacity(messages.len());
        for message in messages.iter() {
            let place = group.group_rank(message.peer).ok_or_else(|| Error::Phase {
                step: self.step,
                message: format!("rank {} is not a member of group {group}", message.peer),
            })?;
            counts[place] += message.numel();
            placed.push((place, message));
        }
        placed.sort_by_key(|(place, _)| *place);
        messages.clear();
        messages.extend(placed.into_iter().map(|(_, message)| message));
        Ok(counts)
    }
}

/// Returns a framework collective with the views to pack and unpack, of one block or of one block per member.
///
/// `None` for blocks from ranks to ranks.
fn of_kind(
    kind: Kind,
    group: &Arc<FrameworkGroup>,
    one: impl Fn(CopySide) -> Result<Views, Error>,
    each: impl Fn(CopySide) -> Result<Views, Error>,
) -> Result<Option<(CollectiveCall, Views, Views)>, Error> {
    let (source, target, group) = (CopySide::Source, CopySide::Target, group.clone());
    Ok(Some(match kind {
        Kind::Blocks => return Ok(None),
        Kind::AllGather => (CollectiveCall::AllGather { group }, one(source)?, each(target)?),
        Kind::ReduceScatter(op) => (CollectiveCall::ReduceScatter { group, op }, each(source)?, one(target)?),
        Kind::AllReduce(op) => (CollectiveCall::AllReduce { group, op }, one(source)?, one(target)?),
    }))
}

/// Returns the message of a rank to itself, if it is one block.
fn own_block(rank: usize, phase: &Phase) -> Option<(&Message, &Block)> {
    let own = phase.receives.iter().find(|message| message.peer == rank)?;
    let [block] = own.blocks.as_slice() else { return None };
    Some((own, block))
}

/// Returns the op with which a framework reduces these partial values, if it has one.
///
/// If partial values must be combined in one order, the plan has an exchange of them instead of a reduction.
pub(crate) fn native(reduce: Reduce) -> Option<CombineOp> {
    match combine_op(reduce.op) {
        op @ (CombineOp::Sum | CombineOp::Prod | CombineOp::Min | CombineOp::Max) => Some(op),
        CombineOp::Norm(_) => None,
    }
}

/// Returns the non-empty blocks of messages, in message order.
fn blocks<'a>(messages: &[&'a Message]) -> Blocks<'a> {
    messages.iter().flat_map(|message| &message.blocks).filter(|block| block.numel() > 0).collect()
}

/// Drops empty messages, and returns the peers and lengths of the others.
fn counted(messages: &mut SmallVec<[&Message; 16]>) -> Vec<(usize, usize)> {
    messages.retain(|message| message.numel() > 0);
    messages.iter().map(|message| (message.peer, message.numel())).collect()
}

/// Returns the target views of partial values that arrive in sequence, and their order of combination.
fn terms(phase: &Phase, reduce: Reduce, receives: &[&Message]) -> Result<(Views, Combine), Error> {
    let mut unpack = Views::new();
    let mut came: SmallVec<[(usize, PartialInput); 16]> = SmallVec::new();
    let mut start = 0;
    for message in receives.iter().filter(|message| message.numel() > 0) {
        let views = fuse(&blocks(&[message]), CopySide::Target)?;
        let lands = match came.last() {
            Some((_, last)) if unpack[last.views.clone()] == *views => last.views.clone(),
            Some(_) | None => {
                let first = unpack.len();
                unpack.extend(views);
                first..unpack.len()
            }
        };
        came.push((message.peer, PartialInput { start, views: lands }));
        start += message.numel();
    }
    // In the order in which the plan lists them.
    came.sort_by_key(|(peer, _)| *peer);
    let place = |message: &Message| came.binary_search_by_key(&message.peer, |(peer, _)| *peer).ok();
    let terms = phase.receives.iter().filter_map(|message| Some(came[place(message)?].1.clone())).collect();
    Ok((unpack, Combine { op: combine_op(reduce.op), terms }))
}
