//! A stand-in for NCCL: every call is recorded, and the data goes between ranks that are threads of this
//! process.
//!
//! # Data flow
//!
//! ```text
//! call --> log of the rank                                 the calls with counts, peers and group brackets
//!      --> queue of the rank, in stream order --poll-->  head is a launch: run it by its definition
//!                                                        head is a group:  post all its sends; wait until
//!                                                                          all its messages exist; receive
//! ```
//!
//! Sends and receives match by communicator, sender, receiver and order; collectives by communicator and
//! order. Ranks that call different collectives, or with different counts, get an error, while NCCL would
//! hang or write wrong bytes. Each rank has a separate simulated device, so that an address of one is invalid
//! on another.

mod call;
mod delivery;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reshard_cuda::{Command, Error};
use reshard_device::{Backend, Simulated};
use reshard_kernels::CombineOp;

use crate::{Element, Handle, Nccl, UniqueId};

pub use call::{Call, Fault, FaultKind};

/// All ranks of the stand-in.
#[derive(Debug)]
pub struct RecordingWorld {
    shared: Arc<Mutex<Shared>>,
    devices: Vec<Simulated>,
}

/// State shared by the ranks.
#[derive(Debug, Default)]
struct Shared {
    ids: u64,
    opened: HashMap<UniqueId, usize>,
    /// Messages that were sent and not received: by communicator, sender and receiver.
    mail: HashMap<(UniqueId, usize, usize), VecDeque<Vec<u8>>>,
    /// Collectives in progress: by communicator and number.
    rounds: HashMap<(UniqueId, u64), Round>,
    faults: Vec<Fault>,
    logs: Vec<Vec<Call>>,
}

/// A collective in progress: the call and the bytes of each member.
#[derive(Debug)]
struct Round {
    calls: Vec<Option<(Call, Vec<u8>)>>,
    taken: usize,
}

/// One rank of a [`RecordingWorld`].
#[derive(Debug)]
pub struct Recording {
    rank: usize,
    size: usize,
    device: Simulated,
    shared: Arc<Mutex<Shared>>,
    members: Vec<Member>,
    /// The number of communicators that all members have opened; none is ever closed.
    open: usize,
    group: Option<Vec<Op>>,
    groups: usize,
    queue: VecDeque<Item>,
    capture: Option<Vec<Item>>,
    stalled: bool,
    poisoned: bool,
    aborted: bool,
}

/// This rank in a communicator.
#[derive(Clone, Debug)]
struct Member {
    id: UniqueId,
    place: usize,
    size: usize,
    /// The number of earlier collectives.
    rounds: u64,
}

/// An entry of a queue.
#[derive(Clone, Debug)]
enum Item {
    Launch(Arc<Vec<Command>>),
    Group { ops: Vec<Op>, posted: bool },
}

/// A call in a group, with its addresses.
#[derive(Clone, Debug)]
struct Op {
    call: Call,
    source: i64,
    target: i64,
    round: u64,
}

/// A captured part of a queue.
#[derive(Clone, Debug)]
pub struct Recorded(Vec<Item>);

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Records stay valid, also after a panic elsewhere.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(call: &'static str, reason: impl Into<String>) -> Error {
    Error::Driver { call, reason: reason.into() }
}

impl RecordingWorld {
    /// Creates a world of `ranks` ranks.
    pub fn new(ranks: usize) -> RecordingWorld {
        let shared = Shared { logs: vec![Vec::new(); ranks], ..Shared::default() };
        let devices = (0..ranks).map(|_| Simulated::new()).collect();
        RecordingWorld { shared: Arc::new(Mutex::new(shared)), devices }
    }

    /// Returns a rank; each may be taken once.
    pub fn rank(&self, rank: usize) -> Recording {
        let size = self.devices.len();
        let member = Member { id: UniqueId([0; UniqueId::BYTES]), place: rank, size, rounds: 0 };
        *lock(&self.shared).opened.entry(member.id).or_default() += 1;
        Recording {
            rank,
            size,
            device: self.devices[rank].clone(),
            shared: Arc::clone(&self.shared),
            members: vec![member],
            open: 0,
            group: None,
            groups: 0,
            queue: VecDeque::new(),
            capture: None,
            stalled: false,
            poisoned: false,
            aborted: false,
        }
    }

    /// Runs a job on every rank, each a thread, and returns the results in rank order.
    ///
    /// Panics if a job panics.
    pub fn run<T: Send>(&self, job: impl Fn(Recording) -> T + Sync) -> Vec<T> {
        let job = &job;
        std::thread::scope(|scope| {
            let start = |rank| scope.spawn(move || job(self.rank(rank)));
            let threads: Vec<_> = (0..self.devices.len()).map(start).collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, T>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect()
        })
    }

    /// Returns the calls of a rank since the last time.
    pub fn take_log(&self, rank: usize) -> Vec<Call> {
        std::mem::take(&mut lock(&self.shared).logs[rank])
    }

    /// Injects faults, in place of earlier ones.
    pub fn plant(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.shared).faults = faults.into_iter().collect();
    }

    /// Returns the number of live allocations on a rank's device.
    pub fn allocations(&self, rank: usize) -> usize {
        self.devices[rank].allocations()
    }

    /// Returns the number of messages never received, plus that of collectives not ended on all members.
    pub fn left_over(&self) -> usize {
        let shared = lock(&self.shared);
        shared.mail.values().map(VecDeque::len).sum::<usize>() + shared.rounds.len()
    }
}

impl Recording {
    fn log(&self, call: Call) {
        lock(&self.shared).logs[self.rank].push(call);
    }

