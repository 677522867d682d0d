//! Norms through ops: ops that pass partial norms, inputs that may become them, and gradient clipping.

use reshard_kernels::DType;
use reshard_ops::propagate::{Graph, Operand, OutputConstraint, PropagationCache, Propagator, Value};
use reshard_ops::rules::{Op, OpCall, OpTable, Rule};
use reshard_sharding::{Exponent, Mesh, Placement, ReduceOp, Sharding};
use reshard_test_support::Sweep;

use crate::propagation::operand;

fn op(call: &str, shapes: &[&[usize]]) -> Op {
    OpTable::standard().op(&call.parse::<OpCall>().unwrap(), shapes).unwrap()
}

fn exponent(text: &str) -> Exponent {
    text.parse().unwrap()
}

/// Returns gradients in these shardings, and the graph of PyTorch's `clip_grad_norm_` with this norm.
///
/// It has the norm of the norms, and every gradient times a number computed from it.
fn clipping(mesh: &Mesh, p: &str, gradients: &[(&[usize], &str)]) -> (Graph, Vec<Value>, Value, Vec<Value>) {
    let mut graph = Graph::new(mesh);
    let mut inputs = Vec::new();
    let mut norms = Vec::new();
    for (i, (shape, text)) in gradients.iter().enumerate() {
        let g = graph.input(&format!("g{i}"), operand(mesh, shape, text)).unwrap();
        inputs.push(g);
        norms.push(graph.apply(&op(&format!("norm(p={p})"), &[shape]), &[g]).unwrap()[0]);
    }
    let n = norms.len();
    let scalars: Vec<&[usize]> = vec![&[]; n];
    let stacked = graph.apply(&op("stack", &scalars), &norms).unwrap()[0];
    let total = graph.apply(&op(&format!("linalg_vector_norm(p={p})"), &[&[n]]), &[stacked]).unwrap()[0];
    let shifted = graph.apply(&op("add_scalar", &[&[]]), &[total]).unwrap()[0];
    let coefficient = graph.apply(&op("reciprocal", &[&[]]), &[shifted]).unwrap()[0];
    let coefficient = graph.apply(&op("clamp", &[&[]]), &[coefficient]).unwrap()[0];
    let clipped = inputs
        .iter()
        .zip(gradients)
        .map(|(&g, (shape, _))| graph.apply(&op("mul", &[shape, &[]]), &[g, coefficient]).unwrap()[0])
        .collect();
    (graph, inputs, total, clipped)
}

#[test]
fn gradient_clipping_reduces_once_a_scalar() {
    let mesh: Mesh = "dp=2,tp=4".parse().unwrap();
    let gradients: &[(&[usize], &str)] = &[
        (&[64, 32], "S(0),S(1)"),
        (&[64, 32], "S(0),R"),
        (&[32, 48], "R,S(0)"),
        (&[31], "S(0),S(0)"),
        (&[16, 8], "SS(0,4),S(0)"),
        (&[256, 64], "R,R"),
        (&[], "R,R"),
    ];
    for p in ["2", "3", "2.5", "0.5"] {
        let (graph, inputs, total, clipped) = clipping(&mesh, p, gradients);
        let found = graph.propagate(&PropagationCache::new(Propagator::new(), 64)).unwrap();
        let communicating: Vec<_> =
            found.communications().iter().filter(|c| c.plan.communicating_steps() > 0).collect();
        assert_eq!(communicating.len(), 1, "{p}: {found}");
        let only = communicating[0];
        assert_eq!(
            (only.value, only.plan.communicating_steps(), only.plan.from().numel()),
            (total, 1, 1),
            "{found}"
        );
        let terms = only.plan.from().partial();
        let norm = ReduceOp::Norm(exponent(p));
        assert_eq!(
            terms.iter().map(|t| (t.sub.axis, t.op)).collect::<Vec<_>>(),
            [(0, norm), (1, norm)],
            "{found}"
        );
        assert!(only.plan.to().partial().is_empty());
        // And nothing else is redistributed: gradients keep their shardings.
        for (g, c) in inputs.iter().zip(&clipped) {
            assert_eq!(found.sharding(*g), found.sharding(*c), "{found}");
        }
    }
    // For sums and maxima of magnitudes the stack is reduced: once too.
    for p in ["1", "inf"] {
        let (graph, ..) = clipping(&mesh, p, gradients);
        let found = graph.propagate(&PropagationCache::new(Propagator::new(), 64)).unwrap();
        let steps: usize = found.communications().iter().map(|c| c.plan.communicating_steps()).sum();
        assert_eq!(steps, 1, "{p}: {found}");
    }
}

#[test]
fn what_may_be_negative_does_not_become_terms_of_a_norm() {
    let mesh: Mesh = "x=4".parse().unwrap();
    let stack = op("stack", &[&[6], &[6]]);
    let terms = operand(&mesh, &[6], "P(norm2)");
    assert!(terms.nonnegative);
    for text in ["R", "S(0)"] {
        let other = operand(&mesh, &[6], text);
        let reduced = [OutputConstraint::Reduced];
        let chosen =
            Propagator::new().propagate(&stack, &mesh, &[terms.clone(), other.clone()], &reduced).unwrap();
        assert!(!chosen.inputs[0].is_partial() && !chosen.outputs[0].is_partial(), "{text}");
        // For a known magnitude it costs nothing, and leaves one reduction instead of two.
        let known = [terms.clone(), other.nonnegative()];
        let chosen = Propagator::new().propagate(&stack, &mesh, &known, &[]).unwrap();
        assert_eq!((chosen.cost_us, chosen.outputs[0].to_string().as_str()), (0.0, "P(norm2)"), "{text}");
    }
}

