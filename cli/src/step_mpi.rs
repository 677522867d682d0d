//! `reshard step --engine mpi`: each process is a rank, and the first one prints the result.
//!
//! Every process reads the program, chooses the same types and runs its own schedule. Before anything is
//! exchanged, all ranks report to all others that they are ready, and for which program:
//!
//! ```text
//! all ranks reject     the first reports the error, as one process would
//! some ranks reject    the first of these reports the error and its rank, the others exit with its status
//! programs differ      all ranks reject, the first reports the error
//! ```
//!
//! A rank that fails after that, while others depend on it, reports the error and aborts the job: no rank
//! waits forever.

use std::hash::{DefaultHasher, Hash, Hasher};

use reshard_collectives::Communicator;
use reshard_mpi::Comm;
use reshard_program::Program;
use reshard_reference::{Number, Ranks, Values, on_this_rank};

use super::console::Console;
use super::error::CliError;
use super::step::{Job, StepArgs, answer, say};

/// The ranks of a job, of which this process is one.
struct Processes {
    comm: Comm,
    /// `true` if all ranks have exchanged their states.
    has_met: bool,
    /// `true` if this rank has failed while others depend on it.
    has_failed: bool,
}

/// The state of a rank before the exchanges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Come {
    /// Ready for the exchanges of the program with this hash.
    Ready(u64),
    /// Not ready: it ends with this status.
    Refused(u8),
}

impl Processes {
    /// Exchanges the states of all ranks, and returns them in rank order.
    fn meet(&mut self, come: Come) -> Result<Vec<Come>, CliError> {
        self.has_met = true;
        let words = match come {
            Come::Ready(program) => [0, program],
            Come::Refused(status) => [1, u64::from(status)],
        };
        let all =
            self.comm.share(&words).map_err(|error| CliError::failed(error.code(), error.to_string()))?;
        let come = |words: &Vec<u64>| match words[..] {
            [0, program] => Come::Ready(program),
            [_, status] => Come::Refused(u8::try_from(status).unwrap_or(1)),
            _ => Come::Refused(1),
        };
        Ok(all.iter().map(come).collect())
    }

    /// Returns the error that this rank reports after a rejection.
    ///
    /// The first rank that failed reports its error, with its rank unless all failed; the others only return
    /// its status.
    fn refused(&mut self, error: CliError) -> CliError {
        let all = match self.meet(Come::Refused(error.status())) {
            Ok(all) => all,
            Err(error) => return error,
        };
        let rank = self.comm.rank();
        let is_ready = |come: &Come| matches!(come, Come::Ready(_));
        if all.iter().position(|come| !is_ready(come)) != Some(rank) {
            return CliError::told(error.status());
        }
        if all.iter().any(is_ready) { error.about(format_args!("rank {rank}")) } else { error }
    }
}

impl Job for Processes {
    fn size(&self) -> Option<usize> {
        Some(self.comm.size())
    }

    fn carry_out<T: Number>(&mut self, program: &Program, inputs: &Values<T>) -> Result<Ranks<T>, CliError> {
        let mut hasher = DefaultHasher::new();
        (program.to_string(), size_of::<T>()).hash(&mut hasher);
        let own = Come::Ready(hasher.finish());
        let all = self.meet(own)?;
        if let Some(status) = all.iter().find_map(|come| match come {
            Come::Refused(status) => Some(*status),
            Come::Ready(_) => None,
        }) {
            return Err(CliError::told(status));
        }
        if let Some(other) = all.iter().position(|come| *come != all[0]) {
            if self.comm.rank() > 0 {
                return Err(CliError::told(2));
            }
            let message = format!(
                "ranks 0 and {other} have different programs; give all processes the same file and the same options"
            );
            return Err(CliError::refused("program", message));
        }
        on_this_rank(program, inputs, &mut self.comm).map_err(|error| {
            self.has_failed = true;
            CliError::failed("exchange", format!("rank {}: {error}", self.comm.rank()))
        })
    }
}

/// Runs the part of this process.
pub(crate) fn run(args: &StepArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let comm = Comm::world().map_err(|error| CliError::failed(error.code(), error.to_string()))?;
    let mut job = Processes { comm, has_met: false, has_failed: false };
    let done = if args.file.is_stdin() {
        Err(CliError::refused(
            "io",
            "cannot read the program from stdin: every process reads it, but only the first has stdin; give a file",
        ))
    } else {
        answer(args, console, &mut job)
    };
    let is_first = job.comm.rank() == 0;
    let done = match done {
        Err(error) if !job.has_met => Err(job.refused(error)),
        // After the exchanges all ranks find the same error, and the first reports it.
        Err(error) if !is_first && !job.has_failed => Err(CliError::told(error.status())),
        done => done,
    };
    if job.has_failed {
        if let Err(error) = &done {
            console.report(error, args.format.json);
        }
        job.comm.abort();
    }
    // Report before any rank exits: the launcher may end the job once a process exits with a status other
    // than 0.
    let told = match done {
        Ok(answer) if is_first => say(args, &answer, console),
        Ok(answer) => {
            if answer.verified {
                Ok(())
            } else {
                Err(CliError::told(1))
            }
        }
        Err(error) => Err(CliError::told(console.report(&error, args.format.json).0)),
    };
    let left = job.comm.finish();
    told.and(left.map_err(|error| CliError::failed(error.code(), error.to_string())))
}
