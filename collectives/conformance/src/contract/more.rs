//! Further requirements: any memory layout, fused tensors or groups, one buffer, and ranks that disagree.

use std::borrow::{Borrow, BorrowMut};
use std::collections::BTreeMap;

use reshard_layout::Layout;
use reshard_planner::Plan;
use reshard_sharding::{Mesh, ReduceOp, Sharding};

use super::data::{Kind, Tensor, mix};
use super::plans::{DENSE, SHAPES, meshes, placements, title};
use super::{Failure, Suite};
use reshard_collectives::{Batch, BufferLayout, Communicator, CompiledPlan, Error};

/// A tensor of a batch; the same placement on every axis.
struct Row {
    kind: Kind,
    shape: &'static [usize],
    from: &'static str,
    to: &'static str,
    op: Option<ReduceOp>,
}

/// Even and uneven, copied and reduced, in one step and in two.
const BATCH: &[Row] = &[
    Row { kind: Kind::F16, shape: &[12, 24], from: "S(0)", to: "S(1)", op: None },
    Row { kind: Kind::U8, shape: &[5], from: "S(0)", to: "R", op: None },
    Row { kind: Kind::F64, shape: &[12, 24], from: "S(0)", to: "R", op: None },
    Row { kind: Kind::F32, shape: &[24, 8], from: "P", to: "S(0)", op: Some(ReduceOp::Sum) },
    Row { kind: Kind::I64, shape: &[7, 5], from: "P(max)", to: "R", op: Some(ReduceOp::Max) },
    Row { kind: Kind::Bool, shape: &[3, 3], from: "R", to: "S(1)", op: None },
    Row { kind: Kind::BF16, shape: &[9], from: "P", to: "R", op: Some(ReduceOp::Sum) },
    Row { kind: Kind::F32, shape: &[16, 24], from: "S(1)", to: "S(0)", op: None },
];

