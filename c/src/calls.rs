//! A plan as one rank's framework calls, and the copies before and after them.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use reshard_collectives::calls::{self, RankCall, RankCalls};
use reshard_kernels::{CombineOp, DType};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::held::Held;
use crate::memory::{bytes, bytes_mut, list, put, put_sized, put_text, text, text_if_any};
use crate::plan::Plan;

/// Framework groups: the process groups that exist.
#[derive(Debug)]
pub struct Groups(calls::FrameworkGroups);

/// The calls with which one rank executes a plan.
#[derive(Debug)]
pub struct Calls {
    of_rank: RankCalls,
    ops: Vec<Op>,
    /// Owns the data that the structs point to; freed with them.
    _held: Held,
}

impl Handled for Groups {
    const NAME: &'static str = "list of groups";
}

impl Handled for Calls {
    const NAME: &'static str = "list of calls";
}

/// An existing process group: its name, and its ranks in the order of their group ranks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Group {
    /// The name of the group.
    pub name: *const c_char,
    /// Its ranks.
    pub members: *const usize,
    /// The number of ranks in `members`.
    pub member_count: usize,
}

/// The kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// No communication: the packed elements are unpacked.
    Local = 0,
    /// The packed elements of all ranks, concatenated in the order of the group.
    AllGather = 1,
    /// The reduction of this rank's block over all ranks of the group.
    ReduceScatter = 2,
    /// The reduction of the packed elements of all ranks of the group.
    AllReduce = 3,
    /// A block to and from each rank of the group.
    AllToAll = 4,
    /// A message to and from some ranks.
    Messages = 5,
}

/// The number of elements sent to one rank or received from it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Part {
    /// The rank.
    pub peer: usize,
    /// Elements.
    pub elements: usize,
}

/// A loop over elements of a buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Loop {
    /// The number of iterations.
    pub extent: usize,
    /// The distance between consecutive elements, in elements.
    pub stride: i64,
}

/// Elements of a flat buffer: an offset and loops, the outermost first; no loops are one element.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct View {
    /// The first element.
    pub offset: usize,
    /// The number of elements.
    pub elements: usize,
    /// The loops.
    pub loops: *const Loop,
    /// The number of entries in `loops`.
    pub loop_count: usize,
}

/// One received operand of a reduction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Term {
    /// The index of its first element in the received elements.
    pub start: usize,
    /// The index of the first view in `unpack` that it is written to.
    pub first_view: usize,
    /// The number of views that it is written to.
    pub view_count: usize,
}

/// One call of a plan on a rank: it packs the rank's buffer, calls, and unpacks into a new buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Op {
    /// The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
    pub size: usize,
    /// The index of the plan's step.
    pub step: usize,
    /// The kind of call.
    pub call: Call,
    /// 1 if the rank takes part without data, because the call is collective, and keeps its buffer; else 0.
    pub attends: u32,
    /// The name of the group; null for a call of none.
    pub group: *const c_char,
    /// The ranks of the group in its order.
    pub members: *const usize,
    /// The number of ranks in `members`.
    pub member_count: usize,
    /// The reduction of the call, such as `sum`; null if it does not reduce.
    pub reduce: *const c_char,
    /// The recipients of an all-to-all or of messages, in the order of the packed elements.
    pub sends: *const Part,
    /// The number of entries in `sends`.
    pub send_count: usize,
    /// The senders of an all-to-all or of messages, in the order of the received elements.
    pub receives: *const Part,
    /// The number of entries in `receives`.
    pub receive_count: usize,
    /// The views of the source buffer that are packed.
    pub pack: *const View,
    /// The number of entries in `pack`.
    pub pack_count: usize,
    /// The views of the target buffer that are written.
    pub unpack: *const View,
    /// The number of entries in `unpack`.
    pub unpack_count: usize,
    /// The op that combines the operands of `terms`; null if there are none.
    pub combine: *const c_char,
    /// The received operands, in the order in which they are combined.
    pub terms: *const Term,
    /// The number of entries in `terms`.
    pub term_count: usize,
    /// The op with whose identity the target is filled first; null for none.
    pub fill: *const c_char,
    /// The divisor of the target after the reduction; 1 for none.
    pub divisor: usize,
    /// Elements of the buffer before.
    pub source_len: usize,
    /// Elements of the buffer after.
    pub target_len: usize,
    /// Elements that are packed.
    pub packed_len: usize,
    /// Elements that the call brings.
    pub received_len: usize,
}

