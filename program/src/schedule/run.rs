//! A schedule run: by kernels of a framework, and by what carries its exchanges out.
//!
//! ```text
//! prepare   once: every call becomes a kernel, every exchange is agreed on by those who take part in it
//! run       as often as one likes: nothing but kernels, posts and waits, in order
//! ```

use crate::schedule::{ArenaSlice, ExchangeStart, Instruction, LocalCall, Schedule, Transfer};

/// A framework's ops.
pub trait Kernels {
    /// The memory that they compute in: `[u8]` for the host, a device's own type for a device.
    type Buffer: ?Sized;
    /// What can go wrong.
    type Error;

    /// Makes ready what a call needs, once, and gives it a number.
    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Self::Error>;

    /// Runs what has this number: reads the operands, which come first, and writes all of the results.
    ///
    /// Operands may be one another. An operand is a result only of a call that [works element by element](LocalCall::is_elementwise): then both
    /// are the same bytes, as where `w'` takes the place of `w`.
    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut Self::Buffer) -> Result<(), Self::Error>;
}

/// What carries exchanges out: [`Engine`](super::Engine) by a [`Communicator`](reshard_collectives::Communicator) on host memory, or
/// a framework's own streams.
pub trait ExchangeEngine {
    /// The memory of the arena.
    type Buffer: ?Sized;
    /// What can go wrong.
    type Error;

    /// Makes ready what an exchange needs; of a schedule's exchanges in order, together with the other ranks.
    fn prepare(&mut self, transfer: &Transfer) -> Result<(), Self::Error>;

    /// Begins it. Until it is waited for its source does not change, and nobody looks at its target and its scratch.
    fn post(&mut self, transfer: &Transfer, arena: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Completes it.
    fn wait(&mut self, transfer: &Transfer, arena: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Where exchanges begin: at the post, unless this says something else. [Records](super::Record) say so, and nothing else asks.
    fn begins(&self) -> ExchangeStart {
        ExchangeStart::AtPost
    }
}

/// A schedule whose kernels and exchanges are ready.
#[derive(Debug)]
pub struct PreparedSchedule<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) instrs: Vec<Instruction>,
}

impl Schedule {
    /// Makes ready what it calls and exchanges. All ranks do so together.
    pub fn prepare<K: Kernels, X: ExchangeEngine, E: From<K::Error> + From<X::Error>>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
    ) -> Result<PreparedSchedule<'_>, E> {
        let numbers = self.calls.iter().map(|call| kernels.prepare(call)).collect::<Result<Vec<u32>, _>>()?;
        for transfer in &self.exchanges {
            exchanges.prepare(transfer)?;
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
    /// Does what the rank does, in an arena of [`arena_bytes`](Schedule::arena_bytes) in which inputs are where they
    /// [belong](Schedule::locals). All ranks run together.
    ///
    /// Neither plans nor allocates; fails as kernels and exchanges do, and the arena's contents are unspecified then.
    pub fn run<K, X, E>(&self, kernels: &mut K, exchanges: &mut X, arena: &mut K::Buffer) -> Result<(), E>
    where
        K: Kernels,
        X: ExchangeEngine<Buffer = K::Buffer>,
        E: From<K::Error> + From<X::Error>,
    {
        for instr in &self.instrs {
            self.step::<K, X, E>(instr, kernels, exchanges, arena)?;
        }
        Ok(())
    }

    /// One thing.
    #[inline]
    pub(super) fn step<K, X, E>(
        &self,
        instr: &Instruction,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut K::Buffer,
    ) -> Result<(), E>
    where
        K: Kernels,
        X: ExchangeEngine<Buffer = K::Buffer>,
        E: From<K::Error> + From<X::Error>,
    {
        let Schedule { args: all, exchanges: transfers, .. } = self.schedule;
        match instr {
            Instruction::Call { kernel, args } => {
                kernels.run(*kernel, &all[args.start as usize..args.end as usize], arena)?;
            }
            Instruction::Post { exchange } => exchanges.post(&transfers[*exchange as usize], arena)?,
            Instruction::Wait { exchange } => exchanges.wait(&transfers[*exchange as usize], arena)?,
        }
        Ok(())
    }
}
