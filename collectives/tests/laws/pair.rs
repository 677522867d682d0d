//! One pair of shardings: plan, execute on threads, compare global tensors and bytes.

use reshard_collectives::TrafficLog;
use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::shards::Reducible;
use reshard_sharding::{Mesh, Placement, Sharding};

/// An element type of the tests: its generator, and its bytes.
pub(crate) trait Item: Reducible {
    const DTYPE: DType;
    fn made(term: usize, element: usize) -> Self;
    fn bytes(self) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Self;
    fn agrees(self, other: Self) -> bool;
}

impl Item for i64 {
    const DTYPE: DType = DType::I64;
    fn made(term: usize, element: usize) -> i64 {
        (element as i64 + 1) * 1_000_003 + (term as i64) * 777_767_777
    }
    fn bytes(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
    fn read(bytes: &[u8]) -> i64 {
        i64::from_ne_bytes(bytes.try_into().unwrap())
    }
    fn agrees(self, other: i64) -> bool {
        self == other
    }
}

/// Floats whose sum depends on the order: partial values of very different sizes, some of which cancel.
impl Item for f32 {
    const DTYPE: DType = DType::F32;
    fn made(term: usize, element: usize) -> f32 {
        let big = [1e7, 0.1, -1e7, 0.7][(term + element) % 4];
        big + (element as f32).sin() * 0.37 + term as f32 * 0.011
    }
    fn bytes(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
    fn read(bytes: &[u8]) -> f32 {
        f32::from_ne_bytes(bytes.try_into().unwrap())
    }
    /// Equal up to rounding: eight partial values of at most 1e7.
    fn agrees(self, other: f32) -> bool {
        (self - other).abs() <= 16.0
    }
}

/// Returns the index of a rank's partial value: its coordinates along the partial axes.
pub(crate) fn term_of(mesh: &Mesh, placements: &[Placement], rank: usize) -> usize {
    let coordinate = mesh.coordinate(rank).unwrap();
    let sizes = mesh.axes().iter().map(reshard_sharding::Axis::size);
    placements.iter().zip(coordinate).zip(sizes).fold(0, |term, ((placement, at), size)| {
        if matches!(placement, Placement::Partial(_)) { term * size + at } else { term }
    })
}

/// Returns shards in which every partial value differs.
pub(crate) fn shards<T: Item>(sharding: &Sharding, placements: &[Placement]) -> Vec<Vec<T>> {
    let mesh = sharding.mesh();
    let shard = |rank: usize| {
        let term = term_of(mesh, placements, rank);
        sharding.global_indices(rank).unwrap().into_iter().map(|element| T::made(term, element)).collect()
    };
    mesh.ranks().map(shard).collect()
}

pub(crate) fn to_bytes<T: Item>(shards: &[Vec<T>]) -> Vec<Vec<u8>> {
    shards.iter().map(|shard| shard.iter().flat_map(|x| x.bytes()).collect()).collect()
}

pub(crate) fn from_bytes<T: Item>(shards: &[Vec<u8>]) -> Vec<Vec<T>> {
    let item = T::DTYPE.element_bytes().unwrap();
    shards.iter().map(|shard| shard.chunks_exact(item).map(T::read).collect()).collect()
}

/// Compares the transferred bytes with the bytes that the plan promised, step by step.
pub(crate) fn check_promises(plan: &Plan, trace: &TrafficLog, what: &str) {
    assert_eq!(trace.worst_received(), plan.received_bytes(), "received in all: {what}\n{plan}");
    for (index, step) in plan.steps().iter().enumerate() {
        let worst = |bytes: &dyn Fn(usize) -> u64| plan.ranks().into_iter().map(bytes).max().unwrap_or(0);
        let received = worst(&|rank| trace.received(|hop| (hop.step, hop.receiver) == (index, rank)));
        let sent = worst(&|rank| trace.sent(|hop| (hop.step, hop.sender) == (index, rank)));
        assert_eq!((received, sent), (step.received_bytes, step.sent_bytes), "step {index}: {what}\n{plan}");
    }
}

/// Plans with this planner, executes, and compares.
pub(crate) fn check_pair<T: Item>(
    world: &mut World,
    planner: &Planner,
    from: &Sharding,
    to: &Sharding,
    source: &[Vec<T>],
) {
    let what = format!("{from} on {} -> {to} on {} of {:?}", from.mesh(), to.mesh(), from.shape());
    let plan = planner.plan(from, to, T::DTYPE).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (result, trace) = world
        .redistribute(&plan, &to_bytes(source))
        .unwrap_or_else(|error| panic!("{what}: {error}\n{plan}"));
    let before = from.assemble(source).unwrap();
    let after =
        to.assemble(&from_bytes::<T>(&result)).unwrap_or_else(|error| panic!("{what}: {error}\n{plan}"));
    let agree = before.len() == after.len() && before.iter().zip(&after).all(|(a, b)| a.agrees(*b));
    assert!(agree, "{what}\n{plan}\n{before:?}\n{after:?}");
    check_promises(&plan, &trace, &what);
}
