//! What the engine needs of NCCL and of the one stream that everything goes through.
//!
//! ```text
//! open ..settled          a communicator, made together by its members
//! launch, group_start, send, receive, all_gather, .., group_end ..settled          enqueue on the stream, in order
//! idle                    whether the stream has done all of it; tells asynchronous errors
//! ```
//!
//! Nothing here waits: what takes time is asked for again until it is done, so that the engine can give up in time.

use std::fmt;
use std::sync::Arc;

use reshard_cuda::Error;
use reshard_device::Backend;
use reshard_kernels::{CombineOp, DType};

/// What the members of a communicator must have in common to find each other: 128 bytes that one of them made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId(pub [u8; UniqueId::BYTES]);

impl UniqueId {
    /// Its size.
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
    /// That of all ranks; it is there from the beginning.
    pub const WORLD: Handle = Handle(0);
}

/// An element type that NCCL can compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it all")]
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
    /// NCCL's name for a dtype; `None` if it has none.
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

    /// The dtype that it is.
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

/// The calls of NCCL that the engine uses, and the stream that they go through.
///
/// Addresses are of memory of [`device`](Nccl::device) that lives until what was enqueued is done, or the communicators
/// were aborted and the stream has stopped; the engine sees to it, and nobody else calls these.
pub trait Nccl: fmt::Debug + 'static {
    /// Where memory and launches are.
    type Device: Backend;
    /// What was captured.
    type Graph: fmt::Debug;

    /// The device; its memory is written, read and freed in the order of the stream.
    fn device(&self) -> &Self::Device;

    /// This rank in [`Handle::WORLD`].
    fn rank(&self) -> usize;

    /// The number of ranks of [`Handle::WORLD`].
    fn size(&self) -> usize;

    /// How many communicators are open, that of all ranks included.
    fn communicators(&self) -> usize;

    /// A new id, for one member to make and all to know.
    fn unique_id(&mut self) -> Result<UniqueId, Error>;

    /// Begins to open a communicator in which this rank is at `place`; it is open when all is [`settled`](Nccl::settled).
    fn open(&mut self, id: &UniqueId, place: usize, size: usize) -> Result<Handle, Error>;

    /// Enqueues launches.
    fn launch(&mut self, work: &Arc<<Self::Device as Backend>::Prepared>) -> Result<(), Error>;

    /// Begins a group: what follows happens together.
    fn group_start(&mut self) -> Result<(), Error>;

    /// Ends the group and enqueues it.
    fn group_end(&mut self) -> Result<(), Error>;

    /// Sends bytes to the member at `peer`. Only within a group.
    fn send(&mut self, on: Handle, peer: usize, source: i64, bytes: usize) -> Result<(), Error>;

    /// Receives bytes from the member at `peer`. Only within a group.
    fn receive(&mut self, on: Handle, peer: usize, target: i64, bytes: usize) -> Result<(), Error>;

    /// Every member's bytes to every member, in the order of their places. Only within a group.
    fn all_gather(&mut self, on: Handle, source: i64, target: i64, bytes: usize) -> Result<(), Error>;

    /// To the member at place i the reduction of everybody's i-th `count` elements. Only within a group.
    fn reduce_scatter(
        &mut self,
        on: Handle,
        source: i64,
        target: i64,
        count: usize,
        element: Element,
        op: CombineOp,
    ) -> Result<(), Error>;

    /// To everybody the reduction of everybody's `count` elements. Only within a group.
    fn all_reduce(
        &mut self,
        on: Handle,
        source: i64,
        target: i64,
        count: usize,
        element: Element,
        op: CombineOp,
    ) -> Result<(), Error>;

    /// Whether all calls have been taken in, so that the next may be made; tells asynchronous errors.
    fn settled(&mut self) -> Result<bool, Error>;

    /// Whether everything that was enqueued is done; tells asynchronous errors.
    fn idle(&mut self) -> Result<bool, Error>;

    /// Gives all communicators up, and what is under way in them. Nothing but dropping may follow.
    fn abort(&mut self);

    /// What is enqueued from now on is not carried out, but captured.
    fn begin_capture(&mut self) -> Result<(), Error>;

    /// Ends the capture.
    fn end_capture(&mut self) -> Result<Self::Graph, Error>;

    /// Enqueues what was captured.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), Error>;
}
