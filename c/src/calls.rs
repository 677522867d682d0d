//! A plan as one rank's calls of a framework, and the copies around them.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::ffi::c_char;

use reshard_collectives::calls::{self, RankCall, RankCalls};
use reshard_kernels::{CombineOp, DType};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::held::Held;
use crate::memory::{bytes, bytes_mut, list, put, put_sized, put_text, text, text_if_any};
use crate::plan::Plan;

/// The groups that exist.
#[derive(Debug)]
pub struct Offers(calls::FrameworkGroups);

/// The calls by which one rank carries out a plan.
#[derive(Debug)]
pub struct Calls {
    of_rank: RankCalls,
    ops: Vec<Op>,
    /// What the structs point into, freed with them.
    _held: Held,
}

impl Handled for Offers {
    const NAME: &'static str = "list of offers";
}

impl Handled for Calls {
    const NAME: &'static str = "list of calls";
}

/// A group that exists: its name, and its ranks in the order that its owner has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Group {
    /// What it is called.
    pub name: *const c_char,
    /// Its ranks.
    pub members: *const usize,
    /// How many.
    pub member_count: usize,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// Nothing: what was packed is unpacked.
    Local = 0,
    /// Everybody's packed elements one behind the other, in the order of the group.
    AllGather = 1,
    /// The reduction of everybody's block for this rank.
    ReduceScatter = 2,
    /// The reduction of everybody's packed elements.
    AllReduce = 3,
    /// A block to and from each rank of the group.
    AllToAll = 4,
    /// A message to and from some ranks.
    Messages = 5,
}

/// How many elements go to a rank, or come from it.
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
    /// How often it goes.
    pub extent: usize,
    /// Elements apart.
    pub stride: i64,
}

/// Elements of a flat buffer: an offset and loops, the outermost first; no loops are one element.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct View {
    /// The first element.
    pub offset: usize,
    /// How many elements.
    pub elements: usize,
    /// The loops.
    pub loops: *const Loop,
    /// How many.
    pub loop_count: usize,
}

/// A received term.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Term {
    /// Where it begins in what was received.
    pub start: usize,
    /// The first of the views of `unpack` where it lands.
    pub first_view: usize,
    /// How many.
    pub view_count: usize,
}

/// What a rank does at one place of a plan: it packs, calls, and unpacks, from its buffer to a new one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Op {
    /// The `sizeof` of this struct, set by the caller; what was written afterwards.
    pub size: usize,
    /// The index of the plan's step.
    pub step: usize,
    /// What is called.
    pub call: Call,
    /// Whether the rank is only there because all of a group must be: nothing moves, and the buffer stays. 1 or 0.
    pub attends: u32,
    /// The name of the group; null for a call of none.
    pub group: *const c_char,
    /// The ranks of the group in its order.
    pub members: *const usize,
    /// How many.
    pub member_count: usize,
    /// How the call reduces, such as `sum`; null where it does not.
    pub reduce: *const c_char,
    /// Of an all-to-all and of messages what goes to whom, in the order of the packed elements.
    pub sends: *const Part,
    /// How many.
    pub send_count: usize,
    /// And what comes from whom, in the order of the received elements.
    pub receives: *const Part,
    /// How many.
    pub receive_count: usize,
    /// What is read of the source.
    pub pack: *const View,
    /// How many views.
    pub pack_count: usize,
    /// What is written of the target.
    pub unpack: *const View,
    /// How many views.
    pub unpack_count: usize,
    /// How terms that were received one by one combine; null where none were.
    pub combine: *const c_char,
    /// The terms in the order in which they combine.
    pub terms: *const Term,
    /// How many.
    pub term_count: usize,
    /// The op with whose identity the target is filled first; null for none.
    pub fill: *const c_char,
    /// What the target is divided by in the end; 1 for nothing.
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

// SAFETY: the pointers in these structs lead to what the same value holds beside them, which nobody changes.
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

/// A call as C has it.
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

/// The groups that exist, the same list on all ranks.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_offers_new(
    groups: *const Group,
    count: usize,
    out: *mut *mut Offers,
) -> Status {
    body!(reshard_offers_new(out) {
        // SAFETY: as the caller promises.
        let groups = unsafe { list(groups, count, "groups") }?;
        let named = groups.iter().map(|group| {
            // SAFETY: as the caller promises.
            let members = unsafe { list(group.members, group.member_count, "members") }?;
            // SAFETY: as the caller promises.
            Ok((unsafe { text(group.name, "name") }?, members))
        });
        let offers = calls::FrameworkGroups::new(named.collect::<Result<Vec<_>, Fault>>()?)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Offers(offers), out) }
    })
}

/// Frees offers; calls on them stay; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_offers_free(offers: *mut Offers) -> Status {
    body!(reshard_offers_free() { handles::free(offers) })
}

/// The plan as one rank's calls. `dtype` may be null, for the plan's; `offers` too, for messages alone.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_new(
    plan: *const Plan,
    rank: usize,
    dtype: *const c_char,
    offers: *const Offers,
    out: *mut *mut Calls,
) -> Status {
    body!(reshard_calls_new(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        let dtype = unsafe { text_if_any(dtype, "dtype") }?;
        let dtype = dtype.map_or(Ok(plan.0.dtype()), str::parse::<DType>)?;
        let made = if offers.is_null() {
            RankCalls::new(&plan.0, rank, dtype, &calls::FrameworkGroups::none())
        } else {
            RankCalls::new(&plan.0, rank, dtype, &handles::of(offers)?.0)
        };
        let made = Calls::new(made?)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(made, out) }
    })
}

/// Frees calls, and what their ops point to; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_calls_free(calls: *mut Calls) -> Status {
    body!(reshard_calls_free() { handles::free(calls) })
}

/// A line for each call, for people.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// How many calls there are; none if the target is the source.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_calls_count(calls: *const Calls, out: *mut usize) -> Status {
    body!(reshard_calls_count(calls, out) {
        let calls = handles::of(calls)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, calls.ops.len(), "out") }
    })
}

/// A call. What it points to is there until the calls are freed.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Packs: the elements of the views of `pack`, one behind the other. The buffers have the bytes of `source_len` and `packed_len` elements,
/// and share none.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Makes of what a call brought the buffer after it: fills, unpacks, combines terms, divides. The buffers have the bytes of
/// `received_len` and `target_len` elements, and share none. Where the rank only attends nothing happens.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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
