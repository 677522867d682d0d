//! NCCL itself, loaded at run time.
//!
//! Communicators are not blocking: a call that would wait for other ranks returns at once, and is polled
//! until it has been processed ([`Nccl::settled`]). A rank that never arrives thus costs only the timeout.
//! The price is an NCCL thread for each group of calls; a captured plan pays it once.
//!
//! The binding panics if a symbol is missing: every call goes through [`Library::call`].

#![allow(unsafe_code, reason = "calls into NCCL, and launches by absolute addresses")]

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{self, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t};
use reshard_cuda::{Device, Error, Graph, Library, Prepared};
use reshard_device::Cuda;
use reshard_kernels::CombineOp;

use crate::bootstrap::Rendezvous;
use crate::{Comm, Element, Handle, Nccl, UniqueId};

/// Timeout for other ranks when a communicator is closed, before it is aborted.
const PARTING: Duration = Duration::from_secs(10);
/// The value that NCCL's header writes to a new configuration.
const MAGIC: u32 = 0xcafe_beef;
const VERSION: u32 = 22403;
const UNDEFINED: i32 = i32::MIN;

/// This process's rank in NCCL, its device and its stream.
#[derive(Debug)]
pub struct Real {
    device: Cuda,
    rank: usize,
    size: usize,
    /// Null once aborted.
    comms: Vec<ncclComm_t>,
    in_group: bool,
}

