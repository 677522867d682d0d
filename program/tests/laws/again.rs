//! Rematerialization: every selection gives a valid program, and the fastest selection that fits is found.

use std::collections::BTreeSet;

use reshard_program::{ComputeRates, Pass, Program, Statement, ValueId};
use reshard_test_support::{Sweep, properties};

use crate::elaborated;
use crate::report::STAGES;

/// Small programs: chains, views, redistributions that are profitable to repeat or not.
///
/// Some have values with two uses, and one has a value that only backward takes.
const SMALL: [&str; 5] = [
    "mesh dp=2
     x: f32[64,96] S(0)
     w: f32[96,128] I
     a = mm(x, w)
     b = gelu(a)
     c = sin(b)
     loss = sum(c)
     gradient loss wrt w, x",
    "mesh dp=4
     x: f32[64,96] S(0)
     w: f32[96,128] S(0)
     v: f32[128,32] S(1)
     h = mm(x, w)
     a = relu(h)
     y = mm(a, v)
     loss = sum(y)
     gradient loss wrt w, v",
    "mesh dp=2,tp=2
     x: f32[8,16] S(0),I
     w: f32[16,64] I,S(1)
     v: f32[64,16] I,S(0)
     h = mm(x, w)
     s = silu(h)
     g = mul(s, h)
     y: S(0),I = mm(g, v)
     loss = sum(y)
     gradient loss wrt w, v, x",
    "mesh x=2
     a: f32[32,32] S(0)
     b = exp(a)
     c = view(b, shape=[1024])
     d = sin(c)
     e = mul(d, c)
     f = cos(e)
     g = mul(f, d)
     loss = sum(g)
     gradient loss wrt a",
    STAGES,
];

/// Returns the outputs of the ops and redistributions of forward.
fn made_in_forward(program: &Program) -> Vec<ValueId> {
    program
        .forward()
        .iter()
        .filter(|item| !matches!(item, Statement::Input(_)))
        .flat_map(|item| item.outputs().to_vec())
        .collect()
}

/// Returns the sequential time of all ops and redistributions, and the peak.
fn costs(program: &Program) -> (f64, u64) {
    let rates = ComputeRates::uniform();
    let one_by_one = |item: &Statement| -> f64 {
        match item {
            Statement::Redistribute { forward, .. } => forward.cost_us(),
            Statement::Op { is_view: false, inputs, outputs, operations, .. } => {
                let values = || inputs.iter().chain(outputs).map(|v| program.get(*v));
                let bytes =
                    values().map(|v| (v.ty.value.max_local_numel() * v.dtype.bits() / 8) as u64).sum();
                let dtype = values().map(|v| v.dtype).find(|d| !d.is_integral());
                dtype.map_or(0.0, |dtype| rates.time_us(dtype, *operations, bytes))
            }
            Statement::Op { .. } | Statement::Input(_) | Statement::NoGrad => 0.0,
        }
    };
    (program.statements().iter().map(one_by_one).sum(), program.report(&rates).peak.bytes)
}

#[test]
fn the_least_time_whose_peak_fits_is_found() {
    for text in SMALL {
        let program = elaborated(text);
        let values = made_in_forward(&program);
        assert!(values.len() <= 12, "{text} has {} values", values.len());
        // Exhaustively: every set of values.
        let all: Vec<(f64, u64)> = (0u32..1 << values.len())
            .map(|bits| {
                let chosen = values.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, v)| *v);
                costs(&program.rematerialize(&chosen.collect::<Vec<_>>()).unwrap())
            })
            .collect();
        let mut peaks: BTreeSet<u64> = all.iter().map(|(_, peak)| *peak).collect();
        let least = *peaks.first().unwrap();
        peaks.insert(u64::MAX);
        for limit in peaks {
            let best =
                all.iter().filter(|(_, peak)| *peak <= limit).map(|(us, _)| *us).fold(f64::MAX, f64::min);
            let (us, peak) = costs(&program.rematerialize_to_fit(limit, &ComputeRates::uniform()).unwrap());
            assert!(
                peak <= limit && (us - best).abs() < 1e-9,
                "{text}: {limit} bytes: {us} and not {best} us, {peak} bytes"
            );
        }
        let error =
            program.rematerialize_to_fit(least - 1, &ComputeRates::uniform()).unwrap_err().to_string();
        assert!(error.contains(&format!("the best needs {least};")), "{error}");
    }
}

/// Returns layers of products, with values to save, to shard, or to rematerialize.
fn layers(count: usize) -> Program {
    let layer = |n: usize| {
        format!(
            "w{n}: f32[32,64] S(0),S(1)\nv{n}: f32[64,32] S(1),S(0)\nh{n} = mm(x{n}, w{n})\na{n} = gelu(h{n})\n\
             y{n}: S(0),I = mm(a{n}, v{n})\nx{} = add(x{n}, y{n})\n",
            n + 1
        )
    };
    let layers: String = (0..count).map(layer).collect();
    elaborated(&format!("mesh dp=2,tp=2\nx0: f32[16,32] S(0),I\n{layers}loss = sum(x{count})\ngradient loss"))
}

