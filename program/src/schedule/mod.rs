//! Schedules: the untyped instruction list of one rank of a program.
//!
//! # Data flow
//!
//! ```text
//! Program --compile(rank)--> Schedule --prepare(kernels, engine)--> PreparedSchedule --run(.., arena)--> the arena
//!
//! statements   in one order for all ranks, of the program or pipelined; redistributions may begin early and end late
//!   | each rank omits statements in which it has no part
//! values       the local shape of a value, and its region of the whole
//!   | a view, or a redistribution that leaves all bytes in place, is its operand: no instruction
//! slots        one for each buffer; two more for the state of a redistribution between its phases
//!   | first and last use; a buffer in flight is in use from its post to its wait
//! offsets      bytes of one arena; slots with disjoint lifetimes share them
//! ```
//!
//! | instruction | does |
//! |---|---|
//! | `Call` | a kernel of the framework, on some bytes of the arena: operands, then results |
//! | `Post` | begins an exchange: a redistribution's plan, compiled for this rank |
//! | `Wait` | completes it: the target is ready, and no rank reads the source any more |
//!
//! # Deadlock freedom
//!
//! The order of calls, posts and waits is computed once, from the statements and from facts known to all
//! ranks. A rank's list is this order without the instructions in which it has no part, so any two ranks
//! reach their common exchanges in one order. Within a group, exchanges are waited for in the order in which
//! they were posted. A [`Communicator`](reshard_collectives::Communicator) requires this.
//!
//! # Limits of a run
//!
//! [`PreparedSchedule::run`] walks the list. It has no types, shardings or planner, and it allocates nothing. Tests
//! check that it does the same as the typed program: both have the same trace, calls with local shapes and
//! exchanges with members and bytes, on all ranks.
//!
//! ```
//! use reshard_program::{ShardingSolver, Program, schedule::CompileOptions};
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
//! let schedule = program.compile(1, &CompileOptions::default())?;
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
pub use run::{ExchangeEngine, Kernels, PreparedSchedule, RunError};
pub use timeline::{Activity, RankTimeline, Span, Timeline};
pub use trace::{Event, TraceOperand};
pub use transfer::{Transfer, TransferMember, TransferStep};

use crate::{Error, Program};

/// Sorts ranks and removes duplicates.
fn each_once(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// A byte range of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArenaSlice {
    /// The offset of the first byte, in bytes.
    pub offset: usize,
    /// The length in bytes.
    pub bytes: usize,
}

impl ArenaSlice {
    /// Returns the byte range.
    pub fn range(self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// An instruction of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Runs a kernel on these [args](Schedule::args): operands, then results.
    Call {
        /// The index of the [call](Schedule::calls).
        ///
        /// After [preparation](Schedule::prepare) it is the framework's kernel number.
        kernel: u32,
        /// Its range in the list of args.
        args: Range<u32>,
    },
    /// Starts one of the [exchanges](Schedule::exchanges).
    Post {
        /// The index of the exchange.
        exchange: u32,
    },
    /// Completes an exchange.
    Wait {
        /// The index of the exchange.
        exchange: u32,
    },
}

/// A value on the rank of a schedule.
#[derive(Clone, Debug)]
pub struct LocalBuffer {
    /// Its name in the program.
    pub name: String,
    /// The rank's shard of it.
    pub tensor: LocalTensor,
    /// Its bytes in the arena.
    pub slice: ArenaSlice,
    /// `true` for an input.
    pub is_input: bool,
    /// `true` if it is still live at the end.
    pub is_live_out: bool,
}

/// The order of a rank's calls.
///
/// ```
/// use reshard_program::schedule::Order;
/// assert_eq!("1f1b".parse::<Order>()?, Order::OneForwardOneBackward);
/// assert_eq!(Order::default().to_string(), "program");
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// The order of the program.
    #[default]
    Program,
    /// Pipelined microbatches: one forward, one backward (1F1B).
    ///
    /// Each microbatch runs backward as soon as possible, and of `p` stages stage `s` has `p - s`
    /// microbatches in flight. So fewer activations are live than if all forwards come first. Stages are
    /// meshes without common ranks; on one stage, each microbatch runs backward before the next begins.
    OneForwardOneBackward,
}

impl Order {
    /// All orders.
    #[doc(hidden)]
    pub const ALL: [Order; 2] = [Order::Program, Order::OneForwardOneBackward];

