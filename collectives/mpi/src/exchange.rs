//! One exchange over MPI.
//!
//! ```text
//! prepare the target
//! post receives into staging; pack; send                    from here on messages are in flight
//! copy the data of this rank itself
//! post receives into the target                             from here on MPI owns the target, range by range
//! poll; unpack staging, if MPI does not own the target
//! all messages have arrived: unpack the rest, finish the target
//! ```
//!
//! A reduction combines partial values in their order: one that has come early waits in staging for those
//! before it. The first partial value overwrites the target; if it comes from another rank and is dense, it
//! is received there.

use std::ffi::c_int;
use std::ops::Range;
use std::time::{Duration, Instant};

use reshard_collectives::{Error, Exchange, ReceiveMessage, SendMessage};

use crate::raw::{Handle, Requests, Scope, TAGS};

/// Alignment of messages in the staging buffer: a cache line, and any element's alignment.
const ALIGNMENT: usize = 64;
/// Polls without a pause.
const SPINS: u32 = 200;
/// Time of yielding the processor, before the thread sleeps between two polls.
const RESTLESS: Duration = Duration::from_millis(50);
const NAP: Duration = Duration::from_micros(100);

/// The state of a wait for other ranks, with a timeout since the last progress.
pub(crate) struct Patience {
    time_out: Duration,
    idle: u32,
    since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(time_out: Duration) -> Patience {
        Patience { time_out, idle: 0, since: None }
    }

    /// Updates the wait after a poll that saw `progress`; `late` creates the error of a timeout.
    pub(crate) fn after(&mut self, progress: usize, late: impl FnOnce() -> Error) -> Result<(), Error> {
        if progress > 0 {
            self.idle = 0;
            self.since = None;
            return Ok(());
        }
        self.idle += 1;
        if self.idle < SPINS {
            std::hint::spin_loop();
            return Ok(());
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited >= self.time_out {
            return Err(late());
        }
        if waited < RESTLESS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}

/// Returns the tag of an exchange's messages: the same on all ranks in one phase of one plan.
fn tag_of(exchange: &Exchange) -> c_int {
    let tag = exchange.tag();
    ((tag ^ tag >> 17 ^ tag >> 34 ^ tag >> 51) % (TAGS / 2)) as c_int
}

/// Returns the bytes of staging for a message, so that the next one is aligned.
fn room(bytes: usize) -> Result<usize, Error> {
    let overflow = reshard_kernels::Error::Overflow { what: "the size of a staging buffer" };
    Ok(bytes.checked_next_multiple_of(ALIGNMENT).ok_or(overflow)?)
}

/// Returns the sends, beginning with the ranks after this one.
///
/// Thus not all ranks send to the same rank first.
fn sends(exchange: &Exchange) -> impl Iterator<Item = &SendMessage> {
    let behind = exchange.sends().iter().filter(|send| send.peer() > exchange.rank());
    behind.chain(exchange.sends().iter().filter(|send| send.peer() < exchange.rank()))
}

/// Returns the receives from other ranks, with their indices.
fn receives(exchange: &Exchange) -> impl Iterator<Item = (usize, &ReceiveMessage)> {
    exchange.receives().iter().enumerate().filter(|(_, receive)| receive.peer() != exchange.rank())
}

/// Returns the target range into which a message is received, if it is not received in staging.
fn direct(exchange: &Exchange, index: usize, receive: &ReceiveMessage) -> Option<Range<usize>> {
    let range = receive.contiguous()?;
    // The first partial value of a reduction fills the whole target, or it is combined like the others.
    let fits = !exchange.is_reduction() || index == 0 && range == (0..exchange.target_bytes());
    fits.then_some(range)
}

/// Returns the bytes of staging for packed messages; those to be unpacked follow them.
fn packed_bytes(exchange: &Exchange) -> Result<usize, Error> {
    let packed = exchange.sends().iter().filter(|send| send.contiguous().is_none());
    packed.map(|send| room(send.bytes())).sum()
}

/// Returns the bytes of staging for an exchange.
pub(crate) fn staging_bytes(exchange: &Exchange) -> Result<usize, Error> {
    let staged = receives(exchange).filter(|(index, receive)| direct(exchange, *index, receive).is_none());
    let received: Result<usize, Error> = staged.map(|(_, receive)| room(receive.bytes())).sum();
    let overflow = reshard_kernels::Error::Overflow { what: "the size of a staging buffer" };
    Ok(packed_bytes(exchange)?.checked_add(received?).ok_or(overflow)?)
}

/// A buffer reused between exchanges: (start, index) of the messages received in the target.
pub(crate) type Starts = Vec<(usize, usize)>;

/// Runs an exchange in the communicator of its group, whose ranks are the group ranks in `members()`.
///
/// Requires buffers that have been checked.
pub(crate) fn carry_out(
    exchange: &Exchange,
    group: &Handle,
    (requests, starts): (&mut Requests, &mut Starts),
    time_out: Duration,
    source: &[u8],
    target: &mut [u8],
    staging: &mut [u8],
) -> Result<(), Error> {
    exchange.init_target(target)?;
    let run = Run { exchange, tag: tag_of(exchange), time_out };
    starts.clear();
    for (index, receive) in receives(exchange) {
        starts.extend(direct(exchange, index, receive).map(|range| (range.start, index)));
    }
    starts.sort_unstable();
    let packed_bytes = packed_bytes(exchange)?;
    requests.scope(group, |scope| {
        let (packed, received) = staging.split_at_mut(packed_bytes);
        run.receive_in_staging(scope, received)?;
        run.send(scope, source, packed)?;
        if exchange.is_reduction() {
            return run.reduce(scope, source, &mut *target, !starts.is_empty());
        }
        for mine in exchange.receives().iter().filter(|receive| receive.peer() == exchange.rank()) {
            mine.take(target, source)?;
        }
        if starts.is_empty() {
            run.unpack_as_they_come(scope, target)
        } else {
            run.receive_in_target(scope, target, starts)?;
            run.until(scope, |scope| Ok(!scope.is_open()))
        }
    })?;
    if !exchange.is_reduction() && !starts.is_empty() {
        let mut at = packed_bytes;
        for (index, receive) in receives(exchange) {
            if direct(exchange, index, receive).is_none() {
                receive.unpack(target, &staging[at..at + receive.bytes()])?;
                at += room(receive.bytes())?;
            }
        }
    }
    exchange.finalize_target(target)
}

/// A running exchange.
struct Run<'x> {
    exchange: &'x Exchange,
    tag: c_int,
    time_out: Duration,
}

impl Run<'_> {
    fn place(&self, peer: usize) -> Result<usize, Error> {
        self.exchange.group_rank(peer).ok_or(Error::NotInPlan { rank: peer })
    }

