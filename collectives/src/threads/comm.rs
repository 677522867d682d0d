//! One rank's handle of the threads engine.
//!
//! An exchange of a group has these steps on every member:
//!
//! ```text
//! publish my source; arrive; do the part that needs no other rank; wait until all have arrived;
//! for each receive: copy from the peer's source directly into my target, count the bytes, notify the peer;
//! wait until all readers of my source have notified me; withdraw my source
//! ```
//!
//! This takes one copy per byte and two synchronizations per exchange. Small sources are copied to a mailbox
//! first, so that no rank waits for readers: two copies per byte, and one synchronization. A waiting rank
//! spins briefly, then yields, then parks; the last rank to arrive wakes the others. For large exchanges the
//! barrier is loosened: a rank reads from each peer as soon as that one has arrived, and an arriving rank
//! wakes its readers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::barrier::{Look, Meeting};
use super::world::Shared;
use crate::check::check_group;
use crate::fault::Fault;
use crate::trace::Recorder;
use crate::{Communicator, Error, Exchange, Location, ReceiveMessage, ReturnedBuffers, TrafficLog, zeros};

/// Checks of a condition before the thread yields its processor, if each rank has one.
const SPINS: u32 = 2000;
/// The same if there are more ranks than processors.
const CROWDED_SPINS: u32 = 20;
/// Yields before the thread parks.
const YIELDS: u32 = 10;
/// Maximum bytes of a source that is copied instead of published: waiting for its readers takes longer.
const LITTLE: usize = 4 << 10;
/// The same if there are more ranks than processors.
const CROWDED_LITTLE: usize = 32 << 10;
/// Minimum bytes of an exchange in which a rank reads from a peer before all peers have arrived.
const MUCH: usize = 256 << 10;
/// Maximum time between two checks of a parked thread.
const LONGEST_PARK: Duration = Duration::from_millis(20);

/// One rank of a [`World`](super::World), passed to the job that the world runs.
#[derive(Debug)]
pub struct ThreadCommunicator {
    pub(super) rank: usize,
    shared: Arc<Shared>,
    meetings: Vec<Arc<Meeting>>,
    generation: u64,
    pub(super) recorder: Recorder,
    pub(super) faults: Vec<Fault>,
}

/// An exchange that was posted to a [`ThreadCommunicator`]. Its source is not published before the wait.
#[derive(Debug)]
#[doc(hidden)]
pub struct Pending<'a> {
    exchange: &'a Exchange,
    source: &'a [u8],
    target: &'a mut [u8],
    staging: &'a mut [u8],
}

impl ThreadCommunicator {
    pub(super) fn new(rank: usize, shared: Arc<Shared>) -> ThreadCommunicator {
        let size = shared.size();
        let recorder = Recorder::new(rank, size);
        ThreadCommunicator { rank, shared, meetings: Vec::new(), generation: 0, recorder, faults: Vec::new() }
    }

    /// Begins a job: drops the state of runs before a failure.
    pub(super) fn begin(&mut self) {
        self.faults.clear();
        self.shared.copy_faults(self.rank, &mut self.faults);
        let generation = self.shared.generation();
        if generation != self.generation {
            self.generation = generation;
            self.meetings.clear();
            self.recorder.take();
        }
    }

    /// Returns the counts of this rank since the last call.
    pub fn take_trace(&mut self) -> TrafficLog {
        self.recorder.take()
    }

    /// Returns the rendezvous of a group, and this rank's seat in it.
    fn meeting(&mut self, members: &[usize]) -> Result<(Arc<Meeting>, usize), Error> {
        let known = self.meetings.iter().find(|meeting| *meeting.members == *members);
        let meeting = if let Some(meeting) = known {
            Arc::clone(meeting)
        } else {
            let meeting = self.shared.meeting(members);
            self.meetings.push(Arc::clone(&meeting));
            meeting
        };
        match meeting.members.binary_search(&self.rank) {
            Ok(place) => Ok((meeting, place)),
            Err(_) => Err(Error::NotInPlan { rank: self.rank }),
        }
    }

