//! The device operations that the engine needs: memory with addresses, and launches.

use reshard_cuda::{Command, Error};

/// A device, or a stand-in for one.
pub trait Backend: Clone + Send + Sync + core::fmt::Debug + 'static {
    /// An allocation; freed when dropped.
    type Memory: Send + Sync + core::fmt::Debug;
    /// Launches that can run repeatedly.
    type Prepared: Send + core::fmt::Debug;

    /// Returns the same device for another thread, with a separate queue.
    fn for_thread(&self) -> Result<Self, Error>;

    /// Allocates memory of at least `bytes` bytes, aligned to 256; its contents are unspecified.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, Error>;

    /// Returns its address.
    fn address(&self, memory: &Self::Memory) -> i64;

    /// Returns its length in bytes.
    fn len(&self, memory: &Self::Memory) -> usize;

    /// Writes bytes to the beginning of some memory.
    fn write(&self, memory: &mut Self::Memory, bytes: &[u8]) -> Result<(), Error>;

    /// Reads the beginning of some memory.
    fn read(&self, memory: &Self::Memory, bytes: &mut [u8]) -> Result<(), Error>;

    /// Prepares launches.
    fn prepare(&self, work: &[Command]) -> Result<Self::Prepared, Error>;

    /// Runs launches in order and waits for the last.
    ///
    /// Requires that they access memory of this device that lives for the call, and that writes of one thread
    /// do not conflict with accesses of others. Only the engine calls it, and it ensures both.
    fn run(&self, prepared: &Self::Prepared) -> Result<(), Error>;
}
