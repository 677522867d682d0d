//! Gradients read backwards off a definition: the body of a composite, or calls that a formula makes.
//!
//! ```text
//! forward     v1 = f1(x), v2 = f2(v1, x), ..
//! backward    dv of an output is given; for each call in reverse, the gradients of its outputs give those of its inputs,
//!             and gradients of one value from several calls are added
//! ```
//!
//! Intermediate values are recomputed: a composite saves its inputs, and nothing of its body. Unused calls
//! are left out, so a call whose gradient needs no computed value leaves no trace.

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use crate::Error;
use crate::rules::{Composite, Statement};

/// Returns the gradients of the inputs of these calls.
///
/// Their results are the outputs, in order, or the first of them where the others are indices.
pub(super) fn defined(
    b: &mut GradientBuilder<'_>,
    define: &dyn Fn(&mut GradientBuilder<'_>) -> Result<Vec<Variable>, Error>,
) -> Result<Vec<Option<Variable>>, Error> {
    let before = b.made();
    let outputs = define(b)?;
    let calls: Vec<Statement> = b.made_since(before).to_vec();
    let mut gradients: Vec<Option<Variable>> = vec![None; b.values()];
    for (o, &value) in outputs.iter().enumerate() {
        let (has, wants) = (b.shape(value).to_vec(), b.shape(b.y(o)).to_vec());
        if has != wants {
            return Err(b.wrong(&format!("its definition makes {has:?} of output {o}, which is {wants:?}")));
        }
        add(b, &mut gradients[value.0], b.dy(o))?;
    }
    for Statement { call, operands, results } in calls.into_iter().rev() {
        let [takes, makes] =
            [operands, results].map(|list| list.into_iter().map(Variable).collect::<Vec<_>>());
        let of_outputs: Vec<Option<Variable>> = makes.iter().map(|v| gradients[v.0]).collect();
        if of_outputs.iter().all(Option::is_none) {
            continue;
        }
        let back = b.backward(&call, &takes, &makes, &of_outputs)?;
        for (&value, gradient) in takes.iter().zip(back) {
            if let Some(gradient) = gradient {
                add(b, &mut gradients[value.0], gradient)?;
            }
        }
    }
    Ok((0..b.forward().inputs().len()).map(|i| gradients[b.x(i).0]).collect())
}

/// Returns the gradient of a composite.
pub(super) fn gradient(
    b: &mut GradientBuilder<'_>,
    body: &Composite,
) -> Result<Vec<Option<Variable>>, Error> {
    defined(b, &|b| {
        let inputs: Vec<Variable> = (0..b.forward().inputs().len()).map(|i| b.x(i)).collect();
        b.spliced(body, &inputs)
    })
}

/// Returns the gradient of an op by its definition as the text of a body, over all its inputs.
///
/// The definition may depend on the call.
pub(super) fn body(
    text: impl Fn(&GradientBuilder<'_>) -> Result<String, Error> + Send + Sync + 'static,
) -> Formula {
    Formula::new(move |b| {
        let body: Composite = text(b)?.parse()?;
        gradient(b, &body)
    })
}

fn add(b: &mut GradientBuilder<'_>, gradient: &mut Option<Variable>, more: Variable) -> Result<(), Error> {
    *gradient = Some(match *gradient {
        None => more,
        Some(one) => b.op("add", &[one, more])?,
    });
    Ok(())
}
