//! The parallelizer against all assignments of small programs.

use core::fmt::Write as _;

use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Parallelizer, Program, ShardingSolver};
use reshard_test_support::{Random, Sweep};

/// A random step of a few ops with open parameters, each with a state or none.
fn step(random: &mut Random, mesh: &str) -> String {
    let sides = ["64", "256", "512"];
    let side = *random.pick(&sides);
    let mut text = format!("mesh {mesh}\n");
    let data = if random.below(2) == 0 {
        "?"
    } else if mesh.contains(',') {
        "S(0),R"
    } else {
        "S(0)"
    };
    writeln!(text, "x: f32[{side},{side}] {data}").unwrap();
    let parameters = 1 + random.below(2);
    for i in 0..parameters {
        writeln!(text, "w{i}: f32[{side},{side}] ?").unwrap();
    }
    let mut values = vec!["x".to_owned()];
    let ops = 1 + random.below(3);
    for i in 0..parameters {
        let a = values.last().unwrap().clone();
        writeln!(text, "a{i} = mm({a}, w{i})").unwrap();
        values.push(format!("a{i}"));
    }
    let calls = [
        "relu({a})",
        "mul({a}, {b})",
        "add({a}, {b})",
        "exp({a})",
        "softmax({a}, dim=1)",
        "t({a})",
        "mm({a}, w0)",
    ];
    for i in 0..ops {
        let (a, b) = (values.last().unwrap().clone(), random.pick(&values).clone());
        writeln!(text, "v{i} = {}", random.pick(&calls).replace("{a}", &a).replace("{b}", &b)).unwrap();
        values.push(format!("v{i}"));
    }
    if random.below(3) == 0 {
        // No gradient flows to it.
        writeln!(text, "metric = exp({})", random.pick(&values)).unwrap();
    }
    writeln!(text, "loss = sum({})", values.last().unwrap()).unwrap();
    let names: Vec<String> = (0..parameters).map(|i| format!("w{i}")).collect();
    writeln!(text, "gradient loss wrt {}\nno_grad", names.join(", ")).unwrap();
    let is_stateful = random.below(2) == 0;
    for i in 0..parameters {
        if is_stateful {
            writeln!(text, "m{i}: f32[{side},{side}] ?\nw{i}', m{i}' = sgd_momentum(w{i}, dw{i}, m{i})")
                .unwrap();
        } else {
            writeln!(text, "w{i}' = sgd(w{i}, dw{i})").unwrap();
        }
    }
    text
}

/// All texts in which the open types are given, a state's as its parameter's gradient.
fn typed(text: &str, axes: usize) -> Vec<String> {
    let letters = ["R", "S(0)", "S(1)"];
    let mut shardings = vec![String::new()];
    for _ in 0..axes {
        let longer =
            |s: &String| letters.map(|l| if s.is_empty() { l.to_owned() } else { format!("{s},{l}") });
        shardings = shardings.iter().flat_map(longer).collect();
    }
    let mut all = vec![text.to_owned()];
    let open: Vec<&str> = text.lines().filter(|line| line.ends_with('?')).collect();
    for line in open.iter().filter(|line| !line.starts_with('m')) {
        let name = line.split(':').next().unwrap();
        let state =
            open.iter().find(|state| state.starts_with(&name.replace('w', "m")) && name.starts_with('w'));
        let mut next = Vec::new();
        for text in &all {
            for value in &shardings {
                for gradient in &shardings {
                    // `I` is replicas of both.
                    let pair = |(v, g): (&str, &str)| {
                        if v == g {
                            if v == "R" { "I".into() } else { v.to_owned() }
                        } else {
                            format!("{v}|{g}")
                        }
                    };
                    let is = if name == "x" {
                        if gradient != value {
                            continue;
                        }
                        value.split(',').map(|v| format!("{v}|-")).collect::<Vec<_>>().join(",")
                    } else {
                        value.split(',').zip(gradient.split(',')).map(pair).collect::<Vec<_>>().join(",")
                    };
                    let mut text = text.replace(line, &line.replace('?', &is));
                    if let Some(state) = state {
                        text = text.replace(state, &state.replace('?', gradient));
                    }
                    next.push(text);
                }
            }
        }
        all = next;
    }
    all
}

