//! NCCL that is not there: every call is recorded, and the data goes between ranks that are threads of this process.
//!
//! # Data flow
//!
//! ```text
//! call --> log of the rank                                     which calls, counts, peers, in which brackets
//!      --> queue of the rank, in the order of its stream --poll-->  head is a launch:  carried out by its definition
//!                                                                   head is a group:   post all that it sends; wait until
//!                                                                                      all that it receives is there; take it
//! ```
//!
//! Sends and receives match by communicator, sender, receiver and order; collectives by communicator and order. Ranks that
//! call different collectives, or count differently, are told, where NCCL would hang or write wrong bytes. Each rank has a
//! simulated device of its own, so that an address of one means nothing on another.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reshard_cuda::{Error, Work};
use reshard_device::{Backend, Simulated};
use reshard_kernels::{Combine, CombineOp, Loop, Nest};

use crate::{Element, Handle, Nccl, UniqueId};

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

/// All ranks of the stand-in.
#[derive(Debug)]
pub struct RecordingWorld {
    shared: Arc<Mutex<Shared>>,
    devices: Vec<Simulated>,
}

/// What ranks share.
#[derive(Debug, Default)]
struct Shared {
    ids: u64,
    opened: HashMap<UniqueId, usize>,
    /// What was sent and not received: by communicator, sender and receiver.
    mail: HashMap<(UniqueId, usize, usize), VecDeque<Vec<u8>>>,
    /// Collectives under way: by communicator and number.
    rounds: HashMap<(UniqueId, u64), Round>,
    faults: Vec<Fault>,
    logs: Vec<Vec<Call>>,
}

/// A collective under way: what each member has called, and with which bytes.
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
    /// How many collectives came before.
    rounds: u64,
}

/// What is in a queue.
#[derive(Clone, Debug)]
enum Item {
    Launch(Arc<Vec<Work>>),
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

/// A captured stretch of a queue.
#[derive(Clone, Debug)]
pub struct Recorded(Vec<Item>);

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Records are records, also after a panic elsewhere.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(call: &'static str, reason: impl Into<String>) -> Error {
    Error::Driver { call, reason: reason.into() }
}

impl RecordingWorld {
    /// So many ranks.
    pub fn new(ranks: usize) -> RecordingWorld {
        let shared = Shared { logs: vec![Vec::new(); ranks], ..Shared::default() };
        let devices = (0..ranks).map(|_| Simulated::new()).collect();
        RecordingWorld { shared: Arc::new(Mutex::new(shared)), devices }
    }

