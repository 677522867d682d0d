//! The engine `nccl`: processes with one GPU each, started by torchrun or with its environment variables.

use reshard_collectives::Error as EngineError;
use reshard_collectives::{Communicator, CompiledPlan};
use reshard_nccl::{Comm, Nccl};

use crate::engine::processes::Crew;
#[cfg(feature = "nccl")]
use crate::error::Error;
#[cfg(feature = "nccl")]
use crate::job::ReshardJob;

/// The default time to wait for a peer.
#[cfg(feature = "nccl")]
const TIME_OUT: std::time::Duration = std::time::Duration::from_mins(1);

/// Joins the job in which this process was started, as one of its ranks.
#[cfg(feature = "nccl")]
pub(crate) fn comm(job: &ReshardJob) -> Result<Comm<reshard_nccl::Real>, Error> {
    // Missing options are invalid input; missing hardware or libraries are a failure.
    reshard_nccl::bootstrap::Rendezvous::from_env().map_err(|error| {
        let text = if let EngineError::Engine { message, .. } = error { message } else { error.to_string() };
        Error::refused("rank", text)
    })?;
    reshard_nccl::Real::check()
        .map_err(|error| Error::failed(error.kind(), error.code(), error.to_string()))?;
    Ok(Comm::from_env(job.timeout.unwrap_or(TIME_OUT))?)
}

impl<N: Nccl> Crew for Comm<N> {
    const NAME: &'static str = "NCCL";

    fn launcher(processes: usize) -> String {
        format!("torchrun --no-python --nproc-per-node {processes} reshard run --engine nccl ..")
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
        let mut scratch = compiled.scratch(self)?;
        let mut on_device = self.allocate(compiled.source_bytes())?;
        self.write(&mut on_device, source)?;
        let mut target = self.allocate(compiled.target_bytes())?;
        compiled.run(self, &on_device, &mut target, &mut scratch)?;
        let mut shard = vec![0; compiled.target_bytes()];
        self.read(&target, &mut shard)?;
        Ok((shard, self.take_received_bytes()))
    }

    fn finish(mut self) -> Result<(), EngineError> {
        Comm::share(&mut self, &[0]).map(drop)
    }

    fn abort(self) {
        Comm::abort(self);
    }
}
