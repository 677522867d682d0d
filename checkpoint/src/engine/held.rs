//! One tensor in memory: the whole, and the regions that the source ranks hold, each once.
//!
//! ```text
//! a whole in a file --read--> whole --region(rank)--> shards, contiguous ranges of the whole where possible
//! rank files        --read--> the first shard of each region, placed in the whole by region(rank)
//!                   --read--> every further shard of that region, block by block, compared with the first
//! ```
//!
//! So memory holds the whole once, and a second copy of those shards that are not one contiguous range of it,
//! however many replicas there are. Ranks that hold the same region must hold the same bytes: otherwise no
//! such tensor exists.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Deref, Range};

use reshard_sharding::{Region, Sharding};

use crate::bytes::{self, Bytes, Reader};
use crate::check::verify;
use crate::error::Error;
use crate::job::decision::Move;
use crate::model::checkpoint::Data;
use crate::model::runs::{Run, all_runs};
use crate::parallel;
use crate::rooms::{Room, Rooms};

/// The number of bytes that one read of a file takes.
const READ: usize = 8 << 20;

/// The number of bytes that one comparison of replicas takes.
const PIECE: usize = 1 << 20;

/// A tensor before it is redistributed.
pub(crate) struct Held<'a> {
    whole: Whole<'a>,
    shards: Vec<Shard>,
    /// The index of each rank's shard in `shards`.
    of_rank: HashMap<usize, usize>,
}

/// The bytes of the whole tensor.
enum Whole<'a> {
    /// Bytes that were in memory.
    Made(&'a [u8]),
    /// Bytes that were read from files.
    Read(Room<'a>),
}

impl Deref for Whole<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Made(bytes) => bytes,
            Self::Read(room) => room,
        }
    }
}

/// The bytes of one region.
enum Shard {
    /// A contiguous range of the whole.
    Stretch(Range<usize>),
    /// A separate copy.
    Own(Vec<u8>),
    /// Read, but not held by a rank of this process.
    Elsewhere,
}

impl<'a> Held<'a> {
    /// Reads a tensor; `holds` selects the ranks whose shards are needed.
    pub(crate) fn read(
        tensor: &'a Move<'_>,
        holds: impl Fn(usize) -> bool,
        rooms: &'a Rooms,
    ) -> Result<Self, Error> {
        let (from, item_bytes) = (&tensor.unit_from, tensor.units.bytes);
        match &tensor.tensor.data {
            Data::Whole(_) | Data::Chunks { .. } => {
                let whole = match &tensor.tensor.data {
                    Data::Whole(Bytes::Owned(bytes)) => Whole::Made(bytes),
                    Data::Whole(whole) => Whole::Read(read_all(whole, rooms)?),
                    Data::Chunks { .. } | Data::Shards { .. } => {
                        let mut room = rooms.take();
                        tensor.tensor.read_whole(&mut room)?;
                        Whole::Read(room)
                    }
                };
                let mut held = Self { whole, shards: Vec::new(), of_rank: HashMap::new() };
                let mut known = HashMap::new();
                for rank in from.mesh().ranks().filter(|rank| holds(*rank)) {
                    let at = match known.entry(from.region(rank)?) {
                        Entry::Occupied(same) => *same.get(),
                        Entry::Vacant(new) => {
                            held.shards.push(cut(from.shape(), new.key(), item_bytes, &held.whole)?);
                            *new.insert(held.shards.len() - 1)
                        }
                    };
                    held.of_rank.insert(rank, at);
                }
                Ok(held)
            }
            Data::Shards { shards, .. } => Self::assemble(from, item_bytes, shards, holds, rooms),
        }
    }

