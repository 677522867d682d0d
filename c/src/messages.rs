//! The messages that one rank sends and receives.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::held::Held;
use crate::memory::{put, put_sized};
use crate::plan::Plan;

/// The messages that one rank sends and receives, phase by phase.
#[derive(Debug)]
pub struct Messages {
    phases: Vec<Phase>,
    /// Owns the data that the structs point to; freed with them.
    _held: Held,
}

impl Handled for Messages {
    const NAME: &'static str = "list of messages";
}

/// An extent, with the distances between elements in the sender's and in the receiver's buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Mode {
    /// The number of elements.
    pub extent: usize,
    /// The distance between consecutive elements in the sender's buffer, in elements.
    pub source_stride: i64,
    /// The distance between consecutive elements in the receiver's buffer, in elements.
    pub target_stride: i64,
}

/// A strided block of elements: two offsets, and modes, the leftmost fastest; no modes are one element.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Block {
    /// The offset of the first element in the sender's buffer.
    pub source_offset: usize,
    /// The offset of the first element in the receiver's buffer.
    pub target_offset: usize,
    /// The modes.
    pub modes: *const Mode,
    /// The number of entries in `modes`.
    pub mode_count: usize,
}

/// The blocks that one rank sends to another, in the same order on both.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Message {
    /// The other rank.
    pub peer: usize,
    /// The number of elements.
    pub elements: usize,
    /// The blocks that are sent.
    pub blocks: *const Block,
    /// The number of entries in `blocks`.
    pub block_count: usize,
}

/// The transfers of one rank in one phase of a step.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Phase {
    /// The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
    pub size: usize,
    /// The index of the plan's step.
    pub step: usize,
    /// Elements of the buffer before.
    pub source_len: usize,
    /// Elements of the buffer after.
    pub target_len: usize,
    /// The op with whose identity the target is first filled; null for none.
    pub fill: *const c_char,
    /// The op that combines the received messages, in the order listed; null if they are not combined.
    pub reduce: *const c_char,
    /// The divisor of the combined elements; 1 for none.
    pub divisor: usize,
    /// The messages received; one from the rank itself is a local copy.
    pub receives: *const Message,
    /// The number of entries in `receives`.
    pub receive_count: usize,
    /// The messages sent.
    pub sends: *const Message,
    /// The number of entries in `sends`.
    pub send_count: usize,
    /// The ranks that take part in the phase, ascending.
    pub members: *const usize,
    /// The number of ranks in `members`.
    pub member_count: usize,
}

// SAFETY: the pointers in these structs point to data that the same value owns and never changes.
unsafe impl Send for Messages {}

// SAFETY: as above; all that is shared is read.
unsafe impl Sync for Messages {}

impl Messages {
    fn new(plan: &reshard_planner::Plan, rank: usize) -> Result<Messages, Fault> {
        let (mut phases, mut held) = (Vec::new(), Held::default());
        for (step, phase) in plan.phases(rank)? {
            let fill = held.word_if_any(phase.fill_identity)?;
            let reduce = held.word_if_any(phase.reduce.map(|reduce| reduce.op))?;
            let receives = messages(&phase.receives, &mut held);
            let sends = messages(&phase.sends, &mut held);
            phases.push(Phase {
                size: size_of::<Phase>(),
                step,
                source_len: phase.source_len,
                target_len: phase.target_len,
                fill,
                reduce,
                divisor: phase.reduce.map_or(1, |reduce| reduce.divisor),
                receives,
                receive_count: phase.receives.len(),
                sends,
                send_count: phase.sends.len(),
                member_count: phase.members.len(),
                members: held.list(phase.members),
            });
        }
        Ok(Messages { phases, _held: held })
    }
}

/// Converts messages to their C structs.
fn messages(all: &[reshard_planner::Message], held: &mut Held) -> *const Message {
    let mut list = Vec::with_capacity(all.len());
    for message in all {
        let mut blocks = Vec::with_capacity(message.blocks.len());
        for block in &message.blocks {
            let modes: Vec<Mode> = (block.modes.iter())
                .map(|mode| Mode {
                    extent: mode.extent as usize,
                    source_stride: mode.stride.0,
                    target_stride: mode.stride.1,
                })
                .collect();
            blocks.push(Block {
                source_offset: block.source_offset,
                target_offset: block.target_offset,
                mode_count: modes.len(),
                modes: held.list(modes),
            });
        }
        list.push(Message {
            peer: message.peer,
            elements: message.numel(),
            block_count: blocks.len(),
            blocks: held.list(blocks),
        });
    }
    held.list(list)
}

/// The messages that one rank sends and receives, for callers with their own transport.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_messages_new(
    plan: *const Plan,
    rank: usize,
    out: *mut *mut Messages,
) -> Status {
    body!(reshard_messages_new(plan, out) {
        let messages = Messages::new(&handles::of(plan)?.0, rank)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(messages, out) }
    })
}

/// Frees messages, and the data that their phases point to; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_messages_free(messages: *mut Messages) -> Status {
    body!(reshard_messages_free() { handles::free(messages) })
}

/// The number of phases.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_messages_phases(messages: *const Messages, out: *mut usize) -> Status {
    body!(reshard_messages_phases(messages, out) {
        let messages = handles::of(messages)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, messages.phases.len(), "out") }
    })
}

/// One phase; the data that it points to is valid until the messages are freed.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_messages_phase(
    messages: *const Messages,
    index: usize,
    out: *mut Phase,
) -> Status {
    body!(reshard_messages_phase(messages, out) {
        let messages = handles::of(messages)?;
        let phases = &messages.phases;
        let phase = *phases.get(index).ok_or_else(|| Fault::past_the_end("phase", index, phases.len()))?;
        // SAFETY: as the caller promises.
        unsafe { put_sized(out, phase, size_of::<Phase>(), "out") }
    })
}
