//! An op whose strategy is given runs by it, and no other is taken for it.

use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Program, ShardingSolver, Statement};

const PLACEMENTS: [&str; 4] = ["R", "S(0)", "S(1)", "P"];

/// What the op of `y` takes and makes in a program.
fn runs(program: &Program) -> Vec<String> {
    let of = |item: &Statement| match item {
        Statement::Op { inputs, outputs, .. } => {
            Some(inputs.iter().chain(outputs).map(|v| program.get(*v).ty.value.to_string()).collect())
        }
        Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => None,
    };
    program.statements().iter().find_map(of).unwrap()
}

/// A product over one axis, by every combination of placements: exactly those that are strategies of a product are taken, and then what
/// runs is what was said, whatever it costs.
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

/// Gradients follow the values, what is written stays explicit, and a result that is pinned otherwise is moved there.
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
        ("y = mm(a, a) by R -> R", "takes 2 values and makes 1, and its strategy says 1 and 1"),
        ("y = mm(a, a) by R; R", "a strategy says what an op takes and makes"),
        ("y = mm(a, a) by R; S(2) -> R", "S(2)"),
        ("y: R = a by R -> R", "a move has no strategy"),
        ("y = mean(a, dims=[0]) by S(1) -> S(0)\ngradient y wrt a", "computed in parts"),
    ] {
        let text = format!("mesh x=2\na: f32[8,8] R\n{line}\n");
        let error = text.parse::<Graph>().and_then(|graph| ShardingSolver::new().solve(&graph)).unwrap_err();
        assert!(error.to_string().contains(says), "{line}: {error}");
    }
}
