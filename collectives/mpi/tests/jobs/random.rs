//! Random redistributions over MPI, compared with the threads engine: every byte of every rank.

use reshard_collectives::{BufferLayout, Communicator, CompiledPlan, threads};
use reshard_kernels::DType;
use reshard_mpi::Comm;
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Placement, ReduceOp, Sharding};

/// A xorshift generator, the same on every rank.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed | 1)
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % sides
    }

    /// Returns a mesh of at most `world` ranks.
    ///
    /// It may begin above rank 0, and its first axis may be the fastest.
    pub(crate) fn mesh(&mut self, world: usize) -> Mesh {
        loop {
            let axes: Vec<usize> = (0..=self.roll(3)).map(|_| self.roll(world) + 1).collect();
            let mut stride = 1;
            let text: Vec<String> = axes
                .iter()
                .enumerate()
                .map(|(i, n)| {
                    let axis = format!("{}={n}:{stride}", ["a", "b", "c"][i]);
                    stride *= n;
                    axis
                })
                .collect();
            let size: usize = axes.iter().product();
            if size > world {
                continue;
            }
            let offset = self.roll(world - size + 1);
            let strided: Mesh = format!("{}@{offset}", text.join(",")).parse().unwrap();
            let plain = Mesh::new(axes.iter().enumerate().map(|(i, n)| (["a", "b", "c"][i], *n))).unwrap();
            return if self.roll(2) == 0 { strided } else { plain };
        }
    }

    pub(crate) fn placements(
        &mut self,
        mesh: &Mesh,
        shape: &[usize],
        op: Option<ReduceOp>,
    ) -> Vec<Placement> {
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

    pub(crate) fn bytes(&mut self, len: usize, dtype: DType) -> Vec<u8> {
        if dtype != DType::F32 {
            return (0..len).map(|_| self.roll(256) as u8).collect();
        }
        // Partial values of very different sizes, some of which cancel: their sum depends on the order.
        let mut float = || [1e7, 0.1, -1e7, 0.7][self.roll(4)] + self.roll(1000) as f32 * 0.37;
        (0..len / 4).flat_map(|_| float().to_ne_bytes()).collect()
    }
}

/// Runs `count` redistributions.
pub(crate) fn run(comm: &mut Comm, seed: u64, count: usize) {
    let world = comm.size();
    let mut dice = Dice::new(seed);
    let mut steps = 0;
    for number in 0..count {
        let shape: Vec<usize> =
            (0..dice.roll(4)).map(|_| [0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 24][dice.roll(11)]).collect();
        let from = dice.mesh(world);
        let to = if dice.roll(3) == 0 { dice.mesh(world) } else { from.clone() };
        let ops = ReduceOp::ALL.into_iter().filter(|op| op.has_identity()).collect::<Vec<_>>();
        let op = ops[dice.roll(ops.len())];
        let before = dice.placements(&from, &shape, Some(op));
        let after = dice.placements(&to, &shape, (from == to).then_some(op));
        let dtype = [DType::I64, DType::F32, DType::I32][dice.roll(3)];
        let dtype = if op.is_of_magnitudes() { DType::F32 } else { dtype };
        let planner = Planner::new().objective(Objective::ALL[dice.roll(3)]);
        let source = Sharding::new(&from, &shape, &before).unwrap();
        let target = Sharding::new(&to, &shape, &after).unwrap();
        let plan = planner.plan(&source, &target, dtype).unwrap();
        let orders: Vec<usize> = (0..shape.len()).rev().collect();
        let memory = |roll: usize| {
            if roll == 0 { BufferLayout::Order(orders.clone()) } else { BufferLayout::RowMajor }
        };
        let (here, there) = (memory(dice.roll(3)), memory(dice.roll(3)));

        // Replicas hold the same bytes only if nothing is partial; the engines must agree on any.
        let item = dtype.element_bytes().unwrap();
        let shards: Vec<Vec<u8>> = from
            .ranks()
            .map(|rank| {
                let len: usize = source.local_shape(rank).unwrap().iter().product();
                dice.bytes(len * item, dtype)
            })
            .collect();
        let what = format!(
            "seed {seed}, number {number}: {source} on {from} -> {target} on {to} of {shape:?}\n{plan}"
        );
        let mut threads = threads::World::new(from.world_size().max(to.world_size())).unwrap();
        let (wanted, wanted_trace) = threads
            .redistribute_layouts(&plan, &shards, &here, &there)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let rank = comm.rank();
        comm.take_trace();
        if from.contains(rank) || to.contains(rank) {
            let compiled = CompiledPlan::with_layouts(&plan, rank, &here, &there).unwrap();
            let shard = from.ranks().position(|r| r == rank).map_or(Vec::new(), |at| shards[at].clone());
            let mut scratch = compiled.scratch(comm).unwrap();
            let mut got = vec![0xEE; compiled.target_bytes()];
            for _ in 0..2 {
                compiled
                    .run(comm, &shard, &mut got, &mut scratch)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            if let Some(at) = to.ranks().position(|r| r == rank) {
                assert!(got == wanted[at], "rank {rank} of {what}\n{got:?}\n{:?}", wanted[at]);
            }
        }
        let trace = comm.take_trace();
        assert_eq!(trace.received_by(rank), 2 * wanted_trace.received_by(rank), "{what}");
        assert_eq!(trace.sent_by(rank), 2 * wanted_trace.sent_by(rank), "{what}");
        steps += usize::from(wanted_trace.total() > 0);
    }
    assert!(world == 1 || steps * 4 > count, "only {steps} of {count} redistributions sent bytes");
}
