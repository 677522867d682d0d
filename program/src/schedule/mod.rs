//! Schedules: what one rank of a program does, as a list without types.
//!
//! # Data flow
//!
//! ```text
//! Program --compile(rank)--> Schedule --prepare(kernels, engine)--> Prepared --run(.., arena)--> the arena
//!
//! items        in one order for all ranks, as written or as a pipeline goes through them; moves may begin before their turn and end after it
//!   | each rank leaves out what it has no part in
//! values       what a value is on this rank: a local shape, and where it lies in the whole
//!   | a view, and a move that leaves all bytes where they are, is its operand: no instruction
//! slots        one for each buffer; two more for what a move keeps between its phases
//!   | first and last use; what is in flight is in use from its post to its wait
//! offsets      bytes of one arena, which slots that are never there together share
//! ```
//!
//! | instruction | does |
//! |---|---|
//! | `Call` | a kernel of the framework, on some bytes of the arena: operands, then results |
//! | `Post` | begins an exchange: a move's plan, compiled for this rank |
//! | `Wait` | completes it: the target is there, and nobody reads the source any more |
//!
//! # Why ranks do not wait in a circle
//!
//! The order of calls, posts and waits is found once, of the items and of what all ranks know. A rank's list is this order without
//! what it has no part in, so any two ranks come to the exchanges that they share in one order; within a group exchanges are
//! waited for in the order in which they were posted. This is what a [`Communicator`](reshard_collectives::Communicator) asks for.
//!
//! # What a run does not do
//!
//! [`Prepared::run`] walks the list. It knows no type, no sharding and no planner, and allocates nothing. That it does what the typed
//! program says is a law: both have the same [trace](Program::trace), calls with local shapes and exchanges with members and
//! bytes, on all ranks.
//!
//! ```
//! use reshard_program::{Elaborator, Program, schedule::Options};
//! let program: Program = "
//!     mesh tp=2
//!     x: f32[4,8] I
//!     up: f32[8,32] S(1)
//!     down: f32[32,8] S(0)
//!     xr: R = x
//!     h = mm(xr, up)
//!     a = relu(h)
//!     o = mm(a, down)
//!     y: I = o
//! ".parse()?;
//! let schedule = program.compile(1, &Options::default())?;
//! assert_eq!(schedule.to_string(), "\
//! rank 1, an arena of 1664 bytes
//! h@1024 = mm(xr@1536, up@0)
//! a@1280 = relu(h@1024)
//! o@1024 = mm(a@1280, down@512)
//! post y@1152 = o@1024 by all_reduce over tp with [0, 1]
//! wait y@1152
//! ");
//! # Ok::<(), reshard_program::Error>(())
//! ```

mod arena;
mod build;
mod call;
mod engine;
mod measured;
mod order;
mod pipeline;
mod record;
mod replicas;
mod run;
mod text;
mod timeline;
mod trace;
mod transfer;

use core::fmt;
use core::ops::Range;
use std::str::FromStr;

pub use call::{LocalCall, LocalTensor, on_one_slice};
pub use engine::CommunicatorExchanges;
pub use record::{ExchangeStart, RunRecord};
pub use replicas::ValueHashes;
pub use run::{ExchangeEngine, Kernels, PreparedSchedule};
pub use timeline::{Activity, RankTimeline, Span, Timeline};
pub use trace::{Event, TraceOperand};
pub use transfer::{Transfer, TransferMember, TransferStep};

use crate::{Error, Program};

