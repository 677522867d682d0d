//! Jobs through an engine: plans are executed by threads, processes or devices.

#[cfg(any(test, feature = "cuda"))]
pub(crate) mod device;
pub(crate) mod exchange;
pub(crate) mod held;
pub(crate) mod in_turn;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
#[cfg(any(test, feature = "nccl"))]
pub(crate) mod nccl;
pub(crate) mod one_process;
pub(crate) mod pipeline;
#[cfg(any(test, feature = "mpi", feature = "nccl"))]
pub(crate) mod processes;
#[cfg(test)]
pub(crate) mod stand_in;
pub(crate) mod together;
