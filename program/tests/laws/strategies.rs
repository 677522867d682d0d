//! An op with a given strategy runs by it and by no other.

use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Program, ShardingSolver, Statement};

const PLACEMENTS: [&str; 4] = ["R", "S(0)", "S(1)", "P"];

/// Returns the shardings of the inputs and outputs of the op of `y` in a program.
fn runs(program: &Program) -> Vec<String> {
    let of = |item: &Statement| match item {
        Statement::Op { inputs, outputs, .. } => {
            Some(inputs.iter().chain(outputs).map(|v| program.get(*v).ty.value.to_string()).collect())
        }
        Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => None,
    };
    program.statements().iter().find_map(of).unwrap()
}

/// A product over one axis, with every combination of placements.
///
/// Exactly the strategies of a product are accepted, and the given strategy is used whatever it costs.
#[test]
fn what_is_given_runs_and_nothing_else() {
    let products =
        ["R;R->R", "S(0);R->S(0)", "R;S(1)->S(1)", "S(1);S(0)->P", "P;R->P", "R;P->P"].map(str::to_owned);
    let mut taken = 0;
    for a in PLACEMENTS {
        for b in PLACEMENTS {
            for c in PLACEMENTS {
                let text = format!(
                    "mesh x=2\na: f32[8,8] S(0)|-\nb: f32[8,8] R|-\ny = mm(a, b) by {a}; {b} -> {c}\n"
                );
                let graph: Graph = text.parse().unwrap();
                assert_eq!(graph.to_string().parse::<Graph>().as_ref(), Ok(&graph));
                let free: Graph = text.split(" by ").next().unwrap().parse().unwrap();
                match ShardingSolver::new().solve(&graph) {
                    Ok(program) => {
                        assert!(products.contains(&format!("{a};{b}->{c}")), "{text}");
                        assert_eq!(runs(&program).join(";"), [a, b, c].join(";").replace('P', "P(sum)"));
                        let best = ShardingSolver::new().solve(&free).unwrap();
                        let cost = |p: &Program| {
                            let report = p.report(&ComputeRates::uniform());
                            report.traffic.forward.cost_us + report.compute_us.forward
                        };
                        assert!(cost(&best) <= cost(&program) + 1e-9, "{best}\n{program}");
                        taken += 1;
                    }
                    Err(error) => {
                        assert!(!products.contains(&format!("{a};{b}->{c}")), "{text}{error}");
                        assert!(error.to_string().contains("has no strategy"), "{error}");
                    }
                }
            }
        }
    }
    assert_eq!(taken, products.len());
}

/// Gradients follow the values, and explicit redistributions stay.
///
/// A result with another constraint is redistributed to it.
#[test]
fn gradients_follow_what_is_given() {
    let text = "mesh tp=2
x: f32[8,8] R
w: f32[8,8] S(0)
y: S(0) = mm(x, w) by S(1); S(0) -> P
l = sum(y)
gradient l wrt w";
    let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    assert_eq!(runs(&program), ["S(1)", "S(0)", "P(sum)"]);
    let printed = program.to_string();
    assert!(printed.contains("y: S(0) = y.1") || printed.contains("y: S(0) = "), "{printed}");
    let refused = ShardingSolver::new()
        .implicit_redistribution(ImplicitRedistribution::Deny)
        .solve(&text.parse().unwrap())
        .unwrap_err();
    assert_eq!(refused.code(), "needs_redistribute");
}

#[test]
fn strategies_that_cannot_be_are_refused() {
    for (line, says) in [
        ("y = mm(a, a) by R -> R", "has 2 inputs and 1 outputs, but its strategy is for 1 and 1"),
        ("y = mm(a, a) by R; R", "write the shardings of inputs and outputs"),
        ("y = mm(a, a) by R; S(2) -> R", "S(2)"),
        ("y: R = a by R -> R", "a redistribution has no strategy"),
        ("y = mean(a, dims=[0]) by S(1) -> S(0)\ngradient y wrt a", "is decomposed here"),
    ] {
        let text = format!("mesh x=2\na: f32[8,8] R\n{line}\n");
        let error = text.parse::<Graph>().and_then(|graph| ShardingSolver::new().solve(&graph)).unwrap_err();
        assert!(error.to_string().contains(says), "{line}: {error}");
    }
}

/// An error of a missing redistribution suggests lines that replace the statement, until nothing is missing.
#[test]
fn a_suggested_fix_works_to_the_letter() {
    for (text, most) in [
        // An input, a result with another constraint, a name that is taken, one value in two types, and a gradient.
        ("x: f32[64,32] R\nw: f32[32,16] S(0)\ny = mm(x, w)\nz = relu(y)\n", 2),
        ("x: f32[8,16] S(1)\nw: f32[16,32] S(0)\ny: R = mm(x, w)\nz = relu(y)\n", 1),
        ("x: f32[64,32] R\nw: f32[32,16] S(0)\nx.1: R = x\ny = mm(x, w)\n", 1),
        ("x: f32[8,8] S(0)\ny: R = mm(x, x)\n", 1),
        ("x: f32[8,16] I\nw: f32[16,64] S(1)\nh = mm(x, w)\nl = sum(h)\ngradient l wrt x, w\n", 3),
    ] {
        let mut text = format!("mesh tp=4\n{text}");
        let mut fixes = 0;
        let solved = loop {
            let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}{e}"));
            let solver = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
            let said = match solver.solve(&graph) {
                Ok(program) => break program,
                Err(e) => e.to_string(),
            };
            assert!(fixes < most, "{text}{said}");
            fixes += 1;
            let (statement, rest) = said.split_once(": ").unwrap();
            let call = statement.split_once(" = ").unwrap().1;
            let fix = rest.split_once("write ").unwrap().1.split(", or `").next().unwrap();
            let lines: Vec<&str> = fix.split('`').skip(1).step_by(2).collect();
            let end = format!(" = {call}");
            let replaced = text.lines().find(|line| line.ends_with(&end)).unwrap_or_else(|| panic!("{said}"));
            text = text.replacen(replaced, &lines.join("\n"), 1);
        };
        assert!(fixes > 0 && solved.value("x").is_some(), "{text}");
    }
}
