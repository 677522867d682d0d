//! Planners, plans, and what one rank sends and receives.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, LazyLock};

use reshard_planner::{Arithmetic, Budget, PlanCache};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::held::Held;
use crate::memory::{put, put_list, put_sized, put_text, sized, text, text_if_any};
use crate::values::Sharding;

/// How many plans a planner keeps.
const KEPT: usize = 4096;

/// Makes plans for one network and one objective, and keeps those that it made.
#[derive(Debug)]
pub struct Planner {
    planner: reshard_planner::Planner,
    cache: PlanCache,
}

impl Planner {
    fn new(planner: reshard_planner::Planner) -> Planner {
        Planner { planner, cache: PlanCache::new(KEPT) }
    }
}

/// The steps from one sharding to another.
#[derive(Debug)]
pub struct Plan(pub(crate) Arc<reshard_planner::Plan>);

/// What one rank sends and receives, phase after phase.
#[derive(Debug)]
pub struct Messages {
    phases: Vec<Phase>,
    /// What the structs point into, freed with them.
    _held: Held,
}

impl Handled for Planner {
    const NAME: &'static str = "planner";
}

impl Handled for Plan {
    const NAME: &'static str = "plan";
}

impl Handled for Messages {
    const NAME: &'static str = "list of messages";
}

/// How plans are asked for. Zeros and nulls are what is usual.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// The `sizeof` of this struct, set by the caller.
    pub size: usize,
    /// The network, such as `h100`, or its text.
    pub topology: *const c_char,
    /// `time`, `bytes` or `peak`.
    pub objective: *const c_char,
    /// What no rank may exceed; 0 for no limit.
    pub max_peak_bytes: u64,
    /// The units of work that a search may take; 0 for what is usual.
    pub budget: u64,
    /// Whether all reductions are in one order.
    pub deterministic: u8,
    /// Whether a framework reduces, which knows more element types than the library.
    pub framework_arithmetic: u8,
}

/// One operation of a plan.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Step {
    /// The `sizeof` of this struct, set by the caller; what was written afterwards.
    pub size: usize,
    /// `slice`, `all_gather`, `reduce_scatter`, `all_reduce`, `all_to_all`, `exchange` or `zero_fill`.
    pub op: *const c_char,
    /// Bytes that the rank which receives the most receives.
    pub received_bytes: u64,
    /// Bytes that the rank which sends the most sends.
    pub sent_bytes: u64,
    /// Bytes that the rank which holds the most holds.
    pub peak_bytes: u64,
    /// Modelled time in microseconds.
    pub cost_us: f64,
    /// Whether ranks talk to each other in it: 1 or 0.
    pub communicates: u8,
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
            let fill = held.word_if_any(phase.fill)?;
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

/// The planner of those who give none.
static USUAL: LazyLock<Planner> = LazyLock::new(|| Planner::new(reshard_planner::Planner::new()));

/// The names of steps as C has them.
fn op_name(op: reshard_planner::StepOp) -> *const c_char {
    use reshard_planner::StepOp as O;
    match op {
        O::Slice => c"slice",
        O::AllGather => c"all_gather",
        O::ReduceScatter => c"reduce_scatter",
        O::AllReduce => c"all_reduce",
        O::AllToAll => c"all_to_all",
        O::Exchange => c"exchange",
        O::ZeroFill => c"zero_fill",
    }
    .as_ptr()
}

/// A planner; without options, which may be null, the usual one.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_planner_new(options: *const Options, out: *mut *mut Planner) -> Status {
    body!(reshard_planner_new(out) {
        let none = Options {
            size: size_of::<Options>(),
            topology: ptr::null(),
            objective: ptr::null(),
            max_peak_bytes: 0,
            budget: 0,
            deterministic: 0,
            framework_arithmetic: 0,
        };
        let options = if options.is_null() {
            none
        } else {
            // SAFETY: as the caller promises.
            unsafe { sized(options, none, size_of::<Options>(), "options") }?
        };
        let mut planner = reshard_planner::Planner::new().deterministic(options.deterministic != 0);
        // SAFETY: as the caller promises.
        let words = unsafe {
            (text_if_any(options.topology, "options->topology")?, text_if_any(options.objective, "options->objective")?)
        };
        if let Some(topology) = words.0 {
            planner = planner.topology(topology.parse()?);
        }
        if let Some(objective) = words.1 {
            planner = planner.objective(objective.parse()?);
        }
        if options.max_peak_bytes > 0 {
            planner = planner.max_peak_bytes(options.max_peak_bytes);
        }
        if options.budget > 0 {
            planner = planner.budget(Budget::of(options.budget));
        }
        if options.framework_arithmetic != 0 {
            planner = planner.arithmetic(Arithmetic::Framework);
        }
        // SAFETY: as the caller promises.
        unsafe { handles::put(Planner::new(planner), out) }
    })
}

