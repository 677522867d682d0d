//! Propagation: facts, and equality with full enumeration.

use reshard_kernels::DType;
use reshard_ops::Error;
use reshard_ops::propagate::{OpSharding, Operand, OutputConstraint, Propagator};
use reshard_ops::rules::{Op, Rule};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;

use crate::enumeration::placements;

pub(crate) fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

pub(crate) fn operand(mesh: &Mesh, shape: &[usize], text: &str) -> Operand {
    Operand::new(DType::F32, Sharding::parse(mesh, shape, text).unwrap())
}

pub(crate) fn op(name: &str, rule: &str, shapes: &[&[usize]]) -> Op {
    Op::new(name, &rule.parse::<Rule>().unwrap(), shapes).unwrap()
}

fn choose(mesh: &Mesh, rule: &str, inputs: &[(&[usize], &str)]) -> Result<OpSharding, Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|i| i.0).collect();
    let operands: Vec<Operand> = inputs.iter().map(|(s, p)| operand(mesh, s, p)).collect();
    Propagator::new().propagate(&op("op", rule, &shapes), mesh, &operands, &[])
}

pub(crate) const ADD: &str = "...,...->... {linear, increasing}";

#[test]
fn what_is_free_stays_free() {
    let m = mesh("x=2,y=2");
    let c = choose(&m, "mk,kn->mn", &[(&[8, 8], "S(0),R"), (&[8, 8], "R,S(1)")]).unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "S(0),S(1)".to_owned()));
    assert!(c.plans.iter().all(Option::is_none));
    let m = mesh("x=2,y=2,z=2");
    let c = choose(&m, ADD, &[(&[8, 8], "R,R,S(1)"), (&[8, 8], "S(0),R,R")]).unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "S(0),R,S(1)".to_owned()));
}

#[test]
fn the_smaller_move_wins() {
    let m = mesh("x=2,y=2,z=2");
    let shapes: [&[usize]; 2] = [&[8, 1 << 20], &[8, 1 << 20]];
    let operands = [operand(&m, shapes[0], "R,R,S(1)"), operand(&m, shapes[1], "S(1),S(1),S(1)")];
    let cat = Op::with_outputs("cat", &"*j,*j->*j {selecting}".parse().unwrap(), &shapes, &[&[16, 1 << 20]])
        .unwrap();
    let c = Propagator::new().propagate(&cat, &m, &operands, &[]).unwrap();
    assert_eq!(c.outputs[0].to_string(), "S(1),S(1),S(1)");
    assert!(c.plans[0].is_some() && c.plans[1].is_none());
}

#[test]
fn plain_and_strided_do_not_contract() {
    let m = mesh("x=2,y=2");
    let c = choose(&m, "mk,kn->mn", &[(&[4, 4], "S(1),S(1)"), (&[4, 4], "SS(0,2),S(0)")]).unwrap();
    assert!(c.cost_us > 0.0 && c.plans.iter().any(Option::is_some), "{c:?}");
}

#[test]
fn constraints_are_paid_for() {
    let m = mesh("x=2,y=2");
    let mm = op("mm", "mk,kn->mn", &[&[64, 64], &[64, 64]]);
    let inputs = [operand(&m, &[64, 64], "S(1),R"), operand(&m, &[64, 64], "S(0),R")];
    let to = Sharding::parse(&m, &[64, 64], "R,R").unwrap();
    let p = Propagator::new();
    let free = p.propagate(&mm, &m, &inputs, &[]).unwrap();
    assert_eq!((free.cost_us, free.outputs[0].to_string()), (0.0, "P(sum),R".to_owned()));
    let c = p.propagate(&mm, &m, &inputs, &[OutputConstraint::Exactly(to.clone())]).unwrap();
    assert_eq!(c.outputs[0], to);
    assert!(c.cost_us > 0.0);
    let c = p
        .propagate(&mm, &m, &inputs, &[OutputConstraint::Prefer { sharding: to, penalty_us: 1e-3 }])
        .unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (1e-3, "P(sum),R".to_owned()));
}

