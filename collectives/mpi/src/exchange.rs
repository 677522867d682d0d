//! One exchange over MPI.
//!
//! ```text
//! prepare the target
//! receive what goes to staging; pack; send                  from here on messages are under way
//! move what comes from this rank itself
//! receive what goes straight to the target                  from here on the target is MPI's, range by range
//! poll; unpack what has come to staging, if the target is still ours
//! all is back: unpack the rest, finish the target
//! ```
//!
//! A reduction combines terms in their order: a term that has come early waits in staging for those before it. Its
//! first term overwrites the target, and if it comes from another rank and is dense it is received there.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use reshard_collectives::messages::{Incoming, Messages, ReceiveInto, SendFrom};
use reshard_collectives::{Error, Exchange, Move, Place};

use crate::raw::{Handle, Requests, Scope, TAGS};

/// Looks without a pause so often.
const SPINS: u32 = 200;
/// And gives the processor away for so long, before it sleeps between two looks.
const RESTLESS: Duration = Duration::from_millis(50);
const NAP: Duration = Duration::from_micros(100);

/// Waits for others, up to a time-out since something last happened.
pub(crate) struct Patience {
    time_out: Duration,
    idle: u32,
    since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(time_out: Duration) -> Patience {
        Patience { time_out, idle: 0, since: None }
    }

    /// After a look that saw `progress`; `late` says what to return when it is too late.
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

/// The tag of an exchange's messages: the same on all ranks that carry out the same phase of the same plan.
fn tag_of(exchange: &Exchange) -> c_int {
    let tag = exchange.tag();
    ((tag ^ tag >> 17 ^ tag >> 34 ^ tag >> 51) % (TAGS / 2)) as c_int
}

/// Where an exchange happens, for errors.
pub(crate) fn place_of(exchange: &Exchange) -> Place {
    Place { step: exchange.step(), group: exchange.members().to_vec() }
}

/// Carries out an exchange in the communicator of its group, of which the ranks are the places in `members()`.
pub(crate) fn carry_out(
    exchange: &Exchange,
    group: &Handle,
    requests: &mut Requests,
    time_out: Duration,
    source: &[u8],
    target: &mut [u8],
    staging: &mut [u8],
) -> Result<(), Error> {
    let messages = exchange.messages()?;
    exchange.prepare(target)?;
    let (packed, received) = staging.split_at_mut(messages.packed_bytes());
    let sent = pack(messages, source, packed)?;
    let run = Run { exchange, messages, tag: tag_of(exchange), time_out };
    requests.scope(group, |scope| {
        run.post_staged(scope, received)?;
        run.post_sends(scope, source, sent)?;
        if exchange.is_reduction() {
            run.reduce(scope, source, &mut *target)
        } else {
            run.own(source, target)?;
            if messages.direct().is_empty() {
                run.unpack_as_they_come(scope, target)
            } else {
                run.post_direct(scope, target)?;
                run.until(scope, |scope| Ok(!scope.is_open()))
            }
        }
    })?;
    if !exchange.is_reduction() && !messages.direct().is_empty() {
        let received = &staging[messages.packed_bytes()..];
        for incoming in messages.receives() {
            run.unpack_from(incoming, received, target)?;
        }
    }
    exchange.finish(target)
}

/// Fills the first part of staging with what is not dense in the source.
fn pack<'a>(messages: &Messages, source: &[u8], packed: &'a mut [u8]) -> Result<&'a [u8], Error> {
    for outgoing in messages.sends() {
        match &outgoing.from {
            SendFrom::Source(_) => {}
            SendFrom::Staging(range, copies) => {
                for copy in copies {
                    copy.run(&mut packed[range.clone()], source)?;
                }
            }
        }
    }
    Ok(packed)
}

/// An exchange that is being carried out.
struct Run<'x> {
    exchange: &'x Exchange,
    messages: &'x Messages,
    tag: c_int,
    time_out: Duration,
}

