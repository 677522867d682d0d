//! The gradient of a gradient, against differences of the first, on one device and on ranks.

use reshard_program::{Graph, Program, ShardingSolver};
use reshard_reference::{Values, on_one_device};
use reshard_test_support::Sweep;

use crate::programs::{inputs, same_as_one_device};

/// Statements from `x: f64[4,6]` and `w` to `y`.
const PROGRAMS: &[(&str, &str)] = &[
    ("6,5", "h = mm(x, w)\ny = silu(h)"),
    ("6,5", "h = mk,kn->mn(x, w)\ng = gelu(h)\ny = mul(g, g)"),
    ("6", "n = layer_norm(x, eps=0.1)\ny = mul(n, w)"),
    ("6", "h = mul(x, w)\ny = softmax(h, dim=1)"),
    ("5,6", "h = linear(x, w)\nt = tanh(h)\ny = logsumexp(t, dims=[1])"),
    ("4,6", "c = cat(x, w, dim=0)\ns = square(c)\ny = cumsum(s, dim=0)"),
    ("6", "h = add(x, w)\nv = view(h, shape=[2,12])\ny = exp(v)"),
    ("6", "n = rms_norm(x, w, eps=0.1)\nt = transpose(n, dim0=0, dim1=1)\ny = sigmoid(t)"),
    ("2,3,3", "c = view(x, shape=[1,3,8])\nh = conv1d(c, w)\ny = softplus(h)"),
    ("6", "h = mul(x, w)\nm = mean(h, dims=[0])\nq = square(m)\np = add_scalar(q, value=0.5)\ny = log(p)"),
];

/// Types of x, as its shape is the same in all, and of w along both axes.
const TYPES: &[(&str, &str)] =
    &[("S(0),R", "R,S(0)"), ("S(0),S(1)", "I,I"), ("P,S(0)", "S(0),R"), ("R|S(0),RG(1,[4,2])", "I,R")];

fn program(w: &str, body: &str, types: (&str, &str)) -> Program {
    let text = format!(
        "mesh dp=2,tp=2
         x: f64[4,6] {}
         w: f64[{w}] {}
         {body}
         gradient y wrt x
         q2 = mul(dx, dx)
         loss = sum(q2)
         gradient loss wrt w",
        types.0, types.1
    );
    let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    ShardingSolver::new().beam_width(8).solve(&graph).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

#[test]
fn a_gradient_of_a_gradient_is_what_differences_say() {
    let mut case = 0;
    for (number, (w, body)) in PROGRAMS.iter().enumerate() {
        for types in TYPES {
            case += 1;
            if !Sweep::asked().takes_one_in(8, case) {
                continue;
            }
            let program = program(w, body, *types);
            let text = program.to_string();
            assert_eq!(text.parse::<Program>().unwrap_or_else(|e| panic!("{text}\n{e}")).to_string(), text);
            let at: Values<f64> = inputs(&program, number as u64);
            let _ = same_as_one_device(&program, &at, 1e-12);
            let whole = on_one_device(&program, &at).unwrap();
            let loss = |e: usize, by: f64| {
                let mut at = at.clone();
                at.get_mut("w").unwrap().as_slice_mut().unwrap()[e] += by;
                on_one_device(&program, &at).unwrap()["loss"].sum()
            };
            let step = 1e-5;
            for (e, &found) in whole["dw"].iter().enumerate() {
                let difference = (loss(e, step) - loss(e, -step)) / (2.0 * step);
                assert!(
                    (found - difference).abs() <= 1e-6 * (1.0 + difference.abs()),
                    "{text}\nelement {e} of dw is {found}, and by differences {difference}"
                );
            }
        }
    }
}
