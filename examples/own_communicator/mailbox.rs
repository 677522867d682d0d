//! A custom communicator: ranks that share no memory and send each other letters through channels.
//!
//! An exchange has three parts: pack a letter for every receiver; take the rank's own data; wait for each
//! letter, and unpack it. The mistakes that a rank can make in these few lines have names in [`Habit`], to
//! show that the contract notices.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use reshard_collectives::{
    Collective, Communicator, Error, Exchange, ReceiveMessage, ReceiveOp, ReturnedBuffers,
};
use reshard_kernels::{CombineOp, PreparedCombine, PreparedCopy};

/// The behaviour of a rank: correct, or wrong in one respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Follows the contract.
    Sound,
    /// Unpacks received data from the last message to the first.
    Backwards,
    /// Takes the letter of the next peer for this peer's.
    WrongPeer,
    /// Loses the last byte of each letter.
    LosesLastByte,
    /// Sums where the minimum is requested.
    WrongOp,
    /// Writes to a target only when the exchange is executed for the first time.
    StaleTarget,
    /// Stores the blocks of an all-gather contiguously in the order of the ranks.
    OrderOfRanks,
    /// Does not fill the elements that no message writes.
    ForgetsToFill,
    /// Does not divide averages.
    ForgetsToDivide,
    /// Adds its own partial value first, whatever its position in the order.
    OwnTermFirst,
    /// Assumes without a check that all ranks have the same plan.
    NeverAgrees,
    /// Does not synchronize in an exchange without data.
    NeverMeets,
    /// Ignores letters of more than one block.
    OnePiece,
    /// Reports success without doing anything.
    SaysDone,
    /// Omits one rank's partial value from each reduction.
    DropsARank,
    /// Unpacks each letter twice.
    Twice,
    /// Unpacks the letter of the run before.
    OneBehind,
    /// Arrives after the others have timed out.
    TooLate,
    /// Flips a bit of each letter.
    OtherData,
    /// Sends letters that lack a byte.
    ShortLetters,
    /// Sends the others a fingerprint of another plan.
    WrongFingerprint,
}

impl Habit {
    /// The wrong ones.
    pub const WRONG: [Habit; 20] = [
        Habit::Backwards,
        Habit::WrongPeer,
        Habit::LosesLastByte,
        Habit::WrongOp,
        Habit::StaleTarget,
        Habit::OrderOfRanks,
        Habit::ForgetsToFill,
        Habit::ForgetsToDivide,
        Habit::OwnTermFirst,
        Habit::NeverAgrees,
        Habit::NeverMeets,
        Habit::OnePiece,
        Habit::SaysDone,
        Habit::DropsARank,
        Habit::Twice,
        Habit::OneBehind,
        Habit::TooLate,
        Habit::OtherData,
        Habit::ShortLetters,
        Habit::WrongFingerprint,
    ];
}

/// A packed message: who sent it, of which exchange, and the bytes.
type Letter = (usize, u64, Vec<u8>);

/// The tag of letters in which ranks compare their plans.
const AGREEMENT: u64 = u64::MAX;

/// A rank with a mailbox and the addresses of all ranks.
#[derive(Debug)]
pub struct Mailbox {
    rank: usize,
    inbox: Receiver<Letter>,
    early: VecDeque<Letter>,
    addresses: Vec<Sender<Letter>>,
    habit: Habit,
    time_out: Duration,
    /// Tags of exchanges that were executed before.
    seen: HashSet<u64>,
    /// The last letter of each peer and exchange, for [`Habit::OneBehind`].
    before: HashMap<(usize, u64), Vec<u8>>,
}

/// An exchange whose letters have gone out.
#[derive(Debug)]
pub struct Posted<'a> {
    exchange: &'a Exchange,
    source: &'a [u8],
    target: &'a mut [u8],
    staging: &'a mut [u8],
}