/// Returns the time of the selection for each of these limits; `None` if none fits.
fn times(program: &Program, limits: &[u64]) -> Vec<Option<f64>> {
    let of = |&limit: &u64| {
        let (us, peak) = costs(&program.rematerialize_to_fit(limit, &ComputeRates::uniform()).ok()?);
        assert!(peak <= limit, "{peak} of {limit} bytes");
        Some(us)
    };
    limits.iter().map(of).collect()
}

/// Returns `true` if more memory never takes more time.
fn is_monotone(times: &[Option<f64>]) -> bool {
    times.windows(2).all(|two| match two {
        [Some(less), Some(more)] => *more <= less + 1e-9,
        [less, _] => less.is_none(),
        _ => true,
    })
}

#[test]
fn many_layers_fit_into_less_for_more_time() {
    let program = layers(8);
    let (us, peak) = costs(&program);
    let everything = costs(&program.rematerialize(&made_in_forward(&program)).unwrap());
    let apart = if Sweep::asked().is_exhaustive() { 1 } else { 5 };
    let limits: Vec<u64> = (10..=100).step_by(apart).map(|percent| peak * percent / 100).collect();
    let times = times(&program, &limits);
    assert!(is_monotone(&times), "{times:?}");
    let found: Vec<f64> = times.iter().flatten().copied().collect();
    assert_eq!(found.last(), Some(&us));
    assert!(found[0] > us && found[0] <= everything.0 + 1e-9, "{found:?}");
    // 60 % fit.
    assert!(found.len() > 40 / apart, "{times:?}");
}

/// Returns a program of `ops` ops: products, unary and binary functions, and some redistributions.
fn chain(ops: usize, mut bits: u64) -> Program {
    let mut text = "mesh dp=2,tp=2\nx0: f32[16,32] S(0),I\n".to_owned();
    for n in 0..ops {
        let (word, other) = (bits % 8, (bits / 8) as usize % (n + 1));
        bits = bits
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
            .rotate_left(17);
        let next = n + 1;
        let line = match word {
            0 | 1 => format!("w{n}: f32[32,32] S(0),S(1)\nx{next} = mm(x{n}, w{n})\n"),
            2 => format!("w{n}: f32[32,32] I,I\nx{next} = mm(x{n}, w{n})\n"),
            3 | 4 => format!("x{next} = mul(x{n}, x{other})\n"),
            5 => format!("x{next} = gelu(x{n})\n"),
            6 => format!("x{next} = sin(x{n})\n"),
            _ => format!("x{next} = add(x{n}, x{other})\n"),
        };
        text += &line;
    }
    elaborated(&format!("{text}loss = sum(x{ops})\ngradient loss"))
}

/// For programs of which all selections are tried, and for programs of which some are.
#[test]
fn more_memory_takes_no_more_time() {
    let (mut made_again, apart) = (0, if Sweep::asked().is_exhaustive() { 1 } else { 4 });
    for ops in (4..28).step_by(apart) {
        let program = chain(ops, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(ops as u64));
        let (us, peak) = costs(&program);
        let limits: Vec<u64> =
            [50, 60, 65, 70, 75, 80, 85, 90, 95, 99, 100].map(|percent| peak * percent / 100).to_vec();
        let times = times(&program, &limits);
        assert!(times.last() == Some(&Some(us)) && is_monotone(&times), "{times:?}\n{program}");
        made_again += times.iter().flatten().filter(|of| **of > us + 1e-9).count();
    }
    assert!(made_again > 24 / apart, "{made_again}");
}

#[test]
fn a_gathered_parameter_is_gathered_again() {
    let program = layers(2);
    let gathered: Vec<&str> =
        program.gathered_parameters().iter().map(|v| program.get(*v).name.as_str()).collect();
    assert_eq!(gathered, ["w0.1", "v0.1", "w1.1", "v1.1"]);
    let again = program.rematerialize(&program.gathered_parameters()).unwrap();
    let (before, after) = (program.report(&ComputeRates::uniform()), again.report(&ComputeRates::uniform()));
    let bytes = |report: &reshard_program::Report, pass| report.traffic.of(pass).received_bytes;
    assert_eq!(bytes(&after, Pass::Forward), bytes(&before, Pass::Forward));
    // Forward communicates nothing else.
    let gathers = bytes(&before, Pass::Forward);
    assert!(gathers > 0);
    assert_eq!(bytes(&after, Pass::Backward), bytes(&before, Pass::Backward) + gathers);
    assert!(after.peak.bytes < before.peak.bytes, "{:?} {:?}", after.peak, before.peak);
}

properties! {
    /// Every selection gives a valid program with explicit redistributions only.
    ///
    /// Its text round-trips with the same types, and each value is computed once.
    fn every_choice_is_a_program(which: u8, bits: u64) -> bool {
        let program = elaborated(SMALL[which as usize % SMALL.len()]);
        let values = made_in_forward(&program);
        let chosen: Vec<ValueId> =
            values.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, v)| *v).collect();
        let again = program.rematerialize(&chosen).unwrap();
        let text = again.to_string();
        let read: Program = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
        let mut made = BTreeSet::new();
        let once = again.statements().iter().all(|item| {
            let there = item.inputs().iter().all(|v| made.contains(v));
            there && item.outputs().iter().all(|v| made.insert(*v))
        });
        once && read.to_string() == text && costs(&read) == costs(&again)
    }
}
