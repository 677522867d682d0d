//! What an engine must do: the contract that threads, MPI and device engines implement.
//!
//! # Data flow
//!
//! ```text
//! Plan --Compiled::new--> [Exchange; phases]      once per rank: copies, offsets, counts, peers, scratch sizes
//!                              |
//!        Compiled::run:  for each exchange:  post(exchange, source, target, staging);  wait
//!        Compiled::start, Started::finish:   the same, and between the first post and its wait the caller does what it likes
//! ```
//!
//! An engine never plans. An [`Exchange`] says, for one rank and one phase, which loop nests of whose source land in this
//! rank's target, and which of its own source others take. An engine has these ways to carry one out:
//!
//! * it can read its peers' memory: [`Receive::take`](crate::Receive::take) copies straight from there;
//! * it sends messages: [`Send::pack`](crate::Send::pack) and [`Receive::unpack`](crate::Receive::unpack), through the
//!   caller's staging buffer, or straight from and into the buffers where
//!   [`contiguous`](crate::Send::contiguous) says so;
//! * it has collectives: [`Exchange::collective`] says where the exchange is exactly one of contiguous blocks, and
//!   [`Exchange::op`] what it is where blocks must be packed;
//! * its memory is not the host's: [`Receive::pieces`](crate::Receive::pieces), [`Send::pieces`](crate::Send::pieces),
//!   [`Exchange::fills`] and [`Exchange::averages`] say everything as loop nests.

use std::borrow::BorrowMut;
use std::time::Duration;

use crate::{Error, Exchange};

/// The memory that an exchange was lent to write, given back by [`Communicator::wait`]: so that a plan's next phase reads it and writes
/// elsewhere.
#[derive(Debug)]
pub struct ReturnedBuffers<'a, B: ?Sized> {
    /// The exchange's target, complete.
    pub target: &'a mut B,
    /// Its staging.
    pub staging: &'a mut B,
}

/// A rank's end of an engine.
///
/// # The contract
///
/// * All members of a group post the same exchanges of that group in one order, and wait for them in one order. Several may be
///   posted before the first is waited for. The two orders are the same, but that a plan that was [started](crate::Compiled::start)
///   is finished, with its further exchanges, while first exchanges of others are in flight; so an engine that matches exchanges does so by the
///   order of all posts, or of all waits, or by [`Exchange::tag`] and the order of those with the same tag.
/// * [`barrier`](Communicator::barrier) holds every member until the last has come.
/// * [`Exchange::members`] are a group. Groups may overlap; no two ranks come to the exchanges of two groups in different
///   orders.
/// * When [`wait`](Communicator::wait) succeeds the target is complete, and nobody reads the source any more.
/// * When any rank of a group fails (it panics, returns an error, leaves, or stalls past the time-out), every other
///   member's [`wait`](Communicator::wait), [`agree`](Communicator::agree) or [`barrier`](Communicator::barrier) returns an
///   error that names it; none blocks for longer than the time-out.
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
    fn timeout(&self) -> Duration;

    /// Allocates a buffer of at least `bytes` bytes, to be used as scratch by [`Compiled::run`](crate::Compiled::run).
    fn allocate(&self, bytes: usize) -> Result<Self::Owned, Error>;

    /// Bytes of staging that this engine needs for an exchange, from the caller; none unless it packs messages.
    fn staging_bytes(&self, exchange: &Exchange) -> Result<usize, Error> {
        let _ = exchange;
        Ok(0)
    }

    /// Whether the ranks of an exchange mean the same plan: compares [`Exchange::tag`] with the other members'.
    ///
    /// Called by all members together, once for every group of a plan and before anything moves, by
    /// [`Compiled::scratch`](crate::Compiled::scratch), and by [`barrier`](Communicator::barrier); an engine may open here
    /// whatever it keeps per group.
    /// Ensures: nobody returns before all members have come, since nobody knows before what they mean.
    /// [`Exchange::check_rank`] and [`Exchange::check_tags`] are what engines have in common here.
    /// Errors: [`Error::Mismatch`] on every member if the tags are not all the same, and the communicator can be used as
    /// before; or as [`wait`](Communicator::wait), if a member fails or does not come.
    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error>;

    /// Waits until all members of a group have come here.
    ///
    /// Requires ascending members, this rank among them, and that all of them call it, in the same order as the exchanges
    /// of the group. Ensures: nobody returns before the last has come.
    /// Errors: [`Error::Group`], before anybody is waited for; [`Error::Mismatch`] where another member agrees on a plan
    /// instead; or as [`wait`](Communicator::wait), if a member fails or does not come.
    ///
    /// A barrier is an agreement on nothing, for [`agree`](Communicator::agree) cannot return before it has heard of
    /// everybody; an engine that can meet in less may say how.
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

    /// Whether this engine wants this all-reduce as one exchange, and not as a reduce-scatter and an all-gather.
    ///
    /// Requires the same answer on all members, every time. The exchange's [`collective`](Exchange::collective) is an
    /// all-reduce; its receives say the same as messages, which bring every rank every other's whole source.
    fn all_reduces(&self, exchange: &Exchange) -> bool {
        let _ = exchange;
        false
    }

    /// Begins an exchange and does not wait for others.
    ///
    /// Requires buffers of the sizes that the exchange says; `staging` of [`staging_bytes`](Communicator::staging_bytes).
    /// [`Exchange::check_rank`], [`Exchange::check_buffers`] and [`Exchange::check_staging`] say so.
    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a Self::Buffer,
        target: &'a mut Self::Buffer,
        staging: &'a mut Self::Buffer,
    ) -> Result<Self::Pending<'a>, Error>;

    /// Completes an exchange, and gives back what was lent to be written.
    ///
    /// An engine writes the parameter as it stands here, `Self::Pending<'a>`: the compiler takes another name of it for another signature.
    fn wait<'a>(&mut self, pending: Self::Pending<'a>) -> Result<ReturnedBuffers<'a, Self::Buffer>, Error>;

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
            comm.wait(pending).map(drop)
        }
        once(self, exchange, source, target, staging)
    }
}
