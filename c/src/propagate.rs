//! Propagation: the cheapest shardings around one op.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;

use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::{OpCall, OpTable};
use reshard_planner::{Arithmetic, SearchBudget};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{list, put, text};
use crate::planner::Planner;
use crate::sharding::Sharding;

/// The cheapest shardings of the inputs and outputs of an op.
#[derive(Debug)]
pub struct OpSharding(reshard_ops::propagate::OpSharding);

impl Handled for OpSharding {
    const NAME: &'static str = "sharding of an op";
}

/// Propagates shardings through an op, at the least cost of the redistributions that it needs.
///
/// `op` is a call such as `mm` or `softmax(dim=1)`, or a rule such as `mk,kn->mn`. `inputs` are the
/// shardings of its `count` inputs, on one mesh, of elements of type `dtype`. `planner` may be null, for the
/// default one.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_propagate(
    op: *const c_char,
    inputs: *const *const Sharding,
    count: usize,
    dtype: *const c_char,
    planner: *const Planner,
    out: *mut *mut OpSharding,
) -> Status {
    body!(reshard_propagate(op, dtype, out) {
        // SAFETY: as the caller promises.
        let (op, handles, dtype) = unsafe { (text(op, "op")?, list(inputs, count, "inputs")?, text(dtype, "dtype")?) };
        let (call, dtype): (OpCall, _) = (op.parse()?, dtype.parse()?);
        let mut propagator = Propagator::new();
        let mut arithmetic = Arithmetic::Kernels;
        if !planner.is_null() {
            let planner = handles::of(planner)?.rust().clone();
            arithmetic = planner.options().arithmetic();
            if planner.options().budget() != SearchBudget::default() {
                propagator = propagator.with_budget(planner.options().budget());
            }
            propagator = propagator.with_planner(planner);
        }
        let mut inputs = Vec::with_capacity(count);
        for &input in handles {
            let sharding = handles::of(input)?.0.clone();
            arithmetic.check(&sharding, dtype)?;
            inputs.push(Operand::new(dtype, sharding));
        }
        let Some(first) = inputs.first() else {
            return Err(Fault::refused("rule", format!("`{op}` was given no inputs; its mesh is that of its inputs")));
        };
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.sharding.shape()).collect();
        let op = OpTable::standard().op(&call, &shapes)?;
        let chosen = propagator.propagate(&op, first.sharding.mesh(), &inputs, &[])?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(OpSharding(chosen), out) }
    })
}

/// Frees the shardings of an op; null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_op_sharding_free(op_sharding: *mut OpSharding) -> Status {
    body!(reshard_op_sharding_free() { handles::free(op_sharding) })
}

/// The modelled time of all redistributions, in microseconds.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_op_sharding_cost_us(
    op_sharding: *const OpSharding,
    out: *mut f64,
) -> Status {
    body!(reshard_op_sharding_cost_us(op_sharding, out) {
        // SAFETY: as the caller promises.
        unsafe { put(out, handles::of(op_sharding)?.0.cost_us, "out") }
    })
}

/// The sharding of an input after its redistribution, which is that given where none is needed.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_op_sharding_input(
    op_sharding: *const OpSharding,
    index: usize,
    out: *mut *mut Sharding,
) -> Status {
    body!(reshard_op_sharding_input(op_sharding, out) {
        let sharding = nth("input", &handles::of(op_sharding)?.0.inputs, index)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(sharding, out) }
    })
}

/// The number of outputs.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_op_sharding_outputs(
    op_sharding: *const OpSharding,
    out: *mut usize,
) -> Status {
    body!(reshard_op_sharding_outputs(op_sharding, out) {
        // SAFETY: as the caller promises.
        unsafe { put(out, handles::of(op_sharding)?.0.outputs.len(), "out") }
    })
}

/// The sharding of an output.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_op_sharding_output(
    op_sharding: *const OpSharding,
    index: usize,
    out: *mut *mut Sharding,
) -> Status {
    body!(reshard_op_sharding_output(op_sharding, out) {
        let sharding = nth("output", &handles::of(op_sharding)?.0.outputs, index)?;
        // SAFETY: as the caller promises.
        unsafe { handles::put(sharding, out) }
    })
}

fn nth(what: &str, shardings: &[reshard_sharding::Sharding], index: usize) -> Result<Sharding, Fault> {
    let sharding = shardings.get(index).ok_or_else(|| Fault::past_the_end(what, index, shardings.len()))?;
    Ok(Sharding(sharding.clone()))
}
