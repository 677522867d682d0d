//! A call on each slice equals a loop over the slices, on whole tensors and on the shards of its rows.

use ndarray::{ArrayD, Axis, stack};
use reshard_ops::rules::{OpCall, OpTable, Vmapped};
use reshard_reference::{Local, run, run_local};
use reshard_test_support::Random;
use reshard_verify::{Data, LocalView, Tensor, Verifier};

use crate::numbers::{CALLS, input};

fn same(a: &ArrayD<f64>, b: &ArrayD<f64>) -> bool {
    let bits = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    a.shape() == b.shape() && a.iter().zip(b).all(bits)
}

#[test]
fn a_call_on_each_slice_is_that_call_in_a_loop() {
    let table = OpTable::standard();
    let mut looked = 0;
    for (number, (text, shapes)) in CALLS.iter().enumerate() {
        let call: OpCall = text.parse().unwrap();
        if shapes.is_empty() {
            continue;
        }
        let mut r = Random(number as u64 + 3);
        let sizes = [3, 2];
        let mut has: Vec<Vec<bool>> = shapes.iter().map(|_| vec![r.below(2) == 1, r.below(2) == 1]).collect();
        let some = r.below(shapes.len());
        has[some] = vec![true, true];
        let each = Vmapped::new(&sizes, &has, &call).unwrap();
        // The elements of slice (i, j), rotated by its index along the dims that the operand has, so that
        // slices differ.
        let slices: Vec<Vec<ArrayD<f64>>> = (shapes.iter().zip(&has).enumerate())
            .map(|(i, (shape, has))| {
                let x = input(&call, i, shape);
                let turned = |z: usize| {
                    let by = usize::from(has[0]) * (z / 2) + 3 * usize::from(has[1]) * (z % 2);
                    let flat: Vec<f64> = x.iter().copied().cycle().skip(by).take(x.len()).collect();
                    ArrayD::from_shape_vec(x.raw_dim(), flat).unwrap()
                };
                (0..6).map(turned).collect()
            })
            .collect();
        let one = |z: usize| slices.iter().map(|list| list[z].clone()).collect::<Vec<_>>();
        let Ok(expected) = (0..6).map(|z| run(&table, &call, &one(z))).collect::<Result<Vec<_>, _>>() else {
            continue;
        };
        let whole: Vec<ArrayD<f64>> = (slices.iter().zip(&has))
            .map(|(list, has)| {
                let rows = |i: usize| {
                    let row: Vec<_> = (0..2).map(|j| list[2 * i + j].view()).collect();
                    if has[1] { stack(Axis(0), &row).unwrap() } else { list[2 * i].clone() }
                };
                let all: Vec<ArrayD<f64>> = (0..3).map(rows).collect();
                let views: Vec<_> = all.iter().map(|a| a.view()).collect();
                if has[0] { stack(Axis(0), &views).unwrap() } else { all[0].clone() }
            })
            .collect();
        let made = run(&table, &OpCall::Each(each), &whole).unwrap_or_else(|e| panic!("{text}: {e}"));
        for (o, made) in made.iter().enumerate() {
            for (z, expected) in expected.iter().enumerate() {
                let slice = made.index_axis(Axis(0), z / 2).index_axis_move(Axis(0), z % 2).to_owned();
                assert!(
                    same(&slice, &expected[o]),
                    "{text}: output {o} of slice {z}: {slice:?} {expected:?}"
                );
            }
        }
        looked += 1;
    }
    assert!(looked > 100, "{looked} calls");
    println!("{looked} calls on each of six slices");
}

/// The validator finds every row of these true, also the one that splits the slices.
#[test]
fn rows_on_each_slice_are_true() {
    let table = OpTable::standard();
    let array = |t: &Tensor| ArrayD::from_shape_vec(t.shape.clone(), t.data.clone()).unwrap();
    let calls: &[(&str, &[&[usize]])] = &[
        ("each[4:1,0] mm", &[&[4, 6, 4], &[4, 6]]),
        ("each[4:0,1] mm", &[&[6, 4], &[4, 4, 6]]),
        ("each[4,2:11,01] add", &[&[4, 2, 6], &[2, 6]]),
        ("each[4:1] softmax(dim=0)", &[&[4, 6, 4]]),
        ("each[4:1] sum(dims=[1])", &[&[4, 6, 4]]),
        ("each[4:1] amax(dims=[0])", &[&[4, 6, 4]]),
        ("each[4:1] transpose(dim0=0,dim1=1)", &[&[4, 6, 4]]),
        ("each[4:1] cumsum(dim=1)", &[&[4, 6, 4]]),
        ("each[4:1,0] mk,kn->nm", &[&[4, 6, 4], &[4, 6]]),
        ("each[4:1] tril", &[&[4, 6, 4]]),
        // Along the dim that is rolled, a rank has one index or none.
        ("roll(shifts=[1],dims=[0])", &[&[2, 4]]),
        ("roll(shifts=[1],dims=[0])", &[&[3, 4]]),
        ("roll(shifts=[-1],dims=[1])", &[&[4, 3]]),
        ("each[4:1] roll(shifts=[2],dims=[0])", &[&[4, 3, 4]]),
    ];
    for (text, shapes) in calls {
        let call: OpCall = text.parse().unwrap();
        let op = table.op(&call, shapes).unwrap();
        let on_shards = |local: &LocalView<'_>| {
            let inputs: Vec<ArrayD<f64>> = local.inputs.iter().map(|t| array(t)).collect();
            let local = Local {
                inputs: &inputs,
                places: local.input_regions.clone(),
                wanted: local.output_regions.clone(),
            };
            let made = run_local(&table, &call, &local).map_err(|e| e.to_string())?;
            Ok(made.iter().map(|a| Tensor::new(a.shape(), a.iter().copied().collect())).collect())
        };
        let verifier = Verifier::new(text, on_shards).wants_outputs().tolerance(1e-9).data(&[Data::Real]);
        let rows = op.strategies().len();
        assert!(rows > 2, "{text}: {rows} rows");
        verifier.verify(&[op]).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
}

#[test]
fn what_no_slice_has_is_refused_in_one_sentence() {
    let table = OpTable::standard();
    let refused = |text: &str, shapes: &[&[usize]]| -> String {
        match text.parse::<OpCall>() {
            Err(e) => e.to_string(),
            Ok(call) => table.op(&call, shapes).unwrap_err().to_string(),
        }
    };
    let cases: &[(&str, &[&[usize]], &str)] = &[
        ("each[4] mm", &[], "the sizes must be followed by : and the operands"),
        ("each[4:1,0", &[], "each[ has no ]"),
        ("each[a:1] relu", &[], "the sizes must be whole numbers"),
        ("each[4:2] relu", &[], "must have a 0 or 1 per size"),
        ("each[4:11] relu", &[], "has 2 digits, but there are 1 sizes"),
        ("each[4,2:10,10] add", &[], "no operand has the dim of size 2; remove it"),
        ("each[2:1] each[2:1] relu", &[], "must not be `each` itself"),
        ("each[4:1] relu", &[&[3, 2]], "its first dims must be [4]"),
        ("each[4:1] relu", &[&[4], &[4]], "called with 2 operands, but has digits for 1"),
        ("each[4:1] relu_", &[&[4, 2]], "writes into an input"),
        ("each[4:1] rellu", &[&[4, 2]], "did you mean relu?"),
        ("each[99999999999:0,1] add", &[&[1 << 40], &[99_999_999_999, 1]], "elements"),
    ];
    for &(text, shapes, says) in cases {
        let said = refused(text, shapes);
        assert!(said.contains(says), "{text}: {said}");
    }
}
