//! Prepared exchanges: their launches are cached at the first use, and enqueued.

use std::sync::Arc;

use reshard_collectives::{Error, Exchange};
use reshard_cuda::Command;
use reshard_device::Backend;
use reshard_device::internal::{constants, engine};

use super::{Comm, InFlight, Memory, Mode, Pending, Prepared};
use crate::route::{Addresses, Route, Way};
use crate::{Handle, Nccl};

/// Maximum number of prepared exchanges; all are dropped above it, as when buffers come and go.
const MOST_PREPARED: usize = 1024;

/// An exchange and the addresses of its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    exchange: u64,
    at: Addresses,
}

/// An exchange that only needs to be enqueued.
#[derive(Debug)]
pub(super) struct Ready<N: Nccl> {
    route: Route,
    received: u64,
    staging: usize,
    before: Option<Arc<Prepared<N>>>,
    after: Option<Arc<Prepared<N>>>,
    _constants: Option<Memory<N>>,
}

impl<N: Nccl> Comm<N> {
    /// Returns the launches of an exchange between these buffers, prepared at the first use.
    fn ready(&mut self, exchange: &Exchange, at: Addresses) -> Result<Arc<Ready<N>>, Error> {
        let key = Key { exchange: exchange.id(), at };
        if let Some(ready) = self.ready.get(&key) {
            return Ok(Arc::clone(ready));
        }
        if self.mode == Mode::Captured {
            return Err(self.engine(format!("{} was not prepared before its capture", exchange.place())));
        }
        // Preparing waits for the device, and that must not take longer than the timeout.
        self.finish()?;
        if self.ready.len() >= MOST_PREPARED {
            self.ready.clear();
        }
        let way = Way::new(exchange, self.floats)?;
        let failed = |e: reshard_cuda::Error| engine(exchange, &e);
        let device = self.nccl.device();
        let items = constants(exchange);
        let mut memory = None;
        if !items.is_empty() {
            let mut new = device.allocate(items.len()).map_err(failed)?;
            device.write(&mut new, &items).map_err(failed)?;
            memory = Some(new);
        }
        let constants = memory.as_ref().map_or(0, |memory| device.address(memory));
        let (before, after) = way.launches(exchange, at, constants)?;
        let prepare = |work: Vec<Command>| {
            if work.is_empty() { Ok(None) } else { device.prepare(&work).map(|work| Some(Arc::new(work))) }
        };
        let ready = Arc::new(Ready {
            received: way.route.received(exchange.members().len())?,
            route: way.route,
            staging: way.staging,
            before: prepare(before).map_err(failed)?,
            after: prepare(after).map_err(failed)?,
            _constants: memory,
        });
        self.ready.insert(key, Arc::clone(&ready));
        Ok(ready)
    }

    /// Enqueues an exchange.
    pub(super) fn begin(&mut self, pending: &Pending<'_, N>) -> Result<(), Error> {
        let Pending { exchange, source, target, staging } = pending;
        let at = Addresses { source: source.address, target: target.address, staging: staging.address };
        let ready = self.ready(exchange, at)?;
        exchange.check_staging(ready.staging, staging.len)?;
        let place = exchange.place();
        let buffers = [&source.memory, &target.memory, &staging.memory].map(Arc::clone);
        let kept = InFlight { place: place.clone(), _ready: Arc::clone(&ready), _buffers: buffers };
        self.in_flight.push(kept);
        let on = match ready.route {
            Route::Nothing => Handle::WORLD,
            Route::AllGather { .. }
            | Route::ReduceScatter { .. }
            | Route::AllReduce { .. }
            | Route::Messages { .. } => {
                self.handle(exchange.members()).ok_or_else(|| exchange.not_agreed())?
            }
        };
        let enqueued = self.steps(&ready, on, at);
        enqueued.map_err(|what| self.fail(&what, &place.to_string()))
    }

    fn steps(&mut self, ready: &Ready<N>, on: Handle, at: Addresses) -> Result<(), String> {
        let said = |e: reshard_cuda::Error| e.to_string();
        if let Some(work) = &ready.before {
            self.nccl.launch(work).map_err(said)?;
        }
        if ready.route != Route::Nothing {
            call(&mut self.nccl, &ready.route, on, at).map_err(said)?;
            self.until(N::settled)?;
        }
        if let Some(work) = &ready.after {
            self.nccl.launch(work).map_err(said)?;
        }
        self.received += ready.received;
        Ok(())
    }
}

/// Makes the calls of a route, as one group.
fn call<N: Nccl>(nccl: &mut N, route: &Route, on: Handle, at: Addresses) -> Result<(), reshard_cuda::Error> {
    nccl.group_start()?;
    match route {
        Route::Nothing => {}
        Route::AllGather { source, target, bytes } => {
            nccl.all_gather(on, at.of(*source), at.of(*target), *bytes)?;
        }
        Route::ReduceScatter { source, target, count, element, op } => {
            nccl.reduce_scatter(on, at.of(*source), at.of(*target), *count, *element, *op)?;
        }
        Route::AllReduce { source, target, count, element, op } => {
            nccl.all_reduce(on, at.of(*source), at.of(*target), *count, *element, *op)?;
        }
        Route::Messages { sends, receives } => {
            for send in sends {
                nccl.send(on, send.peer, at.of(send.at), send.bytes)?;
            }
            for receive in receives {
                nccl.receive(on, receive.peer, at.of(receive.at), receive.bytes)?;
            }
        }
    }
    nccl.group_end()
}
