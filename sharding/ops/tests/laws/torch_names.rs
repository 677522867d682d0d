//! PyTorch's forward names: each is in the table, is an alias of an op in it, or is left out for a reason.
//!
//! `data/torch_names.txt` is printed by `scripts/torch_names.py`, which lists its sources.
//! `data/torch_aliases.txt` has a line for each of our ops with other names, and `data/torch_left_out.txt` a
//! line for each reason. An op on lists, `_foreach_add` or `_fused_adam`, is another name of its effect on
//! each tensor: it is that op once for each, and a test shows that any two strategies of it are compatible.

use std::collections::{BTreeMap, BTreeSet};

use reshard_ops::rules::{Op, OpTable, Rule, Strategy};
use reshard_test_support::Sweep;

use crate::reference_ops::Example;

const NAMES: &str = include_str!("../data/torch_names.txt");
const ALIASES: &str = include_str!("../data/torch_aliases.txt");
const LEFT_OUT: &str = include_str!("../data/torch_left_out.txt");

/// `what: name name ..`, by name.
fn by_name(text: &'static str) -> BTreeMap<&'static str, &'static str> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let (what, names) = line.rsplit_once(": ").unwrap();
        for name in names.split(' ') {
            assert!(out.insert(name, what).is_none(), "{name} is listed twice");
        }
    }
    out
}

#[test]
fn every_name_has_a_rule_or_a_reason() {
    let names: BTreeSet<&str> = NAMES.lines().collect();
    assert_eq!(names.len(), NAMES.lines().count());
    let (aliases, left_out) = (by_name(ALIASES), by_name(LEFT_OUT));
    let table = OpTable::standard();
    let ours: BTreeSet<&str> = table.names().collect();
    let (mut same, mut other, mut without) = (0, 0, 0);
    for name in &names {
        let places = (ours.contains(name), aliases.get(name), left_out.get(name));
        match places {
            (true, None, None) => same += 1,
            (false, Some(of), None) => {
                assert!(ours.contains(of), "{name} is listed as {of}, which is not an op");
                other += 1;
            }
            (false, None, Some(reason)) => {
                assert!(reason.split(' ').count() > 3, "{name}: {reason}");
                without += 1;
            }
            _ => panic!(
                "{name} must be in exactly one of the table, the aliases and the omitted names: {places:?}"
            ),
        }
    }
    for name in aliases.keys().chain(left_out.keys()) {
        assert!(names.contains(name), "{name} is not a name of PyTorch");
    }
    println!("{} names: {same} in the table, {other} by another name, {without} omitted", names.len());
}

/// A row of two tensors at once.
fn both(a: &Strategy, b: &Strategy) -> Strategy {
    Strategy { inputs: [&a.inputs[..], &b.inputs].concat(), outputs: [&a.outputs[..], &b.outputs].concat() }
}

fn twice(shapes: &[Vec<usize>]) -> Vec<&[usize]> {
    shapes.iter().chain(shapes).map(Vec::as_slice).collect()
}

/// The strategies of a list are all combinations of those of its tensors.
#[test]
fn a_foreach_op_is_its_op_for_each_tensor() {
    let (table, examples) = (OpTable::standard(), crate::reference_ops::all());
    let lists: BTreeMap<&str, &str> = by_name(ALIASES)
        .into_iter()
        .filter(|(name, of)| {
            (name.starts_with("_foreach") || name.starts_with("_fused_")) && **of != *"fused_rms_norm"
        })
        .collect();
    let mut tried = 0;
    let named: BTreeSet<&&str> = lists.values().collect();
    let picked = named.into_iter().enumerate().filter(|(i, _)| Sweep::asked().takes_one_in(8, *i));
    for of in picked.map(|(_, of)| of) {
        let e: &Example = examples.iter().find(|e| e.name() == **of).unwrap();
        let op = &e.ops(&table)[1];
        let rows = op.strategies();
        let all = rows.iter().flat_map(|a| rows.iter().map(move |b| both(a, b))).collect();
        let rule = Rule::from_strategies(all).unwrap();
        let list = Op::with_outputs(op.name(), &rule, &twice(op.inputs()), &twice(op.outputs())).unwrap();
        if let Err(wrong) = e.for_each_of_two().verify(&[list]) {
            panic!("{of} of a list: {wrong}");
        }
        tried += rows.len() * rows.len();
    }
    println!("{} ops on lists, {tried} strategies of two tensors", lists.len());
    assert!(tried > lists.len() / if Sweep::asked() == Sweep::All { 1 } else { 8 });
}
