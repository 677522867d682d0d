//! `reshard step --engine mpi`: each process is a rank, and the first one says what came of it.
//!
//! Every process reads the program, chooses the same types and runs its own schedule. What is refused is refused by all alike, and said
//! once. A rank that fails while others count on it says so and ends the job.

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
    /// Whether this rank has failed where others count on it.
    has_failed: bool,
}

impl Job for Processes {
    fn size(&self) -> Option<usize> {
        Some(self.comm.size())
    }

    fn carry_out<T: Number>(&mut self, program: &Program, inputs: &Values<T>) -> Result<Ranks<T>, CliError> {
        on_this_rank(program, inputs, &mut self.comm).map_err(|error| {
            self.has_failed = true;
            CliError::failed("exchange", format!("rank {}: {error}", self.comm.rank()))
        })
    }
}

/// Takes this process's part.
pub(crate) fn run(args: &StepArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let comm = Comm::world().map_err(|error| CliError::failed(error.kind(), error.to_string()))?;
    let mut job = Processes { comm, has_failed: false };
    let done = if args.file.is_stdin() {
        Err(CliError::refused(
            "io",
            "every process of a job reads the program, and only the first has stdin: give a file",
        ))
    } else {
        answer(args, console, &mut job)
    };
    let is_first = job.comm.rank() == 0;
    if job.has_failed {
        if let Err(error) = &done {
            console.report(error, args.format.json);
        }
        job.comm.abort();
    }
    // Said before anybody leaves: the launcher may end the job as soon as one has left with another status than 0.
    let told = match done {
        Ok(answer) if is_first => say(args, &answer, console),
        Ok(answer) => {
            if answer.verified {
                Ok(())
            } else {
                Err(CliError::told(1))
            }
        }
        Err(error) if is_first => Err(CliError::told(console.report(&error, args.format.json).0)),
        Err(error) => Err(CliError::told(error.status())),
    };
    let left = job.comm.finish();
    told.and(left.map_err(|error| CliError::failed(error.kind(), error.to_string())))
}
