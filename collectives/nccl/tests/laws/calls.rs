//! The NCCL calls of a plan: their order, brackets, counts and peers.

use std::time::Duration;

use reshard_collectives::{Communicator, CompiledPlan};
use reshard_kernels::{CombineOp, DType};
use reshard_nccl::testing::{Call, RecordingWorld};
use reshard_nccl::{Comm, Element, FloatSums, Handle};
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

/// Returns the calls of a rank in one run of a plan, after its scratch was made.
fn calls_as(
    mesh: &str,
    shape: &[usize],
    dtype: DType,
    from: &str,
    to: &str,
    floats: FloatSums,
) -> Vec<Vec<Call>> {
    let mesh: Mesh = mesh.parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
    let planner = Planner::new();
    let plan = planner.plan(&sharding(from), &sharding(to), dtype).unwrap();
    let world = RecordingWorld::new(mesh.world_size());
    world.run(|nccl| {
        let rank = reshard_nccl::Nccl::rank(&nccl);
        let mut comm = Comm::with_time_out(nccl, Duration::from_secs(30)).unwrap();
        comm.set_float_sums(floats);
        let compiled = CompiledPlan::new(&plan, rank).unwrap();
        let mut scratch = compiled.scratch(&mut comm).unwrap();
        world.take_log(rank);
        let mut source = comm.allocate(compiled.source_bytes()).unwrap();
        comm.write(&mut source, &vec![1; compiled.source_bytes()]).unwrap();
        let mut target = comm.allocate(compiled.target_bytes()).unwrap();
        compiled.run(&mut comm, &source, &mut target, &mut scratch).unwrap();
        world.take_log(rank)
    })
}

fn calls(mesh: &str, shape: &[usize], dtype: DType, from: &str, to: &str) -> Vec<Vec<Call>> {
    calls_as(mesh, shape, dtype, from, to, FloatSums::InOrder)
}

const ON: Handle = Handle::WORLD;
const START: Call = Call::GroupStart;
const END: Call = Call::GroupEnd;

#[test]
fn a_contiguous_all_gather_is_one_call() {
    for of_rank in calls("x=4", &[8, 6], DType::F32, "S(0)", "R") {
        assert_eq!(of_rank, [START, Call::AllGather { on: ON, bytes: 2 * 6 * 4 }, END]);
    }
}

#[test]
fn an_all_gather_of_columns_is_unpacked_by_one_launch() {
    for of_rank in calls("x=4", &[6, 8], DType::F32, "S(1)", "R") {
        let gather = Call::AllGather { on: ON, bytes: 6 * 2 * 4 };
        assert_eq!(of_rank, [START, gather, END, Call::Launch { kernels: 1 }]);
    }
}

#[test]
fn an_all_to_all_is_packed_exchanged_in_one_group_and_unpacked() {
    let all = calls("x=3", &[6, 9], DType::U8, "S(0)", "S(1)");
    for (rank, of_rank) in all.iter().enumerate() {
        let peers: Vec<usize> = (0..3).filter(|peer| *peer != rank).collect();
        let bytes = 2 * 3;
        assert_eq!(of_rank[..2], [Call::Launch { kernels: 1 }, START]);
        for peer in &peers {
            assert!(of_rank.contains(&Call::Send { on: ON, peer: *peer, bytes }), "{of_rank:?}");
            assert!(of_rank.contains(&Call::Receive { on: ON, peer: *peer, bytes }), "{of_rank:?}");
        }
        // Rows are received in place, so that only packing needs a kernel, which also copies this rank's own
        // rows.
        assert_eq!(of_rank.len(), 2 + 4 + 1, "{of_rank:?}");
        assert_eq!(of_rank.last(), Some(&END));
    }
}

#[test]
fn integers_are_all_reduced_by_nccl() {
    for of_rank in calls("x=4", &[8, 6], DType::I32, "P", "R") {
        let reduce = Call::AllReduce { on: ON, count: 48, element: Element::I32, op: CombineOp::Sum };
        assert_eq!(of_rank, [START, reduce, END]);
    }
    for of_rank in calls("x=4", &[8, 6], DType::U8, "P(max)", "S(0)") {
        let reduce = Call::ReduceScatter { on: ON, count: 12, element: Element::U8, op: CombineOp::Max };
        assert_eq!(of_rank, [START, reduce, END]);
    }
}

