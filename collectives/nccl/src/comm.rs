//! One rank's handle of the NCCL engine.
//!
//! ```text
//! post     nothing yet: an exchange that is never waited for never starts
//! wait     find or prepare the launches; enqueue before, call, after; poll the stream until done or timeout
//! ```
//!
//! With [`Comm::enqueue`] the steps of a plan follow each other on the stream without the host in between,
//! and [`Comm::finish`] waits once for all of them. Enqueued work holds its buffers and launches until it is
//! done.

mod ready;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reshard_collectives::{
    Collective, Communicator, CompiledPlan, Error, Exchange, Location, ReturnedBuffers, Scratch,
};
use reshard_cuda::Command;
use reshard_device::Backend;
use reshard_kernels::LoopNest;

use ready::{Key, Ready};

use crate::route::{Way, native};
use crate::{Handle, Nccl};

/// Default timeout for waiting on work in progress.
const TIME_OUT: Duration = Duration::from_mins(1);
/// Polls without a pause this many times; then yields for the given time, before it sleeps between two polls.
const SPINS: u32 = 200;
const RESTLESS: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_micros(100);

/// The implementation of sums and products of floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FloatSums {
    /// The kernel of this library, in member order.
    ///
    /// The result is as deterministic plans promise, and equal to the bit in all groups.
    #[default]
    InOrder,
    /// NCCL, in an unspecified order.
    ///
    /// Replicas in one group of an all-reduce are equal; those of different groups, and those of
    /// deterministic plans, need not be.
    Nccl,
}

type Memory<N> = <<N as Nccl>::Device as Backend>::Memory;
type Prepared<N> = <<N as Nccl>::Device as Backend>::Prepared;

/// The number of the next communicator.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Memory of a communicator's device that stores a shard.
#[derive(Debug)]
pub struct Buffer<N: Nccl> {
    memory: Arc<Memory<N>>,
    comm: u64,
    address: i64,
    len: usize,
}

impl<N: Nccl> Buffer<N> {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the buffer is empty.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its address on the device.
    pub fn address(&self) -> i64 {
        self.address
    }
}

/// This process, or a stand-in thread, as a rank.
#[derive(Debug)]
pub struct Comm<N: Nccl> {
    pub(crate) nccl: N,
    pub(crate) id: u64,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    time_out: Duration,
    floats: FloatSums,
    pub(crate) groups: HashMap<Box<[usize]>, Handle>,
    /// The buffer of a control message between ranks, while it is in flight.
    pub(crate) meeting: Option<Memory<N>>,
    ready: HashMap<Key, Arc<Ready<N>>>,
    pub(crate) in_flight: Vec<InFlight<N>>,
    mode: Mode,
    pub(crate) failed: Option<Error>,
    received: u64,
}

/// The action after an exchange has been enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Wait for it.
    Each,
    /// Enqueue the next one.
    Deferred,
    /// The same as `Deferred`, without allocation.
    Captured,
}

/// Work that may be running on the device, with all that it uses.
#[derive(Debug)]
pub(crate) struct InFlight<N: Nccl> {
    pub(crate) place: Location,
    _ready: Arc<Ready<N>>,
    _buffers: [Arc<Memory<N>>; 3],
}

/// An exchange that was posted to a [`Comm`]; it begins when it is waited for.
#[derive(Debug)]
pub struct Pending<'a, N: Nccl> {
    exchange: &'a Exchange,
    source: &'a Buffer<N>,
    target: &'a mut Buffer<N>,
    staging: &'a mut Buffer<N>,
}

impl<N: Nccl> Comm<N> {
    /// Creates the engine on a library that is opening its communicator of all ranks; waits until it is open.
    ///
    /// Requires that all ranks call it. Errors: [`Error::Engine`].
    pub fn new(nccl: N) -> Result<Comm<N>, Error> {
        Comm::with_time_out(nccl, TIME_OUT)
    }

    /// Creates the engine as [`new`](Comm::new), with the given timeout.
    #[doc(hidden)]
    pub fn with_time_out(nccl: N, time_out: Duration) -> Result<Comm<N>, Error> {
        let (rank, size) = (nccl.rank(), nccl.size());
        let mut comm = Comm {
            nccl,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            rank,
            size,
            time_out,
            floats: FloatSums::default(),
            groups: HashMap::new(),
            meeting: None,
            ready: HashMap::new(),
            in_flight: Vec::new(),
            mode: Mode::Each,
            failed: None,
            received: 0,
        };
        let opening = comm.until(N::settled);
        opening.map_err(|what| comm.fail(&what, "the setup of the communicator of all ranks"))?;
        Ok(comm)
    }

