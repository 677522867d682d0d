//! An exchange as messages, for engines that cannot read their peers' memory.
//!
//! A message is dense: the elements of its blocks in the order in which the plan lists them. Where they already lie so
//! in the source, or are to lie so in the target, the message is sent from there or received there and nothing is packed:
//!
//! ```text
//! source --pack--> staging --the engine--> staging --unpack--> target
//! source ----------------- the engine ---------------------->  target       where both are dense
//! ```
//!
//! The staging buffer holds what is packed first and what is to be unpacked behind it, every message aligned.

use std::ops::Range;

use reshard_kernels::{Copy, Nest, Side};

use crate::Error;
use crate::exchange::{Exchange, Move};

/// Messages in the staging buffer start at multiples of this: a cache line, and any element's alignment.
const ALIGNMENT: usize = 64;

/// All messages of one rank in one exchange: computed once, see [`Exchange::messages`].
#[derive(Clone, Debug)]
pub struct Messages {
    sends: Vec<Outgoing>,
    receives: Vec<Incoming>,
    direct: Vec<usize>,
    packed_bytes: usize,
    staging_bytes: usize,
}

/// A message to a peer.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The rank that takes it.
    pub peer: usize,
    /// Where its bytes are.
    pub from: SendFrom,
}

/// A message from a peer.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Index in [`Exchange::receives`].
    pub receive: usize,
    /// The rank that sends it.
    pub peer: usize,
    /// Where its bytes go.
    pub into: ReceiveInto,
}

/// Where the bytes of a message are that is sent.
#[derive(Clone, Debug)]
pub enum SendFrom {
    /// In this range of the source.
    Source(Range<usize>),
    /// In this range of the staging buffer, when the copies from the source into the range have been run.
    Staging(Range<usize>, Vec<Copy>),
}

/// Where the bytes of a message go that is received.
#[derive(Clone, Debug)]
pub enum ReceiveInto {
    /// To this range of the target.
    Target(Range<usize>),
    /// To this range of the staging buffer; the moves go from the range to the target.
    Staging(Range<usize>, Vec<Move>),
}

impl SendFrom {
    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        match self {
            SendFrom::Source(range) | SendFrom::Staging(range, _) => range.len(),
        }
    }
}

impl ReceiveInto {
    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        match self {
            ReceiveInto::Target(range) | ReceiveInto::Staging(range, _) => range.len(),
        }
    }
}

impl Messages {
    pub(crate) fn new(exchange: &Exchange) -> Result<Messages, Error> {
        let item = exchange.item_bytes();
        let mut end = 0;
        let mut room = |bytes: usize| -> Result<Range<usize>, Error> {
            let start: usize = end;
            let overflow = reshard_kernels::Error::Overflow { what: "the size of a staging buffer" };
            end = start
                .checked_add(bytes)
                .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
                .ok_or(overflow)?;
            Ok(start..start + bytes)
        };
        let mut sends = Vec::with_capacity(exchange.sends().len());
        for send in exchange.sends() {
            let from = match dense_range(send.nests(), Side::Source, item)? {
                Some(range) => SendFrom::Source(range),
                None => {
                    let range = room(send.bytes())?;
                    let copies = send.pack(exchange, 0)?;
                    SendFrom::Staging(range, copies)
                }
            };
            sends.push(Outgoing { peer: send.peer(), from });
        }
        // Not everybody sends to the same rank first.
        sends.sort_by_key(|send: &Outgoing| (send.peer <= exchange.rank(), send.peer));
        let packed_bytes = room(0)?.start;
        let mut receives = Vec::with_capacity(exchange.receives().len());
        for (index, receive) in exchange.receives().iter().enumerate() {
            if receive.peer() == exchange.rank() {
                continue;
            }
            let overwrites = receive.moves().iter().all(|one| matches!(one, Move::Copy(_)));
            let dense = if overwrites { dense_range(receive.nests(), Side::Target, item)? } else { None };
            // The first term of a reduction is the target, or it is none of it.
            let fits =
                |range: &Range<usize>| !exchange.is_reduction() || *range == (0..exchange.target_bytes());
            let into = match dense.filter(fits) {
                Some(range) => ReceiveInto::Target(range),
                None => {
                    let range = room(receive.bytes())?;
                    let moves = receive.unpack(exchange, exchange.dtype(), 0)?;
                    ReceiveInto::Staging(range, moves)
                }
            };
            receives.push(Incoming { receive: index, peer: receive.peer(), into });
        }
        let staging_bytes = room(0)?.start;
        let direct = direct(&receives, exchange.step())?;
        Ok(Messages { sends, receives, direct, packed_bytes, staging_bytes })
    }

    /// What this rank sends, beginning with the ranks behind it.
    pub fn sends(&self) -> &[Outgoing] {
        &self.sends
    }

    /// What this rank receives from others, in the order of [`Exchange::receives`], which is that of their staging too.
    pub fn receives(&self) -> &[Incoming] {
        &self.receives
    }

    /// Indices of the [`receives`](Messages::receives) that go straight to the target, in the order of their ranges,
    /// which do not overlap.
    pub fn direct(&self) -> &[usize] {
        &self.direct
    }

    /// Bytes at the start of the staging buffer that hold what is sent; what is received lies behind.
    pub fn packed_bytes(&self) -> usize {
        self.packed_bytes
    }

    /// Bytes of the staging buffer.
    pub fn staging_bytes(&self) -> usize {
        self.staging_bytes
    }
}

/// The messages that go straight to the target, in the order of their ranges.
fn direct(receives: &[Incoming], step: usize) -> Result<Vec<usize>, Error> {
    let mut ranges = Vec::new();
    for (index, incoming) in receives.iter().enumerate() {
        match &incoming.into {
            ReceiveInto::Target(range) => ranges.push((range.start, range.end, index)),
            ReceiveInto::Staging(..) => {}
        }
    }
    ranges.sort_unstable();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        let peer = |at: usize| receives[pair[at].2].peer;
        let message = format!("messages of ranks {} and {} land in the same place", peer(0), peer(1));
        return Err(Error::Phase { step, message });
    }
    Ok(ranges.into_iter().map(|(_, _, index)| index).collect())
}

/// The one range of bytes that the nests visit in ascending order, if there is one.
fn dense_range(nests: &[Nest], side: Side, item: usize) -> Result<Option<Range<usize>>, Error> {
    let mut whole: Option<Range<usize>> = None;
    for nest in nests {
        let len = nest.len()?;
        if len == 0 {
            continue;
        }
        let mut next = 1;
        for l in nest.loops.iter().rev().filter(|l| l.extent > 1) {
            let stride = match side {
                Side::Source => l.source_stride,
                Side::Target => l.target_stride,
            };
            if stride != next {
                return Ok(None);
            }
            next *= l.extent as i64;
        }
        let start = match side {
            Side::Source => nest.source_offset,
            Side::Target => nest.target_offset,
        };
        let start = start as usize * item;
        let range = start..start + len * item;
        whole = match whole {
            None => Some(range),
            Some(before) if before.end == range.start => Some(before.start..range.end),
            Some(_) => return Ok(None),
        };
    }
    Ok(whole)
}
