//! The calls into the MPI library, in the only file of this crate with unsafe code.
//!
//! Two things are wrapped. A [`Handle`] is a communicator that returns errors instead of ending the process.
//! A [`Scope`] holds the messages in flight: buffers are lent to MPI for `'env`, and [`Requests::scope`]
//! returns only when MPI has released all of them. If that is impossible, because a peer is gone, the job is
//! aborted: MPI cannot take back a buffer that was given to a send.
//!
//! MPI counts are 32 bits wide. A longer message is sent in chunks of [`PIECE`] bytes, in order, with one
//! tag.
#![allow(unsafe_code, reason = "calls into the MPI library, which have no safe form that returns errors")]

use crate::last_words;
use std::ffi::{c_char, c_int};
use std::marker::PhantomData;

use mpi::ffi::{self, MPI_Comm, MPI_Request, MPI_Status};
use mpi::traits::AsRaw;
use reshard_collectives::Error;

/// Maximum number of bytes of one MPI call.
const PIECE: usize = 1 << 30;

/// Tags are below this in every MPI library.
pub(crate) const TAGS: u64 = 32768;

/// A communicator that belongs to the engine.
pub(crate) struct Handle {
    comm: MPI_Comm,
    rank: usize,
    size: usize,
    /// MPI was initialised for one thread.
    not_send: PhantomData<*const ()>,
}

impl Handle {
    /// Duplicates a communicator. Collective over it.
    pub(crate) fn duplicate(of: &impl AsRaw<Raw = MPI_Comm>) -> Result<Handle, Error> {
        let mut comm = null_comm();
        // SAFETY: `of` is a live communicator by the contract of rsmpi's types; `comm` is a valid location
        // for a handle.
        let code = unsafe { ffi::MPI_Comm_dup(of.as_raw(), &raw mut comm) };
        check("MPI_Comm_dup", 0, code)?;
        Handle::adopt(comm)
    }

    /// Creates the communicator of some members, given as ranks of this one. Collective over the members.
    pub(crate) fn subgroup(&self, members: &[usize], tag: c_int) -> Result<Handle, Error> {
        let ranks: Vec<c_int> = members.iter().map(|rank| *rank as c_int).collect();
        let mut all = null_group();
        // SAFETY: `self.comm` is live until `self` is dropped; `all` is a valid location for a handle.
        let code = unsafe { ffi::MPI_Comm_group(self.comm, &raw mut all) };
        check("MPI_Comm_group", self.rank, code)?;
        let mut some = null_group();
        // SAFETY: `ranks` has the passed length; MPI checks the values. The group was made above.
        let code = unsafe { ffi::MPI_Group_incl(all, ranks.len() as c_int, ranks.as_ptr(), &raw mut some) };
        let included = check("MPI_Group_incl", self.rank, code);
        let mut comm = null_comm();
        let created = included.and_then(|()| {
            // SAFETY: the communicator and the group are live, `comm` is a valid location for a handle.
            let code = unsafe { ffi::MPI_Comm_create_group(self.comm, some, tag, &raw mut comm) };
            check("MPI_Comm_create_group", self.rank, code)
        });
        for mut group in [all, some] {
            // SAFETY: reads a constant of the library that is set before any code of this crate runs.
            if group != unsafe { ffi::RSMPI_GROUP_NULL } {
                // SAFETY: the group was made above, is not null and is not used afterwards.
                unsafe { ffi::MPI_Group_free(&raw mut group) };
            }
        }
        created?;
        Handle::adopt(comm)
    }

    /// Returns the rank of this process among those that share memory with it. Collective over the communicator.
    pub(crate) fn shared_memory_rank(&self) -> Result<usize, Error> {
        let mut comm = null_comm();
        // SAFETY: `self.comm` is live until `self` is dropped, the type and the info are constants of the library, and
        // `comm` is a valid location for a handle.
        let code = unsafe {
            ffi::MPI_Comm_split_type(
                self.comm,
                ffi::RSMPI_COMM_TYPE_SHARED,
                self.rank as c_int,
                ffi::RSMPI_INFO_NULL,
                &raw mut comm,
            )
        };
        check("MPI_Comm_split_type", self.rank, code)?;
        Ok(Handle::adopt(comm)?.rank())
    }

    /// Wraps a new communicator: from now on its errors are returned.
    fn adopt(comm: MPI_Comm) -> Result<Handle, Error> {
        let mut handle = Handle { comm, rank: 0, size: 0, not_send: PhantomData };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: `comm` was just made; the error handler is a predefined one; the pointed-to values outlive
        // the calls.
        let codes = unsafe {
            [
                ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN),
                ffi::MPI_Comm_rank(comm, &raw mut rank),
                ffi::MPI_Comm_size(comm, &raw mut size),
            ]
        };
        (handle.rank, handle.size) = (rank as usize, size as usize);
        for code in codes {
            check("querying a new communicator", handle.rank, code)?;
        }
        Ok(handle)
    }

    /// Returns this process's rank in the communicator.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of its ranks.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the tag of an arrived message of this peer without a posted receive, if there is one.
    fn unexpected_from(&self, peer: usize) -> Option<c_int> {
        let (mut flag, mut status) = (0, empty_status());
        // SAFETY: the communicator is live, and the pointed-to values outlive the call.
        let code = unsafe {
            ffi::MPI_Iprobe(peer as c_int, ffi::RSMPI_ANY_TAG, self.comm, &raw mut flag, &raw mut status)
        };
        (code == 0 && flag != 0).then_some(status.MPI_TAG)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !mpi::environment::is_finalized() {
            // SAFETY: the handle was made by `adopt`, nothing is in flight in it, and it is not used
            // afterwards.
            unsafe { ffi::MPI_Comm_free(&raw mut self.comm) };
        }
    }
}