impl<C: Communicator> Suite<'_, C> {
    /// Tests local buffers that are not dense and row-major.
    pub(super) fn memory(&mut self) -> Result<(), Failure> {
        let mut n = 0;
        for mesh in self.planned(meshes(self.size))? {
            let axes = mesh.axes().len();
            let texts = placements(axes, &["R", "S(0)", "S(1)", "P"]);
            for shape in SHAPES {
                for (from, to) in texts.iter().flat_map(|from| texts.iter().map(move |to| (from, to))) {
                    n += 1;
                    if to.contains('P') || !self.is_chosen(n, [1, 2, 12, 200][axes]) {
                        continue;
                    }
                    let plan = self.plan(&mesh, shape, Kind::I32, from, to)?;
                    let memories =
                        [BufferLayout::RowMajor, BufferLayout::Order(vec![1, 0]), BufferLayout::RowMajor];
                    let pick = |at: usize, sharding: &Sharding| match at % 3 {
                        2 => padded(sharding),
                        at => Ok(memories[at].clone()),
                    };
                    let source = self.planned(pick(n / 3, plan.from()))?;
                    let target = self.planned(pick(n, plan.to()))?;
                    let op = plan.from().is_partial().then_some(ReduceOp::Sum);
                    self.redistribute_layouts(&plan, Kind::I32, op, (&source, &target))?;
                }
            }
        }
        Ok(())
    }

    /// Runs a plan between buffers of any memory layout, and checks this rank's result.
    pub(super) fn redistribute_layouts(
        &mut self,
        plan: &Plan,
        kind: Kind,
        op: Option<ReduceOp>,
        (source, target): (&BufferLayout, &BufferLayout),
    ) -> Result<(), Failure> {
        let (rank, item) = (self.rank, kind.item_bytes());
        let title = title(plan, kind, (source, target));
        let seed = mix(&[self.options.seed, self.report.cases.len() as u64, plan.from().numel() as u64]);
        let in_order = plan.options().is_deterministic() && !plan.to().is_partial();
        let tensor = Tensor { sharding: plan.from(), kind, seed, op, in_order };
        let takes_part = plan.from().mesh().contains(rank) || plan.to().mesh().contains(rank);
        let mut shard = self.planned(tensor.shard(rank))?;
        if takes_part {
            let compiled = CompiledPlan::with_layouts(plan, rank, source, target);
            let compiled = self.planned(compiled)?;
            let mut lies = vec![0; compiled.source_bytes()];
            self.planned(place(plan.from(), rank, source, &mut lies, &shard, item, true))?;
            let results = self.run(&compiled, &[lies]);
            let result = results.map_err(|error| self.broken(&title, error))?.pop().unwrap_or_default();
            shard = vec![0; plan.to().local_numel(rank) * item];
            // The padding between the rows must not be written.
            let mut untouched = vec![0xa5; result.len()];
            self.planned(place(plan.to(), rank, target, &mut shard, &result, item, false))?;
            self.planned(place(plan.to(), rank, target, &mut untouched, &shard, item, true))?;
            if untouched != result {
                self.wrong(format!("{title}: the padding was overwritten"));
            }
        }
        self.judge(plan, &tensor, shard, takes_part, &title)
    }

    /// Tests several tensors in one exchange.
    pub(super) fn batches(&mut self) -> Result<(), Failure> {
        for mesh in self.planned(meshes(self.size))? {
            let axes = mesh.axes().len();
            let mut plans = Vec::new();
            for row in BATCH {
                let each = |text: &str| vec![text; axes].join(",");
                plans.push(self.plan(&mesh, row.shape, row.kind, &each(row.from), &each(row.to))?);
            }
            let items: Vec<(Kind, Option<ReduceOp>, &Plan)> =
                BATCH.iter().zip(&plans).map(|(row, plan)| (row.kind, row.op, plan)).collect();
            self.batch(&items)?;
        }
        Ok(())
    }

    /// Runs tensors in one batch, twice, and checks this rank's result for each.
    pub(super) fn batch(&mut self, items: &[(Kind, Option<ReduceOp>, &Plan)]) -> Result<(), Failure> {
        let (rank, seed) = (self.rank, self.options.seed);
        let tensor = |i: usize, seed: u64| {
            let (kind, op, plan) = items[i];
            Tensor { sharding: plan.from(), kind, seed: mix(&[seed, i as u64]), op, in_order: false }
        };
        let of = |plan: &Plan| plan.from().mesh().contains(rank) || plan.to().mesh().contains(rank);
        let mut batch = Batch::new();
        for (_, _, plan) in items {
            self.planned(batch.add(*plan))?;
        }
        let title = format!("{} tensors in one batch", items.len());
        let mut result = Vec::new();
        if items.iter().any(|(_, _, plan)| of(plan)) {
            let compiled = self.planned(batch.compile(rank))?;
            let mut sources = Vec::new();
            for seed in [!seed, seed] {
                let mut source = vec![0; batch.source_bytes()];
                for i in 0..items.len() {
                    let shard = self.planned(tensor(i, seed).shard(rank))?;
                    source[self.planned(batch.source_start(i))?..][..shard.len()].copy_from_slice(&shard);
                }
                source.truncate(compiled.source_bytes());
                sources.push(source);
            }
            let results = self.run(&compiled, &sources).map_err(|error| self.broken(&title, error))?;
            // The second result, which must be independent of the first.
            result = results.into_iter().next_back().unwrap_or_default();
        }
        for (i, (kind, _, plan)) in items.iter().enumerate() {
            let bytes = plan.to().local_numel(rank) * kind.item_bytes();
            let start = self.planned(batch.target_start(i))?;
            let shard = if bytes > 0 { result[start..start + bytes].to_vec() } else { Vec::new() };
            let title = format!("{title}, {i}: {}", super::plans::title(plan, *kind, DENSE));
            self.judge(plan, &tensor(i, seed), shard, of(plan), &title)?;
        }
        Ok(())
    }

    /// Tests plans in one buffer.
    pub(super) fn in_place(&mut self) -> Result<(), Failure> {
        for mesh in self.planned(meshes(self.size))? {
            let axes = mesh.axes().len();
            for (kind, shape) in [(Kind::F32, &[64usize, 96][..]), (Kind::BF16, &[7, 5])] {
                let every = |text: &str| vec![text; axes].join(",");
                let plan = self.plan(&mesh, shape, kind, &every("P"), &every("R"))?;
                let title = format!("{} in place", title(&plan, kind, DENSE));
                let tensor = Tensor {
                    sharding: plan.from(),
                    kind,
                    seed: self.options.seed,
                    op: Some(ReduceOp::Sum),
                    in_order: false,
                };
                let mut result = self.planned(tensor.shard(self.rank))?;
                let takes_part = mesh.contains(self.rank);
                if takes_part {
                    let compiled = self.planned(CompiledPlan::new(&plan, self.rank))?;
                    // A single exchange needs two buffers.
                    let results = if compiled.is_in_place() {
                        self.run_in_place(&compiled, &result)
                    } else {
                        self.run(&compiled, &[result]).map(|results| results.concat())
                    };
                    result = results.map_err(|error| self.broken(&title, error))?;
                }
                self.judge(&plan, &tensor, result, takes_part, &title)?;
            }
        }
        Ok(())
    }

    fn run_in_place(&mut self, compiled: &CompiledPlan, source: &[u8]) -> Result<Vec<u8>, Error> {
        let mut scratch = compiled.scratch(self.comm)?;
        let mut bytes = source.to_vec();
        bytes.resize(compiled.in_place_bytes(), 0xa5);
        let mut buffer = self.buffer(&bytes)?;
        compiled.run_in_place(self.comm, buffer.borrow_mut(), &mut scratch)?;
        self.bytes(&buffer, compiled.target_bytes())
    }

    /// Tests exchanges of two groups, both posted before either is waited for.
    pub(super) fn in_flight(&mut self) -> Result<(), Failure> {
        if self.size < 4 {
            self.leave_out();
            return Ok(());
        }
        let mesh = self.planned(format!("x=2,y={}", self.size / 2).parse::<Mesh>())?;
        if !mesh.contains(self.rank) {
            return Ok(());
        }
        for (kind, shape) in Kind::ALL.into_iter().zip(SHAPES.iter().cycle()) {
            let plans = [
                ("S(0),S(1)", "R,S(1)"),
                ("S(0),S(1)", "S(0),R"),
                ("S(0),R", "S(1),R"),
                ("R,S(1)", "R,S(0)"),
            ];
            let mut ready = Vec::new();
            for (seed, (from, to)) in plans.iter().enumerate() {
                let plan = self.plan(&mesh, shape, kind, from, to)?;
                let compiled = self.planned(CompiledPlan::new(&plan, self.rank))?;
                ready.push((seed as u64, plan, compiled));
            }
            let results =
                self.post_all(&ready, kind).map_err(|error| self.broken("several posted at once", error))?;
            for ((seed, plan, _), result) in ready.iter().zip(results) {
                let title = format!("{}, with others in flight", title(plan, kind, DENSE));
                let tensor = Tensor { sharding: plan.from(), kind, seed: *seed, op: None, in_order: false };
                self.judge(plan, &tensor, result, true, &title)?;
            }
        }
        Ok(())
    }

    fn post_all(&mut self, ready: &[(u64, Plan, CompiledPlan)], kind: Kind) -> Result<Vec<Vec<u8>>, Error> {
        let mut buffers = Vec::new();
        for (seed, plan, compiled) in ready {
            // Opens the groups; its buffers are not used.
            let _ = compiled.scratch(self.comm)?;
            let tensor = Tensor { sharding: plan.from(), kind, seed: *seed, op: None, in_order: false };
            let source = self.buffer(&tensor.shard(self.rank)?)?;
            let target = self.buffer(&vec![0xa5; compiled.target_bytes()])?;
            let mut staging = 0;
            for exchange in compiled.exchanges() {
                staging = staging.max(self.comm.staging_bytes(exchange)?);
            }
            buffers.push((source, target, self.comm.allocate(staging)?));
        }
        let mut pending = Vec::new();
        for ((_, _, compiled), (source, target, staging)) in ready.iter().zip(&mut buffers) {
            // Each of these plans is one exchange.
            if let Some(exchange) = compiled.exchanges().next() {
                let source = (*source).borrow();
                pending.push(self.comm.post(exchange, source, target.borrow_mut(), staging.borrow_mut())?);
            }
        }
        for one in pending {
            self.comm.wait(one)?;
        }
        let mut results = Vec::new();
        for ((_, _, compiled), (_, target, _)) in ready.iter().zip(&buffers) {
            results.push(self.bytes(target, compiled.target_bytes())?);
        }
        Ok(results)
    }

    /// Tests that all ranks detect a rank with another plan before any transfer, and can continue.
    pub(super) fn different_plans(&mut self) -> Result<(), Failure> {
        if self.size < 2 {
            self.leave_out();
            return Ok(());
        }
        let mesh = self.planned(Mesh::new([("x", self.size)]))?;
        let shape = [self.size * 4, self.size * 2];
        let plan = self.plan(&mesh, &shape, Kind::F32, "S(0)", "S(1)")?;
        for odd in [self.size - 1, 0] {
            let other = self.plan(&mesh, &shape, Kind::F32, "S(1)", "S(0)")?;
            let mine = if self.rank == odd { &other } else { &plan };
            let compiled = self.planned(CompiledPlan::new(mine, self.rank))?;
            match compiled.scratch(self.comm) {
                Err(Error::Mismatch { .. }) => self.count(),
                Err(error) => {
                    return Err(
                        self.broken("ranks run different plans, but the error is not a mismatch", error)
                    );
                }
                Ok(_) => self.wrong(format!("rank {odd} runs another plan, but this rank got no error")),
            }
            // Another dtype of the same size is another plan too.
            let kind = if self.rank == odd { Kind::I32 } else { Kind::F32 };
            let mine = self.plan(&mesh, &shape, kind, "S(0)", "S(1)")?;
            let compiled = self.planned(CompiledPlan::new(&mine, self.rank))?;
            match compiled.scratch(self.comm) {
                Err(Error::Mismatch { .. }) => self.count(),
                Err(error) => {
                    return Err(
                        self.broken("ranks use different dtypes, but the error is not a mismatch", error)
                    );
                }
                Ok(_) => self.wrong(format!("rank {odd} uses another dtype, but this rank got no error")),
            }
            self.redistribute(&plan, Kind::F32, None)?;
        }
        Ok(())
    }
}

