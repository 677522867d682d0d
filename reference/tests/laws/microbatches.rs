//! Microbatches: gradients are accumulated as partial sums, and reduced once.
//!
//! Several small steps and an update equal one large step.

use ndarray::{ArrayD, Axis, Slice};
use reshard_program::{ImplicitRedistribution, Program};
use reshard_reference::{Values, on_one_device};

use crate::programs::{communicated, inputs, same_as_one_device, written};

/// The number of rows of a microbatch, over three ranks: not the same number each.
const ROWS: usize = 4;
const TIMES: usize = 3;

/// A step that adds its gradients to accumulators.
///
/// Weights in the given sharding are used as `R`, whose gradients are partial sums.
fn step(rows: usize) -> String {
    format!(
        "mesh dp=3
         x: f32[{rows},6] S(0)
         w: f32[6,5] R
         v: f32[5,3] R
         aw: f32[6,5] P
         av: f32[5,3] P
         h = mm(x, w)
         a = silu(h)
         y = mm(a, v)
         q = square(y)
         loss = sum(q)
         gradient loss wrt w, v
         no_grad
         aw': P = add(aw, dw)
         av': P = add(av, dv)"
    )
}

/// The update of one weight from its accumulator: the sharding of the weight, and that during the update.
fn update(shape: &str, [kept, updated]: [&str; 2]) -> Program {
    written(&format!(
        "mesh dp=3
         w: f32[{shape}] {kept}
         a: f32[{shape}] P
         no_grad
         g: {updated} = a
         ws: {updated} = w
         wu = sgd(ws, g, lr=0.1)
         w': {kept} = wu"
    ))
    .unwrap()
}

fn pick(values: &Values<f64>, names: &[(&str, &str)]) -> Values<f64> {
    names.iter().map(|(from, to)| ((*to).to_owned(), values[*from].clone())).collect()
}

#[test]
fn small_steps_and_one_reduction_are_a_large_step() {
    let small = written(&step(ROWS)).unwrap();
    let large = written(&step(ROWS * TIMES)).unwrap();
    let mut given = inputs::<f64>(&large, 7);
    for name in ["aw", "av"] {
        given.get_mut(name).unwrap().fill(0.0);
    }
    let whole = on_one_device(&large, &given).unwrap();
    let mut state = given.clone();
    for n in 0..TIMES {
        let rows = Slice::from(n * ROWS..(n + 1) * ROWS);
        state.insert("x".to_owned(), given["x"].slice_axis(Axis(0), rows).to_owned());
        let ranks = same_as_one_device::<f64>(&small, &state, 1e-12);
        assert_eq!(ranks.received_bytes(), 0);
        for name in ["aw", "av"] {
            state.insert(name.to_owned(), ranks.whole(&format!("{name}'")).unwrap());
        }
    }
    assert!(communicated(&small).is_empty());
    let off =
        |a: &ArrayD<f64>, b: &ArrayD<f64>| a.iter().zip(b).fold(0.0f64, |m, (x, y)| m.max((x - y).abs()));
    for (name, sum) in [("aw", "aw'"), ("av", "av'")] {
        assert!(off(&state[name], &whole[sum]) <= 1e-12, "{name}");
    }
    for (kept, moves) in [
        (["I", "R"], vec!["all_reduce"]),
        (["R", "S(0)"], vec!["reduce_scatter", "all_gather"]),
        (["S(0)", "S(0)"], vec!["reduce_scatter"]),
    ] {
        for (shape, [w, a, dw]) in [("6,5", ["w", "aw", "dw"]), ("5,3", ["v", "av", "dv"])] {
            let program = update(shape, kept);
            let after = same_as_one_device::<f64>(&program, &pick(&state, &[(w, "w"), (a, "a")]), 1e-12);
            let expected = &whole[w] - &(whole[dw].clone() * 0.1);
            assert!(off(&after.whole("w'").unwrap(), &expected) <= 1e-12, "{w} as {kept:?}");
            let ops: Vec<String> = (program.redistributions())
                .flat_map(|m| m.forward.steps().iter().filter(|s| s.op().communicates()))
                .map(|s| s.op().to_string())
                .collect();
            assert_eq!(ops, moves, "{w} as {kept:?}");
        }
    }
}

#[test]
fn an_accumulator_that_is_kept_reduced_is_reduced_each_time() {
    // With only the accumulator declared otherwise: the same program, and a reduction in every step.
    let each = step(ROWS).replace("aw': P = add(aw, dw)", "r: R = dw\n         aw': R = add(aw, r)");
    let each = each.replace("aw: f32[6,5] P", "aw: f32[6,5] R");
    let program = reshard_program::ShardingSolver::new()
        .implicit_redistribution(ImplicitRedistribution::Deny)
        .solve(&each.parse().unwrap());
    assert_eq!(communicated(&program.unwrap()), ["r: all_reduce 160"]);
}
