//! One rank's handle of the MPI engine.

use crate::last_words;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi::MPI_Comm;
use mpi::topology::SimpleCommunicator;
use mpi::traits::AsRaw;
use reshard_collectives::{Communicator, Error, Exchange, Hop, Location, ReturnedBuffers, TrafficLog, zeros};

use crate::exchange::{Starts, carry_out, staging_bytes};
use crate::groups::{Groups, meet};
use crate::guard::Guard;
use crate::raw::{self, Handle, Requests, TAGS};
use crate::watchdog;

/// Default timeout for waiting on a rank.
const TIME_OUT: Duration = Duration::from_mins(1);

thread_local! {
    /// MPI as it was initialised here, while any engine uses it.
    static UNIVERSE: RefCell<Weak<Started>> = const { RefCell::new(Weak::new()) };
}

/// MPI as this engine initialised it; finalised when dropped, which also ends the guard of the job.
struct Started {
    _universe: Universe,
    _guard: Option<Guard>,
}

impl Started {
    /// Initialises MPI with a guard; returns `None` if other code has already initialised it.
    fn new(time_out: Duration) -> Option<Started> {
        // The guard must start before MPI opens anything that it must not inherit.
        let guard = if mpi::environment::is_initialized() { None } else { Guard::start() };
        let universe = watchdog::within(time_out, "starting MPI on all ranks", || {
            mpi::initialize_with_threading(Threading::Funneled)
        });
        universe.map(|(universe, _)| Started { _universe: universe, _guard: guard })
    }
}

/// This process as a rank of an MPI job.
///
/// Requires that it is used by the thread that initialised MPI. Dropping it ends its part in the job: see
/// [`finish`](Comm::finish).
pub struct Comm {
    groups: Option<Groups>,
    requests: Requests,
    starts: Starts,
    trace: TrafficLog,
    time_out: Duration,
    rank: usize,
    size: usize,
    failed: Option<Error>,
    universe: Option<Rc<Started>>,
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Comm").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// An exchange that was posted to a [`Comm`]. Nothing is lent to MPI before the wait.
#[derive(Debug)]
pub struct Pending<'a> {
    exchange: &'a Exchange,
    source: &'a [u8],
    target: &'a mut [u8],
    staging: &'a mut [u8],
}

impl Comm {
    /// Opens all ranks of the job.
    ///
    /// Initialises MPI if needed, and then finalises it with the last such engine. Requires that all ranks of
    /// the job call it. Errors: [`Error::Engine`]. Ends the job if a rank does not arrive within 60 seconds.
    pub fn world() -> Result<Comm, Error> {
        Comm::world_in(TIME_OUT)
    }

    /// Opens all ranks as [`world`](Comm::world), with a timeout for this call and later waits.
    pub fn world_in(time_out: Duration) -> Result<Comm, Error> {
        let refused = |message: &str| Error::Engine { rank: 0, message: message.to_string() };
        if mpi::environment::is_finalized() {
            return Err(refused("MPI was finalised in this process, and cannot be initialised again"));
        }
        let universe = match UNIVERSE.with_borrow(Weak::upgrade) {
            Some(universe) => Some(universe),
            None => Started::new(time_out).map(Rc::new),
        };
        if let Some(universe) = &universe {
            UNIVERSE.set(Rc::downgrade(universe));
        }
        Comm::new(&SimpleCommunicator::world(), universe, time_out)
    }

    /// Opens the ranks of a communicator of the caller, numbered as there.
    ///
    /// Requires that all its ranks call it. Errors: [`Error::Engine`].
    pub fn within(communicator: &impl AsRaw<Raw = MPI_Comm>) -> Result<Comm, Error> {
        Comm::new(communicator, None, TIME_OUT)
    }

    fn new(
        communicator: &impl AsRaw<Raw = MPI_Comm>,
        universe: Option<Rc<Started>>,
        time_out: Duration,
    ) -> Result<Comm, Error> {
        let world = watchdog::within(time_out, "making a communicator", || Handle::duplicate(communicator))?;
        let (rank, size) = (world.rank(), world.size());
        Ok(Comm {
            groups: Some(Groups::new(world)),
            requests: Requests::default(),
            starts: Starts::new(),
            trace: TrafficLog::default(),
            time_out,
            rank,
            size,
            failed: None,
            universe,
        })
    }

    /// Sets the timeout for waiting on a rank, counted from the last received message; 60 seconds by default.
    pub fn set_time_out(&mut self, time_out: Duration) {
        self.time_out = time_out;
    }

    /// Returns the counts of this rank since the last call.
    pub fn take_trace(&mut self) -> TrafficLog {
        std::mem::take(&mut self.trace)
    }

    /// Returns the number of cached communicators: one for all ranks, and one for every smaller group in use.
    pub fn communicators(&self) -> usize {
        self.groups.as_ref().map_or(0, Groups::count)
    }

    /// Gathers every rank's words on every rank, in rank order; returns after all ranks have called it.
    ///
    /// Requires the same number of words on every rank. Ends the job if a rank does not arrive in time.
    pub fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, Error> {
        let members: Vec<usize> = (0..self.size).collect();
        let place = Location { step: None, group: members };
        let Some(groups) = &self.groups else { return Err(Error::NotInPlan { rank: self.rank }) };
        meet(groups.world(), TAGS as i32 - 1, words, &place, &mut self.requests, self.time_out)
    }

