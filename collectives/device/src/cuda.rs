//! A CUDA device as the engine's backend.

use reshard_cuda::{Command, Device, DeviceMemory, Error, Graph, Prepared};

use crate::{Backend, Fused};

/// A CUDA device; each rank has a separate stream.
#[derive(Clone, Debug)]
pub struct Cuda {
    device: Device,
}

impl Cuda {
    /// Opens the device of this number.
    ///
    /// Errors: those of [`Device::open`].
    pub fn open(ordinal: usize) -> Result<Cuda, Error> {
        Ok(Cuda { device: Device::open(ordinal)? })
    }

    /// Wraps an open device, with its stream.
    pub fn on(device: Device) -> Cuda {
        Cuda { device }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Backend for Cuda {
    type Memory = DeviceMemory;
    type Prepared = Prepared;

    fn for_thread(&self) -> Result<Cuda, Error> {
        Ok(Cuda { device: self.device.with_own_stream()? })
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceMemory, Error> {
        let memory = self.device.allocate(bytes)?;
        // Other streams use it from now on.
        self.device.synchronize()?;
        Ok(memory)
    }

    fn address(&self, memory: &DeviceMemory) -> i64 {
        memory.address(&self.device) as i64
    }

    fn len(&self, memory: &DeviceMemory) -> usize {
        memory.len()
    }

    fn write(&self, memory: &mut DeviceMemory, bytes: &[u8]) -> Result<(), Error> {
        self.device.write(memory, bytes)?;
        self.device.synchronize()
    }

    fn read(&self, memory: &DeviceMemory, bytes: &mut [u8]) -> Result<(), Error> {
        let all = self.device.download(memory)?;
        let length = all.len();
        let needed = bytes.len();
        let beginning = all.get(..needed).ok_or_else(|| Error::Driver {
            call: "cuMemcpyDtoHAsync",
            reason: format!("{needed} bytes requested from a buffer of {length}"),
        })?;
        bytes.copy_from_slice(beginning);
        Ok(())
    }

    fn prepare(&self, work: &[Command]) -> Result<Prepared, Error> {
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

/// The captured launches of a plan: one call of the driver enqueues them all.
#[derive(Debug)]
pub struct Captured<'a> {
    fused: &'a mut Fused<Cuda>,
    graph: Graph,
}

impl Captured<'_> {
    /// Returns the plan, to write its sources and read its targets.
    pub fn fused(&mut self) -> &mut Fused<Cuda> {
        self.fused
    }

    /// Enqueues the plan on the device's stream and does not wait for it.
    #[allow(unsafe_code, reason = "launches by absolute addresses")]
    pub fn enqueue(&mut self) -> Result<(), Error> {
        // SAFETY: as for `Fused::enqueue`; the plan's buffers live as long as this.
        unsafe { self.graph.launch() }
    }
}

impl Fused<Cuda> {
    /// Captures the plan, to be enqueued as a whole; runs it once before, so that all kernels are loaded.
    ///
    /// Requires a device that was [opened for one stream](Device::open_for_one_stream). Errors: the driver's.
    pub fn capture(&mut self) -> Result<Captured<'_>, Error> {
        self.enqueue()?;
        self.parts().0.device.synchronize()?;
        let device = self.parts().0.device.clone();
        device.begin_capture()?;
        // A capture that has begun must end, whatever happens in it.
        let enqueued = self.enqueue();
        let graph = device.end_capture();
        enqueued?;
        Ok(Captured { graph: graph?, fused: self })
    }

    /// Enqueues the plan on the device's stream and does not wait for it.
    #[allow(unsafe_code, reason = "launches by absolute addresses")]
    pub fn enqueue(&mut self) -> Result<(), Error> {
        let (device, prepared) = self.parts();
        // SAFETY: the launches are those of the plan's own buffers, which are freed in the order of the same stream, and so
        // after the launches.
        unsafe { device.device.run(prepared) }
    }
}
