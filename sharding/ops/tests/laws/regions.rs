//! Which strategies need to know their region: what rules say, against ops that are told that every shard is the whole.
//!
//! A strategy that holds needs its region if and only if it fails on a blind op. Failing is shown by an example; a rule that
//! says too much and an example that shows too little both fail here.

use std::collections::BTreeSet;

use reshard_ops::rules::{Op, Table};

/// The strategies of these calls for which the op is said to need its region.
fn declared(ops: &[Op]) -> BTreeSet<String> {
    let of = |op: &Op| op.strategies().into_iter().zip(op.regions()).collect::<Vec<_>>();
    ops.iter().flat_map(of).filter(|(_, region)| *region).map(|(strategy, _)| strategy.to_string()).collect()
}

#[test]
fn an_op_needs_its_region_exactly_where_it_fails_blind() {
    let table = Table::standard();
    let (mut wrong, mut needing) = (Vec::new(), 0);
    for e in crate::reference_ops::all() {
        let ops = e.ops(&table);
        let failing = e.verifier().blind().failing(&ops).unwrap();
        let failing: BTreeSet<String> = failing.iter().map(ToString::to_string).collect();
        let declared = declared(&ops);
        needing += declared.len();
        if failing != declared {
            let differ = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
                a.difference(b).cloned().collect::<Vec<_>>().join("; ")
            };
            let (more, less) = (differ(&failing, &declared), differ(&declared, &failing));
            wrong.push(format!(
                "{}: fails blind and is not declared: {more}; declared and holds blind: {less}",
                e.call
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(needing > 100, "{needing}");
}
