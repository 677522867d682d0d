//! A device whose one stream is shared with another library, polled without waiting, and captured.

use std::ffi::c_void;
use std::fmt;

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph};

use crate::device::driver;
use crate::{Device, Error, Library};

/// Captured launches, enqueued as one.
pub struct Graph {
    inner: CudaGraph,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device of this number, with all memory used on one stream: launches can be captured.
    ///
    /// A device of several streams puts an event between the uses of a buffer, and an event from outside of a capture
    /// ends it. Errors: those of [`Device::open`].
    #[allow(unsafe_code, reason = "turning off the binding's events")]
    pub fn open_for_one_stream(ordinal: usize) -> Result<Device, Error> {
        Library::Driver.call(|| {
            let context = CudaContext::new(ordinal).map_err(driver("cuDevicePrimaryCtxRetain"))?;
            // SAFETY: no memory of this context has been made; all that is made is used on the stream that is
            // opened here, as there is no other: `with_own_stream` returns an error.
            unsafe { context.disable_event_tracking() };
            Device::on(context)
        })
    }

    /// Returns the stream, for libraries that enqueue on it.
    pub fn stream(&self) -> *mut c_void {
        self.stream.cu_stream().cast()
    }

    /// Makes this device the calling thread's current device, for libraries that use the current device.
    #[doc(hidden)]
    pub fn bind(&self) -> Result<(), Error> {
        Library::Driver.call(|| self.context.bind_to_thread().map_err(driver("cuCtxSetCurrent")))
    }

    /// Returns `true` if all earlier work is done.
    #[allow(unsafe_code, reason = "a query of the stream")]
    #[doc(hidden)]
    pub fn is_idle(&self) -> Result<bool, Error> {
        self.bind()?;
        Library::Driver.call(|| {
            // SAFETY: the stream is this device's and lives.
            let said = unsafe { sys::cuStreamQuery(self.stream.cu_stream()) };
            if said == CUresult::CUDA_ERROR_NOT_READY {
                return Ok(false);
            }
            said.result().map(|()| true).map_err(driver("cuStreamQuery"))
        })
    }

    /// Begins a capture: later work of this thread is captured instead of run.
    #[doc(hidden)]
    pub fn begin_capture(&self) -> Result<(), Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        Library::Driver.call(|| self.stream.begin_capture(mode).map_err(driver("cuStreamBeginCapture")))
    }

    /// Ends the capture.
    ///
    /// Requires that all memory of the launches lives as long as the graph.
    #[doc(hidden)]
    pub fn end_capture(&self) -> Result<Graph, Error> {
        Library::Driver.call(|| {
            let flags = sys::CUgraphInstantiate_flags(0);
            let graph = self.stream.end_capture(flags).map_err(driver("cuStreamEndCapture"))?;
            let reason = "nothing was captured".to_owned();
            let inner = graph.ok_or(Error::Driver { call: "cuStreamEndCapture", reason })?;
            Ok(Graph { inner })
        })
    }
}

impl Graph {
    /// Enqueues the captured launches, on the stream that they were captured from.
    ///
    /// # Safety
    ///
    /// As for [`Device::run`]: all memory of the launches lives, without other users, until everything is
    /// done.
    #[allow(unsafe_code, reason = "launches by absolute addresses")]
    pub unsafe fn launch(&self) -> Result<(), Error> {
        Library::Driver.call(|| self.inner.launch().map_err(driver("cuGraphLaunch")))
    }
}
