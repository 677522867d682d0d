//! Redistributions of generated tensors, checked against the global tensors of their shards.

use std::collections::HashMap;

use reshard_planner::{Plan, Planner, Topology};
use reshard_sharding::{Mesh, ReduceOp, Region, Sharding};

use super::data::{Kind, Tensor, mix, terms};
use super::{Failure, Suite};
use crate::GOLDEN;
use reshard_collectives::{BufferLayout, Communicator, CompiledPlan, Error};

/// Even, uneven, with empty shards, without elements.
pub(super) const SHAPES: [&[usize]; 4] = [&[12, 24], &[7, 5], &[2, 3], &[0, 4]];

/// Returns meshes of many layouts over at most `size` ranks.
pub(super) fn meshes(size: usize) -> Result<Vec<Mesh>, reshard_sharding::Error> {
    let ranks: Vec<usize> = (0..size).collect();
    let backwards: Vec<usize> = ranks.iter().rev().copied().collect();
    let mut all =
        vec![Mesh::from_ranks([("x", size)], &ranks)?, Mesh::from_ranks([("x", size)], &backwards)?];
    let mut parse = |text: String| {
        all.push(text.parse()?);
        Ok::<(), reshard_sharding::Error>(())
    };
    if size >= 3 {
        // Without the first rank; every other rank.
        parse(format!("x={}@1", size - 1))?;
        parse(format!("x={}:2", size.div_ceil(2)))?;
    }
    if size >= 4 {
        let half = size / 2;
        parse(format!("x=2,y={half}"))?;
        parse(format!("x=2:1,y={half}:2"))?;
    }
    if size >= 8 {
        parse("x=2,y=2,z=2".to_string())?;
        parse("x=2:2,y=2:4,z=2:1".to_string())?;
    }
    Ok(all)
}

/// Returns all placements made of these, one per axis.
pub(super) fn placements(axes: usize, of: &[&str]) -> Vec<String> {
    let n = of.len();
    let one = |i: usize| (0..axes).map(|axis| of[i / n.pow(axis as u32) % n]).collect::<Vec<_>>().join(",");
    (0..n.pow(axes as u32)).map(one).collect()
}

