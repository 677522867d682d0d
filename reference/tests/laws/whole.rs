//! Calls on whole tensors: every implemented op is in the table, and its outputs are those of the table.

use ndarray::{ArrayD, Axis, IxDyn, Slice};
use reshard_ops::rules::{DefaultValue, OpCall, OpTable, ParameterKind};
use reshard_reference::{Real, run};

use crate::numbers::{CALLS, input};

#[test]
fn what_runs_is_in_the_table_once() {
    let table = OpTable::standard();
    let mut names: Vec<&str> = reshard_reference::names().collect();
    for name in &names {
        assert!(table.names().any(|known| known == *name), "{name} runs, and the table has no such op");
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a name twice");
    let lacking: Vec<&str> = table.names().filter(|name| !reshard_reference::runs(name)).collect();
    println!("{all} ops run; {} do not: {}", lacking.len(), lacking.join(" "));
    for name in lacking {
        assert_eq!(
            table
                .parameters(name)
                .map(|all| all.iter().any(|p| matches!(p.kind(), ParameterKind::Real { .. }))),
            Some(false),
            "{name} declares numbers that nothing reads"
        );
    }
}

fn shapes_are_the_tables<T: Real>(of: fn(f64) -> T) {
    let table = OpTable::standard();
    for (call, shapes) in CALLS {
        let call: OpCall = call.parse().unwrap();
        let inputs: Vec<ArrayD<f64>> = shapes.iter().enumerate().map(|(i, s)| input(&call, i, s)).collect();
        let inputs: Vec<ArrayD<T>> = inputs.iter().map(|a| a.mapv(of)).collect();
        let made = run(&table, &call, &inputs).unwrap();
        let op = table.op(&call, shapes).unwrap();
        let has: Vec<&[usize]> = made.iter().map(ArrayD::shape).collect();
        assert_eq!(has, op.outputs().iter().map(Vec::as_slice).collect::<Vec<_>>(), "{call}");
    }
}

#[test]
fn outputs_are_as_large_as_the_table_says() {
    shapes_are_the_tables::<f64>(|x| x);
    shapes_are_the_tables::<f32>(|x| x as f32);
}

/// The table's carried dims are correct: a part of such a dim makes that part of all outputs, bit by bit.
#[test]
fn a_part_of_what_is_carried_makes_that_part() {
    let table = OpTable::standard();
    let mut looked = 0;
    for (text, shapes) in CALLS {
        let call: OpCall = text.parse().unwrap();
        let op = table.op(&call, shapes).unwrap();
        let given: Vec<ArrayD<f64>> = shapes.iter().enumerate().map(|(i, s)| input(&call, i, s)).collect();
        let whole = run(&table, &call, &given).unwrap();
        for (i, shape) in shapes.iter().enumerate() {
            for (dim, dims) in op.batch_dims(i) {
                let parts = (1..=shape[dim]).filter(|n| shape[dim].is_multiple_of(*n));
                for (parts, part) in parts.flat_map(|parts| (0..parts).map(move |part| (parts, part))) {
                    let cut = |a: &ArrayD<f64>, dim: usize| {
                        let length = a.shape()[dim] / parts;
                        let rows = Slice::from(part * length..(part + 1) * length);
                        a.slice_axis(Axis(dim), rows).to_owned()
                    };
                    let mut given = given.clone();
                    given[i] = cut(&given[i], dim);
                    let shapes: Vec<&[usize]> = given.iter().map(ArrayD::shape).collect();
                    // A call that names a size has another output shape.
                    let Ok(op) = table.op(&call, &shapes) else { continue };
                    let expected: Vec<ArrayD<f64>> =
                        whole.iter().zip(&dims).map(|(a, d)| cut(a, *d)).collect();
                    let as_large = |(made, expected): (&Vec<usize>, &ArrayD<f64>)| made == expected.shape();
                    if !op.outputs().iter().zip(&expected).all(as_large) {
                        continue;
                    }
                    let made = run(&table, &call, &given).unwrap();
                    let same =
                        |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                    let all = made.iter().zip(&expected).all(|(a, b)| a.iter().zip(b).all(same));
                    assert!(
                        all,
                        "{call}: part {part} of {parts} of dim {dim} of input {i}: {made:?} {expected:?}"
                    );
                    looked += 1;
                }
            }
        }
    }
    assert!(looked > 800, "{looked} parts");
    println!("{looked} parts");
}

/// The results of one op in different dtypes differ by rounding.
#[test]
fn types_differ_by_rounding() {
    let table = OpTable::standard();
    for (text, shapes) in CALLS {
        let call: OpCall = text.parse().unwrap();
        let inputs: Vec<ArrayD<f32>> =
            shapes.iter().enumerate().map(|(i, s)| input(&call, i, s).mapv(|x| x as f32)).collect();
        let wide: Vec<ArrayD<f64>> = inputs.iter().map(|a| a.mapv(f64::from)).collect();
        let (short, long) = (run(&table, &call, &inputs).unwrap(), run(&table, &call, &wide).unwrap());
        // A default that depends on the dtype, and the next number, give other results.
        if ["rms_norm", "fused_rms_norm", "nextafter", "nan_to_num"].iter().any(|name| text.starts_with(name))
        {
            continue;
        }
        for (a, b) in short.iter().zip(&long) {
            let same =
                |(a, b): (&f32, &f64)| a.to_bits() == (*b as f32).to_bits() || (a.is_nan() && b.is_nan());
            assert!(a.iter().zip(b).all(same), "{call}");
        }
    }
}

/// An explicit default changes nothing.
#[test]
fn defaults_are_the_tables() {
    let table = OpTable::standard();
    let mut tried = 0;
    for (text, shapes) in CALLS {
        let call: OpCall = text.parse().unwrap();
        let OpCall::Named { name, .. } = &call else { continue };
        let inputs: Vec<ArrayD<f64>> = shapes.iter().enumerate().map(|(i, s)| input(&call, i, s)).collect();
        for p in table.parameters(name).unwrap().iter() {
            let DefaultValue::Value(value) = p.default_value() else { continue };
            if call.argument(p.name()).is_some() || *p.name() == *"last" {
                continue;
            }
            let (short, long) = (
                run(&table, &call, &inputs),
                run(&table, &call.clone().with(p.name(), value.clone()), &inputs),
            );
            assert_eq!(format!("{short:?}"), format!("{long:?}"), "{call}: {p}");
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn rules_run_as_einsums_and_composites_as_their_bodies() {
    let mut table = OpTable::standard();
    table
        .add_composite(
            "mlp",
            "x, up, down -> y: h = mm(x, up); a = gelu(h, approximate=tanh); y = mm(a, down)"
                .parse()
                .unwrap(),
        )
        .unwrap();
    let [x, up, down] = [[4, 3], [3, 5], [5, 2]].map(|s| input(&OpCall::new("mm"), 0, &s));
    let call = |text: &str, inputs: &[&ArrayD<f64>]| {
        let inputs: Vec<ArrayD<f64>> = inputs.iter().map(|&a| a.clone()).collect();
        run(&table, &text.parse().unwrap(), &inputs).map(|mut made| made.remove(0))
    };
    let h = call("mk,kn->mn", &[&x, &up]).unwrap();
    assert_eq!(h, call("mm", &[&x, &up]).unwrap());
    let a = call("gelu(approximate=tanh)", &[&h]).unwrap();
    assert_eq!(call("mlp", &[&x, &up, &down]).unwrap(), call("mm", &[&a, &down]).unwrap());
    assert_eq!(call("ab,b->", &[&x, &x.index_axis(Axis(0), 0).to_owned()]).unwrap().shape(), [0usize; 0]);
    for (text, reason) in [
        ("ij->ij {j: replicate}", "is not an einsum and cannot be computed"),
        ("ij->i {j: max}", "is not an einsum and cannot be computed"),
        ("...->... {increasing}", "is not an einsum and cannot be computed"),
    ] {
        assert!(call(text, &[&x]).unwrap_err().to_string().contains(reason), "{text}");
    }
    // Ops that write into existing tensors.
    let two = x.mapv(|v| 2.0 * v);
    assert_eq!(call("add_", &[&x, &x]).unwrap(), two);
    assert_eq!(call("add.out", &[&x, &x, &x]).unwrap(), two);
}

#[test]
fn what_does_not_run_is_refused_in_one_sentence() {
    let mut table = OpTable::standard();
    table.add("gated", "bsh,bsh->bsh {multilinear}".parse().unwrap());
    let x = ArrayD::<f64>::zeros(IxDyn(&[2, 2, 2]));
    for (call, inputs, reason) in [
        (
            "gated",
            vec![x.clone(), x.clone()],
            "the reference does not implement `gated`; write it as a composite of ops that it implements",
        ),
        ("sofmax", vec![x.clone()], "unknown op sofmax; did you mean softmax?"),
        ("softmax(dim=7)", vec![x.clone()], "dim=7 is out of range for a tensor with 3 dims"),
        ("mul_scalar", vec![x.clone()], "mul_scalar: needs the argument `value`"),
        ("clamp", vec![x.clone()], "clamp: needs the argument `min` or `max`"),
        ("dropout(p=1.5)", vec![x.clone()], "dropout(p=1.5): p is a probability, of at most 1"),
        (
            "index_select",
            vec![x.clone(), ArrayD::from_elem(IxDyn(&[1]), 2.0)],
            "index_select: the index 2 is outside a dim of size 2",
        ),
        (
            "index_select",
            vec![x.clone(), ArrayD::from_elem(IxDyn(&[1]), 0.5)],
            "index_select: the index 0.5 is outside a dim of size 2",
        ),
        (
            "zeros(shape=[65536,65536])",
            vec![],
            "an output of [65536, 65536] has more than 268435456 elements",
        ),
        ("nonzero(count=3)", vec![x.clone()], "nonzero(count=3): gave [[0, 3]] instead of [[3, 3]]"),
    ] {
        let error = run(&table, &call.parse().unwrap(), &inputs).unwrap_err().to_string();
        assert!(error.contains(reason), "{call}: {error}");
    }
}

/// Sizes of 0, 1 and 2 in place of each size: a call that the table takes either runs or returns an error.
#[test]
fn small_and_empty_tensors_run_or_are_refused() {
    let table = OpTable::standard();
    let (mut ran, mut refused) = (0, Vec::new());
    for (text, shapes) in CALLS {
        let call: OpCall = text.parse().unwrap();
        for old in shapes.iter().copied().flatten().copied().collect::<std::collections::BTreeSet<usize>>() {
            for new in [0, 1, 2] {
                let one = |n: &usize| if *n == old { new } else { *n };
                let shapes: Vec<Vec<usize>> = shapes.iter().map(|s| s.iter().map(one).collect()).collect();
                let given: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
                if table.op(&call, &given).is_err() {
                    continue;
                }
                let inputs: Vec<ArrayD<f64>> =
                    given.iter().enumerate().map(|(i, s)| input(&call, i, s)).collect();
                match run(&table, &call, &inputs) {
                    Ok(_) => ran += 1,
                    Err(error) => refused.push(format!("{given:?}: {error}")),
                }
            }
        }
    }
    println!("{ran} run, {} are refused:\n{}", refused.len(), refused.join("\n"));
    assert!(ran > 500, "{ran}");
}
