//! Norms through ops: ops that pass partial norms, and inputs that may become them.

use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, OutputConstraint, Propagator};
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