impl Mailbox {
    /// Makes a mailbox for each of `size` ranks.
    pub fn all(size: usize, habit: Habit) -> Vec<Mailbox> {
        let (addresses, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        let mailbox = |(rank, inbox)| Mailbox {
            rank,
            inbox,
            early: VecDeque::new(),
            addresses: addresses.clone(),
            habit,
            time_out: Duration::from_secs(if habit == Habit::Sound { 20 } else { 1 }),
            seen: HashSet::new(),
            before: HashMap::new(),
        };
        inboxes.into_iter().enumerate().map(mailbox).collect()
    }

    /// Sets the behaviour of this rank from now on.
    #[allow(dead_code, reason = "for tests that have this module")]
    pub fn set_habit(&mut self, habit: Habit) {
        self.habit = habit;
    }

    /// Sets the time to wait for a letter from now on.
    #[allow(dead_code, reason = "for tests that have this module")]
    pub fn set_time_out(&mut self, time_out: Duration) {
        self.time_out = time_out;
    }

    fn send(&self, peer: usize, tag: u64, bytes: Vec<u8>) {
        // A peer that has gone is noticed when something is wanted from it.
        let _ = self.addresses[peer].send((self.rank, tag, bytes));
    }

    fn fetch(&mut self, peer: usize, tag: u64, exchange: &Exchange) -> Result<Vec<u8>, Error> {
        let wanted = |letter: &Letter| (letter.0, letter.1) == (peer, tag);
        if let Some(at) = self.early.iter().position(wanted) {
            return Ok(self.early.remove(at).map(|letter| letter.2).unwrap_or_default());
        }
        loop {
            match self.inbox.recv_timeout(self.timeout()) {
                Ok(letter) if wanted(&letter) => return Ok(letter.2),
                Ok(letter) => self.early.push_back(letter),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let (place, after) = (exchange.place(), self.timeout());
                    return Err(Error::TimedOut { rank: peer, place, after });
                }
            }
        }
    }

    /// Fetches the data of a receive as a letter; data of the rank itself is read from the source instead.
    fn letter(&mut self, receive: &ReceiveMessage, exchange: &Exchange) -> Result<Vec<u8>, Error> {
        let mut peer = receive.peer();
        if self.habit == Habit::WrongPeer && exchange.members().len() > 2 {
            let others: Vec<usize> = exchange
                .receives()
                .iter()
                .map(ReceiveMessage::peer)
                .filter(|peer| *peer != self.rank)
                .collect();
            let at = others.iter().position(|other| *other == peer).unwrap_or(0);
            peer = others[(at + 1) % others.len()];
        }
        let mut letter = self.fetch(peer, exchange.tag(), exchange)?;
        if self.habit == Habit::LosesLastByte
            && let Some(last) = letter.last_mut()
        {
            *last = 0;
        }
        if self.habit == Habit::OtherData
            && let Some(first) = letter.first_mut()
        {
            *first ^= 1;
        }
        if self.habit == Habit::OneBehind {
            let zeros = vec![0; letter.len()];
            letter = self.before.insert((peer, exchange.tag()), letter).unwrap_or(zeros);
        }
        Ok(letter)
    }

    fn land(
        &mut self,
        receive: &ReceiveMessage,
        exchange: &Exchange,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        if receive.peer() == self.rank {
            receive.take(target, source)?;
            return Ok(());
        }
        let letter = self.letter(receive, exchange)?;
        let least =
            |one: &ReceiveOp| matches!(one, ReceiveOp::Combine(combine) if combine.op() == CombineOp::Min);
        if self.habit == Habit::OnePiece && receive.pieces().len() > 1 {
            return Ok(());
        }
        if self.habit == Habit::WrongOp && receive.ops().iter().any(least) {
            return combine(receive, CombineOp::Sum, &letter, target);
        }
        if self.habit == Habit::Twice {
            receive.unpack(target, &letter)?;
        }
        receive.unpack(target, &letter)
    }

    /// Reduces with this rank's partial value first, whatever the order.
    fn own_term_first(
        &mut self,
        exchange: &Exchange,
        op: CombineOp,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        for receive in exchange.receives().iter().filter(|receive| receive.peer() == self.rank) {
            for piece in receive.pieces() {
                PreparedCopy::new(&piece.nest, piece.dtype.element_bytes()?)?.run(target, source)?;
            }
        }
        for receive in exchange.receives().iter().filter(|receive| receive.peer() != exchange.rank()) {
            let letter = self.letter(receive, exchange)?;
            combine(receive, op, &letter, target)?;
        }
        Ok(())
    }
}

/// Combines a letter into the target with this op, in place of the requested one.
fn combine(receive: &ReceiveMessage, op: CombineOp, letter: &[u8], target: &mut [u8]) -> Result<(), Error> {
    let mut start = 0;
    for piece in receive.pieces() {
        let mut nest = piece.nest.clone();
        nest.source_offset = 0;
        let mut stride = 1;
        for mode in nest.modes.iter_mut() {
            mode.stride.0 = stride;
            stride *= mode.extent;
        }
        start += PreparedCombine::new(&nest, piece.dtype, op)?.run(target, &letter[start..])?;
    }
    Ok(())
}

