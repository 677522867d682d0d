//! One rank's end of the threads engine.
//!
//! An exchange of a group goes like this on every member:
//!
//! ```text
//! show my source; arrive; do what needs nobody else; wait until all have arrived;
//! for each receive: look at the peer's source and move straight into my target, count the bytes, tell the peer;
//! wait until all who take something from me have told me; hide my source
//! ```
//!
//! One copy per byte, two meetings per exchange. Small sources are copied aside first, and then nobody waits for readers:
//! two copies per byte, and one meeting. Whoever waits spins briefly, then yields, then parks; the last to arrive
//! wakes the others. Where much moves, the barrier is loosened: a rank takes from each peer as soon as that one has
//! arrived, and who arrives wakes those who take from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::meeting::{Look, Meeting};
use super::world::Shared;
use crate::check::check_group;
use crate::testing::Fault;
use crate::trace::Recorder;
use crate::{Communicator, Error, Exchange, Location, ReceiveMessage, ReturnedBuffers, TrafficLog, zeros};

/// Looks at a condition so often before the thread gives its processor away, if there is one for each rank.
const SPINS: u32 = 2000;
/// And if there are more ranks than processors.
const CROWDED_SPINS: u32 = 20;
/// Gives the processor away so often before the thread parks.
const YIELDS: u32 = 10;
/// Up to so many bytes of source are copied rather than shown: waiting for the readers takes longer.
const LITTLE: usize = 4 << 10;
/// And if there are more ranks than processors.
const CROWDED_LITTLE: usize = 32 << 10;
/// Bytes from which on a rank does not wait for all peers before it takes from one.
const MUCH: usize = 256 << 10;
/// A parked thread looks again at least so often.
const LONGEST_PARK: Duration = Duration::from_millis(20);

/// One rank of a [`World`](super::World), handed to the job that the world runs.
#[derive(Debug)]
pub struct ThreadCommunicator {
    pub(super) rank: usize,
    shared: Arc<Shared>,
    meetings: Vec<Arc<Meeting>>,
    generation: u64,
    pub(super) recorder: Recorder,
    pub(super) faults: Vec<Fault>,
}

/// An exchange that was posted to a [`Comm`]. Nothing is shown to others before it is waited for.
#[derive(Debug)]
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

    /// Begins a job: forgets what belongs to runs before a failure.
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

    /// Hands out what this rank has counted since the last call.
    pub fn take_trace(&mut self) -> TrafficLog {
        self.recorder.take()
    }

    /// The meeting of a group, and this rank's place in it.
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

    /// Compares the tag of an exchange with the other members'; nobody goes on before all have compared.
    fn compare(&mut self, exchange: &Exchange) -> Result<(), Error> {
        let (meeting, place) = self.meeting(exchange.members())?;
        meeting.seats[place].agreed.store(exchange.tag(), Ordering::Relaxed);
        self.come_together(&meeting, place, Some(exchange.step()))?;
        let tags = meeting.seats.iter().map(|seat| seat.agreed.load(Ordering::Relaxed));
        let compared = exchange.check_tags(meeting.members.iter().copied().zip(tags));
        self.come_together(&meeting, place, Some(exchange.step()))?;
        compared
    }

    /// Arrives, and waits until all members of a group have.
    fn come_together(&self, meeting: &Meeting, place: usize, step: Option<usize>) -> Result<(), Error> {
        let number = meeting.seats[place].arrivals.load(Ordering::Relaxed) + 1;
        if meeting.arrive(place, number) {
            self.wake(meeting, place);
        }
        self.wait_for_all(meeting, number, step)
    }

    /// Waits for a condition; `missing` is a rank that does not yet do its part, `place` where.
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
                let reason = "it left without coming".to_string();
                return Err(Error::RankFailed { rank, reason, place: Some(place()) });
            }
            let waited = begin.elapsed();
            if waited >= time_out {
                // Complete by now, or somebody is missing.
                let Some(rank) = missing() else { continue };
                return Err(Error::TimedOut { rank, place: place(), after: time_out });
            }
            std::thread::park_timeout(LONGEST_PARK.min(time_out.saturating_sub(waited)));
        }
    }

    /// The exchange itself; `source` is on show while the others are needed.
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
            // For those who wait for their readers.
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

    /// Comes to the exchange, and wakes those who wait for it.
    fn arrive(&self, meeting: &Meeting, place: usize, number: u64, exchange: &Exchange) {
        if meeting.arrive(place, number) {
            self.wake(meeting, place);
        } else if is_much(exchange.sent_bytes()) {
            exchange.sends().iter().for_each(|send| self.shared.wake(send.peer()));
        }
    }

    /// Makes the target of an exchange to which this rank has come, and waits until all have.
    fn land(
        &mut self,
        meeting: &Meeting,
        number: u64,
        exchange: &Exchange,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        exchange.init_target(target)?;
        // What comes from oneself comes first, unless it is a term with its place in the order.
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
            // Nobody succeeds unless all have come, also those from whom nothing was wanted.
            self.wait_for_all(meeting, number, Some(exchange.step()))?;
        }
        // A rank that comes late may find all others: those who have given it up in the meantime.
        if let Some((rank, reason)) = self.shared.failure() {
            return Err(Error::RankFailed { rank, reason, place: Some(exchange.place()) });
        }
        exchange.finalize_target(target)
    }

    /// Takes from up to 64 peers, from each when it has arrived.
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
        // One bit for each receive that is still to be done.
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

    /// Moves what a peer shows into the target, counts it, and tells the peer.
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
                let (rank, reason) =
                    self.shared.failure().unwrap_or_else(|| (peer, "it left in the middle".to_string()));
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
            // Everybody knows, and nobody is waited for.
            Ok(()) | Err(Error::Mismatch { .. }) => result,
            Err(error) => {
                self.shared.fail(error.cause(self.rank));
                Err(error)
            }
        }
    }

    /// In one meeting, where agreeing takes two.
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

/// Whether so many bytes are worth waking a thread for.
fn is_much(bytes: usize) -> bool {
    bytes >= MUCH
}

fn place_of(meeting: &Meeting, step: Option<usize>) -> Location {
    Location { step, group: meeting.members.to_vec() }
}