    fn wake(&self, meeting: &Meeting, place: usize) {
        for (other, &rank) in meeting.members.iter().enumerate() {
            if other != place {
                self.shared.wake(rank);
            }
        }
    }

    fn wait_for_all(&self, meeting: &Meeting, number: u64, step: Option<usize>) -> Result<(), Error> {
        let come = |seat: usize| meeting.seats[seat].arrivals.load(Ordering::Acquire) >= number;
        let missing =
            || (0..meeting.members.len()).find(|seat| !come(*seat)).map(|seat| meeting.members[seat]);
        self.wait_until(|| meeting.is_complete(number), missing, || place_of(meeting, step))
    }

    /// Compares the tag of an exchange with those of the other members; returns after all have compared.
    fn compare(&mut self, exchange: &Exchange) -> Result<(), Error> {
        let (meeting, place) = self.meeting(exchange.members())?;
        meeting.seats[place].agreed.store(exchange.tag(), Ordering::Relaxed);
        self.come_together(&meeting, place, Some(exchange.step()))?;
        let tags = meeting.seats.iter().map(|seat| seat.agreed.load(Ordering::Relaxed));
        let compared = exchange.check_tags(meeting.members.iter().copied().zip(tags));
        self.come_together(&meeting, place, Some(exchange.step()))?;
        compared
    }

    /// Arrives, and waits until all members of a group have arrived.
    fn come_together(&self, meeting: &Meeting, place: usize, step: Option<usize>) -> Result<(), Error> {
        let number = meeting.seats[place].arrivals.load(Ordering::Relaxed) + 1;
        if meeting.arrive(place, number) {
            self.wake(meeting, place);
        }
        self.wait_for_all(meeting, number, step)
    }

    /// Waits for a condition; `missing` returns a rank that has not done its part, `place` the location.
    fn wait_until(
        &self,
        is_met: impl Fn() -> bool,
        missing: impl Fn() -> Option<usize>,
        place: impl Fn() -> Location,
    ) -> Result<(), Error> {
        let spins = if self.shared.is_crowded() { CROWDED_SPINS } else { SPINS };
        for _ in 0..spins {
            if is_met() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if is_met() {
                return Ok(());
            }
            std::thread::yield_now();
        }
        let begin = Instant::now();
        let time_out = self.shared.time_out();
        loop {
            if is_met() {
                return Ok(());
            }
            if let Some((rank, reason)) = self.shared.failure() {
                return Err(Error::RankFailed { rank, reason, place: Some(place()) });
            }
            if let Some(rank) = missing()
                && self.shared.has_left(rank)
                && !is_met()
            {
                let reason = "it left before it arrived".to_string();
                return Err(Error::RankFailed { rank, reason, place: Some(place()) });
            }
            let waited = begin.elapsed();
            if waited >= time_out {
                // Either complete by now, or a rank is missing.
                let Some(rank) = missing() else { continue };
                return Err(Error::TimedOut { rank, place: place(), after: time_out });
            }
            std::thread::park_timeout(LONGEST_PARK.min(time_out.saturating_sub(waited)));
        }
    }