    /// Returns the rank of each rank within its node, by `MPI_Comm_split_type`: a node is the ranks that share memory.
    ///
    /// Requires that all ranks call it. Ends the job if a rank does not arrive in time.
    pub fn shared_memory_ranks(&mut self) -> Result<Vec<usize>, Error> {
        let Some(groups) = &self.groups else { return Err(Error::NotInPlan { rank: self.rank }) };
        let own = watchdog::within(self.time_out, "splitting the ranks by nodes", || {
            groups.world().shared_memory_rank()
        })?;
        let all = self.share(&[own as u64])?;
        Ok(all.into_iter().flatten().map(|rank| rank as usize).collect())
    }

    /// Ends the job at once, on all ranks, with a failure status.
    ///
    /// For a rank that cannot continue while others wait for it.
    pub fn abort(self) -> ! {
        raw::abort()
    }

    /// Ends this rank's part: frees the communicators, and finalises MPI if [`Comm::world`] initialised it.
    ///
    /// Ensures: when it returns, all ranks of the job have called it. Ends the job if a rank does not arrive
    /// in time.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.groups.is_none() || mpi::environment::is_finalized() {
            return Ok(());
        }
        let met = self.share(&[0]).map(drop);
        let (groups, universe) = (self.groups.take(), self.universe.take());
        watchdog::within(self.time_out, "leaving the job", || {
            drop(groups);
            drop(universe);
        });
        met
    }

    fn carry_out(
        &mut self,
        exchange: &Exchange,
        source: &[u8],
        target: &mut [u8],
        staging: &mut [u8],
    ) -> Result<(), Error> {
        if exchange.is_local() {
            return exchange.run_local(source, target);
        }
        let Some(groups) = &self.groups else { return Err(Error::NotInPlan { rank: self.rank }) };
        let group = groups.get(exchange)?;
        let room = (&mut self.requests, &mut self.starts);
        carry_out(exchange, group, room, self.time_out, source, target, staging)?;
        for send in exchange.sends() {
            let hop = Hop { step: exchange.step(), receiver: send.peer(), sender: self.rank };
            self.trace.record_sent(hop, send.bytes() as u64);
        }
        for receive in exchange.receives().iter().filter(|receive| receive.peer() != self.rank) {
            // This number of bytes came, or there would have been an error.
            let bytes = receive.bytes() as u64;
            let hop = Hop { step: exchange.step(), receiver: self.rank, sender: receive.peer() };
            self.trace.record_received(hop, bytes);
            self.trace.record_messages(hop, 1);
        }
        Ok(())
    }

    /// Succeeds if this rank can take part in an exchange.
    fn check(&self, exchange: &Exchange) -> Result<(), Error> {
        match &self.failed {
            Some(error) => Err(error.again(self.rank, Some(exchange.place()))),
            None => exchange.check_rank(self.rank, self.size),
        }
    }
}

impl Communicator for Comm {
    type Buffer = [u8];
    type Owned = Vec<u8>;
    type Pending<'a> = Pending<'a>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn timeout(&self) -> Duration {
        self.time_out
    }

    fn allocate(&self, bytes: usize) -> Result<Vec<u8>, Error> {
        zeros(self.rank, bytes)
    }

    fn staging_bytes(&self, exchange: &Exchange) -> Result<usize, Error> {
        staging_bytes(exchange)
    }

    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error> {
        self.check(exchange)?;
        let Some(groups) = &mut self.groups else { return Err(Error::NotInPlan { rank: self.rank }) };
        let result = groups.agree(exchange, &mut self.requests, self.time_out);
        match &result {
            // All members know, and no rank waits.
            Ok(()) | Err(Error::Mismatch { .. }) => {}
            Err(error) => self.failed = Some(error.clone()),
        }
        result
    }

    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a [u8],
        target: &'a mut [u8],
        staging: &'a mut [u8],
    ) -> Result<Pending<'a>, Error> {
        self.check(exchange)?;
        exchange.check_buffers(source.len(), target.len())?;
        exchange.check_staging(staging_bytes(exchange)?, staging.len())?;
        Ok(Pending { exchange, source, target, staging })
    }

    fn wait<'a>(&mut self, pending: Self::Pending<'a>) -> Result<ReturnedBuffers<'a, [u8]>, Error> {
        let Pending { exchange, source, target, staging } = pending;
        self.check(exchange)?;
        let result = self.carry_out(exchange, source, target, staging);
        result.inspect_err(|error| self.failed = Some(error.clone()))?;
        Ok(ReturnedBuffers { target, staging })
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.groups.is_none() || mpi::environment::is_finalized() {
            return;
        }
        if let Some(error) = &self.failed {
            last_words::say(&format!("rank {} gives up: {error}; the job is aborted", self.rank));
        }
        if self.failed.is_some() || std::thread::panicking() {
            raw::abort();
        }
        if let Err(error) = self.end() {
            last_words::say(&format!("{error}; the job is aborted"));
            raw::abort();
        }
    }
}
