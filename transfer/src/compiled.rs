//! A plan compiled for one rank, run over any engine of host memory into existing buffers.
//!
//! ```text
//! for each bucket:   sources --convert, copy--> one half of a buffer --exchange--> staging
//!                    (the next bucket is packed into the other half while this one is exchanged)
//! Commit::Bucket:    staging --convert, copy--> targets, after each bucket
//! Commit::All:       all ranks agree, then staging --convert, copy--> targets
//! ```
//!
//! A message is the boxes of its part of the plan in order, contiguous, in the types in which they are sent. Everything
//! is compiled and allocated once: a run plans nothing and allocates nothing.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use reshard_collectives::{Communicator, Error, Exchange, zeros};
use reshard_kernels::{DType, LoopNest, PreparedCopy};
use reshard_layout::Mode;
use reshard_layout::internal::counted;
use reshard_mapping::Dtype;
use reshard_planner::{Block, Message, Phase};

use crate::buckets::{Buckets, Messages};
use crate::copies::{self, BoxTransfer, Memory, Nest, SCRATCH_BYTES, Scratch};
use crate::dtype;
use crate::hash::Hasher;
use crate::part::{Entry, Named, RankPart};
use crate::transfer::Transfer;

/// The bytes of the largest element.
const LARGEST_ELEMENT: usize = 8;

/// The time at which received bytes are written into the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Commit {
    /// After all ranks have agreed that all bytes have arrived. Staging has all bytes that the rank receives.
    ///
    /// If a rank fails before that, no target changes on any rank.
    All,
    /// After each bucket. Staging has the bytes of one bucket. If a rank fails, the targets are invalid.
    ///
    /// With a second set of targets, which replaces the first after a run that succeeds, it is as safe as
    /// [`All`](Commit::All).
    Bucket,
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Bucket => "bucket",
        })
    }
}

impl FromStr for Commit {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, crate::Error> {
        [Self::All, Self::Bucket].into_iter().find(|one| one.to_string() == text).ok_or_else(|| {
            let shown = crate::error::shown(text);
            crate::Error::invalid(format!("unknown commit `{shown}`; expected one of: all, bucket"))
        })
    }
}

/// A buffer that a run reads or writes: all elements of one tensor on this rank, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferBuffer {
    /// Name of the tensor.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// Length in bytes.
    pub bytes: usize,
}

/// A transfer compiled for one rank: all copies, messages and staging.
///
/// ```
/// use reshard_collectives::{Communicator, Error, threads::World};
/// use reshard_mapping::Mapping;
/// use reshard_transfer::{Commit, CompiledTransfer, Options, Side, Transfer};
///
/// let side = |mesh: &str, placements: &str| {
///     Side::from_json(&format!(
///         r#"{{"mesh": "{mesh}", "tensors": [{{"name": "w", "dtype": "u8", "shape": [2, 2], "placements": "{placements}"}}]}}"#
///     ))
/// };
/// let plan = Transfer::plan(&side("dp=2", "S(0)")?, &side("tp=2@2", "S(1)")?, &Mapping::default(), &Options::default())?;
/// let results = World::new(4)?.run(|comm| {
///     let mut compiled = CompiledTransfer::new(&plan, comm, Commit::All, 1 << 28)?;
///     let (held, mut weights) = ([[1, 2], [3, 4], [0; 2], [0; 2]][comm.rank()], [0; 2]);
///     if comm.rank() < 2 {
///         compiled.run(comm, &[&held], &mut [])?; // a trainer
///     } else {
///         compiled.run(comm, &[], &mut [&mut weights])?; // a server
///     }
///     Ok::<_, Error>(weights)
/// });
/// assert_eq!(results[2..], [Ok([1, 3]), Ok([2, 4])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CompiledTransfer {
    rank: usize,
    members: Vec<usize>,
    commit: Commit,
    sources: Vec<TransferBuffer>,
    targets: Vec<TransferBuffer>,
    buckets: Vec<Bucket>,
    /// Boxes whose elements this rank holds itself.
    local: Vec<Local>,
    fills: Vec<(usize, PreparedCopy)>,
    staging: Staging,
}

/// The tensors of one exchange.
#[derive(Debug)]
struct Bucket {
    exchange: Exchange,
    /// By index of the source.
    pack: Vec<(usize, BoxTransfer)>,
    /// By index of the target.
    unpack: Vec<(usize, BoxTransfer)>,
}

#[derive(Debug)]
struct Local {
    source: usize,
    target: usize,
    copy: BoxTransfer,
}

/// The buffers of a compiled transfer.
#[derive(Debug)]
struct Staging {
    /// The bucket that is sent, and the one that is packed.
    sent: [Vec<u8>; 2],
    received: Vec<u8>,
    /// The bytes that the engine needs.
    engine: Vec<u8>,
    scratch: Scratch,
}

