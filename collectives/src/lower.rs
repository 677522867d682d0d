//! Lowering of plans to exchanges: the phases of the tensors that one rank runs jointly, and their order.
//!
//! # The order
//!
//! A plan's phases have ordinals, counted over the whole plan. They are thus the same on every rank, also on
//! ranks that take no part in some of the phases. Phase `i` of a plan goes
//!
//! ```text
//! source -> first -> second -> first -> .. -> target          one phase: source -> target
//! ```
//!
//! so that no phase writes the buffer that others still read from the phase before it. Several tensors run in
//! rounds: round `i` has the `i`-th phases of all of them, and those between the same buffers and ranks are
//! one exchange. Ranks that share an exchange agree on its tensors, since members are symmetric. All ranks
//! order the exchanges of a round by their first tensors. This is one order for all, so no cycle of waiting
//! ranks can form.
//!
//! Slices at the beginning do not run if the phase after them can read the source through them.

use reshard_kernels::DType;
use reshard_layout::{InlineVec, Mode, Modes};
use reshard_planner::{Arithmetic, Block, Message, Phase, Plan, Step, StepOp};
use reshard_sharding::Sharding;

use crate::buffer_layout::BufferMap;
use crate::exchange::{Head, Part};
use crate::{BufferLayout, Error, Exchange};

/// A tensor to redistribute, and its offsets in the buffers, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a BufferLayout,
    pub(crate) target: &'a BufferLayout,
    pub(crate) source_start: usize,
    pub(crate) target_start: usize,
    pub(crate) scratch_start: usize,
}

/// A buffer that an exchange reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    Source,
    First,
    Second,
    Target,
}

/// An exchange, and the buffers that it reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) from: Buffer,
    pub(crate) to: Buffer,
    pub(crate) exchange: Exchange,
    /// The all-reduce that this stage begins, as one exchange, and the buffer where it ends.
    pub(crate) whole: Option<Box<(Buffer, Exchange)>>,
    /// The stage with the all-reduce that this one ends.
    pub(crate) ends: Option<usize>,
    /// `true` if no member of its exchange communicates before it and its source is never written again.
    ///
    /// All members find the same value.
    pub(crate) opens: bool,
}

/// A phase of a tensor with the data needed to compile it.
struct Round {
    tensor: usize,
    /// Counted from the phase at which this rank begins.
    ordinal: usize,
    is_last: bool,
    step: usize,
    index: usize,
    /// `None` for a phase that comes from no plan.
    op: Option<StepOp>,
    communicates: bool,
    symmetric: bool,
    phase: Phase,
    source: BufferMap,
    target: BufferMap,
}

impl Round {
    fn from(&self) -> Buffer {
        match self.ordinal {
            0 => Buffer::Source,
            n if n % 2 == 1 => Buffer::First,
            _ => Buffer::Second,
        }
    }

    fn to(&self) -> Buffer {
        match (self.is_last, self.ordinal % 2) {
            (true, _) => Buffer::Target,
            (false, 0) => Buffer::First,
            (false, _) => Buffer::Second,
        }
    }

