//! Values sent in a narrower type equal one device's within the stated rounding.
//!
//! They are the same on all ranks, and take half the bytes.

use half::bf16;
use ndarray::ArrayD;
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_program::{ComputeRates, Program, ShardingSolver, Statement};
use reshard_reference::{on_one_device, on_ranks};
use reshard_test_support::Sweep;

use crate::programs::{inputs, same_as_one_device, written};

/// Half of the distance from 1 to the next number of bf16.
const ROUNDING: f64 = 1.0 / 256.0;

fn rounded(x: f64) -> f64 {
    bf16::from_f64(x).to_f64()
}

/// A network without latency, so that sums use reduce_scatter and all_gather even for small tensors.
fn elaborated(text: &str) -> Program {
    let planner = Planner::new().topology("launch=0;message=0;level=*:0:100".parse().unwrap());
    ShardingSolver::new().planner(planner).solve(&text.parse().unwrap()).unwrap()
}

/// Steps of training: how a weight is sharded, used and summed, without and with a communication dtype.
const STEPS: &[&str] = &[
    // Data parallel.
    "mesh dp=4\nx: f64[16,8] S(0)\nw: f64[8,32] I\nwr: R{} = w\nh = mm(x, wr)\nz = silu(h)\ngradient z wrt w\nw' = sgd(w, dw)",
    // ZeRO-1 and 2.
    "mesh dp=4\nx: f64[16,8] S(0)\nw: f64[8,32] R|S(0)\nwr: R{} = w\nh = mm(x, wr)\nz = silu(h)\ngradient z wrt w\nws: S(0) = w\nwu = sgd(ws, dw)\nw': R = wu",
    // ZeRO-3.
    "mesh dp=4\nx: f64[16,8] S(0)\nw: f64[8,32] S(1)\nwr: R{} = w\nh = mm(x, wr)\nz = silu(h)\ngradient z wrt w\nw' = sgd(w, dw)",
    // HSDP.
    "mesh rep=2,shard=2\nx: f64[16,8] S(0),S(0)\nw: f64[8,32] I,S(0)\nwr: R,R{} = w\nh = mm(x, wr)\nz = silu(h)\ngradient z wrt w\nw' = sgd(w, dw)",
    // Megatron, and with sharded sequences.
    "mesh tp=4\nx: f64[4,2,16] I\nup: f64[16,64] S(1)\ndown: f64[64,16] S(0)\nxr: R{} = x\nh = sbh,hi->sbi(xr, up)\na = silu(h)\ny: I{} = sbi,ih->sbh(a, down)\nz = square(y)\ngradient z wrt x, up, down",
    "mesh tp=4\nx: f64[8,2,16] S(0)\nup: f64[16,64] S(1)\ndown: f64[64,16] S(0)\nxr: R{} = x\nh = sbh,hi->sbi(xr, up)\na = silu(h)\ny: S(0){} = sbi,ih->sbh(a, down)\nz = square(y)\ngradient z wrt x, up, down",
    // All to all, and an uneven batch.
    "mesh cp=4\nq: f64[2,16,4,8] S(1)\nqh: S(2){} = q\nz = square(qh)\ngradient z wrt q",
    "mesh dp=4\nx: f64[18,8] S(0)\nw: f64[8,32] I\nwr: R{} = w\nh = mm(x, wr)\nz = silu(h)\ngradient z wrt w",
    // In a region.
    "mesh tp=4\nx: f64[8,16] R\nup: f64[16,64] S(1)\ndown: f64[64,16] S(0)\nlocal tp\nin x: R\nin up: S(1)\nin down: S(0)\nh = mm(x, up)\na = silu(h)\no = mm(a, down)\ns = reduce_scatter(o, dim=0{,via=})\nout y: S(0) = s\nend\nz = square(y)\ngradient z wrt x, up, down",
    "mesh tp=2\nx: f64[8,16] R\nup: f64[16,64] S(1)\ndown: f64[64,16] S(0)\nlocal tp\nin x: R\nin up: S(1)\nin down: S(0)\nh = mm(x, up)\na = silu(h)\no = mm(a, down)\ns: I = all_reduce(o{,via=})\nout y: I = s\nend\nz = square(y)\ngradient z wrt x, up, down",
];

fn with(text: &str, via: &str) -> String {
    let (moved, called) = match via {
        "" => (String::new(), String::new()),
        via => (format!(" via {via}"), format!(", via={via}")),
    };
    text.replace("{}", &moved).replace("{,via=}", &called)
}

