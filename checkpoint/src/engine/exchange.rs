//! Execution of plans, and the assignment of ranks to processes: this process holds all ranks, or one.
//!
//! The whole job is one sequence (`pipeline`), written for a process that holds some of the ranks. This
//! module is its interface to the other processes: they share words, so that all pass a stage or none does,
//! and exchange shards.

use reshard_collectives::Error as EngineError;
use reshard_kernels::DType;
use reshard_layout::internal::counted;
use reshard_planner::Plan;
use reshard_sharding::Sharding;

use crate::engine::held::Held;
use crate::error::Error;
use crate::job::decision::Move;
use crate::rooms::Rooms;

/// Source and target sharding, and the bytes of a unit.
pub(crate) type Way = (Sharding, Sharding, usize);

/// Receives a new shard, with the number of its tensor in the batch and its rank.
///
/// The shards of one rank come in the order of the tensors.
pub(crate) type Arrived<'a> = &'a (dyn Fn(usize, usize, &mut Vec<u8>) -> Result<(), Error> + Sync);

/// The result of an exchanged tensor.
pub(crate) struct Moved {
    /// The most bytes that a rank of this process received.
    pub(crate) received: u64,
    /// The global tensor, in the first process, if it is gathered.
    pub(crate) gathered: Option<Vec<u8>>,
}

/// The processes of a job, as seen from one of them.
pub(crate) trait Exchange {
    /// Returns `true` if this process holds the shards of a rank.
    fn holds(&self, rank: usize) -> bool;

    /// Returns the index of this process; process 0 writes the files that exist once per job.
    fn process(&self) -> usize;

    /// Sends this process's words to all; returns every process's words in order, once all have arrived.
    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError>;

    /// Plans every redistribution and, if the whole is gathered, the plan for that.
    fn prepare(&mut self, moves: &[Move<'_>], gathers: bool) -> Result<(), Error>;

    /// Splits the redistributions, in their order, into batches that are exchanged jointly.
    fn batches<'a, 'b>(&self, moves: &'a [Move<'b>]) -> Vec<&'a [Move<'b>]>;

    /// Gives this process's ranks their new shards of some tensors, and calls `arrived` once with each.
    ///
    /// If the whole is gathered, the first process assembles it from them.
    fn exchange(
        &mut self,
        batch: &[Move<'_>],
        held: &[Held<'_>],
        rooms: &Rooms,
        gathers: bool,
        arrived: Arrived<'_>,
    ) -> Result<Vec<Moved>, Error>;

    /// Returns the plan of a redistribution.
    fn plan(&self, tensor: &Move<'_>) -> Result<&Plan, Error>;
}

/// Returns the key of a tensor's plan; tensors with the same key share a plan.
pub(crate) fn way(tensor: &Move<'_>) -> Way {
    (tensor.unit_from.clone(), tensor.unit_to.clone(), tensor.units.bytes)
}

/// Returns an element type of this size; any will do, because no arithmetic is done on the elements.
pub(crate) fn opaque(bytes: usize) -> DType {
    match bytes {
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => DType::U8,
    }
}

/// Succeeds if the worst rank received the number of bytes that the plan predicts.
pub(crate) fn agrees(received_bytes: u64, plan: &Plan) -> Result<(), Error> {
    let promised = plan.received_bytes();
    if received_bytes == promised {
        return Ok(());
    }
    let message = format!(
        "the busiest rank received {received_bytes}, but the plan predicts {promised}",
        received_bytes = counted(received_bytes, "byte", "bytes")
    );
    Err(Error::verification(message))
}

/// Returns the error for a redistribution without a plan.
pub(crate) fn not_planned() -> Error {
    Error::internal("it has no plan")
}
