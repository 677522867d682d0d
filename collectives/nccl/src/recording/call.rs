//! The recorded calls of a stand-in, and the faults to inject into it.

use reshard_kernels::CombineOp;

use crate::{Element, Handle};

/// A call that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the parameters of the calls")]
pub enum Call {
    /// A communicator was opened.
    Open {
        place: usize,
        size: usize,
    },
    /// Kernels were launched.
    Launch {
        kernels: usize,
    },
    GroupStart,
    GroupEnd,
    Send {
        on: Handle,
        peer: usize,
        bytes: usize,
    },
    Receive {
        on: Handle,
        peer: usize,
        bytes: usize,
    },
    AllGather {
        on: Handle,
        bytes: usize,
    },
    ReduceScatter {
        on: Handle,
        count: usize,
        element: Element,
        op: CombineOp,
    },
    AllReduce {
        on: Handle,
        count: usize,
        element: Element,
        op: CombineOp,
    },
    Abort,
    BeginCapture,
    EndCapture,
    Replay,
}

/// A fault in one group of calls of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank that fails.
    pub rank: usize,
    /// The number of earlier groups of this rank.
    pub group: usize,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The call returns an error.
    Refused,
    /// The call succeeds, and an error is reported later.
    Asynchronous,
    /// The group never ends.
    Stalled,
}

impl Call {
    /// Returns the same call on the communicator of all ranks.
    pub(super) fn without_handle(self) -> Call {
        let on = Handle::WORLD;
        match self {
            Call::AllGather { bytes, .. } => Call::AllGather { on, bytes },
            Call::ReduceScatter { count, element, op, .. } => Call::ReduceScatter { on, count, element, op },
            Call::AllReduce { count, element, op, .. } => Call::AllReduce { on, count, element, op },
            Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Send { .. }
            | Call::Receive { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => self,
        }
    }
}
