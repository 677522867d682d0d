//! Bytes that really moved, counted where they land.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;

/// From whom to whom in which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The index of the step in the plan.
    pub step: usize,
    /// The rank to which bytes went.
    pub receiver: usize,
    /// The rank from which they came.
    pub sender: usize,
}

/// Bytes per step and ordered pair of ranks.
///
/// Every engine counts in its own copy routine, at the receiver, per (step, receiver, sender), without what a rank gives
/// itself. What a sender hands over is counted apart, at the sender; [`Trace::check`] compares the two. Nothing here is
/// read off a plan, so that a plan's promises can be compared with it.
///
/// ```
/// use reshard_collectives::{Hop, Trace};
/// let mut trace = Trace::default();
/// trace.record_received(Hop { step: 0, sender: 2, receiver: 1 }, 64);
/// trace.record_sent(Hop { step: 0, sender: 2, receiver: 1 }, 64);
/// trace.record_received(Hop { step: 1, sender: 3, receiver: 1 }, 8);
/// assert_eq!((trace.received_by(1), trace.sent_by(2)), (72, 64));
/// assert_eq!(trace.received(|hop| hop.step == 1 && hop.receiver == 1), 8);
/// assert_eq!(
///     trace.check().unwrap_err().to_string(),
///     "in step 1 rank 1 received 8 bytes from rank 3, which sent 0"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    received: BTreeMap<Hop, u64>,
    sent: BTreeMap<Hop, u64>,
    messages: BTreeMap<Hop, u64>,
}

impl Trace {
    /// Adds bytes that landed at the receiver.
    pub fn record_received(&mut self, hop: Hop, bytes: u64) {
        add(&mut self.received, hop, bytes);
    }

    /// Adds bytes that the sender handed over.
    pub fn record_sent(&mut self, hop: Hop, bytes: u64) {
        add(&mut self.sent, hop, bytes);
    }

    /// Adds how often the receiver took something from the sender.
    pub fn record_messages(&mut self, hop: Hop, messages: u64) {
        add(&mut self.messages, hop, messages);
    }

    /// Adds another trace, e.g. of another rank.
    pub fn merge(&mut self, other: &Trace) {
        let all = [
            (&mut self.received, &other.received),
            (&mut self.sent, &other.sent),
            (&mut self.messages, &other.messages),
        ];
        for (mine, theirs) in all {
            for (&hop, &count) in theirs {
                add(mine, hop, count);
            }
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

    /// Bytes that landed, counted at their receivers, on those hops.
    pub fn received(&self, on: impl Fn(&Hop) -> bool) -> u64 {
        sum(&self.received, on)
    }

    /// Bytes that were handed over, counted at their senders, on those hops.
    pub fn sent(&self, on: impl Fn(&Hop) -> bool) -> u64 {
        sum(&self.sent, on)
    }

    /// Bytes that landed at a rank.
    pub fn received_by(&self, rank: usize) -> u64 {
        self.received(|hop| hop.receiver == rank)
    }

    /// Bytes that a rank handed over.
    pub fn sent_by(&self, rank: usize) -> u64 {
        self.sent(|hop| hop.sender == rank)
    }

    /// The greatest number of bytes that landed at any one rank.
    pub fn worst_received(&self) -> u64 {
        let mut totals: BTreeMap<usize, u64> = BTreeMap::new();
        for (hop, bytes) in &self.received {
            *totals.entry(hop.receiver).or_default() += bytes;
        }
        totals.into_values().max().unwrap_or(0)
    }

    /// The bytes that landed on each hop, in order.
    pub fn hops(&self) -> impl Iterator<Item = (Hop, u64)> + '_ {
        self.received.iter().map(|(&hop, &bytes)| (hop, bytes))
    }

    /// Succeeds if every pair's receiver and sender counted the same in every step.
    ///
    /// Errors: [`Error::Trace`] with the first pair that disagrees.
    pub fn check(&self) -> Result<(), Error> {
        let hops: BTreeSet<&Hop> = self.received.keys().chain(self.sent.keys()).collect();
        for hop in hops {
            let received = self.received.get(hop).copied().unwrap_or(0);
            let sent = self.sent.get(hop).copied().unwrap_or(0);
            if received != sent {
                let &Hop { step, receiver, sender } = hop;
                return Err(Error::Trace { step, receiver, sender, received, sent });
            }
        }
        Ok(())
    }
}

fn add(counts: &mut BTreeMap<Hop, u64>, hop: Hop, count: u64) {
    if count > 0 {
        *counts.entry(hop).or_default() += count;
    }
}

fn sum(counts: &BTreeMap<Hop, u64>, on: impl Fn(&Hop) -> bool) -> u64 {
    counts.iter().filter(|(hop, _)| on(hop)).map(|(_, count)| count).sum()
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
        let (rank, world) = (self.rank, self.world);
        let from = |i: usize| Hop { step: i / world, receiver: rank, sender: i % world };
        let to = |i: usize| Hop { step: i / world, receiver: i % world, sender: rank };
        for (i, bytes) in self.received.iter_mut().enumerate() {
            trace.record_received(from(i), std::mem::take(bytes));
        }
        for (i, count) in self.messages.iter_mut().enumerate() {
            trace.record_messages(from(i), std::mem::take(count));
        }
        for (i, bytes) in self.sent.iter_mut().enumerate() {
            trace.record_sent(to(i), std::mem::take(bytes));
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
        assert_eq!((trace.total(), trace.worst_received(), trace.sent(|hop| hop.step == 1)), (10, 10, 10));
        trace.record_received(Hop { step: 1, receiver: 0, sender: 1 }, 1);
        assert_eq!(trace.check().unwrap_err().kind(), "trace");
        assert_eq!(recorder.take(), Trace::default());
    }
}
