//! Counts of the bytes that were really transferred, taken at the receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The sender, the receiver and the step of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The index of the step in the plan.
    pub step: usize,
    /// The rank that received bytes.
    pub receiver: usize,
    /// The rank that sent them.
    pub sender: usize,
}

/// Bytes per step and ordered pair of ranks.
///
/// Every engine counts in its own copy routine, at the receiver, per (step, receiver, sender). Data that a
/// rank gives itself is not counted. The bytes that a sender hands over are counted separately, at the
/// sender, and compared. No count is derived from a plan, so the predictions of a plan can be compared with the counts.
///
/// One line of its text per step and receiver, in this order, with the bytes from each sender; the text parses again:
///
/// ```
/// use reshard_collectives::{Hop, TrafficLog};
/// let text = "step 1: rank 1 received 88 bytes: 64 from 0, 24 from 2 that sent 32 in 3 messages";
/// let log: TrafficLog = text.parse()?;
/// assert_eq!((log.received_by(1), log.sent_by(2), log.total(), log.worst_received()), (88, 32, 88, 88));
/// assert_eq!(log.hops().next(), Some((Hop { step: 1, sender: 0, receiver: 1 }, 64)));
/// assert_eq!(log.to_string(), text);
/// assert_eq!(TrafficLog::default().to_string(), "nothing moved");
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
///
/// Usual values are omitted: that a sender counted the same, and that bytes came in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficLog {
    received: BTreeMap<Hop, u64>,
    sent: BTreeMap<Hop, u64>,
    messages: BTreeMap<Hop, u64>,
}

impl TrafficLog {
    /// Adds bytes that the receiver received.
    #[doc(hidden)]
    pub fn record_received(&mut self, hop: Hop, bytes: u64) {
        add(&mut self.received, hop, bytes);
    }

    /// Adds bytes that the sender handed over.
    #[doc(hidden)]
    pub fn record_sent(&mut self, hop: Hop, bytes: u64) {
        add(&mut self.sent, hop, bytes);
    }

    /// Adds the number of times that the receiver took data from the sender.
    #[doc(hidden)]
    pub fn record_messages(&mut self, hop: Hop, messages: u64) {
        add(&mut self.messages, hop, messages);
    }

    /// Adds another trace, for example of another rank.
    #[doc(hidden)]
    pub fn merge(&mut self, other: &TrafficLog) {
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

    /// Returns the number of transfers between ranks: messages, if the engine sends any.
    #[doc(hidden)]
    pub fn messages(&self) -> u64 {
        total(self.messages.values().copied())
    }

    /// Returns all received bytes.
    pub fn total(&self) -> u64 {
        total(self.received.values().copied())
    }

    /// Returns the received bytes, counted at their receivers, on the selected hops.
    #[doc(hidden)]
    pub fn received(&self, on: impl Fn(&Hop) -> bool) -> u64 {
        sum(&self.received, on)
    }

    /// Returns the bytes handed over, counted at their senders, on the selected hops.
    #[doc(hidden)]
    pub fn sent(&self, on: impl Fn(&Hop) -> bool) -> u64 {
        sum(&self.sent, on)
    }

    /// Returns the bytes that a rank received.
    pub fn received_by(&self, rank: usize) -> u64 {
        self.received(|hop| hop.receiver == rank)
    }

    /// Returns the bytes that a rank handed over.
    pub fn sent_by(&self, rank: usize) -> u64 {
        self.sent(|hop| hop.sender == rank)
    }

    /// Returns the greatest number of bytes that any one rank received.
    pub fn worst_received(&self) -> u64 {
        let mut totals: BTreeMap<usize, u64> = BTreeMap::new();
        for (hop, bytes) in &self.received {
            let all = totals.entry(hop.receiver).or_default();
            *all = all.saturating_add(*bytes);
        }
        totals.into_values().max().unwrap_or(0)
    }

    /// Returns the received bytes of each hop, in order.
    pub fn hops(&self) -> impl Iterator<Item = (Hop, u64)> + '_ {
        self.received.iter().map(|(&hop, &bytes)| (hop, bytes))
    }

