//! The memory of one run: what its exchanges read and write, and what of it is lent.
//!
//! ```text
//! Buffers::exchange       one exchange from its beginning to its end, between two of them
//! Buffers::lend           two of them and staging go out, for as long as the memory is borrowed
//! Buffers::put_back       what was written, and staging, come back with Communicator::wait
//! ```
//!
//! What was read does not come back, unless it is the source: [`Stage::opens`](crate::lower::Stage) says where nobody writes it again.

use crate::lower::Buffer;
use crate::{Communicator, Error, Exchange, ReturnedBuffers};

/// The buffers that a plan runs in. In place there is no source: the target is it.
#[derive(Debug)]
pub(crate) struct Buffers<'a, B: ?Sized> {
    source: Option<&'a B>,
    first: Option<&'a mut B>,
    second: Option<&'a mut B>,
    target: Option<&'a mut B>,
    staging: Option<&'a mut B>,
}

impl<'a, B: ?Sized> Buffers<'a, B> {
    /// A source, a target, and scratch: what lies between phases, and staging.
    pub(crate) fn new(source: &'a B, target: &'a mut B, scratch: [&'a mut B; 3]) -> Self {
        Buffers { source: Some(source), target: Some(target), ..Buffers::of_scratch(scratch) }
    }

    /// One buffer, which is source and target, and scratch.
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

    /// Carries out an exchange between two of them.
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

    /// Takes out what an exchange between two of them is lent: what is read, what is written, and staging.
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

    /// Puts back what an exchange has written, and staging.
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
            // Nobody writes the source.
            Buffer::Source => {}
        }
    }
}

fn no_way((from, to): (Buffer, Buffer), exchange: &Exchange) -> Error {
    let message = format!("there is no way from {from:?} to {to:?}");
    Error::Phase { step: exchange.step(), message }
}
