//! Types along axes of one rank stay as they were written, and are checked like others.

use core::fmt::Write as _;

use reshard_kernels::DType;
use reshard_program::{ComputeRates, Error, Graph, ImplicitRedistribution, Pass, Program, ShardingSolver};
use reshard_sharding::{Mesh, Placement, ShardingType};
use reshard_test_support::{Random, Sweep};

/// Solves a text without implicit redistributions.
fn explicit(text: &str) -> Result<Program, Error> {
    ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&text.parse()?)
}

/// The lines of a program on these two axes.
fn on([a, b]: [usize; 2], lines: &str) -> String {
    format!("mesh a={a},b={b}\n{lines}")
}

/// Returns the printed statements, or the kind of the error.
fn outcome(text: &str) -> Result<String, &'static str> {
    let program = explicit(text).map_err(|e| e.code())?;
    let printed = program.to_string();
    let again = explicit(&printed).unwrap_or_else(|e| panic!("{text}\n{printed}\n{e}"));
    assert_eq!(again.to_string(), printed, "{text}");
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    assert_eq!(graph.to_string().parse::<Graph>().as_ref(), Ok(&graph), "{text}");
    Ok(printed.split_once('\n').map_or_else(String::new, |(_, lines)| lines.to_owned()))
}

#[test]
fn a_type_comes_back_as_it_was_written() {
    let text = "mesh dp=1\nx: f32[8,4] S(0)\nw: f32[4,4] R\ny = matmul(x, w)\n";
    let program = explicit(text).unwrap();
    assert_eq!(program.to_string(), text.replace("y = ", "y: S(0) = "));
    let types: Vec<String> =
        program.report(&ComputeRates::uniform()).values.iter().map(|v| v.text.clone()).collect();
    assert_eq!(types, ["S(0)", "R", "S(0)"]);
    // The sharding itself is that of one rank: nothing is split.
    assert!(program.values().iter().all(|v| v.ty.value.to_string() == "R"));
    // By tensor, and with an axis that splits the same dim.
    let text = "mesh tp=2,dp=1\nx: f32[8,4] [{tp,dp},{}]\ny = relu(x)\n";
    assert!(explicit(text).unwrap().to_string().ends_with("x: f32[8,4] S(0),S(0)\ny: S(0),S(0) = relu(x)\n"));
}

#[test]
fn what_is_wrong_for_two_ranks_is_rejected_for_one() {
    let wrong = [
        ("x: f32[8,4] P\ny: f32[8,4] R\nz = add(x, y)", "needs_redistribute"),
        ("x: f32[8,4] S(0)\ny: f32[8,4] R\nz = add(x, y)", "needs_redistribute"),
        ("x: f32[8,4] S(0)\ns: R = sum(x, dims=[0])", "needs_redistribute"),
        ("x: f32[8,4] S(0)\ns = sum(x, dims=[0])\ny = relu(s)", "needs_redistribute"),
        ("x: f32[8,4] I\ny: f32[8,4] R\nz = mul(x, y)", "needs_gradient_redistribute"),
        ("x: f32[8,4] S(0)|-\nw: f32[4,4] R|-\ny = mm(x, w) by S(0); R -> S(1)", "program"),
        ("x: f32[8,4] P(max)", "no_gradient"),
    ];
    for (lines, code) in wrong {
        for ranks in [1, 2] {
            let error = explicit(&format!("mesh dp={ranks}\n{lines}\n")).unwrap_err();
            assert_eq!(error.code(), code, "{lines}\n{error}");
            assert_eq!(
                matches!(error, Error::OneRank { .. }),
                ranks == 1 && code != "no_gradient",
                "{error}"
            );
        }
    }
    // Gradients, with the redistribution that data parallelism needs and without it.
    let step =
        "x: f32[8,4] S(0)|-\nw: f32[4,4] I\ng: R = w\ny = mm(x, g)\nloss = sum(y)\ngradient loss wrt w\n";
    for ranks in [1, 2] {
        let program = explicit(&format!("mesh dp={ranks}\n{step}")).unwrap();
        let letter = |name: &str| {
            let report = program.report(&ComputeRates::uniform());
            report.values.iter().find(|v| v.name == name).unwrap().text.clone()
        };
        assert_eq!(["g", "y", "loss", "dw"].map(letter), ["R", "S(0)", "P(sum)", "R|-"]);
        let error =
            explicit(&format!("mesh dp={ranks}\n{}", step.replace("g: R = w\n", "").replace("x, g", "x, w")));
        assert_eq!(error.unwrap_err().code(), "needs_gradient_redistribute");
    }
}

