//! Exchanges by a communicator, in host memory.
//!
//! A communicator borrows memory from `post` to `wait`, and between them kernels write to other parts of the
//! same arena. So an exchange starts only at its wait. All ranks wait in one order, so the result is the
//! same. An engine with more than borrowed memory, such as a device stream, starts it at the post.

use reshard_collectives::{Communicator, Error};

use crate::schedule::{ExchangeEngine, ExchangeStart, Transfer};

/// An exchange engine that uses a communicator on host memory.
#[derive(Debug)]
pub struct CommunicatorExchanges<'c, C: Communicator<Buffer = [u8]>> {
    comm: &'c mut C,
    staging: Option<C::Owned>,
    staging_bytes: usize,
}

impl<'c, C: Communicator<Buffer = [u8]>> CommunicatorExchanges<'c, C> {
    /// Returns the engine of this rank.
    pub fn new(comm: &'c mut C) -> Self {
        CommunicatorExchanges { comm, staging: None, staging_bytes: 0 }
    }

    /// Returns the communicator.
    pub fn communicator(&mut self) -> &mut C {
        self.comm
    }
}

impl<C: Communicator<Buffer = [u8]>> ExchangeEngine for CommunicatorExchanges<'_, C> {
    type Buffer = [u8];
    type Error = Error;

    fn prepare(&mut self, transfer: &Transfer) -> Result<(), Error> {
        let bytes = transfer.compiled.check_agreement(self.comm)?;
        if self.staging.is_none() || bytes > self.staging_bytes {
            self.staging = Some(self.comm.allocate(bytes)?);
            self.staging_bytes = bytes;
        }
        Ok(())
    }

    fn begins(&self) -> ExchangeStart {
        ExchangeStart::AtWait
    }

    fn post(&mut self, _: &Transfer, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn wait(&mut self, transfer: &Transfer, arena: &mut [u8]) -> Result<(), Error> {
        let Transfer { compiled, source, target, scratch: [first, second], .. } = transfer;
        let rank = compiled.rank();
        let needed =
            [source, target, first, second].map(|arg| arg.range().end).into_iter().max().unwrap_or(0);
        let given = arena.len();
        let short = || Error::Buffer { rank, which: "arena", needed, given };
        // An empty range has no position: its offset may be in the middle of another buffer.
        let ranges =
            [source, target, first, second].map(|arg| if arg.bytes == 0 { 0..0 } else { arg.range() });
        let [source, target, first, second] = arena.get_disjoint_mut(ranges).map_err(|_| short())?;
        let Some(staging) = &mut self.staging else {
            let place = compiled.exchanges().next().map(reshard_collectives::Exchange::place);
            let place = place.unwrap_or(reshard_collectives::Location { step: None, group: vec![rank] });
            return Err(Error::NotAgreed { rank, place });
        };
        let staging = std::borrow::BorrowMut::borrow_mut(staging);
        compiled.run_in(self.comm, source, target, [first, second, staging])
    }
}
