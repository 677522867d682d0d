//! The calls of NCCL that the engine needs, and the single stream for all work.
//!
//! ```text
//! open ..settled          a communicator; all its members call this
//! launch, group_start, send, receive, all_gather, .., group_end ..settled    enqueue on the stream, in order
//! idle                    true if the stream has done all of it; reports asynchronous errors
//! ```
//!
//! No call here waits. Slow operations are polled until they are done, so that the engine can give up at its
//! timeout.

use std::fmt;
use std::sync::Arc;

use reshard_cuda::Error;
use reshard_device::Backend;
use reshard_kernels::{CombineOp, DType};

/// The id by which the members of a communicator find each other: 128 bytes that one of them creates.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId(pub [u8; UniqueId::BYTES]);

impl UniqueId {
    /// Size of the id in bytes.
    #[doc(hidden)]
    pub const BYTES: usize = 128;
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(")?;
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..)")
    }
}

/// One of the communicators of an [`Nccl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub usize);

impl Handle {
    /// The communicator of all ranks, which exists from the beginning.
    pub const WORLD: Handle = Handle(0);
}

/// An element type that NCCL can compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Element {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

impl Element {
    /// Returns NCCL's element type for a dtype; `None` if it has none.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_nccl::Element;
    /// assert_eq!(Element::of(DType::I64), Some(Element::I64));
    /// assert_eq!(Element::of(DType::I16), None);
    /// ```
    pub fn of(dtype: DType) -> Option<Element> {
        let all = [
            (DType::I8, Element::I8),
            (DType::U8, Element::U8),
            (DType::I32, Element::I32),
            (DType::U32, Element::U32),
            (DType::I64, Element::I64),
            (DType::U64, Element::U64),
            (DType::F16, Element::F16),
            (DType::BF16, Element::BF16),
            (DType::F32, Element::F32),
            (DType::F64, Element::F64),
        ];
        all.into_iter().find(|(of, _)| *of == dtype).map(|(_, element)| element)
    }

    /// Returns the dtype of this element type.
    pub fn dtype(self) -> DType {
        match self {
            Element::I8 => DType::I8,
            Element::U8 => DType::U8,
            Element::I32 => DType::I32,
            Element::U32 => DType::U32,
            Element::I64 => DType::I64,
            Element::U64 => DType::U64,
            Element::F16 => DType::F16,
            Element::BF16 => DType::BF16,
            Element::F32 => DType::F32,
            Element::F64 => DType::F64,
        }
    }
}

/// The calls of NCCL that the engine uses, and their stream.
///
/// Addresses are of memory of [`device`](Nccl::device) that lives until the enqueued work is done, or until
/// the communicators were aborted and the stream has stopped. The engine ensures this and is the only caller.
pub trait Nccl: fmt::Debug + 'static {
    /// The device of memory and launches.
    type Device: Backend;
    /// Captured work.
    type Graph: fmt::Debug;

    /// Returns the device; its memory is written, read and freed in the order of the stream.
    fn device(&self) -> &Self::Device;

    /// Returns this rank in [`Handle::WORLD`].
    fn rank(&self) -> usize;

    /// Returns the number of ranks of [`Handle::WORLD`].
    fn size(&self) -> usize;

    /// Returns the number of open communicators, including that of all ranks.
    fn communicators(&self) -> usize;

    /// Creates a new id, for one member to create and all to know.
    fn unique_id(&mut self) -> Result<UniqueId, Error>;

    /// Begins to open a communicator in which this rank has group rank `place`.
    ///
    /// It is open when [`settled`](Nccl::settled) returns `true`.
    fn open(&mut self, id: &UniqueId, place: usize, size: usize) -> Result<Handle, Error>;

    /// Enqueues launches.
    fn launch(&mut self, work: &Arc<<Self::Device as Backend>::Prepared>) -> Result<(), Error>;

    /// Begins a group: the following calls are launched as one.
    fn group_start(&mut self) -> Result<(), Error>;

    /// Ends the group and enqueues it.
    fn group_end(&mut self) -> Result<(), Error>;

    /// Sends bytes to the member of group rank `peer`. Only within a group.
    fn send(&mut self, on: Handle, peer: usize, source: i64, bytes: usize) -> Result<(), Error>;

    /// Receives bytes from the member of group rank `peer`. Only within a group.
    fn receive(&mut self, on: Handle, peer: usize, target: i64, bytes: usize) -> Result<(), Error>;

    /// Gathers every member's bytes on every member, in the order of group ranks. Only within a group.
    fn all_gather(&mut self, on: Handle, source: i64, target: i64, bytes: usize) -> Result<(), Error>;

    /// Reduces all members' i-th `count` elements onto the member of group rank i. Only within a group.
    fn reduce_scatter(
        &mut self,
        on: Handle,
        source: i64,
        target: i64,
        count: usize,
        element: Element,
        op: CombineOp,
    ) -> Result<(), Error>;

    /// Reduces all members' `count` elements onto every member. Only within a group.
    fn all_reduce(
        &mut self,
        on: Handle,
        source: i64,
        target: i64,
        count: usize,
        element: Element,
        op: CombineOp,
    ) -> Result<(), Error>;

    /// Returns `true` if NCCL has processed all calls, so that the next may be made.
    ///
    /// Reports asynchronous errors.
    fn settled(&mut self) -> Result<bool, Error>;

    /// Returns `true` if all enqueued work is done; reports asynchronous errors.
    fn idle(&mut self) -> Result<bool, Error>;

    /// Aborts all communicators and their work in progress. Only dropping may follow.
    fn abort(&mut self);

    /// Begins a capture: later calls are not run, but captured.
    fn begin_capture(&mut self) -> Result<(), Error>;

    /// Ends the capture.
    fn end_capture(&mut self) -> Result<Self::Graph, Error>;

    /// Enqueues the captured work.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), Error>;
}
