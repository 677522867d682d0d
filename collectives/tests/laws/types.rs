//! Redistributions between types: values go forward by one plan, gradients backward by another, its adjoint.

use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner, StepOp};
use reshard_sharding::{Mesh, Sharding, ShardingType};
use reshard_test_support::{Random, Sweep, random_mesh, random_shape, random_sharding, shards_of};

/// Maximum number of ranks of a random mesh.
const RANKS: usize = 12;

/// Runs a plan on threads, and returns the result as numbers.
pub(crate) fn carried(world: &mut World, plan: &Plan, shards: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let bytes = |shard: &Vec<i64>| shard.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
    let (moved, _) = world.redistribute(plan, &shards.iter().map(bytes).collect::<Vec<_>>()).unwrap();
    let number = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().unwrap());
    moved.iter().map(|shard| shard.chunks_exact(8).map(number).collect()).collect()
}

/// Returns shards of small numbers.
pub(crate) fn small(s: &Sharding, seed: u64) -> Vec<Vec<i64>> {
    let all = shards_of(s, seed);
    all.into_iter().map(|shard| shard.into_iter().map(|x| x / 720_720).collect()).collect()
}

pub(crate) fn product<'a>(a: impl IntoIterator<Item = &'a i64>, b: impl IntoIterator<Item = &'a i64>) -> i64 {
    a.into_iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Checks `<y*, f x> == <f* y*, x>` on the global tensors.
///
/// If a gradient has the cotangent sharding, it is also checked on the values of every rank.
fn check_move(world: &mut World, planner: &Planner, from: &ShardingType, to: &ShardingType, seed: u64) {
    let what = || format!("{from} -> {to} of {:?} on {}", from.value.shape(), from.value.mesh());
    let plan = |a: &Sharding, b: &Sharding| {
        planner.plan(a, b, DType::I64).unwrap_or_else(|e| panic!("{}: {e}", what()))
    };
    let (Some(before), Some(after)) = (&from.gradient, &to.gradient) else {
        panic!("{} has no gradient", what())
    };
    let (x, y) = (small(&from.value, seed), small(after, seed ^ 0xabc_def1));
    let forward = carried(world, &plan(&from.value, &to.value), &x);
    let backward = carried(world, &plan(after, before), &y);
    let dot = |a: (&Sharding, &[Vec<i64>]), b: (&Sharding, &[Vec<i64>])| {
        let whole = product(&a.0.assemble(a.1).unwrap(), &b.0.assemble(b.1).unwrap());
        if a.0.cotangent().as_ref() == Ok(b.0) {
            let by_ranks: i64 = a.1.iter().zip(b.1).map(|(a, b)| product(a, b)).sum();
            assert_eq!(by_ranks, whole, "{}", what());
        }
        whole
    };
    let at_the_end = dot((&to.value, &forward), (after, &y));
    let at_the_start = dot((&from.value, &x), (before, &backward));
    assert_eq!(at_the_end, at_the_start, "{}", what());
}

/// For the transitions of one axis, x=4, f32[16,8], the forward and backward ops are the planner's.
#[test]
fn the_sixteen_moves_of_an_axis_are_plans() {
    use StepOp::{AllGather, AllReduce, AllToAll, ReduceScatter, Slice, ZeroFill};
    let mesh: Mesh = "x=4".parse().unwrap();
    let table: [(&str, &str, Option<StepOp>, Option<StepOp>); 17] = [
        ("R", "I", None, Some(ZeroFill)),
        ("R", "S(0)", Some(Slice), Some(ZeroFill)),
        ("R", "P", Some(ZeroFill), Some(ZeroFill)),
        ("I", "R", None, Some(AllReduce)),
        ("I", "S(0)", Some(Slice), Some(AllGather)),
        ("I", "P", Some(ZeroFill), None),
        ("S(0)", "R", Some(AllGather), Some(ReduceScatter)),
        ("S(0)", "I", Some(AllGather), Some(Slice)),
        ("S(0)", "S(1)", Some(AllToAll), Some(AllToAll)),
        ("S(0)", "P", Some(ZeroFill), Some(Slice)),
        ("P", "R", Some(AllReduce), Some(AllReduce)),
        ("P", "I", Some(AllReduce), None),
        ("P", "S(0)", Some(ReduceScatter), Some(AllGather)),
        ("R", "R", None, None),
        ("I", "I", None, None),
        ("P", "P", None, None),
        ("S(0)", "S(0)", None, None),
    ];
    let mut world = World::new(4).unwrap();
    for (i, (from, to, forward, backward)) in table.into_iter().enumerate() {
        let [from, to] = [from, to].map(|text| ShardingType::parse(&mesh, &[16, 8], text).unwrap());
        let ops = |a: &Sharding, b: &Sharding| {
            let plan = Planner::new().plan(a, b, DType::F32).unwrap();
            plan.steps().iter().map(reshard_planner::Step::op).collect::<Vec<_>>()
        };
        let gradients = (to.gradient.as_ref().unwrap(), from.gradient.as_ref().unwrap());
        assert_eq!(ops(&from.value, &to.value), forward.into_iter().collect::<Vec<_>>(), "{from} -> {to}");
        assert_eq!(ops(gradients.0, gradients.1), backward.into_iter().collect::<Vec<_>>(), "{from} <- {to}");
        check_move(&mut world, &Planner::new(), &from, &to, i as u64 + 1);
    }
}

#[test]
fn forward_and_backward_of_any_move_are_adjoint() {
    let mut r = Random(Sweep::asked().seed() + 11);
    let mut worlds: Vec<World> = (1..=RANKS).map(|n| World::new(n).unwrap()).collect();
    let planner = Planner::new();
    for case in 0..Sweep::asked().count(1_500, 100_000) {
        let (mesh, shape) = (random_mesh(&mut r), random_shape(&mut r));
        let mut any = || {
            let value = random_sharding(&mut r, &mesh, &shape);
            match r.below(4) {
                0 => ShardingType::new(value, Some(random_sharding(&mut r, &mesh, &shape))),
                1 => ShardingType::new(value.clone(), Some(value)),
                _ => ShardingType::from_value(value).unwrap(),
            }
        };
        let (from, to) = (any(), any());
        check_move(&mut worlds[mesh.world_size() - 1], &planner, &from, &to, case + 1);
    }
}
