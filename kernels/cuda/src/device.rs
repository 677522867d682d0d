//! A device, its memory, and launches on it.
//!
//! Everything goes through one stream, in the order of the calls; [`Device::synchronize`] waits for all of
//! it. A prepared [`DeviceCopy`], [`DeviceBatch`] or [`DeviceCombine`] knows the accessed range of either
//! buffer, which is compared with the buffers before each launch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DriverError};
use cudarc::driver::{DevicePtr, DevicePtrMut, DeviceRepr, LaunchConfig, PushKernelArg, SyncOnDrop};
use reshard_kernels::{CombineOp, CopySide, DType, LoopNest, PreparedCopy};

use crate::library::Library;
use crate::select::{Alignment, CopyKernel, ElementKernel, ElementOp, Launch, Launches, copies, elementwise};
use crate::{Arch, Batch, Command, Error, Job, Program, THREADS, compile, exported};

// SAFETY: a job is plain numbers without padding, laid out as `Job` in `cu/index.cuh`.
#[allow(unsafe_code, reason = "a job is passed to kernels by value")]
unsafe impl DeviceRepr for Job {}

/// A CUDA device with its own stream and the kernels that were loaded on it.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    arch: Arch,
    modules: Arc<Mutex<HashMap<Program, Arc<CudaModule>>>>,
    functions: Arc<Mutex<HashMap<(Program, String), CudaFunction>>>,
}

/// Memory of a device, aligned to 256 bytes.
#[derive(Debug)]
pub struct DeviceMemory {
    slice: CudaSlice<u8>,
}

impl DeviceMemory {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Returns its address on the device, for work that is enqueued on this stream.
    pub fn address(&self, device: &Device) -> u64 {
        self.slice.device_ptr(&device.stream).0
    }

    /// Returns `true` if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pub(crate) fn driver(call: &'static str) -> impl Fn(DriverError) -> Error {
    move |e| Error::Driver { call, reason: format!("{:?}", e.0) }
}

impl Device {
    /// Opens the device of this number.
    ///
    /// Errors: [`Error::Library`] without a driver, [`Error::Driver`] for a device that does not exist.
    pub fn open(ordinal: usize) -> Result<Device, Error> {
        Library::Driver.call(|| {
            let context = CudaContext::new(ordinal).map_err(driver("cuDevicePrimaryCtxRetain"))?;
            Device::on(context)
        })
    }

    /// Wraps a device with a new stream.
    pub(crate) fn on(context: Arc<CudaContext>) -> Result<Device, Error> {
        Library::Driver.call(|| {
            let attribute = |a| context.attribute(a).map_err(driver("cuDeviceGetAttribute"));
            let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let arch = Arch { major: major as u32, minor: minor as u32 };
            let stream = context.new_stream().map_err(driver("cuStreamCreate"))?;
            Ok(Device { context, stream, arch, modules: Arc::default(), functions: Arc::default() })
        })
    }

    /// Returns its compute capability.
    #[doc(hidden)]
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Returns its name, such as `NVIDIA H200`.
    pub fn name(&self) -> Result<String, Error> {
        Library::Driver.call(|| self.context.name().map_err(driver("cuDeviceGetName")))
    }

    /// Allocates `bytes` bytes of memory, all 0.
    #[doc(hidden)]
    pub fn allocate(&self, bytes: usize) -> Result<DeviceMemory, Error> {
        Library::Driver.call(|| {
            let slice = self.stream.alloc_zeros(bytes.max(1)).map_err(driver("cuMemAlloc"))?;
            Ok(DeviceMemory { slice })
        })
    }

    /// Allocates memory with these bytes.
    #[doc(hidden)]
    pub fn upload(&self, bytes: &[u8]) -> Result<DeviceMemory, Error> {
        Library::Driver.call(|| {
            let mut slice = self.stream.alloc_zeros(bytes.len().max(1)).map_err(driver("cuMemAlloc"))?;
            self.stream.memcpy_htod(bytes, &mut slice).map_err(driver("cuMemcpyHtoDAsync"))?;
            Ok(DeviceMemory { slice })
        })
    }

