//! Ops that write into existing tensors: their strategies, and that a written tensor is not redistributed.

use reshard_kernels::DType;
use reshard_ops::propagate::{OpSharding, Operand, OutputConstraint, Propagator};
use reshard_ops::rules::{Op, OpCall, OpTable, Rule, Strategy};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;
use reshard_verify::{Random, Tensor, Verifier};

/// `softmax(dim=1)` as `softmax_(dim=1)`.
fn renamed(call: &str, suffix: &str) -> OpCall {
    let OpCall::Named { name, arguments } = call.parse().unwrap() else { panic!("{call} is a rule") };
    arguments.into_iter().fold(OpCall::new(&format!("{name}{suffix}")), |call, (key, v)| call.with(&key, v))
}

fn shapes(op: &[Vec<usize>]) -> Vec<&[usize]> {
    op.iter().map(Vec::as_slice).collect()
}

/// Every op of the table whose output may be written into its first input, with its in-place variant.
fn in_place() -> Vec<(Op, Op)> {
    let table = OpTable::standard();
    let mut out = Vec::new();
    // `copy_` is a separate op.
    let named =
        |e: &&crate::reference_ops::Example| table.parameters(&e.name()).is_some() && e.call != "copy";
    for e in crate::reference_ops::all().iter().filter(named) {
        for op in e.ops(&table) {
            let made = table.op(&renamed(e.call, "_"), &shapes(op.inputs()));
            let first = op.inputs().first();
            let fits =
                op.outputs().len() == 1 && first == op.outputs().first() && op.in_place_inputs().is_empty();
            match made {
                Ok(made) => {
                    assert!(fits, "{}", made.name());
                    out.push((op, made));
                }
                Err(error) if fits => {
                    // A square's transpose has other dims, too.
                    assert!(error.to_string().contains("cannot be written into input 0"), "{error}");
                }
                Err(_) => {}
            }
        }
    }
    out
}

#[test]
fn in_place_are_the_strategies_that_leave_the_written_operand() {
    let all = in_place();
    assert!(all.len() > 200, "{}", all.len());
    for (op, made) in all {
        let left: Vec<Strategy> =
            op.strategies().into_iter().filter(|s| s.inputs[0] == s.outputs[0]).collect();
        assert_eq!(made.strategies(), left, "{}", made.name());
        assert_eq!((made.in_place_inputs(), made.outputs()), (vec![(0, 0)], op.outputs()));
    }
}

#[test]
fn an_out_tensor_is_what_the_output_is() {
    let table = OpTable::standard();
    let mut tried = 0;
    for e in crate::reference_ops::all().iter().filter(|e| table.parameters(&e.name()).is_some()) {
        for op in e.ops(&table).iter().filter(|op| op.in_place_inputs().is_empty()) {
            let inputs = [op.inputs(), op.outputs()].concat();
            let call = renamed(e.call, ".out");
            let made = table.op(&call, &shapes(&inputs)).unwrap();
            let with_out = |mut s: Strategy| {
                s.inputs.extend(s.outputs.clone());
                s
            };
            let all: Vec<Strategy> = op.strategies().into_iter().map(with_out).collect();
            assert_eq!(made.strategies(), all, "{call}");
            let n = op.inputs().len();
            assert_eq!(
                made.in_place_inputs(),
                (0..op.outputs().len()).map(|o| (n + o, o)).collect::<Vec<_>>()
            );
            let rule = made.rule().unwrap();
            assert_eq!(&rule.to_string().parse::<Rule>().unwrap(), rule);
            tried += 1;
        }
    }
    assert!(tried > 400, "{tried}");
}

/// The validator misses no strategy of an in-place op that leaves the written operand.
#[test]
fn nothing_is_missing_in_place() {
    let table = OpTable::standard();
    let mut run = 0;
    for e in crate::reference_ops::all() {
        if !["add", "mul", "sub", "neg", "relu", "maximum", "cumsum(dim=1)"].contains(&e.call) {
            continue;
        }
        run += 1;
        if !Sweep::asked().takes_one_in(3, run) {
            continue;
        }
        let ops: Vec<Op> = e
            .ops(&table)
            .iter()
            .filter_map(|op| table.op(&renamed(e.call, "_"), &shapes(op.inputs())).ok())
            .collect();
        let verdict = e.verifier().verify(&ops).unwrap();
        assert!(verdict.missing.is_empty(), "{verdict}");
    }
    assert!(run >= 6, "{run}");
}

