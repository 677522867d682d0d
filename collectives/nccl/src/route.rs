//! Routing of an exchange: its NCCL calls, their buffers, and the packing before and unpacking after them.
//!
//! ```text
//! before   one launch: messages that are not contiguous in the source are packed into staging; fills
//! call     one all-gather, reduce-scatter or all-reduce, or one group of sends and receives
//! after    unpacks staging: one launch of copies, or a reduction of all partial values in their order
//! ```
//!
//! All members must find the same call. They all know its inputs: the op, whether it reduces, the reduction,
//! and the sizes of all messages, which all members of an all-gather or a reduce-scatter see. Packing a
//! message, and receiving it without staging, are local decisions of each rank.
//!
//! NCCL performs the reductions of integers, whose result does not depend on the order of partial values.
//! Floats are sent as messages and combined by a kernel of this library in member order. That brings every
//! rank the same bytes as a reduce-scatter. It makes the plan's replicas equal to the bit when several groups
//! compute them, and it is the order that a deterministic plan promises; NCCL promises neither order nor
//! equality across groups. NCCL's minimum and maximum of floats ignore NaN where this library propagates it,
//! so they are never used. NCCL has no norms. [`FloatSums::Nccl`](crate::FloatSums::Nccl) gives float sums
//! and products to NCCL for callers that prefer its speed.
//!
//! A message is the concatenation of its nests, as for every engine.

use std::collections::HashMap;
use std::ops::Range;

use reshard_collectives::{Collective, Error, Exchange, Reduction, SendMessage, TypedNest};
use reshard_cuda::Command;
use reshard_device::internal::{Landing, copies, fills, in_bytes, landed};
use reshard_kernels::{CombineOp, CopySide, LoopNest};
use reshard_layout::Mode;
use reshard_planner::StepOp;

use crate::{Element, FloatSums};

/// Alignment of parts of the staging buffer, in bytes.
const ALIGNMENT: usize = 256;

/// An offset in one of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source(usize),
    Target(usize),
    Staging(usize),
}

/// A message of the group of sends and receives; the peer is a group rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) peer: usize,
    pub(crate) at: End,
    pub(crate) bytes: usize,
}

/// The NCCL call of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Nothing,
    AllGather { source: End, target: End, bytes: usize },
    ReduceScatter { source: End, target: End, count: usize, element: Element, op: CombineOp },
    AllReduce { source: End, target: End, count: usize, element: Element, op: CombineOp },
    Messages { sends: Vec<Message>, receives: Vec<Message> },
}

impl Route {
    /// Returns the bytes that other members send to one member; for an all-reduce, those of a ring.
    pub(crate) fn received(&self, members: usize) -> Result<u64, Error> {
        let others = members.saturating_sub(1);
        let bytes = match self {
            Route::Nothing => 0,
            Route::AllGather { bytes, .. } => others * bytes,
            Route::ReduceScatter { count, element, .. } => {
                others * count * element.dtype().element_bytes()?
            }
            Route::AllReduce { count, element, .. } => {
                (2 * others * count).div_ceil(members.max(1)) * element.dtype().element_bytes()?
            }
            Route::Messages { receives, .. } => receives.iter().map(|message| message.bytes).sum(),
        };
        Ok(bytes as u64)
    }
}

/// The location of a partial value or a message before it is unpacked.
#[derive(Clone, Debug)]
enum Stage {
    /// In this rank's source, at the offsets of the receive.
    Source,
    /// A message at this offset of staging.
    Message(usize),
}

/// The route of an exchange, independent of the addresses of its buffers.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) route: Route,
    pub(crate) staging: usize,
    /// Nests of the source, and the staging offset of the message that they are packed into.
    packs: Vec<(Vec<TypedNest>, usize)>,
    /// The receives that are not in the target after the call, and their locations.
    stages: Vec<(usize, Stage)>,
    /// Staging offset for partial values whose elements are misaligned in the message.
    realigned: usize,
}

/// The addresses of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Addresses {
    pub(crate) source: i64,
    pub(crate) target: i64,
    pub(crate) staging: i64,
}

impl Addresses {
    pub(crate) fn of(self, end: End) -> i64 {
        match end {
            End::Source(at) => self.source + at as i64,
            End::Target(at) => self.target + at as i64,
            End::Staging(at) => self.staging + at as i64,
        }
    }
}

