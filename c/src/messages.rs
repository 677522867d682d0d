//! What one rank sends and receives.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::ffi::c_char;

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::held::Held;
use crate::memory::{put, put_sized};
use crate::plan::Plan;

/// What one rank sends and receives, phase after phase.
#[derive(Debug)]
pub struct Messages {
    phases: Vec<Phase>,
    /// What the structs point into, freed with them.
    _held: Held,
}

impl Handled for Messages {
    const NAME: &'static str = "list of messages";
}

/// An extent, and how far elements are apart in the sender's and in the receiver's buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Mode {
    /// How many.
    pub extent: usize,
    /// Elements apart in the source.
    pub source_stride: i64,
    /// Elements apart in the target.
    pub target_stride: i64,
}

/// Elements that move together: two offsets, and modes, the leftmost fastest; no modes are one element.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Block {
    /// Where the first element lies in the sender's buffer.
    pub source_offset: usize,
    /// Where it goes in the receiver's.
    pub target_offset: usize,
    /// The modes.
    pub modes: *const Mode,
    /// How many modes.
    pub mode_count: usize,
}

/// The blocks that go from one rank to another, in the same order on both.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Message {
    /// The other rank.
    pub peer: usize,
    /// The number of elements.
    pub elements: usize,
    /// What moves.
    pub blocks: *const Block,
    /// How many blocks.
    pub block_count: usize,
}

/// What one rank does in one phase of a step.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Phase {
    /// The `sizeof` of this struct, set by the caller; what was written afterwards.
    pub size: usize,
    /// The index of its step.
    pub step: usize,
    /// Elements of the buffer before.
    pub source_len: usize,
    /// And after.
    pub target_len: usize,
    /// The op with whose identity the target is first filled; null for none.
    pub fill: *const c_char,
    /// How received messages combine, in the order listed; null where they do not.
    pub reduce: *const c_char,
    /// What the combination is divided by; 1 for nothing.
    pub divisor: usize,
    /// What lands here; a message from the rank itself is a local copy.
    pub receives: *const Message,
    /// How many.
    pub receive_count: usize,
    /// What others take from here.
    pub sends: *const Message,
    /// How many.
    pub send_count: usize,
    /// The ranks that take part together, ascending.
    pub members: *const usize,
    /// How many.
    pub member_count: usize,
}

// SAFETY: the pointers in these structs lead to what the same value holds beside them, which nobody changes.
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

/// Messages as C has them.
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

/// What one rank sends and receives: for who has a transport of their own.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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

/// Frees messages, and what their phases point to; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_messages_free(messages: *mut Messages) -> Status {
    body!(reshard_messages_free() { handles::free(messages) })
}

/// How many phases there are.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_messages_phases(messages: *const Messages, out: *mut usize) -> Status {
    body!(reshard_messages_phases(messages, out) {
        let messages = handles::of(messages)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, messages.phases.len(), "out") }
    })
}

/// A phase. What it points to is there until the messages are freed.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
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