    /// Returns its name.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Order::Program => "program",
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
        known.ok_or_else(|| build::refused(format!("unknown order `{text}`; expected one of: program, 1f1b")))
    }
}

/// Options of the compilation of a program.
///
/// No option changes a bit of any result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// `true` to share memory between buffers with disjoint lifetimes (default: `true`).
    pub liveness: bool,
    /// The limit of source and target bytes in flight on a rank (default: 0).
    ///
    /// Redistributions then start as early as possible and end where their results are used. With 0, each
    /// redistribution ends where it begins.
    pub in_flight_bytes: u64,
    /// The limit of source and target bytes of a bucket (default: 0).
    ///
    /// The redistributions of a bucket are fused into one exchange. Redistributions with the same steps over
    /// the same groups share a bucket, such as the gradients of many parameters. One waits until its bucket
    /// is full, or until a result in the bucket is used. With 0, each redistribution is a separate exchange.
    pub bucket_bytes: u64,
    /// The order of calls (default: the order of the program).
    pub order: Order,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions { liveness: true, in_flight_bytes: 0, bucket_bytes: 0, order: Order::Program }
    }
}

/// The instruction list of one rank of a program; see the [module](self).
#[derive(Clone, Debug)]
pub struct Schedule {
    rank: usize,
    instructions: Vec<Instruction>,
    args: Vec<ArenaSlice>,
    /// The name in the program of each arg.
    names: Vec<String>,
    calls: Vec<LocalCall>,
    exchanges: Vec<Transfer>,
    buffers: Vec<LocalBuffer>,
    arena_bytes: usize,
    loop_carried_copies: Vec<(ArenaSlice, ArenaSlice)>,
}

impl Schedule {
    /// Returns the rank of this schedule.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the instructions, in order.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns the byte ranges that calls use.
    pub fn args(&self) -> &[ArenaSlice] {
        &self.args
    }

    /// Returns the name in the program of each arg.
    #[doc(hidden)]
    pub fn arg_names(&self) -> &[String] {
        &self.names
    }

    /// Returns the distinct calls.
    pub fn calls(&self) -> &[LocalCall] {
        &self.calls
    }

    /// Returns the exchanges of the rank; the redistributions of a bucket are one exchange.
    pub fn exchanges(&self) -> &[Transfer] {
        &self.exchanges
    }

    /// Returns the values that the rank holds, in the order of the program.
    pub fn buffers(&self) -> &[LocalBuffer] {
        &self.buffers
    }

    /// Returns a value by name, or `None` if the rank does not hold it.
    pub fn local(&self, name: &str) -> Option<&LocalBuffer> {
        self.buffers.iter().find(|local| local.name == name)
    }

    /// Returns the bytes of the arena: the peak of this rank, including gaps between buffers.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Returns a new arena: [`arena_bytes`](Schedule::arena_bytes) of zeros.
    ///
    /// # Errors
    ///
    /// `schedule` if the memory cannot be allocated.
    #[doc(hidden)]
    pub fn arena(&self) -> Result<Vec<u8>, Error> {
        let mut arena = Vec::new();
        if arena.try_reserve_exact(self.arena_bytes).is_err() {
            let reason = format!(
                "the arena of rank {} cannot be allocated: it needs {} bytes",
                self.rank, self.arena_bytes
            );
            return Err(Error::Schedule { reason });
        }
        arena.resize(self.arena_bytes, 0);
        Ok(arena)
    }

    /// Returns the copies to make before the next step, as pairs of source and destination.
    ///
    /// They are needed for a value `w'` that is not computed in place of `w`. The ranges do not overlap.
    /// Mostly there are none: a value that is computed after the last use of `w`, or in that use by an
    /// elementwise op, is in place.
    pub fn loop_carried_copies(&self) -> &[(ArenaSlice, ArenaSlice)] {
        &self.loop_carried_copies
    }

    /// Returns the total operations of all its calls.
    #[doc(hidden)]
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
    /// Compiles the instruction list of a rank.
    ///
    /// Returns an error for a rank outside the first mesh, for sums of a dtype without arithmetic, and for
    /// buffers that exceed the address space.
    pub fn compile(&self, rank: usize, options: &CompileOptions) -> Result<Schedule, Error> {
        build::compile(&*self.lower_comm_dtypes()?, rank, options)
    }
}