/// Returns the element type that NCCL reduces with, if NCCL is to perform this reduction.
pub(crate) fn native(reduction: Reduction, floats: FloatSums) -> Option<Element> {
    let Reduction { op, dtype, .. } = reduction;
    let is_float = dtype.check_average().is_ok();
    let wanted = match (is_float, op, floats) {
        (false, _, _) | (true, CombineOp::Sum | CombineOp::Prod, FloatSums::Nccl) => true,
        (true, CombineOp::Min | CombineOp::Max | CombineOp::Norm(_), _) | (true, _, FloatSums::InOrder) => {
            false
        }
    };
    dtype.check_combine(op).ok()?;
    Element::of(dtype).filter(|_| wanted)
}

/// An allocator of the staging buffer, from its beginning.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> Result<usize, Error> {
        let overflow = reshard_kernels::Error::Overflow { what: "the size of a staging buffer" };
        let start = self.0.checked_next_multiple_of(ALIGNMENT).ok_or(overflow.clone())?;
        self.0 = start.checked_add(bytes).ok_or(overflow)?;
        Ok(start)
    }
}

/// Returns the offset and size of equal-sized blocks, if they are contiguous.
fn even(blocks: &[Range<usize>]) -> Option<(usize, usize)> {
    let first = blocks.first()?;
    let right = |(i, block): (usize, &Range<usize>)| {
        block.start == first.start + i * first.len() && block.len() == first.len()
    };
    blocks.iter().enumerate().all(right).then(|| (first.start, first.len()))
}

impl Way {
    pub(crate) fn new(exchange: &Exchange, floats: FloatSums) -> Result<Way, Error> {
        let way =
            Way { route: Route::Nothing, staging: 0, packs: Vec::new(), stages: Vec::new(), realigned: 0 };
        if exchange.is_local() {
            let stages = (0..exchange.receives().len()).map(|i| (i, Stage::Source)).collect();
            return Ok(Way { stages, ..way });
        }
        let mut way = match (reduced(exchange, floats), gathered(exchange)) {
            (Some(route), _) => return Ok(Way { route, ..way }),
            (None, Some(bytes)) => way.all_gather(exchange, bytes)?,
            (None, None) => way.messages(exchange)?,
        };
        way.realign(exchange)?;
        Ok(way)
    }

    /// Completes the route of an all-gather: every member sends the same message to all.
    fn all_gather(mut self, exchange: &Exchange, bytes: usize) -> Result<Way, Error> {
        let mut room = Room(0);
        let send = exchange.sends().first();
        let contiguous = send.and_then(SendMessage::contiguous);
        let source = match (contiguous, send) {
            (Some(range), _) => End::Source(range.start),
            (None, send) => {
                let at = room.take(bytes)?;
                self.packs.extend(send.map(|send| (send.pieces().to_vec(), at)));
                End::Staging(at)
            }
        };
        // By group rank, the target range of each block.
        let mut blocks = vec![None; exchange.members().len()];
        for receive in exchange.receives() {
            let place =
                exchange.group_rank(receive.peer()).ok_or(Error::NotInPlan { rank: receive.peer() })?;
            blocks[place] = receive.contiguous();
        }
        let blocks: Option<Vec<Range<usize>>> = blocks.into_iter().collect();
        let target = if let Some((start, _)) = blocks.as_deref().and_then(even) {
            End::Target(start)
        } else {
            let all = bytes.checked_mul(exchange.members().len());
            let at = room.take(
                all.ok_or(reshard_kernels::Error::Overflow { what: "the size of a staging buffer" })?,
            )?;
            for (i, receive) in exchange.receives().iter().enumerate() {
                let place = exchange.group_rank(receive.peer()).unwrap_or(0);
                let own = receive.peer() == exchange.rank();
                self.stages.push((i, if own { Stage::Source } else { Stage::Message(at + place * bytes) }));
            }
            End::Staging(at)
        };
        self.route = Route::AllGather { source, target, bytes };
        self.staging = room.0;
        Ok(self)
    }

