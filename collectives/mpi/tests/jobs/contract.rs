//! The contract that every engine keeps.

use reshard_collectives::Communicator;
use reshard_conformance::ContractOptions;
use reshard_mpi::Comm;

pub(crate) fn run(comm: &mut Comm, options: &ContractOptions) {
    let report = reshard_conformance::check(comm, options).unwrap_or_else(|failure| panic!("{failure}"));
    if comm.rank() == 0 {
        println!("{} ranks: {report}", comm.size());
    }
}