/// The choice is the out-of-place op's cheapest strategy that leaves the operand and gives it the output.
#[test]
fn what_is_written_stays() {
    let meshes = ["x=2,y=2", "x=2,y=3"].map(|m| m.parse::<Mesh>().unwrap());
    let propagator = Propagator::new();
    let (mut random, mut chosen, mut refused) = (Random::new(7), 0, 0);
    let (step, least) = if Sweep::asked().is_exhaustive() { (2, 60) } else { (16, 5) };
    let pick = |random: &mut Random, rank: usize, term: &str| match random.below(5) {
        0 => "R".to_owned(),
        1 | 2 => term.to_owned(),
        _ => format!("S({})", random.below(rank)),
    };
    for (op, made) in in_place().into_iter().step_by(step) {
        if op.inputs().iter().any(Vec::is_empty) || op.inputs().len() > 3 {
            continue;
        }
        for mesh in &meshes {
            let inputs: Vec<Operand> = op
                .inputs()
                .iter()
                .map(|shape| {
                    let term = ["P", "P(max)"][random.below(2)];
                    let mut one = || pick(&mut random, shape.len(), term);
                    let text = format!("{},{}", one(), one());
                    Operand::new(DType::F32, Sharding::parse(mesh, shape, &text).unwrap())
                })
                .collect();
            let is = &inputs[0].sharding;
            let every = propagator.cheapest(&op, mesh, &inputs, &[], 100_000).unwrap();
            let leaves = |c: &&OpSharding| c.inputs[0] == *is && c.outputs[0] == *is;
            let best = every.iter().find(leaves);
            match (best, propagator.propagate(&made, mesh, &inputs, &[])) {
                (Some(best), Ok(choice)) => {
                    assert!(choice.plans[0].is_none() && leaves(&&choice), "{}: {choice:?}", made.name());
                    assert!((choice.cost_us - best.cost_us).abs() < 1e-9, "{}", made.name());
                    chosen += 1;
                }
                (None, Err(error)) => {
                    assert_eq!(error.code(), "needs_redistribute", "{error}");
                    refused += 1;
                }
                (best, got) => panic!("{} of {inputs:?}: {best:?} and {got:?}", made.name()),
            }
        }
    }
    println!("{chosen} chosen, {refused} rejected");
    assert!(chosen > least && refused > least, "{chosen}, {refused}");
}