/// Returns rows with three elements of padding between them, on every rank that has elements.
fn padded(sharding: &Sharding) -> Result<BufferLayout, Error> {
    let mut layouts = BTreeMap::new();
    for rank in sharding.mesh().ranks() {
        let shape = sharding.local_shape(rank)?;
        if let [rows, columns] = shape.as_slice()
            && rows * columns > 0
        {
            let (rows, columns) = (*rows as i64, *columns as i64);
            layouts.insert(rank, Layout::from_modes(&[(rows, columns + 3), (columns, 1)])?);
        }
    }
    Ok(BufferLayout::Layouts(layouts))
}

/// Copies a rank's dense shard to its offsets in memory (`out`), or back.
fn place(
    sharding: &Sharding,
    rank: usize,
    memory: &BufferLayout,
    to: &mut [u8],
    from: &[u8],
    item: usize,
    out: bool,
) -> Result<(), Error> {
    if !sharding.mesh().contains(rank) {
        return Ok(());
    }
    let shape = sharding.local_shape(rank)?;
    if shape.contains(&0) {
        return Ok(());
    }
    let dims: Vec<usize> = (0..shape.len()).collect();
    let Some(dense) = BufferLayout::Order(dims).layout(rank, &shape)? else { return Ok(()) };
    let there = memory.layout(rank, &shape)?.unwrap_or_else(|| dense.clone());
    let (target, source) = if out { (&there, &dense) } else { (&dense, &there) };
    reshard_kernels::copy(to, target, from, source, item)?;
    Ok(())
}
