//! Overhead of schedules: a thousand calls of a kernel that does almost nothing, run as a schedule and by a
//! loop.
//!
//! ```text
//! scheduled   PreparedSchedule::run over the instructions of a program
//! plain       for (kernel, args) in list { kernels.run(kernel, args, arena)? }     the same kernels and args
//! ```
//!
//! The difference between the two is the cost of a schedule per call. The same is measured for exchanges,
//! whose posts and waits do almost nothing either.

use reshard_program::schedule::{
    ArenaSlice, CompileOptions, ExchangeEngine, Instruction, Kernels, LocalCall, PreparedSchedule, RunError,
    Schedule, Transfer,
};
use reshard_program::{Error, Program};

/// The number of calls of a program, and of posts and waits of the one with exchanges.
pub const CALLS: usize = 1000;

/// Returns a program of chained sums, or one of repeated slices, which are copies on the rank itself.
pub fn program(exchanging: bool) -> Result<Program, Error> {
    let statement = |n: usize| match (exchanging, n) {
        (true, _) => format!("c{n}: S(1) = a"),
        (false, 0) => "c0 = add(a, b)".to_string(),
        (false, _) => format!("c{n} = add(c{}, b)", n - 1),
    };
    let inputs = ["mesh x=2", "a: f32[8,8] R", "b: f32[8,8] R"].map(String::from);
    let lines: Vec<String> = inputs.into_iter().chain((0..CALLS).map(statement)).collect();
    lines.join("\n").parse()
}

/// The error of a kernel for arguments outside of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

impl From<RunError<Outside, Outside>> for Outside {
    fn from(error: RunError<Outside, Outside>) -> Outside {
        match error {
            RunError::Kernel(outside) | RunError::Exchange(outside) => outside,
        }
    }
}

/// A kernel that reads one byte and writes it, incremented, to another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touching;

/// Copies one byte, incremented; an error if the arena is too short.
fn touch(from: &ArenaSlice, to: &ArenaSlice, arena: &mut [u8]) -> Result<(), Outside> {
    let read = *arena.get(from.offset).ok_or(Outside)?;
    *arena.get_mut(to.offset).ok_or(Outside)? = read.wrapping_add(1);
    Ok(())
}

impl Kernels for Touching {
    type Buffer = [u8];
    type Error = Outside;

    fn prepare(&mut self, _: &LocalCall) -> Result<u32, Outside> {
        Ok(0)
    }

    // A framework's kernel costs a function call.
    #[inline(never)]
    fn run(&mut self, _: u32, args: &[ArenaSlice], arena: &mut [u8]) -> Result<(), Outside> {
        match args {
            [from, .., to] => touch(from, to, arena),
            [] | [_] => Err(Outside),
        }
    }
}

impl ExchangeEngine for Touching {
    type Buffer = [u8];
    type Error = Outside;

    fn prepare(&mut self, _: &Transfer) -> Result<(), Outside> {
        Ok(())
    }

    #[inline(never)]
    fn post(&mut self, transfer: &Transfer, arena: &mut [u8]) -> Result<(), Outside> {
        touch(&transfer.source, &transfer.target, arena)
    }

    #[inline(never)]
    fn wait(&mut self, transfer: &Transfer, arena: &mut [u8]) -> Result<(), Outside> {
        touch(&transfer.target, &transfer.target, arena)
    }
}

/// A call as in a hand-written loop.
pub type PlainCall = (u32, [ArenaSlice; 3]);

/// Returns the calls of a schedule, for a loop over them.
pub fn plain_calls(schedule: &Schedule) -> Vec<PlainCall> {
    let mut list = Vec::new();
    for instr in schedule.instructions() {
        match instr {
            Instruction::Call { args, .. } => {
                let args = &schedule.args()[args.start as usize..args.end as usize];
                list.extend(<[ArenaSlice; 3]>::try_from(args).map(|args| (0, args)));
            }
            Instruction::Post { .. } | Instruction::Wait { .. } => {}
        }
    }
    list
}

/// Returns rank 1's schedule, whose slices are copies.
pub fn schedule(exchanging: bool) -> Result<Schedule, Error> {
    program(exchanging)?.compile(1, &CompileOptions::default())
}

/// Prepares the schedule.
pub fn prepared(schedule: &Schedule) -> Result<PreparedSchedule<'_>, RunError<Outside, Outside>> {
    schedule.prepare(&mut Touching, &mut Touching)
}

/// Runs the schedule.
#[inline(never)]
pub fn scheduled(
    prepared: &PreparedSchedule<'_>,
    arena: &mut [u8],
) -> Result<(), RunError<Outside, Outside>> {
    prepared.run(&mut Touching, &mut Touching, arena)
}

/// Runs the same calls without a schedule.
#[inline(never)]
pub fn plain(calls: &[PlainCall], arena: &mut [u8]) -> Result<(), Outside> {
    for (kernel, args) in calls {
        Kernels::run(&mut Touching, *kernel, args, arena)?;
    }
    Ok(())
}

/// Runs the same exchanges without a schedule, each waited for after its post.
#[inline(never)]
pub fn plain_exchanges(transfers: &[Transfer], arena: &mut [u8]) -> Result<(), Outside> {
    for transfer in transfers {
        Touching.post(transfer, arena)?;
        Touching.wait(transfer, arena)?;
    }
    Ok(())
}
