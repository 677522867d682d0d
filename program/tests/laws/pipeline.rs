//! One forward, one backward (1F1B): the microbatches in flight on each stage, and the time and memory saved.

use std::fmt::Write as _;

use reshard_program::schedule::{CompileOptions, Event, Order, Schedule, Timeline};
use reshard_program::{ComputeRates, Program, ShardingSolver};

/// Returns a square product and a relu on each of some stages, for each microbatch in sequence, and one loss.
fn pipeline(stages: usize, microbatches: usize, n: usize) -> Program {
    let mut text = format!("mesh pp={stages},tp=2\n");
    for s in 0..stages {
        writeln!(text, "mesh stage{s}: tp=2@{}\nw{s}: f32[{n},{n}] S(1) on stage{s}", 2 * s).unwrap();
    }
    for m in 0..microbatches {
        writeln!(text, "x{m}_0: f32[{n},{n}] R|- on stage0").unwrap();
        for s in 0..stages {
            writeln!(text, "h{m}_{s} = mm(x{m}_{s}, w{s})\na{m}_{s} = relu(h{m}_{s})").unwrap();
            if s + 1 < stages {
                writeln!(text, "x{m}_{}: R on stage{} = a{m}_{s}", s + 1, s + 1).unwrap();
            }
        }
        writeln!(text, "l{m} = sum(a{m}_{})", stages - 1).unwrap();
        let sum = if m == 0 { "s0 = neg(l0)".to_owned() } else { format!("s{m} = sub(s{}, l{m})", m - 1) };
        writeln!(text, "{sum}").unwrap();
    }
    let wrt: Vec<String> = (0..stages).map(|s| format!("w{s}")).collect();
    writeln!(text, "gradient s{} wrt {}", microbatches - 1, wrt.join(", ")).unwrap();
    for s in 0..stages {
        writeln!(text, "w{s}' = sgd(w{s}, dw{s})").unwrap();
    }
    ShardingSolver::new().solve(&text.parse().unwrap()).unwrap()
}

/// Returns the maximum number of microbatches that a rank has in flight, from the definition.
///
/// These are the microbatches with an activation that is still to be used.
fn most_in_flight(schedule: &Schedule, stage: usize, microbatches: usize) -> usize {
    let trace = schedule.trace();
    let of = |m: usize| {
        let name = format!("a{m}_{stage}");
        let names = |event: &Event, taken: bool| match event {
            Event::Call { takes, makes, .. } => {
                (if taken { takes } else { makes }).iter().any(|operand| operand.name == name)
            }
            Event::Exchange { .. } => false,
        };
        let made = trace.iter().position(|event| names(event, false)).unwrap();
        (made, trace.iter().rposition(|event| names(event, true)).unwrap())
    };
    let spans: Vec<(usize, usize)> = (0..microbatches).map(of).collect();
    let at = |event: usize| spans.iter().filter(|(made, last)| (*made..=*last).contains(&event)).count();
    (0..trace.len()).map(at).max().unwrap()
}

#[test]
fn of_p_stages_stage_s_has_p_minus_s_microbatches_in_flight() {
    for (stages, microbatches) in (1..=4).flat_map(|p| (1..=6).map(move |m| (p, m))) {
        let program = pipeline(stages, microbatches, 8);
        for stage in 0..stages {
            let compiled = |order| {
                program.compile(2 * stage, &CompileOptions { order, ..CompileOptions::default() }).unwrap()
            };
            let (written, ordered) = (compiled(Order::Program), compiled(Order::OneForwardOneBackward));
            assert_eq!(most_in_flight(&written, stage, microbatches), microbatches, "{written}");
            let most = most_in_flight(&ordered, stage, microbatches);
            assert_eq!(most, microbatches.min(stages - stage), "{stages} stages, {stage}: {ordered}");
        }
    }
}

/// By the model, 1F1B is as fast as all forwards first, and it uses less memory.
///
/// The tolerance is the cost of synchronization.
#[test]
fn few_in_flight_take_less_memory_and_no_longer() {
    let program = pipeline(3, 8, 4096);
    let compiled = |order| -> Vec<Schedule> {
        let options = CompileOptions { order, in_flight_bytes: 1 << 30, ..CompileOptions::default() };
        (0..6).map(|rank| program.compile(rank, &options).unwrap()).collect()
    };
    let rates = ComputeRates::uniform();
    let [written, ordered] = [Order::Program, Order::OneForwardOneBackward].map(compiled);
    let total = |schedules: &[Schedule]| Timeline::of(schedules, &rates).unwrap().total_us();
    let (gpipe, one) = (total(&written), total(&ordered));
    assert!(one < 1.05 * gpipe, "{one} us, {gpipe} us with all forwards first");
    // Sequential execution would take the whole time.
    let alone: f64 = {
        let timeline = Timeline::of(&ordered, &rates).unwrap();
        timeline.lanes.iter().step_by(2).map(|lane| timeline.computing_us(lane)).sum()
    };
    assert!(one < 0.75 * alone, "{one} of {alone} us");
    for stage in 0..3 {
        let bytes = |schedules: &[Schedule]| schedules[2 * stage].arena_bytes();
        // Of 8 microbatches 3, 2 and 1 have live activations, each of half a buffer. Backward additionally
        // has at most a gradient, a sign, and a part and a sum of the weight's gradient.
        let less = (8 - (3 - stage) - 4) * 4096 * 2048 * 4;
        assert!(bytes(&ordered) + less <= bytes(&written), "{} and {}", bytes(&ordered), bytes(&written));
    }
}

/// Without microbatches, and with one on one stage, the order is unchanged.
///
/// The exception are statements that no other waits for.
#[test]
fn an_order_leaves_nothing_out_and_names_are_read_as_they_are_printed() {
    let text = "mesh x=2\nw: f32[4,4] R\nv: f32[4,4] S(0)\nu = mul(w, w)\nt: R = v\ns = add(u, t)\n";
    let program: Program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    let of = |order| {
        program.compile(1, &CompileOptions { order, ..CompileOptions::default() }).unwrap().to_string()
    };
    assert_eq!(of(Order::OneForwardOneBackward).lines().count(), of(Order::Program).lines().count());
    for order in Order::ALL {
        assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
    }
    let error = "gpipe".parse::<Order>().unwrap_err();
    assert_eq!(error.to_string(), "unknown order `gpipe`; expected one of: program, 1f1b");
}