    /// Returns the bytes of some memory, after all earlier work is done.
    #[doc(hidden)]
    pub fn download(&self, memory: &DeviceMemory) -> Result<Vec<u8>, Error> {
        Library::Driver.call(|| self.stream.clone_dtoh(&memory.slice).map_err(driver("cuMemcpyDtoHAsync")))
    }

    /// Copies memory byte by byte with the driver, as the reference for the speed of copies.
    #[doc(hidden)]
    pub fn copy_all(&self, target: &mut DeviceMemory, source: &DeviceMemory) -> Result<(), Error> {
        check(CopySide::Target, source.len(), target.len())?;
        Library::Driver.call(|| {
            self.stream.memcpy_dtod(&source.slice, &mut target.slice).map_err(driver("cuMemcpyDtoDAsync"))
        })
    }

    /// Waits until all earlier work is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        Library::Driver.call(|| self.stream.synchronize().map_err(driver("cuStreamSynchronize")))
    }

    /// Returns the milliseconds that the device spends on the work that a closure enqueues.
    #[doc(hidden)]
    pub fn time_ms(&self, enqueue: impl FnOnce() -> Result<(), Error>) -> Result<f32, Error> {
        let event = || {
            Library::Driver.call(|| {
                let flags = Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT);
                self.stream.record_event(flags).map_err(driver("cuEventRecord"))
            })
        };
        let start = event()?;
        enqueue()?;
        let end = event()?;
        Library::Driver.call(|| start.elapsed_ms(&end).map_err(driver("cuEventElapsedTime")))
    }

    /// Returns a kernel, compiled and loaded at its first use.
    pub(crate) fn function(&self, program: Program, name: &str) -> Result<CudaFunction, Error> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&(program, name.to_owned())) {
            return Ok(function.clone());
        }
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = if let Some(module) = modules.get(&program) {
            module.clone()
        } else {
            let image = cudarc::nvrtc::Ptx::from_binary(compile(program, self.arch)?.cubin.clone());
            let load = || self.context.load_module(image).map_err(driver("cuModuleLoadData"));
            let module = Library::Driver.call(load)?;
            modules.insert(program, module.clone());
            module
        };
        let function = Library::Driver
            .call(|| module.load_function(&exported(name)).map_err(driver("cuModuleGetFunction")))?;
        functions.insert((program, name.to_owned()), function.clone());
        Ok(function)
    }
}

pub(crate) fn grid(blocks: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

pub(crate) fn check(side: CopySide, needed: usize, length: usize) -> Result<(), Error> {
    if needed <= length {
        return Ok(());
    }
    let end = needed as i64;
    Err(reshard_kernels::Error::OutOfBounds { side, first: 0, end, length: Some(length) }.into())
}

/// Returns the bytes that a nest needs of each buffer.
fn needs(nest: &LoopNest, item_bytes: usize) -> Result<(usize, usize), Error> {
    let copy = PreparedCopy::new(nest, item_bytes)?;
    Ok((copy.source_range().end, copy.target_range().end))
}

/// An address with a guard, which notifies other streams of an enqueued use when it is dropped.
type Use<'a> = (u64, SyncOnDrop<'a>);

/// Returns the addresses of a launch: a source to read and a target to write on this device's stream.
fn uses<'a>(
    device: &'a Device,
    source: &'a DeviceMemory,
    target: &'a mut DeviceMemory,
) -> (Use<'a>, Use<'a>) {
    (source.slice.device_ptr(&device.stream), target.slice.device_ptr_mut(&device.stream))
}

/// A copy along a nest, prepared for a device.
#[derive(Clone, Debug)]
pub struct DeviceCopy {
    launches: Launches<CopyKernel>,
    source: usize,
    target: usize,
}