/// Ends the job, with a failure status.
pub(crate) fn abort() -> ! {
    // SAFETY: aborting is allowed whenever MPI is initialised, and there is no `Handle` otherwise.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1) };
    std::process::abort()
}

/// The messages of one exchange at a time, with buffers that are reused.
#[derive(Default)]
pub(crate) struct Requests {
    handles: Vec<MPI_Request>,
    /// For every request, the index of its message, and its bytes.
    pieces: Vec<(usize, c_int)>,
    messages: Vec<Message>,
    /// Messages that have been received and not been taken.
    arrived: Vec<usize>,
    indices: Vec<c_int>,
    statuses: Vec<MPI_Status>,
    open: usize,
}

struct Message {
    kind: Kind,
    peer: usize,
    key: usize,
    start: *mut u8,
    len: usize,
    open_pieces: usize,
    taken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
}

/// The messages in flight, whose buffers live for `'env`.
pub(crate) struct Scope<'a, 'env> {
    requests: &'a mut Requests,
    comm: &'a Handle,
    /// The lifetime must be exactly this, neither longer nor shorter.
    env: PhantomData<fn(&'env ()) -> &'env ()>,
}

impl Requests {
    /// Passes `body` a scope to send and receive in.
    ///
    /// Ensures: no message of the scope is in flight afterwards. If `body` fails to complete its messages,
    /// its error is written to stderr and the job is aborted.
    pub(crate) fn scope<'env, T>(
        &mut self,
        comm: &Handle,
        body: impl FnOnce(&mut Scope<'_, 'env>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        /// Aborts if it is dropped while messages are in flight, as when `body` panics.
        struct Guard<'g>(&'g mut Requests);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if self.0.open > 0 {
                    abort();
                }
            }
        }
        self.handles.clear();
        self.pieces.clear();
        self.messages.clear();
        self.arrived.clear();
        let guard = Guard(self);
        let result = body(&mut Scope { requests: &mut *guard.0, comm, env: PhantomData });
        if guard.0.open > 0 {
            match &result {
                Err(error) => last_words::say(&format!("{error}; the job is aborted")),
                Ok(_) => last_words::say("messages were still in flight; the job is aborted"),
            }
        }
        drop(guard);
        result
    }
}