    fn enqueue(&mut self, item: Item) {
        match &mut self.capture {
            Some(captured) => captured.push(item),
            None => self.queue.push_back(item),
        }
    }

    fn alive(&self) -> Result<(), Error> {
        if self.aborted {
            return Err(wrong("a call", "the communicator was aborted"));
        }
        Ok(())
    }

    fn add(&mut self, call: Call, source: i64, target: i64) -> Result<(), Error> {
        self.alive()?;
        self.log(call);
        let group = self.group.as_mut().ok_or_else(|| wrong("a call", "it is not within a group"))?;
        group.push(Op { call, source, target, round: 0 });
        Ok(())
    }

    /// Runs all ready entries; returns `true` if none is left.
    fn progress(&mut self) -> Result<bool, Error> {
        if self.poisoned {
            return Err(wrong("ncclCommGetAsyncError", "remote process exited or there was a network error"));
        }
        if self.stalled {
            return Ok(self.queue.is_empty());
        }
        while let Some(mut item) = self.queue.pop_front() {
            let done = match &mut item {
                Item::Launch(work) => self.device.run(work).map(|()| true),
                Item::Group { ops, posted } => self.exchange(ops, posted),
            };
            if !done? {
                self.queue.push_front(item);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn member(&self, on: Handle) -> Result<&Member, Error> {
        self.members.get(on.0).ok_or_else(|| wrong("a call", format!("there is no communicator {}", on.0)))
    }
}

impl Nccl for Recording {
    type Device = Simulated;
    type Graph = Recorded;

    fn device(&self) -> &Simulated {
        &self.device
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn communicators(&self) -> usize {
        self.members.len()
    }

    fn unique_id(&mut self) -> Result<UniqueId, Error> {
        self.alive()?;
        let mut shared = lock(&self.shared);
        shared.ids += 1;
        let mut id = UniqueId([0; UniqueId::BYTES]);
        id.0[..8].copy_from_slice(&shared.ids.to_le_bytes());
        Ok(id)
    }

    fn open(&mut self, id: &UniqueId, place: usize, size: usize) -> Result<Handle, Error> {
        self.alive()?;
        self.log(Call::Open { place, size });
        *lock(&self.shared).opened.entry(*id).or_default() += 1;
        self.members.push(Member { id: *id, place, size, rounds: 0 });
        Ok(Handle(self.members.len() - 1))
    }

    fn launch(&mut self, work: &Arc<Vec<Command>>) -> Result<(), Error> {
        self.alive()?;
        self.log(Call::Launch { kernels: work.len() });
        self.enqueue(Item::Launch(Arc::clone(work)));
        Ok(())
    }

    fn group_start(&mut self) -> Result<(), Error> {
        self.alive()?;
        self.log(Call::GroupStart);
        if self.group.is_some() {
            return Err(wrong("ncclGroupStart", "a group has begun and not ended"));
        }
        self.group = Some(Vec::new());
        Ok(())
    }

    fn group_end(&mut self) -> Result<(), Error> {
        self.alive()?;
        self.log(Call::GroupEnd);
        let ops = self.group.take().ok_or_else(|| wrong("ncclGroupEnd", "no group has begun"))?;
        let (rank, group) = (self.rank, self.groups);
        self.groups += 1;
        let planted = |fault: &&Fault| fault.rank == rank && fault.group == group;
        let kind = lock(&self.shared).faults.iter().find(planted).map(|fault| fault.kind);
        match kind {
            Some(FaultKind::Refused) => return Err(wrong("ncclGroupEnd", "unhandled system error")),
            Some(FaultKind::Asynchronous) => self.poisoned = true,
            Some(FaultKind::Stalled) => self.stalled = true,
            None => {}
        }
        self.enqueue(Item::Group { ops, posted: false });
        Ok(())
    }

    fn send(&mut self, on: Handle, peer: usize, source: i64, bytes: usize) -> Result<(), Error> {
        self.add(Call::Send { on, peer, bytes }, source, 0)
    }

    fn receive(&mut self, on: Handle, peer: usize, target: i64, bytes: usize) -> Result<(), Error> {
        self.add(Call::Receive { on, peer, bytes }, 0, target)
    }

    fn all_gather(&mut self, on: Handle, source: i64, target: i64, bytes: usize) -> Result<(), Error> {
        self.add(Call::AllGather { on, bytes }, source, target)
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
        self.add(Call::ReduceScatter { on, count, element, op }, source, target)
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
        self.add(Call::AllReduce { on, count, element, op }, source, target)
    }

    fn settled(&mut self) -> Result<bool, Error> {
        self.progress()?;
        let shared = lock(&self.shared);
        while let Some(member) = self.members.get(self.open)
            && shared.opened.get(&member.id) >= Some(&member.size)
        {
            self.open += 1;
        }
        Ok(self.open == self.members.len())
    }

    fn idle(&mut self) -> Result<bool, Error> {
        self.progress()
    }

    fn abort(&mut self) {
        if !self.aborted {
            self.log(Call::Abort);
        }
        self.aborted = true;
        self.queue.clear();
        self.capture = None;
    }

    fn begin_capture(&mut self) -> Result<(), Error> {
        self.alive()?;
        self.log(Call::BeginCapture);
        self.capture = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&mut self) -> Result<Recorded, Error> {
        self.alive()?;
        self.log(Call::EndCapture);
        let captured = self.capture.take();
        captured.map(Recorded).ok_or_else(|| wrong("cuStreamEndCapture", "no capture has begun"))
    }

    fn replay(&mut self, graph: &Recorded) -> Result<(), Error> {
        self.alive()?;
        self.log(Call::Replay);
        self.queue.extend(graph.0.iter().cloned());
        Ok(())
    }
}
