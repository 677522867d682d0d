//! Who carries plans out, and which ranks' shards lie in this process: all of them, or one.
//!
//! The whole job is one sequence (`pipeline`), written for a process that holds some of the ranks. What it asks of the others
//! is here: to share words, so that all pass a stage or none does, and to exchange shards.

use reshard_collectives::Error as EngineError;
use reshard_kernels::DType;
use reshard_layout::internal::counted;
use reshard_planner::Plan;
use reshard_sharding::Sharding;

use super::decision::Move;
use super::error::Error;
use super::held::Held;
use super::rooms::Rooms;

/// From where to where, and the bytes of a unit.
pub(crate) type Way = (Sharding, Sharding, usize);

/// Sees a new shard: of which tensor of a batch, of which rank. Those of one rank come one after the other, in the order of the
/// tensors.
pub(crate) type Arrived<'a> = &'a (dyn Fn(usize, usize, &mut Vec<u8>) -> Result<(), Error> + Sync);

/// A tensor that has been exchanged.
pub(crate) struct Moved {
    /// What the worst of this process's ranks received.
    pub(crate) received: u64,
    /// The whole of the new shards, in the first process.
    pub(crate) gathered: Option<Vec<u8>>,
}

/// The processes of a job, seen from one of them.
pub(crate) trait Exchange {
    /// Whether this process holds the shards of a rank.
    fn holds(&self, rank: usize) -> bool;

    /// Which process this is; the first, 0, writes what is one for all.
    fn process(&self) -> usize;

    /// Every process's words to every process, in their order; nobody returns before all have come.
    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError>;

    /// Plans every move, and where the whole is gathered, its way there.
    fn prepare(&mut self, moves: &[Move<'_>], gathers: bool) -> Result<(), Error>;

    /// Cuts the moves, in their order, into lists that are exchanged together.
    fn batches<'a, 'b>(&self, moves: &'a [Move<'b>]) -> Vec<&'a [Move<'b>]>;

    /// Gives this process's ranks their new shards of some tensors, each of which `arrived` sees once; and where the whole is
    /// gathered, makes it of them in the first process.
    fn exchange(
        &mut self,
        batch: &[Move<'_>],
        held: &[Held<'_>],
        rooms: &Rooms,
        gathers: bool,
        arrived: Arrived<'_>,
    ) -> Result<Vec<Moved>, Error>;

    /// The plan of a move.
    fn plan(&self, tensor: &Move<'_>) -> Result<&Plan, Error>;
}

/// The way of a tensor; those that share it share a plan.
pub(crate) fn way(tensor: &Move<'_>) -> Way {
    (tensor.unit_from.clone(), tensor.unit_to.clone(), tensor.units.bytes)
}

/// Any type of elements of this size: nothing is computed with them.
pub(crate) fn opaque(bytes: usize) -> DType {
    match bytes {
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => DType::U8,
    }
}

/// Succeeds if the worst rank received what a plan promised.
pub(crate) fn agrees(received_bytes: u64, plan: &Plan) -> Result<(), Error> {
    let promised = plan.received_bytes();
    if received_bytes == promised {
        return Ok(());
    }
    let message = format!(
        "the worst rank received {received_bytes}, and the plan promised {promised}",
        received_bytes = counted(received_bytes, "byte", "bytes")
    );
    Err(Error::failed("verification", message))
}

/// A way that nobody planned.
pub(crate) fn not_planned() -> Error {
    Error::failed("internal", "it was not planned")
}
