//! Plans beside those of XLA, Shardy and torch, from `data/peer_plans.jsonl`.
//!
//! Objective `bytes` is never worse than the best peer, and equal to the information bound where nothing is partial;
//! objective `time` never takes more communicating steps than the best peer where the tensor is small.

use reshard_sharding::redistribute::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};
use serde_json::Value;

#[test]
fn never_worse_than_the_best_peer() {
    let mut rows = 0;
    let mut worse = Vec::new();
    for line in include_str!("data/peer_plans.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let Some(mesh) = row["mesh"].as_str() else { continue };
        let mesh: Mesh = mesh.parse().unwrap();
        let shape: Vec<usize> =
            row["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        assert_eq!(row["dtype"], "f32");
        let parse = |key: &str| Sharding::parse(&mesh, &shape, row[key].as_str().unwrap()).unwrap();
        let (from, to) = (parse("from"), parse("to"));
        let bytes = Planner::new().objective(Objective::Bytes).plan(&from, &to, 4).unwrap();
        let time = Planner::new().plan(&from, &to, 4).unwrap();
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
        // Shardy's plans without a collective where something must move are not valid.
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
