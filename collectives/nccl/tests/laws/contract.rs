//! The engine contract, over the recording stand-in.

use std::time::Duration;

use reshard_conformance::ContractOptions;
use reshard_nccl::testing::RecordingWorld;
use reshard_nccl::{Comm, FloatSums};
use reshard_test_support::Sweep;

fn keeps_the_contract(ranks: usize, options: &ContractOptions, floats: FloatSums) {
    let world = RecordingWorld::new(ranks);
    let reports = world.run(|nccl| {
        let mut comm = Comm::with_time_out(nccl, Duration::from_mins(2)).unwrap();
        comm.set_float_sums(floats);
        reshard_conformance::check_with(
            &mut comm,
            options,
            &|comm, buffer, bytes| comm.write(buffer, bytes),
            &|comm, buffer, bytes| comm.read(buffer, bytes),
        )
    });
    for report in reports {
        let report = report.unwrap_or_else(|failure| panic!("{ranks} ranks: {failure}"));
        assert!(report.redistributions > 0);
    }
    assert_eq!(world.left_over(), 0, "{ranks} ranks leave messages");
    for rank in 0..ranks {
        assert_eq!(world.allocations(rank), 0, "rank {rank} of {ranks} leaks");
    }
}

#[test]
fn the_stand_in_keeps_the_contract() {
    // A sample of the pairs of shardings over many ranks, or all in an exhaustive run.
    for (ranks, every) in [(1, 1), (2, 1), (3, 3), (4, 12), (5, 16)] {
        let every = Sweep::asked().one_in(every);
        keeps_the_contract(
            ranks,
            &ContractOptions { every, ..ContractOptions::default() },
            FloatSums::InOrder,
        );
    }
}

#[test]
fn eight_ranks_keep_the_contract() {
    let options = ContractOptions { every: 101, ..ContractOptions::default() };
    keeps_the_contract(8, &options, FloatSums::InOrder);
}

/// The stand-in reduces in the order of group ranks, which for these meshes is that of the partial values.
#[test]
fn sums_of_floats_by_the_library_keep_the_contract() {
    for ranks in [2, 3] {
        keeps_the_contract(ranks, &ContractOptions::quick(), FloatSums::Nccl);
    }
}
