//! Formulas of gradients: their shapes, texts and rules.

use crate::reference_ops::all;
use reshard_kernels::DType;
use reshard_ops::gradients::{Gradient, Saved};
use reshard_ops::rules::{Composite, Op, OpCall, OpTable, OperandDtype};

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

/// Real operands where the op takes them, else indices or masks.
fn operand_dtypes(table: &OpTable, name: &str, operands: usize) -> Vec<DType> {
    let stated = table.dtypes(name).unwrap();
    let of = |i: usize| match stated.operand(i) {
        OperandDtype::Any | OperandDtype::Float | OperandDtype::Like(_) => DType::F32,
        OperandDtype::Integer | OperandDtype::Integral => DType::I64,
        OperandDtype::Bool => DType::Bool,
    };
    (0..operands).map(of).collect()
}

/// No formula indexes by real numbers, for example, and the gradient of a real operand is real.
#[test]
fn a_formula_gives_its_ops_elements_that_they_take() {
    let mut table = OpTable::standard();
    let (mut tried, mut wrong) = (0, Vec::new());
    for (text, name, op, gradient) in examples() {
        let Some(body) = gradient.body() else { continue };
        let call: OpCall = text.parse().unwrap();
        let takes = operand_dtypes(&table, &name, op.inputs().len());
        let makes = table.checked_dtypes(&call, &takes, op.outputs().len(), &|i| format!("x{i}")).unwrap();
        if makes.iter().all(|dtype| dtype.is_integral()) {
            continue;
        }
        let of = |saved: &Saved| match *saved {
            Saved::Input(i) => takes[i],
            Saved::Gradient(o) if makes[o].is_integral() => DType::F32,
            Saved::Output(o) | Saved::Gradient(o) => makes[o],
        };
        let given: Vec<DType> = gradient.inputs().iter().map(of).collect();
        table.add_composite("formula", body.clone()).unwrap();
        let outputs = body.outputs().count();
        match table.checked_dtypes(&OpCall::new("formula"), &given, outputs, &|i| body.inputs()[i].clone()) {
            Err(error) => wrong.push(format!("{text}: {error}")),
            Ok(made) => {
                let of_operands = takes.iter().zip(gradient.input_gradients());
                for (dtype, made) in of_operands.filter_map(|(dtype, g)| Some((dtype, made[(*g)?]))) {
                    if !dtype.is_integral() && made.is_integral() {
                        wrong.push(format!("{text}: a gradient is {made}: {gradient}"));
                    }
                }
            }
        }
        tried += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 100, "{tried}");
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
