//! A simulated device: its memory is the host's, and launches run by their definition.
//!
//! Addresses are virtual, and every access looks up its allocation, so that a launch that leaves its buffers
//! is an error.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reshard_cuda::simulate::{self, Addressed};
use reshard_cuda::{Command, Error};

use crate::Backend;

/// The simulated device; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Simulated {
    arena: Arc<Mutex<Arena>>,
    next: Arc<AtomicI64>,
}

/// All live memory, by address.
#[derive(Debug, Default)]
struct Arena(BTreeMap<i64, Vec<u8>>);

/// An allocation of the simulated device.
#[derive(Debug)]
pub struct Allocation {
    device: Simulated,
    address: i64,
    bytes: usize,
}

impl Simulated {
    /// Creates a device without memory in use.
    pub fn new() -> Simulated {
        Simulated::default()
    }

    /// Returns the number of live allocations.
    #[doc(hidden)]
    pub fn allocations(&self) -> usize {
        self.memory().0.len()
    }

    /// Reads bytes at an address.
    ///
    /// Errors: the bytes are not all in one live allocation.
    #[doc(hidden)]
    pub fn load(&self, address: i64, bytes: &mut [u8]) -> Result<(), Error> {
        self.memory().read(address, bytes)
    }

    /// Writes bytes at an address.
    ///
    /// Errors: as [`load`](Simulated::load).
    #[doc(hidden)]
    pub fn store(&self, address: i64, bytes: &[u8]) -> Result<(), Error> {
        self.memory().write(address, bytes)
    }

    fn memory(&self) -> MutexGuard<'_, Arena> {
        // Bytes stay valid, also after a panic elsewhere.
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arena {
    /// Returns the allocation that contains these bytes at an address, and their offset in it.
    fn find(&self, address: i64, bytes: usize) -> Result<(i64, usize), Error> {
        let outside = || Error::Driver {
            call: "a kernel",
            reason: format!("no allocation has {bytes} bytes at address {address:#x}"),
        };
        let (start, memory) = self.0.range(..=address).next_back().ok_or_else(outside)?;
        let offset = (address - start) as usize;
        if memory.len() < offset + bytes { Err(outside()) } else { Ok((*start, offset)) }
    }
}

impl Addressed for Arena {
    fn read(&self, address: i64, bytes: &mut [u8]) -> Result<(), Error> {
        let (start, offset) = self.find(address, bytes.len())?;
        bytes.copy_from_slice(&self.0[&start][offset..offset + bytes.len()]);
        Ok(())
    }

    fn write(&mut self, address: i64, bytes: &[u8]) -> Result<(), Error> {
        let (start, offset) = self.find(address, bytes.len())?;
        if let Some(memory) = self.0.get_mut(&start) {
            memory[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.memory().0.remove(&self.address);
    }
}

impl Backend for Simulated {
    type Memory = Allocation;
    type Prepared = Vec<Command>;

    fn for_thread(&self) -> Result<Simulated, Error> {
        Ok(self.clone())
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(bytes).map_err(|_| Error::Driver {
            call: "allocate",
            reason: format!("cannot allocate {bytes} bytes"),
        })?;
        memory.resize(bytes, 0xee);
        // Address 0 is never used, and neighbours do not touch.
        let step = bytes as i64 / 256 * 256 + 512;
        let address = self.next.fetch_add(step, Ordering::Relaxed) + 256;
        self.memory().0.insert(address, memory);
        Ok(Allocation { device: self.clone(), address, bytes })
    }

    fn address(&self, memory: &Allocation) -> i64 {
        memory.address
    }

    fn len(&self, memory: &Allocation) -> usize {
        memory.bytes
    }

    fn write(&self, memory: &mut Allocation, bytes: &[u8]) -> Result<(), Error> {
        self.memory().write(memory.address, bytes)
    }

    fn read(&self, memory: &Allocation, bytes: &mut [u8]) -> Result<(), Error> {
        self.memory().read(memory.address, bytes)
    }

    fn prepare(&self, work: &[Command]) -> Result<Vec<Command>, Error> {
        Ok(work.to_vec())
    }

    fn run(&self, prepared: &Vec<Command>) -> Result<(), Error> {
        let mut memory = self.memory();
        for work in prepared {
            match work {
                Command::Copies(batch) => {
                    batch.jobs().iter().try_for_each(|job| simulate::copy(&mut *memory, job))?;
                }
                Command::Element { launch, bases, divisor } => {
                    simulate::elementwise(&mut *memory, launch.kernel, &launch.job, bases, *divisor)?;
                }
            }
        }
        Ok(())
    }
}
