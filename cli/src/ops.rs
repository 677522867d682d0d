//! Ops of a request: a call and the shapes of its operands, bound by the standard table.

use reshard_ops::rules::{Op, OpCall, OpTable, Rule};

use super::error::CliError;

/// Binds a call to inputs of these shapes, and to outputs of the given shapes.
///
/// A list of strategies does not determine the output shapes, nor does an equation with a factor that only
/// outputs have.
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

/// Returns the rule of a call whose rule is independent of shapes.
pub(crate) fn stated(table: &OpTable, call: &OpCall) -> Option<Rule> {
    match call {
        OpCall::Rule(rule) => Some(rule.clone()),
        OpCall::Each(_) => None,
        OpCall::Named { name, arguments } => table.rule(name).filter(|_| arguments.is_empty()),
    }
}