    /// Assembles the whole from its shards.
    fn assemble(
        from: &Sharding,
        item_bytes: usize,
        files: &[Bytes],
        holds: impl Fn(usize) -> bool,
        rooms: &'a Rooms,
    ) -> Result<Self, Error> {
        let mut whole = rooms.take();
        bytes::resize(&mut whole, from.numel() * item_bytes)?;
        let (mut shards, mut of_rank, mut first) = (Vec::new(), HashMap::new(), HashMap::new());
        for (rank, file) in from.mesh().ranks().zip(files) {
            let region = from.region(rank)?;
            let len = region.numel() * item_bytes;
            if len != file.len() {
                return Err(verify::wrong_length(rank, len, file.len()));
            }
            let mut reader = file.reader(0)?;
            let at = match first.entry(region) {
                Entry::Occupied(same) => {
                    let (other, at): (usize, usize) = *same.get();
                    if !is_same(from.shape(), same.key(), item_bytes, &mut reader, &whole)? {
                        let message =
                            format!("ranks {other} and {rank} should hold the same bytes, but do not");
                        return Err(Error::mismatch("replicas", message));
                    }
                    at
                }
                Entry::Vacant(new) => {
                    let shard = if let Some(range) = stretch(from.shape(), new.key(), item_bytes) {
                        reader.fill(&mut whole[range.clone()])?;
                        Shard::Stretch(range)
                    } else {
                        let mut shard = Vec::new();
                        reader.read_to(&mut shard)?;
                        all_runs(from.shape(), new.key(), item_bytes, |Run { local, whole: at, len }| {
                            whole[at..at + len].copy_from_slice(&shard[local..local + len]);
                            true
                        });
                        Shard::Own(shard)
                    };
                    shards.push(shard);
                    new.insert((rank, shards.len() - 1));
                    shards.len() - 1
                }
            };
            if holds(rank) {
                of_rank.insert(rank, at);
            }
        }
        for (at, shard) in shards.iter_mut().enumerate() {
            if !of_rank.values().any(|wanted| *wanted == at) {
                *shard = Shard::Elsewhere;
            }
        }
        Ok(Self { whole: Whole::Read(whole), shards, of_rank })
    }

    /// Returns the whole tensor.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// Returns the shard of a rank; empty if the rank holds none in this process.
    pub(crate) fn shard(&self, rank: usize) -> &[u8] {
        match self.of_rank.get(&rank).map(|at| &self.shards[*at]) {
            Some(Shard::Stretch(range)) => &self.whole[range.clone()],
            Some(Shard::Own(bytes)) => bytes,
            Some(Shard::Elsewhere) | None => &[],
        }
    }
}

/// Reads the tensor of a whole file, with as many threads as are profitable.
fn read_all<'a>(whole: &Bytes, rooms: &'a Rooms) -> Result<Room<'a>, Error> {
    let mut room = rooms.take();
    bytes::resize(&mut room, whole.len())?;
    let mut pieces: Vec<(usize, &mut [u8])> =
        room.chunks_mut(READ).enumerate().map(|(at, piece)| (at * READ, piece)).collect();
    let threads = parallel::threads_for(whole.len());
    parallel::for_each(threads, &mut pieces, || (), |(), (at, piece)| whole.reader(*at)?.fill(piece))?;
    Ok(room)
}

/// Returns the range of the whole that equals the region, if it is contiguous.
fn stretch(shape: &[usize], region: &Region, item_bytes: usize) -> Option<Range<usize>> {
    let mut stretch = 0..0;
    let only = all_runs(shape, region, item_bytes, |Run { local, whole, len }| {
        stretch = whole..whole + len;
        local == 0
    });
    (only && stretch.len() == region.numel() * item_bytes).then_some(stretch)
}

/// Extracts the shard of a region.
fn cut(shape: &[usize], region: &Region, item_bytes: usize, whole: &[u8]) -> Result<Shard, Error> {
    if let Some(range) = stretch(shape, region, item_bytes) {
        return Ok(Shard::Stretch(range));
    }
    let mut shard = Vec::new();
    bytes::reserve(&mut shard, region.numel() * item_bytes)?;
    all_runs(shape, region, item_bytes, |run| {
        shard.extend_from_slice(&whole[run.whole..run.whole + run.len]);
        true
    });
    Ok(Shard::Own(shard))
}

/// Returns `true` if the read bytes equal those of the whole at a region.
fn is_same(
    shape: &[usize],
    region: &Region,
    item_bytes: usize,
    reader: &mut Reader<'_>,
    whole: &[u8],
) -> Result<bool, Error> {
    let mut left = region.numel() * item_bytes;
    let mut piece = vec![0; PIECE.min(left)];
    // The bytes of the buffer that have been compared, and those that are in it.
    let (mut at, mut end) = (0, 0);
    let mut failed = None;
    let same = all_runs(shape, region, item_bytes, |run| {
        let mut should = &whole[run.whole..run.whole + run.len];
        while !should.is_empty() {
            if at == end {
                (at, end) = (0, PIECE.min(left));
                left -= end;
                if let Err(error) = reader.fill(&mut piece[..end]) {
                    failed = Some(error);
                    return false;
                }
            }
            let len = should.len().min(end - at);
            if piece[at..at + len] != should[..len] {
                return false;
            }
            at += len;
            should = &should[len..];
        }
        true
    });
    failed.map_or(Ok(same), Err)
}
