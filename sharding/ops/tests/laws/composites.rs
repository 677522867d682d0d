//! Composites: the rule derived from a body, compared with the op's written rule, and run on shards.

use crate::reference_ops::{self, Example};
use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::{Composite, OpCall, OpTable};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;
use reshard_verify::{LocalView, Tensor, Verifier};

/// A body, and shapes of its inputs.
struct Body {
    name: &'static str,
    text: &'static str,
    shapes: &'static [&'static [&'static [usize]]],
}

/// The building blocks of transformers.
const BODIES: &[Body] = &[
    Body {
        name: "linear",
        text: "x, w, b -> y: v = t(w); h = mm(x, v); y = add(h, b)",
        shapes: &[&[&[6, 4], &[8, 4], &[8]], &[&[5, 3], &[7, 3], &[7]]],
    },
    Body {
        name: "gated_mlp",
        text: "x, up, gate, down -> y: a = mm(x, up); b = mm(x, gate); c = relu(b); d = mul(a, c); y = mm(d, down)",
        shapes: &[&[&[4, 6], &[6, 4], &[6, 4], &[4, 6]], &[&[3, 2], &[2, 5], &[2, 5], &[5, 2]]],
    },
    Body {
        name: "heads",
        text: "x, w -> y: q = mm(x, w); h = view(q, shape=[4,2,6]); t = transpose(h, dim0=0, dim1=1); y = softmax(t, dim=-1)",
        shapes: &[&[&[4, 6], &[6, 12]]],
    },
    Body {
        name: "attention",
        text: "q, k, v -> y: s = bmm(q, k); p = softmax(s, dim=1); y = bmm(p, v)",
        shapes: &[&[&[2, 4, 3], &[2, 3, 6], &[2, 6, 4]], &[&[3, 5, 2], &[3, 2, 3], &[3, 3, 5]]],
    },
    Body {
        name: "sum_of_products",
        text: "x, y -> s: p = mul(x, y); s = sum(p, dims=[1])",
        shapes: &[&[&[4, 6], &[4, 6]], &[&[5, 3], &[5, 3]]],
    },
    Body {
        name: "flat_sum",
        text: "x -> y: f = reshape(x, shape=[24]); g = reshape(f, shape=[6,4]); y = sum(g, dims=[1])",
        shapes: &[&[&[4, 6]], &[&[2, 12]], &[&[24]]],
    },
    Body { name: "residual", text: "x, w -> y: h = mm(x, w); y = add(x, h)", shapes: &[&[&[4, 6], &[6, 6]]] },
    Body {
        name: "centred",
        text: "x -> y: m = mean(x, dims=[0,2], keepdim=true); y = sub(x, m)",
        shapes: &[&[&[4, 6, 2]], &[&[3, 5, 4]]],
    },
];

/// Runs a body by the references of its ops on a rank's part of the inputs.
fn run(examples: &[Example], body: &Composite, local: &LocalView<'_>) -> Result<Vec<Tensor>, String> {
    let mut values: Vec<Tensor> = local.inputs.iter().map(|t| (*t).clone()).collect();
    for (call, takes, _) in body.calls() {
        let inputs: Vec<&Tensor> = takes.iter().map(|&v| &values[v]).collect();
        let made = reference_ops::run(examples, call, &inputs)?;
        values.extend(made);
    }
    Ok(body.output_values().iter().map(|&v| values[v].clone()).collect())
}

fn table_with(body: &Body) -> OpTable {
    let mut table = OpTable::standard();
    table.add_composite(body.name, body.text.parse().unwrap()).unwrap();
    table
}

/// Runs its ops in turn with no redistribution between them: the definition of a composite.
fn in_turn(table: &OpTable, body: &Composite, inputs: &[Operand]) -> Option<Vec<Sharding>> {
    let propagator = Propagator::new();
    let mut values: Vec<Operand> = inputs.to_vec();
    for (call, takes, _) in body.calls() {
        let operands: Vec<Operand> = takes.iter().map(|&v| values[v].clone()).collect();
        let shapes: Vec<&[usize]> = operands.iter().map(|o| o.sharding.shape()).collect();
        let op = table.op(call, &shapes).unwrap();
        let choice = propagator.explicit(&op, inputs[0].sharding.mesh(), &operands).ok()?;
        values.extend(choice.outputs.into_iter().map(|s| Operand::new(DType::F64, s)));
    }
    Some(body.output_values().iter().map(|&v| values[v].sharding.clone()).collect())
}

/// Every combination of placements of every body on one and two axes.
#[test]
fn a_composite_takes_what_its_ops_take_in_turn() {
    let (mut taken, mut beyond) = (0, 0);
    for body in BODIES {
        let (table, known) = (table_with(body), body.text.parse::<Composite>().unwrap());
        let has_view = known
            .calls()
            .any(|(c, _, _)| c.to_string().contains("view") || c.to_string().contains("reshape"));
        for shapes in body.shapes {
            let op = table.op(&OpCall::new(body.name), shapes).unwrap();
            for (mesh, most) in [("x=2", 60), ("x=3", 60), ("x=2,y=2", 40), ("x=3,y=2", 40)] {
                let most = if Sweep::asked().is_exhaustive() { most } else { most / 6 };
                let mesh: Mesh = mesh.parse().unwrap();
                let lists: Vec<Vec<Sharding>> = shapes.iter().map(|s| placed(&mesh, s)).collect();
                let count: usize = lists.iter().map(Vec::len).product();
                for case in (0..count).step_by(1 + count / most) {
                    let mut rest = case;
                    let inputs: Vec<Operand> = (lists.iter())
                        .map(|list| {
                            let picked = list[rest % list.len()].clone();
                            rest /= list.len();
                            Operand::new(DType::F64, picked)
                        })
                        .collect();
                    let turn = in_turn(&table, &known, &inputs);
                    let whole = Propagator::new().explicit(&op, &mesh, &inputs).map(|c| c.outputs).ok();
                    let shown: Vec<String> = inputs.iter().map(ToString::to_string).collect();
                    let what = format!("{}: {}", body.name, shown.join(" and "));
                    match (&turn, &whole) {
                        (Some(a), Some(b)) => assert_eq!(a, b, "{what}"),
                        // Loops are digits; the remainder of an uneven split in another shape is not one.
                        (Some(a), None)
                            if has_view
                                && inputs
                                    .iter()
                                    .map(|i| &i.sharding)
                                    .chain(a)
                                    .any(|s| s.layout().is_none()) => {}
                        (Some(a), None) => panic!("{what}: its ops make [{}] in turn", a[0]),
                        (None, Some(_)) if has_view => beyond += 1,
                        (None, Some(b)) => panic!("{what}: it makes [{}], and its ops do not", b[0]),
                        (None, None) => {}
                    }
                    taken += usize::from(turn.is_some());
                }
            }
        }
    }
    println!("{taken} accepted, {beyond} that no placements of the intermediate values give");
    assert!(taken > if Sweep::asked().is_exhaustive() { 120 } else { 20 }, "{taken}");
}

/// All placements of a tensor, with partial sums only.
fn placed(mesh: &Mesh, shape: &[usize]) -> Vec<Sharding> {
    let mut words = vec!["R".to_owned(), "P".to_owned()];
    for d in 0..shape.len() {
        words.push(format!("S({d})"));
        words.push(format!("SS({d},2)"));
    }
    let mut texts = vec![String::new()];
    for axis in 0..mesh.axes().len() {
        let comma = if axis == 0 { "" } else { "," };
        texts = texts.iter().flat_map(|t| words.iter().map(move |w| format!("{t}{comma}{w}"))).collect();
    }
    texts.iter().filter_map(|t| Sharding::parse(mesh, shape, t).ok()).collect()
}

#[test]
fn what_is_derived_is_true_on_shards() {
    let (mut checks, examples) = (0, reference_ops::all());
    for body in BODIES.iter().filter(|b| !b.text.contains("view") && !b.text.contains("reshape")) {
        let (table, known) = (table_with(body), body.text.parse::<Composite>().unwrap());
        for shapes in body.shapes {
            let op = table.op(&OpCall::new(body.name), shapes).unwrap();
            let verifier =
                Verifier::new(body.name, |local| run(&examples, &known, local)).tolerance(1e-9).budget(0);
            checks += verifier.verify(std::slice::from_ref(&op)).unwrap_or_else(|e| panic!("{e}")).checks;
        }
    }
    assert!(checks > 100, "{checks}");
}

#[test]
fn derived_rules_print_as_they_would_be_written() {
    for (body, shapes, rule) in [
        (
            "x, w -> y: y = mm(x, w)",
            &[&[4, 6][..], &[6, 8]][..],
            "ac,cb->ab {(R,P -> P), (R,P(avg) -> P(avg)), (P,R -> P), (P(avg),R -> P(avg))}",
        ),
        (
            "x -> y: f = reshape(x, shape=[24]); y = relu(f)",
            &[&[4, 6]],
            "ab->(ab) {a: 4, b: 6, (P(min) -> P(min)), (P(max) -> P(max))}",
        ),
        (
            "x -> y: f = reshape(x, shape=[3,8]); y = relu(f)",
            &[&[4, 6]],
            "d(ec)->a(bc) {a: replicate, b: replicate 4, c: 2, d: replicate, e: replicate 3, (P(min) -> P(min)), (P(max) -> P(max))}",
        ),
        ("x -> y: y = softmax(x, dim=0)", &[&[4, 6]], "ab->ab {a: replicate}"),
        (
            "x, b -> y: y = add(x, b)",
            &[&[4, 6], &[6]],
            "ab,b->ab {(R,P(avg) -> P(avg)), (R,P(min) -> P(min)), (R,P(max) -> P(max)), (P,P -> P), (P(avg),R -> P(avg)), (P(avg),P(avg) -> P(avg)), (P(min),R -> P(min)), (P(max),R -> P(max))}",
        ),
    ] {
        let mut table = OpTable::standard();
        table.add_composite("it", body.parse().unwrap()).unwrap();
        let op = table.op(&OpCall::new("it"), shapes).unwrap();
        assert_eq!(op.rule().unwrap().to_string(), rule, "{body}");
    }
}

#[test]
fn bodies_are_read_back_and_refused_in_one_sentence() {
    for body in BODIES {
        let known: Composite = body.text.parse().unwrap();
        assert_eq!(known.to_string().parse::<Composite>().unwrap(), known);
    }
    for (text, reason) in [
        ("x, y", "the form is inputs -> outputs: name = op(operands, key=value); .."),
        ("x -> y: y = relu(z)", "z is used before it is defined"),
        ("x -> y: y = relu(x); y = relu(x)", "y is defined twice"),
        ("x, w -> y: y = relu(x)", "nothing uses w"),
        ("x -> z: y = relu(x)", "z is used before it is defined"),
        ("x -> x: y = relu(x)", "x is an input and an output; copy it, such as y = copy(x)"),
        ("x -> y: y relu(x)", "\"y relu(x)\" is not a statement such as y = op(x, key=value)"),
        ("x -> y: y = relu x", "\"y = relu x\" is not a statement such as y = op(x, key=value)"),
        ("x -> y: y = sum(dims=[0], x)", "x comes after the arguments of \"y = sum(dims=[0], x)\""),
        (
            "x -> 2y: 2y = relu(x)",
            "invalid value name \"2y\"; use letters, digits, `_`, `.` and `'`, and do not begin \
             with a digit",
        ),
        ("x -> : y = relu(x)", "it has no output"),
    ] {
        let error = text.parse::<Composite>().unwrap_err().to_string();
        assert_eq!(error, format!("composite {text:?}: {reason}"));
    }
    let mut table = OpTable::standard();
    for (name, text, reason) in [
        ("relu", "x -> y: y = relu(x)", "relu cannot be defined by itself: x -> y: y = relu(x)"),
        ("mine", "x -> y: y = rellu(x)", "unknown op rellu; did you mean relu?"),
    ] {
        let error = table.add_composite(name, text.parse().unwrap()).unwrap_err().to_string();
        assert_eq!(error, reason);
    }
    // Two that contain one another, through a replaced op.
    table.add_composite("one", "x -> y: y = relu(x)".parse().unwrap()).unwrap();
    table.add_composite("two", "x -> y: y = one(x)".parse().unwrap()).unwrap();
    table.add_composite("one", "x -> y: y = two(x)".parse().unwrap()).unwrap();
    let error = table.op(&OpCall::new("two"), &[&[4]]).unwrap_err().to_string();
    assert!(error.ends_with("is a composite within 32 others: one of them contains itself"), "{error}");
    // Each composite calls the one before twice.
    table.add_composite("twice0", "x -> z: y = relu(x); z = relu(y)".parse().unwrap()).unwrap();
    for i in 1..20 {
        let body = format!("x -> z: y = twice{}(x); z = twice{}(y)", i - 1, i - 1);
        table.add_composite(&format!("twice{i}"), body.parse().unwrap()).unwrap();
    }
    assert_eq!(table.op(&OpCall::new("twice5"), &[&[4]]).unwrap().strategies().len(), 4);
    let error = table.op(&OpCall::new("twice19"), &[&[4]]).unwrap_err().to_string();
    assert!(error.ends_with("its bodies have more than 4096 calls in all"), "{error}");
    // Errors of its ops about shapes.
    table.add_composite("halves", "x -> a: a, b = chunk(x, chunks=3, dim=0)".parse().unwrap()).unwrap();
    let error = table.op(&OpCall::new("halves"), &[&[6, 2]]).unwrap_err().to_string();
    assert_eq!(error, "halves on [6,2]: chunk(chunks=3,dim=0) makes 3 values, not 2");
}
