//! Jobs of several processes. Every test starts this binary again under `mpirun`, where the test `rank` does the job that
//! the environment names.
#![cfg(feature = "mpi")]

mod launch;
mod random;

use launch::{JOB, succeeds};
use reshard_collectives::Communicator;
use reshard_mpi::Comm;

/// What every rank of a job does; nothing in a plain run of the tests.
#[test]
fn rank() {
    let Ok(job) = std::env::var(JOB) else { return };
    let mut comm = Comm::world().unwrap();
    let size = comm.size();
    match job.as_str() {
        "random" => random::run(&mut comm, 7 + size as u64, 300),
        other => panic!("there is no job {other}"),
    }
    let rank = comm.rank();
    comm.finish().unwrap();
    println!("rank {rank} finished {job}");
}

#[test]
fn random_redistributions_agree_with_the_threads_engine() {
    for ranks in [1, 2, 3, 5, 8] {
        succeeds(ranks, "random");
    }
}
