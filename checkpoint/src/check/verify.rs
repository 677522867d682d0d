//! Verification of shards against the whole tensor, by `region(rank)` and never by the plan.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use reshard_layout::internal::counted;
use reshard_sharding::{Region, Sharding};

use crate::bytes;
use crate::error::Error;
use crate::model::runs::{Run, all_runs};

/// The whole tensor, assembled from shards in any order.
pub(crate) struct Assembly<'a> {
    sharding: &'a Sharding,
    item_bytes: usize,
    made: Mutex<(Vec<u8>, HashSet<Region>)>,
}

impl<'a> Assembly<'a> {
    pub(crate) fn new(sharding: &'a Sharding, item_bytes: usize) -> Result<Self, Error> {
        let mut whole = Vec::new();
        bytes::resize(&mut whole, sharding.numel() * item_bytes)?;
        Ok(Self { sharding, item_bytes, made: Mutex::new((whole, HashSet::new())) })
    }

    /// Takes a rank's shard; replicas of a region that was already taken are not checked.
    pub(crate) fn take(&self, rank: usize, shard: &[u8]) -> Result<(), Error> {
        let region = self.sharding.region(rank)?;
        let len = region.numel() * self.item_bytes;
        if len != shard.len() {
            return Err(wrong_length(rank, len, shard.len()));
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let (whole, regions) = &mut *made;
        if !regions.contains(&region) {
            all_runs(self.sharding.shape(), &region, self.item_bytes, |Run { local, whole: at, len }| {
                whole[at..at + len].copy_from_slice(&shard[local..local + len]);
                true
            });
            regions.insert(region);
        }
        Ok(())
    }

    /// Returns the assembled tensor.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.made.into_inner().unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Compares one rank's shard with the slices of the whole that its region names.
pub(crate) fn verify_rank(
    sharding: &Sharding,
    item_bytes: usize,
    rank: usize,
    shard: &[u8],
    whole: &[u8],
) -> Result<(), Error> {
    let region = sharding.region(rank)?;
    let len = region.numel() * item_bytes;
    if shard.len() != len {
        return Err(wrong_length(rank, len, shard.len()));
    }
    let mut wrong = None;
    all_runs(sharding.shape(), &region, item_bytes, |run| {
        let (is, should) = (&shard[run.local..run.local + run.len], &whole[run.whole..run.whole + run.len]);
        if is == should {
            return true;
        }
        let at = is.iter().zip(should).position(|(is, should)| is != should).unwrap_or(0);
        wrong = Some((run.local + at, run.whole + at));
        false
    });
    match wrong {
        None => Ok(()),
        Some((local, whole)) => Err(Error::verification(format!(
            "byte {local} of rank {rank}'s shard differs from byte {whole} of the whole tensor"
        ))),
    }
}

pub(crate) fn wrong_length(rank: usize, expected: usize, found: usize) -> Error {
    Error::verification(format!(
        "rank {rank}'s shard has {found}, but must have {expected}",
        found = counted(found, "byte", "bytes")
    ))
}