    /// Runs the exchange; `source` is published while the other ranks need it.
    fn carry_out(&mut self, exchange: &Exchange, source: &[u8], target: &mut [u8]) -> Result<(), Error> {
        self.recorder.reserve(exchange.step());
        self.before(exchange)?;
        if exchange.is_local() {
            exchange.run_local(source, target)?;
            self.after(exchange);
            return Ok(());
        }
        let (meeting, place) = self.meeting(exchange.members())?;
        let seat = &meeting.seats[place];
        let number = seat.arrivals.load(Ordering::Relaxed) + 1;
        if exchange.source_bytes() <= if self.shared.is_crowded() { CROWDED_LITTLE } else { LITTLE } {
            seat.post(&source[..exchange.source_bytes()], number, exchange.tag());
            self.inside(exchange);
            self.arrive(&meeting, place, number, exchange);
            self.land(&meeting, number, exchange, source, target)?;
            // For ranks that wait for their readers.
            seat.departures.store(number, Ordering::Release);
        } else {
            let wanted = seat.reads.load(Ordering::Acquire) + exchange.sends().len() as u64;
            seat.while_showing(source, number, exchange.tag(), wanted, || {
                self.arrive(&meeting, place, number, exchange);
                self.inside(exchange);
                self.land(&meeting, number, exchange, source, target)?;
                seat.departures.store(number, Ordering::Release);
                let reader_is_missing = |peer: usize| {
                    let at = meeting.members.binary_search(&peer);
                    at.is_ok_and(|at| meeting.seats[at].departures.load(Ordering::Acquire) < number)
                };
                self.wait_until(
                    || seat.reads.load(Ordering::Acquire) >= wanted,
                    || {
                        exchange
                            .sends()
                            .iter()
                            .map(crate::SendMessage::peer)
                            .find(|peer| reader_is_missing(*peer))
                    },
                    || exchange.place(),
                )
            })?;
        }
        for send in exchange.sends() {
            self.recorder.sent(exchange.step(), send.peer(), send.bytes() as u64);
        }
        self.after(exchange);
        Ok(())
    }

    /// Arrives at the exchange, and wakes the ranks that wait for this one.
    fn arrive(&self, meeting: &Meeting, place: usize, number: u64, exchange: &Exchange) {
        if meeting.arrive(place, number) {
            self.wake(meeting, place);
        } else if is_much(exchange.sent_bytes()) {
            exchange.sends().iter().for_each(|send| self.shared.wake(send.peer()));
        }
    }

    /// Fills the target of an exchange at which this rank has arrived, and waits until all have.
    fn land(
        &mut self,
        meeting: &Meeting,
        number: u64,
        exchange: &Exchange,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        exchange.init_target(target)?;
        // This rank's own data comes first, unless it is a partial value with a fixed position in the order.
        let (mine, theirs) = match exchange.receives() {
            [first, rest @ ..] if first.peer() == self.rank => (Some(first), rest),
            all => (None, all),
        };
        if let Some(receive) = mine {
            receive.take(target, source)?;
        }
        if exchange.is_reduction() || theirs.len() > 64 || !is_much(exchange.received_bytes()) {
            self.wait_for_all(meeting, number, Some(exchange.step()))?;
            for receive in theirs {
                if receive.peer() == self.rank {
                    receive.take(target, source)?;
                } else {
                    self.take(meeting, number, exchange, receive, target)?;
                }
            }
        } else {
            self.take_as_they_come(meeting, number, exchange, theirs, target)?;
            // No rank succeeds unless all have arrived, including ranks from which it reads nothing.
            self.wait_for_all(meeting, number, Some(exchange.step()))?;
        }
        // A late rank may find all others arrived although they have given it up in the meantime.
        if let Some((rank, reason)) = self.shared.failure() {
            return Err(Error::RankFailed { rank, reason, place: Some(exchange.place()) });
        }
        exchange.finalize_target(target)
    }

    /// Reads from up to 64 peers, from each as soon as it has arrived.
    fn take_as_they_come(
        &mut self,
        meeting: &Meeting,
        number: u64,
        exchange: &Exchange,
        receives: &[ReceiveMessage],
        target: &mut [u8],
    ) -> Result<(), Error> {
        let has_come = |peer: usize| {
            let at = meeting.members.binary_search(&peer);
            at.is_ok_and(|at| meeting.seats[at].arrivals.load(Ordering::Acquire) >= number)
        };
        // One bit for each receive that is still open.
        let mut left: u64 = receives.iter().enumerate().fold(0, |bits, (i, _)| bits | 1 << i);
        while left != 0 {
            let open = || receives.iter().enumerate().filter(|(i, _)| left >> i & 1 == 1);
            let next = open().find(|(_, receive)| has_come(receive.peer()));
            if let Some((i, receive)) = next {
                self.take(meeting, number, exchange, receive, target)?;
                left &= !(1 << i);
            } else {
                self.wait_until(
                    || open().any(|(_, receive)| has_come(receive.peer())),
                    || open().map(|(_, receive)| receive.peer()).find(|peer| !has_come(*peer)),
                    || exchange.place(),
                )?;
            }
        }
        Ok(())
    }

