//! Propagation: facts, and equality with full enumeration.

use reshard_kernels::DType;
use reshard_sharding::propagate::{Choice, Operand, Propagator, Wish};
use reshard_sharding::rules::{Op, Rule};
use reshard_sharding::{Error, Mesh, Sharding};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

fn operand(mesh: &Mesh, shape: &[usize], text: &str) -> Operand {
    Operand::new(DType::F32, Sharding::parse(mesh, shape, text).unwrap())
}

fn op(name: &str, rule: &str, shapes: &[&[usize]]) -> Op {
    Op::new(name, &rule.parse::<Rule>().unwrap(), shapes).unwrap()
}

fn choose(mesh: &Mesh, rule: &str, inputs: &[(&[usize], &str)]) -> Result<Choice, Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|i| i.0).collect();
    let operands: Vec<Operand> = inputs.iter().map(|(s, p)| operand(mesh, s, p)).collect();
    Propagator::new().propagate(&op("op", rule, &shapes), mesh, &operands, &[])
}

const ADD: &str = "...,...->... {linear, increasing}";
const CAT: &str = "i*,i*->i* {selecting}";

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
    let _ = CAT;
}

#[test]
fn plain_and_strided_do_not_contract() {
    let m = mesh("x=2,y=2");
    let c = choose(&m, "mk,kn->mn", &[(&[4, 4], "S(1),S(1)"), (&[4, 4], "SS(0,2),S(0)")]).unwrap();
    assert!(c.cost_us > 0.0 && c.plans.iter().any(Option::is_some), "{c:?}");
}

#[test]
fn wishes_are_paid_for() {
    let m = mesh("x=2,y=2");
    let mm = op("mm", "mk,kn->mn", &[&[64, 64], &[64, 64]]);
    let inputs = [operand(&m, &[64, 64], "S(1),R"), operand(&m, &[64, 64], "S(0),R")];
    let to = Sharding::parse(&m, &[64, 64], "R,R").unwrap();
    let p = Propagator::new();
    let free = p.propagate(&mm, &m, &inputs, &[]).unwrap();
    assert_eq!((free.cost_us, free.outputs[0].to_string()), (0.0, "P(sum),R".to_owned()));
    let c = p.propagate(&mm, &m, &inputs, &[Wish::Become(to.clone())]).unwrap();
    assert_eq!(c.outputs[0], to);
    assert!(c.cost_us > 0.0);
    let c = p.propagate(&mm, &m, &inputs, &[Wish::Prefer { sharding: to, penalty_us: 1e-3 }]).unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (1e-3, "P(sum),R".to_owned()));
}
