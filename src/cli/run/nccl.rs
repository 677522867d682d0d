//! `reshard run --engine nccl`: processes with a GPU each, started by torchrun or with its variables.

use reshard_collectives::{Communicator, Compiled, Error};
use reshard_nccl::{Comm, Nccl};

use super::processes::Job;
#[cfg(feature = "nccl")]
use super::{RunArgs, processes};
#[cfg(feature = "nccl")]
use crate::cli::error::CliError;

/// How long anything is waited for, unless said otherwise.
#[cfg(feature = "nccl")]
const TIME_OUT: std::time::Duration = std::time::Duration::from_mins(1);

/// Runs this process's part.
#[cfg(feature = "nccl")]
pub(super) fn run(args: &RunArgs) -> Result<(), CliError> {
    // What the command line lacks is refused; what the machine lacks is a failure.
    reshard_nccl::bootstrap::Rendezvous::from_env().map_err(|error| {
        let text = if let Error::Engine { message, .. } = error { message } else { error.to_string() };
        CliError::refused("rank", text)
    })?;
    reshard_nccl::Real::check().map_err(|error| CliError::failed(error.kind(), error.to_string()))?;
    let comm = Comm::from_env(args.time_out.unwrap_or(TIME_OUT))?;
    processes::run(args, comm)
}

impl<N: Nccl> Job for Comm<N> {
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

    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, Error> {
        Comm::share(self, words)
    }

    fn redistribute(&mut self, compiled: &Compiled, source: &[u8]) -> Result<(Vec<u8>, u64), Error> {
        let mut scratch = compiled.scratch(self)?;
        let mut on_device = self.allocate(compiled.source_bytes())?;
        self.write(&mut on_device, source)?;
        let mut target = self.allocate(compiled.target_bytes())?;
        compiled.run(self, &on_device, &mut target, &mut scratch)?;
        let mut shard = vec![0; compiled.target_bytes()];
        self.read(&target, &mut shard)?;
        Ok((shard, self.take_received_bytes()))
    }

    fn finish(mut self) -> Result<(), Error> {
        Comm::share(&mut self, &[0]).map(drop)
    }

    fn abort(self) {
        Comm::abort(self);
    }
}
