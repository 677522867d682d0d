//! Random meshes, shapes, shardings, dtypes, memory layouts, planners, batches and engines.
//!
//! `RESHARD_SOAK_TENSORS` is the number of tensors, `RESHARD_SOAK_SEED` the seed (1, or `random`). Every
//! result is compared with its global tensor. A failure prints the case; the seed is printed at the beginning
//! and at the end.

use std::collections::BTreeMap;
use std::thread;

use crate::mailbox::{Habit, Mailbox};
use crate::pair::{check_pair, shards};
use reshard_collectives::threads::World;
use reshard_collectives::{BufferLayout, Error};
use reshard_conformance::{ContractCase, ContractOptions, Failure, check_batch, check_one};
use reshard_kernels::DType;
use reshard_layout::Layout;
use reshard_planner::{Objective, Plan, Planner};
use reshard_sharding::{Mesh, Placement, ReduceOp, Sharding};
use reshard_test_support::seed;

const RANKS: usize = 12;

/// Default number of tensors, which takes about a second.
const TENSORS: usize = 1_000;

/// A xorshift generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % sides
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }

    /// Returns a mesh of one to three axes, in any order of strides, perhaps not from rank 0.
    fn mesh(&mut self) -> Mesh {
        loop {
            let axes: Vec<usize> = (0..=self.roll(3)).map(|_| self.roll(4) + 1).collect();
            let names = ["a", "b", "c"];
            let mut order: Vec<usize> = (0..axes.len()).collect();
            order.rotate_left(self.roll(axes.len()));
            let mut strides = vec![1; axes.len()];
            let mut stride = 1 + self.roll(2);
            for axis in order {
                strides[axis] = stride;
                stride *= axes[axis];
            }
            let axis = |i: usize| format!("{}={}:{}", names[i], axes[i], strides[i]);
            let text = (0..axes.len()).map(axis).collect::<Vec<_>>().join(",");
            let text = if self.roll(4) == 0 { format!("{text}@{}", self.roll(3)) } else { text };
            let mesh: Mesh = text.parse().unwrap();
            if mesh.world_size() <= RANKS {
                return mesh;
            }
        }
    }

    /// Returns a planner with a uniform or multi-level network, for any objective.
    fn planner(&mut self) -> Planner {
        let topologies = ["uniform", "h100", "launch=5;message=0.1;level=2:1:100;level=4:2:40;level=*:5:10"];
        let topology = self.one_of(&topologies).parse().unwrap();
        let planner = Planner::new().topology(topology).objective(self.one_of(&Objective::ALL));
        planner.deterministic(self.roll(5) == 0)
    }

    fn shape(&mut self) -> Vec<usize> {
        (0..self.roll(4)).map(|_| self.one_of(&[0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 24])).collect()
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

    /// Returns a dense memory layout in any order of dims, or one with gaps after the rows.
    fn memory(&mut self, sharding: &Sharding) -> BufferLayout {
        let dims = sharding.shape().len();
        match self.roll(4) {
            0 => {
                let mut order: Vec<usize> = (0..dims).collect();
                for i in (1..dims).rev() {
                    order.swap(i, self.roll(i + 1));
                }
                BufferLayout::Order(order)
            }
            1 if dims > 0 => {
                let gap = self.roll(4) as i64;
                let layout = |rank: usize| {
                    let shape = sharding.local_shape(rank).unwrap();
                    let mut modes = vec![(1i64, 1i64); dims];
                    let mut stride = 1;
                    for (mode, extent) in modes.iter_mut().zip(&shape).rev() {
                        *mode = (*extent as i64, stride);
                        stride = stride * *extent as i64 + gap;
                    }
                    (!shape.contains(&0)).then(|| (rank, Layout::from_modes(&modes).unwrap()))
                };
                BufferLayout::Layouts(sharding.mesh().ranks().filter_map(layout).collect::<BTreeMap<_, _>>())
            }
            _ => BufferLayout::RowMajor,
        }
    }

    /// Returns a plan for a dtype; `None` if the dtype lacks its arithmetic.
    fn plan(&mut self, dtype: DType) -> Option<Plan> {
        let shape = self.shape();
        let from = self.mesh();
        let to = if self.roll(3) == 0 { self.mesh() } else { from.clone() };
        let op = self.one_of(&ReduceOp::ALL);
        let before = self.placements(&from, &shape, Some(op));
        let after = self.placements(&to, &shape, (from == to && op != ReduceOp::Avg).then_some(op));
        let source = Sharding::new(&from, &shape, &before).unwrap();
        let target = Sharding::new(&to, &shape, &after).unwrap();
        let partial = source.is_partial() || target.is_partial();
        let is_float = dtype.check_average().is_ok();
        let of_floats = op.divides() || op.is_of_magnitudes();
        if partial && (dtype == DType::Bool || (of_floats && !is_float)) {
            return None;
        }
        let planner = self.planner();
        let plan = planner.plan(&source, &target, dtype);
        Some(
            plan.unwrap_or_else(|error| {
                panic!("{source} on {from} -> {target} on {to} of {shape:?}: {error}")
            }),
        )
    }
}

