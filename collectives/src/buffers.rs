//! The buffers of one run: which ones its exchanges read and write, and which are lent.
//!
//! ```text
//! Buffers::exchange       one whole exchange between two of the buffers
//! Buffers::lend           lends two of the buffers and staging, for as long as the memory is borrowed
//! Buffers::put_back       takes back the written buffer and staging, which Communicator::wait returns
//! ```
//!
//! A buffer that was read is not put back, unless it is the source: [`Stage::opens`](crate::lower::Stage)
//! marks the stages whose source is never written again.

use crate::lower::Buffer;
use crate::{Communicator, Error, Exchange, ReturnedBuffers};

/// The buffers that a plan runs in. In place there is no source: the target takes its role.
#[derive(Debug)]
pub(crate) struct Buffers<'a, B: ?Sized> {
    source: Option<&'a B>,
    first: Option<&'a mut B>,
    second: Option<&'a mut B>,
    target: Option<&'a mut B>,
    staging: Option<&'a mut B>,
}

impl<'a, B: ?Sized> Buffers<'a, B> {
    /// Creates buffers from a source, a target, and scratch: two buffers between phases, and staging.
    pub(crate) fn new(source: &'a B, target: &'a mut B, scratch: [&'a mut B; 3]) -> Self {
        Buffers { source: Some(source), target: Some(target), ..Buffers::of_scratch(scratch) }
    }

    /// Creates buffers from one buffer, which is source and target, and scratch.
    pub(crate) fn in_place(buffer: &'a mut B, scratch: [&'a mut B; 3]) -> Self {
        Buffers { target: Some(buffer), ..Buffers::of_scratch(scratch) }
    }

    fn of_scratch([first, second, staging]: [&'a mut B; 3]) -> Self {
        Buffers {
            source: None,
            first: Some(first),
            second: Some(second),
            target: None,
            staging: Some(staging),
        }
    }

    /// Runs an exchange between two of the buffers.
    pub(crate) fn exchange<C: Communicator<Buffer = B> + ?Sized>(
        &mut self,
        comm: &mut C,
        (from, to): (Buffer, Buffer),
        exchange: &Exchange,
    ) -> Result<(), Error> {
        let Buffers { source, first, second, target, staging } = self;
        let (read, written): (Option<&B>, Option<&mut B>) = match (from, to) {
            (Buffer::Source, Buffer::First) => (*source, first.as_deref_mut()),
            (Buffer::Source, Buffer::Second) => (*source, second.as_deref_mut()),
            (Buffer::Source, Buffer::Target) => (*source, target.as_deref_mut()),
            (Buffer::First, Buffer::Second) => (first.as_deref(), second.as_deref_mut()),
            (Buffer::First, Buffer::Target) => (first.as_deref(), target.as_deref_mut()),
            (Buffer::Second, Buffer::First) => (second.as_deref(), first.as_deref_mut()),
            (Buffer::Second, Buffer::Target) => (second.as_deref(), target.as_deref_mut()),
            (Buffer::Target, Buffer::First) => (target.as_deref(), first.as_deref_mut()),
            (Buffer::Target, Buffer::Second | Buffer::Target)
            | (Buffer::First, Buffer::First)
            | (Buffer::Second, Buffer::Second)
            | (Buffer::Source | Buffer::First | Buffer::Second | Buffer::Target, Buffer::Source) => {
                (None, None)
            }
        };
        match (read, written, staging.as_deref_mut()) {
            (Some(read), Some(written), Some(staging)) => comm.exchange(exchange, read, written, staging),
            (None, _, _) | (_, None, _) | (_, _, None) => Err(no_way((from, to), exchange)),
        }
    }

    /// Takes out the buffers that an exchange borrows: the one it reads, the one it writes, and staging.
    pub(crate) fn lend(
        &mut self,
        (from, to): (Buffer, Buffer),
        exchange: &Exchange,
    ) -> Result<(&'a B, &'a mut B, &'a mut B), Error> {
        let read = match from {
            Buffer::Source => self.source,
            Buffer::First => self.first.take().map(|first| &*first),
            Buffer::Second => self.second.take().map(|second| &*second),
            Buffer::Target => None,
        };
        let written = match to {
            Buffer::First => self.first.take(),
            Buffer::Second => self.second.take(),
            Buffer::Target => self.target.take(),
            Buffer::Source => None,
        };
        match (read, written, self.staging.take()) {
            (Some(read), Some(written), Some(staging)) => Ok((read, written, staging)),
            (None, _, _) | (_, None, _) | (_, _, None) => Err(no_way((from, to), exchange)),
        }
    }

    /// Puts back the buffer that an exchange has written, and staging.
    pub(crate) fn put_back(
        &mut self,
        to: Buffer,
        ReturnedBuffers { target, staging }: ReturnedBuffers<'a, B>,
    ) {
        self.staging = Some(staging);
        match to {
            Buffer::First => self.first = Some(target),
            Buffer::Second => self.second = Some(target),
            Buffer::Target => self.target = Some(target),
            // No exchange writes the source.
            Buffer::Source => {}
        }
    }
}

fn no_way((from, to): (Buffer, Buffer), exchange: &Exchange) -> Error {
    let message = format!("an exchange from buffer {from:?} to buffer {to:?} is not possible");
    Error::Phase { step: exchange.step(), message }
}
