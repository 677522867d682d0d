//! `reshard step --engine mpi`: each process is a rank, and the first one says what came of it.
//!
//! Every process reads the program, chooses the same types and runs its own schedule. Before anything is exchanged all hear from all whether they
//! have come so far, and of which program:
//!
//! ```text
//! all are refused      the first says why, as one process would
//! some are refused     the first of these says why, with its rank, and the others leave with its status
//! programs differ      refused by all, said by the first
//! ```
//!
//! A rank that fails later, while others count on it, says so and ends the job. So nobody waits for a rank that does not come.

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
    /// Whether all ranks have heard from each other how far they have come.
    has_met: bool,
    /// Whether this rank has failed where others count on it.
    has_failed: bool,
}

/// How far a rank has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Come {
    /// To the exchanges of this program.
    Ready(u64),
    /// Not to the exchanges: it ends with this status.
    Refused(u8),
}

impl Processes {
    /// How far all ranks have come, in order.
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

    /// What this rank says of being refused: all of it if it is the first and all are, what concerns it alone if it is the first of some.
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
                "ranks 0 and {other} have different programs: give all processes the same file and the same options"
            );
            return Err(CliError::refused("program", message));
        }
        on_this_rank(program, inputs, &mut self.comm).map_err(|error| {
            self.has_failed = true;
            CliError::failed("exchange", format!("rank {}: {error}", self.comm.rank()))
        })
    }
}

/// Takes this process's part.
pub(crate) fn run(args: &StepArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let comm = Comm::world().map_err(|error| CliError::failed(error.code(), error.to_string()))?;
    let mut job = Processes { comm, has_met: false, has_failed: false };
    let done = if args.file.is_stdin() {
        Err(CliError::refused(
            "io",
            "every process of a job reads the program, and only the first has stdin: give a file",
        ))
    } else {
        answer(args, console, &mut job)
    };
    let is_first = job.comm.rank() == 0;
    let done = match done {
        Err(error) if !job.has_met => Err(job.refused(error)),
        // Behind the exchanges all find the same.
        Err(error) if !is_first && !job.has_failed => Err(CliError::told(error.status())),
        done => done,
    };
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
        Err(error) => Err(CliError::told(console.report(&error, args.format.json).0)),
    };
    let left = job.comm.finish();
    told.and(left.map_err(|error| CliError::failed(error.code(), error.to_string())))
}