#[test]
fn a_step_through_a_wire_is_one_devices_within_its_rounding_and_its_traces_are_equal_under_every_pass() {
    let some = if Sweep::asked().is_exhaustive() { STEPS.len() } else { 1 };
    for text in STEPS.iter().take(some) {
        let program = elaborated(&with(text, "bf16"));
        assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
        // Every sum of at most four partial values is rounded before and after the reduction, and a few are
        // in sequence.
        let ranks = same_as_one_device::<f64>(&program, &inputs(&program, 1), 16.0 * ROUNDING);
        let plain = elaborated(&with(text, ""));
        let exact = same_as_one_device::<f64>(&plain, &inputs(&plain, 1), 1e-12);
        let differs = |name: &str| ranks.whole(name).unwrap() != exact.whole(name).unwrap();
        assert!(
            plain.values().iter().any(|v| program.value(&v.name).is_some() && differs(&v.name)),
            "{program}"
        );
        let _ = same_as_one_device::<f32>(&program, &inputs(&program, 2), 16.0 * ROUNDING);
    }
}

#[test]
fn a_wire_of_a_quarter_of_the_bits_takes_a_quarter_of_the_bytes_as_reported_and_as_received() {
    for text in STEPS {
        let [wide, f32, bf16] = ["", "f32", "bf16"].map(|via| {
            let program = elaborated(&with(text, via));
            let reported = program.report(&ComputeRates::uniform()).traffic;
            let reported = reported.forward.received_bytes
                + reported.backward.received_bytes
                + reported.update.received_bytes;
            let received = on_ranks::<f64>(&program, &inputs(&program, 1)).unwrap().received_bytes();
            assert_eq!(reported, received, "{program}");
            received
        });
        // The updated weight is gathered without narrowing in ZeRO-1: 3/4 of 8 x 32 numbers.
        let apart = if text.contains("w': R = wu") { 3 * 2 * 32 * 8 } else { 0 };
        assert_eq!((wide - apart, wide - apart), (2 * (f32 - apart), 4 * (bf16 - apart)), "{text}");
    }
}

/// The placements of `t`; its partial values are real sums of slices.
const PLACEMENTS: [&str; 4] = ["R", "P", "S(0)", "S(1)"];

#[test]
fn every_move_through_a_wire_is_off_by_the_rounding_of_its_terms_and_of_their_sum() {
    let mut seen = 0;
    for from in 0..16 {
        for to in 0..16 {
            let word = |list: usize| [PLACEMENTS[list / 4], PLACEMENTS[list % 4]];
            let (a, b) = (word(from), word(to));
            let input = ["S(0)", "S(1)"].iter().zip(a).map(|(own, of)| match of {
                "P" => (*own).to_owned(),
                "S(0)" => "S(2)".to_owned(),
                "S(1)" => "S(3)".to_owned(),
                other => other.to_owned(),
            });
            let input = input.collect::<Vec<_>>().join(",");
            let text = format!(
                "mesh x=2,y=2\nz: f64[2,2,4,4] {input}\nt: {} = sum(z, dims=[0,1])\ny: {} via bf16 = t",
                a.join(","),
                b.join(",")
            );
            let program = elaborated(&text);
            let given = inputs::<f64>(&program, (from * 16 + to) as u64);
            let whole = on_one_device(&program, &given).unwrap();
            let ranks = on_ranks(&program, &given).unwrap_or_else(|e| panic!("{program}\n{e}"));
            // Replicas that differ in a bit are inconsistent.
            let found = ranks.whole("y").unwrap_or_else(|e| panic!("{program}\n{e}"));
            let z = &given["z"];
            for ((index, x), y) in whole["y"].indexed_iter().zip(&found) {
                let terms: f64 = (0..4).map(|k| z[[k / 2, k % 2, index[0], index[1]]].abs()).sum();
                // Partial values along both axes may be rounded, their sums by one, and the sums.
                let most = 4.0 * ROUNDING * terms;
                assert!((x - y).abs() <= most, "{program}\n{x} and {y}");
            }
            let wired = program.lower_comm_dtypes().unwrap();
            let narrow = wired.redistributions().filter(|m| m.from.dtype == DType::BF16);
            assert!(narrow.into_iter().all(|m| m.forward.communicating_steps() > 0), "{program}");
            let wide = wired.redistributions().filter(|m| m.from.dtype == DType::F64);
            assert!(wide.into_iter().all(|m| m.forward.communicating_steps() == 0), "{program}");
            seen += 1;
        }
    }
    assert_eq!(seen, 256);
}