#[test]
fn terms_of_a_large_product_are_counted_where_that_is_asked_for() {
    let m = mesh("x=4");
    let mm = op("mm", "mk,kn->mn", &[&[4096, 64], &[64, 4096]]);
    let inputs = [operand(&m, &[4096, 64], "S(1)"), operand(&m, &[64, 4096], "S(0)")];
    let p = Propagator::new();
    let now = p.propagate(&mm, &m, &inputs, &[]).unwrap();
    assert_eq!((now.cost_us, now.outputs[0].to_string()), (0.0, "P(sum)".to_owned()));
    let c = p.propagate(&mm, &m, &inputs, &[OutputConstraint::Reduced]).unwrap();
    assert!(!c.outputs[0].is_partial());
    // Reducing 64 MiB of partial values costs more than redistributing a mebibyte.
    let terms = Sharding::parse(&m, &[4096, 4096], "P").unwrap();
    let whole = Sharding::replicated(&m, &[4096, 4096]).unwrap();
    assert!(c.cost_us < p.planner().cost_us(&terms, &whole, DType::F32).unwrap() / 10.0, "{}", c.cost_us);
}

#[test]
fn sub_axes_are_slots_of_their_own() {
    let m = mesh("dp=2,tp=8");
    // Two of eight ranks share rows, four share columns: a contraction over the four leaves partial values
    // over them.
    let c = choose(&m, "mk,kn->mn", &[(&[64, 64], "[{tp:(1)2},{tp:(2)4}]"), (&[64, 64], "[{tp:(2)4},{}]")])
        .unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "[{tp:(1)2},{}] unreduced={tp:(2)4}".to_owned()));
    assert!(c.plans.iter().all(Option::is_none));
    // Another order of axes is a kind of shard, and kinds pass.
    let c = choose(&m, ADD, &[(&[64, 64], "[{tp,dp},{}]"), (&[64, 64], "[{tp,dp},{}]")]).unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "SS(0,8),S(0)".to_owned()));
    // Splits of an axis at 2 and at 3 have no common refinement: something is redistributed.
    let m = mesh("x=6");
    let c = choose(&m, ADD, &[(&[36], "[{x:(1)2}]"), (&[36], "[{x:(1)3}]")]).unwrap();
    assert!(c.plans.iter().any(Option::is_some));
}

#[test]
fn views_take_all_axes_at_once() {
    let m = mesh("dp=2,tp=4");
    let ask = |from: &[usize], to: &[usize], text: &str| {
        let view = Op::view(from, to).unwrap();
        Propagator::new().propagate(&view, &m, &[operand(&m, from, text)], &[]).unwrap()
    };
    let c = ask(&[4, 16, 8], &[64, 8], "S(0),S(1)");
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "S(0),SS(0,2)".to_owned()));
    let c = ask(&[64, 8], &[4, 16, 8], "P,S(0)");
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "P(sum),S(0)".to_owned()));
    // Three heads do not fit four ranks: an input is redistributed, and the output is a view of it.
    let c = ask(&[64, 12], &[64, 3, 4], "S(0),S(1)");
    assert!(c.cost_us > 0.0);
    assert_eq!(c.inputs[0].view(&[64, 3, 4]).unwrap(), c.outputs[0]);
    assert!(Op::view(&[4, 4], &[3, 5]).is_err());
}

#[test]
fn a_view_that_is_not_free_costs_no_more_than_its_advice() {
    let m = mesh("x=2,y=3");
    let mut random = Random(3);
    let mut moved = 0;
    let shapes: [(&[usize], &[usize]); 4] =
        [(&[12, 6], &[6, 12]), (&[36, 4], &[9, 16]), (&[5, 6], &[30]), (&[24], &[2, 3, 4])];
    for _ in 0..60 {
        for (from, to) in shapes {
            let text = placements(&mut random, from, 2, &["P", "R"]);
            let x = operand(&m, from, &text);
            let c = Propagator::new()
                .propagate(&Op::view(from, to).unwrap(), &m, core::slice::from_ref(&x), &[])
                .unwrap();
            match x.sharding.view(to) {
                Ok(free) => assert_eq!((c.cost_us, &c.outputs[0]), (0.0, &free), "{x}"),
                Err(reshard_sharding::Error::NeedsRedistribution { first, .. }) => {
                    moved += 1;
                    assert_eq!(c.inputs[0].view(to).as_ref(), Ok(&c.outputs[0]), "{x}");
                    let planner = reshard_planner::Planner::new();
                    let first = Sharding::parse(&m, from, &first).unwrap();
                    let advised = planner.plan(&x.sharding, &first, DType::F32).unwrap().cost_us();
                    assert!(
                        c.cost_us <= advised + 1e-6,
                        "{x} as {to:?}: {} and {first} costs {advised}",
                        c.cost_us
                    );
                }
                Err(e) => panic!("{x}: {e}"),
            }
        }
    }
    assert!(moved > 20, "{moved}");
}

