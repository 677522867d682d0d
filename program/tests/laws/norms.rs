//! Norms through programs: gradient clipping, and values that may become partial norms.

use core::fmt::Write as _;

use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Program, ShardingSolver};
use reshard_sharding::ReduceOp;

use crate::elaborated;

/// Gradients with their shardings on `dp=2,tp=4`; one replicated is a scalar, which cannot be sliced.
const GRADIENTS: [(&str, &str); 7] = [
    ("64,32", "S(0),S(1)"),
    ("64,32", "S(0),R"),
    ("32,48", "R,S(0)"),
    ("31", "S(0),S(0)"),
    ("16,8", "SS(0,4),S(0)"),
    ("256,64", "R,R"),
    ("", "R,R"),
];

/// Returns PyTorch's `clip_grad_norm_` with this norm: every gradient times a number computed from the norm of norms.
fn clipping(p: &str) -> Program {
    let mut text = "mesh dp=2,tp=4\nno_grad\n".to_owned();
    let names: Vec<String> = (0..GRADIENTS.len()).map(|i| format!("n{i}")).collect();
    for (i, (shape, sharding)) in GRADIENTS.iter().enumerate() {
        writeln!(text, "g{i}: f32[{shape}] {sharding}\nn{i} = norm(g{i}, p={p})").unwrap();
    }
    writeln!(text, "s = stack({})\ntotal = linalg_vector_norm(s, p={p})", names.join(", ")).unwrap();
    text += "shifted = add_scalar(total)\ninverse = reciprocal(shifted)\ncoefficient = clamp(inverse)\n";
    for i in 0..GRADIENTS.len() {
        writeln!(text, "c{i} = mul(g{i}, coefficient)").unwrap();
    }
    elaborated(&text)
}

#[test]
fn gradient_clipping_reduces_once_a_scalar() {
    for p in ["2", "3", "2.5", "0.5"] {
        let program = clipping(p);
        let report = program.report(&ComputeRates::uniform());
        let communicating: Vec<_> = report.redistributions.iter().filter(|r| r.communicates()).collect();
        let [only] = &communicating[..] else { panic!("norm {p}: {program}") };
        assert_eq!((only.value.as_str(), only.steps.len()), ("total", 1), "norm {p}: {program}");
        let norm = ReduceOp::Norm(p.parse().unwrap());
        let terms: Vec<_> = only.from.value.partial().iter().map(|t| (t.sub.axis, t.op)).collect();
        assert_eq!(terms, [(0, norm), (1, norm)], "norm {p}: {program}");
        assert!(
            only.from.value.shape().is_empty() && only.to.value.partial().is_empty(),
            "norm {p}: {program}"
        );
    }
    // Sums and maxima of magnitudes are reduced once too.
    for p in ["1", "inf"] {
        let report = clipping(p).report(&ComputeRates::uniform());
        let steps: usize = report.redistributions.iter().map(|r| r.steps.len()).sum();
        assert_eq!(steps, 1, "norm {p}: {report}");
    }
}

/// Replicas of a value without negative elements become partial norms for free, and no others do.
#[test]
fn only_values_without_negative_elements_become_partial_norms() {
    let stacks = |shape: &str, p: &str, calls: &[&str]| {
        let mut text = format!("mesh x=2\nno_grad\nt: f32[{shape}] P(norm{p})\nv0: f32[] R\n");
        for (n, call) in calls.iter().enumerate() {
            writeln!(text, "v{} = {}", n + 1, call.replace('_', &format!("v{n}"))).unwrap();
        }
        writeln!(text, "both: P(norm{p}) = stack(t, v{})", calls.len()).unwrap();
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
        ShardingSolver::new()
            .implicit_redistribution(ImplicitRedistribution::LocalOnly)
            .solve(&graph)
            .map_err(|e| e.code())
    };
    for (shape, p, calls) in [
        ("", "2", &["norm(_)"][..]),
        ("", "2", &["norm(_)", "clone(_)", "abs(_)"]),
        ("1,1", "3", &["norm(_, p=3)", "reshape(_, shape=[1,1])", "t(_)"]),
    ] {
        assert!(stacks(shape, p, calls).is_ok(), "{calls:?}");
    }
    // An input may be negative, and partial norms do not pass ops that may change the sign.
    for calls in [&[][..], &["norm(_)", "neg(_)"]] {
        assert_eq!(stacks("", "2", calls).unwrap_err(), "needs_redistribute", "{calls:?}");
    }
}
