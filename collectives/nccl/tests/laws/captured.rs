//! Plans captured once: the effect and the gain of a replay, and work that may not be captured.

use std::time::Duration;

use reshard_collectives::{Communicator, CompiledPlan};
use reshard_kernels::DType;
use reshard_nccl::testing::{Call, Fault, FaultKind, Recording, RecordingWorld};
use reshard_nccl::{Comm, Nccl};
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

fn plan(mesh: &str, shape: &[usize], from: &str, to: &str) -> Plan {
    let mesh: Mesh = mesh.parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
    Planner::new().plan(&sharding(from), &sharding(to), DType::F32).unwrap()
}

fn comm(nccl: Recording) -> Comm<Recording> {
    Comm::with_time_out(nccl, Duration::from_secs(30)).unwrap()
}

#[test]
fn a_captured_plan_is_replayed_on_what_the_source_holds_now() {
    let plan = plan("x=3", &[3, 6], "P", "R");
    let world = RecordingWorld::new(3);
    world.run(|nccl| {
        let rank = nccl.rank();
        let mut comm = comm(nccl);
        let compiled = CompiledPlan::new(&plan, rank).unwrap();
        let mut scratch = compiled.scratch(&mut comm).unwrap();
        let mut source = comm.allocate(72).unwrap();
        let mut target = comm.allocate(72).unwrap();
        let graph = comm.capture(&compiled, &source, &mut target, &mut scratch).unwrap();
        assert_eq!(graph.exchanges(), 2);
        for turn in 1..4_u8 {
            let number = f32::from(turn) * (rank as f32 + 1.0);
            let bytes: Vec<u8> = (0..18).flat_map(|_| number.to_ne_bytes()).collect();
            comm.write(&mut source, &bytes).unwrap();
            world.take_log(rank);
            comm.replay(&graph).unwrap();
            assert_eq!(world.take_log(rank), [Call::Replay]);
            let mut sum = [0; 72];
            comm.read(&target, &mut sum).unwrap();
            for item in sum.chunks(4) {
                assert_eq!(item, (f32::from(turn) * 6.0).to_ne_bytes());
            }
        }
    });
}

/// Prints the number of host calls in one run of a plan, and with a replay.
#[test]
fn a_replay_is_one_call_of_many() {
    println!("| plan | calls of the worst rank, separate | replayed |");
    println!("|---|---|---|");
    for (mesh, from, to, most) in [
        ("x=8", "S(0)", "R", 3),
        ("x=8", "S(0)", "S(1)", 17),
        ("x=8", "P", "R", 20),
        ("x=2,y=4", "S(0),S(1)", "S(1),S(0)", 20),
        ("x=2,y=4", "P,P", "S(0),R", 30),
        ("x=2,y=2,z=2", "S(0),S(1),P", "R,S(0),S(1)", 30),
    ] {
        let plan = plan(mesh, &[32, 48], from, to);
        let world = RecordingWorld::new(8);
        let counts = world.run(|nccl| {
            let rank = nccl.rank();
            let mut comm = comm(nccl);
            let compiled = CompiledPlan::new(&plan, rank).unwrap();
            let mut scratch = compiled.scratch(&mut comm).unwrap();
            let mut source = comm.allocate(compiled.source_bytes()).unwrap();
            comm.write(&mut source, &vec![0; compiled.source_bytes()]).unwrap();
            let mut target = comm.allocate(compiled.target_bytes()).unwrap();
            world.take_log(rank);
            compiled.run(&mut comm, &source, &mut target, &mut scratch).unwrap();
            let kernels = |call: &Call| if let Call::Launch { kernels } = call { *kernels } else { 1 };
            let single: usize = world.take_log(rank).iter().map(kernels).sum();
            let graph = comm.capture(&compiled, &source, &mut target, &mut scratch).unwrap();
            world.take_log(rank);
            comm.replay(&graph).unwrap();
            assert_eq!(world.take_log(rank), [Call::Replay]);
            single
        });
        let worst = counts.into_iter().max().unwrap();
        println!("| {mesh}: {from} -> {to} | {worst} | 1 |");
        assert!((3..=most).contains(&worst), "{mesh}: {from} -> {to}: {worst} calls");
    }
}

#[test]
fn a_replay_that_fails_names_what_was_captured() {
    let plan = plan("x=2", &[4, 4], "P", "R");
    let world = RecordingWorld::new(2);
    let said = world.run(|nccl| {
        let mut comm = Comm::with_time_out(nccl, Duration::from_millis(500)).unwrap();
        let compiled = CompiledPlan::new(&plan, comm.rank()).unwrap();
        let mut scratch = compiled.scratch(&mut comm).unwrap();
        let (source, mut target) = (comm.allocate(64).unwrap(), comm.allocate(64).unwrap());
        let graph = comm.capture(&compiled, &source, &mut target, &mut scratch).unwrap();
        if comm.rank() == 1 {
            // This rank never reaches the replay.
            return comm.take_received_bytes().to_string();
        }
        let said = comm.replay(&graph).unwrap_err().to_string();
        assert!(comm.replay(&graph).unwrap_err().to_string().contains(&said));
        said
    });
    assert!(said[0].contains("NCCL did not finish within 500ms in step 0"), "{}", said[0]);
    assert!(said[0].contains("replayed; the communicator is aborted"), "{}", said[0]);
    // Once before and once in the capture: 32 bytes of partial values and of the sum.
    assert_eq!(said[1], "128");
}

#[test]
fn a_capture_that_fails_aborts_and_says_so() {
    let plan = plan("x=2", &[4, 4], "P", "R");
    let world = RecordingWorld::new(2);
    // Groups: the control words, two of the run before, two of the capture.
    world.plant([0, 1].map(|rank| Fault { rank, group: 3, kind: FaultKind::Refused }));
    for said in world.run(|nccl| {
        let mut comm = comm(nccl);
        let compiled = CompiledPlan::new(&plan, comm.rank()).unwrap();
        let mut scratch = compiled.scratch(&mut comm).unwrap();
        let (source, mut target) = (comm.allocate(64).unwrap(), comm.allocate(64).unwrap());
        comm.capture(&compiled, &source, &mut target, &mut scratch).unwrap_err().to_string()
    }) {
        assert!(said.contains("unhandled system error in step 0 of group [0,1]"), "{said}");
    }
}

#[test]
fn a_graph_of_another_communicator_is_refused() {
    let plan = plan("x=1", &[4, 4], "S(0)", "R");
    let captured = |comm: &mut Comm<Recording>| {
        let compiled = CompiledPlan::new(&plan, 0).unwrap();
        let mut scratch = compiled.scratch(comm).unwrap();
        let (source, mut target) = (comm.allocate(64).unwrap(), comm.allocate(64).unwrap());
        comm.capture(&compiled, &source, &mut target, &mut scratch).unwrap()
    };
    let worlds = [RecordingWorld::new(1), RecordingWorld::new(1)];
    let [mut one, mut other] = worlds.map(|world| comm(world.rank(0)));
    let graph = captured(&mut one);
    let said = other.replay(&graph).unwrap_err().to_string();
    assert!(said.contains("captured on another communicator"), "{said}");
    one.replay(&graph).unwrap();
}