impl Run<'_> {
    fn place(&self, peer: usize) -> Result<usize, Error> {
        self.exchange.members().binary_search(&peer).map_err(|_| Error::NotInPlan { rank: peer })
    }

    fn post_staged<'env>(&self, scope: &mut Scope<'_, 'env>, mut left: &'env mut [u8]) -> Result<(), Error> {
        let mut start = self.messages.packed_bytes();
        for (key, incoming) in self.messages.receives().iter().enumerate() {
            match &incoming.into {
                ReceiveInto::Target(_) => {}
                ReceiveInto::Staging(range, _) => {
                    let (_, rest) = left.split_at_mut(range.start - start);
                    let (bytes, rest) = rest.split_at_mut(range.len());
                    (left, start) = (rest, range.end);
                    scope.receive(self.place(incoming.peer)?, self.tag, bytes, key)?;
                }
            }
        }
        Ok(())
    }

    fn post_direct<'env>(&self, scope: &mut Scope<'_, 'env>, mut left: &'env mut [u8]) -> Result<(), Error> {
        let mut start = 0;
        for &key in self.messages.direct() {
            let incoming = &self.messages.receives()[key];
            match &incoming.into {
                ReceiveInto::Staging(..) => {}
                ReceiveInto::Target(range) => {
                    let (_, rest) = left.split_at_mut(range.start - start);
                    let (bytes, rest) = rest.split_at_mut(range.len());
                    (left, start) = (rest, range.end);
                    scope.receive(self.place(incoming.peer)?, self.tag, bytes, key)?;
                }
            }
        }
        Ok(())
    }

    fn post_sends<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        source: &'env [u8],
        packed: &'env [u8],
    ) -> Result<(), Error> {
        for outgoing in self.messages.sends() {
            let bytes = match &outgoing.from {
                SendFrom::Source(range) => &source[range.clone()],
                SendFrom::Staging(range, _) => &packed[range.clone()],
            };
            scope.send(self.place(outgoing.peer)?, self.tag, bytes)?;
        }
        Ok(())
    }

    /// Moves what this rank gives itself.
    fn own(&self, source: &[u8], target: &mut [u8]) -> Result<(), Error> {
        let rank = self.exchange.rank();
        for receive in self.exchange.receives().iter().filter(|receive| receive.peer() == rank) {
            run_all(receive.moves(), target, source)?;
        }
        Ok(())
    }

    fn unpack_as_they_come<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        target: &mut [u8],
    ) -> Result<(), Error> {
        self.until(scope, |scope| {
            while let Some((key, bytes)) = scope.take_any() {
                unpack(&self.messages.receives()[key], target, bytes)?;
            }
            Ok(!scope.is_open())
        })
    }

    /// Unpacks one message from the second part of staging, when all is back.
    fn unpack_from(&self, incoming: &Incoming, received: &[u8], target: &mut [u8]) -> Result<(), Error> {
        match &incoming.into {
            ReceiveInto::Target(_) => Ok(()),
            ReceiveInto::Staging(range, moves) => {
                let start = self.messages.packed_bytes();
                run_all(moves, target, &received[range.start - start..range.end - start])
            }
        }
    }

    /// Combines all terms in their order.
    fn reduce<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        source: &[u8],
        target: &'env mut [u8],
    ) -> Result<(), Error> {
        let rank = self.exchange.rank();
        let mut target = Some(target);
        // Only the first term overwrites the target, so only that one can be received there: all of it.
        if let Some(key) = self.messages.direct().first().copied()
            && let Some(target) = target.take()
        {
            let incoming = &self.messages.receives()[key];
            let len = self.exchange.target_bytes();
            scope.receive(self.place(incoming.peer)?, self.tag, &mut target[..len], key)?;
        }
        let mut terms = self.exchange.receives().iter().peekable();
        let mut key = 0;
        self.until(scope, |scope| {
            while let Some(term) = terms.peek() {
                if term.peer() == rank {
                    let Some(target) = &mut target else { break };
                    run_all(term.moves(), target, source)?;
                } else {
                    let Some(bytes) = scope.take(key) else { break };
                    match &self.messages.receives()[key].into {
                        ReceiveInto::Target(_) => target = Some(bytes),
                        ReceiveInto::Staging(_, moves) => {
                            let Some(target) = &mut target else { break };
                            run_all(moves, target, bytes)?;
                        }
                    }
                    key += 1;
                }
                terms.next();
            }
            Ok(!scope.is_open() && terms.peek().is_none())
        })
    }

    /// Polls until it is done.
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

    /// Who is late, or does something else.
    fn late(&self, scope: &Scope<'_, '_>) -> Error {
        let place = place_of(self.exchange);
        match scope.waits_for() {
            Some((at, true)) => Error::Mismatch { rank: self.exchange.members()[at], place },
            Some((at, false)) => {
                Error::TimedOut { rank: self.exchange.members()[at], place, after: self.time_out }
            }
            None => {
                let message = format!("nothing is under way in {place}, and it is not complete");
                Error::Engine { rank: self.exchange.rank(), message }
            }
        }
    }
}

fn unpack(incoming: &Incoming, target: &mut [u8], bytes: &[u8]) -> Result<(), Error> {
    match &incoming.into {
        ReceiveInto::Target(_) => Ok(()),
        ReceiveInto::Staging(_, moves) => run_all(moves, target, bytes),
    }
}

fn run_all(moves: &[Move], target: &mut [u8], source: &[u8]) -> Result<(), Error> {
    for one in moves {
        one.run(target, source)?;
    }
    Ok(())
}
