//! What a stand-in was called, and what may go wrong in it.

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
    /// So many kernels were launched.
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

/// Something that goes wrong in one group of calls of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank that it happens to.
    pub rank: usize,
    /// How many groups of this rank came before.
    pub group: usize,
    /// What happens.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The call is refused.
    Refused,
    /// The call succeeds, and an error is told later.
    Asynchronous,
    /// The group never ends.
    Stalled,
}

impl Call {
    /// The same call on the communicator of all.
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
