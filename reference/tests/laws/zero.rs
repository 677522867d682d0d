//! The sharding of a parameter determines the communication of a data parallel step: N bytes on n ranks.

use ndarray::ArrayD;
use reshard_planner::{Objective, Planner};
use reshard_program::{ImplicitRedistribution, ShardingSolver};

use crate::programs::{communicated, inputs, same_as_one_device};

/// Optimizers, and their number of states.
const OPTIMIZERS: &[(&str, usize)] = &[
    ("sgd(lr=0.1", 0),
    ("sgd_momentum(lr=0.1,momentum=0.9", 1),
    ("adam(step=1", 2),
    ("adamw(step=1,weight_decay=0.1", 2),
];

/// A step of a linear layer: the shardings in which its weight is stored, used and updated.
struct Kept {
    mesh: &'static str,
    x: &'static str,
    weight: &'static str,
    taken: &'static str,
    /// The sharding of states, and of the weight during the update.
    state: &'static str,
    /// The weight after the update.
    after: &'static str,
}

impl Kept {
    fn step(&self, optimizer: &str, states: usize) -> String {
        let Kept { mesh, x, weight, taken, state, after } = self;
        let each = |text: &dyn Fn(usize) -> String| (0..states).map(text).collect::<Vec<_>>().concat();
        let named = |suffix: &str| each(&|i| format!(", s{i}{suffix}"));
        let given = each(&|i| format!("p{i}: f32[8,6] {state}\ns{i} = square(p{i})\n"));
        let (op, arguments) = optimizer.split_once('(').unwrap();
        format!(
            "mesh {mesh}
             x: f32[8,6] {x}
             w: f32[8,6] {weight}
             wr: {taken} = w
             y = bk,nk->bn(x, wr)
             z = silu(y)
             gradient z wrt w
             {given}
             ws: {state} = w
             wu{} = {op}(ws, dw{}, {arguments})
             w': {after} = wu",
            named("'"),
            named("")
        )
    }

    /// Returns the communication of each optimizer's step, after checking the sizes of gradient and states.
    fn communicated(&self, most: usize) -> Vec<String> {
        // The time of small tensors depends on their number; this test is about bytes.
        let planner = Planner::new().objective(Objective::Bytes);
        let elaborator =
            ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).planner(planner);
        let mut all = Vec::new();
        for (optimizer, states) in OPTIMIZERS {
            let graph = self.step(optimizer, *states).parse().unwrap();
            let program = elaborator.solve(&graph).unwrap();
            let ranks = same_as_one_device::<f64>(&program, &inputs(&program, 2), 1e-12);
            let held = |name: &str| ranks.shards(name).unwrap().iter().map(ArrayD::len).max();
            assert_eq!(held("dw"), Some(most));
            for i in 0..*states {
                assert_eq!(held(&format!("s{i}'")), Some(most));
            }
            all.push(communicated(&program));
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
        all.swap_remove(0)
    }
}

/// The bytes of the weight, and its elements.
const N: usize = 8 * 6 * 4;
const ELEMENTS: usize = 8 * 6;

#[test]
fn data_parallel_training_all_reduces_the_gradient() {
    let kept = Kept { mesh: "dp=4", x: "S(0)", weight: "I", taken: "R", state: "R", after: "R" };
    assert_eq!(kept.communicated(ELEMENTS), [format!("dw: all_reduce {}", 2 * N * 3 / 4)]);
}

#[test]
fn a_gradient_that_is_cut_is_scattered_and_the_update_gathered() {
    let kept = Kept { mesh: "dp=4", x: "S(0)", weight: "R|S(0)", taken: "R", state: "S(0)", after: "R" };
    let moves = [format!("dw: reduce_scatter {}", N * 3 / 4), format!("w': all_gather {}", N * 3 / 4)];
    assert_eq!(kept.communicated(ELEMENTS / 4), moves);
}

#[test]
fn a_weight_that_is_cut_is_gathered_and_its_gradient_scattered() {
    let kept = Kept { mesh: "dp=4", x: "S(0)", weight: "S(0)", taken: "R", state: "S(0)", after: "S(0)" };
    let moves = [format!("wr: all_gather {}", N * 3 / 4), format!("dw: reduce_scatter {}", N * 3 / 4)];
    assert_eq!(kept.communicated(ELEMENTS / 4), moves);
}

#[test]
fn a_weight_that_is_cut_within_groups_is_all_reduced_between_them() {
    let kept = Kept {
        mesh: "rep=2,shard=2",
        x: "S(0),S(0)",
        weight: "I,S(0)",
        taken: "R,R",
        state: "R,S(0)",
        after: "R,S(0)",
    };
    // Inside, N/2 bytes are missing; of the scattered result, 2 (N/2) / 2 are reduced outside. Scattering
    // over all ranks and then gathering outside costs as much: 3N/4 and N/4.
    let (inside, outside) = (N / 2, N / 2);
    let moves =
        [format!("wr: all_gather {inside}"), format!("dw: reduce_scatter+all_gather {}", inside + outside)];
    assert_eq!(kept.communicated(ELEMENTS / 2), moves);
}
