//! Plans compared with those of XLA, Shardy and torch, from `data/peer_plans.jsonl`.
//!
//! Objective `bytes` is never worse than the best peer, and equal to the information bound where nothing is partial;
//! objective `time` never takes more communicating steps than the best peer where the tensor is small.

use reshard_kernels::DType;
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};
use serde_json::Value;

#[test]
fn never_worse_than_the_best_peer() {
    let mut rows = 0;
    let mut worse = Vec::new();
    for line in include_str!("../data/peer_plans.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let Some(mesh) = row["mesh"].as_str() else { continue };
        let mesh: Mesh = mesh.parse().unwrap();
        let shape: Vec<usize> =
            row["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        assert_eq!(row["dtype"], "f32");
        let parse = |key: &str| Sharding::parse(&mesh, &shape, row[key].as_str().unwrap()).unwrap();
        let (from, to) = (parse("from"), parse("to"));
        let bytes = Planner::new().objective(Objective::Bytes).plan(&from, &to, DType::F32).unwrap();
        let time = Planner::new().plan(&from, &to, DType::F32).unwrap();
        rows += 1;
        let least = |suffix: &str| {
            row.as_object()
                .unwrap()
                .iter()
                .filter(|(k, _)| k.ends_with(suffix) && !k.starts_with("lower") && !k.starts_with("best"))
                .filter_map(|(_, v)| v.as_f64())
                .min_by(f64::total_cmp)
                .unwrap_or(f64::INFINITY)
        };
        let received = bytes.received_bytes() as f64;
        if !from.is_partial() && !to.is_partial() {
            assert_eq!(bytes.received_bytes(), row["lower_bound_bytes"].as_u64().unwrap(), "{line}\n{bytes}");
            assert_eq!(Some(bytes.received_bytes()), bytes.lower_bound_bytes(), "{line}\n{bytes}");
        }
        // Shardy's plans without a collective where data must be sent are not valid.
        let invalid = least("_collectives") == 0.0 && time.lower_bound_bytes().is_some_and(|b| b > 0);
        if !invalid && received > least("_bytes") {
            worse.push(format!("bytes {received} > {}: {bytes}", least("_bytes")));
        }
        let small = from.numel() * 4 <= 1 << 20;
        if small && !invalid && time.communicating_steps() as f64 > least("_collectives") {
            worse.push(format!("{} steps > {}: {time}", time.communicating_steps(), least("_collectives")));
        }
    }
    assert!(rows > 4000);
    assert!(worse.is_empty(), "{} of {rows} rows:\n{}", worse.len(), worse[..worse.len().min(12)].join("\n"));
}

/// Returns every list of the axes that may shard the dims.
///
/// Each axis shards a dim, at any index of its list, or none.
fn all_lists(names: &[&str], dims: usize) -> Vec<Vec<Vec<String>>> {
    let mut all = vec![vec![Vec::<String>::new(); dims]];
    for name in names {
        all = all
            .iter()
            .flat_map(|lists| {
                let mut next = vec![lists.clone()];
                for dim in 0..dims {
                    for at in 0..=lists[dim].len() {
                        let mut lists = lists.clone();
                        lists[dim].insert(at, (*name).to_owned());
                        next.push(lists);
                    }
                }
                next
            })
            .collect();
    }
    all
}

/// The planner is not fitted to the file above: all pairs of shardings of a mesh, without partial values.
///
/// Objective `bytes` receives the bound. A small tensor takes one communicating step if data must be sent,
/// and none if not.
#[test]
fn every_pair_without_terms_receives_the_bound() {
    let mut count = 0;
    for (mesh, names, shape) in [
        ("x=2,y=4", &["x", "y"][..], [64, 32]),
        ("x=2,y=2,z=2", &["x", "y", "z"], [64, 32]),
        ("x=2,y=3,z=4", &["x", "y", "z"], [96, 48]),
        ("x=4,y=6", &["x", "y"], [96, 48]),
        ("x=3,y=4", &["x", "y"], [48, 36]),
        ("a=2,b=4,c=2", &["a", "b", "c"], [64, 32]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let text = |lists: &Vec<Vec<String>>| {
            let dims: Vec<String> = lists.iter().map(|l| format!("{{{}}}", l.join(","))).collect();
            format!("[{}]", dims.join(","))
        };
        let mut all: Vec<Sharding> = Vec::new();
        for lists in all_lists(names, 2) {
            let s = Sharding::parse(&mesh, &shape, &text(&lists)).unwrap();
            if !all.contains(&s) {
                all.push(s);
            }
        }
        for from in &all {
            let have: Vec<_> = mesh.ranks().map(|r| from.region(r).unwrap()).collect();
            for to in &all {
                let bytes = Planner::new().objective(Objective::Bytes).plan(from, to, DType::F32).unwrap();
                let time = Planner::new().plan(from, to, DType::F32).unwrap();
                // By the regions: indices of both dims that a rank wants, without those it holds.
                let missing = mesh.ranks().zip(&have).map(|(rank, have)| {
                    let want = to.region(rank).unwrap();
                    let held = |dim: usize| {
                        let mine: Vec<usize> = have.indices(dim).unwrap().collect();
                        want.indices(dim).unwrap().filter(|i| mine.contains(i)).count()
                    };
                    want.numel() - held(0) * held(1)
                });
                let bound = 4 * missing.max().unwrap() as u64;
                assert_eq!(Some(bound), bytes.lower_bound_bytes(), "{bytes}");
                assert_eq!(bound, bytes.received_bytes(), "{bytes}");
                assert_eq!(time.communicating_steps(), usize::from(bound > 0), "{time}");
                count += 1;
            }
        }
    }
    println!("{count} pairs");
    assert!(count > 7_000, "{count}");
}

/// With partial values, a small tensor takes at most the steps of one reduction and then an exchange.
#[test]
fn every_pair_with_terms_takes_few_steps_where_the_tensor_is_small() {
    let mut count = [0; 3];
    for (mesh, shape) in [("x=2,y=2,z=2", [64, 32]), ("x=2,y=4", [64, 32]), ("x=2,y=3", [48, 36])] {
        let mesh: Mesh = mesh.parse().unwrap();
        let choices = ["R", "S(0)", "S(1)", "P"];
        let axes = mesh.axes().len() as u32;
        let word = |i: usize| {
            (0..axes).map(|a| choices[i / choices.len().pow(a) % choices.len()]).collect::<Vec<_>>().join(",")
        };
        let total = choices.len().pow(axes);
        for i in 0..total {
            for j in 0..total {
                let parse = |p: &str| Sharding::parse(&mesh, &shape, p).unwrap();
                let (from, to) = (parse(&word(i)), parse(&word(j)));
                if !from.is_partial() && !to.is_partial() {
                    continue;
                }
                let time = Planner::new().plan(&from, &to, DType::F32).unwrap();
                let greedy = Planner::new().axis_by_axis(&from, &to, DType::F32).unwrap().unwrap();
                let steps = time.communicating_steps();
                assert!(steps <= 2 && steps <= greedy.communicating_steps(), "{time}\n{greedy}");
                count[steps] += 1;
            }
        }
    }
    println!("{count:?} pairs of 0, 1 and 2 steps");
}