#[test]
fn explicit_mode_moves_nothing_and_says_what_would_help() {
    let m = mesh("dp=2,tp=4");
    let mm = op("mm", "mk,kn->mn", &[&[64, 32], &[32, 16]]);
    let p = Propagator::new();
    let inputs = [operand(&m, &[64, 32], "S(0),S(1)"), operand(&m, &[32, 16], "R,S(0)")];
    let c = p.explicit(&mm, &m, &inputs).unwrap();
    assert_eq!(c.outputs[0].to_string(), "S(0),P(sum)");
    // Plain against strided.
    let inputs = [operand(&m, &[64, 32], "S(0),S(1)"), operand(&m, &[32, 16], "R,SS(0,2)")];
    let e = p.explicit(&mm, &m, &inputs).unwrap_err();
    assert_eq!(e.code(), "needs_redistribute");
    let text = e.to_string();
    assert!(
        text.contains("along tp the inputs are S(1),SS(0,2), and no strategy accepts these; redistribute"),
        "{text}"
    );
    // A slice is free, but no strategy takes the inputs as they are.
    let add = op("add", ADD, &[&[64, 32], &[64, 32]]);
    let e =
        p.explicit(&add, &m, &[operand(&m, &[64, 32], "R,R"), operand(&m, &[64, 32], "R,S(0)")]).unwrap_err();
    assert!(e.to_string().contains("redistribute input 0 to [R,S(0)] (0.0 us, 0 bytes)"), "{e}");
}

#[test]
fn advice_is_in_order_of_cost_and_typechecks() {
    let m = mesh("dp=2,tp=4");
    let mm = op("mm", "mk,kn->mn", &[&[1024, 1024], &[1024, 1024]]);
    let p = Propagator::new();
    let inputs = [operand(&m, &[1024, 1024], "S(0),S(0)"), operand(&m, &[1024, 1024], "S(1),S(0)")];
    let all = p.cheapest(&mm, &m, &inputs, &[], 8).unwrap();
    assert_eq!(all.len(), 8);
    assert!(all.windows(2).all(|w| w[0].cost_us <= w[1].cost_us));
    for choice in &all {
        let as_chosen: Vec<Operand> =
            choice.inputs.iter().map(|s| Operand::new(DType::F32, s.clone())).collect();
        assert_eq!(p.explicit(&mm, &m, &as_chosen).unwrap().inputs, choice.inputs);
        let cost: f64 = choice.redistributions().map(|(_, plan)| plan.cost_us()).sum();
        assert!((cost - choice.cost_us).abs() < 1e-5);
    }
    assert_eq!(p.propagate(&mm, &m, &inputs, &[]).unwrap().inputs, all[0].inputs);
}

#[test]
fn a_thousand_inputs_are_a_few_that_are_alike() {
    let m = mesh("x=2,y=2");
    let shapes: Vec<&[usize]> = vec![&[8, 8]; 1000];
    let rule = format!("{}->*j {{selecting}}", vec!["*j"; 1000].join(","));
    let cat = Op::with_outputs("cat", &rule.parse().unwrap(), &shapes, &[&[8000, 8]]).unwrap();
    let inputs: Vec<Operand> =
        (0..1000).map(|i| operand(&m, &[8, 8], ["S(1),R", "R,S(1)", "S(0),R"][i % 3])).collect();
    let c = Propagator::new().propagate(&cat, &m, &inputs, &[]).unwrap();
    assert_eq!(c.inputs.len(), 1000);
    assert!(c.inputs.iter().all(|s| *s == c.inputs[0]));
}

