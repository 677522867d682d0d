//! Faults in NCCL are returned in time, from every rank, with their location.

use std::time::{Duration, Instant};

use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_nccl::Comm;
use reshard_nccl::testing::{Call, Fault, FaultKind, RecordingWorld};
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

const TIME_OUT: Duration = Duration::from_millis(500);

/// Time after which a run counts as hanging; no machine is that slow.
const HANGS: Duration = Duration::from_mins(1);

/// Returns the errors of two calls on each of three ranks, if one has a fault in the group of this number.
fn run(fault: Fault) -> (Vec<(Error, Error)>, Vec<Vec<Call>>) {
    let mesh: Mesh = "x=3".parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[6, 6], text).unwrap();
    let plan = Planner::new().plan(&sharding("P"), &sharding("R"), DType::F32).unwrap();
    let world = RecordingWorld::new(3);
    world.plant([fault]);
    let start = Instant::now();
    let said = world.run(|nccl| {
        let mut comm = Comm::with_time_out(nccl, TIME_OUT).unwrap();
        let compiled = CompiledPlan::new(&plan, comm.rank()).unwrap();
        let mut once = || -> Result<(), Error> {
            let mut scratch = compiled.scratch(&mut comm)?;
            let (source, mut target) = (comm.allocate(144)?, comm.allocate(144)?);
            compiled.run(&mut comm, &source, &mut target, &mut scratch)
        };
        (once().unwrap_err(), once().unwrap_err())
    });
    assert!(start.elapsed() < HANGS);
    (said, (0..3).map(|rank| world.take_log(rank)).collect())
}

#[test]
fn a_fault_aborts_and_names_group_and_step_on_every_rank() {
    for kind in [FaultKind::Refused, FaultKind::Asynchronous, FaultKind::Stalled] {
        // Groups: the control words, the partial values, the all-gather.
        for group in 0..3 {
            let (said, logs) = run(Fault { rank: 1, group, kind });
            for (rank, (first, again)) in said.iter().enumerate() {
                let text = first.to_string();
                assert!(matches!(first, Error::Engine { rank: at, .. } if *at == rank), "{text}");
                assert!(text.contains("step 0 of group [0,1,2]"), "{kind:?} {group}: {text}");
                assert!(text.contains("the communicator is aborted"), "{text}");
                assert_eq!(text.contains("agreement on"), group == 0, "{text}");
                // All later calls fail, with the original reason.
                assert!(again.to_string().contains(&text), "{again}");
                assert_eq!(again.failed_rank(), Some(rank));
                assert_eq!(logs[rank].iter().filter(|call| **call == Call::Abort).count(), 1);
            }
            let culprit = said[1].0.to_string();
            let reason = match kind {
                FaultKind::Refused => "ncclGroupEnd failed: unhandled system error",
                FaultKind::Asynchronous => "ncclCommGetAsyncError failed: remote process exited",
                FaultKind::Stalled => "NCCL did not finish within 500ms",
            };
            assert!(culprit.contains(reason), "{culprit}");
        }
    }
}

#[test]
fn a_rank_that_never_comes_costs_the_time_out_and_no_more() {
    let world = RecordingWorld::new(2);
    let start = Instant::now();
    // The other rank has not even opened its communicator.
    let said = Comm::with_time_out(world.rank(0), TIME_OUT).unwrap_err().to_string();
    assert!(start.elapsed() < HANGS);
    assert_eq!(
        said,
        "rank 0: NCCL did not finish within 500ms in the setup of the communicator of all ranks; the communicator is aborted"
    );
}

#[test]
fn a_rank_that_never_comes_to_a_barrier_costs_the_time_out_and_the_group_is_named() {
    let world = RecordingWorld::new(3);
    let said = world.run(|nccl| {
        let mut comm = Comm::with_time_out(nccl, TIME_OUT).unwrap();
        if comm.rank() == 1 { Ok(()) } else { comm.barrier(&[0, 1, 2]) }
    });
    for (rank, result) in said.into_iter().enumerate().filter(|(rank, _)| *rank != 1) {
        assert_eq!(
            result.unwrap_err().to_string(),
            format!(
                "rank {rank}: NCCL did not finish within 500ms in the agreement on a barrier of group [0,1,2]; \
                 the communicator is aborted"
            )
        );
    }
}

#[test]
fn a_failure_of_what_was_enqueued_says_where_it_may_have_been() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[4, 4], text).unwrap();
    let plan = Planner::new().plan(&sharding("P"), &sharding("R"), DType::F32).unwrap();
    let world = RecordingWorld::new(2);
    // Groups: the control words, then two of each run.
    world.plant([Fault { rank: 0, group: 3, kind: FaultKind::Stalled }]);
    let said = world.run(|nccl| {
        let mut comm = Comm::with_time_out(nccl, TIME_OUT).unwrap();
        let compiled = CompiledPlan::new(&plan, comm.rank()).unwrap();
        let mut scratch = compiled.scratch(&mut comm).unwrap();
        let (source, mut target) = (comm.allocate(64).unwrap(), comm.allocate(64).unwrap());
        compiled.run(&mut comm, &source, &mut target, &mut scratch).unwrap();
        comm.enqueue(&compiled, &source, &mut target, &mut scratch).unwrap();
        comm.finish().unwrap_err().to_string()
    });
    for text in said {
        assert!(text.contains("step 0 of group [0,1] or one of the 1 exchanges after it"), "{text}");
    }
}
