//! A CUDA device as the engine's backend.

use reshard_cuda::{Device, Error, Memory, Prepared, Work};

use crate::Backend;

/// A CUDA device; each rank has a stream of its own.
#[derive(Clone, Debug)]
pub struct Cuda {
    device: Device,
}

impl Cuda {
    /// The device of this number.
    ///
    /// Errors: those of [`Device::open`].
    pub fn open(ordinal: usize) -> Result<Cuda, Error> {
        Ok(Cuda { device: Device::open(ordinal)? })
    }

    /// A device that is open, with its stream.
    pub fn on(device: Device) -> Cuda {
        Cuda { device }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Backend for Cuda {
    type Memory = Memory;
    type Prepared = Prepared;

    fn for_thread(&self) -> Result<Cuda, Error> {
        Ok(Cuda { device: self.device.with_own_stream()? })
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, Error> {
        let memory = self.device.allocate(bytes)?;
        // Other streams use it from now on.
        self.device.synchronize()?;
        Ok(memory)
    }

    fn address(&self, memory: &Memory) -> i64 {
        memory.address(&self.device) as i64
    }

    fn len(&self, memory: &Memory) -> usize {
        memory.len()
    }

    fn write(&self, memory: &mut Memory, bytes: &[u8]) -> Result<(), Error> {
        self.device.write(memory, bytes)?;
        self.device.synchronize()
    }

    fn read(&self, memory: &Memory, bytes: &mut [u8]) -> Result<(), Error> {
        let all = self.device.download(memory)?;
        let length = all.len();
        let needed = bytes.len();
        let beginning = all.get(..needed).ok_or_else(|| Error::Driver {
            call: "cuMemcpyDtoHAsync",
            reason: format!("{needed} bytes of {length}"),
        })?;
        bytes.copy_from_slice(beginning);
        Ok(())
    }

    fn prepare(&self, work: &[Work]) -> Result<Prepared, Error> {
        let prepared = self.device.prepare(work)?;
        self.device.synchronize()?;
        Ok(prepared)
    }

    #[allow(unsafe_code, reason = "launches by absolute addresses")]
    fn run(&self, prepared: &Prepared) -> Result<(), Error> {
        // SAFETY: the engine prepared the launches for buffers that it checked against the exchange, holds until this
        // returns, and writes from one rank only; this waits for the last launch.
        unsafe { self.device.run(prepared)? };
        self.device.synchronize()
    }
}

impl crate::Fused<Cuda> {
    /// Enqueues the plan on the device's stream and does not wait for it.
    #[allow(unsafe_code, reason = "launches by absolute addresses")]
    pub fn enqueue(&mut self) -> Result<(), Error> {
        let (device, prepared) = self.parts();
        // SAFETY: the launches are those of the plan's own buffers, which are freed in the order of the same stream, and so
        // after the launches.
        unsafe { device.device.run(prepared) }
    }
}
