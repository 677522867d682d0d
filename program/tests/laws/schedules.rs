//! Schedules: the arena is as large as the report's peak, and hoisting reorders only posts and waits.
//!
//! Invalid programs are errors.

use reshard_program::schedule::{CompileOptions, Instruction, Schedule, Timeline, Transfer};
use reshard_program::{ComputeRates, ImplicitRedistribution, Program, ShardingSolver};

fn program(text: &str) -> Program {
    let moves =
        if text.contains("wr: R = w") { ImplicitRedistribution::Deny } else { ImplicitRedistribution::Allow };
    ShardingSolver::new().implicit_redistribution(moves).solve(&text.parse().unwrap()).unwrap()
}

fn compiled(program: &Program, options: &CompileOptions) -> Vec<Schedule> {
    program.mesh().ranks().map(|rank| program.compile(rank, options).unwrap()).collect()
}

/// Data parallel, two layers: gradients are reduced while the gradients of the layer below are computed.
const LAYERS: &str = "
    mesh dp=2
    x: f32[64,32] S(0)|-
    w: f32[32,32] I
    v: f32[32,32] I
    wr: R = w
    vr: R = v
    h = mm(x, wr)
    a = relu(h)
    y = mm(a, vr)
    loss = sum(y)
    gradient loss wrt w, v
    w' = sgd(w, dw)
    v' = sgd(v, dv)
";

const STAGES: &str = "
    mesh pp=2,tp=2
    mesh first: tp=2
    mesh second: tp=2@2
    x: f32[8,16] R|- on first
    w: f32[16,32] S(1) on first
    v: f32[32,64] S(0) on second
    h = mm(x, w)
    a = relu(h)
    b: S(1) on second = a
    out: I on second = mm(b, v)
    loss = sum(out)
    gradient loss wrt w, v
    w' = sgd(w, dw)
    v' = sgd(v, dv)
";

/// The arena is as large as the report's peak, up to alignment and updates.
///
/// Every buffer begins at a multiple of 64 bytes, and there are gaps between buffers of different sizes. The
/// report counts a parameter and its update as two buffers, the arena as one.
#[test]
fn the_arena_of_the_worst_rank_is_the_peak_of_the_report() {
    for text in [LAYERS, STAGES] {
        let program = program(text);
        let peak = program.report(&ComputeRates::uniform()).peak.bytes;
        let schedules = compiled(&program, &CompileOptions::default());
        let arena = schedules.iter().map(|schedule| schedule.arena_bytes() as u64).max().unwrap();
        let updated =
            schedules.iter().flat_map(Schedule::buffers).filter(|local| local.is_input && !local.is_live_out);
        let updated = updated.map(|local| local.slice.bytes as u64).max().unwrap();
        assert!(peak <= arena + updated && arena < peak + 3 * 64, "{arena} bytes for {peak}");
        let apart = compiled(&program, &CompileOptions { liveness: false, ..CompileOptions::default() });
        assert!(apart.iter().zip(&schedules).all(|(apart, s)| apart.arena_bytes() > s.arena_bytes()));
    }
}

/// Returns the number of instructions between a post and its wait.
fn between(schedule: &Schedule) -> Vec<(String, usize)> {
    let mut list = Vec::new();
    for (n, instr) in schedule.instructions().iter().enumerate() {
        if let Instruction::Post { exchange } = instr {
            let is_wait = |other: &Instruction| *other == Instruction::Wait { exchange: *exchange };
            let wait = schedule.instructions()[n..].iter().position(is_wait).unwrap();
            list.push((schedule.exchanges()[*exchange as usize].name(), wait - 1));
        }
    }
    list
}

#[test]
fn a_gradient_is_reduced_while_the_next_is_computed() {
    let program = program(LAYERS);
    let hoist = |hoist_bytes| {
        program
            .compile(0, &CompileOptions { in_flight_bytes: hoist_bytes, ..CompileOptions::default() })
            .unwrap()
    };
    let none = hoist(0);
    assert_eq!(between(&none), [("dv".to_owned(), 0), ("dw".to_owned(), 0)]);
    // Both gradients are in flight until the updates, which take them.
    let all = hoist(u64::MAX);
    let list = between(&all);
    assert_eq!(list[0].0, "dv");
    assert!(list[0].1 >= 4, "{all}");
    let calls = |schedule: &Schedule| -> Vec<Instruction> {
        let is_call = |instr: &&Instruction| matches!(instr, Instruction::Call { .. });
        schedule.instructions().iter().filter(is_call).cloned().collect()
    };
    assert_eq!(calls(&all), calls(&none));
    // Too few bytes for one redistribution: nothing is hoisted.
    assert_eq!(hoist(2 * 4 * 32 * 32 - 1).to_string(), none.to_string());
    // Enough for one: the first ends before the second begins.
    let one = hoist(2 * 4 * 32 * 32);
    let list = between(&one);
    let at = |instr: Instruction| one.instructions().iter().position(|other| *other == instr).unwrap();
    let ended = at(Instruction::Wait { exchange: 0 }) < at(Instruction::Post { exchange: 1 });
    assert!(list[0].1 >= 2 && ended, "{one}");
    assert!(one.arena_bytes() <= all.arena_bytes());
}

