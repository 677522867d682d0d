//! One phase of a plan, compiled for one rank.

use std::sync::{Arc, OnceLock};

use reshard_kernels::{Combine, CombineOp, Copy, DType, Divide, Loop, Nest, Side};
use reshard_sharding::ReduceOp;
use reshard_sharding::redistribute::{Block, Message, Phase};
use smallvec::SmallVec;

use crate::Error;
use crate::memory::Map;
use crate::messages::Messages;

/// What one rank does in one phase: everything checked, every offset fixed, nothing that depends on the data.
///
/// Carrying it out means, in this order: run [`prepare`](Exchange::prepare) on the target; for every [`Receive`] in the
/// listed order (for a reduction the order matters) run its moves from the peer's source into the target; run
/// [`finish`](Exchange::finish) on the target.
#[derive(Clone, Debug)]
pub struct Exchange {
    rank: usize,
    step: usize,
    phase: usize,
    dtype: DType,
    item_bytes: usize,
    members: Arc<[usize]>,
    communicates: bool,
    source_bytes: usize,
    target_bytes: usize,
    fill: Option<(SmallVec<[u8; 8]>, Vec<Copy>)>,
    receives: Vec<Receive>,
    sends: Vec<Send>,
    reduces: bool,
    divide: Vec<Divide>,
    tag: u64,
    messages: OnceLock<Messages>,
}

/// What lands in this rank's target from one peer, perhaps itself.
#[derive(Clone, Debug)]
pub struct Receive {
    peer: usize,
    bytes: usize,
    nests: Vec<Nest>,
    moves: Vec<Move>,
}

/// What one peer takes from this rank's source.
#[derive(Clone, Debug)]
pub struct Send {
    peer: usize,
    bytes: usize,
    nests: Vec<Nest>,
}

/// One loop nest from a peer's source to this rank's target.
#[derive(Clone, Debug)]
pub enum Move {
    /// The elements overwrite the target's.
    Copy(Copy),
    /// The elements are combined into the target's.
    Combine(Combine),
}

impl Move {
    /// Carries the move out, and returns the number of bytes that it read.
    pub fn run(&self, target: &mut [u8], source: &[u8]) -> Result<usize, Error> {
        Ok(match self {
            Move::Copy(copy) => copy.run(target, source)?,
            Move::Combine(combine) => combine.run(target, source)?,
        })
    }
}

impl Receive {
    /// The rank from whose source this comes.
    pub fn peer(&self) -> usize {
        self.peer
    }

    /// Bytes that it brings.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn nests(&self) -> &[Nest] {
        &self.nests
    }

    /// The moves from the peer's source into this rank's target.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// The moves into the target from a dense message that the peer packed with [`Send::pack`], `start` bytes into a
    /// buffer.
    pub fn unpack(&self, exchange: &Exchange, dtype: DType, start: usize) -> Result<Vec<Move>, Error> {
        let mut at = dense_start(start, exchange.item_bytes)?;
        let mut moves = Vec::new();
        for (nest, old) in self.nests.iter().zip(&self.moves) {
            let dense = dense(nest, Side::Source, &mut at)?;
            moves.push(match old {
                Move::Copy(_) => Move::Copy(Copy::new(&dense, exchange.item_bytes)?),
                Move::Combine(combine) => Move::Combine(Combine::new(&dense, dtype, combine.op())?),
            });
        }
        Ok(moves)
    }
}

