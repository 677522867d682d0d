//! Transposed plans: they are plans between the cotangent shardings, and the transposes of the original
//! plans.

use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Objective, Phase, Plan, Planner, Topology};
use reshard_sharding::{Mesh, Sharding, ShardingType};
use reshard_test_support::{Random, Sweep, random_mesh, random_shape, random_sharding};

use crate::pair::{Item, check_promises, from_bytes, to_bytes};
use crate::types::{carried, product, small};

/// Maximum number of ranks of a random mesh.
const RANKS: usize = 12;

/// Returns planners for networks of one and of two levels.
fn planners() -> Vec<Planner> {
    let mut all = Vec::new();
    for topology in [
        Topology::uniform(),
        Topology::h100(),
        "launch=5;message=0.3;level=4:1.5:300;level=*:9:25".parse().unwrap(),
    ] {
        for objective in Objective::ALL {
            all.push(Planner::new().topology(topology.clone()).objective(objective));
        }
    }
    all
}

/// Counts of additions into parts of a filled target, additions into whole targets, and fills of parts only.
#[derive(Debug, Default)]
struct Forms {
    added_into_parts: u64,
    added: u64,
    filled: u64,
    refused: u64,
}

impl Forms {
    fn count(&mut self, plan: &Plan) {
        let all = |rank| plan.phases(rank).unwrap().into_iter().map(|(_, phase)| phase);
        let any = |fills: bool, reduces: bool| {
            let is =
                |phase: &Phase| (phase.fill_identity.is_some(), phase.reduce.is_some()) == (fills, reduces);
            u64::from(plan.ranks().into_iter().any(|rank| all(rank).any(|phase| is(&phase))))
        };
        self.added_into_parts += any(true, true);
        self.added += any(false, true);
        self.filled += any(true, false);
    }
}

/// Runs a plan and its transpose, and checks `<y, f x> == <f* y, x>` per rank and on the global tensors.
///
/// It also checks all promises of the plan, and that replicas of floats agree to the bit.
fn check_transposed(world: &mut World, plan: &Plan, floats: &Plan, seed: u64, forms: &mut Forms) {
    let what = || format!("of {:?}:\n{plan}", plan.from().shape());
    let turned = |plan: &Plan| match plan.transposed() {
        Ok(back) => Some(back),
        Err(e) if e.code() == "unsupported" => None,
        Err(e) => panic!("{e} {}", what()),
    };
    let (Some(back), Some(back_floats)) = (turned(plan), turned(floats)) else {
        forms.refused += 1;
        return;
    };
    forms.count(&back);
    assert_eq!(
        (back.from(), back.to()),
        (&plan.to().cotangent().unwrap(), &plan.from().cotangent().unwrap())
    );
    let (x, y) = (small(plan.from(), seed), small(back.from(), seed ^ 0xabc_def1));
    let there = carried(world, plan, &x);
    let (moved, trace) =
        world.redistribute(&back, &to_bytes(&y)).unwrap_or_else(|e| panic!("{e} {}\n{back}", what()));
    let again: Vec<Vec<i64>> = from_bytes(&moved);
    check_promises(&back, &trace, &what());
    let meant = |s: &Sharding, shards: &[Vec<i64>]| {
        s.assemble(shards).unwrap_or_else(|e| panic!("{e} {}\n{back}", what()))
    };
    assert_eq!(meant(back.from(), &y), meant(back.to(), &again), "{}\n{back}", what());
    assert_eq!(meant(plan.from(), &x), meant(plan.to(), &there), "{}", what());
    if plan.from().mesh() == plan.to().mesh() {
        let by_ranks =
            |a: &[Vec<i64>], b: &[Vec<i64>]| -> i64 { a.iter().zip(b).map(|(a, b)| product(a, b)).sum() };
        assert_eq!(by_ranks(&y, &there), by_ranks(&again, &x), "{}\n{back}", what());
    }
    // Floats of very different sizes, whose sums depend on the order.
    let float = |x: &i64| f32::made(x.unsigned_abs() as usize % 4, x.unsigned_abs() as usize);
    let y: Vec<Vec<f32>> = y.iter().map(|shard| shard.iter().map(float).collect()).collect();
    let (moved, _) = world.redistribute(&back_floats, &to_bytes(&y)).unwrap();
    back_floats
        .to()
        .assemble(&from_bytes::<f32>(&moved))
        .unwrap_or_else(|e| panic!("{e} {}\n{back_floats}", what()));
}

#[test]
fn a_plan_turned_round_is_its_transpose() {
    let mut r = Random(Sweep::asked().seed() + 12);
    let mut worlds: Vec<World> = (1..=RANKS).map(|n| World::new(n).unwrap()).collect();
    let planners = planners();
    let mut forms = Forms::default();
    let count = Sweep::asked().count(300, 40_000);
    for case in 0..count {
        let (mesh, shape) = (random_mesh(&mut r), random_shape(&mut r));
        let other = if r.below(8) == 0 { random_mesh(&mut r) } else { mesh.clone() };
        let mut any = |mesh: &Mesh| {
            let value = random_sharding(&mut r, mesh, &shape);
            match r.below(3) {
                0 => ShardingType::new(value, Some(random_sharding(&mut r, mesh, &shape))),
                1 => ShardingType::new(value.clone(), Some(value)),
                _ => ShardingType::from_value(value).unwrap(),
            }
        };
        let (from, to) = (any(&mesh), any(&other));
        let planner = &planners[case as usize % planners.len()];
        let world = &mut worlds[mesh.world_size().max(other.world_size()) - 1];
        // A redistribution is two plans: values go forward, gradients backward.
        let gradients = (to.gradient.as_ref().unwrap(), from.gradient.as_ref().unwrap());
        for (i, (a, b)) in [(&from.value, &to.value), gradients].into_iter().enumerate() {
            let plan = |dtype| planner.plan(a, b, dtype).unwrap();
            check_transposed(
                world,
                &plan(DType::I64),
                &plan(DType::F32),
                2 * case + i as u64 + 1,
                &mut forms,
            );
        }
    }
    println!("{count} redistributions: {forms:?}");
    let Forms { added_into_parts, added, filled, refused } = forms;
    assert!(
        added_into_parts > count / 20 && added > count / 20 && filled > count / 20 && refused < count / 20
    );
}
