//! Losses over sharded classes: a few numbers a row are reduced, and no row is gathered.

use reshard_planner::Planner;
use reshard_program::{Graph, Program, ShardingSolver, Statement};
use reshard_reference::Values;

use crate::programs::{inputs, same_as_one_device};

/// The program of a loss over sharded classes, on a network where bytes cost and launches do not.
fn program(shape: [usize; 2], loss: &str, is: &str) -> Program {
    let [rows, classes] = shape;
    let text = format!(
        "mesh tp=4
         x: f32[{rows},{classes}] S(1)
         t: i64[{rows}] I
         y = {loss}
         loss{is} = sum(y)
         gradient loss wrt x"
    );
    let network = Planner::new().topology("launch=0;message=0;level=*:0:1".parse().unwrap());
    ShardingSolver::new().planner(network).solve(&text.parse::<Graph>().unwrap()).unwrap()
}

/// The bytes that the worst rank receives, forward and backward.
fn received(program: &Program) -> u64 {
    program.redistributions().map(|m| m.forward.received_bytes()).sum()
}

const LOSSES: [&str; 7] = [
    "cross_entropy(x, t)",
    "cross_entropy(x, t, reduction=sum)",
    "cross_entropy(x, t, reduction=none)",
    "cross_entropy(x, t, reduction=sum, ignore_index=2)",
    "log_softmax(x, dim=1)",
    "logsumexp(x, dims=[1])",
    "logsumexp(x, dims=[1], keepdim=true)",
];

/// Random numbers, and classes.
fn given(program: &Program, classes: usize, seed: u64) -> Values<f64> {
    let mut given = inputs::<f64>(program, seed);
    if let Some(t) = given.get_mut("t") {
        let mut class = seed as usize;
        t.iter_mut().for_each(|t| {
            class = (class * 7 + 3) % classes;
            *t = class as f64;
        });
    }
    given
}

#[test]
fn cut_classes_reduce_numbers_and_gather_no_row() {
    for (number, loss) in LOSSES.into_iter().enumerate() {
        // Seven classes a rank, and uneven ones.
        for classes in [28, 26] {
            let program = program([12, classes], loss, ": I");
            same_as_one_device::<f64>(&program, &given(&program, classes, number as u64), 1e-12);
            let row = received(&program) as f64 / 12.0;
            // The greatest, the sum, the target's logit and one number backward: 6 bytes each where 4 ranks
            // reduce 4.
            assert!(row <= 25.0, "{loss} receives {row} bytes a row\n{program}");
        }
    }
}

#[test]
fn a_vocabulary_over_four_ranks_receives_24_kilobytes() {
    for reduction in ["mean", "sum"] {
        let text = format!(
            "mesh tp=4
             x: f32[1024,50304] S(1)
             t: i64[1024] I
             loss: I = cross_entropy(x, t, reduction={reduction})
             gradient loss wrt x"
        );
        let program = ShardingSolver::new().solve(&text.parse::<Graph>().unwrap()).unwrap();
        assert!(received(&program) <= 24 * 1024, "{} bytes\n{program}", received(&program));
        // If rows are short compared with a launch, they are gathered.
        let text = text.replace("[1024,50304]", "[2,8]").replace("[1024]", "[2]");
        let program = ShardingSolver::new().solve(&text.parse::<Graph>().unwrap()).unwrap();
        let maxima = |item: &Statement| matches!(item, Statement::Op { call, .. } if call.to_string().starts_with("amax"));
        assert!(!program.statements().iter().any(maxima), "{program}");
    }
}