impl Send {
    /// The rank that takes this.
    pub fn peer(&self) -> usize {
        self.peer
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn nests(&self) -> &[Nest] {
        &self.nests
    }

    /// The copies from this rank's source into a dense message, `start` bytes into a buffer.
    pub fn pack(&self, exchange: &Exchange, start: usize) -> Result<Vec<Copy>, Error> {
        let mut at = dense_start(start, exchange.item_bytes)?;
        let mut copies = Vec::new();
        for nest in &self.nests {
            copies.push(Copy::new(&dense(nest, Side::Target, &mut at)?, exchange.item_bytes)?);
        }
        Ok(copies)
    }
}

fn dense_start(start: usize, item_bytes: usize) -> Result<i64, Error> {
    if !start.is_multiple_of(item_bytes) {
        let message = format!("a message starts at byte {start}, inside of an item of {item_bytes} bytes");
        return Err(Error::Phase { step: 0, message });
    }
    Ok((start / item_bytes) as i64)
}

/// The nest with one side replaced by consecutive elements from `at` on, which moves behind them.
fn dense(nest: &Nest, side: Side, at: &mut i64) -> Result<Nest, Error> {
    let mut result = nest.clone();
    let mut stride = 1;
    for l in result.loops.iter_mut().rev() {
        match side {
            Side::Source => l.source_stride = stride,
            Side::Target => l.target_stride = stride,
        }
        stride *= l.extent as i64;
    }
    match side {
        Side::Source => result.source_offset = *at,
        Side::Target => result.target_offset = *at,
    }
    *at += nest.len()? as i64;
    Ok(result)
}

/// What compiling one phase needs to know besides the phase.
pub(crate) struct Context<'a> {
    pub(crate) rank: usize,
    pub(crate) dtype: DType,
    pub(crate) step: usize,
    pub(crate) phase: usize,
    /// Whether ranks talk to each other in this step.
    pub(crate) communicates: bool,
    /// The same on all ranks that carry out the same plan.
    pub(crate) plan_tag: u64,
    /// The memory of this rank's source and target.
    pub(crate) source: Map,
    pub(crate) target: Map,
    /// The memory of a peer's source.
    pub(crate) peer_source: &'a dyn Fn(usize) -> Result<Map, Error>,
}