    /// Returns `true` if partial values come in a step-specific order, perhaps from a part of the group.
    fn adds_in_its_own_order(&self, tensors: &[Tensor<'_>]) -> bool {
        let step = tensors[self.tensor].plan.steps().get(self.step);
        self.phase.reduce.is_some() && step.is_some_and(Step::is_transposed)
    }

    /// Returns `true` if this is the first phase that communicates, on every rank that takes part in it.
    ///
    /// It depends on the plans only, so that ranks agree. A batch's first such tensor comes first in its
    /// round on all its ranks. After leading slices, a rank may have its source in scratch, and with two
    /// phases none writes it again.
    fn opens(&self, tensors: &[Tensor<'_>], alone: bool) -> bool {
        let first = |plan: &Plan| plan.steps().iter().position(|step| step.op().communicates());
        let Some((tensor, step)) =
            tensors.iter().enumerate().find_map(|(at, tensor)| Some((at, first(tensor.plan)?)))
        else {
            return false;
        };
        let left = || tensors[tensor].plan.steps()[step..].iter().map(Step::exchanges).sum::<usize>();
        (self.tensor, self.step, self.index) == (tensor, step, 0)
            && if alone { step == 0 || left() <= 2 } else { self.ordinal == 0 }
    }

    fn is_together_with(&self, other: &Round, tensors: &[Tensor<'_>]) -> bool {
        if [self, other].into_iter().any(|round| round.adds_in_its_own_order(tensors)) {
            return false;
        }
        let order = |round: &Round| {
            let step = tensors[round.tensor].plan.steps().get(round.step)?;
            round.phase.reduce?;
            Some((step.before.mesh(), &step.axes))
        };
        self.ordinal == other.ordinal
            && (self.from(), self.to(), self.communicates) == (other.from(), other.to(), other.communicates)
            && order(self) == order(other)
            && self.phase.reduce.is_some() == other.phase.reduce.is_some()
            && self.phase.members == other.phase.members
    }
}

/// Returns the stages of a rank for these tensors.
pub(crate) fn stages(rank: usize, tensors: &[Tensor<'_>], tag: u64) -> Result<Vec<Stage>, Error> {
    let alone = tensors.len() == 1;
    let mut rounds = Vec::new();
    for (at, tensor) in tensors.iter().enumerate() {
        rounds.extend(rounds_of(rank, at, tensor, alone)?);
    }
    // Stable, so that tensors stay in order within a round.
    rounds.sort_by_key(|round| round.ordinal);
    let mut groups: Vec<Vec<&Round>> = Vec::new();
    for round in &rounds {
        let together = |group: &&mut Vec<&Round>| {
            !alone && group.first().is_some_and(|first| first.is_together_with(round, tensors))
        };
        match groups.iter_mut().rev().find(together) {
            Some(group) => group.push(round),
            None => groups.push(vec![round]),
        }
    }
    let mut stages: Vec<Stage> = Vec::with_capacity(groups.len());
    for group in &groups {
        let first = group[0];
        let (step, phase) = if alone { (first.step, first.index) } else { (first.ordinal, first.tensor) };
        let head = Head { rank, step, phase, tag };
        let exchange = exchange(head, group, tensors, alone)?;
        let (from, to) = (first.from(), first.to());
        let opens = group.iter().any(|round| round.opens(tensors, alone));
        stages.push(Stage { from, to, exchange, whole: None, ends: None, opens });
    }
    for at in 0..groups.len() {
        let Some(end) = all_reduce_end(&groups, at) else { continue };
        if stages[at].from == stages[end].to {
            continue;
        }
        let exchange = &stages[at].exchange;
        let head = Head { rank, step: exchange.step(), phase: exchange.phase(), tag };
        let round = groups[at][0];
        let whole = Round {
            phase: whole_reduction(&round.phase),
            target: groups[end][0].target.clone(),
            source: round.source.clone(),
            ..*round
        };
        let whole = self::exchange(head, &[&whole], tensors, alone)?.into_all_reduce(round.symmetric);
        if let Some(whole) = whole {
            stages[at].whole = Some(Box::new((stages[end].to, whole)));
            stages[end].ends = Some(at);
        }
    }
    Ok(stages)
}

/// Returns the stages of phases that do not come from a plan. Buffers are dense.
pub(crate) fn stages_of_phases(
    rank: usize,
    dtype: DType,
    phases: &[(usize, StepOp, Phase)],
) -> Result<Vec<Stage>, Error> {
    let mut stages = Vec::with_capacity(phases.len());
    for (ordinal, (step, op, phase)) in phases.iter().enumerate() {
        let round = Round {
            tensor: 0,
            ordinal,
            is_last: ordinal + 1 == phases.len(),
            step: *step,
            index: phases[..ordinal].iter().filter(|before| before.0 == *step).count(),
            op: Some(*op),
            communicates: op.communicates(),
            symmetric: true,
            source: BufferMap::dense(phase.source_len),
            target: BufferMap::dense(phase.target_len),
            phase: phase.clone(),
        };
        let part = part(&round, dtype, &|_| Ok(BufferMap::dense(0)));
        let head = Head { rank, step: *step, phase: round.index, tag: 0 };
        let exchange = Exchange::new(head, &[part])?;
        let (from, to) = (round.from(), round.to());
        // For foreign phases it is only known that members number their steps equally.
        let opens = (*step, round.index, from) == (0, 0, Buffer::Source);
        stages.push(Stage { from, to, exchange, whole: None, ends: None, opens });
    }
    Ok(stages)
}

/// Returns the group that ends the all-reduce begun by `groups[at]`, if both contain only this tensor.
fn all_reduce_end(groups: &[Vec<&Round>], at: usize) -> Option<usize> {
    let [begin] = groups[at].as_slice() else { return None };
    if begin.op != Some(StepOp::AllReduce) || begin.index != 0 {
        return None;
    }
    let is_end = |round: &Round| (round.tensor, round.step, round.index) == (begin.tensor, begin.step, 1);
    let end = groups.iter().position(|group| group.iter().any(|round| is_end(round)))?;
    (groups[end].len() == 1).then_some(end)
}

/// Returns the phase in which every member reduces the whole buffers of all members by itself.
fn whole_reduction(scatter: &Phase) -> Phase {
    let len = scatter.source_len;
    let message = |peer: usize| Message { peer, blocks: InlineVec::from_iter([run(len)]) };
    let all = || scatter.members.iter().copied().filter(|_| len > 0);
    Phase {
        source_len: len,
        target_len: len,
        fill_identity: None,
        receives: all().map(message).collect(),
        sends: all().map(message).collect(),
        reduce: scatter.reduce,
        members: scatter.members.clone(),
    }
}

fn part<'a>(
    round: &'a Round,
    dtype: DType,
    peer_source: &'a dyn Fn(usize) -> Result<BufferMap, Error>,
) -> Part<'a> {
    Part {
        dtype,
        phase: &round.phase,
        op: round.op,
        communicates: round.communicates,
        symmetric: round.symmetric,
        source: round.source.clone(),
        target: round.target.clone(),
        peer_source,
    }
}

fn exchange(head: Head, group: &[&Round], tensors: &[Tensor<'_>], alone: bool) -> Result<Exchange, Error> {
    let sources: Vec<_> = group
        .iter()
        .map(|round| {
            let tensor = &tensors[round.tensor];
            move |peer: usize| peer_source(tensor, round.step, round.index, peer, alone)
        })
        .collect();
    let parts: Vec<Part<'_>> = group
        .iter()
        .zip(&sources)
        .map(|(round, source)| part(round, tensors[round.tensor].plan.dtype(), source))
        .collect();
    Exchange::new(head, &parts)
}

/// Returns the phases of one tensor on one rank, in order.
fn rounds_of(rank: usize, at: usize, tensor: &Tensor<'_>, alone: bool) -> Result<Vec<Round>, Error> {
    let Tensor { plan, .. } = *tensor;
    let dtype = plan.dtype();
    Arithmetic::Kernels.check(plan.from(), dtype)?;
    Arithmetic::Kernels.check(plan.to(), dtype)?;
    if !takes_part(plan, rank) {
        return Ok(Vec::new());
    }
    let place = |map: BufferMap, start: usize| place(map, start, dtype);
    let (view, begin) = leading_view(plan, rank, tensor.source, alone)?;
    let source = place(view, tensor.source_start)?;
    let target = place(shard_map(plan.to(), rank, tensor.target)?, tensor.target_start)?;
    let row_major = *tensor.source == BufferLayout::RowMajor && *tensor.target == BufferLayout::RowMajor;
    let count = |step: usize| plan.steps()[step].exchanges();
    let total: usize = (begin..plan.steps().len()).map(count).sum();
    let mut rounds = Vec::new();
    let mut ordinal = 0;
    for (step, what) in plan.steps().iter().enumerate().skip(begin) {
        let even = what.exchanges() > 1 || (what.before.layout().is_some() && what.after.layout().is_some());
        for (index, phase) in plan.steps()[step].phases(rank)?.into_iter().enumerate() {
            let scratch = |len: usize| place(BufferMap::dense(len), tensor.scratch_start);
            let (first, is_last) = (ordinal + index == 0, ordinal + index + 1 == total);
            rounds.push(Round {
                tensor: at,
                ordinal: ordinal + index,
                is_last,
                step,
                index,
                op: Some(what.op()),
                communicates: what.op().communicates(),
                symmetric: row_major && begin <= 1 && even,
                source: if first { source.clone() } else { scratch(phase.source_len)? },
                target: if is_last { target.clone() } else { scratch(phase.target_len)? },
                phase,
            });
        }
        ordinal += count(step);
    }
    if plan.steps().is_empty() {
        rounds.push(Round {
            tensor: at,
            ordinal: 0,
            is_last: true,
            step: 0,
            index: 0,
            op: None,
            communicates: false,
            symmetric: false,
            phase: local_copy(rank, plan.to().local_numel(rank)),
            source,
            target,
        });
    }
    Ok(rounds)
}

/// Returns `true` if a rank is in the source mesh or in the target mesh.
pub(crate) fn takes_part(plan: &Plan, rank: usize) -> bool {
    plan.from().mesh().contains(rank) || plan.to().mesh().contains(rank)
}

/// Returns the memory from which a peer sends in a phase.
fn peer_source(
    tensor: &Tensor<'_>,
    step: usize,
    index: usize,
    peer: usize,
    alone: bool,
) -> Result<BufferMap, Error> {
    let Tensor { plan, .. } = *tensor;
    let dtype = plan.dtype();
    let first_talks = plan.steps().first().is_none_or(|step| step.op().communicates());
    let (map, begin) = if *tensor.source == BufferLayout::RowMajor && (first_talks || index > 0) {
        // Dense from the beginning to the end: no view is needed.
        (BufferMap::dense(0), 0)
    } else {
        leading_view(plan, peer, tensor.source, alone)?
    };
    if index == 0 && step == begin {
        place(map, tensor.source_start, dtype)
    } else {
        place(BufferMap::dense(0), tensor.scratch_start, dtype)
    }
}

/// Returns a tensor's memory, `start` bytes into a buffer.
fn place(map: BufferMap, start: usize, dtype: DType) -> Result<BufferMap, Error> {
    Ok(map.at_element(start / dtype.element_bytes()?))
}

/// Returns the memory of a rank's shard; empty if the rank is not in the mesh.
fn shard_map(sharding: &Sharding, rank: usize, memory: &BufferLayout) -> Result<BufferMap, Error> {
    if !sharding.mesh().contains(rank) {
        return Ok(BufferMap::dense(0));
    }
    BufferMap::new(memory, rank, &sharding.local_shape(rank)?)
}

/// Returns the view of a rank's source through its leading slices, and the first step to run.
///
/// The first communicating step reads the source through this view. Skipped slices copy nothing. In a batch,
/// slices are only skipped if all ranks skip the same.
fn leading_view(
    plan: &Plan,
    rank: usize,
    memory: &BufferLayout,
    alone: bool,
) -> Result<(BufferMap, usize), Error> {
    let mut map = shard_map(plan.from(), rank, memory)?;
    let mut begin = 0;
    let all_alike = |step: usize| {
        let at = &plan.steps()[step];
        step == 0
            && plan.from().mesh() == plan.to().mesh()
            && *memory == BufferLayout::RowMajor
            && at.before.layout().is_some()
            && at.after.layout().is_some()
    };
    while begin + 1 < plan.steps().len() && !plan.steps()[begin].op().communicates() {
        if !alone && !all_alike(begin) {
            break;
        }
        let phases = plan.steps()[begin].phases(rank)?;
        let [phase] = phases.as_slice() else { break };
        let Some(view) = map.through(phase, rank) else { break };
        (map, begin) = (view, begin + 1);
    }
    Ok((map, begin))
}

/// Returns a block of `len` elements from the beginning of one buffer to the beginning of another.
fn run(len: usize) -> Block {
    let modes = Modes::from_slice(&[Mode::new(len as i64, (1, 1))]);
    Block { source_offset: 0, target_offset: 0, modes }
}

/// Returns the phase of a rank in a plan without steps: its target is its source.
fn local_copy(rank: usize, len: usize) -> Phase {
    let receives = (len > 0).then(|| Message { peer: rank, blocks: InlineVec::from_iter([run(len)]) });
    Phase {
        source_len: len,
        target_len: len,
        fill_identity: None,
        receives: receives.into_iter().collect(),
        sends: Vec::new(),
        reduce: None,
        members: vec![rank],
    }
}