/// Reorders the blocks of an all-gather, which are at their correct offsets, contiguously by rank.
fn sort_by_rank(exchange: &Exchange, target: &mut [u8]) {
    if let Some(Collective::AllGather { theirs, .. }) = exchange.collective() {
        let blocks: Vec<u8> = theirs.iter().flat_map(|block| target[block.clone()].to_vec()).collect();
        let start = theirs.iter().map(|block| block.start).min().unwrap_or(0);
        target[start..start + blocks.len()].copy_from_slice(&blocks);
    }
}

impl Communicator for Mailbox {
    type Buffer = [u8];
    type Owned = Vec<u8>;
    type Pending<'a> = Posted<'a>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.addresses.len()
    }

    fn timeout(&self) -> Duration {
        self.time_out
    }

    fn allocate(&self, bytes: usize) -> Result<Vec<u8>, Error> {
        Ok(vec![0; bytes])
    }

    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error> {
        exchange.check_rank(self.rank, self.size())?;
        let nothing_moves = exchange.receives().is_empty() && exchange.sends().is_empty();
        if self.habit == Habit::NeverAgrees || self.habit == Habit::NeverMeets && nothing_moves {
            return Ok(());
        }
        let others = || exchange.members().iter().copied().filter(|peer| *peer != exchange.rank());
        for peer in others() {
            let lie = u64::from(self.habit == Habit::WrongFingerprint);
            self.send(peer, AGREEMENT, (exchange.tag() ^ lie).to_ne_bytes().to_vec());
        }
        let mut tags = Vec::new();
        for peer in others() {
            let mut tag = [0; 8];
            // All agreement letters have the same length.
            tag.copy_from_slice(&self.fetch(peer, AGREEMENT, exchange)?);
            tags.push((peer, u64::from_ne_bytes(tag)));
        }
        exchange.check_tags(tags)
    }

    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a [u8],
        target: &'a mut [u8],
        staging: &'a mut [u8],
    ) -> Result<Posted<'a>, Error> {
        exchange.check_rank(self.rank, self.size())?;
        exchange.check_buffers(source.len(), target.len())?;
        // Only the even ranks are late: if all were equally late, none would be.
        if self.habit == Habit::TooLate && self.rank.is_multiple_of(2) && !exchange.is_local() {
            std::thread::sleep(self.time_out * 2);
        }
        for send in exchange.sends() {
            let mut letter = vec![0; send.bytes()];
            send.pack(&mut letter, source)?;
            if self.habit == Habit::ShortLetters {
                letter.pop();
            }
            self.send(send.peer(), exchange.tag(), letter);
        }
        Ok(Posted { exchange, source, target, staging })
    }

    fn wait<'a>(&mut self, posted: Self::Pending<'a>) -> Result<ReturnedBuffers<'a, [u8]>, Error> {
        let Posted { exchange, source, target, staging } = posted;
        self.carry_out(exchange, source, target)?;
        Ok(ReturnedBuffers { target, staging })
    }
}

impl Mailbox {
    /// Makes the target of the received letters.
    fn carry_out(&mut self, exchange: &Exchange, source: &[u8], target: &mut [u8]) -> Result<(), Error> {
        if self.habit == Habit::SaysDone {
            return Ok(());
        }
        let mut ignored = target.to_vec();
        let is_new = self.seen.insert(exchange.tag());
        let target = if self.habit == Habit::StaleTarget && !is_new { &mut ignored } else { target };
        if self.habit != Habit::ForgetsToFill {
            exchange.init_target(target)?;
        }
        match (self.habit, exchange.reduction()) {
            (Habit::OwnTermFirst, Some(reduction)) => {
                self.own_term_first(exchange, reduction.op, source, target)?;
            }
            (Habit::DropsARank, Some(_)) => {
                let others = exchange.receives().iter().rev().map(ReceiveMessage::peer);
                let dropped = others.into_iter().find(|peer| *peer != self.rank);
                for receive in exchange.receives() {
                    if Some(receive.peer()) == dropped {
                        self.letter(receive, exchange)?;
                    } else {
                        self.land(receive, exchange, source, target)?;
                    }
                }
            }
            (Habit::Backwards, _) => {
                for receive in exchange.receives().iter().rev() {
                    self.land(receive, exchange, source, target)?;
                }
            }
            (_, _) => {
                for receive in exchange.receives() {
                    self.land(receive, exchange, source, target)?;
                }
            }
        }
        if self.habit == Habit::OrderOfRanks {
            sort_by_rank(exchange, target);
        }
        if self.habit == Habit::ForgetsToDivide { Ok(()) } else { exchange.finalize_target(target) }
    }
}