#[test]
fn refusals_say_what_to_do() {
    let table = OpTable::standard();
    let refused =
        |call: &str, shapes: &[&[usize]]| table.op(&call.parse().unwrap(), shapes).unwrap_err().to_string();
    for (call, shapes, message) in [
        (
            "add_",
            &[&[5][..], &[6, 5]][..],
            "add_ on [5] and [6,5]: its output has another shape than its first input, into which it would be written: use add",
        ),
        (
            "add.out",
            &[&[6, 5], &[5], &[5]],
            "input 2 is written in place and has shape [5], but the result has [6,5]; give it that shape, or use the op that \
             returns a new tensor",
        ),
        ("add.out", &[&[6, 5], &[5]], "add.out"),
        ("view_(shape=[6,5])", &[&[6, 5]], "a view writes nothing: use view"),
        ("t_", &[&[5, 5]], "output 0 cannot be written into input 0, whose dims are (ij) and not (ji)"),
        ("sort_", &[&[5]], "its output has another shape than its first input"),
        ("copy_.out", &[&[5], &[5], &[5]], "its outputs are already written into inputs"),
        ("copy__", &[&[5], &[5]], "its outputs are already written into inputs"),
        ("nothing_", &[&[5]], "unknown op nothing_"),
        ("sum_", &[], "sum_ on nothing: takes 1 input, not 0"),
        ("mm.out", &[], "mm.out"),
    ] {
        let error = refused(call, shapes);
        assert!(error.contains(message), "{error}");
    }
    for (text, message) in [
        ("ij->ji {writes(0)}", "output 0 cannot be written into input 0"),
        ("i,i->i {writes(2)}", "writes(2) names input 2, but there are 2"),
        ("i,i->i,i {writes(1,1)}", "writes(1,1) writes input 1 twice"),
        ("i->i {writes(0,0)}", "names 2 inputs, but there are 1 outputs"),
        ("->i {out}", "out needs an input for each of the 1 outputs"),
        ("j,i->ij {out}", "output 0 cannot be written into input 1, whose dims are (i) and not (ij)"),
        ("i,i->i {out, linear(1)}", "names input 1, but there are 1"),
        ("i->i {writes}", "expected \"(\""),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let mesh: Mesh = "x=2,y=2".parse().unwrap();
    let relu_ = table.op(&"relu_".parse().unwrap(), &[&[8, 6]]).unwrap();
    let x = Operand::new(DType::F32, Sharding::parse(&mesh, &[8, 6], "S(0),P").unwrap());
    let error =
        Propagator::new().propagate(&relu_, &mesh, core::slice::from_ref(&x), &[]).unwrap_err().to_string();
    let expected = "relu_ of f32[8,6] [S(0),P(sum)] on x=2,y=2: input 0 is written in place and cannot be \
         redistributed, and no strategy accepts and preserves the sharding; redistribute input 0 to [S(0),S(0)] (6.6 us, ";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.ends_with(" before it, or use the op that returns a new tensor"), "{error}");
    let explicit = Propagator::new().explicit(&relu_, &mesh, &[x]).unwrap_err().to_string();
    assert!(
        explicit.contains(
            "along y the inputs are P(sum), and no strategy accepts these; redistribute input 0 to"
        ),
        "{explicit}"
    );
}

/// Several outputs are written, each where the rule specifies; constraints of the others apply to them.
#[test]
fn optimizers_write_their_state() {
    let rule: Rule = "...,...,...->...,...,... {none, writes(0,2)}".parse().unwrap();
    assert_eq!(rule.to_string(), "...,...,...->...,...,... {none, writes(0,2)}");
    let shape: &[usize] = &[8, 6];
    let op = Op::new("momentum_", &rule, &[shape; 3]).unwrap();
    assert_eq!(op.in_place_inputs(), [(0, 0), (2, 1)]);
    let mesh: Mesh = "x=2".parse().unwrap();
    let of = |text: &str| Operand::new(DType::F32, Sharding::parse(&mesh, shape, text).unwrap());
    let inputs = [of("S(0)"), of("R"), of("S(0)")];
    let wanted = [OutputConstraint::Any, OutputConstraint::Any, OutputConstraint::Exactly(of("R").sharding)];
    let choice = Propagator::new().propagate(&op, &mesh, &inputs, &wanted).unwrap();
    let outputs: Vec<String> = choice.outputs.iter().map(ToString::to_string).collect();
    assert_eq!(outputs, ["S(0)", "S(0)", "R"]);
    let torn = [of("S(0)"), of("R"), of("S(1)")];
    let error = Propagator::new().propagate(&op, &mesh, &torn, &[]).unwrap_err().to_string();
    assert!(
        error.contains("input 0 and input 2 are written in place and cannot be redistributed"),
        "{error}"
    );
}

/// A rule that declares a write is verified as any other is.
#[test]
fn the_validator_sees_what_is_written() {
    let double = Verifier::new("double_", |local| {
        let x = local.inputs[0];
        Ok(vec![Tensor::new(&x.shape, x.data.iter().map(|v| 2.0 * v).collect())])
    });
    let right: Rule = "...->... {linear, increasing, (P(norm2) -> P(norm2)), writes(0)}".parse().unwrap();
    assert!(double.verify(&[Op::new("double_", &right, &[&[6, 5]]).unwrap()]).unwrap().missing.is_empty());
    let wrong: Rule = "...->... {selecting, writes(0)}".parse().unwrap();
    let error = double.verify(&[Op::new("double_", &wrong, &[&[6, 5]]).unwrap()]).unwrap_err().to_string();
    assert!(error.contains("P(prod) -> P(prod) is wrong"), "{error}");
}
