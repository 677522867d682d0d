//! The engine contract, implemented by the thread, MPI and device engines.
//!
//! # Data flow
//!
//! ```text
//! Plan --CompiledPlan::new--> [Exchange; phases]    once per rank: copies, offsets, counts, peers, scratch
//!                              |
//!        CompiledPlan::run:  for each exchange:  post(exchange, source, target, staging);  wait
//!        CompiledPlan::start, PendingRun::finish:  the same; the caller can compute between post and wait
//! ```
//!
//! An engine never plans. An [`Exchange`] lists, for one rank and one phase, the loop nests that this rank's
//! target receives, with the peer of each, and the loop nests of its source that others take. The
//! capabilities of an engine determine how it runs an exchange:
//!
//! * it can read its peers' memory: [`ReceiveMessage::take`](crate::ReceiveMessage::take) copies directly from there;
//! * it sends messages: [`SendMessage::pack`](crate::SendMessage::pack) and [`ReceiveMessage::unpack`](crate::ReceiveMessage::unpack),
//!   through the caller's staging buffer, or directly from and into the buffers where
//!   [`contiguous`](crate::SendMessage::contiguous) returns a range;
//! * it has collectives: [`Exchange::collective`] returns the collective if the exchange is exactly one of
//!   contiguous blocks, and [`Exchange::op`] the kind of collective if blocks must be packed;
//! * its memory is not the host's: [`ReceiveMessage::pieces`](crate::ReceiveMessage::pieces),
//!   [`SendMessage::pieces`](crate::SendMessage::pieces), [`Exchange::fills`] and [`Exchange::averages`] describe all work
//!   as loop nests.

use std::borrow::BorrowMut;
use std::time::Duration;

use crate::{Error, Exchange};

/// The memory that was lent to an exchange for writing, returned by [`Communicator::wait`].
///
/// The next phase of a plan reads it and writes to another buffer.
#[derive(Debug)]
pub struct ReturnedBuffers<'a, B: ?Sized> {
    /// The exchange's target, complete.
    pub target: &'a mut B,
    /// The exchange's staging buffer.
    pub staging: &'a mut B,
}

/// One rank's handle of an engine.
///
/// # The contract
///
/// * All members of a group post the same exchanges of that group in one order, and wait for them in one
///   order. Several may be posted before the first is waited for. The two orders are the same, with one
///   exception: a plan that was [started](crate::CompiledPlan::start) is finished, with its further exchanges,
///   while first exchanges of other plans are in flight. An engine that matches exchanges therefore uses the
///   order of all posts, the order of all waits, or [`Exchange::tag`] and the order among equal tags.
/// * [`barrier`](Communicator::barrier) holds every member until the last has arrived.
/// * [`Exchange::members`] are a group. Groups may overlap; no two ranks reach the exchanges of two groups in
///   different orders.
/// * When [`wait`](Communicator::wait) succeeds the target is complete, and no rank reads the source any
///   more.
/// * When any rank of a group fails (it panics, returns an error, leaves, or stalls past the timeout), every
///   other member's [`wait`](Communicator::wait), [`check_agreement`](Communicator::check_agreement) or
///   [`barrier`](Communicator::barrier) returns an error that names it; none blocks for longer than the
///   timeout. After an error the contents of targets and staging are unspecified, and no rank reads the
///   source any more.
/// * A [`Pending`](Communicator::Pending) may be dropped or leaked instead of being waited for. An engine
///   must then stay sound: it lends the caller's memory to others only during `post` and `wait` themselves.
pub trait Communicator {
    /// Memory between which the engine transfers: `[u8]` for the host, a device-specific type for a device.
    type Buffer: ?Sized;
    /// Memory that the engine allocates.
    type Owned: BorrowMut<Self::Buffer>;
    /// An exchange that has begun.
    type Pending<'a>;

    /// Returns this rank, below [`size`](Communicator::size).
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Returns the maximum time to wait for a rank.
    fn timeout(&self) -> Duration;

