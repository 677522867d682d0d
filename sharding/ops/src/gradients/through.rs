//! The gradient of a composite: its body, read backwards.
//!
//! ```text
//! forward     v1 = f1(x), v2 = f2(v1, x), ..
//! backward    dv of an output is given; for each call in reverse, the gradients of what it made give those of what it took,
//!             and what a value gets from several calls is added
//! ```
//!
//! What is between is computed again: a composite saves what it was given, and nothing of its body.

use super::builder::{GradientBuilder, Variable};
use crate::Error;
use crate::rules::Composite;

pub(super) fn gradient(
    b: &mut GradientBuilder<'_>,
    body: &Composite,
) -> Result<Vec<Option<Variable>>, Error> {
    let inputs: Vec<Variable> = (0..b.forward().inputs().len()).map(|i| b.x(i)).collect();
    let values = b.played(body, &inputs)?;
    let mut gradients: Vec<Option<Variable>> = vec![None; values.len()];
    for (o, &value) in body.output_values().iter().enumerate() {
        let given = b.dy(o);
        gradients[value] = Some(added(b, gradients[value], given)?);
    }
    let calls: Vec<_> = body.calls().collect();
    for (call, takes, makes) in calls.into_iter().rev() {
        let of_outputs: Vec<Option<Variable>> = makes.iter().map(|&v| gradients[v]).collect();
        if of_outputs.iter().all(Option::is_none) {
            continue;
        }
        let of = |list: &[usize]| list.iter().map(|&v| values[v]).collect::<Vec<_>>();
        let back = b.backward(call, &of(takes), &of(makes), &of_outputs)?;
        for (&value, gradient) in takes.iter().zip(back) {
            if let Some(gradient) = gradient {
                gradients[value] = Some(added(b, gradients[value], gradient)?);
            }
        }
    }
    Ok(gradients[..inputs.len()].to_vec())
}

fn added(b: &mut GradientBuilder<'_>, a: Option<Variable>, more: Variable) -> Result<Variable, Error> {
    match a {
        None => Ok(more),
        Some(a) => b.op("add", &[a, more]),
    }
}