/// A graph is built of types as it is of texts.
#[test]
fn types_are_kept_as_texts_are() {
    let build = |ranks: usize, weight: Placement| -> Result<Graph, Error> {
        let mesh = Mesh::new([("dp", ranks)])?;
        let mut graph = Graph::new(&mesh);
        let placed = |shape: &[usize], is: Placement| ShardingType::from_placements(&mesh, shape, &[is]);
        let x = graph.input_with_type("x", DType::F32, placed(&[8, 4], Placement::Shard(0))?)?;
        let w = graph.input_with_type("w", DType::F32, placed(&[4, 4], weight)?)?;
        let y = graph.apply(&"mm".parse()?, &[x, w], &["y"])?[0];
        graph.constrain(y, ShardingType::parse(&mesh, &[8, 4], "S(0)")?)?;
        graph.redistribute(y, "z", ShardingType::parse(&mesh, &[8, 4], "[{},{dp}]")?)?;
        Ok(graph)
    };
    let solver = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
    for ranks in [1, 2] {
        let graph = build(ranks, Placement::Replicate).unwrap();
        let text =
            format!("mesh dp={ranks}\nx: f32[8,4] S(0)\nw: f32[4,4] R\ny: S(0) = mm(x, w)\nz: S(1) = y\n");
        assert_eq!(text.parse::<Graph>().as_ref(), Ok(&graph));
        assert_eq!((graph.to_string(), solver.solve(&graph).unwrap().to_string()), (text.clone(), text));
        let wrong = solver.solve(&build(ranks, Placement::Shard(0)).unwrap()).unwrap_err();
        assert_eq!(wrong.code(), "needs_redistribute");
        assert_eq!(matches!(wrong, Error::OneRank { .. }), ranks == 1, "{wrong}");
    }
}

/// Shapes in a region have the size of its axis: its text is read for two ranks too.
#[test]
fn a_text_with_a_region_is_checked_for_two_ranks() {
    let text = |ranks: usize, more: &str| -> Graph {
        let region = "local dp\n  in x: S(0)\n  s = sum(x, dims=[0])\n  out y: P = s\nend\n";
        format!("mesh dp={ranks}\nx: f32[8,4] S(0)\n{region}{more}").parse().unwrap()
    };
    let solver = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
    for ranks in [1, 2] {
        solver.solve(&text(ranks, "z: R = y\nu = relu(z)\n")).unwrap();
        let wrong = text(ranks, "u = relu(y)\n");
        let error = solver.solve(&wrong).unwrap_err();
        assert_eq!(
            (error.code(), matches!(error, Error::OneRank { .. })),
            ("needs_redistribute", ranks == 1)
        );
        assert_eq!(ShardingSolver::new().solve(&wrong).map(|_| ()), Ok(()));
    }
    // A graph that has changed is not what its text gives.
    let mut changed = text(1, "u = relu(y)\n");
    let y = changed.value("y").unwrap();
    changed.apply(&"neg".parse().unwrap(), &[y], &["v"]).unwrap();
    solver.solve(&changed).unwrap();
}

const WORDS: [&str; 6] = ["R", "I", "S(0)", "S(1)", "P", "R|S(0)"];

fn drawn(random: &mut Random) -> String {
    format!("{},{}", random.pick(&WORDS), random.pick(&WORDS))
}

/// Returns a statement on some of the values of a program.
fn statement(random: &mut Random, number: usize) -> String {
    let mut value = || format!("v{}", random.below(number));
    let (a, b) = (value(), value());
    let calls = [
        format!("add({a}, {b})"),
        format!("mul({a}, {b})"),
        format!("mm({a}, {b})"),
        format!("relu({a})"),
        format!("neg({a})"),
        format!("softmax({a}, dim=1)"),
        format!("transpose({a}, dim0=0, dim1=1)"),
    ];
    let is = drawn(random);
    match random.below(6) {
        0 => format!("v{number}: {is} = {a}"),
        1 => format!("v{number}: {},_ = {a}", random.pick(&WORDS[..5])),
        2 => format!("v{number}: _,{} = {a}", random.pick(&WORDS[..5])),
        3 => format!("v{number}: {is} = {}", random.pick(&calls)),
        _ => format!("v{number} = {}", random.pick(&calls)),
    }
}