impl DeviceCopy {
    /// Prepares a copy of elements of `item_bytes` bytes.
    ///
    /// Errors: those of [`copies`].
    pub fn new(nest: &LoopNest, item_bytes: usize) -> Result<DeviceCopy, Error> {
        let (source, target) = needs(nest, item_bytes)?;
        Ok(DeviceCopy { launches: copies(nest, item_bytes, Alignment::FULL)?, source, target })
    }

    /// Returns the launches, in order.
    pub fn launches(&self) -> &[Launch<CopyKernel>] {
        &self.launches
    }

    /// Enqueues the copy.
    ///
    /// Errors: a buffer that is too short, and those of the driver.
    #[allow(unsafe_code, reason = "a launch")]
    pub fn run(
        &self,
        device: &Device,
        target: &mut DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<(), Error> {
        check(CopySide::Source, self.source, source.len())?;
        check(CopySide::Target, self.target, target.len())?;
        for l in &self.launches {
            let function = device.function(Program::Copy, &l.kernel.name())?;
            Library::Driver.call(|| {
                let mut call = device.stream.launch_builder(&function);
                call.arg(&l.job).arg(&source.slice).arg(&mut target.slice);
                // SAFETY: the arguments are those of the kernel; the job stays within both buffers, whose
                // lengths were just compared with the ends of its nest.
                unsafe { call.launch(grid(l.blocks)) }.map_err(driver("cuLaunchKernel"))
            })?;
        }
        Ok(())
    }
}

/// Many copies between the same two buffers in one launch, prepared for a device.
#[derive(Debug)]
pub struct DeviceBatch {
    batch: Option<BatchOnDevice>,
    source: usize,
    target: usize,
}

/// A batch in device memory.
#[derive(Debug)]
struct BatchOnDevice {
    image: CudaSlice<u64>,
    count: u32,
    blocks: u32,
}

impl DeviceBatch {
    /// Prepares copies along nests of elements of `item_bytes` bytes.
    ///
    /// Requires that no two of them write the same element. Errors: those of [`copies`] and [`Batch::new`].
    pub fn new(device: &Device, nests: &[LoopNest], item_bytes: usize) -> Result<DeviceBatch, Error> {
        let (mut source, mut target) = (0, 0);
        let mut launches = Vec::new();
        for nest in nests {
            let (s, t) = needs(nest, item_bytes)?;
            (source, target) = (source.max(s), target.max(t));
            launches.extend(copies(nest, item_bytes, Alignment::FULL)?);
        }
        let batch = Batch::new(launches)?;
        let batch = if batch.jobs().is_empty() { None } else { Some(device.upload_batch(&batch)?) };
        Ok(DeviceBatch { batch, source, target })
    }

    /// Returns the number of jobs, all in one launch.
    pub fn jobs(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.count as usize)
    }

    /// Enqueues the copies.
    ///
    /// Errors: a buffer that is too short, and those of the driver.
    #[allow(unsafe_code, reason = "a launch")]
    pub fn run(
        &self,
        device: &Device,
        target: &mut DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<(), Error> {
        check(CopySide::Source, self.source, source.len())?;
        check(CopySide::Target, self.target, target.len())?;
        let Some(batch) = &self.batch else { return Ok(()) };
        let ((source, _read), (target, _written)) = uses(device, source, target);
        // SAFETY: every job stays within both buffers, whose lengths were just compared with the ends of all
        // nests.
        unsafe { device.copy_jobs(batch, source, target) }
    }
}

/// A reduction along a nest, prepared for a device.
#[derive(Clone, Debug)]
pub struct DeviceCombine {
    launches: Launches<ElementKernel>,
    source: usize,
    target: usize,
    divisor: f64,
}

impl DeviceCombine {
    /// Prepares `target = target op source`.
    ///
    /// Errors: those of [`elementwise`].
    pub fn new(nest: &LoopNest, dtype: DType, op: CombineOp) -> Result<DeviceCombine, Error> {
        let (source, target) = needs(nest, dtype.element_bytes()?)?;
        let launches = elementwise(nest, dtype, ElementOp::Combine(op), Alignment::FULL)?;
        Ok(DeviceCombine { launches, source, target, divisor: 1.0 })
    }

