//! The engine `mpi`: the processes of an MPI job.

use reshard_collectives::Error as EngineError;
use reshard_collectives::{Communicator, CompiledPlan};
use reshard_mpi::Comm;

use crate::engine::processes::Crew;
use crate::error::Error;
use crate::job::ReshardJob;

/// Joins the job in which this process was started, as one of its ranks.
pub(crate) fn comm(job: &ReshardJob) -> Result<Comm, Error> {
    Ok(job.timeout.map_or_else(Comm::world, Comm::world_in)?)
}

impl Crew for Comm {
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

    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError> {
        Comm::share(self, words)
    }

    fn redistribute(
        &mut self,
        compiled: &CompiledPlan,
        source: &[u8],
    ) -> Result<(Vec<u8>, u64), EngineError> {
        self.take_trace();
        let mut scratch = compiled.scratch(self)?;
        let mut target = self.allocate(compiled.target_bytes())?;
        compiled.run(self, source, &mut target, &mut scratch)?;
        let rank = Communicator::rank(self);
        Ok((target, self.take_trace().received_by(rank)))
    }

    fn finish(self) -> Result<(), EngineError> {
        Comm::finish(self)
    }

    /// Ends the whole job, and does not return.
    fn abort(self) {
        Comm::abort(self)
    }
}