/// Returns the error of an NCCL call, in NCCL's text; `comm` may be null.
fn said(call: &'static str, result: ncclResult_t, comm: ncclComm_t) -> Result<(), Error> {
    if matches!(result, ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress) {
        return Ok(());
    }
    let words = |text: *const c_char| {
        // SAFETY: NCCL returns null or a string that ends and lives until the next error of this thread.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    // SAFETY: takes any result.
    let general = words(unsafe { sys::ncclGetErrorString(result) });
    // SAFETY: takes a communicator that lives, or null.
    let last = words(unsafe { sys::ncclGetLastError(comm) });
    let last = last.trim();
    let reason = if last.is_empty() { general } else { format!("{general}: {last}") };
    Err(Error::Driver { call, reason })
}

fn int(number: usize) -> Result<i32, Error> {
    let reason = format!("{number} ranks exceed the maximum of NCCL");
    i32::try_from(number).map_err(|_| Error::Driver { call: "ncclCommInitRankConfig", reason })
}

fn data_type(element: Element) -> ncclDataType_t {
    match element {
        Element::I8 => ncclDataType_t::ncclInt8,
        Element::U8 => ncclDataType_t::ncclUint8,
        Element::I32 => ncclDataType_t::ncclInt32,
        Element::U32 => ncclDataType_t::ncclUint32,
        Element::I64 => ncclDataType_t::ncclInt64,
        Element::U64 => ncclDataType_t::ncclUint64,
        Element::F16 => ncclDataType_t::ncclFloat16,
        Element::BF16 => ncclDataType_t::ncclBfloat16,
        Element::F32 => ncclDataType_t::ncclFloat32,
        Element::F64 => ncclDataType_t::ncclFloat64,
    }
}

/// Returns NCCL's op; it has no norms, whose partial values are sent as messages.
fn reduction(op: CombineOp) -> Result<ncclRedOp_t, Error> {
    Ok(match op {
        CombineOp::Sum => ncclRedOp_t::ncclSum,
        CombineOp::Prod => ncclRedOp_t::ncclProd,
        CombineOp::Min => ncclRedOp_t::ncclMin,
        CombineOp::Max => ncclRedOp_t::ncclMax,
        CombineOp::Norm(_) => {
            return Err(Error::Driver { call: "ncclAllReduce", reason: format!("NCCL has no {op}") });
        }
    })
}

impl Real {
    /// Creates a new id, for one rank to create and all to know; see [`bootstrap`](crate::bootstrap).
    ///
    /// Errors: [`Error::Library`] without NCCL.
    pub fn make_id() -> Result<UniqueId, Error> {
        Library::Nccl.call(|| {
            let mut id = sys::ncclUniqueId { internal: [0; UniqueId::BYTES] };
            // SAFETY: writes to the id.
            said("ncclGetUniqueId", unsafe { sys::ncclGetUniqueId(&raw mut id) }, null_mut())?;
            Ok(UniqueId(id.internal.map(|byte| byte as u8)))
        })
    }

    /// Succeeds if the driver, NVRTC and NCCL can be loaded.
    ///
    /// Errors: [`Error::Library`], which names the library and the searched paths.
    #[doc(hidden)]
    pub fn check() -> Result<(), Error> {
        [Library::Driver, Library::Nvrtc, Library::Nccl].into_iter().try_for_each(Library::check)
    }

    /// Begins to open the communicator of all ranks on the device of this number.
    ///
    /// [`Comm::new`](crate::Comm::new) waits for it. Errors: [`Error::Library`] without a driver or NCCL, and
    /// the errors of both.
    pub fn open(ordinal: usize, id: &UniqueId, rank: usize, size: usize) -> Result<Real, Error> {
        Library::Nccl.check()?;
        if rank >= size {
            let reason = format!("rank {rank} must be less than the number of ranks, {size}");
            return Err(Error::Driver { call: "ncclCommInitRankConfig", reason });
        }
        let device = Cuda::on(Device::open_for_one_stream(ordinal)?);
        let mut real = Real { device, rank, size, comms: Vec::new(), in_group: false };
        real.open(id, rank, size)?;
        Ok(real)
    }

    /// Returns the version of the loaded NCCL, such as 22809.
    #[doc(hidden)]
    pub fn version() -> Result<usize, Error> {
        Library::Nccl.call(|| {
            let mut version = 0;
            // SAFETY: writes to the number.
            said("ncclGetVersion", unsafe { sys::ncclGetVersion(&raw mut version) }, null_mut())?;
            Ok(version as usize)
        })
    }

    fn comm(&self, on: Handle) -> Result<ncclComm_t, Error> {
        let comm = self.comms.get(on.0).copied().filter(|comm| !comm.is_null());
        let reason = || format!("communicator {} was aborted or never opened", on.0);
        comm.ok_or_else(|| Error::Driver { call: "a call of NCCL", reason: reason() })
    }

    fn stream(&self) -> sys::cudaStream_t {
        self.device.device().stream().cast()
    }

    /// Makes a call in a communicator, on the stream.
    fn call(
        &self,
        name: &'static str,
        on: Handle,
        call: impl FnOnce(ncclComm_t, sys::cudaStream_t) -> ncclResult_t,
    ) -> Result<(), Error> {
        let comm = self.comm(on)?;
        let stream = self.stream();
        Library::Nccl.call(|| said(name, call(comm, stream), comm))
    }

    /// Returns `true` if a communicator has completed its last call.
    fn state(comm: ncclComm_t) -> Result<bool, Error> {
        Library::Nccl.call(|| {
            let mut state = ncclResult_t::ncclSuccess;
            // SAFETY: the communicator lives; writes to the state.
            let asked = unsafe { sys::ncclCommGetAsyncError(comm, &raw mut state) };
            said("ncclCommGetAsyncError", asked, comm)?;
            said("a call of NCCL", state, comm)?;
            Ok(state != ncclResult_t::ncclInProgress)
        })
    }

    /// Closes a communicator jointly with its other members; aborts it if they do not arrive.
    fn close(comm: ncclComm_t) -> Result<(), Error> {
        // SAFETY: the communicator lives and nothing is under way in it.
        Library::Nccl.call(|| said("ncclCommFinalize", unsafe { sys::ncclCommFinalize(comm) }, comm))?;
        let start = Instant::now();
        while !Real::state(comm)? {
            if start.elapsed() >= PARTING {
                let reason = format!("the other ranks did not arrive within {PARTING:?}");
                return Err(Error::Driver { call: "ncclCommFinalize", reason });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        // SAFETY: the communicator lives, and is not used afterwards.
        Library::Nccl.call(|| said("ncclCommDestroy", unsafe { sys::ncclCommDestroy(comm) }, null_mut()))
    }
}

impl Comm<Real> {
    /// Opens this process's rank from torchrun's variables, on the device `LOCAL_RANK` (0 if unset).
    ///
    /// Requires that all ranks call it. Errors: variables that are missing or wrong, no driver, no NCCL,
    /// ranks that do not arrive in time.
    pub fn from_env(time_out: Duration) -> Result<Comm<Real>, reshard_collectives::Error> {
        let rendezvous = Rendezvous::from_env()?;
        let rank = rendezvous.rank;
        let refused = |message: String| reshard_collectives::Error::Engine { rank, message };
        let ordinal = match std::env::var("LOCAL_RANK") {
            Err(_) => 0,
            Ok(text) => {
                text.parse().map_err(|_| refused(format!("LOCAL_RANK is {text:?}, which is not a number")))?
            }
        };
        Real::check().map_err(|e| refused(e.to_string()))?;
        let id = rendezvous.meet(time_out, Real::make_id)?;
        let real = Real::open(ordinal, &id, rank, rendezvous.size).map_err(|e| refused(e.to_string()))?;
        Comm::with_time_out(real, time_out)
    }
}

impl Nccl for Real {
    type Device = Cuda;
    type Graph = Graph;

    fn device(&self) -> &Cuda {
        &self.device
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn communicators(&self) -> usize {
        self.comms.len()
    }

    fn unique_id(&mut self) -> Result<UniqueId, Error> {
        Real::make_id()
    }

    fn open(&mut self, id: &UniqueId, place: usize, size: usize) -> Result<Handle, Error> {
        self.device.device().bind()?;
        let (place, size) = (int(place)?, int(size)?);
        let id = sys::ncclUniqueId { internal: id.0.map(|byte| byte as c_char) };
        let mut config = sys::ncclConfig_t {
            size: size_of::<sys::ncclConfig_t>(),
            magic: MAGIC,
            version: VERSION,
            blocking: 0,
            cgaClusterSize: UNDEFINED,
            minCTAs: UNDEFINED,
            maxCTAs: UNDEFINED,
            netName: null(),
            splitShare: UNDEFINED,
        };
        let mut comm: ncclComm_t = null_mut();
        let opened = Library::Nccl.call(|| {
            // SAFETY: the pointed-to values outlive the call; the configuration is as the header initialises
            // it.
            let result =
                unsafe { sys::ncclCommInitRankConfig(&raw mut comm, size, id, place, &raw mut config) };
            said("ncclCommInitRankConfig", result, null_mut())
        });
        if !comm.is_null() {
            self.comms.push(comm);
        }
        opened?;
        Ok(Handle(self.comms.len() - 1))
    }

    fn launch(&mut self, work: &Arc<Prepared>) -> Result<(), Error> {
        // SAFETY: the engine made the launches for buffers that it checked, and holds both until they are
        // done; everything goes through this one stream.
        unsafe { self.device.device().run(work) }
    }

    fn group_start(&mut self) -> Result<(), Error> {
        self.device.device().bind()?;
        // SAFETY: takes nothing.
        Library::Nccl.call(|| said("ncclGroupStart", unsafe { sys::ncclGroupStart() }, null_mut()))?;
        self.in_group = true;
        Ok(())
    }

    fn group_end(&mut self) -> Result<(), Error> {
        self.in_group = false;
        // SAFETY: takes nothing.
        Library::Nccl.call(|| said("ncclGroupEnd", unsafe { sys::ncclGroupEnd() }, null_mut()))
    }

    fn send(&mut self, on: Handle, peer: usize, source: i64, bytes: usize) -> Result<(), Error> {
        let peer = int(peer)?;
        let kind = ncclDataType_t::ncclUint8;
        // SAFETY: the communicator and the stream live; so does the memory until the stream is done, see `Nccl`.
        self.call("ncclSend", on, |comm, stream| unsafe {
            sys::ncclSend(source as *const _, bytes, kind, peer, comm, stream)
        })
    }

    fn receive(&mut self, on: Handle, peer: usize, target: i64, bytes: usize) -> Result<(), Error> {
        let peer = int(peer)?;
        let kind = ncclDataType_t::ncclUint8;
        // SAFETY: as for `send`.
        self.call("ncclRecv", on, |comm, stream| unsafe {
            sys::ncclRecv(target as *mut _, bytes, kind, peer, comm, stream)
        })
    }

    fn all_gather(&mut self, on: Handle, source: i64, target: i64, bytes: usize) -> Result<(), Error> {
        let kind = ncclDataType_t::ncclUint8;
        // SAFETY: as for `send`.
        self.call("ncclAllGather", on, |comm, stream| unsafe {
            sys::ncclAllGather(source as *const _, target as *mut _, bytes, kind, comm, stream)
        })
    }

    fn reduce_scatter(
        &mut self,
        on: Handle,
        source: i64,
        target: i64,
        count: usize,
        element: Element,
        op: CombineOp,
    ) -> Result<(), Error> {
        let (kind, op) = (data_type(element), reduction(op)?);
        // SAFETY: as for `send`.
        self.call("ncclReduceScatter", on, |comm, stream| unsafe {
            sys::ncclReduceScatter(source as *const _, target as *mut _, count, kind, op, comm, stream)
        })
    }

    fn all_reduce(
        &mut self,
        on: Handle,
        source: i64,
        target: i64,
        count: usize,
        element: Element,
        op: CombineOp,
    ) -> Result<(), Error> {
        let (kind, op) = (data_type(element), reduction(op)?);
        // SAFETY: as for `send`.
        self.call("ncclAllReduce", on, |comm, stream| unsafe {
            sys::ncclAllReduce(source as *const _, target as *mut _, count, kind, op, comm, stream)
        })
    }

    fn settled(&mut self) -> Result<bool, Error> {
        self.comm(Handle::WORLD)?;
        for comm in &self.comms {
            if !Real::state(*comm)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn idle(&mut self) -> Result<bool, Error> {
        Ok(self.settled()? && self.device.device().is_idle()?)
    }

    fn abort(&mut self) {
        if std::mem::take(&mut self.in_group) {
            // The begun group is lost in any case.
            // SAFETY: takes nothing.
            let _ = Library::Nccl.call(|| said("ncclGroupEnd", unsafe { sys::ncclGroupEnd() }, null_mut()));
        }
        for comm in self.comms.drain(..).rev() {
            // SAFETY: the communicator lives, and is not used afterwards. There is no caller to report its
            // failure to.
            let _ =
                Library::Nccl.call(|| said("ncclCommAbort", unsafe { sys::ncclCommAbort(comm) }, null_mut()));
        }
    }

    fn begin_capture(&mut self) -> Result<(), Error> {
        self.device.device().begin_capture()
    }

    fn end_capture(&mut self) -> Result<Graph, Error> {
        self.device.device().end_capture()
    }

    fn replay(&mut self, graph: &Graph) -> Result<(), Error> {
        // SAFETY: the engine holds all that the graph uses together with it.
        unsafe { graph.launch() }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        while !std::thread::panicking()
            && let Some(comm) = self.comms.pop()
        {
            if Real::close(comm).is_err() {
                self.comms.push(comm);
                break;
            }
        }
        self.abort();
    }
}