    /// Allocates a buffer of at least `bytes` bytes, to be used as scratch by [`CompiledPlan::run`](crate::CompiledPlan::run).
    fn allocate(&self, bytes: usize) -> Result<Self::Owned, Error>;

    /// Returns the bytes of staging that this engine needs from the caller; 0 unless it packs messages.
    fn staging_bytes(&self, exchange: &Exchange) -> Result<usize, Error> {
        let _ = exchange;
        Ok(0)
    }

    /// Checks that all ranks of an exchange have the same plan.
    ///
    /// Compares [`Exchange::tag`] across the members. All members call it, once for every group of a plan and
    /// before any data is transferred, through [`CompiledPlan::scratch`](crate::CompiledPlan::scratch) or
    /// [`barrier`](Communicator::barrier). An engine may create its per-group state here. Ensures: no member
    /// returns before all have arrived, since their tags are unknown until then. [`Exchange::check_rank`] and
    /// [`Exchange::check_tags`] are the checks that engines share. Errors: [`Error::Mismatch`] on every
    /// member if the tags differ, and the communicator stays usable; or as [`wait`](Communicator::wait), if a
    /// member fails or does not arrive.
    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error>;

    /// Waits until all members of a group have arrived.
    ///
    /// Requires ascending members, including this rank, and that all of them call it, in the same order as
    /// the exchanges of the group. Ensures: no member returns before the last has arrived. Errors:
    /// [`Error::Group`], before any wait; [`Error::Mismatch`] if another member agrees on a plan instead; or
    /// as [`wait`](Communicator::wait), if a member fails or does not arrive.
    ///
    /// The default is an agreement on an empty exchange, since [`check_agreement`](Communicator::check_agreement) cannot return
    /// before it has heard from all members. An engine with a cheaper barrier may override it.
    ///
    /// ```
    /// use reshard_collectives::{Communicator, threads::World};
    /// let results = World::new(3)?.run(|comm| {
    ///     if comm.rank() > 0 {
    ///         comm.barrier(&[1, 2])?;
    ///     }
    ///     comm.barrier(&[0, 1, 2])
    /// });
    /// assert!(results.iter().all(Result::is_ok));
    /// # Ok::<(), reshard_collectives::Error>(())
    /// ```
    fn barrier(&mut self, members: &[usize]) -> Result<(), Error> {
        let meeting = Exchange::meeting(self.rank(), self.size(), members)?;
        if meeting.is_local() { Ok(()) } else { self.check_agreement(&meeting) }
    }

    /// Returns `true` if this engine wants this all-reduce as one exchange.
    ///
    /// Otherwise it runs as a reduce-scatter and an all-gather. Requires the same answer on all members,
    /// every time. The exchange's [`collective`](Exchange::collective) is an all-reduce; its receives
    /// describe the same as messages, which bring every rank the whole source of every other rank.
    fn all_reduces(&self, exchange: &Exchange) -> bool {
        let _ = exchange;
        false
    }

    /// Begins an exchange and does not wait for others.
    ///
    /// Requires buffers of at least the sizes in the exchange, and `staging` of
    /// [`staging_bytes`](Communicator::staging_bytes). [`Exchange::check_rank`], [`Exchange::check_buffers`]
    /// and [`Exchange::check_staging`] verify this.
    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a Self::Buffer,
        target: &'a mut Self::Buffer,
        staging: &'a mut Self::Buffer,
    ) -> Result<Self::Pending<'a>, Error>;

    /// Completes an exchange, and returns the buffers that were lent for writing.
    ///
    /// Write the parameter type as `Self::Pending<'a>` in an implementation; naming the concrete type fails
    /// with E0195.
    fn wait<'a>(&mut self, pending: Self::Pending<'a>) -> Result<ReturnedBuffers<'a, Self::Buffer>, Error>;

    /// Posts an exchange and waits for it.
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
            comm.wait(pending).map(drop)
        }
        once(self, exchange, source, target, staging)
    }
}