/// Runs ranks that share no memory, each on a thread.
fn by_mail(
    mailboxes: Vec<Mailbox>,
    job: impl Fn(&mut Mailbox) -> Result<(), Failure> + Sync,
) -> Vec<Mailbox> {
    thread::scope(|scope| {
        let job = &job;
        let run = |mut mailbox: Mailbox| {
            scope.spawn(move || {
                job(&mut mailbox).unwrap_or_else(|failure| panic!("{failure}"));
                mailbox
            })
        };
        let threads: Vec<_> = mailboxes.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn on_threads(
    world: &mut World,
    what: &str,
    job: impl Fn(&mut reshard_collectives::threads::ThreadCommunicator) -> Result<(), Failure> + Sync,
) {
    for result in world.run(|comm| Ok::<_, Error>(job(comm))) {
        result
            .unwrap_or_else(|error| panic!("{error}: {what}"))
            .unwrap_or_else(|failure| panic!("{failure}: {what}"));
    }
}

const DTYPES: [DType; 8] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8, DType::Bool];

#[test]
fn random_redistributions() {
    let seed = seed("RESHARD_SOAK_SEED", 1);
    let count = std::env::var("RESHARD_SOAK_TENSORS")
        .map_or(TENSORS, |text| text.parse().expect("a number of tensors"));
    println!(
        "RESHARD_SOAK_SEED={seed} RESHARD_SOAK_TENSORS={count} cargo test -p reshard-collectives --test laws random_redistributions"
    );
    let mut dice = Dice(seed | 1);
    let mut world = World::new(RANKS).unwrap();
    let mut mailboxes = Mailbox::all(RANKS, Habit::Sound);
    let (mut done, mut tensors) = ([0; 4], 0);
    while tensors < count {
        let kind = dice.roll(8);
        let options = ContractOptions { seed: dice.0, ..ContractOptions::default() };
        if kind == 0 {
            let list: Vec<(DType, Plan)> = (0..=dice.roll(8))
                .filter_map(|_| {
                    let dtype = dice.one_of(&DTYPES);
                    Some((dtype, dice.plan(dtype)?))
                })
                .collect();
            let dense = &BufferLayout::RowMajor;
            let trial = |(dtype, plan)| ContractCase { plan, dtype, source: dense, target: dense };
            let trials: Vec<ContractCase<'_>> =
                list.iter().map(|(dtype, plan)| trial((*dtype, plan))).collect();
            let what: Vec<String> = list.iter().map(|(dtype, plan)| format!("{dtype} {plan}")).collect();
            let what = what.join("\n");
            on_threads(&mut world, &what, |comm| check_batch(comm, &options, &trials));
            done[0] += 1;
            tensors += trials.len();
            continue;
        }
        let dtype = dice.one_of(&DTYPES);
        let Some(plan) = dice.plan(dtype) else { continue };
        let (source, target) = (dice.memory(plan.from()), dice.memory(plan.to()));
        let trial = ContractCase { plan: &plan, dtype, source: &source, target: &target };
        tensors += 1;
        if kind == 1 {
            mailboxes = by_mail(mailboxes, |mailbox| check_one(mailbox, &options, &trial));
            done[1] += 1;
        } else if kind < 5 {
            let what = format!("{source} to {target} in {dtype}\n{plan}");
            on_threads(&mut world, &what, |comm| check_one(comm, &options, &trial));
            done[2] += 1;
        } else {
            // Here the transferred bytes are also compared with the plan's.
            let Ok(placements) = plan.from().placements() else { continue };
            // The generated numbers have both signs, but partial values of a norm have none below 0.
            if plan.to().partial().iter().any(|axis| axis.op.is_of_magnitudes()) {
                continue;
            }
            let (from, to) = (plan.from().clone(), plan.to().clone());
            let planner = Planner::from(plan.options().clone());
            let is = |op: ReduceOp| from.partial().iter().chain(to.partial()).any(|axis| axis.op == op);
            if dtype.check_average().is_ok() && !is(ReduceOp::Prod) {
                check_pair(&mut world, &planner, &from, &to, &shards::<f32>(&from, placements.as_ref()));
            } else if !is(ReduceOp::Avg) {
                check_pair(&mut world, &planner, &from, &to, &shards::<i64>(&from, placements.as_ref()));
            }
            done[3] += 1;
        }
    }
    let [batches, by_mail, judged, counted] = done;
    println!(
        "seed {seed}: {tensors} tensors: {batches} batches, {by_mail} by the mailbox engine, {judged} in any dtype and \
         memory, {counted} with the bytes counted"
    );
}