/// Random programs on two axes: one rank along either is typed as two ranks are.
#[test]
fn one_rank_is_typed_as_two() {
    let (mut accepted, mut rejected, mut trained) = (0, 0, 0);
    for case in 0..Sweep::asked().count(40, 400) {
        let mut random = Random(case * 23 + 11);
        let mut lines = String::new();
        for v in 0..3 {
            writeln!(lines, "v{v}: f32[16,16] {}", drawn(&mut random)).unwrap();
        }
        let (mut number, wrong) = (3, random.below(2) == 0);
        for _ in 0..24 {
            let line = statement(&mut random, number);
            let more = format!("{lines}{line}\n");
            match outcome(&on([2, 2], &more)) {
                // Chunks that one axis leaves to another are of sizes: `SS(1,2)` for two ranks is `S(1)` for one.
                Ok(printed) if printed.contains("SS(") => {}
                Ok(_) => (lines, number) = (more, number + 1),
                Err(_) if wrong && number > 6 => {
                    lines = more;
                    break;
                }
                Err(_) => {}
            }
        }
        let trains = format!("{lines}loss = sum(v{})\ngradient loss wrt v0\n", number - 1);
        let is_right = outcome(&on([2, 2], &trains)).is_ok_and(|printed| !printed.contains("SS("));
        let lines = if is_right { trains } else { lines };
        let expected = outcome(&on([2, 2], &lines));
        match &expected {
            Ok(_) => accepted += 1,
            Err(_) => rejected += 1,
        }
        trained += usize::from(expected.is_ok() && lines.contains("gradient"));
        for sizes in [[1, 2], [2, 1], [1, 1]] {
            let text = on(sizes, &lines);
            assert_eq!(outcome(&text), expected, "{text}");
            let Ok(program) = explicit(&text) else { continue };
            let report = program.report(&ComputeRates::uniform());
            for (name, size) in ["a", "b"].into_iter().zip(sizes) {
                assert!(size > 1 || !report.by_axes.keys().any(|over| over.axes().any(|axis| axis == name)));
            }
            if sizes == [1, 1] {
                assert!(program.redistributions().all(|moved| moved.forward.steps().is_empty()));
                assert!(Pass::ALL.iter().all(|&pass| report.traffic.of(pass).cost_us <= 0.0));
            }
        }
    }
    assert!(
        accepted > 10 && rejected > 5 && trained > 2,
        "{accepted} accepted, {rejected} rejected, {trained} trained"
    );
}

/// Programs whose backward, or whose forward with local redistributions, has other values with two ranks.
#[test]
fn what_follows_a_difference_is_checked_too() {
    let loss = "x: f32[8,4] S(0)|-\nw: f32[4,4] R\ni: i64[8] S(0)|-\nh = mm(x, w)\nloss = cross_entropy(h, i)
gradient loss wrt w\nw' = sgd(w, dw)\n";
    let unused = "x0: f32[8,8] R\nx2: f32[8,8] S(1)\nloss = sum(x2)\ngradient loss\nx0' = sgd(x0, dx0)\n";
    let local = "x0: f32[8,8] R\nv0 = neg(x0)\nloss = sum(v0)\ngradient loss\nx0' = sgd(x0, dx0)\n";
    let cases = [
        (loss, ImplicitRedistribution::Deny),
        (unused, ImplicitRedistribution::Deny),
        (local, ImplicitRedistribution::LocalOnly),
    ];
    for (text, moves) in cases {
        for size in [2, 1] {
            let text = format!("mesh dp={size}\n{text}");
            let solver = ShardingSolver::new().implicit_redistribution(moves);
            let refused = solver.solve(&text.parse().unwrap()).map(|program| program.to_string());
            assert!(refused.is_err(), "{text}{refused:?}");
        }
    }
}