impl CompiledTransfer {
    /// Compiles a plan for this rank of an engine, and checks that all ranks have the same plan.
    ///
    /// All ranks of the plan call it, with equal arguments; an exchange has at most `max_bytes` bytes on any rank, unless
    /// one tensor has more. Errors: [`Error::NotInPlan`] for a rank of neither side; [`Error::WorldTooSmall`];
    /// [`Error::Mismatch`] for ranks with different plans; [`Error::Memory`] if the staging cannot be allocated.
    pub fn new<C>(plan: &Transfer, comm: &mut C, commit: Commit, max_bytes: usize) -> Result<Self, Error>
    where
        C: Communicator<Buffer = [u8]> + ?Sized,
    {
        let rank = comm.rank();
        let members = plan.ranks().to_vec();
        if members.binary_search(&rank).is_err() {
            return Err(Error::NotInPlan { rank });
        }
        let part = plan.part(rank);
        let divided = Buckets::new(plan, max_bytes as u64);
        let starts = starts_of_peers(plan, &divided, &part);
        let (sources, targets) = (Slots::of_sources(&part), Slots::of_targets(&part));
        let messages =
            divided.messages(&part, &part.sends).into_iter().zip(divided.messages(&part, &part.receives));
        let mut buckets = Vec::with_capacity(divided.count);
        for (k, (messages, starts)) in messages.zip(&starts).enumerate() {
            let mut hasher = Hasher::default();
            for number in [plan.hash(), max_bytes as u64, k as u64] {
                hasher.number(number);
            }
            let tag = hasher.finish();
            buckets.push(Bucket::new(&part, messages, starts, (&sources, &targets), &members, tag)?);
        }
        comm.check_agreement(&buckets[0].exchange)?;
        let sent = buckets.iter().map(|one| one.exchange.source_bytes()).max().unwrap_or(0);
        let each = buckets.iter().map(|one| one.exchange.target_bytes());
        let received = match commit {
            Commit::All => each.sum(),
            Commit::Bucket => each.max().unwrap_or(0),
        };
        let mut engine = 0;
        for bucket in &buckets {
            engine = comm.staging_bytes(&bucket.exchange)?.max(engine);
        }
        let scratch = if part.templates.iter().any(|one| !one.cast.is_empty()) { SCRATCH_BYTES } else { 0 };
        let second = if buckets.len() > 1 { sent } else { 0 };
        let staging = Staging {
            sent: [zeros(rank, sent)?, zeros(rank, second)?],
            received: zeros(rank, received)?,
            engine: zeros(rank, engine)?,
            scratch: [zeros(rank, scratch)?, zeros(rank, scratch)?],
        };
        let local = local(&part, &sources, &targets)?;
        let fills = fills(&part, &targets)?;
        let (sources, targets) = (sources.buffers(&part.sources)?, targets.buffers(&part.targets)?);
        Ok(Self { rank, members, commit, sources, targets, buckets, local, fills, staging })
    }

    /// Returns the buffers that this rank reads, in the order of the arguments of [`run`](CompiledTransfer::run).
    pub fn sources(&self) -> &[TransferBuffer] {
        &self.sources
    }

    /// Returns the buffers that this rank writes, in the order of the arguments of [`run`](CompiledTransfer::run).
    pub fn targets(&self) -> &[TransferBuffer] {
        &self.targets
    }