    /// Copies a peer's published source into the target, counts it, and notifies the peer.
    fn take(
        &mut self,
        meeting: &Meeting,
        number: u64,
        exchange: &Exchange,
        receive: &ReceiveMessage,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let peer = receive.peer();
        let Ok(at) = meeting.members.binary_search(&peer) else {
            return Err(Error::NotInPlan { rank: peer });
        };
        let seat = &meeting.seats[at];
        match seat.look(number, exchange.tag(), |source| receive.take(target, source)) {
            Look::Found { result, wanted } => {
                self.recorder.received(exchange.step(), peer, result? as u64);
                if let Some(wanted) = wanted
                    && seat.reads.fetch_add(1, Ordering::AcqRel) + 1 == wanted
                {
                    self.shared.wake(peer);
                }
                Ok(())
            }
            Look::Other => Err(Error::Mismatch { rank: peer, place: exchange.place() }),
            Look::Nothing => {
                let (rank, reason) = self
                    .shared
                    .failure()
                    .unwrap_or_else(|| (peer, "it left during the exchange".to_string()));
                Err(Error::RankFailed { rank, reason, place: Some(exchange.place()) })
            }
        }
    }
}

impl Communicator for ThreadCommunicator {
    type Buffer = [u8];
    type Owned = Vec<u8>;
    type Pending<'a> = Pending<'a>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size()
    }

    fn timeout(&self) -> Duration {
        self.shared.time_out()
    }

    fn allocate(&self, bytes: usize) -> Result<Vec<u8>, Error> {
        zeros(self.rank, bytes)
    }

    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error> {
        exchange.check_rank(self.rank, self.size())?;
        let result = self.compare(exchange);
        match result {
            // All members know, and no rank waits.
            Ok(()) | Err(Error::Mismatch { .. }) => result,
            Err(error) => {
                self.shared.fail(error.cause(self.rank));
                Err(error)
            }
        }
    }

    /// Needs one synchronization, while an agreement needs two.
    fn barrier(&mut self, members: &[usize]) -> Result<(), Error> {
        check_group(self.rank, self.size(), members)?;
        let (meeting, place) = self.meeting(members)?;
        let result = self.come_together(&meeting, place, None);
        result.inspect_err(|error| self.shared.fail(error.cause(self.rank)))
    }

    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a [u8],
        target: &'a mut [u8],
        staging: &'a mut [u8],
    ) -> Result<Pending<'a>, Error> {
        exchange.check_rank(self.rank, self.size())?;
        exchange.check_buffers(source.len(), target.len())?;
        Ok(Pending { exchange, source, target, staging })
    }

    fn wait<'a>(&mut self, pending: Self::Pending<'a>) -> Result<ReturnedBuffers<'a, [u8]>, Error> {
        let Pending { exchange, source, target, staging } = pending;
        let result = self.carry_out(exchange, source, target);
        result.inspect_err(|error| self.shared.fail(error.cause(self.rank)))?;
        Ok(ReturnedBuffers { target, staging })
    }
}

/// Returns `true` if an exchange of this many bytes justifies waking a thread.
fn is_much(bytes: usize) -> bool {
    bytes >= MUCH
}

fn place_of(meeting: &Meeting, step: Option<usize>) -> Location {
    Location { step, group: meeting.members.to_vec() }
}
