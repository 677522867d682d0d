//! Plans, and their steps.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;
use std::sync::Arc;

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{put, put_list, put_sized, put_text, text};
use crate::planner::{Planner, USUAL};
use crate::sharding::Sharding;

/// The steps from one sharding to another.
#[derive(Debug)]
pub struct Plan(pub(crate) Arc<reshard_planner::Plan>);

impl Handled for Plan {
    const NAME: &'static str = "plan";
}

/// One operation of a plan.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Step {
    /// The `sizeof` of this struct: set by the caller on input, the number of bytes written on return.
    pub size: usize,
    /// `slice`, `all_gather`, `reduce_scatter`, `all_reduce`, `all_to_all`, `exchange` or `zero_fill`.
    pub op: *const c_char,
    /// The most bytes that any rank receives.
    pub received_bytes: u64,
    /// The most bytes that any rank sends.
    pub sent_bytes: u64,
    /// The most bytes that any rank holds.
    pub peak_bytes: u64,
    /// Modelled time in microseconds.
    pub cost_us: f64,
    /// 1 if ranks communicate in the step, else 0.
    pub communicates: u8,
}

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

/// Plans the redistribution from one sharding to another of the same tensor.
///
/// `dtype` is the type of its elements, such as `f32`. `planner` may be null, for the default one.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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
        let plan = if planner.is_null() {
            USUAL.plan(&from, &to, dtype)
        } else {
            handles::of(planner)?.plan(&from, &to, dtype)
        }?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Plan(plan), out) }
    })
}

/// Reads a plan from the JSON of `reshard_plan_json`, and plans it again.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// Frees a plan; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_plan_free(plan: *mut Plan) -> Status {
    body!(reshard_plan_free() { handles::free(plan) })
}

/// Prints the steps of the plan.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// The request of the plan (shardings, dtype and options) as JSON.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// The number of steps; 0 if every rank already holds its target.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_steps(plan: *const Plan, out: *mut usize) -> Status {
    body!(reshard_plan_steps(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.steps().len(), "out") }
    })
}

/// One step of the plan.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_received_bytes(plan: *const Plan, out: *mut u64) -> Status {
    body!(reshard_plan_received_bytes(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.received_bytes(), "out") }
    })
}

/// The most bytes that any rank holds at one time.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_cost_us(plan: *const Plan, out: *mut f64) -> Status {
    body!(reshard_plan_cost_us(plan, out) {
        let plan = handles::of(plan)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, plan.0.cost_us(), "out") }
    })
}

/// A lower bound of the bytes that the worst rank must receive; if there is none, it and `known` are 0.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// All ranks that hold elements before or after, ascending.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// The transposed plan, between the cotangent shardings: from that of the target to that of the source.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_transposed(plan: *const Plan, out: *mut *mut Plan) -> Status {
    body!(reshard_plan_transposed(plan, out) {
        let plan = handles::of(plan)?.0.transposed()?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(Plan(Arc::new(plan)), out) }
    })
}
