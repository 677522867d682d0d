//! Ops of a request: a call and the shapes of its operands, bound by the standard table.

use reshard_ops::rules::{Op, OpCall, OpTable, Rule};

use super::error::CliError;

/// The op of a call on inputs of these shapes, and on outputs of those where they are given: a list of strategies says
/// nothing of them, and nor does an equation with a factor that only outputs have.
pub(crate) fn bind(
    table: &OpTable,
    call: &OpCall,
    inputs: &[Vec<usize>],
    outputs: Option<&[Vec<usize>]>,
) -> Result<Op, CliError> {
    let inputs: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
    let Some(outputs) = outputs else { return Ok(table.op(call, &inputs)?) };
    let given: Vec<&[usize]> = outputs.iter().map(Vec::as_slice).collect();
    if let Some(rule) = stated(table, call) {
        return Ok(Op::with_outputs(&call.to_string(), &rule, &inputs, &given)?);
    }
    let op = table.op(call, &inputs)?;
    if op.outputs().iter().map(|shape| &shape[..]).eq(given.iter().copied()) {
        return Ok(op);
    }
    let has: Vec<&[usize]> = op.outputs().iter().map(|shape| &shape[..]).collect();
    Err(CliError::refused("rule", format!("{call} has outputs of the shapes {has:?}, not {given:?}")))
}

/// The rule of a call that needs no shapes to have one.
pub(crate) fn stated(table: &OpTable, call: &OpCall) -> Option<Rule> {
    match call {
        OpCall::Rule(rule) => Some(rule.clone()),
        OpCall::Each(_) => None,
        OpCall::Named { name, arguments } => table.rule(name).filter(|_| arguments.is_empty()),
    }
}
