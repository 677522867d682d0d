//! `reshard run --engine mpi`: the processes of an MPI job.

use reshard_collectives::{Communicator, Compiled, Error};
use reshard_mpi::Comm;

use super::RunArgs;
use super::processes::{self, Job};
use crate::cli::error::CliError;

/// Runs this process's part.
pub(super) fn run(args: &RunArgs) -> Result<(), CliError> {
    processes::run(args, args.time_out.map_or_else(Comm::world, Comm::world_in)?)
}

impl Job for Comm {
    const NAME: &'static str = "MPI";

    fn launcher(processes: usize) -> String {
        format!("mpirun -n {processes}")
    }

    fn rank(&self) -> usize {
        Communicator::rank(self)
    }

    fn size(&self) -> usize {
        Communicator::size(self)
    }

    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, Error> {
        Comm::share(self, words)
    }

    fn redistribute(&mut self, compiled: &Compiled, source: &[u8]) -> Result<(Vec<u8>, u64), Error> {
        self.take_trace();
        let mut scratch = compiled.scratch(self)?;
        let mut target = self.allocate(compiled.target_bytes())?;
        compiled.run(self, source, &mut target, &mut scratch)?;
        let rank = Communicator::rank(self);
        Ok((target, self.take_trace().received_by(rank)))
    }

    fn finish(self) -> Result<(), Error> {
        Comm::finish(self)
    }

    /// Ends the whole job, and does not return.
    fn abort(self) {
        Comm::abort(self)
    }
}