#[test]
fn terms_are_rounded_once_added_in_their_own_type_and_their_sum_is_rounded_where_it_is_gathered() {
    let text = "mesh x=4\nz: f32[4,8] S(0)\nt: P = sum(z, dims=[0])\na: S(0) via bf16 = t\nb: R via bf16 = a";
    let program = written(text).unwrap();
    let given = inputs::<f32>(&program, 3);
    let z = &given["z"];
    let sums: Vec<f32> =
        (0..8).map(|i| (0..4).map(|k| rounded(f64::from(z[[k, i]]))).sum::<f64>() as f32).collect();
    let ranks = on_ranks(&program, &given).unwrap();
    assert_eq!(ranks.whole("a").unwrap().into_raw_vec_and_offset().0, sums);
    let gathered: Vec<f32> = sums.iter().map(|&x| rounded(f64::from(x)) as f32).collect();
    for shard in ranks.shards("b").unwrap() {
        assert_eq!(shard.iter().copied().collect::<Vec<_>>(), gathered);
    }
    // Added in bf16, the result would differ.
    let narrow: Vec<f32> = (0..8)
        .map(|i| (0..4).fold(0.0, |sum, k| rounded(sum + rounded(f64::from(z[[k, i]])))) as f32)
        .collect();
    assert_ne!(narrow, sums);
}

#[test]
fn a_gradient_through_a_wire_has_a_gradient() {
    let text = "mesh dp=2\nx: f64[8,4] S(0)\nw: f64[4,6] I\nwr: R via bf16 = w\nh = mm(x, wr)\nz = silu(h)\n\
                gradient z wrt w\ns = square(dw)\ngradient s wrt w as g";
    let program = elaborated(text);
    let ranks = same_as_one_device::<f64>(&program, &inputs(&program, 5), 32.0 * ROUNDING);
    assert!(ranks.whole("g").unwrap().iter().any(|x| *x != 0.0));
}

#[test]
fn what_does_not_travel_is_not_rounded() {
    let text = "mesh x=2\na: f64[8] R\nb: S(0) via bf16 = a\nc: P via bf16 = b\nd: P via bf16 = c";
    let program = written(text).unwrap();
    let given = inputs::<f64>(&program, 7);
    let whole: &ArrayD<f64> = &given["a"];
    let ranks = on_ranks(&program, &given).unwrap();
    assert!(["b", "c", "d"].iter().all(|name| ranks.whole(name).unwrap() == *whole));
    assert!(
        program
            .lower_comm_dtypes()
            .unwrap()
            .statements()
            .iter()
            .all(|item| !matches!(item, Statement::Op { .. }))
    );
}

#[test]
fn a_cast_is_of_the_type_that_it_says_and_its_gradient_of_that_of_its_operand() {
    let text = "mesh dp=2\nx: f32[8,4] S(0)\nw: f32[4,6] I\nwb = cast(w, dtype=bf16)\nwr: R = wb\nxb = cast(x, dtype=bf16)\n\
                h = mm(xb, wr)\nz = cast(h, dtype=f32)\ngradient z wrt w";
    let program = elaborated(text);
    let dtype = |name: &str| program.get(program.value(name).unwrap()).dtype;
    assert_eq!(
        [dtype("wr"), dtype("h"), dtype("z"), dtype("dw")],
        [DType::BF16, DType::BF16, DType::F32, DType::F32]
    );
    assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
    // The reduction uses two bytes a number: half of 24, twice.
    assert_eq!(program.report(&ComputeRates::uniform()).traffic.backward.received_bytes, 48);
    let _ = same_as_one_device::<f64>(&program, &inputs(&program, 9), 1e-12);
}

#[test]
fn what_cannot_travel_so_is_refused_with_what_can() {
    let refused = |text: &str| text.parse::<Program>().unwrap_err().to_string();
    let of = |dtype: &str, via: &str| refused(&format!("mesh x=2\na: {dtype}[8] S(0)\nb: R via {via} = a"));
    assert_eq!(
        of("f32", "f64"),
        "line 3: `b` is f32 and cannot be sent as f64; write `via f16` or `via bf16`"
    );
    assert_eq!(of("i64", "bf16"), "line 3: `b` is i64 and cannot be sent as bf16; remove `via bf16`");
    assert_eq!(of("bf16", "f16"), "line 3: `b` is bf16 and cannot be sent as f16; remove `via f16`");
    assert_eq!(of("f32", "hlaf"), "line 3: unknown dtype `hlaf` after `via`; write one such as `via bf16`");
    let text = "mesh x=2\na: f32[2,8] S(0)\nno_grad\nt: P(max) = amax(a, dims=[0])\nb: R via bf16 = t";
    assert_eq!(
        refused(text),
        "partial values of P(max) are not sums and cannot be reduced in another dtype; remove `via`"
    );
}
