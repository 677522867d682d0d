//! A plan's run in two halves, so that independent work is computed between them.
//!
//! ```text
//! CompiledPlan::start   runs the local steps before the first communication; posts that
//!    |                      .. the memory stays borrowed, other plans may be started and finished ..
//! PendingRun::finish    waits for it, and runs the remaining phases
//! ```
//!
//! # Why ranks agree
//!
//! An engine may match exchanges by the order in which they are posted. Members of a group therefore have to
//! post in one order, also while several plans are in flight. So the plan, not the rank, determines which
//! exchange `start` posts:
//!
//! * the exchange of the plan's first step that communicates, if it is the first step of all or at most two
//!   phases remain;
//! * for a batch, the exchange of its first tensor that communicates at all, if it is in the first round.
//!
//! No communication comes before such an exchange on any of its members, so either all of them post it in
//! `start` or all do in `finish`; `start` stops at the first communication of its rank. Between two starts
//! and finishes all ranks do the same things in the same order, as far as they take part. Members of a group
//! thus post in one order and wait in one order.

use std::borrow::BorrowMut;
use std::fmt;

use crate::buffers::Buffers;
use crate::lower::Buffer;
use crate::{Communicator, CompiledPlan, Error, Scratch};

/// A plan that was [started](CompiledPlan::start) and is to be [finished](PendingRun::finish).
///
/// It may be dropped or leaked instead. Then the target's contents are unspecified, and ranks that finish
/// theirs find this one missing, as after a [`Pending`](Communicator::Pending) that is never waited for.
#[must_use = "a started plan must be finished"]
pub struct PendingRun<'a, C: Communicator + ?Sized> {
    compiled: &'a CompiledPlan,
    /// The buffer that is written by the exchange in flight.
    in_flight: Option<(Buffer, C::Pending<'a>)>,
    /// The stage to continue with.
    next: usize,
    buffers: Buffers<'a, C::Buffer>,
}

impl<C: Communicator + ?Sized> fmt::Debug for PendingRun<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started")
            .field("rank", &self.compiled.rank())
            .field("in_flight", &self.in_flight.is_some())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl CompiledPlan {
    /// Begins [`run`](CompiledPlan::run) without waiting for others.
    ///
    /// It runs the local stages and posts the first communication.
    /// Until it is [finished](PendingRun::finish) source, target and scratch are borrowed. Several plans may be
    /// started before the first is finished, each in separate scratch.
    ///
    /// ```
    /// use reshard_collectives::{Communicator, CompiledPlan, Error, threads::World};
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    ///
    /// let mesh = Mesh::new([("dp", 2)])?;
    /// let plan = |n: usize| {
    ///     let gradient = Sharding::parse(&mesh, &[n], "P")?;
    ///     Planner::new().plan(&gradient, &Sharding::parse(&mesh, &[n], "R")?, DType::U8)
    /// };
    /// let (weight, bias) = (plan(4)?, plan(2)?);
    /// let results = World::new(2)?.run(|comm| {
    ///     let (weight, bias) = (CompiledPlan::new(&weight, comm.rank())?, CompiledPlan::new(&bias, comm.rank())?);
    ///     let (mut dw, mut db) = ([0; 4], [0; 2]);
    ///     let (mut one, mut other) = (weight.scratch(comm)?, bias.scratch(comm)?);
    ///     let dw_sum = weight.start(comm, &[1, 2, 3, 4], &mut dw, &mut one)?;
    ///     // What does not need the sum is computed here.
    ///     let db_sum = bias.start(comm, &[5, 6], &mut db, &mut other)?;
    ///     dw_sum.finish(comm)?;
    ///     db_sum.finish(comm)?;
    ///     Ok::<_, Error>((dw, db))
    /// });
    /// assert_eq!(results, [Ok(([2, 4, 6, 8], [10, 12])), Ok(([2, 4, 6, 8], [10, 12]))]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Requires as [`run`](CompiledPlan::run), and that all ranks start and finish their plans in the same order:
    /// first started, first finished. The engine decides how much is transferred between the halves: engines
    /// that borrow memory only for the duration of a call, such as threads and MPI, transfer it in `finish`.
    /// Errors: as [`run`](CompiledPlan::run).
    pub fn start<'a, C: Communicator + ?Sized>(
        &'a self,
        comm: &mut C,
        source: &'a C::Buffer,
        target: &'a mut C::Buffer,
        scratch: &'a mut Scratch<C::Owned>,
    ) -> Result<PendingRun<'a, C>, Error> {
        let [first, second, staging] = self.lend(scratch)?;
        let scratch = [first.borrow_mut(), second.borrow_mut(), staging.borrow_mut()];
        let mut buffers = Buffers::new(source, target, scratch);
        for (at, stage) in self.stages().iter().enumerate() {
            let Some((between, exchange)) = self.carried_out(comm, stage) else { continue };
            if exchange.is_local() {
                buffers.exchange(comm, between, exchange)?;
            } else if stage.opens {
                let (source, target, staging) = buffers.lend(between, exchange)?;
                let pending = comm.post(exchange, source, target, staging)?;
                let in_flight = Some((between.1, pending));
                return Ok(PendingRun { compiled: self, in_flight, next: at + 1, buffers });
            } else {
                return Ok(PendingRun { compiled: self, in_flight: None, next: at, buffers });
            }
        }
        Ok(PendingRun { compiled: self, in_flight: None, next: self.stages().len(), buffers })
    }
}

impl<C: Communicator + ?Sized> PendingRun<'_, C> {
    /// Waits for the started exchange and runs the remaining stages.
    ///
    /// The target has the same bits as after [`run`](CompiledPlan::run).
    /// Requires the communicator that it was started with. Errors: as [`run`](CompiledPlan::run).
    pub fn finish(self, comm: &mut C) -> Result<(), Error> {
        let PendingRun { compiled, in_flight, next, mut buffers } = self;
        if let Some((to, pending)) = in_flight {
            let returned = comm.wait(pending)?;
            buffers.put_back(to, returned);
        }
        compiled.carry_out(comm, next, &mut buffers)
    }
}
