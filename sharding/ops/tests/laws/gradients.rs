//! Formulas of gradients: their shapes, texts and rules.

use crate::reference_ops::all;
use reshard_ops::gradients::{Gradient, Saved};
use reshard_ops::rules::{Composite, Op, OpCall, OpTable};

/// Examples of ops that have a formula, bound, with their gradients.
fn examples() -> Vec<(&'static str, String, Op, Gradient)> {
    let table = OpTable::standard();
    let mut out = Vec::new();
    for example in all() {
        let call: OpCall = example.call.parse().unwrap();
        let OpCall::Named { name, .. } = &call else { continue };
        if !table.has_gradient(name) {
            continue;
        }
        for op in example.ops(&table) {
            let inputs: Vec<&[usize]> = op.inputs().iter().map(Vec::as_slice).collect();
            match table.gradient(&call, &inputs) {
                Ok(gradient) => out.push((example.call, example.name(), op, gradient)),
                Err(e) => {
                    let known =
                        e.code() == "no_gradient" || e.to_string().contains("its gradient depends on");
                    assert!(known, "{call} on {inputs:?}: {e}");
                }
            }
        }
    }
    for (text, shapes) in MORE {
        let call: OpCall = text.parse().unwrap();
        let op = table.op(&call, shapes).unwrap();
        let gradient = table.gradient(&call, shapes).unwrap();
        out.push((text, text.split('(').next().unwrap().to_owned(), op, gradient));
    }
    out
}

/// Calls whose formula depends on an argument that examples leave out.
pub(crate) const MORE: &[(&str, &[&[usize]])] = &[
    ("pow_scalar(exponent=3)", &[&[6, 5]]),
    ("gelu(approximate=tanh)", &[&[6, 5]]),
    ("reshape(shape=[3,10])", &[&[6, 5]]),
    ("view(shape=[-1])", &[&[6, 5]]),
    ("flatten(start=1)", &[&[2, 3, 4]]),
    ("unflatten(dim=0,sizes=[2,3])", &[&[6, 5]]),
];

fn saved<'a>(op: &'a Op, saved: &Saved) -> &'a [usize] {
    match *saved {
        Saved::Input(i) => &op.inputs()[i],
        Saved::Output(o) | Saved::Gradient(o) => &op.outputs()[o],
    }
}

#[test]
fn a_formula_gives_what_has_the_shapes_of_the_inputs() {
    let mut table = OpTable::standard();
    let mut tried = 0;
    for (call, _, op, gradient) in examples() {
        assert_eq!(gradient.input_gradients().len(), op.inputs().len(), "{call}");
        let Some(body) = gradient.body() else { continue };
        table.add_composite("formula", body.clone()).unwrap();
        let takes: Vec<&[usize]> = gradient.inputs().iter().map(|s| saved(&op, s)).collect();
        let made = table.op(&OpCall::new("formula"), &takes);
        let made = made.unwrap_or_else(|e| panic!("{call} on {:?}: {gradient}: {e}", op.inputs()));
        let wanted: Vec<&Vec<usize>> = op
            .inputs()
            .iter()
            .zip(gradient.input_gradients())
            .filter(|(_, g)| g.is_some())
            .map(|(s, _)| s)
            .collect();
        assert_eq!(made.outputs().iter().collect::<Vec<_>>(), wanted, "{call}: {gradient}");
        tried += 1;
    }
    println!("{tried} formulas");
    assert!(tried > 100);
}

#[test]
fn a_formula_is_read_as_it_is_printed() {
    for (call, _, _, gradient) in examples() {
        let Some(body) = gradient.body() else { continue };
        let text = body.to_string();
        let again: Composite = text.parse().unwrap_or_else(|e| panic!("{call}: {e}"));
        assert_eq!(again.to_string(), text);
    }
}

#[test]
fn every_formula_is_of_an_op_of_the_table_and_is_tried() {
    let table = OpTable::standard();
    let tried: Vec<String> = examples().iter().map(|(_, name, _, _)| name.clone()).collect();
    let with: Vec<&str> = table.gradients().collect();
    for name in &with {
        assert!(table.names().any(|n| n == *name), "{name} is not an op of the table");
    }
    let idle: Vec<&&str> = with.iter().filter(|name| !tried.iter().any(|t| t == **name)).collect();
    assert!(idle.is_empty(), "no example tries {idle:?}");
}