    fn messages(mut self, exchange: &Exchange) -> Result<Way, Error> {
        let mut room = Room(0);
        let place = |rank: usize| exchange.group_rank(rank).ok_or(Error::NotInPlan { rank });
        // Peers that take the same data get one message, packed once.
        let mut packed: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut sends = Vec::with_capacity(exchange.sends().len());
        for send in exchange.sends() {
            let at = if let Some(range) = send.contiguous() {
                End::Source(range.start)
            } else if let Some(at) = packed.get(&read_side(send.pieces())) {
                End::Staging(*at)
            } else {
                let at = room.take(send.bytes())?;
                packed.insert(read_side(send.pieces()), at);
                self.packs.push((send.pieces().to_vec(), at));
                End::Staging(at)
            };
            sends.push(Message { peer: place(send.peer())?, at, bytes: send.bytes() });
        }
        let mut receives = Vec::with_capacity(exchange.receives().len());
        for (i, receive) in exchange.receives().iter().enumerate() {
            let bytes = receive.bytes();
            if receive.peer() == exchange.rank() {
                // Partial values with equal nests are reduced in one launch, and those of the others are
                // dense.
                let dense = |piece: &TypedNest| piece.contiguous(CopySide::Source).is_some();
                let stage = if exchange.is_reduction() && !receive.pieces().iter().all(dense) {
                    let at = room.take(bytes)?;
                    self.packs.push((receive.pieces().to_vec(), at));
                    Stage::Message(at)
                } else {
                    Stage::Source
                };
                self.stages.push((i, stage));
                continue;
            }
            let direct = receive.contiguous().filter(|_| !exchange.is_reduction());
            let at = if let Some(range) = direct {
                End::Target(range.start)
            } else {
                let at = room.take(bytes)?;
                self.stages.push((i, Stage::Message(at)));
                End::Staging(at)
            };
            receives.push(Message { peer: place(receive.peer())?, at, bytes });
        }
        self.route = Route::Messages { sends, receives };
        self.staging = room.0;
        Ok(self)
    }

    /// Allocates staging for partial values that must be copied before arithmetic.
    ///
    /// That happens in batches of several dtypes.
    fn realign(&mut self, exchange: &Exchange) -> Result<(), Error> {
        if !exchange.is_reduction() {
            return Ok(());
        }
        let mut room = Room(self.staging);
        self.realigned = room.take(0)?;
        for (i, stage) in &self.stages {
            if let Stage::Message(at) = stage {
                for (piece, offset) in offsets(exchange.receives()[*i].pieces(), *at)? {
                    if !offset.is_multiple_of(piece.dtype.element_bytes()?) {
                        room.take(piece.bytes()?)?;
                    }
                }
            }
        }
        if room.0 > self.realigned {
            self.staging = room.0;
        }
        Ok(())
    }

    /// Returns the launches before and after the call.
    pub(crate) fn launches(
        &self,
        exchange: &Exchange,
        at: Addresses,
        constants: i64,
    ) -> Result<(Vec<Command>, Vec<Command>), Error> {
        let mut before = fills(exchange, at.target, constants)?;
        for (pieces, start) in &self.packs {
            for (piece, offset) in offsets(pieces, *start)? {
                let nest = piece.dense(CopySide::Target);
                let piece = TypedNest { nest, dtype: piece.dtype };
                before.push(in_bytes(&piece, at.source, at.staging + offset as i64)?);
            }
        }
        let mut room = Room(self.realigned);
        let (mut moved, mut landings) = (Vec::new(), Vec::new());
        for (i, stage) in &self.stages {
            let receive = &exchange.receives()[*i];
            let mut landing = Landing::of(receive, at.source);
            match stage {
                Stage::Source => landing.pieces.iter_mut().for_each(as_if_dense),
                Stage::Message(start) => {
                    // Some nests may have to be copied, so all offsets count from the beginning of the
                    // buffer.
                    landing.base = at.staging;
                    landing.pieces.clear();
                    for (piece, offset) in offsets(receive.pieces(), *start)? {
                        let item = piece.dtype.element_bytes()?;
                        let mut offset = offset;
                        if exchange.is_reduction() && !offset.is_multiple_of(item) {
                            let bytes = piece.bytes()?;
                            let aligned = room.take(bytes)?;
                            let (from, to) = (at.staging + offset as i64, at.staging + aligned as i64);
                            moved.push(line(from, to, bytes));
                            offset = aligned;
                        }
                        landing.pieces.push(staged(piece, offset, item)?);
                    }
                }
            }
            landings.push(landing);
        }
        // Copies from this rank's own source need not wait for the others.
        let alone = |stage: &(usize, Stage)| matches!(stage.1, Stage::Source);
        let early = !exchange.is_reduction()
            && exchange.fills().is_empty()
            && self.route != Route::Nothing
            && self.stages.iter().all(alone);
        if early {
            for landing in landings.drain(..) {
                for piece in &landing.pieces {
                    before.push(in_bytes(piece, landing.base, at.target)?);
                }
            }
        }
        let before = Vec::from_iter(copies(exchange, &before)?);
        let mut after = Vec::from_iter(copies(exchange, &moved)?);
        after.extend(landed(exchange, &landings, at.target)?);
        Ok((before, after))
    }
}