    /// A rank; each is to be taken once.
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
            group: None,
            groups: 0,
            queue: VecDeque::new(),
            capture: None,
            stalled: false,
            poisoned: false,
            aborted: false,
        }
    }

    /// Runs a job on every rank, each a thread, and returns what they made of it in rank order.
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

    /// Hands out what a rank has called since the last time.
    pub fn take_log(&self, rank: usize) -> Vec<Call> {
        std::mem::take(&mut lock(&self.shared).logs[rank])
    }

    /// Plants faults, instead of those planted before.
    pub fn plant(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.shared).faults = faults.into_iter().collect();
    }

    /// How many allocations live on a rank's device.
    pub fn allocations(&self, rank: usize) -> usize {
        self.devices[rank].allocations()
    }

    /// Messages that were sent and never received, and collectives that not all members have ended.
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

    /// Carries out what can be; whether that is all.
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

    /// A group: whether all of it is done.
    fn exchange(&mut self, ops: &mut [Op], posted: &mut bool) -> Result<bool, Error> {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        if !*posted {
            ops.iter_mut().try_for_each(|op| self.give(op, &mut shared))?;
            *posted = true;
        }
        let mut expected: HashMap<(UniqueId, usize, usize), usize> = HashMap::new();
        for op in &*ops {
            match op.call {
                Call::Receive { on, peer, .. } => {
                    let member = self.member(on)?;
                    *expected.entry((member.id, peer, member.place)).or_default() += 1;
                }
                Call::AllGather { on, .. } | Call::ReduceScatter { on, .. } | Call::AllReduce { on, .. } => {
                    let round = shared.rounds.get(&(self.member(on)?.id, op.round));
                    if !round.is_some_and(|round| round.calls.iter().all(Option::is_some)) {
                        return Ok(false);
                    }
                }
                Call::Open { .. }
                | Call::Launch { .. }
                | Call::GroupStart
                | Call::GroupEnd
                | Call::Send { .. }
                | Call::Abort
                | Call::BeginCapture
                | Call::EndCapture
                | Call::Replay => {}
            }
        }
        let is_there = |(key, count): (&(UniqueId, usize, usize), &usize)| {
            shared.mail.get(key).is_some_and(|mail| mail.len() >= *count)
        };
        if !expected.iter().all(is_there) {
            return Ok(false);
        }
        ops.iter().try_for_each(|op| self.take(op, &mut shared))?;
        Ok(true)
    }

    /// What this rank gives to the others.
    fn give(&mut self, op: &mut Op, shared: &mut Shared) -> Result<(), Error> {
        let (on, bytes) = match op.call {
            Call::Send { on, peer, bytes } => {
                let mut message = vec![0; bytes];
                self.device.load(op.source, &mut message)?;
                let member = self.member(on)?;
                if peer >= member.size {
                    return Err(wrong("ncclSend", format!("peer {peer} of {} members", member.size)));
                }
                let key = (member.id, member.place, peer);
                shared.mail.entry(key).or_default().push_back(message);
                return Ok(());
            }
            Call::AllGather { on, bytes } => (on, bytes),
            Call::ReduceScatter { on, count, element, .. } => {
                (on, count * element.dtype().item_bytes()? * self.member(on)?.size)
            }
            Call::AllReduce { on, count, element, .. } => (on, count * element.dtype().item_bytes()?),
            Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Receive { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => return Ok(()),
        };
        let mut mine = vec![0; bytes];
        self.device.load(op.source, &mut mine)?;
        let (id, place, size, number) = {
            let member = &mut self.members[on.0];
            member.rounds += 1;
            (member.id, member.place, member.size, member.rounds)
        };
        op.round = number;
        let round = shared.rounds.entry((id, number));
        let round = round.or_insert_with(|| Round { calls: vec![None; size], taken: 0 });
        round.calls[place] = Some((op.call, mine));
        Ok(())
    }

    /// What this rank gets of the others.
    fn take(&mut self, op: &Op, shared: &mut Shared) -> Result<(), Error> {
        let on = match op.call {
            Call::Receive { on, peer, bytes } => {
                let member = self.member(on)?;
                let mail = shared.mail.get_mut(&(member.id, peer, member.place));
                let message = mail.and_then(VecDeque::pop_front).unwrap_or_default();
                if message.len() != bytes {
                    let sent = message.len();
                    return Err(wrong("ncclRecv", format!("{peer} sent {sent} bytes, not {bytes}")));
                }
                return self.device.store(op.target, &message);
            }
            Call::AllGather { on, .. } | Call::ReduceScatter { on, .. } | Call::AllReduce { on, .. } => on,
            Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Send { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => return Ok(()),
        };
        let Member { id, place, size, .. } = self.member(on)?.clone();
        let key = (id, op.round);
        let Some(round) = shared.rounds.get_mut(&key) else {
            return Err(wrong("a collective", "it is not under way"));
        };
        let terms: Vec<&(Call, Vec<u8>)> = round.calls.iter().flatten().collect();
        // Handles are each rank's own numbers.
        let same = |(call, _): &&(Call, Vec<u8>)| without_handle(*call) == without_handle(op.call);
        if let Some((other, _)) = terms.iter().find(|term| !same(term)) {
            return Err(wrong(
                "a collective",
                format!("one member calls {:?} and another {other:?}", op.call),
            ));
        }
        let blocks = terms.iter().map(|(_, bytes)| bytes.as_slice());
        let result = match op.call {
            Call::ReduceScatter { count, element, op, .. } => {
                let bytes = count * element.dtype().item_bytes()?;
                reduce(blocks.map(|block| &block[place * bytes..(place + 1) * bytes]), count, element, op)?
            }
            Call::AllReduce { count, element, op, .. } => reduce(blocks, count, element, op)?,
            Call::AllGather { .. }
            | Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Send { .. }
            | Call::Receive { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => blocks.collect::<Vec<_>>().concat(),
        };
        round.taken += 1;
        if round.taken == size {
            shared.rounds.remove(&key);
        }
        self.device.store(op.target, &result)
    }
}

/// The same call on the communicator of all.
fn without_handle(call: Call) -> Call {
    let on = Handle::WORLD;
    match call {
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
        | Call::Replay => call,
    }
}

fn reduce<'a>(
    mut terms: impl Iterator<Item = &'a [u8]>,
    count: usize,
    element: Element,
    op: CombineOp,
) -> Result<Vec<u8>, Error> {
    let combine = Combine::new(&Nest::new(0, 0, [Loop::new(count, 1, 1)]), element.dtype(), op)?;
    let mut result = terms.next().map(<[u8]>::to_vec).unwrap_or_default();
    for term in terms {
        combine.run(&mut result, term)?;
    }
    Ok(result)
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

    fn launch(&mut self, work: &Arc<Vec<Work>>) -> Result<(), Error> {
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
        let open = |member: &Member| shared.opened.get(&member.id) >= Some(&member.size);
        Ok(self.members.iter().all(open))
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