    /// Prepares `target = target / divisor`; the source is not read.
    ///
    /// Errors: those of [`elementwise`], and a divisor of 0.
    pub fn divide(nest: &LoopNest, dtype: DType, divisor: usize) -> Result<DeviceCombine, Error> {
        // Every divisor and nest that the host rejects is rejected here.
        reshard_kernels::PreparedDivide::new(nest, dtype, divisor)?;
        let (_, target) = needs(nest, dtype.element_bytes()?)?;
        let launches = elementwise(nest, dtype, ElementOp::Divide, Alignment::FULL)?;
        Ok(DeviceCombine { launches, source: 0, target, divisor: divisor as f64 })
    }

    /// Enqueues the reduction.
    ///
    /// Errors: a buffer that is too short, and those of the driver.
    #[allow(unsafe_code, reason = "a launch")]
    pub fn run(
        &self,
        device: &Device,
        target: &mut DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<(), Error> {
        check(CopySide::Source, self.source, source.len())?;
        check(CopySide::Target, self.target, target.len())?;
        let ((source, _read), (target, _written)) = uses(device, source, target);
        for l in &self.launches {
            // SAFETY: the job stays within both buffers, whose lengths were just compared with the ends of
            // its nest.
            unsafe { device.element(l, None, 0, self.divisor, source, target)? };
        }
        Ok(())
    }
}

/// Launches by absolute addresses, with their input on the device.
#[derive(Debug)]
pub struct Prepared {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Copies(BatchOnDevice),
    Element { launch: Box<Launch<ElementKernel>>, bases: Option<CudaSlice<i64>>, terms: u32, divisor: f64 },
}

impl Device {
    /// Returns the same device with a separate stream.
    ///
    /// Errors: a device that was [opened for one stream](Device::open_for_one_stream).
    #[doc(hidden)]
    pub fn with_own_stream(&self) -> Result<Device, Error> {
        if !self.context.is_event_tracking() {
            let reason = "the device was opened for one stream, which is in use".to_owned();
            return Err(Error::Driver { call: "cuStreamCreate", reason });
        }
        let stream = Library::Driver.call(|| self.context.new_stream().map_err(driver("cuStreamCreate")))?;
        Ok(Device { stream, ..self.clone() })
    }

    /// Writes bytes to the beginning of some memory, after all earlier work.
    ///
    /// Errors: more bytes than there is memory, and those of the driver.
    #[doc(hidden)]
    pub fn write(&self, memory: &mut DeviceMemory, bytes: &[u8]) -> Result<(), Error> {
        check(CopySide::Target, bytes.len(), memory.len())?;
        Library::Driver.call(|| {
            let mut place = memory.slice.slice_mut(..bytes.len());
            self.stream.memcpy_htod(bytes, &mut place).map_err(driver("cuMemcpyHtoDAsync"))
        })
    }

    fn upload_batch(&self, batch: &Batch) -> Result<BatchOnDevice, Error> {
        let upload = || self.stream.clone_htod(&batch.image()).map_err(driver("cuMemcpyHtoDAsync"));
        let image = Library::Driver.call(upload)?;
        let (count, blocks) = (batch.jobs().len() as u32, batch.blocks());
        Ok(BatchOnDevice { image, count, blocks })
    }