#[test]
fn gradients_of_one_group_are_one_exchange() {
    let program = program(LAYERS);
    let bucket = |hoist_bytes, bucket_bytes| {
        program
            .compile(
                1,
                &CompileOptions { in_flight_bytes: hoist_bytes, bucket_bytes, ..CompileOptions::default() },
            )
            .unwrap()
    };
    let names =
        |schedule: &Schedule| -> Vec<String> { schedule.exchanges().iter().map(Transfer::name).collect() };
    let phases = |schedule: &Schedule| -> usize {
        schedule.exchanges().iter().map(|e| e.compiled.exchanges().len()).sum()
    };
    let received = |schedule: &Schedule| -> u64 {
        schedule.exchanges().iter().map(|e| e.compiled.received_bytes()).sum()
    };
    let (none, all) = (bucket(0, 0), bucket(0, u64::MAX));
    assert_eq!(names(&none), ["dv", "dw"]);
    assert_eq!(names(&all), ["dv, dw"]);
    // Both all-reduces are two phases of one exchange, and no more bytes are received.
    assert_eq!((phases(&none), phases(&all), received(&none)), (4, 2, received(&all)));
    assert_eq!(between(&all), [("dv, dw".to_owned(), 0)]);
    // The sources and targets of both fit exactly; with one byte less they are separate exchanges.
    let of_both = 2 * 2 * 4 * 32 * 32;
    assert_eq!(names(&bucket(0, of_both)), ["dv, dw"]);
    assert_eq!(bucket(0, of_both - 1).exchanges().len(), 2);
    assert_eq!(bucket(0, of_both / 2 - 1).to_string(), none.to_string());
    // The order of calls is the same, and the bucket is in flight if allowed.
    assert_eq!(between(&bucket(u64::MAX, u64::MAX)).len(), 1);
    assert!(all.arena_bytes() >= none.arena_bytes());
    let text = all.to_string();
    assert_eq!(text.matches("post ").count(), 1, "{text}");
    assert!(text.contains(" by all_reduce over dp with [0, 1]\n"), "{text}");
}

/// Also those that other gradients are computed from: of `x0` for `x1`, of a product for its operands.
#[test]
fn requested_gradients_are_live_at_the_end() {
    let div = "mesh x=2\nx0: f64[4] S(0)\nx1: f64[4] S(0)\ny = div(x0, x1)\n";
    let mm = "mesh x=2\nw: f64[4,4] I\nx: f64[4,4] S(0)\nh = mm(x, w)\na = relu(h)\nl = sum(a)\n";
    let add = "mesh x=2\nx: f64[4] S(0)\nz: f64[4] S(0)\nc: S(0) = x\nd = add(c, z)\nl = sum(d)\n";
    for (text, gradients) in [
        (format!("{div}gradient y wrt x0, x1"), &["dx0", "dx1"][..]),
        (format!("{div}gradient y wrt x1, x0, y as a, b, c"), &["a", "b", "c"]),
        (format!("{div}gradient y wrt x0, x1\nz = sum(dx1)\ngradient z wrt x0 as e"), &["dx0", "e"]),
        (format!("{mm}gradient l wrt w, a, x, h"), &["dw", "da", "dx", "dh"]),
        (format!("{add}gradient l wrt x, c, z, d, l"), &["dx", "dc", "dz", "dd", "dl"]),
        // One that the program's own statement uses last is not.
        (format!("{mm}gradient l wrt w, h\nw' = sgd(w, dw)"), &["dh", "w'"]),
    ] {
        let program = program(&text);
        for schedule in compiled(&program, &CompileOptions::default()) {
            for name in gradients {
                assert!(schedule.local(name).unwrap().is_live_out, "{name} of {text}\n{program}\n{schedule}");
            }
        }
        assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
    }
}

/// By the model, on ranks that compute slowly enough to overlap with communication.
#[test]
fn what_is_hoisted_is_hidden_behind_computing() {
    let program = program(&LAYERS.replace("32]", "512]").replace("[32,", "[512,"));
    let total = |hoist_bytes| {
        let schedules =
            compiled(&program, &CompileOptions { in_flight_bytes: hoist_bytes, ..CompileOptions::default() });
        Timeline::of(&schedules, &ComputeRates::uniform()).unwrap().total_us()
    };
    let (none, all) = (total(0), total(u64::MAX));
    let report = program.report(&ComputeRates::uniform());
    let exchanging = report.traffic.backward.cost_us;
    // All of the first exchange is overlapped, except the part for which the last one waits.
    assert!(all < none - 0.01 * exchanging && all > none - exchanging, "{all} of {none} us, {exchanging} us");
}

#[test]
fn what_cannot_be_compiled_is_refused_in_one_sentence() {
    let of = |text: &str, rank| {
        let error =
            program(text).compile(rank, &CompileOptions::default()).map(|s| s.to_string()).unwrap_err();
        (error.code(), error.to_string())
    };
    let (kind, said) = of(LAYERS, 2);
    assert_eq!((kind, said.as_str()), ("schedule", "rank 2 is outside the mesh `dp=2`, which has 2 ranks"));
    let (kind, said) = of("mesh x=2\na: f32[1073741824,1073741824] R\nb = relu(a)", 0);
    assert_eq!(kind, "schedule");
    assert!(said.contains("take more than 9223372036854775807 bytes"), "{said}");
    // The planner leaves the addition of booleans to the framework.
    let (kind, said) = of("mesh x=2\na: bool[8] P(sum)|-\nb: R|- = a", 0);
    assert_eq!(kind, "schedule");
    assert!(said.starts_with("the redistribution to `b`: "), "{said}");
}
