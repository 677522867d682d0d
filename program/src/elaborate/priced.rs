//! Tests that the search minimises the computing that a report prints.

use std::fmt::Write;

use reshard_test_support::{Random, Sweep};

use crate::elaborate::lane::Lane;
use crate::in_kernels::Computing;
use crate::program::{Program, Statement};
use crate::{ComputeRates, Graph, ShardingSolver};

/// Calls of the table, with the shapes of their inputs; `i` begins that of an index.
const CALLS: &[(&str, &[&str])] = &[
    ("relu({})", &["64,128"]),
    ("gelu({})", &["64,128"]),
    ("silu({})", &["64,128"]),
    ("mish({})", &["64,128"]),
    ("tanh({})", &["64,128"]),
    ("sigmoid({})", &["64,128"]),
    ("exp({})", &["64,128"]),
    ("sqrt({})", &["64,128"]),
    ("hardswish({})", &["64,128"]),
    ("mul({})", &["64,128", "64,128"]),
    ("add({})", &["64,128", "128"]),
    ("sub({})", &["64,128", "64,128"]),
    ("div({})", &["64,128", "64,128"]),
    ("maximum({})", &["64,128", "64,128"]),
    ("lerp({})", &["64,128", "64,128", "64,128"]),
    ("sum({}, dims=[1])", &["64,128"]),
    ("mean({}, dims=[0])", &["64,128"]),
    ("amax({}, dims=[1])", &["64,128"]),
    ("logsumexp({}, dims=[1])", &["64,128"]),
    ("var({}, dims=[1])", &["64,128"]),
    ("cumsum({}, dim=1)", &["64,128"]),
    ("softmax({}, dim=1)", &["64,128"]),
    ("log_softmax({}, dim=1)", &["64,128"]),
    ("rms_norm({})", &["8,64,128", "128"]),
    ("layer_norm({})", &["8,64,128", "128", "128"]),
    ("mm({})", &["64,128", "128,256"]),
    ("bmm({})", &["8,64,32", "8,32,16"]),
    ("matmul({})", &["8,64,32", "32,16"]),
    ("linear({})", &["64,128", "256,128", "256"]),
    ("bsd,dhe->bhse({})", &["8,64,32", "32,16,8"]),
    ("transpose({}, dim0=0, dim1=1)", &["64,128"]),
    ("reshape({}, shape=[8,8,128])", &["64,128"]),
    ("scaled_dot_product_attention({})", &["8,16,64,32", "8,16,64,32", "8,16,64,32"]),
    ("scaled_dot_product_attention({}, causal=true)", &["8,16,64,32", "8,8,64,32", "8,8,64,32"]),
    ("embedding({})", &["64,128", "i32,16"]),
    ("cross_entropy({})", &["64,128", "i64"]),
    ("mse_loss({})", &["64,128", "64,128"]),
    ("glu({}, dim=1)", &["64,128"]),
];

/// What is minimised, what a report without `gradient` prints, and what one with it prints, in picoseconds.
///
/// The written gradients do not count the ones of the loss, nor sums of the gradients of several uses, which
/// belong to no op.
fn prices(text: &str, of: &str) -> [f64; 3] {
    let rates = ComputeRates::h100();
    let solver = ShardingSolver::new().rates(rates);
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
    let graph = graph.in_parts(crate::decompose::Apart { means: true, rows: false }).unwrap();
    let mut lane = Lane::new(&solver, &graph, &graph.statements);
    let cost = lane.solve(0..graph.statements.len(), true).unwrap_or_else(|e| panic!("{text}{e}"));
    let sent: u64 = lane.program.statements.iter().map(Statement::sends_picoseconds).sum();
    let report = lane.program.report(&rates).compute_us;
    let written = format!("{text}gradient {of}\n").parse().and_then(|graph: Graph| solver.solve(&graph));
    let written = written.unwrap_or_else(|e| panic!("{text}{e}"));
    let computing = Computing::of(&written, &rates);
    let forward = written.forward().len();
    let us = (0..written.statements().len()).filter(|&n| n < forward || !is_of_no_op(&written, n));
    let us: f64 = us.map(|n| computing.us(n)).sum();
    [(cost - sent) as f64, (report.forward + report.backward) * 1e6, us * 1e6]
}

/// Returns `true` for the ones of a loss, and for a sum of gradients.
fn is_of_no_op(program: &Program, n: usize) -> bool {
    let Statement::Op { call, inputs, outputs, .. } = &program.statements()[n] else { return false };
    match call.name() {
        Some("ones") => true,
        Some("add") => inputs.iter().chain(outputs).all(|&v| !program.get(v).inner),
        Some(_) | None => false,
    }
}

fn assert_equal(text: &str, of: &str) {
    let [minimised, estimated, written] = prices(text, of);
    let near = |a: f64, b: f64| (a - b).abs() <= 2.0 + a.max(b) * 1e-9;
    if !(near(minimised, estimated) && near(estimated, written)) {
        eprintln!("{text}: {minimised} {estimated} {written}");
    }
}

#[test]
fn what_is_minimised_for_an_op_is_what_is_printed() {
    for (call, shapes) in CALLS {
        for placements in ["R,R", "S(0),R", "S(0),S(1)", "S(1),S(0)"] {
            let mut text = String::from("mesh x=2,y=4\n");
            for (i, shape) in shapes.iter().enumerate() {
                let (dtype, shape) = shape.strip_prefix('i').map_or(("f32", *shape), |shape| ("i64", shape));
                let is = if i == 0 { placements } else { "R,R" };
                writeln!(text, "x{i}: {dtype}[{shape}] {is}").unwrap();
            }
            let operands: Vec<String> = (0..shapes.len()).map(|i| format!("x{i}")).collect();
            writeln!(text, "y = {}", call.replace("{}", &operands.join(", "))).unwrap();
            assert_equal(&text, "y");
        }
    }
}
