//! One scratch for many plans, and scratch of other plans.

use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, CompiledPlan, Error, Scratch};
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

const PAIRS: [(&str, &str); 6] = [
    ("P,P", "R,R"),
    ("S(0),S(1)", "S(1),S(0)"),
    ("P,S(0)", "S(1),S(0)"),
    ("R,R", "S(0),S(1)"),
    ("P,P", "S(0),R"),
    ("S(0),R", "R,S(1)"),
];

fn plan(shape: &[usize], from: &str, to: &str) -> Plan {
    let mesh: Mesh = "x=2,y=2".parse().unwrap();
    let parse = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
    Planner::new().topology(Topology::h100()).plan(&parse(from), &parse(to), DType::U8).unwrap()
}

#[test]
fn plans_that_share_scratch_do_what_each_does_alone() {
    let plans: Vec<Plan> = [[3, 5], [8, 12], [2, 2], [16, 4]]
        .iter()
        .flat_map(|shape| PAIRS.map(|(from, to)| plan(shape, from, to)))
        .collect();
    let mut world = World::new(4).unwrap();
    for reserved_first in [true, false] {
        let results = world.run(|comm| {
            let mut scratch = Scratch::new();
            let compiled = plans.iter().map(|plan| CompiledPlan::new(plan, comm.rank()));
            let compiled = compiled.collect::<Result<Vec<_>, _>>()?;
            if reserved_first {
                compiled.iter().try_for_each(|one| one.reserve(comm, &mut scratch))?;
            }
            let mut targets = Vec::new();
            for _ in 0..2 {
                targets.clear();
                for (plan, compiled) in plans.iter().zip(&compiled) {
                    if !reserved_first {
                        // It grows while plans that used it are still to be used.
                        compiled.reserve(comm, &mut scratch)?;
                    }
                    let whole: Vec<u8> = (0..plan.from().numel()).map(|i| i as u8 + 1).collect();
                    let mut target = vec![0; compiled.target_bytes()];
                    let shards = plan.from().shard_all(&whole, 0).map_err(Error::from)?;
                    compiled.run(comm, &shards[comm.rank()], &mut target, &mut scratch)?;
                    targets.push(target);
                }
            }
            let bytes = compiled.iter().map(CompiledPlan::scratch_bytes);
            let largest = bytes.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
            assert_eq!(scratch.bytes(), (largest.0, largest.1, 0));
            Ok::<_, Error>(targets)
        });
        for (rank, result) in results.into_iter().enumerate() {
            for (plan, target) in plans.iter().zip(result.unwrap()) {
                let held = plan.to().global_indices(rank).unwrap();
                let should: Vec<u8> = held.into_iter().map(|e| e as u8 + 1).collect();
                assert_eq!(target, should, "rank {rank}: {plan}");
            }
        }
    }
}

#[test]
fn the_scratch_buffer_that_is_too_short_is_named() {
    let (little, much) = (plan(&[4, 4], "P,P", "R,R"), plan(&[64, 64], "P,P", "R,R"));
    let results = World::new(4).unwrap().run(|comm| {
        let (little, much) =
            (CompiledPlan::new(&little, comm.rank())?, CompiledPlan::new(&much, comm.rank())?);
        let mut foreign = little.scratch(comm)?;
        let (needed, given) = (much.scratch_bytes().0, little.scratch_bytes().0);
        let (source, mut target) = (vec![1; much.source_bytes()], vec![0; much.target_bytes()]);
        let error = much.run(comm, &source, &mut target, &mut foreign).unwrap_err();
        let rank = comm.rank();
        assert_eq!(
            error.to_string(),
            format!("the first scratch buffer of rank {rank} has {given} bytes but {needed} are needed")
        );
        let error = much.run_in_place(comm, &mut source.clone(), &mut foreign).unwrap_err();
        assert_eq!(error.code(), "buffer");
        let error = much.run(comm, &source, &mut target, &mut Scratch::new()).unwrap_err();
        assert_eq!(error.code(), "not_agreed");
        // Nothing has begun: the plan runs once it has the scratch that it needs.
        much.reserve(comm, &mut foreign)?;
        much.run(comm, &source, &mut target, &mut foreign)?;
        let error = much.run(comm, &source[1..], &mut target, &mut foreign).unwrap_err();
        assert!(error.to_string().starts_with(&format!("the source of rank {rank} has")), "{error}");
        Ok::<_, Error>(target)
    });
    assert!(results.into_iter().all(|target| target.unwrap() == vec![4; 64 * 64]));
}

#[test]
fn shards_are_of_the_plans_type_or_bytes() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let parse = |text: &str| Sharding::parse(&mesh, &[3, 2], text).unwrap();
    let mut world = World::new(2).unwrap();
    let whole = [1.5_f32, -2.0, 0.25, 4.0, 5.0, 6.0];
    let [from, to] = ["S(0)", "S(1)"].map(parse);
    let plan = Planner::new().plan(&from, &to, DType::F32).unwrap();
    let shards = from.shard_all(&whole, 0.0).unwrap();
    let (typed, _) = world.redistribute::<f32>(&plan, &shards).unwrap();
    assert_eq!(typed, to.shard_all(&whole, 0.0).unwrap());
    let bytes: Vec<Vec<u8>> =
        shards.iter().map(|s| s.iter().flat_map(|x| x.to_ne_bytes()).collect()).collect();
    let (bytes, _) = world.redistribute::<u8>(&plan, &bytes).unwrap();
    let same = |(typed, bytes): (&Vec<f32>, &Vec<u8>)| {
        *bytes == typed.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>()
    };
    assert!(typed.iter().zip(&bytes).all(same));
    let error = world.redistribute::<f64>(&plan, &[vec![0.0; 2], vec![0.0; 1]]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the shards have dtype f64, but the plan is for f32; pass f32 elements, or their bytes as u8"
    );
    let error = world.redistribute::<i32>(&plan, &[vec![0; 4], vec![0; 2]]).unwrap_err();
    assert_eq!(error.code(), "dtype");
    let error = world.redistribute::<f32>(&plan, &[vec![0.0; 4], vec![0.0; 3]]).unwrap_err();
    assert_eq!(error.to_string(), "the source of rank 1 has 12 bytes but 8 are needed");
}
