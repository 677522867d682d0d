//! One rank's handle of the engine.
//!
//! ```text
//! post     nothing yet
//! wait     publish my source; barrier; launch copies from the peers' sources; wait for the device;
//!          barrier; withdraw my source
//! ```
//!
//! Ranks are the threads of [`reshard_collectives::threads`], whose rendezvous provides timeouts and the
//! failures of others. A published source is shared: it lives until the last reader has released it, whatever
//! happens to its rank.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reshard_collectives::threads::ThreadCommunicator;
use reshard_collectives::{Communicator, CompiledPlan, Error, Exchange, ReturnedBuffers};
use reshard_kernels::DType;
use reshard_planner::{Phase, StepOp};

use crate::Backend;
use crate::lower::{Addresses, constants, engine, lower};

/// Maximum number of prepared exchanges; all are dropped above it, as when buffers come and go.
const MOST_PREPARED: usize = 1024;

/// Memory of the device that stores a rank's shard.
#[derive(Debug)]
#[doc(hidden)]
pub struct DeviceBuffer<B: Backend> {
    pub(crate) memory: Arc<B::Memory>,
}

/// The source that each rank publishes while others read it.
pub(crate) type Shown<B> = Arc<Vec<Mutex<Option<Arc<<B as Backend>::Memory>>>>>;

/// One rank of a [`DeviceWorld`](crate::DeviceWorld).
#[derive(Debug)]
pub struct DeviceComm<'a, B: Backend> {
    inner: &'a mut ThreadCommunicator,
    device: B,
    shown: Shown<B>,
    meetings: HashMap<(usize, Arc<[usize]>), CompiledPlan>,
    prepared: HashMap<Key, Ready<B>>,
}

/// An exchange and the addresses of its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    exchange: u64,
    target: i64,
    sources: Vec<i64>,
}

/// The launches of an exchange, with the elements that its fills repeat.
#[derive(Debug)]
struct Ready<B: Backend> {
    launches: B::Prepared,
    _constants: Option<B::Memory>,
}

/// An exchange that was posted to a [`DeviceComm`].
#[derive(Debug)]
pub struct Pending<'a, B: Backend> {
    exchange: &'a Exchange,
    source: &'a DeviceBuffer<B>,
    target: &'a mut DeviceBuffer<B>,
    staging: &'a mut DeviceBuffer<B>,
}