    /// Prepares launches to be run repeatedly.
    #[doc(hidden)]
    pub fn prepare(&self, work: &[Command]) -> Result<Prepared, Error> {
        let part = |work: &Command| match work {
            Command::Copies(batch) => Ok(Part::Copies(self.upload_batch(batch)?)),
            Command::Element { launch, bases, divisor } => Library::Driver.call(|| {
                let upload = || self.stream.clone_htod(bases.as_slice()).map_err(driver("cuMemcpyHtoDAsync"));
                let on_device = if bases.is_empty() { None } else { Some(upload()?) };
                Ok(Part::Element {
                    launch: launch.clone(),
                    bases: on_device,
                    terms: bases.len() as u32,
                    divisor: *divisor as f64,
                })
            }),
        };
        Ok(Prepared { parts: work.iter().map(part).collect::<Result<_, Error>>()? })
    }

    /// Enqueues prepared launches.
    ///
    /// # Safety
    ///
    /// All addresses that the launches read and write belong to memory of this device that lives, and that no
    /// other work uses, until everything enqueued here is done.
    #[allow(unsafe_code, reason = "launches by absolute addresses")]
    #[doc(hidden)]
    pub unsafe fn run(&self, prepared: &Prepared) -> Result<(), Error> {
        for part in &prepared.parts {
            match part {
                // SAFETY: the caller vouches for the addresses.
                Part::Copies(batch) => unsafe { self.copy_jobs(batch, 0, 0)? },
                Part::Element { launch, bases, terms, divisor } => {
                    // SAFETY: the caller vouches for the addresses.
                    unsafe { self.element(launch, bases.as_ref(), *terms, *divisor, 0, 0)? };
                }
            }
        }
        Ok(())
    }

    /// Launches a batch of copies.
    ///
    /// # Safety
    ///
    /// All accesses of the jobs, relative to these addresses, are to memory of this device that lives.
    #[allow(unsafe_code, reason = "a launch")]
    unsafe fn copy_jobs(&self, batch: &BatchOnDevice, source: u64, target: u64) -> Result<(), Error> {
        let function = self.function(Program::Copy, "copy_jobs")?;
        Library::Driver.call(|| {
            let mut call = self.stream.launch_builder(&function);
            call.arg(&batch.image).arg(&batch.count).arg(&source).arg(&target);
            // SAFETY: the arguments are those of the kernel; the caller vouches for the addresses.
            unsafe { call.launch(grid(batch.blocks)) }.map_err(driver("cuLaunchKernel"))?;
            Ok(())
        })
    }

    /// Launches an elementwise kernel.
    ///
    /// # Safety
    ///
    /// All accesses of the job, relative to these addresses, are to memory of this device that lives.
    #[allow(unsafe_code, reason = "a launch")]
    unsafe fn element(
        &self,
        launch: &Launch<ElementKernel>,
        bases: Option<&CudaSlice<i64>>,
        terms: u32,
        divisor: f64,
        source: u64,
        target: u64,
    ) -> Result<(), Error> {
        let function = self.function(Program::Element(launch.kernel.dtype), &launch.kernel.name())?;
        let exponent = launch.kernel.exponent();
        // Norms are not divided: their kernels have the exponent in the position of the divisor.
        let number = exponent.unwrap_or(divisor);
        Library::Driver.call(|| {
            let mut call = self.stream.launch_builder(&function);
            call.arg(&launch.job);
            match (launch.kernel.op, bases) {
                (ElementOp::Combine(_), _) if exponent.is_some() => call.arg(&number).arg(&source),
                (ElementOp::Combine(_), _) => call.arg(&source),
                (ElementOp::Divide, _) => call.arg(&number),
                (ElementOp::Reduce(_), Some(bases)) => call.arg(bases).arg(&terms).arg(&number).arg(&source),
                (ElementOp::Reduce(_), None) => {
                    let reason = "a reduction has no operands".to_owned();
                    return Err(Error::Driver { call: "cuLaunchKernel", reason });
                }
            };
            call.arg(&target);
            // SAFETY: the arguments are those of the kernel; the caller vouches for the addresses.
            unsafe { call.launch(grid(launch.blocks)) }.map_err(driver("cuLaunchKernel"))?;
            Ok(())
        })
    }
}
