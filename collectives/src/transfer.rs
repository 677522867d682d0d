//! The messages of an exchange: one receive or one send between a rank and a peer.
//!
//! Both are lists of [`TypedNest`]s: loop nests of elements of one dtype. The nests of a [`ReceiveMessage`] and of the
//! peer's [`SendMessage`] have the same order and the same sizes, so a message is the concatenation of the nests:
//!
//! ```text
//! peer's source --SendMessage::pack--> message --ReceiveMessage::unpack--> my target      with messages
//! peer's source -------------ReceiveMessage::moves-----------------------> my target      with shared memory
//! ```

use std::ops::Range;
use std::sync::OnceLock;

use reshard_kernels::{CopySide, DType, LoopNest, PreparedCombine, PreparedCopy};

use crate::Error;

/// Elements of one dtype that are transferred in one loop nest, counted in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedNest {
    /// The offsets of the elements on both sides, in the order of the message.
    pub nest: LoopNest,
    /// The type of the elements.
    pub dtype: DType,
}

/// The operation that transfers one nest from a peer's source into this rank's target.
#[derive(Clone, Debug)]
pub enum ReceiveOp {
    /// The elements overwrite the target's.
    Copy(PreparedCopy),
    /// The elements are combined into the target's.
    Combine(PreparedCombine),
}

/// The operation for each part of a packed message; computed at the first use.
type Packed<T> = Result<Vec<(T, Range<usize>)>, Error>;

/// The data that this rank's target receives from one peer, which may be this rank itself.
#[derive(Clone, Debug)]
pub struct ReceiveMessage {
    peer: usize,
    bytes: usize,
    pieces: Vec<TypedNest>,
    moves: Vec<ReceiveOp>,
    unpack: OnceLock<Packed<ReceiveOp>>,
}

/// The data that one peer takes from this rank's source.
#[derive(Clone, Debug)]
pub struct SendMessage {
    peer: usize,
    bytes: usize,
    pieces: Vec<TypedNest>,
    pack: OnceLock<Packed<PreparedCopy>>,
}

impl TypedNest {
    pub(crate) fn item_bytes(&self) -> Result<usize, Error> {
        Ok(self.dtype.element_bytes()?)
    }

    /// Returns the number of bytes of all elements.
    #[doc(hidden)]
    pub fn bytes(&self) -> Result<usize, Error> {
        let bytes = self.nest.len()?.checked_mul(self.item_bytes()?);
        Ok(bytes.ok_or(reshard_kernels::Error::Overflow { what: "the size of a message" })?)
    }

    /// Returns the nest with one side dense from element 0: the order of a message that has only this nest.
    #[doc(hidden)]
    pub fn dense(&self, side: CopySide) -> LoopNest {
        let mut nest = self.nest.clone();
        let mut stride = 1;
        for mode in nest.modes.iter_mut() {
            match side {
                CopySide::Source => mode.stride.0 = stride,
                CopySide::Target => mode.stride.1 = stride,
            }
            // Overflow is reported where the nest is used.
            stride = stride.saturating_mul(mode.extent);
        }
        match side {
            CopySide::Source => nest.source_offset = 0,
            CopySide::Target => nest.target_offset = 0,
        }
        nest
    }

    /// Returns the byte range of the elements on one side, if they are contiguous there in message order.
    #[doc(hidden)]
    pub fn contiguous(&self, side: CopySide) -> Option<Range<usize>> {
        let mut dense = 1;
        for mode in self.nest.modes.iter().filter(|mode| mode.extent != 1) {
            if side.of(mode.stride) != dense {
                return None;
            }
            dense = dense.checked_mul(mode.extent)?;
        }
        let offset = side.of((self.nest.source_offset, self.nest.target_offset));
        let item = self.item_bytes().ok()?;
        let start = usize::try_from(offset).ok()?.checked_mul(item)?;
        Some(start..start.checked_add(self.bytes().ok()?)?)
    }
}

/// Returns the byte range of several nests on one side, if each begins where the previous one ends.
fn contiguous(pieces: &[TypedNest], side: CopySide) -> Option<Range<usize>> {
    let mut pieces = pieces.iter();
    let mut all = pieces.next()?.contiguous(side)?;
    for piece in pieces {
        let next = piece.contiguous(side)?;
        if next.start != all.end {
            return None;
        }
        all.end = next.end;
    }
    Some(all)
}

impl ReceiveOp {
    /// Runs the operation, and returns the number of bytes that it read.
    #[doc(hidden)]
    pub fn run(&self, target: &mut [u8], source: &[u8]) -> Result<usize, Error> {
        Ok(match self {
            ReceiveOp::Copy(copy) => copy.run(target, source)?,
            ReceiveOp::Combine(combine) => combine.run(target, source)?,
        })
    }
}

impl ReceiveMessage {
    pub(crate) fn new(peer: usize) -> ReceiveMessage {
        ReceiveMessage { peer, bytes: 0, pieces: Vec::new(), moves: Vec::new(), unpack: OnceLock::new() }
    }

    pub(crate) fn push(&mut self, piece: TypedNest, one: ReceiveOp) -> Result<(), Error> {
        self.bytes += piece.bytes()?;
        self.pieces.push(piece);
        self.moves.push(one);
        Ok(())
    }