    /// Returns the number of exchanges.
    pub fn exchanges(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the bytes of all buffers that this transfer has allocated.
    pub fn staging_bytes(&self) -> usize {
        let Staging { sent, received, engine, scratch } = &self.staging;
        sent.iter().chain(scratch).chain([received, engine]).map(Vec::len).sum()
    }

    /// Transfers all tensors into the targets. All ranks of the plan call it.
    ///
    /// Errors: [`Error::Memory`] for buffers that are not those of [`sources`](CompiledTransfer::sources) and
    /// [`targets`](CompiledTransfer::targets); as [`Communicator::wait`], with the failed rank. With [`Commit::All`] no
    /// target has changed then, unless a rank fails while the ranks agree.
    pub fn run<C>(&mut self, comm: &mut C, sources: &[&[u8]], targets: &mut [&mut [u8]]) -> Result<(), Error>
    where
        C: Communicator<Buffer = [u8]> + ?Sized,
    {
        check(self.rank, "source", &self.sources, sources.iter().map(|one| one.len()))?;
        check(self.rank, "target", &self.targets, targets.iter().map(|one| one.len()))?;
        let Staging { sent: [sent, next], received, engine, scratch } = &mut self.staging;
        let (mut sent, mut next) = (sent, next);
        if let Some(first) = self.buckets.first() {
            first.pack(sources, sent, scratch)?;
        }
        let mut start = 0;
        for (k, bucket) in self.buckets.iter().enumerate() {
            let into = &mut received[start..start + bucket.exchange.target_bytes()];
            let pending = comm.post(&bucket.exchange, sent, into, engine)?;
            if let Some(after) = self.buckets.get(k + 1) {
                after.pack(sources, next, scratch)?;
            }
            let into = comm.wait(pending)?.target;
            match self.commit {
                Commit::All => start += into.len(),
                Commit::Bucket => bucket.unpack(into, targets, scratch)?,
            }
            std::mem::swap(&mut sent, &mut next);
        }
        comm.barrier(&self.members)?;
        if self.commit == Commit::All {
            let mut rest = &received[..];
            for bucket in &self.buckets {
                let (into, after) = rest.split_at(bucket.exchange.target_bytes());
                bucket.unpack(into, targets, scratch)?;
                rest = after;
            }
        }
        for local in &self.local {
            local.copy.run(targets[local.target], sources[local.source], scratch)?;
        }
        for (target, fill) in &self.fills {
            fill.run(targets[*target], &[0; LARGEST_ELEMENT])?;
        }
        Ok(())
    }
}

impl Bucket {
    fn new(
        part: &RankPart,
        (sends, receives): (Messages<'_>, Messages<'_>),
        starts: &HashMap<usize, usize>,
        (sources, targets): (&Slots, &Slots),
        members: &[usize],
        tag: u64,
    ) -> Result<Self, Error> {
        let mut phase = Phase {
            source_len: 0,
            target_len: 0,
            fill_identity: None,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: None,
            members: members.to_vec(),
        };
        let (mut pack, mut unpack) = (Vec::new(), Vec::new());
        for (peer, entries) in sends {
            let start = phase.source_len;
            for entry in entries {
                let types = types(part, entry)?;
                let memories = [Memory::Tensor, Memory::Message(phase.source_len)];
                let copies = copies::of(&nest(part, entry), &types[..=sent_in(&types)?], memories)?;
                pack.extend(copies.into_iter().map(|copy| (sources.of(entry.source), copy)));
                phase.source_len += part.bytes(entry) as usize;
            }
            phase.sends.push(message(peer, start, 0, phase.source_len - start));
        }
        for (peer, entries) in receives {
            let start = phase.target_len;
            for entry in entries {
                let types = types(part, entry)?;
                let memories = [Memory::Message(phase.target_len), Memory::Tensor];
                let copies = copies::of(&nest(part, entry), &types[sent_in(&types)?..], memories)?;
                unpack.extend(copies.into_iter().map(|copy| (targets.of(entry.target), copy)));
                phase.target_len += part.bytes(entry) as usize;
            }
            let at_peer = starts.get(&peer).copied().unwrap_or(0);
            phase.receives.push(message(peer, at_peer, start, phase.target_len - start));
        }
        Ok(Self { exchange: Exchange::of_bytes(part.rank, tag, &phase)?, pack, unpack })
    }

    fn pack(&self, sources: &[&[u8]], sent: &mut [u8], scratch: &mut Scratch) -> Result<(), Error> {
        self.pack.iter().try_for_each(|(source, copy)| copy.run(sent, sources[*source], scratch))
    }

    fn unpack(&self, received: &[u8], targets: &mut [&mut [u8]], scratch: &mut Scratch) -> Result<(), Error> {
        self.unpack.iter().try_for_each(|(target, copy)| copy.run(targets[*target], received, scratch))
    }
}

/// The positions of a part's tensors among the buffers of the caller.
struct Slots(Vec<Option<usize>>);

impl Slots {
    /// Numbers the sources that this rank reads.
    fn of_sources(part: &RankPart) -> Self {
        let mut read = vec![false; part.sources.len()];
        let local = part.receives.iter().filter(|entry| part.peer(entry).is_none());
        part.sends.iter().chain(local).for_each(|entry| read[entry.source] = true);
        Self::numbered(&read)
    }

    /// Numbers the targets that this rank has.
    fn of_targets(part: &RankPart) -> Self {
        Self::numbered(&part.targets.iter().map(|one| one.count > 0).collect::<Vec<_>>())
    }

    fn numbered(chosen: &[bool]) -> Self {
        let mut next = 0..;
        Self(chosen.iter().map(|chosen| if *chosen { next.next() } else { None }).collect())
    }

    /// Returns the position of a tensor that is numbered.
    fn of(&self, tensor: usize) -> usize {
        self.0[tensor].unwrap_or(usize::MAX)
    }

