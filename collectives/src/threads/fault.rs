//! Injection points of faults on a rank.

use std::panic::panic_any;

use super::ThreadCommunicator;
use crate::fault::{Fault, FaultKind};
use crate::{Error, Exchange};

impl ThreadCommunicator {
    /// Applies the faults injected before a step.
    pub(super) fn before(&self, exchange: &Exchange) -> Result<(), Error> {
        for fault in self.faults(exchange) {
            match fault.kind {
                FaultKind::Panic => panic_any(format!("injected in step {}", fault.step)),
                FaultKind::Fail => return Err(Error::InjectedFault { rank: self.rank, step: fault.step }),
                FaultKind::Stall(time) => std::thread::sleep(time),
                FaultKind::PanicInside | FaultKind::FlipByte(_) | FaultKind::Miscount(_) => {}
            }
        }
        Ok(())
    }

    /// Applies the faults injected in the middle of a step.
    pub(super) fn inside(&self, exchange: &Exchange) {
        for fault in self.faults(exchange) {
            match fault.kind {
                FaultKind::PanicInside => panic_any(format!("injected inside step {}", fault.step)),
                FaultKind::Panic
                | FaultKind::Fail
                | FaultKind::Stall(_)
                | FaultKind::FlipByte(_)
                | FaultKind::Miscount(_) => {}
            }
        }
    }

    /// Applies the faults injected after a step.
    pub(super) fn after(&mut self, exchange: &Exchange) {
        let mut extra = 0;
        for fault in self.faults(exchange) {
            match fault.kind {
                FaultKind::Miscount(bytes) => extra = bytes.saturating_add(extra),
                FaultKind::Panic
                | FaultKind::PanicInside
                | FaultKind::Fail
                | FaultKind::Stall(_)
                | FaultKind::FlipByte(_) => {}
            }
        }
        if extra > 0 {
            let peer = exchange.members().iter().copied().find(|member| *member != self.rank);
            self.recorder.received(exchange.step(), peer.unwrap_or(self.rank), extra);
        }
    }

    /// Applies the faults injected after a plan.
    pub(super) fn behind(&self, shard: &mut [u8]) {
        for fault in &self.faults {
            match fault.kind {
                FaultKind::FlipByte(at) if !shard.is_empty() => shard[at % shard.len()] ^= 1,
                FaultKind::FlipByte(_)
                | FaultKind::Miscount(_)
                | FaultKind::Panic
                | FaultKind::PanicInside
                | FaultKind::Fail
                | FaultKind::Stall(_) => {}
            }
        }
    }

    fn faults(&self, exchange: &Exchange) -> impl Iterator<Item = Fault> + '_ {
        let (step, first_phase) = (exchange.step(), exchange.phase() == 0);
        self.faults.iter().filter(move |fault| first_phase && fault.step == step).copied()
    }
}