    /// Returns the rank from whose source the data is read.
    pub fn peer(&self) -> usize {
        self.peer
    }

    /// Returns the number of bytes received.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of bytes that the peer's source must have.
    #[doc(hidden)]
    pub fn source_bytes(&self) -> Result<usize, Error> {
        let overflow = || reshard_kernels::Error::Overflow { what: "the size of a source" };
        self.pieces.iter().try_fold(0, |most, piece| {
            let Some((_, last)) = piece.nest.extremes(CopySide::Source)? else { return Ok(most) };
            let items = usize::try_from(last).ok().and_then(|last| last.checked_add(1));
            let end = items.and_then(|items| items.checked_mul(piece.item_bytes().ok()?));
            Ok(most.max(end.ok_or_else(overflow)?))
        })
    }

    /// Returns the nests: from the peer's source into this rank's target.
    pub fn pieces(&self) -> &[TypedNest] {
        &self.pieces
    }

    /// Returns one operation per nest, for engines that can read the peer's source.
    pub fn ops(&self) -> &[ReceiveOp] {
        &self.moves
    }

    /// Runs all operations, and returns the number of bytes that they read.
    ///
    /// Requires the peer's source. Neither plans nor allocates.
    pub fn take(&self, target: &mut [u8], source: &[u8]) -> Result<usize, Error> {
        self.moves.iter().try_fold(0, |bytes, one| Ok(bytes + one.run(target, source)?))
    }

    /// Returns the target bytes that equal a message of this receive, if nothing is combined or scattered.
    ///
    /// An engine can receive directly into this range.
    pub fn contiguous(&self) -> Option<Range<usize>> {
        let copies = |one: &ReceiveOp| match one {
            ReceiveOp::Copy(_) => true,
            ReceiveOp::Combine(_) => false,
        };
        if self.moves.iter().all(copies) { contiguous(&self.pieces, CopySide::Target) } else { None }
    }

    /// Unpacks a message that the peer packed with [`SendMessage::pack`] into the target.
    ///
    /// Requires a message of [`bytes`](ReceiveMessage::bytes) bytes. Allocates in the first call only.
    pub fn unpack(&self, target: &mut [u8], message: &[u8]) -> Result<(), Error> {
        let moves = self.unpack.get_or_init(|| {
            let mut at = 0;
            let one = |(piece, old): (&TypedNest, &ReceiveOp)| {
                let dense = piece.dense(CopySide::Source);
                let start = at;
                at += piece.bytes()?;
                let one = match old {
                    ReceiveOp::Copy(_) => ReceiveOp::Copy(PreparedCopy::new(&dense, piece.item_bytes()?)?),
                    ReceiveOp::Combine(combine) => {
                        ReceiveOp::Combine(PreparedCombine::new(&dense, piece.dtype, combine.op())?)
                    }
                };
                Ok((one, start..at))
            };
            self.pieces.iter().zip(&self.moves).map(one).collect()
        });
        for (one, range) in moves.as_ref().map_err(Clone::clone)? {
            one.run(target, part(message, range, self.peer, self.bytes)?)?;
        }
        Ok(())
    }
}

impl SendMessage {
    pub(crate) fn new(peer: usize) -> SendMessage {
        SendMessage { peer, bytes: 0, pieces: Vec::new(), pack: OnceLock::new() }
    }

    pub(crate) fn push(&mut self, piece: TypedNest) -> Result<(), Error> {
        self.bytes += piece.bytes()?;
        self.pieces.push(piece);
        Ok(())
    }

    /// Returns the rank that takes this data.
    pub fn peer(&self) -> usize {
        self.peer
    }

    /// Returns the number of bytes sent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the nests; only their source sides are valid here.
    ///
    /// The peer's target may have any memory layout.
    pub fn pieces(&self) -> &[TypedNest] {
        &self.pieces
    }

    /// Returns the source bytes that equal a message of this send, if they are contiguous.
    ///
    /// An engine can send directly from this range.
    pub fn contiguous(&self) -> Option<Range<usize>> {
        contiguous(&self.pieces, CopySide::Source)
    }

    /// Packs the message.
    ///
    /// Requires a message of [`bytes`](SendMessage::bytes) bytes. Allocates in the first call only.
    pub fn pack(&self, message: &mut [u8], source: &[u8]) -> Result<(), Error> {
        let copies = self.pack.get_or_init(|| {
            let mut at = 0;
            let one = |piece: &TypedNest| {
                let start = at;
                at += piece.bytes()?;
                Ok((PreparedCopy::new(&piece.dense(CopySide::Target), piece.item_bytes()?)?, start..at))
            };
            self.pieces.iter().map(one).collect()
        });
        let given = message.len();
        for (copy, range) in copies.as_ref().map_err(Clone::clone)? {
            let Some(part) = message.get_mut(range.clone()) else {
                return Err(short(self.peer, self.bytes, given));
            };
            copy.run(part, source)?;
        }
        Ok(())
    }
}

fn part<'a>(message: &'a [u8], range: &Range<usize>, peer: usize, needed: usize) -> Result<&'a [u8], Error> {
    message.get(range.clone()).ok_or_else(|| short(peer, needed, message.len()))
}

fn short(rank: usize, needed: usize, given: usize) -> Error {
    Error::Buffer { rank, which: "message", needed, given }
}
