//! The judge: shards against the whole tensor, by `region(rank)` and never by the plan.

use std::borrow::Cow;
use std::collections::HashMap;

use reshard_sharding::{Region, Sharding};

use super::parallel;
use super::runs::{Run, all_runs};
use crate::error::Error;

/// The whole tensor that shards denote, borrowed where one rank holds all of it.
///
/// Ranks that hold the same region must hold the same bytes: otherwise there is no such tensor.
pub(crate) fn assemble<'a>(
    sharding: &Sharding,
    item_bytes: usize,
    shards: &[&'a [u8]],
) -> Result<Cow<'a, [u8]>, Error> {
    let byte_len = sharding.numel() * item_bytes;
    let all_in_first = shards.first().copied().filter(|shard| shard.len() == byte_len);
    let mut whole = if all_in_first.is_some() { Vec::new() } else { vec![0; byte_len] };
    let mut first: HashMap<Region, (usize, &'a [u8])> = HashMap::new();
    for (rank, &shard) in sharding.mesh().ranks().zip(shards) {
        let region = sharding.region(rank)?;
        if let Some((other, same)) = first.get(&region) {
            if !std::ptr::eq(*same, shard) && *same != shard {
                return Err(Error::refused(
                    "replicas",
                    format!("ranks {other} and {rank} should hold the same bytes, and do not"),
                ));
            }
            continue;
        }
        let len = region.numel() * item_bytes;
        if len != shard.len() {
            return Err(wrong_length(rank, len, shard.len()));
        }
        if all_in_first.is_none() {
            all_runs(sharding.shape(), &region, item_bytes, |Run { local, whole: at, len }| {
                whole[at..at + len].copy_from_slice(&shard[local..local + len]);
                true
            });
        }
        first.insert(region, (rank, shard));
    }
    Ok(all_in_first.map_or(Cow::Owned(whole), Cow::Borrowed))
}

/// Cuts one rank's shard from a whole tensor, borrowed where it is a stretch of it.
pub(crate) fn cut_rank<'a>(
    sharding: &Sharding,
    item_bytes: usize,
    rank: usize,
    whole: &'a [u8],
) -> Result<Cow<'a, [u8]>, Error> {
    let region = sharding.region(rank)?;
    let len = region.numel() * item_bytes;
    let mut shard = Cow::Borrowed(&whole[..0]);
    all_runs(sharding.shape(), &region, item_bytes, |run| {
        let bytes = &whole[run.whole..run.whole + run.len];
        if run.len == len {
            shard = Cow::Borrowed(bytes);
        } else {
            if run.local == 0 {
                shard.to_mut().reserve_exact(len);
            }
            shard.to_mut().extend_from_slice(bytes);
        }
        true
    });
    Ok(shard)
}

/// Compares the shards of these ranks with the slices of the whole that their regions name.
pub(crate) fn verify(
    sharding: &Sharding,
    item_bytes: usize,
    ranks: &[usize],
    shards: &[Vec<u8>],
    whole: &[u8],
) -> Result<(), Error> {
    if shards.len() != ranks.len() {
        let message = format!("{} shards came for the {} ranks of the mesh", shards.len(), ranks.len());
        return Err(Error::failed("verification", message));
    }
    let threads = parallel::threads_for(shards.iter().map(Vec::len).sum());
    let mut ranks: Vec<(usize, &[u8])> =
        ranks.iter().copied().zip(shards.iter().map(Vec::as_slice)).collect();
    parallel::for_each(threads, &mut ranks, |&mut (rank, shard)| {
        verify_rank(sharding, item_bytes, rank, shard, whole)
    })
}

/// Compares one rank's shard with the slices of the whole that its region names.
fn verify_rank(
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
        Some((local, whole)) => Err(Error::failed(
            "verification",
            format!("byte {local} of rank {rank}'s shard differs from byte {whole} of the whole tensor"),
        )),
    }
}

fn wrong_length(rank: usize, expected: usize, found: usize) -> Error {
    Error::failed("verification", format!("rank {rank}'s shard has {found} bytes and should have {expected}"))
}