impl<'env> Scope<'_, 'env> {
    /// Begins to send to a rank of the communicator.
    pub(crate) fn send(&mut self, peer: usize, tag: c_int, bytes: &'env [u8]) -> Result<(), Error> {
        let message = self.begin(Kind::Send, peer, usize::MAX, bytes.as_ptr().cast_mut(), bytes.len());
        for piece in bytes.chunks(PIECE) {
            let mut request = null_request();
            // SAFETY: the chunk is borrowed for 'env, which outlives the scope, and the scope outlives the
            // request; the communicator is live.
            let code = unsafe {
                ffi::MPI_Isend(
                    piece.as_ptr().cast(),
                    piece.len() as c_int,
                    ffi::RSMPI_UINT8_T,
                    peer as c_int,
                    tag,
                    self.comm.comm,
                    &raw mut request,
                )
            };
            check("MPI_Isend", self.comm.rank, code)?;
            self.add(message, request, piece.len());
        }
        Ok(())
    }

    /// Begins to receive from a rank of the communicator; the key is returned with the bytes.
    pub(crate) fn receive(
        &mut self,
        peer: usize,
        tag: c_int,
        bytes: &'env mut [u8],
        key: usize,
    ) -> Result<(), Error> {
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        let message = self.begin(Kind::Receive, peer, key, start, len);
        let mut done = 0;
        while done < len {
            let count = PIECE.min(len - done);
            let mut request = null_request();
            // SAFETY: start + done .. + count is within `bytes`, which is borrowed mutably for 'env; 'env
            // outlives the scope, and the scope outlives the request; the communicator is live.
            let code = unsafe {
                ffi::MPI_Irecv(
                    start.add(done).cast(),
                    count as c_int,
                    ffi::RSMPI_UINT8_T,
                    peer as c_int,
                    tag,
                    self.comm.comm,
                    &raw mut request,
                )
            };
            check("MPI_Irecv", self.comm.rank, code)?;
            self.add(message, request, count);
            done += count;
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind, peer: usize, key: usize, start: *mut u8, len: usize) -> usize {
        let message = Message { kind, peer, key, start, len, open_pieces: 0, taken: false };
        self.requests.messages.push(message);
        self.requests.messages.len() - 1
    }

    fn add(&mut self, message: usize, request: MPI_Request, len: usize) {
        let all = &mut *self.requests;
        all.handles.push(request);
        all.pieces.push((message, len as c_int));
        all.messages[message].open_pieces += 1;
        all.open += 1;
    }

    /// Returns `true` if any message is in flight.
    pub(crate) fn is_open(&self) -> bool {
        self.requests.open > 0
    }

    /// Polls once, and returns the number of chunks that have completed since the last poll.
    pub(crate) fn poll(&mut self) -> Result<usize, Error> {
        let all = &mut *self.requests;
        let n = all.handles.len();
        if all.open == 0 {
            return Ok(0);
        }
        all.indices.resize(n, 0);
        all.statuses.resize(n, empty_status());
        let mut count = 0;
        // SAFETY: the three arrays have `n` entries; requests that have completed are null, which MPI skips.
        let code = unsafe {
            ffi::MPI_Testsome(
                n as c_int,
                all.handles.as_mut_ptr(),
                &raw mut count,
                all.indices.as_mut_ptr(),
                all.statuses.as_mut_ptr(),
            )
        };
        // `MPI_UNDEFINED` (negative) if there was nothing to test.
        let count = usize::try_from(count).unwrap_or(0);
        let mut wrong = check("MPI_Testsome", self.comm.rank, code).err();
        for (at, index) in all.indices[..count].iter().enumerate() {
            let (message, expected) = all.pieces[*index as usize];
            let status = &all.statuses[at];
            all.open -= 1;
            let message = &mut all.messages[message];
            message.open_pieces -= 1;
            if code != 0 && status.MPI_ERROR != 0 {
                wrong = check("a message", self.comm.rank, status.MPI_ERROR).err().or(wrong);
            }
            match message.kind {
                Kind::Send => continue,
                Kind::Receive => {}
            }
            let mut received = 0;
            // SAFETY: the status belongs to a receive that has completed.
            unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &raw mut received) };
            if received != expected && wrong.is_none() {
                let text = format!(
                    "rank {} of the group sent {received} bytes where {expected} were expected",
                    message.peer
                );
                wrong = Some(Error::Engine { rank: self.comm.rank, message: text });
            }
            if message.open_pieces == 0 {
                let index = all.pieces[*index as usize].0;
                all.arrived.push(index);
            }
        }
        wrong.map_or(Ok(count), Err)
    }

    /// Returns the key and the bytes of any arrived message that has not been taken yet.
    pub(crate) fn take_any(&mut self) -> Option<(usize, &'env mut [u8])> {
        while let Some(index) = self.requests.arrived.pop() {
            if let Some(bytes) = self.take_index(index) {
                return Some((self.requests.messages[index].key, bytes));
            }
        }
        None
    }

    /// Returns the bytes of the message with this key, if it has arrived and has not been taken yet.
    pub(crate) fn take(&mut self, key: usize) -> Option<&'env mut [u8]> {
        let is_it = |index: &&usize| self.requests.messages[**index].key == key;
        let index = *self.requests.arrived.iter().find(is_it)?;
        self.take_index(index)
    }

    fn take_index(&mut self, index: usize) -> Option<&'env mut [u8]> {
        let message = &mut self.requests.messages[index];
        if message.taken || message.open_pieces > 0 || message.kind == Kind::Send {
            return None;
        }
        message.taken = true;
        // SAFETY: `start` and `len` are of a slice that was borrowed mutably for 'env and passed to
        // `receive`; all its chunks have completed, so MPI writes it no more, and `taken` ensures that it is
        // returned once.
        Some(unsafe { std::slice::from_raw_parts_mut(message.start, message.len) })
    }

    /// Returns a peer that delays this rank: its message is missing, or else it has not taken a send.
    ///
    /// The flag is `true` if that peer has sent a message without a posted receive.
    pub(crate) fn waits_for(&self) -> Option<(usize, bool)> {
        let open = |kind: Kind| {
            self.requests.messages.iter().find(|message| message.kind == kind && message.open_pieces > 0)
        };
        let peer = open(Kind::Receive).or_else(|| open(Kind::Send))?.peer;
        Some((peer, self.comm.unexpected_from(peer).is_some()))
    }
}

/// Returns the error of an MPI call, in the text of the library.
fn check(call: &str, rank: usize, code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0 as c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the text has space for the longest error string.
    let said = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut len) };
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    let said: String =
        if said == 0 { text[..len].iter().map(|c| *c as u8 as char).collect() } else { String::new() };
    Err(Error::Engine { rank, message: format!("{call} failed with {code}: {said}") })
}

fn null_comm() -> MPI_Comm {
    // SAFETY: reads a constant of the library.
    unsafe { ffi::RSMPI_COMM_NULL }
}

fn null_group() -> ffi::MPI_Group {
    // SAFETY: reads a constant of the library.
    unsafe { ffi::RSMPI_GROUP_NULL }
}

fn null_request() -> MPI_Request {
    // SAFETY: reads a constant of the library.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

fn empty_status() -> MPI_Status {
    // SAFETY: a status is a plain struct of integers, for which all zeros are a value.
    unsafe { std::mem::zeroed() }
}