/// Numbers of ranks, each once and in order.
fn each_once(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Some bytes of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArenaSlice {
    /// The first.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
}

impl ArenaSlice {
    /// From the first to behind the last.
    pub fn range(self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// One thing that a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Runs a kernel on these [args](Schedule::args): operands, then results.
    Call {
        /// Which of the [calls](Schedule::calls); once it is [prepared](Schedule::prepare), which of the framework's kernels.
        kernel: u32,
        /// Its place in the list of args.
        args: Range<u32>,
    },
    /// Begins one of the [exchanges](Schedule::exchanges).
    Post {
        /// Which.
        exchange: u32,
    },
    /// Completes it.
    Wait {
        /// Which.
        exchange: u32,
    },
}

/// A value on the rank of a schedule.
#[derive(Clone, Debug)]
pub struct LocalBuffer {
    /// What the program calls it.
    pub name: String,
    /// What the rank holds of it.
    pub tensor: LocalTensor,
    /// Where.
    pub slice: ArenaSlice,
    /// Whether it is given.
    pub is_input: bool,
    /// Whether it is still there at the end.
    pub is_live_out: bool,
}

/// In which order a rank does what it has to do.
///
/// ```
/// use reshard_program::schedule::Order;
/// assert_eq!("1f1b".parse::<Order>()?, Order::OneForwardOneBackward);
/// assert_eq!(Order::default().to_string(), "written");
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// As the program is written.
    #[default]
    Program,
    /// Of microbatches, each goes backward as soon as it can, and of `p` stages stage `s` has `p - s` in flight: fewer activations are there at a time than
    /// where all forwards come first. Stages are meshes without common ranks; on one, each microbatch goes backward before the next begins.
    OneForwardOneBackward,
}

impl Order {
    /// All, in order.
    pub const ALL: [Order; 2] = [Order::Program, Order::OneForwardOneBackward];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Order::Program => "written",
            Order::OneForwardOneBackward => "1f1b",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Order, Error> {
        let known = Order::ALL.into_iter().find(|order| order.as_str() == text);
        known.ok_or_else(|| build::refused(format!("there is no order {text:?}: write written or 1f1b")))
    }
}

/// How a program is compiled.
///
/// No option changes a bit of any result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// Whether buffers that are never there together share bytes (default: they do).
    pub liveness: bool,
    /// How many bytes of sources and targets may be in flight on a rank, so that moves begin as soon as they can and end where what they
    /// bring is taken (default: 0, each move ends where it begins).
    pub in_flight_bytes: u64,
    /// How many bytes of sources and targets the moves may have that are one exchange: those that do the same steps over the same groups, as
    /// the gradients of many parameters do (default: 0, each move is an exchange by itself). A move waits until its bucket is full, or until
    /// something takes what one of them makes.
    pub bucket_bytes: u64,
    /// The order of calls (default: as written).
    pub order: Order,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions { liveness: true, in_flight_bytes: 0, bucket_bytes: 0, order: Order::Program }
    }
}

/// What one rank of a program does; see the [module](self).
#[derive(Clone, Debug)]
pub struct Schedule {
    rank: usize,
    instructions: Vec<Instruction>,
    args: Vec<ArenaSlice>,
    /// What the program calls each arg.
    names: Vec<String>,
    calls: Vec<LocalCall>,
    exchanges: Vec<Transfer>,
    buffers: Vec<LocalBuffer>,
    arena_bytes: usize,
    loop_carried_copies: Vec<(ArenaSlice, ArenaSlice)>,
}

impl Schedule {
    /// The rank that this is for.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// What it does, in order.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// What calls are on.
    pub fn args(&self) -> &[ArenaSlice] {
        &self.args
    }

    /// What the program calls each of them.
    pub fn arg_names(&self) -> &[String] {
        &self.names
    }

    /// All calls that it makes, each once.
    pub fn calls(&self) -> &[LocalCall] {
        &self.calls
    }

    /// All exchanges that it has a part in: its moves, those of a bucket as one.
    pub fn exchanges(&self) -> &[Transfer] {
        &self.exchanges
    }

    /// The values that the rank holds, in the order of the program.
    pub fn buffers(&self) -> &[LocalBuffer] {
        &self.buffers
    }

    /// A value that the rank holds.
    pub fn local(&self, name: &str) -> Option<&LocalBuffer> {
        self.buffers.iter().find(|local| local.name == name)
    }

    /// The bytes of the arena: the most that this rank has at a time, between the places of buffers included.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// A new arena: [`arena_bytes`](Schedule::arena_bytes) of zeros.
    ///
    /// # Errors
    ///
    /// `schedule` if there is no memory for so many bytes.
    pub fn arena(&self) -> Result<Vec<u8>, Error> {
        let mut arena = Vec::new();
        if arena.try_reserve_exact(self.arena_bytes).is_err() {
            let reason = format!(
                "the arena of rank {} has {} bytes, and there is no memory for them",
                self.rank, self.arena_bytes
            );
            return Err(Error::Schedule { reason });
        }
        arena.resize(self.arena_bytes, 0);
        Ok(arena)
    }

    /// What is to be copied before the next step, from where to where: a value `w'` that is not made in the place of `w`. No two of these
    /// places overlap.
    ///
    /// Mostly there are none: what is made after the last use of `w`, or in that use by an op that works element by element, is in its place.
    pub fn loop_carried_copies(&self) -> &[(ArenaSlice, ArenaSlice)] {
        &self.loop_carried_copies
    }

    /// The operations of all its calls.
    pub fn operations(&self) -> f64 {
        let of = |instr: &Instruction| match instr {
            Instruction::Call { kernel, .. } => self.calls[*kernel as usize].operations,
            Instruction::Post { .. } | Instruction::Wait { .. } => 0.0,
        };
        // An empty sum of floats would be -0.0.
        self.instructions.iter().fold(0.0, |sum, instr| sum + of(instr))
    }
}

impl Program {
    /// What a rank does, as a list without types.
    ///
    /// Fails for a rank that the first mesh has not, for sums of a type without arithmetic, and for more bytes than memory has.
    pub fn compile(&self, rank: usize, options: &CompileOptions) -> Result<Schedule, Error> {
        build::compile(&*self.lower_comm_dtypes()?, rank, options)
    }
}