    /// Sets the timeout for waiting on work in progress; 60 seconds by default.
    pub fn set_time_out(&mut self, time_out: Duration) {
        self.time_out = time_out;
    }

    /// Selects the implementation of sums and products of floats; existing scratch becomes invalid.
    ///
    /// Requires the same on all ranks.
    pub fn set_float_sums(&mut self, floats: FloatSums) {
        self.floats = floats;
        self.ready.clear();
    }

    /// Returns the bytes of plans received from other ranks since the last call.
    ///
    /// They are counted when exchanges are enqueued.
    #[doc(hidden)]
    pub fn take_received_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }

    /// Aborts the engine at once, for a rank that cannot continue.
    ///
    /// Ranks that wait for this one then stop with an error of NCCL, or at their timeout.
    #[doc(hidden)]
    pub fn abort(mut self) {
        self.nccl.abort();
    }

    /// Returns the library.
    #[doc(hidden)]
    pub fn nccl(&self) -> &N {
        &self.nccl
    }

    /// Writes bytes to the beginning of a buffer, after everything enqueued before.
    ///
    /// Errors: a buffer that is too short, or of another communicator; and those of [`finish`](Comm::finish).
    pub fn write(&mut self, buffer: &mut Buffer<N>, bytes: &[u8]) -> Result<(), Error> {
        self.has(buffer, bytes.len())?;
        self.finish()?;
        let device = self.nccl.device();
        let written = if let Some(memory) = Arc::get_mut(&mut buffer.memory) {
            device.write(memory, bytes)
        } else if bytes.is_empty() {
            Ok(())
        } else {
            // A captured plan holds the memory too; nothing is running.
            device.allocate(bytes.len()).and_then(|mut through| {
                device.write(&mut through, bytes)?;
                let line = reshard_layout::Mode::new(bytes.len() as i64, (1, 1));
                let nest = LoopNest::new(device.address(&through), buffer.address, [line]);
                device.run(&device.prepare(&Vec::from_iter(Command::copies(&[nest])?))?)
            })
        };
        written.map_err(|e| self.refused(&e))
    }

    /// Reads the beginning of a buffer, after everything enqueued before.
    ///
    /// Errors: as [`write`](Comm::write).
    pub fn read(&mut self, buffer: &Buffer<N>, bytes: &mut [u8]) -> Result<(), Error> {
        self.has(buffer, bytes.len())?;
        self.finish()?;
        self.nccl.device().read(&buffer.memory, bytes).map_err(|e| self.refused(&e))
    }

    /// Runs a plan as [`CompiledPlan::run`] does, and returns when everything is enqueued.
    ///
    /// The target is complete when [`finish`](Comm::finish) has returned; [`read`](Comm::read) waits too.
    #[doc(hidden)]
    pub fn enqueue(
        &mut self,
        compiled: &CompiledPlan,
        source: &Buffer<N>,
        target: &mut Buffer<N>,
        scratch: &mut Scratch<Buffer<N>>,
    ) -> Result<(), Error> {
        self.run_as(Mode::Deferred, compiled, source, target, scratch)
    }

    pub(crate) fn run_as(
        &mut self,
        mode: Mode,
        compiled: &CompiledPlan,
        source: &Buffer<N>,
        target: &mut Buffer<N>,
        scratch: &mut Scratch<Buffer<N>>,
    ) -> Result<(), Error> {
        self.mode = mode;
        let result = compiled.run(self, source, target, scratch);
        self.mode = Mode::Each;
        result
    }

    /// Waits until all enqueued work is done.
    ///
    /// Errors: those of NCCL, those of the device, or a timeout; the communicator is then aborted.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err(error.again(self.rank, None));
        }
        let done = self.until(N::idle);
        let done = done.map_err(|what| {
            let first = self.in_flight.first().map(|one| one.place.to_string()).unwrap_or_default();
            let place = match self.in_flight.len() - 1 {
                0 => first,
                more => format!("{first} or one of the {more} exchanges after it"),
            };
            self.fail(&what, &place)
        });
        self.in_flight.clear();
        done
    }

    /// Polls until the condition holds; returns the reason if it cannot.
    pub(crate) fn until(
        &mut self,
        done: impl Fn(&mut N) -> Result<bool, reshard_cuda::Error>,
    ) -> Result<(), String> {
        let start = Instant::now();
        let mut looks = 0;
        loop {
            if done(&mut self.nccl).map_err(|e| e.to_string())? {
                return Ok(());
            }
            looks += 1;
            if looks < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let waited = start.elapsed();
            if waited >= self.time_out {
                return Err(format!("NCCL did not finish within {:?}", self.time_out));
            }
            if waited < RESTLESS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Aborts; all later calls fail.
    pub(crate) fn fail(&mut self, what: &str, place: &str) -> Error {
        self.nccl.abort();
        // Nothing runs any more.
        self.meeting = None;
        let error = self.engine(format!("{what} in {place}; the communicator is aborted"));
        self.failed = Some(error.clone());
        error
    }

    pub(crate) fn engine(&self, message: String) -> Error {
        Error::Engine { rank: self.rank, message }
    }

    fn refused(&self, e: &reshard_cuda::Error) -> Error {
        self.engine(e.to_string())
    }

    /// Succeeds if this rank can take part in an exchange.
    fn check(&self, exchange: &Exchange) -> Result<(), Error> {
        match &self.failed {
            Some(error) => Err(error.again(self.rank, Some(exchange.place()))),
            None => exchange.check_rank(self.rank, self.size),
        }
    }

    /// Succeeds if a buffer is this communicator's.
    fn owns(&self, buffer: &Buffer<N>, which: &'static str) -> Result<(), Error> {
        if buffer.comm != self.id {
            return Err(self.engine(format!(
                "the {which} was allocated by another communicator, whose stream is not ordered with this one"
            )));
        }
        Ok(())
    }

    /// Succeeds if a buffer is this communicator's and has at least `needed` bytes.
    fn has(&self, buffer: &Buffer<N>, needed: usize) -> Result<(), Error> {
        self.owns(buffer, "buffer")?;
        if buffer.len < needed {
            return Err(Error::Buffer { rank: self.rank, which: "buffer", needed, given: buffer.len });
        }
        Ok(())
    }

    /// Returns the communicator of some members.
    pub(crate) fn handle(&self, members: &[usize]) -> Option<Handle> {
        if members.len() == self.size { Some(Handle::WORLD) } else { self.groups.get(members).copied() }
    }
}

impl<N: Nccl> Communicator for Comm<N> {
    type Buffer = Buffer<N>;
    type Owned = Buffer<N>;
    type Pending<'p> = Pending<'p, N>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn timeout(&self) -> Duration {
        self.time_out
    }

    /// Allocates device memory.
    ///
    /// Errors: those of the device, and that work is enqueued, for which allocating could wait forever.
    fn allocate(&self, bytes: usize) -> Result<Buffer<N>, Error> {
        if !self.in_flight.is_empty() {
            return Err(
                self.engine("memory can only be allocated before `enqueue` or after `finish`".to_string())
            );
        }
        let device = self.nccl.device();
        let memory = device.allocate(bytes).map_err(|e| self.refused(&e))?;
        let address = device.address(&memory);
        Ok(Buffer { memory: Arc::new(memory), comm: self.id, address, len: bytes })
    }

    fn staging_bytes(&self, exchange: &Exchange) -> Result<usize, Error> {
        Ok(Way::new(exchange, self.floats)?.staging)
    }

    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error> {
        self.check(exchange)?;
        self.finish()?;
        let place = exchange.place();
        let agreed = self.agree_on(exchange);
        agreed.map_err(|what| self.fail(&what, &format!("the agreement on {place}")))?
    }

    fn all_reduces(&self, exchange: &Exchange) -> bool {
        match exchange.collective() {
            Some(Collective::AllReduce { reduction, .. }) => native(*reduction, self.floats).is_some(),
            Some(
                Collective::AllGather { .. } | Collective::AllToAll { .. } | Collective::ReduceScatter { .. },
            )
            | None => false,
        }
    }

    fn post<'p>(
        &mut self,
        exchange: &'p Exchange,
        source: &'p Buffer<N>,
        target: &'p mut Buffer<N>,
        staging: &'p mut Buffer<N>,
    ) -> Result<Pending<'p, N>, Error> {
        self.check(exchange)?;
        for (buffer, which) in [(source, "source"), (&*target, "target"), (&*staging, "staging")] {
            self.owns(buffer, which)?;
        }
        exchange.check_buffers(source.len, target.len)?;
        Ok(Pending { exchange, source, target, staging })
    }

    fn wait<'p>(&mut self, pending: Self::Pending<'p>) -> Result<ReturnedBuffers<'p, Buffer<N>>, Error> {
        self.check(pending.exchange)?;
        self.begin(&pending)?;
        match self.mode {
            Mode::Each => self.finish()?,
            Mode::Deferred | Mode::Captured => {}
        }
        Ok(ReturnedBuffers { target: pending.target, staging: pending.staging })
    }
}