#[test]
fn what_is_known_not_to_be_negative_passes_through_a_graph() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let ask = |calls: &[&str]| {
        let mut graph = Graph::new(&mesh);
        let x = graph.input("x", operand(&mesh, &[4, 8], "R")).unwrap();
        let y = graph.input("y", operand(&mesh, &[4, 8], "S(1)")).unwrap();
        let made = |graph: &mut Graph, of: Value| {
            let mut shape = vec![4, 8];
            calls.iter().fold(of, |v, call| {
                let op = op(call, &[&shape]);
                shape.clone_from(&op.outputs()[0]);
                graph.apply(&op, &[v]).unwrap()[0]
            })
        };
        let z = graph.input("z", operand(&mesh, &[4, 8], "S(0)")).unwrap();
        let (a, b, c) = (made(&mut graph, x), made(&mut graph, y), made(&mut graph, z));
        let found = graph.propagate(&PropagationCache::new(Propagator::new(), 8)).unwrap();
        let shape = found.sharding(a).unwrap().shape().to_vec();
        let both = graph.apply(&op("stack", &[&shape, &shape, &shape]), &[a, b, c]).unwrap()[0];
        graph
            .propagate(&PropagationCache::new(Propagator::new(), 8))
            .unwrap()
            .sharding(both)
            .unwrap()
            .to_string()
    };
    assert_eq!(ask(&["norm"]), "P(norm2)");
    assert_eq!(ask(&["norm(keepdim=true)", "squeeze", "clone", "abs"]), "P(norm2)");
    assert_eq!(ask(&["norm(p=3,keepdim=true)", "t", "reshape(shape=[1])"]), "P(norm3)");
    // Partial norms do not pass ops that may change the sign.
    assert_eq!(ask(&["norm", "neg"]), "R");
}

#[test]
fn terms_of_every_norm_pass_what_selects() {
    let examples = crate::reference_ops::all();
    let table = OpTable::standard();
    let exponents = ["0.5", "3", "inf"].map(exponent);
    let mut tried = 0;
    for e in &examples {
        let ops: Vec<Op> = e.ops(&table).iter().map(|op| op.with_norms(&exponents).unwrap()).collect();
        if ops.iter().zip(e.ops(&table)).all(|(more, op)| more.strategies() == op.strategies()) {
            continue;
        }
        tried += 1;
        if Sweep::asked().takes_one_in(8, tried) {
            e.verifier().budget(0).verify(&ops).unwrap();
        }
    }
    assert!(tried > 30, "{tried} ops pass partial values of every norm");
}

#[test]
fn rules_name_norms_by_their_exponents() {
    for text in [
        "ij->i {j: norm2}",
        "ij->i {j: norm2.5 even}",
        "ij->i {j: norm0.5 4}",
        "ij->i {(P(norminf) -> P(norm3))}",
    ] {
        let rule: Rule = text.parse().unwrap();
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule, "{text}: {rule}");
    }
    assert_eq!("ij->i {j: norm2}".parse::<Rule>().unwrap().strategies()[1].to_string(), "S(j) -> P(norm2)");
    for text in ["ij->i {j: norm0}", "ij->i {j: norm}", "ij->i {(P(norm-1) -> P)}"] {
        assert!(text.parse::<Rule>().is_err(), "{text}");
    }
}

#[test]
fn views_keep_terms_of_every_norm() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    let view = op("reshape(shape=[4,6])", &[&[24]]);
    for p in ["0.5", "2", "3", "inf"] {
        let x = [operand(&mesh, &[24], &format!("P(norm{p}),R"))];
        let chosen = Propagator::new().propagate(&view, &mesh, &x, &[]).unwrap();
        assert_eq!((chosen.cost_us, chosen.outputs[0].to_string()), (0.0, format!("P(norm{p}),R")));
    }
}

#[test]
fn a_norm_of_terms_of_another_reduces_first() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let norm = |p: &str| op(&format!("norm(p={p})"), &[&[6]]);
    for (of, p, passes) in [
        ("norm2", "2", true),
        ("norm2", "3", false),
        ("norm3", "3", true),
        ("norm1", "1", true),
        ("sum", "2", false),
        ("norminf", "inf", true),
    ] {
        let x = operand(&mesh, &[6], &format!("P({of})"));
        let chosen = Propagator::new().propagate(&norm(p), &mesh, &[x], &[]).unwrap();
        assert_eq!(chosen.communicating_steps() == 0, passes, "norm(p={p}) of P({of})");
        if passes {
            let placement = chosen.outputs[0].placements().unwrap()[0].clone();
            assert_eq!(placement, Placement::Partial(ReduceOp::Norm(exponent(p))));
        }
    }
    // Sharded, it leaves partial norms, of any element type that a framework computes with.
    let sharded = Operand::new(DType::BF16, Sharding::parse(&mesh, &[6], "S(0)").unwrap());
    let chosen = Propagator::new().propagate(&norm("2"), &mesh, &[sharded], &[]).unwrap();
    assert_eq!(chosen.outputs[0].to_string(), "P(norm2)");
}
