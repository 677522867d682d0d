//! One number for all that ranks must agree on: FNV-1a over the printed plans, dtypes and memory layouts.

use std::fmt::{self, Write};

use reshard_planner::Plan;

use crate::BufferLayout;

/// A hasher of the text that is written to it.
pub(crate) struct Fingerprint(u64);

impl Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

impl Fingerprint {
    pub(crate) fn new() -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a tensor's plan and memory.
    pub(crate) fn add(&mut self, plan: &Plan, source: &BufferLayout, target: &BufferLayout) {
        let (from, to) = (plan.from(), plan.to());
        // Writing to this hasher never fails.
        let _ = write!(
            self,
            "{from} on {} -> {to} on {} of {:?} {} {}:",
            from.mesh(),
            to.mesh(),
            from.shape(),
            plan.dtype(),
            plan.element_bytes()
        );
        for step in plan.steps() {
            let (op, after) = (step.op(), &step.after);
            let _ = write!(self, "{op} {:?} {after} on {} {};", step.axes, after.mesh(), step.group);
        }
        for memory in [source, target] {
            if *memory != BufferLayout::RowMajor {
                let _ = write!(self, "{memory:?}");
            }
        }
    }

    /// Adds a number.
    pub(crate) fn add_number(&mut self, number: usize) {
        let _ = write!(self, "#{number}");
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}
