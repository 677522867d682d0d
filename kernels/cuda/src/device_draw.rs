//! Random elements that are drawn on a device.

use cudarc::driver::{DeviceRepr, PushKernelArg};
use reshard_kernels::random::{Draw, Key, Recipe};
use reshard_kernels::{CopySide, DType, LoopNest, PreparedCopy};

use crate::device::{check, driver, grid};
use crate::draws::{DrawKernel, draws};
use crate::library::Library;
use crate::select::{Launch, Launches};
use crate::{Device, DeviceMemory, Error, Program};

/// A recipe as an argument of a kernel.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
struct Argument(Recipe);

// SAFETY: a recipe is plain numbers without padding, laid out as `Recipe` in `cu/random.cu`.
#[allow(unsafe_code, reason = "a recipe is passed to kernels by value")]
unsafe impl DeviceRepr for Argument {}

/// Random elements along a nest, prepared for a device: the same bits as those of [`reshard_kernels::random::fill`].
#[derive(Clone, Debug)]
pub struct DeviceDraw {
    launches: Launches<DrawKernel>,
    recipe: Argument,
    target: usize,
}

impl DeviceDraw {
    /// Prepares `target[place] = element(key, draw, index)` for every (index, target offset) of a nest.
    ///
    /// Errors: those of [`Recipe::new`] and [`draws`].
    pub fn new(nest: &LoopNest, key: &Key, draw: Draw, dtype: DType) -> Result<DeviceDraw, Error> {
        let recipe = Argument(Recipe::new(key, draw, dtype)?);
        let launches = draws(nest, dtype)?;
        let target = PreparedCopy::new(nest, dtype.element_bytes()?)?.target_range().end;
        Ok(DeviceDraw { launches, recipe, target })
    }

    /// Returns the launches, in order.
    pub fn launches(&self) -> &[Launch<DrawKernel>] {
        &self.launches
    }

    /// Enqueues the draw.
    ///
    /// Errors: a buffer that is too short, and those of the driver.
    #[allow(unsafe_code, reason = "a launch")]
    pub fn run(&self, device: &Device, target: &mut DeviceMemory) -> Result<(), Error> {
        check(CopySide::Target, self.target, target.len())?;
        let address = target.address(device);
        for l in &self.launches {
            let function = device.function(Program::Random(l.kernel.dtype), l.kernel.name())?;
            Library::Driver.call(|| {
                let mut call = device.stream.launch_builder(&function);
                call.arg(&l.job).arg(&self.recipe).arg(&address);
                // SAFETY: the arguments are those of the kernel; the job stays within the buffer, whose length was just
                // compared with the end of its nest.
                unsafe { call.launch(grid(l.blocks)) }.map_err(driver("cuLaunchKernel"))
            })?;
        }
        Ok(())
    }
}
