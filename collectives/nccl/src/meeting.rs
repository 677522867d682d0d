//! Control messages between ranks: plan tags, the id of a group's communicator, and words of the caller.

use reshard_collectives::{Error, Exchange};
use reshard_device::Backend;

use crate::{Comm, Handle, Nccl, UniqueId};

/// Bytes of a member's message in an agreement: its tag and an id, at a multiple of 256.
const WORD: usize = 256;

impl<N: Nccl> Comm<N> {
    /// Gathers every rank's words on every rank, in rank order; returns after all ranks have called it.
    ///
    /// Requires the same number of words on every rank. Errors: those of [`finish`](Comm::finish), also for
    /// earlier enqueued work.
    ///
    /// ```
    /// use reshard_nccl::{Comm, testing::RecordingWorld};
    /// let shared = RecordingWorld::new(3).run(|nccl| {
    ///     let rank = reshard_nccl::Nccl::rank(&nccl) as u64;
    ///     Comm::new(nccl)?.share(&[rank, 10 * rank])
    /// });
    /// assert!(shared.iter().all(|all| *all == Ok(vec![vec![0, 0], vec![1, 10], vec![2, 20]])));
    /// ```
    pub fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, Error> {
        self.finish()?;
        if let Some(error) = &self.failed {
            return Err(error.again(self.rank, None));
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = self.gather(&bytes);
        let all = all.map_err(|what| self.fail(&what, "the all-gather of words of all ranks"))?;
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let of_rank = |rank: usize| &all[rank * bytes.len()..(rank + 1) * bytes.len()];
        Ok((0..self.size).map(|rank| of_rank(rank).chunks_exact(8).map(word).collect()).collect())
    }

    /// Gathers all ranks' bytes, the same number of each.
    fn gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut all = vec![0; bytes.len() * (self.size + 1)];
        if all.is_empty() {
            return Ok(all);
        }
        // The bytes of all ranks, followed by this rank's.
        let own = all.len() - bytes.len();
        all[own..].copy_from_slice(bytes);
        let bytes = bytes.len();
        self.together(&mut all, |nccl, start| {
            nccl.all_gather(Handle::WORLD, start + own as i64, start, bytes)
        })?;
        all.truncate(own);
        Ok(all)
    }

    /// Copies bytes to the device, makes one group of calls on them there, and copies the result back.
    ///
    /// The memory remains this communicator's until all is done or aborted: freeing memory may wait for the
    /// stream, which without an abort may be forever.
    fn together(
        &mut self,
        bytes: &mut [u8],
        calls: impl FnOnce(&mut N, i64) -> Result<(), reshard_cuda::Error>,
    ) -> Result<(), String> {
        let said = |e: reshard_cuda::Error| e.to_string();
        let device = self.nccl.device();
        let memory = self.meeting.insert(device.allocate(bytes.len()).map_err(said)?);
        device.write(memory, bytes).map_err(said)?;
        let start = device.address(memory);
        self.nccl.group_start().map_err(said)?;
        calls(&mut self.nccl, start).map_err(said)?;
        self.nccl.group_end().map_err(said)?;
        self.until(N::settled)?;
        self.until(N::idle)?;
        if let Some(memory) = self.meeting.take() {
            self.nccl.device().read(&memory, bytes).map_err(said)?;
        }
        Ok(())
    }

    /// Sends every member's message to every member, in member order: its tag, and an id if one is needed.
    fn meet(&mut self, exchange: &Exchange, id: Option<UniqueId>) -> Result<Vec<(u64, UniqueId)>, String> {
        let members = exchange.members();
        let known = self.handle(members);
        let mut words = vec![0; WORD * (members.len() + 1)];
        words[..8].copy_from_slice(&exchange.tag().to_le_bytes());
        words[8..8 + UniqueId::BYTES].copy_from_slice(&id.map_or([0; UniqueId::BYTES], |id| id.0));
        let own = words[..WORD].to_vec();
        let rank = self.rank;
        self.together(&mut words, |nccl, start| {
            for (i, &member) in members.iter().enumerate().filter(|(_, member)| **member != rank) {
                // Members have their ranks in the communicator of all ranks, and their group ranks in that of
                // the group.
                let peer = if known.is_some() { i } else { member };
                let on = known.unwrap_or(Handle::WORLD);
                nccl.send(on, peer, start, WORD)?;
                nccl.receive(on, peer, start + (WORD * (i + 1)) as i64, WORD)?;
            }
            Ok(())
        })?;
        let word = |(i, &member): (usize, &usize)| {
            let word = if member == self.rank { &own } else { &words[WORD * (i + 1)..WORD * (i + 2)] };
            let (mut tag, mut id) = ([0; 8], [0; UniqueId::BYTES]);
            tag.copy_from_slice(&word[..8]);
            id.copy_from_slice(&word[8..8 + UniqueId::BYTES]);
            (u64::from_le_bytes(tag), UniqueId(id))
        };
        Ok(members.iter().enumerate().map(word).collect())
    }

    /// Compares tags, and opens the group's communicator if there is none and all members have the same plan.
    ///
    /// NCCL's split needs all ranks, but those of other groups are elsewhere in their program. So the group's
    /// first member creates an id, and the communicator of all ranks sends it to the others with the tags.
    pub(crate) fn agree_on(&mut self, exchange: &Exchange) -> Result<Result<(), Error>, String> {
        let said = |e: reshard_cuda::Error| e.to_string();
        let members = exchange.members();
        let is_new = self.handle(members).is_none();
        let leads = members.first() == Some(&self.rank);
        let id = if is_new && leads { Some(self.nccl.unique_id().map_err(said)?) } else { None };
        let words = self.meet(exchange, id)?;
        let same = exchange.check_tags(members.iter().copied().zip(words.iter().map(|(tag, _)| *tag)));
        if is_new && same.is_ok() {
            let at = members.iter().position(|member| *member == self.rank).unwrap_or(0);
            let handle = self.nccl.open(&words[0].1, at, members.len()).map_err(said)?;
            self.until(N::settled)?;
            self.groups.insert(members.into(), handle);
        }
        Ok(same)
    }
}
