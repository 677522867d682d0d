//! Compares existing planners with this one on the same redistributions; prints the tables of
//! `docs/reference/benchmarks/other_planners.md`.
//!
//! The peers' figures are in `sharding/planner/tests/data/peer_plans.jsonl`, one pair of shardings per line:
//! bytes of the worst rank and the number of collectives. Pairs are counted if data must be transferred (a
//! bound above 0); a plan without a collective is then not valid, and is counted separately. Bytes are
//! relative to the bound: the total over all pairs, and the worst pair. With `RESHARD_WRITE=1` it writes
//! `benches/results/compare_planners.jsonl`.

use reshard_kernels::DType;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Write, stdout};

use reshard_benches::results::{Measured, Results};
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};
use serde_json::Value;

/// The name of a planner in the file, and in the table.
const PEERS: [(&str, &str); 6] = [
    ("xla", "XLA"),
    ("shardy", "Shardy"),
    ("torch_greedy", "torch greedy"),
    ("torch_graph", "torch graph"),
    ("torch_flat_greedy", "torch greedy, flattened meshes"),
    ("torch_flat_graph", "torch graph, flattened meshes"),
];

/// The planner for fewest bytes, and what both planners of this library begin with, in the table.
const OURS: &str = "**reshard**, bytes";
const RESHARD: &str = "**reshard**";

/// The results of one planner for the pairs of one mesh.
#[derive(Default)]
struct Sums {
    pairs: u32,
    invalid: u32,
    bytes: f64,
    bound: f64,
    worst: f64,
    steps: f64,
}

impl Sums {
    fn add(&mut self, bytes: f64, bound: f64, steps: f64) {
        if steps <= 0.0 {
            self.invalid += 1;
            return;
        }
        self.pairs += 1;
        self.bytes += bytes;
        self.bound += bound;
        self.worst = self.worst.max(bytes / bound);
        self.steps += steps;
    }
}

/// Mesh, `true` if partial sums are involved, planner.
type Cell = (String, bool, String);

fn main() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sharding/planner/tests/data/peer_plans.jsonl");
    let mut cells: BTreeMap<Cell, Sums> = BTreeMap::new();
    let mut unbounded = 0;
    for line in std::fs::read_to_string(path)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let Some(name) = row["mesh"].as_str() else { continue };
        let mesh: Mesh = name.parse()?;
        let shape: Vec<usize> = row["shape"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|n| Some(n.as_u64()? as usize))
            .collect();
        let sharding = |key: &str| Sharding::parse(&mesh, &shape, row[key].as_str().unwrap_or_default());
        let (from, to) = (sharding("from")?, sharding("to")?);
        let bytes = Planner::new().objective(Objective::Bytes).plan(&from, &to, DType::F32)?;
        let time = Planner::new().plan(&from, &to, DType::F32)?;
        let Some(bound) = bytes.lower_bound_bytes().filter(|&b| b > 0) else {
            unbounded += 1;
            continue;
        };
        let partial = from.is_partial() || to.is_partial();
        let mut add = |who: &str, received: f64, steps: f64| {
            let cell = (name.to_owned(), partial, who.to_owned());
            cells.entry(cell).or_default().add(received, bound as f64, steps);
        };
        for (key, title) in PEERS {
            let number = |suffix: &str| row[format!("{key}_{suffix}")].as_f64();
            match (number("bytes"), number("collectives")) {
                (Some(received), Some(steps)) => add(title, received, steps),
                // The planner ran, and its plan is not valid.
                (_, _) if row.get(format!("{key}_bytes")).is_some() => add(title, 0.0, 0.0),
                (_, _) => {}
            }
        }
        for (title, plan) in [(OURS, &bytes), ("**reshard**, time", &time)] {
            add(title, plan.received_bytes() as f64, plan.communicating_steps() as f64);
        }
    }
    let mut out = stdout();
    writeln!(out, "| mesh | partial sums | planner | pairs | bytes / bound | worst | steps | not valid |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for ((mesh, partial, who), s) in &cells {
        let (ratio, steps) = (s.bytes / s.bound, s.steps / f64::from(s.pairs));
        let partial = if *partial { "yes" } else { "no" };
        let (pairs, worst, invalid) = (s.pairs, s.worst, s.invalid);
        writeln!(
            out,
            "| `{mesh}` | {partial} | {who} | {pairs} | {ratio:.3} | {worst:.2} | {steps:.2} | {invalid} |"
        )?;
    }
    let mut results = Results::new(
        "compare_planners",
        "cargo run --release -p reshard-benches --bin compare_planners",
        "other_planners.md",
    )?;
    for ((mesh, partial, who), peer) in &cells {
        let ours = &cells[&(mesh.clone(), *partial, OURS.to_owned())];
        if who.starts_with(RESHARD) {
            continue;
        }
        let sums = if *partial { "with partial sums" } else { "no partial sums" };
        results.add(&Measured {
            what: format!("bytes of {} plans, relative to the bound, `{mesh}`, {sums}", ours.pairs),
            ours: ours.bytes / ours.bound,
            peer: Some((who.clone(), peer.bytes / peer.bound)),
            unit: "",
            ratio: None,
            limit: None,
        });
    }
    results.write()?;
    writeln!(out, "\n{unbounded} more pairs have no bound or need no redistribution.")?;
    Ok(())
}
