//! The MPI engine in jobs of several processes.
#![cfg(feature = "mpi")]

mod contract;
mod faults;
mod gpt;
mod large;
mod leaks;
mod parallel;
mod random;
mod transfer;
mod two_mesh;

use std::time::Duration;

use reshard_collectives::Communicator;
use reshard_conformance::ContractOptions;
use reshard_mpi::Comm;
use reshard_test_support::jobs::{JOB, succeeds};

/// The entry point of every rank of a job; does nothing in a plain run of the tests.
#[test]
fn rank() {
    let Ok(job) = std::env::var(JOB) else { return };
    // A rank may be struck before it reaches this point.
    let mut comm =
        Comm::world_in(if job == "endless" { faults::START } else { Duration::from_mins(1) }).unwrap();
    let size = comm.size();
    match job.as_str() {
        "contract" => contract::run(&mut comm, &ContractOptions::default()),
        "random" => random::run(&mut comm, 7 + size as u64, 300),
        "endless" => faults::endless(&mut comm),
        "panicking" => faults::panicking(&mut comm),
        "leaving" => faults::leaving(&mut comm),
        "missing" => faults::missing(&mut comm),
        "disagreeing" => faults::disagreeing(&mut comm),
        "too few" => faults::too_few(&mut comm),
        "large" => large::run(&mut comm),
        "leaks" => leaks::run(&mut comm),
        "gpt" => gpt::run(&mut comm),
        "parallel" => parallel::run(&mut comm),
        "transfer" => transfer::run(&mut comm),
        "two mesh" => two_mesh::run(&mut comm),
        other => panic!("unknown job {other}"),
    }
    let rank = comm.rank();
    comm.finish().unwrap();
    println!("rank {rank} finished {job}");
}

#[test]
fn mpi_keeps_the_contract() {
    for ranks in [2, 3, 5, 8] {
        print!("{}", succeeds(ranks, "contract"));
    }
}

#[test]
fn transfers_write_the_bytes_of_the_threads_engine() {
    succeeds(7, "transfer");
}

#[test]
fn random_redistributions_agree_with_the_threads_engine() {
    for ranks in [1, 2, 3, 5, 8] {
        succeeds(ranks, "random");
    }
}

#[test]
fn facts_of_trainers_and_servers() {
    print!("{}", succeeds(16, "two mesh"));
}

#[test]
fn a_gpt_learns_on_processes_as_on_one_device() {
    succeeds(4, "gpt");
}

#[test]
fn a_pipeline_and_experts_learn_on_processes_as_on_one_device() {
    succeeds(4, "parallel");
}

#[test]
fn a_killed_rank_ends_the_job() {
    faults::strike("-KILL");
}

#[test]
fn a_stalled_rank_ends_the_job() {
    faults::strike("-STOP");
}

#[test]
fn a_killed_launcher_ends_the_ranks() {
    faults::strike_the_launcher();
}

#[test]
fn a_launcher_that_is_stuck_ends_with_its_ranks() {
    faults::strike_with_a_stuck_launcher();
}

#[test]
fn a_rank_that_panics_ends_the_job() {
    faults::fails(3, "panicking", "planted");
}

#[test]
fn a_rank_that_leaves_ends_the_job() {
    faults::fails(3, "leaving", "");
}

#[test]
fn a_rank_that_never_comes_to_a_barrier_is_named() {
    faults::fails(3, "missing", "rank 1 did not arrive at a barrier of group [0,1,2] within 2s");
}

#[test]
fn another_plan_on_one_rank_is_found_before_anything_moves() {
    for ranks in [2, 3, 5] {
        succeeds(ranks, "disagreeing");
    }
}

#[test]
fn a_plan_for_more_ranks_than_there_are_is_refused() {
    succeeds(2, "too few");
}

#[test]
fn a_thousand_plans_and_hundreds_of_engines_leave_nothing_behind() {
    succeeds(4, "leaks");
}

#[test]
#[ignore = "needs 8 GiB of memory; `make large-mpi`"]
fn a_tensor_of_more_than_2_to_the_31_bytes() {
    succeeds(2, "large");
}