/// A rank has its heads of queries, keys and values if one product makes all three.
#[test]
fn a_chunk_of_blocks_that_are_sharded_alike_is_free() {
    let m = mesh("dp=2,tp=4");
    let table = reshard_ops::rules::OpTable::standard();
    let free = |call: &str, inputs: &[(&[usize], &str)], outputs: &str| {
        let shapes: Vec<&[usize]> = inputs.iter().map(|i| i.0).collect();
        let op = table.op(&call.parse().unwrap(), &shapes).unwrap();
        let operands: Vec<Operand> = inputs.iter().map(|(s, p)| operand(&m, s, p)).collect();
        let c = Propagator::new().explicit(&op, &m, &operands).unwrap();
        assert_eq!(
            c.outputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            outputs,
            "{call}"
        );
    };
    free("chunk(chunks=6,dim=1)", &[(&[16, 48], "S(0),SS(1,6)")], &["S(0),S(1)"; 6].join(" "));
    free("chunk(chunks=3,dim=-1)", &[(&[2, 4, 12], "S(0),SS(2,3)")], &["S(0),S(2)"; 3].join(" "));
    // Both axes split every chunk.
    free("chunk(chunks=2,dim=0)", &[(&[16], "SS(0,2),SS(0,2)")], "S(0),S(0) S(0),S(0)");
    free("split(size=8,dim=1)", &[(&[16, 24], "R,SS(1,3)")], "R,S(1) R,S(1) R,S(1)");
    // Four heads of queries share one of keys and values.
    free("split(sizes=[32,8,8],dim=1)", &[(&[16, 48], "R,SS(1,6)")], "R,SS(1,4) R,S(1) R,S(1)");
    free("narrow(dim=1,start=8,length=8)", &[(&[16, 24], "R,SS(1,3)")], "R,S(1)");
    free("slice(dim=1,start=16)", &[(&[16, 24], "R,SS(1,3)")], "R,S(1)");
    free("slice(dim=1)", &[(&[16, 24], "R,S(1)")], "R,S(1)");
    free("cat(dim=1)", &[(&[16, 8], "R,S(1)"), (&[16, 8], "R,S(1)")], "R,SS(1,2)");
    // A shard that holds whole chunks has no part of the others.
    let chunk = table.op(&"chunk(chunks=4,dim=1)".parse().unwrap(), &[&[16, 48]]).unwrap();
    assert!(Propagator::new().explicit(&chunk, &m, &[operand(&m, &[16, 48], "R,S(1)")]).is_err());
}

#[test]
fn kinds_cut_a_part_of_a_dim_only_where_their_pieces_are_its_own() {
    let m = mesh("x=2");
    // Columns repeated twice: three columns do not split into two blocks and two ranks.
    let repeat = op("repeat", "ij->i(tj) {t: 2, t: replicate}", &[&[4, 3]]);
    let x = operand(&m, &[4, 3], "SS(1,2)");
    assert!(Propagator::new().explicit(&repeat, &m, core::slice::from_ref(&x)).is_err());
    let c = Propagator::new().propagate(&repeat, &m, &[x], &[]).unwrap();
    assert!(c.cost_us > 0.0, "{c:?}");
    let repeat = op("repeat", "ij->i(tj) {t: 2, t: replicate}", &[&[4, 8]]);
    let c = Propagator::new().explicit(&repeat, &m, &[operand(&m, &[4, 8], "SS(1,2)")]).unwrap();
    assert_eq!(c.outputs[0].to_string(), "SS(1,4)");
    // Six groups of two are not two blocks of two halves each.
    let groups = op("groups", "(gc)->(gc) {g: 6, c: replicate, none}", &[&[12]]);
    assert!(Propagator::new().explicit(&groups, &m, &[operand(&m, &[12], "SS(0,2)")]).is_err());
    let groups = op("groups", "(gc)->(gc) {g: 4, c: replicate, none}", &[&[8]]);
    assert!(Propagator::new().explicit(&groups, &m, &[operand(&m, &[8], "SS(0,2)")]).is_ok());
}

#[test]
fn costs_beyond_all_numbers_do_not_overflow() {
    let m = mesh("x=2,y=2");
    let mm = op("mm", "mk,kn->mn", &[&[4, 4], &[4, 4]]);
    let inputs = [operand(&m, &[4, 4], "S(0),R"), operand(&m, &[4, 4], "R,S(1)")];
    let sharding = Sharding::parse(&m, &[4, 4], "R,R").unwrap();
    for penalty_us in [1e15, 1e308, f64::INFINITY] {
        let constraint = OutputConstraint::Prefer { sharding: sharding.clone(), penalty_us };
        let c = Propagator::new().propagate(&mm, &m, &inputs, &[constraint]).unwrap();
        assert_eq!(c.outputs[0], sharding);
    }
    // More ranks than can be examined one at a time are an error, not a wait.
    let m = mesh("x=9223372036854775807");
    let inputs = [operand(&m, &[4, 4], "S(1)"), operand(&m, &[4, 4], "R")];
    assert!(Propagator::new().propagate(&mm, &m, &inputs, &[]).is_err());
}