    /// Succeeds if every pair's receiver and sender counted the same in every step.
    ///
    /// ```
    /// use reshard_collectives::{Hop, TrafficLog};
    /// let mut log = TrafficLog::default();
    /// log.record_received(Hop { step: 1, sender: 3, receiver: 1 }, 8);
    /// assert_eq!(log.received(|hop| hop.step == 1 && hop.receiver == 1), 8);
    /// let error = log.check().unwrap_err().to_string();
    /// assert_eq!(error, "in step 1 rank 1 received 8 bytes from rank 3, which sent 0");
    /// log.record_sent(Hop { step: 1, sender: 3, receiver: 1 }, 8);
    /// assert_eq!(log.check(), Ok(()));
    /// ```
    ///
    /// Errors: [`Error::Trace`] with the first pair that disagrees.
    #[doc(hidden)]
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

/// Adds a count that is not zero; the sum saturates.
fn add(counts: &mut BTreeMap<Hop, u64>, hop: Hop, count: u64) {
    if count > 0 {
        let all = counts.entry(hop).or_default();
        *all = all.saturating_add(count);
    }
}

fn sum(counts: &BTreeMap<Hop, u64>, on: impl Fn(&Hop) -> bool) -> u64 {
    total(counts.iter().filter(|(hop, _)| on(hop)).map(|(_, count)| *count))
}

fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// The counts of one hop: received, sent, messages.
type Counts = (u64, u64, u64);

impl TrafficLog {
    /// Groups all hops with any count by step and receiver, the senders ascending.
    fn by_receiver(&self) -> BTreeMap<(usize, usize), BTreeMap<usize, Counts>> {
        let mut lines: BTreeMap<(usize, usize), BTreeMap<usize, Counts>> = BTreeMap::new();
        let hops = self.received.keys().chain(self.sent.keys()).chain(self.messages.keys());
        for hop in hops {
            let of = |counts: &BTreeMap<Hop, u64>| counts.get(hop).copied().unwrap_or(0);
            let counts = (of(&self.received), of(&self.sent), of(&self.messages));
            lines.entry((hop.step, hop.receiver)).or_default().insert(hop.sender, counts);
        }
        lines
    }
}

/// Returns the number of messages of a hop that is not printed.
fn usual(received: u64) -> u64 {
    u64::from(received > 0)
}

const NOTHING: &str = "nothing moved";

impl fmt::Display for TrafficLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.by_receiver();
        if lines.is_empty() {
            return f.write_str(NOTHING);
        }
        for (i, ((step, receiver), senders)) in lines.iter().enumerate() {
            let line = if i > 0 { "\n" } else { "" };
            let bytes = total(senders.values().map(|counts| counts.0));
            write!(f, "{line}step {step}: rank {receiver} received {bytes} bytes: ")?;
            for (i, (sender, (received, sent, messages))) in senders.iter().enumerate() {
                write!(f, "{}{received} from {sender}", if i > 0 { ", " } else { "" })?;
                if sent != received {
                    write!(f, " that sent {sent}")?;
                }
                if *messages != usual(*received) {
                    write!(f, " in {messages} messages")?;
                }
            }
        }
        Ok(())
    }
}

impl FromStr for TrafficLog {
    type Err = Error;

    /// Parses the text that a trace prints.
    fn from_str(text: &str) -> Result<TrafficLog, Error> {
        let mut trace = TrafficLog::default();
        if text.trim() == NOTHING {
            return Ok(trace);
        }
        for line in text.lines() {
            let wrong = |what: &str| Error::Parse { input: line.to_string(), message: what.to_string() };
            let form = || {
                wrong(
                    "expected a line such as `step 0: rank 1 received 72 bytes: 64 from 0, 8 from 2 that sent 9 in 3 messages`",
                )
            };
            let (step, rest) = after("step ", line)
                .and_then(|(step, rest)| Some((step, rest.strip_prefix(": ")?)))
                .ok_or_else(form)?;
            let (receiver, rest) = after("rank ", rest).ok_or_else(form)?;
            let (bytes, rest) = after(" received ", rest).ok_or_else(form)?;
            let hops = rest.strip_prefix(" bytes: ").ok_or_else(form)?;
            let mut received = Vec::new();
            let mut last = None;
            for text in hops.split(", ") {
                let (sender, (counted, sent, messages)) = one_sender(text).ok_or_else(form)?;
                if last.is_some_and(|last| last >= sender) {
                    return Err(wrong("senders must be ascending"));
                }
                last = Some(sender);
                if (counted, sent, messages) == (0, 0, 0) {
                    return Err(wrong("a sender without bytes or messages must be left out"));
                }
                let hop = Hop { step: step as usize, receiver: receiver as usize, sender };
                if [&trace.received, &trace.sent, &trace.messages]
                    .iter()
                    .any(|counts| counts.contains_key(&hop))
                {
                    return Err(wrong("each step and rank must have one line only"));
                }
                trace.record_received(hop, counted);
                trace.record_sent(hop, sent);
                trace.record_messages(hop, messages);
                received.push(counted);
            }
            if total(received) != bytes {
                return Err(wrong("the bytes of a line must be the sum of its parts"));
            }
        }
        if trace == TrafficLog::default() {
            let message = format!("expected lines of received bytes, or `{NOTHING}`");
            return Err(Error::Parse { input: text.to_string(), message });
        }
        Ok(trace)
    }
}

/// Returns the number that follows a prefix, and the rest; a number has no sign and no leading zeros.
fn after<'a>(word: &str, text: &'a str) -> Option<(u64, &'a str)> {
    let text = text.strip_prefix(word)?;
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = &text[..end];
    let usual = number == "0" || !number.starts_with('0');
    Some((number.parse().ok().filter(|_| usual)?, &text[end..]))
}

/// Parses `64 from 0`, optionally with ` that sent 60` and ` in 3 messages`.
fn one_sender(text: &str) -> Option<(usize, Counts)> {
    let (received, rest) = after("", text)?;
    let (sender, rest) = after(" from ", rest)?;
    let (sent, rest) = after(" that sent ", rest).unwrap_or((received, rest));
    let (messages, rest) = match after(" in ", rest) {
        Some((messages, rest)) => (messages, rest.strip_prefix(" messages")?),
        None => (usual(received), rest),
    };
    rest.is_empty().then_some((usize::try_from(sender).ok()?, (received, sent, messages)))
}