#[test]
fn floats_are_exchanged_and_reduced_in_order_in_one_launch_unless_nccl_is_asked_to() {
    let bytes = 2 * 6 * 4;
    for (rank, of_rank) in calls("x=4", &[8, 6], DType::F32, "P", "R").iter().enumerate() {
        let count = |call: &Call| of_rank.iter().filter(|other| *other == call).count();
        for peer in (0..4).filter(|peer| *peer != rank) {
            assert_eq!(count(&Call::Send { on: ON, peer, bytes }), 1, "{of_rank:?}");
            assert_eq!(count(&Call::Receive { on: ON, peer, bytes }), 1, "{of_rank:?}");
        }
        let end = [END, Call::Launch { kernels: 1 }, START, Call::AllGather { on: ON, bytes }, END];
        assert_eq!(of_rank[0], START);
        assert_eq!(of_rank[of_rank.len() - 5..], end);
        assert_eq!(of_rank.len(), 1 + 6 + 5);
    }
    for of_rank in calls_as("x=4", &[8, 6], DType::F32, "P", "R", FloatSums::Nccl) {
        let reduce = Call::AllReduce { on: ON, count: 48, element: Element::F32, op: CombineOp::Sum };
        assert_eq!(of_rank, [START, reduce, END]);
    }
    // NCCL's maximum of floats differs from the library's.
    for of_rank in calls_as("x=4", &[8, 6], DType::F32, "P(max)", "R", FloatSums::Nccl) {
        assert!(!of_rank.iter().any(|call| matches!(call, Call::AllReduce { .. })), "{of_rank:?}");
    }
}

#[test]
fn norms_which_nccl_has_not_are_exchanged_and_combined() {
    for floats in [FloatSums::InOrder, FloatSums::Nccl] {
        for of_rank in calls_as("x=4", &[8, 6], DType::F32, "P(norm2)", "S(0)", floats) {
            let is_call = |call: &Call| matches!(call, Call::AllReduce { .. } | Call::ReduceScatter { .. });
            assert!(!of_rank.iter().any(is_call), "{of_rank:?}");
            let receives = of_rank.iter().filter(|call| matches!(call, Call::Receive { .. })).count();
            assert_eq!(receives, 3, "as many bytes as a reduce-scatter: {of_rank:?}");
            assert!(of_rank.contains(&Call::Launch { kernels: 1 }), "{of_rank:?}");
        }
    }
}

#[test]
fn averages_by_nccl_are_divided_here() {
    for of_rank in calls_as("x=4", &[8, 6], DType::F32, "P(avg)", "S(0)", FloatSums::Nccl) {
        let reduce = Call::ReduceScatter { on: ON, count: 12, element: Element::F32, op: CombineOp::Sum };
        assert_eq!(of_rank, [START, reduce, END, Call::Launch { kernels: 1 }]);
    }
}

#[test]
fn groups_have_communicators_of_their_own_that_are_kept() {
    let mesh: Mesh = "dp=2,tp=2".parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[8, 8], text).unwrap();
    let plan = Planner::new().plan(&sharding("S(0),S(1)"), &sharding("S(0),R"), DType::F32).unwrap();
    let world = RecordingWorld::new(4);
    let logs = world.run(|nccl| {
        let rank = reshard_nccl::Nccl::rank(&nccl);
        let mut comm = Comm::with_time_out(nccl, Duration::from_secs(30)).unwrap();
        for _ in 0..2 {
            let compiled = CompiledPlan::new(&plan, rank).unwrap();
            let _ = compiled.scratch(&mut comm).unwrap();
        }
        (reshard_nccl::Nccl::communicators(comm.nccl()), world.take_log(rank))
    });
    for (rank, (communicators, log)) in logs.iter().enumerate() {
        assert_eq!(*communicators, 2);
        let opened: Vec<&Call> = log.iter().filter(|call| matches!(call, Call::Open { .. })).collect();
        assert_eq!(opened, [&Call::Open { place: rank % 2, size: 2 }]);
        // The first words go by the communicator of all, by rank; the second by that of the group, by group
        // rank.
        let peers = log.iter().filter_map(|call| {
            if let Call::Send { on, peer, .. } = call { Some((on.0, *peer)) } else { None }
        });
        assert_eq!(peers.collect::<Vec<_>>(), [(0, rank ^ 1), (1, (rank % 2) ^ 1)]);
    }
}