/// Returns the fastest program of all assignments that fit, with its time.
fn least(text: &str, axes: usize, limit: u64) -> Option<(f64, Program)> {
    let rates = ComputeRates::uniform();
    let mut best: Option<(f64, Program)> = None;
    for text in typed(text, axes) {
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
        let Ok(program) = ShardingSolver::new().solve(&graph) else { continue };
        let Ok(program) = program.rematerialize_to_fit(limit, &rates) else { continue };
        let time = program.report(&rates).total_us();
        if best.as_ref().is_none_or(|(best, _)| time < *best) {
            best = Some((time, program));
        }
    }
    best
}

#[test]
fn no_assignment_is_below_the_bound_and_the_answer_is_the_least_or_near() {
    let (mut cases, mut same, mut limited) = (0, 0, 0);
    let sweep = Sweep::asked();
    let rates = ComputeRates::uniform();
    let count = if sweep.is_exhaustive() { 400 } else { 10 };
    for case in (0..count).filter(|&case| sweep.takes(case)) {
        let mut random = Random(case * 71 + 5);
        let mesh = *random.pick(&["x=2", "x=4"]);
        let text = step(&mut random, mesh);
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
        let free = Parallelizer::new().parallelize(&graph).unwrap_or_else(|e| panic!("{text}{e}"));
        for part in [100, 80, 60, 45] {
            let limit = free.peak_bytes * part / 100;
            let Some((time, program)) = least(&text, 1, limit) else {
                assert!(Parallelizer::new().memory(limit).parallelize(&graph).is_err(), "{text}{limit}");
                continue;
            };
            cases += 1;
            limited += usize::from(part < 100);
            let found = Parallelizer::new().memory(limit).parallelize(&graph);
            let Ok(found) = found else { continue };
            assert!(
                found.bound_us <= time + 2e-3,
                "{text}within {limit}: {time} < {}\n{program}",
                found.bound_us
            );
            assert!(found.peak_bytes <= limit, "{text}");
            assert!(
                found.time_us >= time - 2e-3,
                "{text}within {limit}: found {}, least {time}",
                found.time_us
            );
            same += usize::from(found.time_us <= time + 2e-3);
            // The printed program needs no more redistributions, and takes as long.
            let explicit: Graph = found.program.to_string().parse().unwrap();
            let deny = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
            let report = deny.solve(&explicit).unwrap_or_else(|e| panic!("{explicit}{e}")).report(&rates);
            assert!(
                (report.total_us() - found.time_us).abs() < 1e-6 && report.peak.bytes == found.peak_bytes,
                "{explicit}"
            );
        }
    }
    assert!(same * 10 >= cases * 8 && limited > 0, "{same} of {cases}");
}

#[test]
fn results_that_backward_reads_may_be_recomputed() {
    // The backward of `exp` reads its own result: the bound may not count all of them as held.
    let mut text = "mesh a=2\nx: f32[256,256] S(0)\nw: f32[256,256] ?\nh0 = mm(x, w)\n".to_owned();
    for n in 1..=8 {
        writeln!(text, "h{n} = exp(h{})", n - 1).unwrap();
    }
    text += "loss = sum(h8)\ngradient loss wrt w\nw' = sgd(w, dw)\n";
    let graph: Graph = text.parse().unwrap();
    let free = Parallelizer::new().parallelize(&graph).unwrap();
    let mut tight = 0;
    for sixteenth in 9..16 {
        let limit = free.peak_bytes * sixteenth / 16;
        let found = Parallelizer::new().memory(limit).parallelize(&graph);
        let Ok(found) = found else { continue };
        assert!(found.bound_us <= found.time_us, "{limit} bytes: {} > {}", found.bound_us, found.time_us);
        assert!(found.peak_bytes <= limit);
        tight += 1;
    }
    assert!(tight > 2, "{tight} limits have answers");
}

#[test]
fn a_strided_type_that_is_given_stays() {
    let step = |is: &str| {
        let text = format!(
            "mesh a=2,b=2\nx: f32[64,64] R,R\nw: f32[64,64] ?\nh = mm(x, w)\nu: {is} = exp(h)\nloss = sum(u)\ngradient loss wrt w\n"
        );
        let graph: Graph = text.parse().unwrap();
        Parallelizer::new().parallelize(&graph).unwrap()
    };
    let found = step("SS(1,8),S(0)");
    assert!(found.bound_us <= found.time_us, "{} > {}", found.bound_us, found.time_us);
    let program = found.program.to_string();
    assert!(program.contains("SS(1,8)"), "{program}");
    assert!(!step("S(1),S(0)").program.to_string().contains("SS("));
}