/// The counts of one rank while it runs; allocates only when a step is first seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    rank: usize,
    world: usize,
    /// In the order in which steps were first seen; a plan has few.
    steps: Vec<Step>,
}

/// The counts of one rank in a step, by peer.
#[derive(Clone, Debug, Default)]
struct Step {
    index: usize,
    received: Vec<u64>,
    sent: Vec<u64>,
    messages: Vec<u64>,
}

impl Recorder {
    pub(crate) fn new(rank: usize, world: usize) -> Self {
        Recorder { rank, world, steps: Vec::new() }
    }

    /// Allocates the counters of a step.
    pub(crate) fn reserve(&mut self, step: usize) {
        if self.steps.iter().all(|known| known.index != step) {
            let counts = || vec![0; self.world];
            self.steps.push(Step { index: step, received: counts(), sent: counts(), messages: counts() });
        }
    }

    fn step(&mut self, step: usize) -> Option<&mut Step> {
        self.steps.iter_mut().find(|known| known.index == step)
    }

    /// Counts data received from a peer. Requires a step that was reserved.
    pub(crate) fn received(&mut self, step: usize, peer: usize, bytes: u64) {
        if let Some(step) = self.step(step) {
            step.received[peer] = step.received[peer].saturating_add(bytes);
            step.messages[peer] += 1;
        }
    }

    /// Counts data handed to a peer. Requires a step that was reserved.
    pub(crate) fn sent(&mut self, step: usize, peer: usize, bytes: u64) {
        if let Some(step) = self.step(step) {
            step.sent[peer] += bytes;
        }
    }

    /// Returns the counts and resets them to zero, without freeing memory.
    pub(crate) fn take(&mut self) -> TrafficLog {
        let mut trace = TrafficLog::default();
        let rank = self.rank;
        for Step { index, received, sent, messages } in &mut self.steps {
            let from = |sender: usize| Hop { step: *index, receiver: rank, sender };
            let to = |receiver: usize| Hop { step: *index, receiver, sender: rank };
            for (peer, bytes) in received.iter_mut().enumerate() {
                trace.record_received(from(peer), std::mem::take(bytes));
            }
            for (peer, count) in messages.iter_mut().enumerate() {
                trace.record_messages(from(peer), std::mem::take(count));
            }
            for (peer, bytes) in sent.iter_mut().enumerate() {
                trace.record_sent(to(peer), std::mem::take(bytes));
            }
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
        assert_eq!(trace.check().unwrap_err().code(), "trace");
        assert_eq!(recorder.take(), TrafficLog::default());
    }

    reshard_test_support::properties! {
        /// `read(print(trace)) = trace`, and any text that parses prints as it was read.
        fn a_trace_reads_as_it_prints(hops: Vec<(u8, u8, u8, u16, u16, u16)>, cut: usize, put: char) -> bool {
            let mut trace = TrafficLog::default();
            for (step, receiver, sender, received, sent, messages) in hops {
                let hop = Hop {
                    step: usize::from(step % 3),
                    receiver: usize::from(receiver % 3),
                    sender: usize::from(sender % 3),
                };
                trace.record_received(hop, u64::from(received % 3));
                trace.record_sent(hop, if sent % 2 == 0 { u64::from(received % 3) } else { u64::from(sent) });
                trace.record_messages(hop, u64::from(messages % 3));
            }
            let text = trace.to_string();
            let mut other: Vec<char> = text.chars().collect();
            let at = cut % other.len();
            other[at] = put;
            let other: String = other.into_iter().collect();
            let reads = other.parse::<TrafficLog>().map_or(true, |read| read.to_string().parse() == Ok(read));
            text.parse() == Ok(trace) && reads
        }
    }

    #[test]
    fn a_line_that_is_no_trace_says_what_one_is() {
        for text in [
            "",
            "step 0",
            "step 0: rank 1 received 2 bytes: ",
            "step 0: rank 1 received 2 bytes: 1 from 0",
            "step 0: rank 1 received 2 bytes: 1 from 2, 1 from 0",
            "step 0: rank 1 received 0 bytes: 0 from 2",
            "step 0: rank 1 received 1 bytes: 1 from 2\nstep 0: rank 1 received 1 bytes: 1 from 2",
            "step 99999999999999999999: rank 1 received 1 bytes: 1 from 2",
        ] {
            assert_eq!(text.parse::<TrafficLog>().unwrap_err().code(), "parse", "{text}");
        }
    }

    #[test]
    fn counts_stay_at_the_most_that_can_be_counted() {
        let mut trace = TrafficLog::default();
        for sender in [0, 2, 2] {
            trace.record_received(Hop { step: 0, receiver: 1, sender }, u64::MAX);
        }
        assert_eq!(
            (trace.total(), trace.worst_received(), trace.received_by(1)),
            (u64::MAX, u64::MAX, u64::MAX)
        );
    }
}
