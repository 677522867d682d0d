//! What the engine needs of a device: memory with addresses, and launches.

use reshard_cuda::{Command, Error};

/// A device, or what stands in for one.
pub trait Backend: Clone + Send + Sync + core::fmt::Debug + 'static {
    /// An allocation; freed when dropped.
    type Memory: Send + Sync + core::fmt::Debug;
    /// Launches that can be run again and again.
    type Prepared: Send + core::fmt::Debug;

    /// The same device for another thread, with a queue of its own.
    fn for_thread(&self) -> Result<Self, Error>;

    /// Memory of at least so many bytes, at a multiple of 256; its contents mean nothing.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, Error>;

    /// Where it begins.
    fn address(&self, memory: &Self::Memory) -> i64;

    /// How many bytes it has.
    fn len(&self, memory: &Self::Memory) -> usize;

    /// Writes bytes to the beginning of some memory.
    fn write(&self, memory: &mut Self::Memory, bytes: &[u8]) -> Result<(), Error>;

    /// Reads the beginning of some memory.
    fn read(&self, memory: &Self::Memory, bytes: &mut [u8]) -> Result<(), Error>;

    /// Makes launches ready.
    fn prepare(&self, work: &[Command]) -> Result<Self::Prepared, Error>;

    /// Runs launches in order and waits for the last.
    ///
    /// Requires that what they touch is memory of this device that lives for the call; writes of one thread and accesses of
    /// others do not meet. Only the engine calls it, which sees to both.
    fn run(&self, prepared: &Self::Prepared) -> Result<(), Error>;
}