#[test]
fn what_all_peers_take_is_packed_once() {
    // Not an all-gather for NCCL, as blocks are uneven: 3, 3 and 1 columns.
    let mesh: Mesh = "x=3".parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[4, 7], text).unwrap();
    let plan = Planner::new().plan(&sharding("S(1)"), &sharding("R"), DType::U8).unwrap();
    let memory = reshard_collectives::BufferLayout::Order(vec![1, 0]);
    let rows = reshard_collectives::BufferLayout::RowMajor;
    let compiled = CompiledPlan::with_layouts(&plan, 0, &memory, &rows).unwrap();
    let world = RecordingWorld::new(1);
    let comm = Comm::new(world.rank(0)).unwrap();
    let exchange = compiled.exchanges().next().unwrap();
    assert!(exchange.sends().iter().all(|send| send.contiguous().is_none()));
    // At multiples of 256 bytes: one message packed, two received.
    assert_eq!(comm.staging_bytes(exchange).unwrap(), 2 * 256 + 4);
    for (rank, of_rank) in calls("x=3", &[4, 7], DType::U8, "S(1)", "R").iter().enumerate() {
        let bytes = if rank == 2 { 4 } else { 12 };
        for peer in (0..3).filter(|peer| *peer != rank) {
            assert!(of_rank.contains(&Call::Send { on: ON, peer, bytes }), "{of_rank:?}");
        }
        assert!(!of_rank.iter().any(|call| matches!(call, Call::AllGather { .. })), "{of_rank:?}");
    }
}

#[test]
fn enqueued_plans_follow_each_other_and_are_waited_for_once() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[4, 4], text).unwrap();
    let there = Planner::new().plan(&sharding("S(0)"), &sharding("S(1)"), DType::U8).unwrap();
    let back = Planner::new().plan(&sharding("S(1)"), &sharding("S(0)"), DType::U8).unwrap();
    let world = RecordingWorld::new(2);
    world.run(|nccl| {
        let rank = reshard_nccl::Nccl::rank(&nccl);
        let mut comm = Comm::with_time_out(nccl, Duration::from_secs(30)).unwrap();
        let there = CompiledPlan::new(&there, rank).unwrap();
        let back = CompiledPlan::new(&back, rank).unwrap();
        let mut scratch = [there.scratch(&mut comm).unwrap(), back.scratch(&mut comm).unwrap()];
        let mut buffers = [comm.allocate(8).unwrap(), comm.allocate(8).unwrap(), comm.allocate(8).unwrap()];
        let bytes: [u8; 8] = std::array::from_fn(|i| (rank * 8 + i) as u8);
        comm.write(&mut buffers[0], &bytes).unwrap();
        let [first, second, third] = &mut buffers;
        comm.enqueue(&there, first, second, &mut scratch[0]).unwrap();
        comm.enqueue(&back, second, third, &mut scratch[1]).unwrap();
        let said = comm.allocate(8).unwrap_err().to_string();
        assert!(said.contains("before `enqueue` or after `finish`"), "{said}");
        comm.finish().unwrap();
        let mut result = [0; 8];
        comm.read(third, &mut result).unwrap();
        assert_eq!(result, bytes);
    });
}

#[test]
fn buffers_of_another_communicator_are_refused() {
    let worlds = [RecordingWorld::new(1), RecordingWorld::new(1)];
    let [mut one, other] = worlds.map(|world| Comm::new(world.rank(0)).unwrap());
    let mut theirs = other.allocate(4).unwrap();
    let said = one.write(&mut theirs, &[1]).unwrap_err().to_string();
    assert!(said.contains("allocated by another communicator"), "{said}");
    let mut mine = one.allocate(4).unwrap();
    assert_eq!(one.write(&mut mine, &[0; 5]).unwrap_err().code(), "buffer");
}