    fn receive_in_staging<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        mut left: &'env mut [u8],
    ) -> Result<(), Error> {
        for (index, receive) in receives(self.exchange) {
            if direct(self.exchange, index, receive).is_none() {
                let (bytes, rest) = left.split_at_mut(room(receive.bytes())?);
                left = rest;
                let bytes = &mut bytes[..receive.bytes()];
                scope.receive(self.place(receive.peer())?, self.tag, bytes, index)?;
            }
        }
        Ok(())
    }

    fn receive_in_target<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        mut left: &'env mut [u8],
        starts: &Starts,
    ) -> Result<(), Error> {
        let mut at = 0;
        for &(start, index) in starts {
            let receive = &self.exchange.receives()[index];
            if start < at {
                let message =
                    format!("the data from rank {} overlaps other data in the target", receive.peer());
                return Err(Error::Phase { step: self.exchange.step(), message });
            }
            let (_, rest) = left.split_at_mut(start - at);
            let (bytes, rest) = rest.split_at_mut(receive.bytes());
            (left, at) = (rest, start + receive.bytes());
            scope.receive(self.place(receive.peer())?, self.tag, bytes, index)?;
        }
        Ok(())
    }

    /// Packs messages that are not contiguous in the source, one at a time, and sends each at once.
    fn send<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        source: &'env [u8],
        mut left: &'env mut [u8],
    ) -> Result<(), Error> {
        for send in sends(self.exchange) {
            let bytes = if let Some(range) = send.contiguous() {
                &source[range]
            } else {
                let (bytes, rest) = left.split_at_mut(room(send.bytes())?);
                left = rest;
                let bytes = &mut bytes[..send.bytes()];
                send.pack(bytes, source)?;
                &*bytes
            };
            scope.send(self.place(send.peer())?, self.tag, bytes)?;
        }
        Ok(())
    }

    fn unpack_as_they_come(&self, scope: &mut Scope<'_, '_>, target: &mut [u8]) -> Result<(), Error> {
        self.until(scope, |scope| {
            while let Some((index, bytes)) = scope.take_any() {
                self.exchange.receives()[index].unpack(target, bytes)?;
            }
            Ok(!scope.is_open())
        })
    }

    /// Combines all partial values in their order.
    fn reduce<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        source: &[u8],
        target: &'env mut [u8],
        first_in_target: bool,
    ) -> Result<(), Error> {
        let mut target = &mut target[..self.exchange.target_bytes()];
        let mut terms = self.exchange.receives().iter().enumerate();
        if first_in_target && let Some((index, first)) = terms.next() {
            // The target is MPI's until the first partial value has come.
            scope.receive(self.place(first.peer())?, self.tag, target, index)?;
            let mut back = None;
            self.until(scope, |scope| {
                back = scope.take(index);
                Ok(back.is_some())
            })?;
            target = back.unwrap_or_default();
        }
        let mut terms = terms.peekable();
        self.until(scope, |scope| {
            while let Some(&(index, term)) = terms.peek() {
                if term.peer() == self.exchange.rank() {
                    term.take(target, source)?;
                } else {
                    let Some(bytes) = scope.take(index) else { break };
                    term.unpack(target, bytes)?;
                }
                terms.next();
            }
            Ok(!scope.is_open() && terms.peek().is_none())
        })
    }

    /// Polls until the condition holds.
    fn until<'s, 'env>(
        &self,
        scope: &mut Scope<'s, 'env>,
        mut is_done: impl FnMut(&mut Scope<'s, 'env>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut patience = Patience::new(self.time_out);
        while !is_done(scope)? {
            let progress = scope.poll()?;
            patience.after(progress, || self.late(scope))?;
        }
        Ok(())
    }

    /// Returns the error of a late rank, or of a rank in another exchange.
    fn late(&self, scope: &Scope<'_, '_>) -> Error {
        let place = self.exchange.place();
        let member = |at: usize| self.exchange.members().get(at).copied().unwrap_or(at);
        match scope.waits_for() {
            Some((at, true)) => Error::Mismatch { rank: member(at), place },
            Some((at, false)) => Error::TimedOut { rank: member(at), place, after: self.time_out },
            None => {
                let message = format!("no message is in flight in {place}, but it is not complete");
                Error::Engine { rank: self.exchange.rank(), message }
            }
        }
    }
}
