//! The five published mappings: descriptors, bytes and sizes of parts.

use std::collections::BTreeMap;

use reshard_transfer::{Options, Transfer};

use crate::models::{Case, Experts, Model, World, case, deepseek_v3, qwen3_32b, qwen3_235b};

fn world(source: [usize; 4], target: [usize; 2]) -> World {
    let ([source_ranks, source_tp, pp, ep], [target_tp, target_dp]) = (source, target);
    World { source_ranks, source_tp, pp, ep, target_tp, target_dp, target_ep: 1 }
}

/// A row: the model, its worlds, and the descriptors of a target, stacked and with one tensor an expert.
fn rows() -> Vec<(Model, World, usize, usize)> {
    vec![
        (qwen3_235b(), world([64, 2, 4, 16], [8, 8]), 5_361, 36_945),
        (qwen3_235b(), world([16, 4, 2, 8], [8, 2]), 3_105, 36_945),
        (deepseek_v3(), world([128, 1, 8, 16], [8, 16]), 3_577, 45_337),
        (qwen3_32b(), world([32, 4, 4, 1], [4, 8]), 707, 707),
        (qwen3_32b(), world([16, 2, 4, 1], [1, 16]), 1_157, 1_157),
    ]
}

/// Returns what each source rank sends if the owners of each tensor send equally much of it.
pub(crate) fn shares(case: &Case) -> BTreeMap<usize, f64> {
    let mut shares = BTreeMap::new();
    for (wanted, ranks) in &case.wanted {
        for rank in ranks {
            *shares.entry(*rank).or_default() += *wanted as f64 / ranks.len() as f64;
        }
    }
    shares
}

pub(crate) fn check(case: &Case, world: World, descriptors: usize) -> Transfer {
    let plan = Transfer::plan(&case.source, &case.target, &case.mapping, &Options::default()).unwrap();
    let shares = shares(case);
    for of in plan.bytes() {
        if of.rank < world.source_ranks {
            assert_eq!((of.received, of.lacking, of.descriptors), (0, 0, 0));
            let share = shares[&of.rank];
            assert!((of.share as f64 - share).abs() <= 1.0, "{of:?} {share}");
            assert!(of.sent as f64 <= share * 1.02, "{of:?} {share}");
        } else {
            assert_eq!((of.received, of.lacking, of.sent), (case.buffers, case.buffers, 0), "{of:?}");
            assert!(of.descriptors <= descriptors, "{of:?}");
        }
    }
    plan
}

#[test]
fn stacked_experts_need_the_descriptors_of_the_table() {
    for (model, world, descriptors, _) in rows() {
        let case = case(&model, world, Experts::Stacked);
        let plan = check(&case, world, descriptors);
        for rank in plan.ranks() {
            let bytes = plan.part(*rank).to_bytes();
            assert!(bytes.len() < 1_000_000, "rank {rank}: {} bytes", bytes.len());
        }
        let coverage = plan.certificate().unwrap().coverage();
        assert_eq!(coverage.bytes, case.buffers * (world.target_tp * world.target_dp) as u64);
    }
}

#[test]
fn one_tensor_an_expert_needs_a_descriptor_each() {
    for (model, world, _, descriptors) in rows().into_iter().filter(|(model, ..)| model.experts > 0) {
        let case = case(&model, world, Experts::Each);
        let plan = check(&case, world, descriptors);
        for rank in [0, world.source_ranks / 2, world.source_ranks, *plan.ranks().last().unwrap()] {
            let bytes = plan.part(rank).to_bytes();
            assert!(bytes.len() < 1_000_000, "rank {rank}: {} bytes", bytes.len());
        }
    }
}

#[test]
fn experts_that_a_rule_stacks_are_as_many_descriptors() {
    let (model, world, _, descriptors) = rows().remove(1);
    let case = case(&model, world, Experts::StackedByRule);
    let plan = check(&case, world, descriptors);
    // The offset of an expert in its stack is a base, so one template serves all experts of an owner.
    let part = plan.part(world.source_ranks);
    assert!(part.templates() < 100, "{}", part.templates());
    assert!(part.to_bytes().len() < 1_000_000);
}