// SAFETY: the pointers in these structs point to data that the same value owns and never changes.
unsafe impl Send for Calls {}
// SAFETY: as above; all that is shared is read.
unsafe impl Sync for Calls {}

fn views(all: &[calls::View], held: &mut Held) -> *const View {
    let views = all.iter().map(|view| {
        let loops = view.loops().map(|mode| Loop { extent: mode.extent as usize, stride: mode.stride });
        let loops: Vec<Loop> = loops.collect();
        View { offset: view.offset(), elements: view.len(), loop_count: loops.len(), loops: held.list(loops) }
    });
    let views = views.collect();
    held.list(views)
}

/// Converts a call to its C struct.
fn op(call: &RankCall, held: &mut Held) -> Result<Op, Fault> {
    let (of_call, reduce, sends, receives): (Call, Option<CombineOp>, Vec<Part>, Vec<Part>) = match &call.call
    {
        calls::CollectiveCall::Local => (Call::Local, None, Vec::new(), Vec::new()),
        calls::CollectiveCall::AllGather { .. } => (Call::AllGather, None, Vec::new(), Vec::new()),
        calls::CollectiveCall::ReduceScatter { op, .. } => {
            (Call::ReduceScatter, Some(*op), Vec::new(), Vec::new())
        }
        calls::CollectiveCall::AllReduce { op, .. } => (Call::AllReduce, Some(*op), Vec::new(), Vec::new()),
        calls::CollectiveCall::AllToAll { group, sends, receives } => {
            let parts = |counts: &[usize]| {
                let pairs = group.members().iter().zip(counts);
                pairs.map(|(&peer, &elements)| Part { peer, elements }).collect()
            };
            (Call::AllToAll, None, parts(sends), parts(receives))
        }
        calls::CollectiveCall::Messages { sends, receives } => {
            let parts = |pairs: &[(usize, usize)]| {
                pairs.iter().map(|&(peer, elements)| Part { peer, elements }).collect()
            };
            (Call::Messages, None, parts(sends), parts(receives))
        }
    };
    let group = call.call.group();
    let members = group.map_or(Vec::new(), |group| group.members().to_vec());
    let terms = call.combine.iter().flat_map(|combine| &combine.terms);
    let terms: Vec<Term> = terms
        .map(|term| Term { start: term.start, first_view: term.views.start, view_count: term.views.len() })
        .collect();
    Ok(Op {
        size: size_of::<Op>(),
        step: call.step,
        call: of_call,
        attends: u32::from(call.is_idle()),
        group: held.word_if_any(group.map(|group| group.name()))?,
        member_count: members.len(),
        members: held.list(members),
        reduce: held.word_if_any(reduce)?,
        send_count: sends.len(),
        sends: held.list(sends),
        receive_count: receives.len(),
        receives: held.list(receives),
        pack: views(&call.pack, held),
        pack_count: call.pack.len(),
        unpack: views(&call.unpack, held),
        unpack_count: call.unpack.len(),
        combine: held.word_if_any(call.combine.as_ref().map(|combine| combine.op))?,
        term_count: terms.len(),
        terms: held.list(terms),
        fill: held.word_if_any(call.fill)?,
        divisor: call.divisor,
        source_len: call.source_len,
        target_len: call.target_len,
        packed_len: call.packed_len(),
        received_len: call.received_len(),
    })
}

impl Calls {
    fn new(calls: RankCalls) -> Result<Calls, Fault> {
        let mut held = Held::default();
        let ops = calls.iter().map(|call| op(call, &mut held)).collect::<Result<_, _>>()?;
        Ok(Calls { of_rank: calls, ops, _held: held })
    }

    fn call(&self, index: usize) -> Result<&RankCall, Fault> {
        self.of_rank.iter().nth(index).ok_or_else(|| Fault::past_the_end("call", index, self.ops.len()))
    }
}

