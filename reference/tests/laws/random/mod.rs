//! Random training steps on ranks equal those on one device: forward, backward, and through three updates.

mod coverage;
mod draw;
mod layers;
mod ops;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ndarray::ArrayD;
use reshard_program::schedule::CompileOptions;
use reshard_program::{Program, ShardingSolver};
use reshard_reference::{Number, Values, on_one_device, on_ranks};
use reshard_test_support::{Random, Sweep};

use crate::again::some_again;
use crate::schedules;
use coverage::Coverage;
use draw::{Draw, Drawn};

/// The tolerance of a result, relative to the largest number of its tensor.
const F64: f64 = 1e-12;
const F32: f64 = 1e-5;

/// The number of optimizer steps.
const STEPS: usize = 3;

/// The largest finite magnitude, at least 1; overflowed elements are compared separately.
fn largest<T: Number>(a: &ArrayD<T>) -> f64 {
    a.iter().map(|x| x.wide().abs()).filter(|x| x.is_finite()).fold(1.0, f64::max)
}

/// The largest difference of two tensors; equal infinities or NaNs differ by 0.
fn apart<T: Number, U: Number>(a: &ArrayD<T>, b: &ArrayD<U>) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let one = |(x, y): (f64, f64)| match (x - y).abs() {
        off if off.is_finite() => off,
        _ if x.total_cmp(&y).is_eq() || x.is_nan() && y.is_nan() => 0.0,
        _ => f64::INFINITY,
    };
    a.iter().zip(b).map(|(x, y)| one((x.wide(), y.wide()))).fold(0.0, f64::max)
}

fn narrow<T: Number>(values: &Values<f64>) -> Values<T> {
    values.iter().map(|(name, a)| (name.clone(), a.mapv(T::rounded))).collect()
}

/// The inputs of the next step.
fn after<T: Number>(drawn: &Drawn, inputs: &Values<T>, made: &Values<T>) -> Values<T> {
    let mut next = inputs.clone();
    for (before, after) in &drawn.next {
        next.insert(before.clone(), made[after].clone());
    }
    next
}

/// All steps on one device.
fn whole<T: Number>(drawn: &Drawn, program: &Program, inputs: &Values<f64>) -> Vec<Values<T>> {
    let mut inputs = narrow::<T>(inputs);
    let step = |_| {
        let made = on_one_device(program, &inputs).unwrap_or_else(|e| panic!("{program}\n{e}"));
        inputs = after(drawn, &inputs, &made);
        made
    };
    (0..STEPS).map(step).collect()
}

/// The rounding error of f32 against f64 on one device, relative to the largest number of each tensor.
fn rounding(single: &[Values<f32>], double: &[Values<f64>]) -> f64 {
    let both = double.iter().zip(single).flat_map(|(d, s)| d.iter().map(|(name, d)| (d, &s[name])));
    both.map(|(d, s)| apart(d, s) / largest(d)).fold(0.0, f64::max)
}

/// Without shared memory, so that all values exist for comparison, and one of the other options per program.
fn two_ways(program: &Program) -> [CompileOptions; 2] {
    let [apart, others @ ..] = schedules::ways();
    let one = others[program.values().len() % others.len()].clone();
    [apart, one]
}

/// Takes all steps on ranks, and compares every value with the one on one device.
fn steps<T: Number>(
    drawn: &Drawn,
    program: &Program,
    inputs: &Values<f64>,
    whole: &[Values<T>],
    bound: f64,
) -> Result<(), String> {
    let mut inputs = narrow::<T>(inputs);
    for (step, whole) in whole.iter().enumerate() {
        let ranks = on_ranks(program, &inputs).map_err(|e| e.to_string())?;
        if step == 0 {
            schedules::do_what_the_program_does(program, &inputs, &ranks, &two_ways(program))?;
        }
        let mut made: Values<T> = Values::new();
        for value in program.values() {
            let (name, expected) = (&value.name, &whole[&value.name]);
            let got = ranks.whole(name).map_err(|e| format!("{name}: {e}"))?;
            let off = apart(expected, &got);
            if off > bound * largest(expected) {
                return Err(format!("step {step}: {name} is off by {off:e}: {expected:?} and {got:?}"));
            }
            made.insert(name.clone(), got);
        }
        inputs = after(drawn, &inputs, &made);
    }
    Ok(())
}

/// Returns the gradient along one direction and the difference of the loss; `None` at a corner of the loss.
fn slope(drawn: &Drawn, program: &Program, inputs: &Values<f64>, r: &mut Random) -> Option<(f64, f64)> {
    let made = on_one_device(program, inputs).unwrap();
    let mut direction: Values<f64> = Values::new();
    for w in &drawn.wrt {
        direction.insert(w.clone(), inputs[w].mapv(|_| r.below(2001) as f64 / 1000.0 - 1.0));
    }
    let loss = |t: f64| -> f64 {
        let mut at = inputs.clone();
        for (w, d) in &direction {
            at.insert(w.clone(), &inputs[w] + &(d * t));
        }
        on_one_device(program, &at).unwrap()[&drawn.loss].sum()
    };
    let difference = |h: f64| (loss(h) - loss(-h)) / (2.0 * h);
    let (wide, near) = (difference(1e-4), difference(3e-5));
    let smooth = (wide - near).abs() <= 1e-6 * (1.0 + near.abs());
    let gradient: f64 = direction.iter().map(|(w, d)| (d * &made[&format!("d{w}")]).sum()).sum();
    (smooth && gradient.is_finite()).then_some((gradient, near))
}

