//! Random meshes, shapes and shardings for as many seconds as `RESHARD_SOAK_SECONDS` says (one unless it says otherwise),
//! from the seed `RESHARD_SOAK_SEED`. A failure prints the pair; the seed is printed at the end.

mod pair;

use std::time::{Duration, Instant, SystemTime};

use pair::{check_pair, shards};
use reshard_collectives::threads::World;
use reshard_sharding::redistribute::{Objective, Planner};
use reshard_sharding::{Mesh, Placement, ReduceOp, Sharding};

/// A xorshift generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % sides
    }

    fn mesh(&mut self) -> Mesh {
        loop {
            let axes: Vec<usize> = (0..=self.roll(3)).map(|_| self.roll(4) + 1).collect();
            let mesh = Mesh::new(axes.iter().enumerate().map(|(i, n)| (["a", "b", "c"][i], *n))).unwrap();
            let text = format!("{mesh}@{}", self.roll(3));
            let mesh = if self.roll(4) == 0 { text.parse().unwrap_or(mesh) } else { mesh };
            if mesh.world() <= 12 {
                return mesh;
            }
        }
    }

    /// Uniform or with levels, of any objective.
    fn planner(&mut self) -> Planner {
        let topologies = ["uniform", "h100", "launch=5;message=0.1;level=2:1:100;level=4:2:40;level=*:5:10"];
        let topology = topologies[self.roll(3)].parse().unwrap();
        Planner::new().topology(topology).objective(Objective::ALL[self.roll(3)])
    }

    fn placements(&mut self, mesh: &Mesh, shape: &[usize], op: Option<ReduceOp>) -> Vec<Placement> {
        let one = |_| match self.roll(if op.is_some() { 4 } else { 3 }) {
            1 if !shape.is_empty() => Placement::Shard(self.roll(shape.len())),
            2 if !shape.is_empty() => {
                Placement::StridedShard { dim: self.roll(shape.len()), split_factor: self.roll(4) + 1 }
            }
            3 => op.map_or(Placement::Replicate, Placement::Partial),
            _ => Placement::Replicate,
        };
        (0..mesh.axes().len()).map(one).collect()
    }
}

#[test]
fn random_redistributions() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("RESHARD_SOAK_SECONDS").unwrap_or(1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("RESHARD_SOAK_SEED").unwrap_or(now.as_nanos() as u64);
    let mut dice = Dice(seed | 1);
    let mut world = World::new(12).unwrap();
    let (begin, mut done) = (Instant::now(), 0);
    println!("seed {seed}");
    while begin.elapsed() < Duration::from_secs(seconds) {
        let shape: Vec<usize> =
            (0..dice.roll(4)).map(|_| [0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 24][dice.roll(11)]).collect();
        let from = dice.mesh();
        let to = if dice.roll(3) == 0 { dice.mesh() } else { from.clone() };
        let same = from == to;
        let op = [ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod][dice.roll(5)];
        let before = dice.placements(&from, &shape, Some(op));
        let after = dice.placements(&to, &shape, same.then_some(op));
        let planner = dice.planner();
        let source = Sharding::new(&from, &shape, &before).unwrap();
        let target = Sharding::new(&to, &shape, &after).unwrap();
        if dice.roll(2) == 0 || op == ReduceOp::Prod {
            check_pair(&mut world, &planner, &source, &target, &shards::<i64>(&source, &before));
        } else {
            check_pair(&mut world, &planner, &source, &target, &shards::<f32>(&source, &before));
        }
        done += 1;
    }
    println!("seed {seed}: {done} redistributions");
}