/// Returns NCCL's own reduction, if NCCL is to perform this one.
fn reduced(exchange: &Exchange, floats: FloatSums) -> Option<Route> {
    let element = native(exchange.reduction()?, floats)?;
    let count = |bytes: usize, reduction: &Reduction| Some(bytes / reduction.dtype.element_bytes().ok()?);
    match exchange.collective()? {
        Collective::ReduceScatter { theirs, mine, reduction } => {
            let (start, bytes) = even(theirs)?;
            Some(Route::ReduceScatter {
                source: End::Source(start),
                target: End::Target(mine.start),
                count: count(bytes, reduction)?,
                element,
                op: reduction.op,
            })
        }
        Collective::AllReduce { source, target, reduction } => Some(Route::AllReduce {
            source: End::Source(source.start),
            target: End::Target(target.start),
            count: count(source.len(), reduction)?,
            element,
            op: reduction.op,
        }),
        Collective::AllGather { .. } | Collective::AllToAll { .. } => None,
    }
}

/// Returns the bytes of each member's message, if this is an all-gather of messages of one size.
fn gathered(exchange: &Exchange) -> Option<usize> {
    let gathers = match exchange.op()? {
        StepOp::AllGather | StepOp::AllReduce => !exchange.is_reduction(),
        StepOp::Slice | StepOp::ReduceScatter | StepOp::AllToAll | StepOp::Exchange | StepOp::ZeroFill => {
            false
        }
    };
    let receives = exchange.receives();
    let bytes = receives.first()?.bytes();
    let all = receives.len() == exchange.members().len() && exchange.sends().len() + 1 == receives.len();
    (gathers && all && receives.iter().all(|receive| receive.bytes() == bytes)).then_some(bytes)
}

/// Returns a key of the source side of a pack, for comparison.
fn read_side(pieces: &[TypedNest]) -> Vec<u8> {
    let mut key = Vec::new();
    for piece in pieces {
        key.extend(format!("{}@{}", piece.dtype, piece.nest.source_offset).into_bytes());
        for mode in &piece.nest.modes {
            key.extend(format!(",{}:{}", mode.extent, mode.stride.0).into_bytes());
        }
        key.push(b';');
    }
    key
}

/// Returns nests with their offsets in a message that begins at `start`.
fn offsets(pieces: &[TypedNest], start: usize) -> Result<Vec<(&TypedNest, usize)>, Error> {
    let mut at = start;
    let one = |piece: &'_ TypedNest| {
        let offset = at;
        at += piece.bytes()?;
        Ok(offset)
    };
    let starts = pieces.iter().map(one).collect::<Result<Vec<usize>, Error>>()?;
    Ok(pieces.iter().zip(starts).collect())
}

/// Returns a nest that is dense from an offset of a buffer on.
fn staged(piece: &TypedNest, offset: usize, item: usize) -> Result<TypedNest, Error> {
    let mut nest = piece.dense(CopySide::Source);
    if offset.is_multiple_of(item) {
        nest.source_offset = (offset / item) as i64;
        return Ok(TypedNest { nest, dtype: piece.dtype });
    }
    // Only copied, so bytes suffice.
    let mut nest = nest.scale(item)?;
    nest.modes.insert(0, Mode::new(item as i64, (1, 1)));
    nest.source_offset = offset as i64;
    Ok(TypedNest { nest, dtype: reshard_kernels::DType::U8 })
}

/// Returns a copy of bytes from one address to another.
fn line(source: i64, target: i64, bytes: usize) -> LoopNest {
    LoopNest::new(source, target, [Mode::new(bytes as i64, (1, 1))])
}

/// Replaces the strides of a contiguous nest by those of a dense one, which modes of extent 1 may hide.
fn as_if_dense(piece: &mut TypedNest) {
    if piece.contiguous(CopySide::Source).is_some() {
        let offset = piece.nest.source_offset;
        piece.nest = piece.dense(CopySide::Source);
        piece.nest.source_offset = offset;
    }
}
