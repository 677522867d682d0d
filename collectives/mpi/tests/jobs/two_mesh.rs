//! Facts of trainers and servers, executed on processes.

use reshard_collectives::{BufferLayout, Communicator};
use reshard_conformance::{ContractCase, ContractOptions, check_one};
use reshard_kernels::DType;
use reshard_mpi::Comm;
use reshard_test_support::two_mesh_facts;

/// Runs the facts that need no more ranks than there are.
pub(crate) fn run(comm: &mut Comm) {
    let (dense, ranks, mut count) = (BufferLayout::RowMajor, comm.size(), 0);
    for fact in two_mesh_facts().iter().filter(|fact| fact.world() <= ranks) {
        let plan = fact.small_plan(DType::I32);
        let case = ContractCase { plan: &plan, dtype: DType::I32, source: &dense, target: &dense };
        check_one(comm, &ContractOptions::default(), &case).unwrap_or_else(|e| panic!("{}: {e}", fact.name));
        count += 1;
    }
    assert!(count > 200, "{count} facts");
    println!("{count} facts");
}
