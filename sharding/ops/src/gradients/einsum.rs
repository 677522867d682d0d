//! The gradient of an einsum: for each operand the einsum of the gradient and the others.
//!
//! ```text
//! mk,kn->mn     dx0 = mn,kn->mk(dy, x1)     dx1 = mk,mn->kn(x0, dy)
//! ij->i         dx = dy, repeated along j
//! ```
//!
//! Letters of an operand that occur nowhere else are repeated.

use super::builder::{GradientBuilder, Variable};
use crate::Error;
use crate::rules::{Dim, Equation, Rule, RuleBuilder};

/// The gradient of a call of a rule that is a plain einsum.
pub(super) fn gradient(b: &mut GradientBuilder<'_>, rule: &Rule) -> Result<Vec<Option<Variable>>, Error> {
    let plain = rule.equation().is_some_and(|equation| {
        let mut of_letters = RuleBuilder::new();
        for dims in &equation.inputs {
            of_letters = of_letters.input(dims.iter().cloned());
        }
        for dims in &equation.outputs {
            of_letters = of_letters.output(dims.iter().cloned());
        }
        of_letters.build().is_ok_and(|built| built == *rule)
    });
    if plain {
        return of_letters(b, rule);
    }
    Err(refused(rule, "it is not an einsum of letters alone"))
}

fn refused(rule: &Rule, why: &str) -> Error {
    Error::Sharding(reshard_sharding::Error::NoGradient {
        reason: format!("{rule} has no gradient: {why}; add it as an op, with a gradient formula"),
    })
}

/// Returns the gradient of the einsum of a rule's letters, whatever other properties the rule has.
pub(super) fn of_letters(b: &mut GradientBuilder<'_>, rule: &Rule) -> Result<Vec<Option<Variable>>, Error> {
    let refused = |why: &str| refused(rule, why);
    let plain = |dims: &[Dim]| -> Option<Vec<char>> {
        dims.iter()
            .map(|dim| match dim {
                Dim::Factors(letters) if letters.len() == 1 => letters.first().copied(),
                Dim::Factors(_) | Dim::Rest | Dim::Whole => None,
            })
            .collect()
    };
    let equation: &Equation = rule.equation().ok_or_else(|| refused("it is a list of strategies"))?;
    let all: Option<Vec<Vec<char>>> =
        equation.inputs.iter().chain(&equation.outputs).map(|dims| plain(dims)).collect();
    let all = all.ok_or_else(|| refused("it has dims that are not single letters"))?;
    let (inputs, outputs) = all.split_at(equation.inputs.len());
    let [output] = outputs else { return Err(refused("it has several outputs")) };
    let twice = |dims: &[char]| (1..dims.len()).any(|i| dims[..i].contains(&dims[i]));
    if all.iter().any(|dims| twice(dims)) {
        return Err(refused("a letter is in one operand twice"));
    }
    (0..inputs.len()).map(|i| operand(b, inputs, output, i).map(Some)).collect()
}

fn operand(
    b: &mut GradientBuilder<'_>,
    inputs: &[Vec<char>],
    output: &[char],
    i: usize,
) -> Result<Variable, Error> {
    let others = || (0..inputs.len()).filter(|&j| j != i);
    let elsewhere = |c: &char| output.contains(c) || others().any(|j| inputs[j].contains(c));
    let reached: Vec<char> = inputs[i].iter().copied().filter(elsewhere).collect();
    // In the order of the forward operands, with the gradient in place of the operand.
    let mut dims: Vec<Vec<char>> = inputs.to_vec();
    dims[i] = output.to_vec();
    let mut operands: Vec<Variable> = (0..inputs.len()).map(|j| b.x(j)).collect();
    operands[i] = b.dy(0);
    let product = if dims.len() == 1 && dims[0] == reached {
        operands[0]
    } else {
        let mut rule = RuleBuilder::new();
        for dims in &dims {
            rule = rule.input(dims.iter().copied());
        }
        let rule = rule.output(reached.iter().copied()).build()?;
        b.call(&crate::rules::OpCall::Rule(rule), &operands)?
    };
    let shape = b.shape(b.x(i)).to_vec();
    let mut kept = shape.clone();
    for (size, c) in kept.iter_mut().zip(&inputs[i]) {
        if !reached.contains(c) {
            *size = 1;
        }
    }
    let placed = b.reshaped(product, &kept)?;
    b.expanded(placed, &shape)
}
