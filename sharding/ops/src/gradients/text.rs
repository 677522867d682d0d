//! Formulas of one line: the body of a composite over `x`, `y` and `dy`, or `x0`, `y1` and so on, that makes `dx`.

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use crate::Error;
use crate::rules::Composite;

/// Parses a formula. Gradients of broadcast operands are summed, so that a text need not specify shapes.
pub(super) fn text(body: &str) -> Formula {
    let body: Result<Composite, Error> = body.parse();
    Formula::new(move |b| {
        let body = body.as_ref().map_err(Clone::clone)?;
        let inputs = body.inputs().iter().map(|name| saved(b, name)).collect::<Result<Vec<_>, _>>()?;
        let made = b.spliced(body, &inputs)?;
        let mut given = vec![None; b.forward().inputs().len()];
        let names: Vec<String> = body.outputs().map(str::to_owned).collect();
        for (name, value) in names.iter().zip(made) {
            let input = numbered(name, "dx", given.len()).ok_or_else(|| unknown(name))?;
            let shape = b.forward().inputs()[input].clone();
            given[input] = Some(b.fitted(value, &shape)?);
        }
        Ok(given)
    })
}

/// Returns the saved value that a name of a formula refers to.
fn saved(b: &GradientBuilder<'_>, name: &str) -> Result<Variable, Error> {
    let (inputs, outputs) = (b.forward().inputs().len(), b.forward().outputs().len());
    numbered(name, "x", inputs)
        .map(|i| b.x(i))
        .or_else(|| numbered(name, "y", outputs).map(|o| b.y(o)))
        .or_else(|| numbered(name, "dy", outputs).map(|o| b.dy(o)))
        .ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::Rule {
        reason: format!("a formula knows x, y, dy and dx, with numbers where there are several: not {name}"),
    }
}

/// Returns the index in a name: `x` is the first, `x2` the third.
fn numbered(name: &str, what: &str, of: usize) -> Option<usize> {
    let number = name.strip_prefix(what)?;
    let number = if number.is_empty() { 0 } else { number.parse().ok()? };
    (number < of).then_some(number)
}
