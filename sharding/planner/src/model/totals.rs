//! The totals of steps, and their order under an objective.

use std::borrow::Borrow;

use crate::objective::Objective;

/// The cost of a step: its worst rank's time, received and held bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) us: f64,
    /// The time in whole picoseconds, so that the order of additions decides nothing.
    pub(crate) picoseconds: u64,
    pub(crate) received: u64,
    pub(crate) peak: u64,
}

impl Cost {
    pub(crate) fn new(us: f64, received: u64, peak: u64) -> Cost {
        Cost { us, picoseconds: picoseconds(us), received, peak }
    }
}

/// Converts a time to whole picoseconds.
pub(crate) fn picoseconds(us: f64) -> u64 {
    (us * 1e6).round() as u64
}

/// Converts a time to whole picoseconds, rounded down so that it is surely not above.
pub(crate) fn picoseconds_below(us: f64) -> u64 {
    (us * 1e6 * (1.0 - 1e-9)).floor() as u64
}

/// The order of an objective while steps are still added: `[primary, secondary]` in picoseconds or bytes.
pub(crate) type Key = [u64; 2];

/// Returns the key with one more step.
pub(crate) fn add(objective: Objective, key: Key, step: &Cost) -> Key {
    let [primary, secondary] = key;
    let (ps, bytes) = (step.picoseconds, step.received);
    match objective {
        Objective::Time => [primary.saturating_add(ps), secondary.saturating_add(bytes)],
        Objective::Bytes => [primary.saturating_add(bytes), secondary.saturating_add(ps)],
        Objective::Peak => [primary.max(step.peak), secondary.saturating_add(ps)],
    }
}

/// The totals of the steps of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) picoseconds: u64,
    pub(crate) bytes: u64,
    pub(crate) peak: u64,
    steps: u64,
}

impl Totals {
    pub(crate) fn of<C: Borrow<Cost>>(steps: impl IntoIterator<Item = C>) -> Totals {
        let mut totals = Totals::default();
        for x in steps {
            let x = x.borrow();
            totals.picoseconds = totals.picoseconds.saturating_add(x.picoseconds);
            totals.bytes = totals.bytes.saturating_add(x.received);
            totals.peak = totals.peak.max(x.peak);
            totals.steps += 1;
        }
        totals
    }

    /// Returns the key of an objective: ties in time go to fewer bytes, and those to fewer steps.
    pub(crate) fn key(&self, objective: Objective) -> [u64; 3] {
        match objective {
            Objective::Time => [self.picoseconds, self.bytes, self.steps],
            Objective::Bytes => [self.bytes, self.picoseconds, self.steps],
            Objective::Peak => [self.peak, self.picoseconds, self.bytes],
        }
    }
}
