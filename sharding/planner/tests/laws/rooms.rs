//! The modules of the planner have an order, and none uses a later one: there is no cycle except inside a
//! module.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules, from the ground up: each may use those before it.
const ROOMS: [&str; 28] = [
    "objective",
    "op",
    "arithmetic",
    "budget",
    "stop",
    "hash",
    "message",
    "model",
    "bounds",
    "options",
    "problem",
    "regions",
    "states",
    "step",
    "transfers",
    "plan",
    "fused_cost",
    "assemble",
    "shared_exchange",
    "transpose",
    "candidates",
    "choose",
    "planner",
    "notation",
    "lower_bound",
    "explain",
    "check_cost_model",
    "cache",
];

/// Files outside of the order: the list of modules, the errors of all, stored texts, the theory.
const NO_ROOMS: [&str; 4] = ["lib.rs", "error.rs", "stored.rs", "theory.rs"];

/// Modules that only tests use may use any other.
const ORACLES: [&str; 2] = ["states/dijkstra.rs", "states/fixed_point.rs"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Returns the modules that a text names: `crate::room`, or one of `crate::{room, ..}`.
fn named(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
        for rest in line.split("crate::").skip(1) {
            let list = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap());
            let names = if rest.starts_with('{') { list.split(',').collect() } else { vec![list] };
            for name in names {
                let name: String =
                    name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                // The error of the crate is outside the order.
                if name != "Error" {
                    rooms.insert(name);
                }
            }
        }
    }
    rooms
}

#[test]
fn the_planner_has_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&root, &mut all);
    let (mut looked_at, mut edges) = (0, 0);
    let mut wrong = Vec::new();
    for path in all {
        let relative = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        if ORACLES.contains(&relative.as_str()) || NO_ROOMS.contains(&relative.as_str()) {
            continue;
        }
        let room = relative.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let Some(floor) = ROOMS.iter().position(|r| *r == room) else {
            panic!("{relative}: the module {room} has no level: list it here");
        };
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for other in named(code) {
            let known = ROOMS.iter().position(|r| *r == other);
            match known {
                Some(below) if below <= floor => edges += usize::from(below < floor),
                Some(_) => wrong.push(format!("{relative} uses {other}, which is above it")),
                None => wrong.push(format!("{relative} uses {other} by a shorter name: name its module")),
            }
        }
        looked_at += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 40 && edges > 100, "{looked_at} files and {edges} uses were found");
}
