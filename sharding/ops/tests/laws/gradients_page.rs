//! The table of docs/gradients.md, regenerated and compared.
//!
//! `RESHARD_WRITE=1 cargo test -p reshard-ops --test laws gradients_page` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::reference_ops::all;
use crate::rules_page::between;
use reshard_ops::gradients::{Gradient, Saved};
use reshard_ops::rules::{OpCall, OpTable};

/// The inputs of a gradient: of several calls of an op, the last of these kinds is the op's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Refused,
    Nothing,
    Linear,
    Given,
    Multilinear,
    Nonlinear,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Linear, "linear"),
    (Kind::Given, "linear given an index, a mask or the like"),
    (Kind::Multilinear, "multilinear"),
    (Kind::Nonlinear, "not linear"),
    (Kind::Nothing, "nothing: steps, indices, truth values, draws, factories"),
    (Kind::Refused, "an error that names the op"),
];

/// Returns the kind of saved values whose numbers the gradients of inputs read.
fn kind(gradient: &Gradient) -> Kind {
    let Some(body) = gradient.body() else { return Kind::Nothing };
    // The dependencies of each value: `zeros_like` and `ones_like` depend on a shape alone.
    let mut reads: Vec<BTreeSet<Saved>> =
        gradient.inputs().iter().map(|&saved| BTreeSet::from([saved])).collect();
    for (call, takes, makes) in body.calls() {
        let of_shape = ["zeros_like", "ones_like"].contains(&call.to_string().as_str());
        let all: BTreeSet<Saved> = if of_shape {
            BTreeSet::new()
        } else {
            takes.iter().flat_map(|&v| reads[v].iter().copied()).collect()
        };
        reads.extend(makes.iter().map(|_| all.clone()));
    }
    let differentiated: Vec<usize> =
        (0..gradient.input_gradients().len()).filter(|&i| gradient.input_gradients()[i].is_some()).collect();
    let of_output = body.output_values().iter().map(|&v| &reads[v]);
    let kinds = of_output.zip(&differentiated).flat_map(|(reads, own)| {
        reads.iter().map(|saved| match *saved {
            Saved::Gradient(_) => Kind::Linear,
            Saved::Input(i) if !differentiated.contains(&i) => Kind::Given,
            Saved::Input(i) if i != *own => Kind::Multilinear,
            Saved::Input(_) | Saved::Output(_) => Kind::Nonlinear,
        })
    });
    kinds.max().unwrap_or(Kind::Nothing)
}

/// The ops of the table by the kind of their gradient.
fn kinds() -> String {
    let table = OpTable::standard();
    let mut found: BTreeMap<String, Kind> =
        table.names().map(|name| (name.to_owned(), Kind::Refused)).collect();
    let mut see = |text: &str, inputs: &[&[usize]]| {
        let call: OpCall = text.parse().unwrap();
        let known = found.get_mut(text.split('(').next().unwrap_or(text));
        if let (Some(known), Ok(gradient)) = (known, table.gradient(&call, inputs)) {
            *known = (*known).max(kind(&gradient));
        }
    };
    for example in all() {
        for op in example.ops(&table) {
            see(example.call, &op.inputs().iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
    for (call, inputs) in crate::gradients::MORE {
        see(call, inputs);
    }
    let mut out = String::from("| gradient | ops | |\n|---|---|---|\n");
    for (kind, words) in KINDS {
        let names: Vec<&str> =
            found.iter().filter(|(_, k)| **k == kind).map(|(name, _)| name.as_str()).collect();
        writeln!(out, "| {words} | {} | {} |", names.len(), names.join(", ")).unwrap();
    }
    out
}

#[test]
fn the_page_of_gradients_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gradients.md");
    let mut page = std::fs::read_to_string(path).unwrap();
    let made = kinds();
    let (from, old) = between(&page, "<!-- gradients -->\n", "<!-- end of gradients -->");
    if old != made {
        let write = std::env::var_os("RESHARD_WRITE").is_some();
        assert!(write, "docs/gradients.md is stale: RESHARD_WRITE=1 rewrites its table");
        let to = from + old.len();
        page.replace_range(from..to, &made);
        std::fs::write(path, page).unwrap();
    }
}
