//! Delivery of the data of a group between ranks: sends are posted, and receives complete when all data has
//! arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use reshard_cuda::Error;
use reshard_kernels::{CombineOp, LoopNest, PreparedCombine};
use reshard_layout::Mode;

use super::{Call, Member, Op, Recording, Round, Shared, lock, wrong};
use crate::{Element, UniqueId};

impl Recording {
    /// Runs a group; returns `true` if all of it is done.
    pub(super) fn exchange(&mut self, ops: &mut [Op], posted: &mut bool) -> Result<bool, Error> {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        if !*posted {
            ops.iter_mut().try_for_each(|op| self.give(op, &mut shared))?;
            *posted = true;
        }
        let mut expected: HashMap<(UniqueId, usize, usize), usize> = HashMap::new();
        for op in &*ops {
            match op.call {
                Call::Receive { on, peer, .. } => {
                    let member = self.member(on)?;
                    *expected.entry((member.id, peer, member.place)).or_default() += 1;
                }
                Call::AllGather { on, .. } | Call::ReduceScatter { on, .. } | Call::AllReduce { on, .. } => {
                    let round = shared.rounds.get(&(self.member(on)?.id, op.round));
                    if !round.is_some_and(|round| round.calls.iter().all(Option::is_some)) {
                        return Ok(false);
                    }
                }
                Call::Open { .. }
                | Call::Launch { .. }
                | Call::GroupStart
                | Call::GroupEnd
                | Call::Send { .. }
                | Call::Abort
                | Call::BeginCapture
                | Call::EndCapture
                | Call::Replay => {}
            }
        }
        let is_there = |(key, count): (&(UniqueId, usize, usize), &usize)| {
            shared.mail.get(key).is_some_and(|mail| mail.len() >= *count)
        };
        if !expected.iter().all(is_there) {
            return Ok(false);
        }
        ops.iter().try_for_each(|op| self.take(op, &mut shared))?;
        Ok(true)
    }

    /// Posts the data that this rank sends.
    fn give(&mut self, op: &mut Op, shared: &mut Shared) -> Result<(), Error> {
        let (on, bytes) = match op.call {
            Call::Send { on, peer, bytes } => {
                let mut message = vec![0; bytes];
                self.device.load(op.source, &mut message)?;
                let member = self.member(on)?;
                if peer >= member.size {
                    return Err(wrong(
                        "ncclSend",
                        format!("peer {peer} is outside the {} members", member.size),
                    ));
                }
                let key = (member.id, member.place, peer);
                shared.mail.entry(key).or_default().push_back(message);
                return Ok(());
            }
            Call::AllGather { on, bytes } => (on, bytes),
            Call::ReduceScatter { on, count, element, .. } => {
                (on, count * element.dtype().element_bytes()? * self.member(on)?.size)
            }
            Call::AllReduce { on, count, element, .. } => (on, count * element.dtype().element_bytes()?),
            Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Receive { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => return Ok(()),
        };
        let mut mine = vec![0; bytes];
        self.device.load(op.source, &mut mine)?;
        let (id, place, size, number) = {
            let member = &mut self.members[on.0];
            member.rounds += 1;
            (member.id, member.place, member.size, member.rounds)
        };
        op.round = number;
        let round = shared.rounds.entry((id, number));
        let round = round.or_insert_with(|| Round { calls: vec![None; size], taken: 0 });
        round.calls[place] = Some((op.call, mine));
        Ok(())
    }

    /// Takes the data that this rank receives.
    fn take(&mut self, op: &Op, shared: &mut Shared) -> Result<(), Error> {
        let on = match op.call {
            Call::Receive { on, peer, bytes } => {
                let member = self.member(on)?;
                let mail = shared.mail.get_mut(&(member.id, peer, member.place));
                let message = mail.and_then(VecDeque::pop_front).unwrap_or_default();
                if message.len() != bytes {
                    let sent = message.len();
                    return Err(wrong(
                        "ncclRecv",
                        format!("peer {peer} sent {sent} bytes, expected {bytes}"),
                    ));
                }
                return self.device.store(op.target, &message);
            }
            Call::AllGather { on, .. } | Call::ReduceScatter { on, .. } | Call::AllReduce { on, .. } => on,
            Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Send { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => return Ok(()),
        };
        let Member { id, place, size, .. } = self.member(on)?.clone();
        let key = (id, op.round);
        let Some(round) = shared.rounds.get_mut(&key) else {
            return Err(wrong("a collective", "no member has started it"));
        };
        let terms: Vec<&(Call, Vec<u8>)> = round.calls.iter().flatten().collect();
        // Handles are numbers local to each rank.
        let same = |(call, _): &&(Call, Vec<u8>)| call.without_handle() == op.call.without_handle();
        if let Some((other, _)) = terms.iter().find(|term| !same(term)) {
            return Err(wrong(
                "a collective",
                format!("one member calls {:?} and another {other:?}", op.call),
            ));
        }
        let blocks = terms.iter().map(|(_, bytes)| bytes.as_slice());
        let result = match op.call {
            Call::ReduceScatter { count, element, op, .. } => {
                let bytes = count * element.dtype().element_bytes()?;
                reduce(blocks.map(|block| &block[place * bytes..(place + 1) * bytes]), count, element, op)?
            }
            Call::AllReduce { count, element, op, .. } => reduce(blocks, count, element, op)?,
            Call::AllGather { .. }
            | Call::Open { .. }
            | Call::Launch { .. }
            | Call::GroupStart
            | Call::GroupEnd
            | Call::Send { .. }
            | Call::Receive { .. }
            | Call::Abort
            | Call::BeginCapture
            | Call::EndCapture
            | Call::Replay => blocks.collect::<Vec<_>>().concat(),
        };
        round.taken += 1;
        if round.taken == size {
            shared.rounds.remove(&key);
        }
        self.device.store(op.target, &result)
    }
}

fn reduce<'a>(
    mut terms: impl Iterator<Item = &'a [u8]>,
    count: usize,
    element: Element,
    op: CombineOp,
) -> Result<Vec<u8>, Error> {
    let nest = LoopNest::new(0, 0, [Mode::new(count as i64, (1, 1))]);
    let combine = PreparedCombine::new(&nest, element.dtype(), op)?;
    let mut result = terms.next().map(<[u8]>::to_vec).unwrap_or_default();
    for term in terms {
        combine.run(&mut result, term)?;
    }
    Ok(result)
}
