//! Runs a schedule with the kernels of a framework and an exchange engine.
//!
//! ```text
//! prepare   once: every call becomes a kernel, and the members of every exchange check that they agree
//! run       any number of times: only kernels, posts and waits, in order
//! ```

use core::fmt;

use crate::schedule::{ArenaSlice, ExchangeStart, Instruction, LocalCall, Schedule, Transfer};

/// The ops of a framework.
pub trait Kernels {
    /// The memory that they compute in: `[u8]` for the host, a separate type for a device.
    type Buffer: ?Sized;
    /// The error type.
    type Error;

    /// Prepares a call, once, and returns its kernel number.
    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Self::Error>;

    /// Runs the kernel with this number: reads the operands, which come first, and writes all of the results.
    ///
    /// Operands may alias one another. An operand aliases a result only in an
    /// [elementwise](LocalCall::is_elementwise) call: then both are the same bytes, as where `w'` replaces
    /// `w`.
    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut Self::Buffer) -> Result<(), Self::Error>;
}

/// An exchange engine.
///
/// It is [`CommunicatorExchanges`](super::CommunicatorExchanges) with a [`Communicator`](reshard_collectives::Communicator) on host memory,
/// or a framework's own streams.
pub trait ExchangeEngine {
    /// The memory of the arena.
    type Buffer: ?Sized;
    /// The error type.
    type Error;

    /// Prepares an exchange; all ranks call it jointly, for a schedule's exchanges in order.
    fn prepare(&mut self, transfer: &Transfer) -> Result<(), Self::Error>;

    /// Starts an exchange.
    ///
    /// Until its wait, its source does not change, and no kernel reads its target or its scratch.
    fn post(&mut self, transfer: &Transfer, arena: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Completes an exchange.
    fn wait(&mut self, transfer: &Transfer, arena: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Returns the point at which exchanges begin; by default at the post.
    ///
    /// Only [records](super::RunRecord) use it.
    fn begins(&self) -> ExchangeStart {
        ExchangeStart::AtPost
    }
}

/// The error of preparing or running a schedule: that of a kernel, or that of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError<K, X> {
    /// The error of the [`Kernels`].
    Kernel(K),
    /// The error of the [`ExchangeEngine`].
    Exchange(X),
}

impl<K: fmt::Display, X: fmt::Display> fmt::Display for RunError<K, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Kernel(error) => error.fmt(f),
            RunError::Exchange(error) => error.fmt(f),
        }
    }
}

impl<K, X> core::error::Error for RunError<K, X>
where
    K: core::error::Error + 'static,
    X: core::error::Error + 'static,
{
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            RunError::Kernel(error) => error.source(),
            RunError::Exchange(error) => error.source(),
        }
    }
}

/// A schedule whose kernels and exchanges are prepared.
#[derive(Debug)]
pub struct PreparedSchedule<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) instrs: Vec<Instruction>,
}

impl Schedule {
    /// Prepares the calls and exchanges. All ranks call it jointly.
    pub fn prepare<K: Kernels, X: ExchangeEngine>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
    ) -> Result<PreparedSchedule<'_>, RunError<K::Error, X::Error>> {
        let numbers = self.calls.iter().map(|call| kernels.prepare(call)).collect::<Result<Vec<u32>, _>>();
        let numbers = numbers.map_err(RunError::Kernel)?;
        for transfer in &self.exchanges {
            exchanges.prepare(transfer).map_err(RunError::Exchange)?;
        }
        let mut instrs = self.instructions.clone();
        for instr in &mut instrs {
            match instr {
                Instruction::Call { kernel, .. } => *kernel = numbers[*kernel as usize],
                Instruction::Post { .. } | Instruction::Wait { .. } => {}
            }
        }
        Ok(PreparedSchedule { schedule: self, instrs })
    }
}

impl PreparedSchedule<'_> {
    /// Runs the instructions of the rank in an arena of [`arena_bytes`](Schedule::arena_bytes).
    ///
    /// The inputs have to be at their [offsets](Schedule::buffers). All ranks run it jointly.
    ///
    /// Neither plans nor allocates. Returns the errors of kernels and exchanges; the arena's contents are
    /// unspecified then.
    pub fn run<K, X>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut K::Buffer,
    ) -> Result<(), RunError<K::Error, X::Error>>
    where
        K: Kernels,
        X: ExchangeEngine<Buffer = K::Buffer>,
    {
        for instr in &self.instrs {
            self.step(instr, kernels, exchanges, arena)?;
        }
        Ok(())
    }

    /// Runs one instruction.
    #[inline]
    pub(super) fn step<K, X>(
        &self,
        instr: &Instruction,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut K::Buffer,
    ) -> Result<(), RunError<K::Error, X::Error>>
    where
        K: Kernels,
        X: ExchangeEngine<Buffer = K::Buffer>,
    {
        let Schedule { args: all, exchanges: transfers, .. } = self.schedule;
        match instr {
            Instruction::Call { kernel, args } => {
                let args = &all[args.start as usize..args.end as usize];
                kernels.run(*kernel, args, arena).map_err(RunError::Kernel)
            }
            Instruction::Post { exchange } => {
                exchanges.post(&transfers[*exchange as usize], arena).map_err(RunError::Exchange)
            }
            Instruction::Wait { exchange } => {
                exchanges.wait(&transfers[*exchange as usize], arena).map_err(RunError::Exchange)
            }
        }
    }
}