/// Makes a list of the process groups that exist; it must be the same on all ranks.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_groups_new(
    groups: *const Group,
    count: usize,
    out: *mut *mut Groups,
) -> Status {
    body!(reshard_groups_new(out) {
        // SAFETY: as the caller promises.
        let groups = unsafe { list(groups, count, "groups") }?;
        let named = groups.iter().map(|group| {
            // SAFETY: as the caller promises.
            let members = unsafe { list(group.members, group.member_count, "members") }?;
            // SAFETY: as the caller promises.
            Ok((unsafe { text(group.name, "name") }?, members))
        });
        let groups = calls::FrameworkGroups::new(named.collect::<Result<Vec<_>, Fault>>()?)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Groups(groups), out) }
    })
}

/// Frees framework groups; calls that use them stay valid. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_groups_free(groups: *mut Groups) -> Status {
    body!(reshard_groups_free() { handles::free(groups) })
}

/// Converts a plan to the calls of one rank.
///
/// `dtype` may be null, for the plan's own; `groups` may be null if the calls are messages only.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_new(
    plan: *const Plan,
    rank: usize,
    dtype: *const c_char,
    groups: *const Groups,
    out: *mut *mut Calls,
) -> Status {
    body!(reshard_calls_new(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        let dtype = unsafe { text_if_any(dtype, "dtype") }?;
        let dtype = dtype.map_or(Ok(plan.0.dtype()), str::parse::<DType>)?;
        let made = if groups.is_null() {
            RankCalls::new(&plan.0, rank, dtype, &calls::FrameworkGroups::none())
        } else {
            RankCalls::new(&plan.0, rank, dtype, &handles::of(groups)?.0)
        };
        let made = Calls::new(made?)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(made, out) }
    })
}

/// Frees calls, and the data that their ops point to; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_calls_free(calls: *mut Calls) -> Status {
    body!(reshard_calls_free() { handles::free(calls) })
}

/// Prints the calls, one a line.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_text(
    calls: *const Calls,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_calls_text(calls, length) {
        let calls = handles::of(calls)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&calls.of_rank.to_string(), buffer, size, length) }
    })
}

/// The number of calls; 0 if the target equals the source.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_count(calls: *const Calls, out: *mut usize) -> Status {
    body!(reshard_calls_count(calls, out) {
        let calls = handles::of(calls)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, calls.ops.len(), "out") }
    })
}

/// One call; the data that it points to is valid until the calls are freed.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_op(calls: *const Calls, index: usize, out: *mut Op) -> Status {
    body!(reshard_calls_op(calls, out) {
        let calls = handles::of(calls)?;
        let ops = &calls.ops;
        let op = *ops.get(index).ok_or_else(|| Fault::past_the_end("call", index, ops.len()))?;
        // SAFETY: as the caller promises.
        unsafe { put_sized(out, op, size_of::<Op>(), "out") }
    })
}

/// Packs the elements of the views of `pack` contiguously.
///
/// The buffers have the bytes of `source_len` and `packed_len` elements, and do not overlap.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_pack(
    calls: *const Calls,
    index: usize,
    source: *const u8,
    source_bytes: usize,
    packed: *mut u8,
    packed_bytes: usize,
) -> Status {
    body!(reshard_calls_pack(calls) {
        let calls = handles::of(calls)?;
        // SAFETY: as the caller promises.
        let (source, packed) =
            unsafe { (bytes(source, source_bytes, "source")?, bytes_mut(packed, packed_bytes, "packed")?) };
        Ok(calls.call(index)?.pack_into(calls.of_rank.dtype(), source, packed)?)
    })
}

/// Makes the target buffer from the received elements: fills, unpacks, combines and divides.
///
/// The buffers have the bytes of `received_len` and `target_len` elements, and do not overlap. On a rank
/// whose call has `attends` set it does nothing.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_unpack(
    calls: *const Calls,
    index: usize,
    received: *const u8,
    received_bytes: usize,
    target: *mut u8,
    target_bytes: usize,
) -> Status {
    body!(reshard_calls_unpack(calls) {
        let calls = handles::of(calls)?;
        // SAFETY: as the caller promises.
        let (received, target) =
            unsafe { (bytes(received, received_bytes, "received")?, bytes_mut(target, target_bytes, "target")?) };
        Ok(calls.call(index)?.unpack_into(calls.of_rank.dtype(), received, target)?)
    })
}