impl Exchange {
    /// Compiles a phase.
    pub(crate) fn new(context: &Context<'_>, phase: &Phase) -> Result<Exchange, Error> {
        let Context { rank, dtype, step, .. } = *context;
        let item_bytes = dtype.item_bytes()?;
        let wrong = |message: String| Error::Phase { step, message };
        let bytes = |elements: usize| {
            elements
                .checked_mul(item_bytes)
                .ok_or(reshard_kernels::Error::Overflow { what: "the size of a buffer" })
        };
        let mut members: SmallVec<[usize; 16]> = phase.members.iter().copied().collect();
        members.sort_unstable();
        let Some(my_place) = members.iter().position(|member| *member == rank) else {
            return Err(wrong(format!("rank {rank} is not a member of its own group {members:?}")));
        };
        let reduce = phase.reduce.map(|reduce| (combine_op(reduce.op), reduce.divisor));
        let whole = context.target.apply(whole_target(phase.target_len), Side::Target);
        let mut exchange = Exchange {
            rank,
            step,
            phase: context.phase,
            dtype,
            item_bytes,
            members: members.as_slice().into(),
            communicates: context.communicates,
            source_bytes: bytes(context.source.len)?,
            target_bytes: bytes(context.target.len)?,
            fill: None,
            receives: Vec::new(),
            sends: Vec::new(),
            reduces: reduce.is_some(),
            divide: Vec::new(),
            tag: context.plan_tag ^ ((step as u64) << 8 | context.phase as u64),
            messages: OnceLock::new(),
        };
        if let Some(op) = phase.fill {
            let identity = dtype.identity(combine_op(op))?;
            let fills = whole.iter().map(|nest| Copy::new(nest, item_bytes)).collect::<Result<_, _>>()?;
            exchange.fill = Some((identity, fills));
        }
        let mut overwrite = phase.fill.is_none();
        for message in &phase.receives {
            if !exchange.members.contains(&message.peer) {
                return Err(wrong(format!("rank {} is not a member of group {members:?}", message.peer)));
            }
            if reduce.is_some() && message.blocks.iter().map(Block::numel).sum::<usize>() != phase.target_len
            {
                return Err(wrong(format!("the term of rank {} does not cover the target", message.peer)));
            }
            let peer_map = if message.peer == rank {
                context.source.clone()
            } else {
                (context.peer_source)(message.peer)?
            };
            let nests: Vec<Nest> = nests(message)
                .flat_map(|nest| peer_map.apply(nest, Side::Source))
                .flat_map(|nest| context.target.apply(nest, Side::Target))
                .collect();
            let mut moves = Vec::with_capacity(nests.len());
            let mut total = 0;
            for nest in &nests {
                let copy = Copy::new(nest, item_bytes)?;
                if copy.target_range().end > exchange.target_bytes {
                    return Err(wrong(format!(
                        "a block of rank {} ends outside of the target",
                        message.peer
                    )));
                }
                total += copy.bytes();
                moves.push(match reduce {
                    Some((op, _)) if !overwrite => Move::Combine(Combine::new(nest, dtype, op)?),
                    Some(_) | None => Move::Copy(copy),
                });
            }
            overwrite &= reduce.is_none();
            if total > 0 {
                exchange.receives.push(Receive { peer: message.peer, bytes: total, nests, moves });
            }
        }
        for message in phase.sends.iter().filter(|message| message.peer != rank) {
            let nests: Vec<Nest> =
                nests(message).flat_map(|nest| context.source.apply(nest, Side::Source)).collect();
            let elements = nests.iter().try_fold(0, |n, nest| Ok::<_, Error>(n + nest.len()?))?;
            if elements > 0 {
                exchange.sends.push(Send { peer: message.peer, bytes: bytes(elements)?, nests });
            }
        }
        if let Some((op, divisor)) = reduce {
            dtype.check_combine(op)?;
            if divisor != 1 {
                let divide = whole.iter().map(|nest| Divide::new(nest, dtype, divisor));
                exchange.divide = divide.collect::<Result<_, _>>()?;
            }
        } else {
            // Not everybody reads the same rank first: start with oneself.
            let place = |peer: usize| exchange.members.iter().position(|m| *m == peer).unwrap_or(0);
            let n = exchange.members.len();
            exchange.receives.sort_by_key(|receive| (place(receive.peer) + n - my_place) % n);
        }
        if !context.communicates && exchange.receives.iter().any(|receive| receive.peer != rank) {
            return Err(wrong(format!("rank {rank} receives from others in a local step")));
        }
        Ok(exchange)
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Index of the step in the plan.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Index of the phase in the step.
    pub fn phase(&self) -> usize {
        self.phase
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of one element.
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// The ranks that take part together, ascending, this one among them.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Whether ranks talk to each other; if not, everything comes from this rank's own source.
    pub fn communicates(&self) -> bool {
        self.communicates
    }

    /// Bytes of this rank's source.
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// Bytes of this rank's target.
    pub fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// What lands here, in the order in which it must be combined.
    pub fn receives(&self) -> &[Receive] {
        &self.receives
    }

    /// What others take from here.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }

    /// The exchange as dense messages between this rank and others: computed when they are first asked for, and kept.
    pub fn messages(&self) -> Result<&Messages, Error> {
        if let Some(messages) = self.messages.get() {
            return Ok(messages);
        }
        let messages = Messages::new(self)?;
        Ok(self.messages.get_or_init(|| messages))
    }

    /// Whether the receives must be combined in the order in which they are listed.
    pub fn is_reduction(&self) -> bool {
        self.reduces
    }

    /// Bytes that land here from others.
    pub fn received_bytes(&self) -> usize {
        self.receives.iter().filter(|receive| receive.peer != self.rank).map(|receive| receive.bytes).sum()
    }

    /// The same on all members in the same phase of the same plan, so that different plans are noticed.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Fills the target with the identity of the reduction, where the plan asks for it.
    pub fn prepare(&self, target: &mut [u8]) -> Result<(), Error> {
        if let Some((identity, copies)) = &self.fill {
            for copy in copies {
                copy.run(target, identity)?;
            }
        }
        Ok(())
    }

    /// Ends the reduction: divides, where it is an average.
    pub fn finish(&self, target: &mut [u8]) -> Result<(), Error> {
        for divide in &self.divide {
            divide.run(target)?;
        }
        Ok(())
    }
}

/// Every element of a dense target, from one repeated source element.
fn whole_target(len: usize) -> Nest {
    Nest::new(0, 0, [Loop::new(len, 0, 1)])
}

/// A message's blocks as nests.
fn nests(message: &Message) -> impl Iterator<Item = Nest> + '_ {
    message.blocks.iter().map(|block| {
        let loops = block.modes.iter();
        let loops = loops.map(|m| Loop::new(m.extent, m.source_stride as i64, m.target_stride as i64));
        Nest::new(block.source_offset as i64, block.target_offset as i64, loops)
    })
}

/// The kernel's operation; an average is a sum that is divided at the end.
pub(crate) fn combine_op(op: ReduceOp) -> CombineOp {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => CombineOp::Sum,
        ReduceOp::Prod => CombineOp::Prod,
        ReduceOp::Min => CombineOp::Min,
        ReduceOp::Max => CombineOp::Max,
    }
}