impl<'a, B: Backend> DeviceComm<'a, B> {
    pub(crate) fn new(
        inner: &'a mut ThreadCommunicator,
        device: &B,
        shown: &Shown<B>,
    ) -> Result<DeviceComm<'a, B>, Error> {
        let rank = inner.rank();
        let device = device.for_thread().map_err(|e| Error::Engine { rank, message: e.to_string() })?;
        Ok(DeviceComm {
            inner,
            device,
            shown: Arc::clone(shown),
            meetings: HashMap::new(),
            prepared: HashMap::new(),
        })
    }

    fn failed(&self, e: &reshard_cuda::Error) -> Error {
        Error::Engine { rank: self.inner.rank(), message: e.to_string() }
    }

    /// Writes bytes to the beginning of a buffer.
    ///
    /// Errors: a buffer that is too short, or that another rank still reads after a failure.
    pub fn write(&self, buffer: &mut DeviceBuffer<B>, bytes: &[u8]) -> Result<(), Error> {
        let memory = Arc::get_mut(&mut buffer.memory).ok_or_else(|| Error::Engine {
            rank: self.inner.rank(),
            message: "the buffer is still read by another rank".to_owned(),
        })?;
        self.device.write(memory, bytes).map_err(|e| self.failed(&e))
    }

    /// Reads the beginning of a buffer.
    ///
    /// Errors: a buffer that is too short.
    pub fn read(&self, buffer: &DeviceBuffer<B>, bytes: &mut [u8]) -> Result<(), Error> {
        self.device.read(&buffer.memory, bytes).map_err(|e| self.failed(&e))
    }

    /// Waits for all members of an exchange's group.
    fn meet(&mut self, exchange: &Exchange) -> Result<(), Error> {
        let key = (exchange.step(), Arc::from(exchange.members()));
        let rank = self.inner.rank();
        if !self.meetings.contains_key(&key) {
            let phase = Phase {
                source_len: 0,
                target_len: 0,
                fill_identity: None,
                receives: Vec::new(),
                sends: Vec::new(),
                reduce: None,
                members: exchange.members().to_vec(),
            };
            let phases = [(exchange.step(), StepOp::Exchange, phase)];
            self.meetings.insert(key.clone(), CompiledPlan::from_phases(rank, DType::U8, &phases)?);
        }
        for exchange in self.meetings[&key].exchanges() {
            self.inner.exchange(exchange, &[], &mut [], &mut [])?;
        }
        Ok(())
    }

    fn show(&self, rank: usize) -> std::sync::MutexGuard<'_, Option<Arc<B::Memory>>> {
        // An address stays valid, also after a panic elsewhere.
        self.shown[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the launches, which are cached or prepared now.
    fn launch(
        &mut self,
        exchange: &Exchange,
        sources: &[Arc<B::Memory>],
        target: &B::Memory,
    ) -> Result<(), Error> {
        let addresses: Vec<i64> = sources.iter().map(|memory| self.device.address(memory)).collect();
        let target = self.device.address(target);
        let key = Key { exchange: exchange.id(), target, sources: addresses };
        let failed = |e: reshard_cuda::Error| engine(exchange, &e);
        if !self.prepared.contains_key(&key) {
            if self.prepared.len() >= MOST_PREPARED {
                self.prepared.clear();
            }
            let items = constants(exchange);
            let mut memory = None;
            if !items.is_empty() {
                let mut new = self.device.allocate(items.len()).map_err(failed)?;
                self.device.write(&mut new, &items).map_err(failed)?;
                memory = Some(new);
            }
            let source_of = |peer: usize| {
                let place = exchange.receives().iter().position(|receive| receive.peer() == peer);
                place.map_or(0, |i| key.sources[i])
            };
            let constants = memory.as_ref().map_or(0, |memory| self.device.address(memory));
            let work = lower(exchange, &Addresses { source_of: &source_of, target, constants })?;
            let launches = self.device.prepare(&work).map_err(failed)?;
            self.prepared.insert(key.clone(), Ready { launches, _constants: memory });
        }
        self.device.run(&self.prepared[&key].launches).map_err(failed)
    }

    /// Takes the published sources of the peers, checks their lengths, and launches.
    fn carry_out(
        &mut self,
        exchange: &Exchange,
        source: &DeviceBuffer<B>,
        target: &DeviceBuffer<B>,
    ) -> Result<(), Error> {
        let mut sources = Vec::with_capacity(exchange.receives().len());
        for receive in exchange.receives() {
            let peer = receive.peer();
            let shown = if peer == exchange.rank() {
                Some(Arc::clone(&source.memory))
            } else {
                self.show(peer).clone()
            };
            let memory = shown.ok_or_else(|| Error::RankFailed {
                rank: peer,
                reason: "it has not published its source".to_owned(),
                place: Some(exchange.place()),
            })?;
            exchange.check_peer(receive, self.device.len(&memory))?;
            sources.push(memory);
        }
        self.launch(exchange, &sources, &target.memory)
    }
}

impl<B: Backend> Communicator for DeviceComm<'_, B> {
    type Buffer = DeviceBuffer<B>;
    type Owned = DeviceBuffer<B>;
    type Pending<'p> = Pending<'p, B>;

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceBuffer<B>, Error> {
        let memory = self.device.allocate(bytes).map_err(|e| self.failed(&e))?;
        Ok(DeviceBuffer { memory: Arc::new(memory) })
    }

    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error> {
        self.inner.check_agreement(exchange)
    }

    fn post<'p>(
        &mut self,
        exchange: &'p Exchange,
        source: &'p DeviceBuffer<B>,
        target: &'p mut DeviceBuffer<B>,
        staging: &'p mut DeviceBuffer<B>,
    ) -> Result<Pending<'p, B>, Error> {
        exchange.check_rank(self.rank(), self.size())?;
        exchange.check_buffers(self.device.len(&source.memory), self.device.len(&target.memory))?;
        Ok(Pending { exchange, source, target, staging })
    }

    fn wait<'p>(
        &mut self,
        pending: Self::Pending<'p>,
    ) -> Result<ReturnedBuffers<'p, DeviceBuffer<B>>, Error> {
        let Pending { exchange, source, target, staging } = pending;
        if exchange.is_local() {
            self.carry_out(exchange, source, target)?;
            return Ok(ReturnedBuffers { target, staging });
        }
        let rank = self.inner.rank();
        *self.show(rank) = Some(Arc::clone(&source.memory));
        let done = match self.meet(exchange) {
            Ok(()) => {
                let done = self.carry_out(exchange, source, target);
                // A failed rank also synchronizes: the others may be reading.
                let met = self.meet(exchange);
                done.and(met)
            }
            Err(e) => Err(e),
        };
        *self.show(rank) = None;
        done?;
        Ok(ReturnedBuffers { target, staging })
    }
}
