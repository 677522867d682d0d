//! A cost model of a network that has no levels: a 2-D torus, on which rings are quick and crossing it is not.
//!
//! ```sh
//! cargo run --example torus
//! ```
//!
//! Rank `r` of `R x C` is at row `r / C`, column `r % C`, with a link to each of its four neighbours, and the
//! edges wrap around. The cost of a step depends on the position of its group, which a list of levels cannot
//! express: `StepTraffic::group` does.

use std::sync::Arc;

use reshard::planner::{Level, MinTraffic, StepTraffic, check_cost_model};
use reshard::prelude::*;

/// A torus of `rows x columns` ranks.
#[derive(Debug)]
struct Torus {
    rows: usize,
    columns: usize,
    launch_us: f64,
    hop_us: f64,
    /// Of a link, in each direction.
    gbytes_per_s: f64,
    /// The whole network is one domain.
    levels: [Level; 1],
}

/// A group along one dimension of the torus: `n` ranks at a distance of `stride`, on a ring of `ring`.
struct Line {
    n: usize,
    stride: usize,
    ring: usize,
}

impl Line {
    fn of(mut places: Vec<usize>, ring: usize) -> Line {
        places.sort_unstable();
        places.dedup();
        let stride = places.windows(2).map(|w| w[1] - w[0]).min().unwrap_or(1);
        Line { n: places.len(), stride, ring }
    }

    fn is_closed(&self) -> bool {
        self.n * self.stride == self.ring
    }

    /// Links that a ring over it has in effect: both directions where it closes; groups between its ranks share them.
    fn links(&self) -> f64 {
        (if self.is_closed() { 2.0 } else { 1.0 }) / self.stride as f64
    }

    /// The average distance of a message between any two ranks.
    fn distance(&self) -> f64 {
        let length = (self.n * self.stride) as f64;
        (if self.is_closed() { length / 4.0 } else { length / 3.0 }).max(0.5)
    }
}

impl Torus {
    fn new(rows: usize, columns: usize) -> Torus {
        let level = Level { ranks: None, latency_us: 1.0, gbytes_per_s: 180.0 };
        Torus { rows, columns, launch_us: 3.0, hop_us: 0.5, gbytes_per_s: 45.0, levels: [level] }
    }

    /// The group of a step along both dimensions, where it has more than one rank.
    fn lines(&self, load: &StepTraffic<'_>) -> Vec<Line> {
        let group = load.group();
        let ranks: Vec<usize> = group.offsets().collect();
        let rows = Line::of(ranks.iter().map(|r| r / self.columns % self.rows).collect(), self.rows);
        let columns = Line::of(ranks.iter().map(|r| r % self.columns).collect(), self.columns);
        [rows, columns].into_iter().filter(|line| line.n > 1).collect()
    }
}

impl CostModel for Torus {
    fn levels(&self) -> &[Level] {
        &self.levels
    }

    fn cost_us(&self, load: &StepTraffic<'_>) -> f64 {
        let lines = self.lines(load);
        let (bytes, rate) = (load.bytes() as f64, self.gbytes_per_s * 1e3);
        let hops: usize = lines.iter().map(|line| (line.n - 1) * line.stride).sum();
        let (hops, wire) = match load.op() {
            // Rings: every rank forwards the data that it receives, over all of its links at once.
            StepOp::AllGather | StepOp::ReduceScatter => {
                (hops as f64, bytes / (rate * lines.iter().map(Line::links).sum::<f64>()))
            }
            StepOp::AllReduce => {
                (2.0 * hops as f64, bytes / (rate * lines.iter().map(Line::links).sum::<f64>()))
            }
            // Direct messages, each over many links: the busiest dimension counts.
            StepOp::Exchange | StepOp::AllToAll => {
                let far = lines.iter().map(Line::distance).fold(0.5, f64::max);
                (hops as f64 / 2.0 + 0.1 * load.peers() as f64, bytes * far / (2.0 * rate))
            }
            StepOp::Slice | StepOp::ZeroFill => (0.0, 0.0),
        };
        self.launch_us + self.hop_us * hops + wire
    }

    /// A rank has four links, and the first message takes a launch.
    fn lower_bound_us(&self, need: &[MinTraffic]) -> f64 {
        match need.first() {
            Some(need) if need.domains > 1 || need.bytes > 0.0 => {
                self.launch_us + need.bytes / (4e3 * self.gbytes_per_s)
            }
            Some(_) | None => 0.0,
        }
    }

    fn cache_key(&self) -> String {
        let Torus { rows, columns, launch_us, hop_us, gbytes_per_s, .. } = self;
        format!("torus={rows}x{columns};launch={launch_us};hop={hop_us};link={gbytes_per_s}")
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh: Mesh = "x=4,y=8".parse()?;
    let torus = Arc::new(Torus::new(4, 8));
    check_cost_model(torus.clone(), &mesh)?;
    println!("{} has the properties of a cost model\n", torus.cache_key());

    let (uniform, torus) = (Planner::new(), Planner::new().cost_model(torus)?);
    for (from, to) in
        [("S(0),P", "R,S(0)"), ("S(0),S(1)", "S(1),S(0)"), ("S(0),S(0)", "R,R"), ("P,S(0)", "S(0),R")]
    {
        let from = Sharding::parse(&mesh, &[4096, 4096], from)?;
        let to = Sharding::parse(&mesh, &[4096, 4096], to)?;
        for planner in [&uniform, &torus] {
            let plan = planner.plan(&from, &to, DType::BF16)?;
            let steps: Vec<String> =
                plan.steps().iter().map(|s| format!("{} {}", s.op(), s.axis_names().join(","))).collect();
            println!(
                "{from} -> {to}: {:60} {:8.1} us on {}",
                steps.join("; "),
                plan.cost_us(),
                planner.options().cost_model()
            );
            assert!(plan.cost_us() >= planner.lower_bound_us(&from, &to, DType::BF16)?);
        }
    }
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