impl<C: Communicator> Suite<'_, C> {
    /// Returns `true` if the `n`-th pair of many is tested.
    pub(super) fn is_chosen(&self, n: usize, every: usize) -> bool {
        mix(&[self.options.seed, n as u64]).is_multiple_of((every * self.options.every.max(1)) as u64)
    }

    pub(super) fn planned<T>(&self, result: Result<T, impl Into<Error>>) -> Result<T, Failure> {
        result.map_err(|error| self.broken("planning, before the engine was involved", error.into()))
    }

    /// Tests redistributions without arithmetic, bit for bit.
    pub(super) fn plans(&mut self) -> Result<(), Failure> {
        let mut n = 0;
        for mesh in self.planned(meshes(self.size))? {
            let axes = mesh.axes().len();
            let texts = placements(axes, &["R", "S(0)", "S(1)", "SS(0,2)"]);
            for shape in SHAPES {
                for (from, to) in texts.iter().flat_map(|from| texts.iter().map(move |to| (from, to))) {
                    n += 1;
                    if !self.is_chosen(n, [1, 1, 5, 80][axes]) {
                        continue;
                    }
                    let kind = Kind::ALL[n % Kind::ALL.len()];
                    let plan = self.plan(&mesh, shape, kind, from, to)?;
                    self.redistribute(&plan, kind, None)?;
                }
            }
        }
        Ok(())
    }

    /// Tests every dtype and op.
    pub(super) fn reductions(&mut self) -> Result<(), Failure> {
        let mut n = 0;
        for mesh in self.planned(meshes(self.size))? {
            self.in_order(&mesh)?;
            let axes = mesh.axes().len();
            for (kind, op) in Kind::ALL.into_iter().flat_map(|kind| ReduceOp::ALL.map(|op| (kind, op))) {
                if !kind.has(op) {
                    continue;
                }
                let partial = format!("P({op})");
                let texts = placements(axes, &[partial.as_str(), "R", "S(0)"]);
                for shape in SHAPES {
                    for (from, to) in texts.iter().flat_map(|from| texts.iter().map(move |to| (from, to))) {
                        n += 1;
                        let interesting = from.contains('P') || to.contains('P');
                        if !interesting || !self.is_chosen(n, [1, 3, 40, 1000][axes]) {
                            continue;
                        }
                        // An average that is already complete has no partial values to generate.
                        let ends = [from, to].map(|text| Sharding::parse(&mesh, shape, text));
                        let [Ok(from), Ok(to)] = ends else { continue };
                        let planner = Planner::new().deterministic(n.is_multiple_of(4));
                        let Ok(plan) = planner.plan(&from, &to, kind.dtype()) else { continue };
                        self.redistribute(&plan, kind, Some(op))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Tests sums, products and averages that are combined in order, to the bit.
    fn in_order(&mut self, mesh: &Mesh) -> Result<(), Failure> {
        let each = |text: &str| vec![text; mesh.axes().len()].join(",");
        for (kind, op) in [
            (Kind::F64, ReduceOp::Sum),
            (Kind::F32, ReduceOp::Sum),
            (Kind::F32, ReduceOp::Prod),
            (Kind::F64, ReduceOp::Avg),
        ] {
            for (shape, to) in [(SHAPES[0], "R"), (SHAPES[1], "R"), (SHAPES[0], "S(0)")] {
                let from = self.planned(Sharding::parse(mesh, shape, &each(&format!("P({op})"))))?;
                let to = self.planned(Sharding::parse(mesh, shape, &each(to)))?;
                let planner = Planner::new().deterministic(true);
                let plan = self.planned(planner.plan(&from, &to, kind.dtype()))?;
                self.redistribute(&plan, kind, Some(op))?;
            }
        }
        Ok(())
    }

    /// Tests the plans of the golden files.
    pub(super) fn golden(&mut self) -> Result<(), Failure> {
        for golden in GOLDEN {
            if self.planned(golden.world())? > self.size {
                self.leave_out();
                continue;
            }
            for topology in [Topology::uniform(), Topology::h100()] {
                let plan = self.planned(golden.plan(&topology))?;
                let op = plan.from().is_partial() || plan.to().is_partial();
                // Partial values of a maximum are a valid sum when they are added.
                self.redistribute(&plan, Kind::F32, op.then_some(ReduceOp::Sum))?;
            }
        }
        Ok(())
    }

    pub(super) fn plan(
        &self,
        mesh: &Mesh,
        shape: &[usize],
        kind: Kind,
        from: &str,
        to: &str,
    ) -> Result<Plan, Failure> {
        let from = self.planned(Sharding::parse(mesh, shape, from))?;
        let to = self.planned(Sharding::parse(mesh, shape, to))?;
        self.planned(Planner::new().plan(&from, &to, kind.dtype()))
    }

    /// Runs a plan, and checks this rank's result.
    pub(super) fn redistribute(
        &mut self,
        plan: &Plan,
        kind: Kind,
        op: Option<ReduceOp>,
    ) -> Result<(), Failure> {
        self.redistribute_layouts(plan, kind, op, DENSE)
    }

    /// Checks a rank's result of a plan. Remaining partial values are reduced first, by the engine.
    pub(super) fn judge(
        &mut self,
        plan: &Plan,
        tensor: &Tensor<'_>,
        mut result: Vec<u8>,
        takes_part: bool,
        title: &str,
    ) -> Result<(), Failure> {
        let kind = tensor.kind;
        let mut last = plan.to().clone();
        let mut rounded = terms(plan.from()) + terms(plan.to());
        if last.is_partial() {
            last = self.planned(Sharding::replicated(last.mesh(), last.shape()))?;
            let ends = self.planned(Planner::new().plan(plan.to(), &last, kind.dtype()))?;
            rounded *= 2;
            if takes_part {
                let compiled = self.planned(CompiledPlan::new(&ends, self.rank))?;
                let results = self.run(&compiled, &[result]);
                result = results.map_err(|error| self.broken(title, error))?.pop().unwrap_or_default();
            }
        }
        if last.mesh().contains(self.rank) {
            self.count();
            let whole = self.planned(tensor.whole())?;
            let held = self.planned(last.global_indices(self.rank))?;
            let rounded = if tensor.is_exact() { 0.0 } else { self.options.bound * rounded as f64 };
            if let Some(why) = whole.differs(kind, &held, &result, rounded) {
                self.wrong(format!("{title}: {why}"));
            }
        }
        if tensor.op.is_some() && kind.rounding().is_some() {
            self.compare_replicas(&last, &result, title)?;
        }
        Ok(())
    }

    /// Compares a hash of each rank's shard; ranks with the same region must have the same bits.
    fn compare_replicas(&mut self, sharding: &Sharding, shard: &[u8], title: &str) -> Result<(), Failure> {
        let words =
            shard.chunks(8).map(|chunk| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        let hash = mix(&words.collect::<Vec<_>>());
        let mesh = self.planned(Mesh::new([("world", self.size)]))?;
        let plan = self.plan(&mesh, &[self.size], Kind::I64, "S(0)", "R")?;
        let compiled = self.planned(CompiledPlan::new(&plan, self.rank))?;
        let hashes = self.run(&compiled, &[hash.to_ne_bytes().to_vec()]);
        let hashes = hashes.map_err(|error| self.broken("comparing replicas", error))?;
        let hashes: Vec<&[u8]> = hashes.iter().flat_map(|all| all.chunks_exact(8)).collect();
        let mut seen: HashMap<Region, (usize, &[u8])> = HashMap::new();
        for rank in sharding.mesh().ranks() {
            let region = self.planned(sharding.region(rank))?;
            let (first, its) = *seen.entry(region).or_insert((rank, hashes[rank]));
            if its != hashes[rank] {
                self.wrong(format!("{title}: the replicas on ranks {first} and {rank} differ in some bit"));
                break;
            }
        }
        Ok(())
    }
}

/// Source and target as plans assume them.
pub(super) const DENSE: (&BufferLayout, &BufferLayout) = (&BufferLayout::RowMajor, &BufferLayout::RowMajor);

pub(super) fn title(plan: &Plan, kind: Kind, memory: (&BufferLayout, &BufferLayout)) -> String {
    let (from, to) = (plan.from(), plan.to());
    let shape = from.shape();
    let title =
        format!("{from} on {} -> {to} on {} of {shape:?} in {}", from.mesh(), to.mesh(), kind.dtype());
    if memory == DENSE { title } else { format!("{title} from {} to {}", memory.0, memory.1) }
}