    fn buffers(&self, tensors: &[Named]) -> Result<Vec<TransferBuffer>, Error> {
        let chosen = tensors.iter().zip(&self.0).filter(|(_, slot)| slot.is_some()).map(|(one, _)| one);
        let buffer = |one: &Named| {
            let bytes = kernel(one.dtype)?.element_bytes()?.checked_mul(one.count as usize);
            let bytes = bytes.ok_or(reshard_kernels::Error::Overflow { what: "the size of a buffer" })?;
            Ok(TransferBuffer { name: one.name.clone(), dtype: one.dtype, bytes })
        };
        chosen.map(buffer).collect()
    }
}

/// Returns where the message for this rank begins in the buffer of each peer, by bucket and peer.
fn starts_of_peers(plan: &Transfer, divided: &Buckets, part: &RankPart) -> Vec<HashMap<usize, usize>> {
    let mut peers: Vec<usize> = part.receives.iter().filter_map(|entry| part.peer(entry)).collect();
    peers.sort_unstable();
    peers.dedup();
    let mut starts = vec![HashMap::new(); divided.count];
    for peer in peers {
        let theirs = plan.part(peer);
        for entry in &theirs.sends {
            if theirs.peer(entry).is_some_and(|to| to < part.rank)
                && let Some(bucket) = divided.of(&theirs, entry)
            {
                *starts[bucket].entry(peer).or_insert(0) += theirs.bytes(entry) as usize;
            }
        }
    }
    starts
}

/// Returns the message of contiguous bytes from an offset of the sender's buffer to one of the receiver's.
fn message(peer: usize, source_offset: usize, target_offset: usize, bytes: usize) -> Message {
    let block = Block {
        source_offset,
        target_offset,
        modes: [Mode::new(bytes as i64, (1, 1))].into_iter().collect(),
    };
    Message { peer, blocks: [block].into_iter().collect() }
}

fn local(part: &RankPart, sources: &Slots, targets: &Slots) -> Result<Vec<Local>, Error> {
    let mut all = Vec::new();
    for entry in part.receives.iter().filter(|entry| part.peer(entry).is_none()) {
        let copies = copies::of(&nest(part, entry), &types(part, entry)?, [Memory::Tensor; 2])?;
        let (source, target) = (sources.of(entry.source), targets.of(entry.target));
        all.extend(copies.into_iter().map(|copy| Local { source, target, copy }));
    }
    Ok(all)
}

/// Returns the copies of one zero to all elements of the boxes without a source.
fn fills(part: &RankPart, targets: &Slots) -> Result<Vec<(usize, PreparedCopy)>, Error> {
    let fill = |entry: &Entry| {
        let steps = part.templates[entry.template].loops.iter().rev();
        let modes = steps.map(|one| Mode::new(one.extent as i64, (0, one.target_stride as i64)));
        let nest = LoopNest::new(0, entry.target_offset as i64, modes);
        let item = kernel(part.targets[entry.target].dtype)?.element_bytes()?;
        Ok((targets.of(entry.target), PreparedCopy::new(&nest, item)?))
    };
    part.fills.iter().map(fill).collect()
}

fn nest<'a>(part: &'a RankPart, entry: &Entry) -> Nest<'a> {
    let loops = &part.templates[entry.template].loops;
    Nest { loops, source: entry.source_offset, target: entry.target_offset }
}

/// Returns the types of the elements of a box, from the stored one on.
fn types(part: &RankPart, entry: &Entry) -> Result<Vec<DType>, Error> {
    part.types(entry).into_iter().map(kernel).collect()
}

/// Returns the index of the type in which elements are sent: the first of the smallest.
fn sent_in(types: &[DType]) -> Result<usize, Error> {
    let bytes = types.iter().map(|one| Ok(one.element_bytes()?)).collect::<Result<Vec<_>, Error>>()?;
    Ok((0..bytes.len()).min_by_key(|k| bytes[*k]).unwrap_or(0))
}

/// Returns the type as the kernels name it, which is as files do.
fn kernel(dtype: Dtype) -> Result<DType, Error> {
    Ok(dtype::name(dtype).parse()?)
}

fn check(
    rank: usize,
    side: &str,
    needed: &[TransferBuffer],
    given: impl ExactSizeIterator<Item = usize>,
) -> Result<(), Error> {
    if needed.len() != given.len() {
        let (wanted, passed) = (counted(needed.len(), "buffer", "buffers"), given.len());
        let names: Vec<&str> = needed.iter().map(|one| &*one.name).take(3).collect();
        let more = if needed.len() > names.len() { ", .." } else { "" };
        let message =
            format!("the transfer has {wanted} of the {side} ({}{more}), not {passed}", names.join(", "));
        return Err(Error::Memory { rank, message });
    }
    for (one, bytes) in needed.iter().zip(given) {
        if one.bytes != bytes {
            let needed = counted(one.bytes, "byte", "bytes");
            let message = format!("the {side} {} has {needed}, and the buffer has {bytes}", one.name);
            return Err(Error::Memory { rank, message });
        }
    }
    Ok(())
}
