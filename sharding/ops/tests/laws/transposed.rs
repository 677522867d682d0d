//! The transposed rows of every op, on shards of every kind.
//!
//! Each rank's own derivative is the derivative of the whole.
//!
//! Derivatives are central differences of the reference, so that nothing is known here of any op. A rank's
//! shard and the whole tensor compute their common elements from the same numbers. Hence they differ by
//! rounding alone, also where an op has a kink.

use std::sync::Mutex;

use crate::reference_ops::Example;
use crate::table::each;
use reshard_ops::Error;
use reshard_ops::rules::{Op, OpTable, OperandPlacement, Rule, ShardRegion, Strategy};
use reshard_sharding::ReduceOp;
use reshard_test_support::Sweep;
use reshard_verify::{Data, LocalView, Tensor, Verdict, Verifier};

/// The step of a difference: a power of two, so that nothing is rounded away.
const STEP: f64 = 1.0 / 1024.0;

/// The inputs by which an example is differentiated: those that are not indices, truth values or the like.
fn differentiable(example: &Example, op: &Op) -> Vec<usize> {
    let verifier = example.verifier();
    (0..op.inputs().len())
        .filter(|&i| match example.data_of(i) {
            Data::Index { .. } | Data::Mask { .. } => false,
            Data::Integers | Data::Distinct | Data::Real | Data::Positive | Data::Made(_) => {
                let near = |by: f64| {
                    let mut random = reshard_verify::Random::new(7);
                    let mut inputs: Vec<Tensor> = (op.inputs().iter().enumerate())
                        .map(|(j, s)| Tensor::new(s, example.data_of(j).whole(s, &mut random)))
                        .collect();
                    inputs[i].data.iter_mut().for_each(|x| *x += by);
                    on_whole(&verifier, op, &inputs)
                };
                // An op that rejects numbers between its valid ones has no derivative.
                near(STEP).is_some() && near(-STEP).is_some()
            }
        })
        .collect()
}

fn on_whole(verifier: &Verifier<'_>, op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let places: Vec<ShardRegion> = op.inputs().iter().map(|s| ShardRegion::whole(s)).collect();
    let wanted: Vec<ShardRegion> = op.outputs().iter().map(|s| ShardRegion::whole(s)).collect();
    let view = LocalView {
        inputs: inputs.iter().collect(),
        input_regions: places.iter().collect(),
        output_regions: wanted.iter().collect(),
    };
    verifier.run(&view).ok()
}

/// The approximate number of elements of a tensor that are differentiated: each takes two runs of the op.
const LOOKED_AT: usize = 48;

