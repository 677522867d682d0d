//! What an engine must do: the contract that threads, MPI and device engines implement.
//!
//! # Data flow
//!
//! ```text
//! Plan --Compiled::new--> [Exchange; phases]      once per rank: copies, offsets, counts, peers, scratch sizes
//!                              |
//!        Compiled::run:  for each exchange:  post(exchange, source, target, staging);  wait
//! ```
//!
//! An engine never plans. An [`Exchange`] says, for one rank and one phase, which loop nests of whose source land in this
//! rank's target, and which of its own source others take. An engine that can read its peers' memory copies along
//! [`Receive::moves`](crate::Receive::moves) directly; one that sends messages packs with
//! [`Send::pack`](crate::Send::pack) and unpacks with [`Receive::unpack`](crate::Receive::unpack) through the
//! caller's staging buffer.

use std::borrow::BorrowMut;
use std::time::Duration;

use crate::{Error, Exchange};

/// A rank's end of an engine.
///
/// # The contract
///
/// * All members of a group post the same exchanges of that group in the same order, and wait for them in that order.
///   Several may be posted before the first is waited for.
/// * When [`wait`](Communicator::wait) succeeds the target is complete, and nobody reads the source any more.
/// * When any rank of a group fails (it panics, returns an error, leaves, or stalls past the time-out), every other
///   member's [`wait`](Communicator::wait) returns an error that names it; none blocks for longer than the time-out.
///   After an error the contents of targets and staging are unspecified, and nobody reads the source any more either.
/// * A [`Pending`](Communicator::Pending) may be dropped or leaked instead of being waited for. An engine must then stay
///   sound: it lends the caller's memory to others only during `post` and `wait` themselves.
pub trait Communicator {
    /// Memory that the engine moves: `[u8]` for the host, a device's own type for a device.
    type Buffer: ?Sized;
    /// Memory that the engine allocates.
    type Owned: BorrowMut<Self::Buffer>;
    /// An exchange that has begun.
    type Pending<'a>;

    /// This rank, below [`size`](Communicator::size).
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// How long a rank is waited for.
    fn time_out(&self) -> Duration;

    /// Allocates a buffer of at least `bytes` bytes, to be used as scratch by [`Compiled::run`](crate::Compiled::run).
    fn allocate(&self, bytes: usize) -> Result<Self::Owned, Error>;

    /// Bytes of staging that this engine needs for an exchange, from the caller; none unless it packs messages.
    fn staging_bytes(&self, exchange: &Exchange) -> Result<usize, Error> {
        let _ = exchange;
        Ok(0)
    }

    /// Begins an exchange and does not wait for others.
    ///
    /// Requires buffers of the sizes that the exchange says; `staging` of [`staging_bytes`](Communicator::staging_bytes).
    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a Self::Buffer,
        target: &'a mut Self::Buffer,
        staging: &'a mut Self::Buffer,
    ) -> Result<Self::Pending<'a>, Error>;

    /// Completes an exchange.
    fn wait(&mut self, pending: Self::Pending<'_>) -> Result<(), Error>;

    /// Posts and waits.
    fn exchange(
        &mut self,
        exchange: &Exchange,
        source: &Self::Buffer,
        target: &mut Self::Buffer,
        staging: &mut Self::Buffer,
    ) -> Result<(), Error> {
        // One lifetime for all: the shortest.
        fn once<'a, C: Communicator + ?Sized>(
            comm: &mut C,
            exchange: &'a Exchange,
            source: &'a C::Buffer,
            target: &'a mut C::Buffer,
            staging: &'a mut C::Buffer,
        ) -> Result<(), Error> {
            let pending = comm.post(exchange, source, target, staging)?;
            comm.wait(pending)
        }
        once(self, exchange, source, target, staging)
    }
}
