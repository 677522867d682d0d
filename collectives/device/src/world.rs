//! All ranks of the engine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reshard_collectives::Error;
use reshard_collectives::internal::Fault;
use reshard_collectives::threads::World;

use crate::comm::Shown;
use crate::{Backend, DeviceComm};

/// Ranks that are threads of this process, with their shards on one device.
///
/// ```
/// use reshard_collectives::{Communicator, CompiledPlan, Error};
/// use reshard_device::{DeviceWorld, Simulated};
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh: Mesh = "dp=2".parse()?;
/// let gradient = Sharding::parse(&mesh, &[4], "P")?;
/// let plan = Planner::new().plan(&gradient, &Sharding::parse(&mesh, &[4], "R")?, DType::U8)?;
/// let results = DeviceWorld::new(Simulated::new(), 2)?.run(|comm| {
///     let compiled = CompiledPlan::new(&plan, comm.rank())?;
///     let mut scratch = compiled.scratch(comm)?;
///     let (mut source, mut target) = (comm.allocate(4)?, comm.allocate(4)?);
///     comm.write(&mut source, &[1 + comm.rank() as u8; 4])?;
///     compiled.run(comm, &source, &mut target, &mut scratch)?;
///     let mut sum = [0; 4];
///     comm.read(&target, &mut sum)?;
///     Ok::<_, Error>(sum)
/// });
/// assert_eq!(results, [Ok([3; 4]), Ok([3; 4])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceWorld<B: Backend> {
    inner: World,
    device: B,
    shown: Shown<B>,
}

impl<B: Backend> DeviceWorld<B> {
    /// Starts the threads of `ranks` ranks.
    ///
    /// Errors: those of [`World::new`].
    pub fn new(device: B, ranks: usize) -> Result<DeviceWorld<B>, Error> {
        let inner = World::new(ranks)?;
        let shown = Arc::new((0..ranks).map(|_| Mutex::new(None)).collect());
        Ok(DeviceWorld { inner, device, shown })
    }

    /// Returns the device.
    pub fn device(&self) -> &B {
        &self.device
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.inner.size()
    }

    /// Sets the timeout for waiting on other ranks; 60 seconds by default.
    pub fn set_time_out(&mut self, time_out: Duration) {
        self.inner.set_timeout(time_out);
    }

    /// Injects faults into the following runs, in place of earlier ones. For tests.
    #[doc(hidden)]
    pub fn plant(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.inner.inject_faults(faults);
    }

    /// Runs a job on every rank at the same time, as [`World::run`] does.
    pub fn run<T, E, F>(&mut self, job: F) -> Vec<Result<T, E>>
    where
        T: Send,
        E: From<Error> + std::fmt::Display + Send,
        F: Fn(&mut DeviceComm<'_, B>) -> Result<T, E> + Sync,
    {
        let (device, shown) = (&self.device, &self.shown);
        let results = self.inner.run(|comm| job(&mut DeviceComm::new(comm, device, shown)?));
        for slot in self.shown.iter() {
            // After a failure a source may still be published; all threads are done.
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        }
        results
    }
}