/// Returns the differentiated elements of a part of a tensor: those of the whole, independent of the part.
fn looked_at(place: &ShardRegion) -> impl Iterator<Item = usize> {
    let step = place.whole.iter().product::<usize>().div_ceil(LOOKED_AT).max(1);
    let scattered = |e: usize| (e as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let all = place.elements().into_iter().enumerate();
    all.filter(move |&(_, e)| scattered(e).is_multiple_of(step as u64)).map(|(at, _)| at)
}

/// The vector-Jacobian product of an op on one rank, by differences.
///
/// Its operands are saved inputs and outputs, and gradients of outputs. Elements that are not differentiated
/// get 0, on every rank.
fn by_differences(
    forward: &Verifier<'_>,
    inputs: usize,
    outputs: usize,
    wanted: &[usize],
    l: &LocalView<'_>,
) -> Result<Vec<Tensor>, String> {
    let mut at: Vec<Tensor> = l.inputs[..inputs].iter().map(|&t| t.clone()).collect();
    let mut run = |i: usize, e: usize, by: f64| {
        at[i].data[e] += by;
        let view = LocalView {
            inputs: at.iter().collect(),
            input_regions: l.input_regions[..inputs].to_vec(),
            output_regions: l.input_regions[inputs..inputs + outputs].to_vec(),
        };
        let made = forward.run(&view);
        at[i].data[e] -= by;
        made
    };
    let gradients = &l.inputs[inputs + outputs..];
    let mut out = Vec::new();
    for &i in wanted {
        let mut made = Tensor::new(&l.inputs[i].shape, vec![0.0; l.inputs[i].data.len()]);
        for e in looked_at(l.input_regions[i]) {
            let (up, down) = (run(i, e, STEP)?, run(i, e, -STEP)?);
            for ((up, down), gradient) in up.iter().zip(&down).zip(gradients) {
                let products = up.data.iter().zip(&down.data).zip(&gradient.data);
                made.data[e] += products.map(|((up, down), g)| (up - down) / (2.0 * STEP) * g).sum::<f64>();
            }
        }
        out.push(made);
    }
    Ok(out)
}

/// The outcome of an example.
enum Outcome {
    /// The number of checks of its transposed rows, of mutants, and of mutants that fail.
    True {
        checks: usize,
        mutants: usize,
        caught: usize,
    },
    /// Its derivative is zero everywhere, or it has no differentiable input, or no row with a cotangent.
    Nothing,
    Wrong(String),
}

fn outcome(example: &Example, table: &OpTable) -> Outcome {
    let ops = example.ops(table);
    let Some(first) = ops.first().filter(|op| !op.is_view() && op.in_place_inputs().is_empty()) else {
        return Outcome::Nothing;
    };
    let (inputs, outputs) = (first.inputs().len(), first.outputs().len());
    let mut wanted = differentiable(example, first);
    if ops.iter().any(|op| (op.inputs().len(), op.outputs().len()) != (inputs, outputs)) {
        return Outcome::Nothing;
    }
    let every: Vec<usize> = (0..outputs).collect();
    let forward = example.verifier();
    let data: Vec<Data> = (0..inputs).map(|i| example.data_of(i)).collect();
    // Inputs whose derivative is zero everywhere are removed, until the rest give information.
    while !wanted.is_empty() {
        let vjps: Vec<Op> = ops.iter().map(|op| op.vjp(&wanted, &every).unwrap()).collect();
        let by = wanted.clone();
        let run = |l: &LocalView<'_>| by_differences(&forward, inputs, outputs, &by, l);
        // The gradient of a sum is the same everywhere, and still distinguishes partial values from replicas.
        let verifier = Verifier::new(first.name(), run)
            .data(&data)
            .idle_inputs()
            .tolerance(1e-6)
            .near_replicas()
            .budget(0)
            .sets(1);
        let verdict = verifier.verify(&vjps);
        let text = verdict.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if let Some(idle) = (0..wanted.len()).find(|o| text.contains(&format!("output {o} is 0 everywhere")))
        {
            wanted.remove(idle);
            continue;
        }
        if !text.contains("everywhere, which proves nothing") {
            return outcome_of(&verifier, verdict, &vjps);
        }
        let verifier = verifier.constant();
        return outcome_of(&verifier, verifier.verify(&vjps), &vjps);
    }
    Outcome::Nothing
}

/// Returns the outcome of a verification and of its mutants.
fn outcome_of(verifier: &Verifier<'_>, verdict: Result<Verdict, Error>, vjps: &[Op]) -> Outcome {
    let checks = match verdict {
        Ok(verdict) => verdict.checks,
        Err(e) => {
            let text = e.to_string();
            if ["proves nothing", "NaN", "was never tried"].iter().any(|known| text.contains(known)) {
                return Outcome::Nothing;
            }
            return Outcome::Wrong(text);
        }
    };
    let (mut mutants, mut caught) = (0, 0);
    for vjp in vjps {
        let wrong: Vec<Strategy> = vjp.strategies().iter().filter_map(mutant).collect();
        if wrong.is_empty() {
            continue;
        }
        let rule = Rule::from_strategies(wrong.clone()).unwrap();
        let Ok(op) = Op::with_outputs("mutant", &rule, &slices(vjp.inputs()), &slices(vjp.outputs())) else {
            continue;
        };
        let failing = verifier.failing(&[op]).unwrap();
        mutants += wrong.len();
        caught += wrong.iter().filter(|w| failing.contains(w)).count();
    }
    Outcome::True { checks, mutants, caught }
}

fn slices(shapes: &[Vec<usize>]) -> Vec<&[usize]> {
    shapes.iter().map(Vec::as_slice).collect()
}

/// The mutant `R* = R`: a gradient of partial values, declared as replicas.
fn mutant(row: &Strategy) -> Option<Strategy> {
    let term = |p: &OperandPlacement| *p == OperandPlacement::Partial(ReduceOp::Sum);
    let outputs =
        row.outputs.iter().map(|p| if term(p) { OperandPlacement::Replicate } else { p.clone() }).collect();
    row.outputs.iter().any(term).then(|| Strategy { inputs: row.inputs.clone(), outputs })
}

#[test]
fn every_transposed_row_is_true() {
    let sweep = Sweep::asked();
    let all = Mutex::new((0, 0, 0, 0));
    let results = each(|i| sweep.picks(200, i), outcome);
    let mut wrong = Vec::new();
    let mut nothing = Vec::new();
    for (call, result) in results {
        match result {
            Outcome::True { checks, mutants, caught } => {
                let mut all = all.lock().unwrap();
                *all = (all.0 + 1, all.1 + checks, all.2 + mutants, all.3 + caught);
            }
            Outcome::Nothing => nothing.push(call),
            Outcome::Wrong(text) => wrong.push(text),
        }
    }
    let (examples, checks, mutants, caught) = all.into_inner().unwrap();
    println!("{examples} examples, {checks} checks, {caught} of {mutants} mutants are caught");
    println!("without a derivative here: {}", nothing.join(" "));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(examples > nothing.len(), "{examples} are differentiated, {} are not", nothing.len());
    assert!(caught * 2 > mutants, "{caught} of {mutants} mutants are caught");
}
