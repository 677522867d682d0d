//! Bytes that really moved, counted where they land.
//!
//! Every engine counts in its own copy routine, at the receiver, per (step, receiver, sender), without what a rank gives
//! itself. What a sender hands over is counted apart, at the sender; [`Trace::check`] compares the two. Nothing here is
//! read off a plan, so that a plan's promises can be compared with it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;

/// One (step, receiver, sender) of a [`Trace`].
type Key = (usize, usize, usize);

/// Bytes per step and ordered pair of ranks.
///
/// ```
/// use reshard_collectives::Trace;
/// let mut trace = Trace::default();
/// trace.record_received(0, 1, 2, 64); // in step 0 rank 1 received 64 bytes from rank 2
/// trace.record_sent(0, 1, 2, 64);
/// trace.record_received(1, 1, 3, 8);
/// assert_eq!((trace.received_by(1), trace.sent_by(2), trace.between(1, 2)), (72, 64, 64));
/// assert_eq!(
///     trace.check().unwrap_err().to_string(),
///     "in step 1 rank 1 received 8 bytes from rank 3, which sent 0"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    received: BTreeMap<Key, u64>,
    sent: BTreeMap<Key, u64>,
    messages: BTreeMap<Key, u64>,
}

impl Trace {
    /// Adds bytes that landed at `receiver`.
    pub fn record_received(&mut self, step: usize, receiver: usize, sender: usize, bytes: u64) {
        if bytes > 0 {
            *self.received.entry((step, receiver, sender)).or_default() += bytes;
        }
    }

    /// Adds bytes that `sender` handed over.
    pub fn record_sent(&mut self, step: usize, receiver: usize, sender: usize, bytes: u64) {
        if bytes > 0 {
            *self.sent.entry((step, receiver, sender)).or_default() += bytes;
        }
    }

    /// Adds how often `receiver` took something from `sender`.
    pub fn record_messages(&mut self, step: usize, receiver: usize, sender: usize, messages: u64) {
        if messages > 0 {
            *self.messages.entry((step, receiver, sender)).or_default() += messages;
        }
    }

    /// Adds another trace, e.g. of another rank.
    pub fn merge(&mut self, other: &Trace) {
        for (&(step, receiver, sender), &bytes) in &other.received {
            self.record_received(step, receiver, sender, bytes);
        }
        for (&(step, receiver, sender), &bytes) in &other.sent {
            self.record_sent(step, receiver, sender, bytes);
        }
        for (&(step, receiver, sender), &messages) in &other.messages {
            self.record_messages(step, receiver, sender, messages);
        }
    }

    /// How often any rank took something from another: messages, if the engine sends any.
    pub fn messages(&self) -> u64 {
        self.messages.values().sum()
    }

    /// All bytes that landed anywhere.
    pub fn total(&self) -> u64 {
        self.received.values().sum()
    }

    /// Bytes that landed at a rank.
    pub fn received_by(&self, rank: usize) -> u64 {
        self.received.iter().filter(|((_, receiver, _), _)| *receiver == rank).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that a rank handed over.
    pub fn sent_by(&self, rank: usize) -> u64 {
        self.sent.iter().filter(|((_, _, sender), _)| *sender == rank).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that landed at a rank in one step.
    pub fn received_in_step(&self, step: usize, rank: usize) -> u64 {
        let here = self.received.iter().filter(|((at, receiver, _), _)| (*at, *receiver) == (step, rank));
        here.map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that a rank handed over in one step.
    pub fn sent_in_step(&self, step: usize, rank: usize) -> u64 {
        let here = self.sent.iter().filter(|((at, _, sender), _)| (*at, *sender) == (step, rank));
        here.map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that landed at `receiver` and came from `sender`.
    pub fn between(&self, receiver: usize, sender: usize) -> u64 {
        let pair = self.received.iter().filter(|((_, r, s), _)| (*r, *s) == (receiver, sender));
        pair.map(|(_, bytes)| bytes).sum()
    }

    /// The greatest number of bytes that landed at any one rank.
    pub fn worst_received(&self) -> u64 {
        let mut totals: BTreeMap<usize, u64> = BTreeMap::new();
        for (&(_, receiver, _), bytes) in &self.received {
            *totals.entry(receiver).or_default() += bytes;
        }
        totals.into_values().max().unwrap_or(0)
    }

    /// All entries as (step, receiver, sender, bytes), in order.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, usize, u64)> + '_ {
        self.received.iter().map(|(&(step, receiver, sender), &bytes)| (step, receiver, sender, bytes))
    }

    /// Succeeds if every pair's receiver and sender counted the same in every step.
    ///
    /// Errors: [`Error::Trace`] with the first pair that disagrees.
    pub fn check(&self) -> Result<(), Error> {
        let keys: BTreeSet<&Key> = self.received.keys().chain(self.sent.keys()).collect();
        for key in keys {
            let received = self.received.get(key).copied().unwrap_or(0);
            let sent = self.sent.get(key).copied().unwrap_or(0);
            if received != sent {
                let &(step, receiver, sender) = key;
                return Err(Error::Trace { step, receiver, sender, received, sent });
            }
        }
        Ok(())
    }
}

/// One rank's counts while it runs: grows when a step or peer is first seen, and then never again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    rank: usize,
    world: usize,
    /// `[step * world + peer]`
    received: Vec<u64>,
    sent: Vec<u64>,
    messages: Vec<u64>,
}

impl Recorder {
    pub(crate) fn new(rank: usize, world: usize) -> Self {
        Recorder { rank, world, received: Vec::new(), sent: Vec::new(), messages: Vec::new() }
    }

    /// Makes room for a step.
    pub(crate) fn reserve(&mut self, step: usize) {
        let needed = (step + 1) * self.world;
        if self.received.len() < needed {
            self.received.resize(needed, 0);
            self.sent.resize(needed, 0);
            self.messages.resize(needed, 0);
        }
    }

    pub(crate) fn received(&mut self, step: usize, peer: usize, bytes: u64) {
        self.received[step * self.world + peer] += bytes;
        self.messages[step * self.world + peer] += 1;
    }

    pub(crate) fn sent(&mut self, step: usize, peer: usize, bytes: u64) {
        self.sent[step * self.world + peer] += bytes;
    }

    /// Hands the counts out and starts over at zero, keeping the room.
    pub(crate) fn take(&mut self) -> Trace {
        let mut trace = Trace::default();
        for (i, bytes) in self.received.iter_mut().enumerate() {
            trace.record_received(i / self.world, self.rank, i % self.world, std::mem::take(bytes));
        }
        for (i, count) in self.messages.iter_mut().enumerate() {
            trace.record_messages(i / self.world, self.rank, i % self.world, std::mem::take(count));
        }
        for (i, bytes) in self.sent.iter_mut().enumerate() {
            trace.record_sent(i / self.world, i % self.world, self.rank, std::mem::take(bytes));
        }
        trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_count_is_found() {
        let mut recorder = Recorder::new(0, 2);
        recorder.reserve(1);
        recorder.received(1, 1, 10);
        let mut other = Recorder::new(1, 2);
        other.reserve(1);
        other.sent(1, 0, 10);
        let mut trace = recorder.take();
        trace.merge(&other.take());
        assert_eq!(trace.check(), Ok(()));
        assert_eq!(trace.messages(), 1);
        assert_eq!((trace.total(), trace.worst_received(), trace.sent_in_step(1, 1)), (10, 10, 10));
        trace.record_received(1, 0, 1, 1);
        assert_eq!(trace.check().unwrap_err().kind(), "trace");
        assert_eq!(recorder.take(), Trace::default());
    }
}