/// The outcome of a random program.
enum Looked {
    /// Numbers grow without bound.
    Wild,
    /// A formula has no gradient.
    NoGradient,
    /// Compared in f64, in f32 too where rounding does not grow; with differences; gradients of gradients.
    ///
    /// `across` counts redistributions from one mesh to another.
    Compared { in_f32: bool, slope: bool, twice: bool, across: u64 },
}

fn look(seed: u64, coverage: &Mutex<Coverage>) -> Result<Looked, String> {
    let twice = seed % 25 == 7;
    let drawn = Draw::program(seed, twice);
    let most = [1, 2, 8][(seed % 3) as usize];
    let program = match ShardingSolver::new().beam_width(most).solve(&drawn.graph) {
        // A formula may call an op without a gradient.
        Err(e) if twice && e.code() == "no_gradient" => return Ok(Looked::NoGradient),
        other => other.map_err(|e| format!("{}\n{e}", drawn.graph))?,
    };
    // A third of the programs rematerialize some values in backward.
    let program = if seed % 3 == 1 { some_again(&program, &mut Random(seed)) } else { program };
    let text = program.to_string();
    // Every redistribution of a program is written, those of the gradient too.
    let again: Program = text.parse().map_err(|e| format!("{text}\nis not read back: {e}"))?;
    if again.to_string() != text {
        return Err(format!("{text}\nis read back as\n{again}"));
    }
    let graph = drawn.graph.to_string();
    match graph.parse::<reshard_program::Graph>() {
        Ok(again) if again.to_string() == graph => {}
        other => return Err(format!("{graph}\nis parsed as {other:?}")),
    }
    let inputs = drawn.numbers(&mut Random(seed));
    let (double, single) = (whole::<f64>(&drawn, &program, &inputs), whole::<f32>(&drawn, &program, &inputs));
    if double.iter().flat_map(|step| step.values()).any(|a| largest(a) > 1e4) {
        return Ok(Looked::Wild);
    }
    coverage.lock().unwrap().add(&drawn.classes, &program);
    let at = |e: String| format!("{text}\n{e}");
    schedules::traces_are_equal(&program, &two_ways(&program)).map_err(at)?;
    steps::<f64>(&drawn, &program, &inputs, &double, F64).map_err(at)?;
    let in_f32 = rounding(&single, &double) <= 0.1 * F32;
    if in_f32 {
        steps::<f32>(&drawn, &program, &inputs, &single[..1], F32).map_err(at)?;
    }
    let mut smooth = false;
    // A difference does not stop where a gradient is detached.
    let sampled = (seed.is_multiple_of(4) || twice) && !drawn.classes.contains_key("detach");
    let found = if sampled { slope(&drawn, &program, &inputs, &mut Random(seed)) } else { None };
    if let Some((gradient, difference)) = found {
        smooth = true;
        if (gradient - difference).abs() > 1e-5 * (1.0 + difference.abs()) {
            return Err(at(format!("gradient {gradient}, by differences {difference}")));
        }
    }
    let across =
        program.redistributions().filter(|m| m.from.ty.value.mesh() != m.to.ty.value.mesh()).count() as u64;
    Ok(Looked::Compared { in_f32, slope: smooth, twice, across })
}

#[test]
fn random_training_steps_are_what_they_mean() {
    let sweep = Sweep::asked();
    let count = sweep.count(8, 2000);
    let (next, coverage) = (AtomicU64::new(0), Mutex::new(Coverage::default()));
    let counted = Mutex::new([0u64; 7]);
    let failed: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let seed = sweep.seed() * 1000 + number;
                    match look(seed, &coverage) {
                        Ok(Looked::Wild) => counted.lock().unwrap()[0] += 1,
                        Ok(Looked::NoGradient) => counted.lock().unwrap()[5] += 1,
                        Ok(Looked::Compared { in_f32, slope, twice, across }) => {
                            let mut counted = counted.lock().unwrap();
                            counted[1] += 1;
                            counted[2] += u64::from(in_f32);
                            counted[3] += u64::from(slope);
                            counted[4] += u64::from(slope && twice);
                            counted[6] += across;
                        }
                        Err(e) => failed.lock().unwrap().push((seed, e)),
                    }
                }
            });
        }
    });
    let [wild, compared, in_f32, slopes, again, refused, across] = counted.into_inner().unwrap();
    println!(
        "{compared} programs in f64, {in_f32} of them in f32, {slopes} against differences ({again} twice); {wild} of large \
         numbers, {refused} without a second gradient; {across} redistributions between meshes; {:.0} s",
        began.elapsed().as_secs_f64()
    );
    println!("{}", coverage.into_inner().unwrap());
    assert!(across > 0, "no program redistributes between meshes");
    let failed = failed.into_inner().unwrap();
    let list: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "of the programs {list:?} the first: {}", failed[0].1);
}