/// Frees a planner; its plans stay; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_planner_free(planner: *mut Planner) -> Status {
    body!(reshard_planner_free() { handles::free(planner) })
}

/// The plan from one sharding to another of the same tensor, of elements of a type such as `f32`; `planner` may be null, for the usual one.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_new(
    from: *const Sharding,
    to: *const Sharding,
    dtype: *const c_char,
    planner: *const Planner,
    out: *mut *mut Plan,
) -> Status {
    body!(reshard_plan_new(from, to, dtype, out) {
        let (from, to) = (handles::of(from)?, handles::of(to)?);
        // SAFETY: as the caller promises.
        let dtype = unsafe { text(dtype, "dtype") }?.parse()?;
        let planned = |by: &Planner| by.cache.plan(&by.planner, &from.0, &to.0, dtype);
        let plan = if planner.is_null() { planned(&USUAL) } else { planned(&*handles::of(planner)?) }?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Plan(plan), out) }
    })
}

/// What `reshard_plan_json` wrote; the plan is made again.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_from_json(json: *const c_char, out: *mut *mut Plan) -> Status {
    body!(reshard_plan_from_json(json, out) {
        // SAFETY: as the caller promises.
        let json = unsafe { text(json, "json") }?;
        let plan = serde_json::from_str(json).map_err(|error| Fault::refused("parse", error.to_string()))?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Plan(Arc::new(plan)), out) }
    })
}

/// Frees a plan; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_plan_free(plan: *mut Plan) -> Status {
    body!(reshard_plan_free() { handles::free(plan) })
}

/// Its steps, for people.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_text(
    plan: *const Plan,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_plan_text(plan, length) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&plan.0.to_string(), buffer, size, length) }
    })
}

/// What was asked for, as JSON.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_json(
    plan: *const Plan,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    body!(reshard_plan_json(plan, length) {
        let json = serde_json::to_string(&*handles::of(plan)?.0);
        let json = json.map_err(|error| Fault::refused("json", error.to_string()))?;
        // SAFETY: as the caller promises.
        unsafe { put_text(&json, buffer, size, length) }
    })
}

/// How many steps it has; none if every rank already holds its target.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_steps(plan: *const Plan, out: *mut usize) -> Status {
    body!(reshard_plan_steps(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.steps().len(), "out") }
    })
}

/// One of its steps.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_step(plan: *const Plan, index: usize, out: *mut Step) -> Status {
    body!(reshard_plan_step(plan, out) {
        let plan = handles::of(plan)?;
        let steps = plan.0.steps();
        let step = steps.get(index).ok_or_else(|| Fault::past_the_end("step", index, steps.len()))?;
        let step = Step {
            size: size_of::<Step>(),
            op: op_name(step.op()),
            received_bytes: step.received_bytes,
            sent_bytes: step.sent_bytes,
            peak_bytes: step.peak_bytes,
            cost_us: step.cost_us,
            communicates: u8::from(step.op().communicates()),
        };
        // SAFETY: as the caller promises.
        unsafe { put_sized(out, step, size_of::<Step>(), "out") }
    })
}

/// The greatest total of bytes that any one rank receives.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_received_bytes(plan: *const Plan, out: *mut u64) -> Status {
    body!(reshard_plan_received_bytes(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.received_bytes(), "out") }
    })
}

/// The most bytes that any rank holds at one moment.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_peak_bytes(plan: *const Plan, out: *mut u64) -> Status {
    body!(reshard_plan_peak_bytes(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.peak_bytes(), "out") }
    })
}

/// Modelled time in microseconds.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_cost_us(plan: *const Plan, out: *mut f64) -> Status {
    body!(reshard_plan_cost_us(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.cost_us(), "out") }
    })
}

/// Bytes that the worst rank cannot do without; `known` is 0, and the number too, where nothing simple is true.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_lower_bound_bytes(
    plan: *const Plan,
    out: *mut u64,
    known: *mut u8,
) -> Status {
    body!(reshard_plan_lower_bound_bytes(plan, out, known) {
        let bound = handles::of(plan)?.0.lower_bound_bytes();
        // SAFETY: as the caller promises.
        unsafe {
            put(out, bound.unwrap_or(0), "out")?;
            put(known, u8::from(bound.is_some()), "known")
        }
    })
}

/// All ranks that hold something before or after, ascending.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_ranks(
    plan: *const Plan,
    values: *mut usize,
    capacity: usize,
    count: *mut usize,
) -> Status {
    body!(reshard_plan_ranks(plan, count) {
        let ranks = handles::of(plan)?.0.ranks();
        // SAFETY: as the caller promises.
        unsafe { put_list(&ranks, values, capacity, count) }
    })
}

/// The plan between the duals, from the second's to the first's: what gradients do.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_transposed(plan: *const Plan, out: *mut *mut Plan) -> Status {
    body!(reshard_plan_transposed(plan, out) {
        let plan = handles::of(plan)?.0.transposed()?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Plan(Arc::new(plan)), out) }
    })
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
