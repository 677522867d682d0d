//! Ranks that fail: the others get an error that names the rank, promptly, and the world can be used again.

use std::time::{Duration, Instant};

use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_conformance::{Fault, FaultKind};
use reshard_kernels::DType;
use reshard_planner::{Arithmetic, Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

/// Time after which a run counts as hanging; no machine is that slow.
const HANGS: Duration = Duration::from_mins(1);

fn plan(from: &str, to: &str, shape: &[usize]) -> Plan {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let parse = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
    Planner::new().plan(&parse(from), &parse(to), DType::F32).unwrap()
}

fn shards(plan: &Plan) -> Vec<Vec<u8>> {
    let mesh = plan.from().mesh();
    mesh.ranks()
        .map(|rank| vec![rank as u8; plan.from().local_shape(rank).unwrap().iter().product::<usize>() * 4])
        .collect()
}

/// Runs a plan on every rank, and returns the result of each and its duration.
fn run(world: &mut World, plan: &Plan) -> Vec<(Result<(), Error>, Duration)> {
    let data = shards(plan);
    let results = world.run(|comm| {
        let compiled = CompiledPlan::new(plan, comm.rank())?;
        let mut scratch = compiled.scratch(comm)?;
        let mut target = vec![0; compiled.target_bytes()];
        let begin = Instant::now();
        let result = compiled.run(comm, &data[comm.rank()], &mut target, &mut scratch);
        let time = begin.elapsed();
        Ok((result, time))
    });
    results.into_iter().map(|result| result.unwrap_or_else(|error| (Err(error), Duration::ZERO))).collect()
}

/// The order of the failures differs between runs, but not the message.
#[test]
fn of_several_ranks_that_fail_on_their_own_the_lowest_is_named() {
    let plan = plan("S(0),S(0)", "S(1),S(1)", &[64, 64]);
    let mut world = World::new(4).unwrap();
    for wrong in [&[0, 1, 2, 3][..], &[1, 2, 3], &[2, 3], &[3, 1]] {
        let mut given = shards(&plan);
        for rank in wrong {
            given[*rank].truncate(8);
        }
        for _ in 0..20 {
            let error = world.redistribute(&plan, &given).unwrap_err();
            let lowest = *wrong.iter().min().unwrap();
            let named = matches!(error, Error::Buffer { rank, which: "source", .. } if rank == lowest);
            assert!(named, "{wrong:?}: {error}");
        }
    }
}

#[test]
fn every_other_rank_names_the_one_that_failed() {
    let all_to_all = plan("S(0),S(0)", "S(1),S(1)", &[64, 64]);
    let reduction = plan("P,P", "R,R", &[64, 64]);
    // Large enough that ranks read from each other before all have arrived.
    let large = plan("S(0),S(0)", "S(1),S(1)", &[1024, 1024]);
    let mut world = World::new(4).unwrap();
    for plan in [&all_to_all, &reduction, &large] {
        for kind in [FaultKind::Panic, FaultKind::PanicInside, FaultKind::Fail] {
            for rank in 0..4 {
                world.inject_faults([Fault { rank, step: 0, kind }]);
                for (other, (result, time)) in run(&mut world, plan).into_iter().enumerate() {
                    let error = result.expect_err("no rank reports success");
                    assert_eq!(
                        error.failed_rank(),
                        Some(rank),
                        "rank {other} on {kind:?} of {rank}: {error}"
                    );
                    assert!(time < HANGS, "rank {other} took {time:?}");
                    if other != rank {
                        assert_eq!(error.code(), "rank_failed");
                        let text = error.to_string();
                        assert!(
                            text.contains(&format!("rank {rank}"))
                                && text.contains("step 0 of group [0,1,2,3]"),
                            "{text}"
                        );
                    }
                }
                world.inject_faults([]);
                assert!(run(&mut world, plan).iter().all(|(result, _)| result.is_ok()), "the world recovers");
            }
        }
    }
}

#[test]
fn a_stalled_rank_is_named_within_the_time_out() {
    let mut world = World::new(4).unwrap();
    for plan in [plan("S(0),S(0)", "S(1),S(1)", &[64, 64]), plan("S(0),S(0)", "S(1),S(1)", &[1024, 1024])] {
        a_stalled_rank_is_named(&mut world, &plan);
    }
}

fn a_stalled_rank_is_named(world: &mut World, plan: &Plan) {
    let time_out = Duration::from_millis(300);
    world.set_timeout(time_out);
    world.inject_faults([Fault { rank: 2, step: 0, kind: FaultKind::Stall(Duration::from_secs(2)) }]);
    let seen = run(world, plan);
    let times: Vec<Duration> = seen.iter().map(|(_, time)| *time).collect();
    for (rank, (result, time)) in seen.into_iter().enumerate() {
        let error = result.expect_err("no rank reports success");
        assert_eq!(error.failed_rank(), Some(2), "rank {rank}: {error}");
        if rank != 2 {
            let text = error.to_string();
            assert!(text.contains("rank 2") && text.contains("step 0 of group [0,1,2,3]"), "{text}");
            // However busy the machine is, no rank waits for as long as the rank stalls.
            assert!(time < times[2], "rank {rank} took {time:?} of {times:?}");
        }
    }
    // Later ranks found that it had failed; the first of them waited.
    let longest = [0, 1, 3].map(|rank: usize| times[rank]).into_iter().max();
    assert!(longest >= Some(time_out), "{times:?}");
    world.inject_faults([]);
    world.set_timeout(Duration::from_secs(20));
    assert!(run(world, plan).iter().all(|(result, _)| result.is_ok()));
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let mut world = World::new(3).unwrap();
    let results = world.run(|comm| if comm.rank() == 1 { Ok(()) } else { comm.barrier(&[0, 1, 2]) });
    assert_eq!(results[1], Ok(()));
    for rank in [0, 2] {
        let error = results[rank].as_ref().unwrap_err();
        assert_eq!(error.failed_rank(), Some(1));
        assert!(
            error.to_string().ends_with("while others waited for it in a barrier of group [0,1,2]"),
            "{error}"
        );
    }
    assert!(world.run(|comm| comm.barrier(&[0, 1, 2])).iter().all(Result::is_ok));
}

#[test]
fn a_rank_that_never_comes_to_a_barrier_is_named() {
    let mut world = World::new(3).unwrap();
    world.set_timeout(Duration::from_millis(200));
    // The rank leaves, or it is busy with other work for too long.
    for stall in [Duration::ZERO, Duration::from_millis(800)] {
        for missing in 0..3 {
            let checked = world.run(|comm| {
                let checked = reshard_conformance::check_missing(comm, missing);
                if comm.rank() == missing {
                    std::thread::sleep(stall);
                }
                Ok::<_, Error>(checked)
            });
            let failed = checked.iter().flatten().find_map(|checked| checked.as_ref().err());
            assert_eq!(failed, None);
        }
    }
}

#[test]
fn different_plans_are_noticed() {
    let plans = [plan("S(0),S(0)", "S(1),S(1)", &[64, 64]), plan("S(0),S(0)", "S(1),S(1)", &[64, 32])];
    let mut world = World::new(4).unwrap();
    let results = world.run(|comm| {
        let plan = &plans[usize::from(comm.rank() == 3)];
        let compiled = CompiledPlan::new(plan, comm.rank())?;
        let mut scratch = compiled.scratch(comm)?;
        let (source, mut target) = (vec![0; compiled.source_bytes()], vec![0; compiled.target_bytes()]);
        compiled.run(comm, &source, &mut target, &mut scratch)
    });
    // All get an error before any transfer: rank 3 names the first other rank, the others name rank 3.
    for (rank, result) in results.iter().enumerate() {
        let error = result.as_ref().unwrap_err();
        assert_eq!((error.code(), error.failed_rank()), ("mismatch", Some(if rank == 3 { 0 } else { 3 })));
        assert!(error.to_string().ends_with("runs another plan in step 0 of group [0,1,2,3]"), "{error}");
    }
}

#[test]
fn a_reader_that_is_done_and_leaves_is_not_missed() {
    // Rank 0 has much data and waits for its readers, which have none and do not wait.
    let parse = |mesh: &str| Sharding::replicated(&mesh.parse().unwrap(), &[24, 24, 24]).unwrap();
    let plan = Planner::new().plan(&parse("a=1"), &parse("a=4@1"), DType::I64).unwrap();
    let whole: Vec<u8> = (0..24 * 24 * 24 * 8).map(|i| (i % 251) as u8).collect();
    let mut world = World::new(5).unwrap();
    for _ in 0..300 {
        let (shards, _) = world.redistribute(&plan, &[&whole]).unwrap();
        assert!(shards.iter().all(|shard| *shard == whole));
    }
}

#[test]
fn a_flipped_byte_shows_and_a_wrong_count_fails() {
    let plan = plan("S(0),S(1)", "S(1),S(0)", &[8, 8]);
    let mut world = World::new(4).unwrap();
    let data: Vec<Vec<u8>> = (0..4).map(|rank| (0..64).map(|i| rank * 64 + i).collect()).collect();
    let (right, trace) = world.redistribute(&plan, &data).unwrap();
    assert_eq!(trace.worst_received(), plan.received_bytes());
    world.inject_faults([Fault { rank: 1, step: 0, kind: FaultKind::FlipByte(7) }]);
    let (wrong, _) = world.redistribute(&plan, &data).unwrap();
    let differing: Vec<bool> = right.iter().zip(&wrong).map(|(a, b)| a != b).collect();
    assert_eq!(differing, [false, true, false, false]);
    world.inject_faults([Fault { rank: 1, step: 0, kind: FaultKind::Miscount(4) }]);
    let error = world.redistribute(&plan, &data).unwrap_err();
    assert_eq!((error.code(), error.failed_rank()), ("trace", None));
}

#[test]
fn bad_requests_are_one_sentence_each() {
    let plan = plan("P,P", "R,R", &[4, 4]);
    let mut world = World::new(4).unwrap();
    let data = shards(&plan);
    let mut message = |shards: &[Vec<u8>]| world.redistribute(&plan, shards).unwrap_err().to_string();
    assert_eq!(message(&data[..3]), "3 shards were given but the source mesh has 4 ranks");
    let mut short = data.clone();
    short[2].pop();
    assert_eq!(message(&short), "the source of rank 2 has 63 bytes but 64 are needed");
    assert_eq!(CompiledPlan::new(&plan, 9).unwrap_err().to_string(), "rank 9 takes no part in the plan");
    let error = World::new(2).unwrap().redistribute(&plan, &data).unwrap_err();
    assert_eq!(error.to_string(), "the plan needs 4 ranks but the engine has 2");
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let refused = |text: &str, dtype: DType| {
        let (from, to) =
            (Sharding::parse(&mesh, &[4], text).unwrap(), Sharding::replicated(&mesh, &[4]).unwrap());
        let planned = Planner::new().plan(&from, &to, dtype).unwrap_err().to_string();
        // A caller that plans for another arithmetic gets the error from the engine.
        let planner = Planner::new().arithmetic(Arithmetic::Framework);
        let compiled =
            CompiledPlan::new(&planner.plan(&from, &to, dtype).unwrap(), 0).unwrap_err().to_string();
        assert_eq!(planned, compiled);
        planned
    };
    assert_eq!(refused("P(sum)", DType::Bool), "sum is not defined for bool");
    assert_eq!(refused("P(avg)", DType::I32), "avg is not defined for i32");
}

#[test]
fn many_runs_leave_nothing_behind() {
    let plans = [plan("S(0),S(1)", "S(1),S(0)", &[8, 8]), plan("P,S(0)", "S(0),S(0)", &[8, 8])];
    let mut world = World::new(4).unwrap();
    for i in 0..500 {
        let plan = &plans[i % 2];
        world.redistribute(plan, &shards(plan)).unwrap();
    }
}

/// Returns the number of reports of a failed rank in a text.
fn failures_in(text: &str) -> usize {
    text.matches(" failed (").count()
}

#[test]
fn no_error_stands_in_itself() {
    let plan = plan("S(0),S(0)", "S(1),S(1)", &[64, 64]);
    let mut world = World::new(4).unwrap();
    world.set_timeout(Duration::from_millis(200));
    let stall = FaultKind::Stall(Duration::from_millis(600));
    for kind in [FaultKind::Panic, FaultKind::PanicInside, FaultKind::Fail, stall] {
        world.inject_faults([Fault { rank: 2, step: 0, kind }]);
        for (result, _) in run(&mut world, &plan) {
            let text = result.unwrap_err().to_string();
            assert!(failures_in(&text) <= 1, "{text}");
        }
    }
    world.inject_faults([]);
    // Rank 1 leaves; rank 0 waits for it, and rank 2 for rank 0, in any order of events.
    world.set_timeout(Duration::from_secs(20));
    let results = world.run(|comm| match comm.rank() {
        0 => comm.barrier(&[0, 1]).and_then(|()| comm.barrier(&[0, 2])),
        2 => comm.barrier(&[0, 2]),
        _ => Ok(()),
    });
    for rank in [0, 2] {
        let error = results[rank].as_ref().unwrap_err();
        let text = error.to_string();
        assert_eq!((error.failed_rank(), failures_in(&text)), (Some(1), 1), "{text}");
        assert!(text.starts_with("rank 1 failed (it left before it arrived) while"), "{text}");
        // The error of an engine for calls after a failure.
        let again = error.again(rank, None);
        assert_eq!((again.failed_rank(), failures_in(&again.to_string())), (Some(1), 1), "{again}");
    }
}

/// An error of a framework that uses the library.
#[derive(Debug, PartialEq)]
enum Own {
    NoFile(String),
    Engine(Error),
}

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Own::NoFile(name) => write!(f, "there is no {name}"),
            Own::Engine(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Own {
    fn from(error: Error) -> Own {
        Own::Engine(error)
    }
}

#[test]
fn a_jobs_own_error_comes_back_as_it_is() {
    let mut world = World::new(3).unwrap();
    let results = world.run(|comm| {
        assert_ne!(comm.rank(), 2, "planted");
        if comm.rank() == 1 {
            return Err(Own::NoFile("shard 1".to_string()));
        }
        comm.barrier(&[0, 1, 2])?;
        Ok(comm.rank())
    });
    assert_eq!(results[1], Err(Own::NoFile("shard 1".to_string())));
    let engine = |rank: usize| match &results[rank] {
        Err(Own::Engine(error)) => error.clone(),
        other => panic!("rank {rank}: {other:?}"),
    };
    assert!(matches!(engine(2), Error::Panicked { rank: 2, .. }));
    let told = engine(0).to_string();
    let (own, panicked) = ("rank 1 failed (there is no shard 1)", "rank 2 failed (it panicked: ");
    assert!(told.starts_with(own) || told.starts_with(panicked), "{told}");
    let boxed = world.run(|_| Err::<(), Box<dyn std::error::Error + Send + Sync>>("mine".into()));
    assert!(boxed.iter().all(|result| result.as_ref().unwrap_err().to_string() == "mine"));
}

#[test]
fn worlds_have_as_many_ranks_as_can_be_started() {
    for ranks in [0, (1 << 16) + 1, 1 << 40, usize::MAX] {
        let error = World::new(ranks).err().unwrap();
        assert_eq!(error.code(), "threads");
        assert!(
            error.to_string().ends_with(&format!("a world has 1 to 65536 ranks, not {ranks}")),
            "{error}"
        );
    }
}
