//! Hands out the blocks of all tensors in sequence, with the data that the blocks of one tensor share.
//!
//! That data is made with the tensor's first block and dropped with its last, so memory holds it for a few
//! tensors only.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bytes::checksum::{Sum, Sum32};
use crate::error::Error;
use crate::formats::dcp::written::{self, Chunk};
use crate::job::OutputFormat;
use crate::job::decision::Move;
use crate::model::by_part::InRank;
use crate::model::placed::{Known, Placed, all};
use crate::model::slab::{Slab, Slabs};
use crate::reading::Source;
use crate::stream::Sums;
use crate::stream::files::Files;
use crate::stream::journal::Done;
use crate::stream::parcels::Parcels;

/// The data that the blocks of one tensor share.
pub(super) struct Work<'a> {
    pub(super) tensor: &'a Move<'a>,
    number: usize,
    pub(super) slabs: Slabs,
    /// The number of unfinished blocks.
    left: AtomicUsize,
    /// The number of elements that were finite and became infinite.
    pub(super) infinite: AtomicU64,
    pub(super) source: Source<'a>,
    /// The checksums of the source regions, as they were read.
    pub(super) read: Vec<Sum>,
    /// The target regions of the ranks, if rank files are written.
    pub(super) shards: Option<Arc<Placed>>,
    /// The checksum of each of these shards.
    pub(super) written: Vec<Sum>,
    /// The offset of each rank's shard in its file.
    starts: Vec<u64>,
    /// The location of each region in the file of each of its ranks, if ranks concatenate parts.
    in_ranks: Vec<Vec<InRank>>,
    /// The same shards as chunks of a distributed checkpoint, each with its checksum.
    pub(super) chunks: Vec<(Chunk, Sum32)>,
    /// `true` if the chunks are in archives, which store their checksums.
    pub(super) has_archives: bool,
    /// The checksum of the whole.
    pub(super) whole: Sum,
    /// The offset of the whole in the gathered file.
    pub(super) whole_start: u64,
}

/// Hands out blocks.
pub(super) struct Feed<'a> {
    moves: std::iter::Enumerate<std::slice::Iter<'a, Move<'a>>>,
    most: usize,
    from: Known,
    to: Known,
    writes_shards: bool,
    format: OutputFormat,
    parcels: &'a Parcels,
    /// The offset of the next tensor in each file.
    starts: Vec<u64>,
    whole_start: u64,
    current: Option<(Arc<Work<'a>>, usize)>,
    finished: &'a Finished<'a>,
}

/// The checksums of finished tensors.
pub(super) struct Finished<'a> {
    sums: Mutex<Vec<Option<Sums>>>,
    /// The tensors that an earlier run finished.
    before: &'a HashMap<usize, Done>,
    files: &'a Files,
}

impl<'a> Finished<'a> {
    pub(super) fn new(tensors: usize, before: &'a HashMap<usize, Done>, files: &'a Files) -> Self {
        let sums = std::iter::repeat_with(|| None).take(tensors).collect();
        Self { sums: Mutex::new(sums), before, files }
    }

    /// Returns the checksums of all tensors, if all are finished.
    pub(super) fn all(self) -> Option<Vec<Sums>> {
        self.sums.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
    }

    fn add(&self, tensor: usize, sums: Sums) -> Result<(), Error> {
        let done = Done {
            shards: sums.shards.clone(),
            whole: sums.whole,
            chunks: sums.chunks.iter().map(|(_, sum)| (*sum).into()).collect(),
            infinite: sums.infinite,
        };
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)[tensor] = Some(sums);
        self.files.note(tensor, &done)
    }

    /// Takes over a tensor from an earlier run, if that run finished it.
    fn is_done(&self, work: &Work<'_>) -> bool {
        let fits =
            |done: &&Done| done.shards.len() == work.written.len() && done.chunks.len() == work.chunks.len();
        let Some(done) = self.before.get(&work.number).filter(fits) else { return false };
        let chunks =
            work.chunks.iter().zip(&done.chunks).map(|((chunk, _), sum)| (chunk.clone(), *sum as u32));
        let sums = Sums {
            shards: done.shards.clone(),
            whole: done.whole,
            chunks: chunks.collect(),
            infinite: done.infinite,
        };
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)[work.number] = Some(sums);
        true
    }
}

impl<'a> Feed<'a> {
    pub(super) fn new(
        moves: &'a [Move<'a>],
        files: &'a Files,
        most: usize,
        format: OutputFormat,
        finished: &'a Finished<'a>,
    ) -> Self {
        Self {
            moves: moves.iter().enumerate(),
            most,
            from: Known::default(),
            to: Known::default(),
            writes_shards: files.writes_shards(),
            format,
            parcels: files.parcels(),
            starts: files.starts(),
            whole_start: files.whole_start(),
            current: None,
            finished,
        }
    }

    /// Returns the next block, and the data of its tensor; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<(Arc<Work<'a>>, usize)>, Error> {
        loop {
            if let Some((work, next)) = &mut self.current
                && *next < work.slabs.count()
            {
                *next += 1;
                return Ok(Some((Arc::clone(work), *next - 1)));
            }
            let Some((number, tensor)) = self.moves.next() else { return Ok(None) };
            let work = self.begin(number, tensor).map_err(|error| error.about_tensor(&tensor.tensor.name))?;
            if self.finished.is_done(&work) {
                continue;
            }
            if work.slabs.count() == 0 {
                work.finish(self.finished)?;
            }
            self.current = Some((Arc::new(work), 0));
        }
    }

    fn begin(&mut self, number: usize, tensor: &'a Move<'a>) -> Result<Work<'a>, Error> {
        let units = &tensor.units;
        let source = tensor.tensor.source(units, &mut self.from)?;
        let mut shards = if self.writes_shards { Some(tensor.placed(&mut self.to)?) } else { None };
        let mut chunks = Vec::new();
        let sums = |count: usize| std::iter::repeat_with(Sum::default).take(count).collect::<Vec<_>>();
        let slabs = Slabs::of(units.shape(), units.bytes, self.most);
        let starts = self.starts.clone();
        let mut in_ranks = Vec::new();
        if let (Some(shards), Some(parts)) = (&mut shards, self.parcels.tensors.get(number)) {
            *shards = Arc::clone(&parts.placed);
            // After the header of its file.
            let placed =
                |chunk: &Chunk| Chunk { bytes: self.starts[chunk.place] + chunk.bytes, ..chunk.clone() };
            chunks.extend(parts.chunks.iter().map(|chunk| (placed(chunk), Sum32::default())));
        } else if let (Some(shards), OutputFormat::Dcp) = (&mut shards, self.format) {
            *shards = Arc::new(written::chunks(shards, units.shape(), number, units.bytes)?);
            for (region, holders) in shards.regions.iter().zip(&shards.holders) {
                let place = holders.first().copied().unwrap_or(0);
                let chunk = written::place(region, tensor.tensor.dtype, place, &mut self.starts[place]);
                let no_type = || Error::internal("a chunk has no offset");
                chunks.push((chunk.ok_or_else(no_type)?, Sum32::default()));
            }
        } else if let (Some(_), Some(parts)) = (&shards, &tensor.parts) {
            in_ranks = parts.in_ranks(&parts.placed()?)?;
            for (start, rank) in self.starts.iter_mut().zip(tensor.to.mesh().ranks()) {
                *start += (parts.local_shape(rank)?.iter().product::<usize>() * units.bytes) as u64;
            }
        } else if let Some(shards) = &shards {
            let lens: Vec<u64> =
                shards.regions.iter().map(|region| (region.numel() * units.bytes) as u64).collect();
            for (start, region) in self.starts.iter_mut().zip(&shards.of_rank) {
                *start += lens[*region];
            }
        }
        let whole_start = self.whole_start;
        self.whole_start += tensor.tensor.byte_len();
        Ok(Work {
            tensor,
            number,
            left: AtomicUsize::new(slabs.count()),
            infinite: AtomicU64::new(0),
            slabs,
            read: sums(source.placed.regions.len()),
            source,
            written: sums(shards.as_ref().map_or(0, |shards| shards.regions.len())),
            shards,
            starts,
            in_ranks,
            chunks,
            has_archives: self.format == OutputFormat::Dcp && self.writes_shards,
            whole: Sum::default(),
            whole_start,
        })
    }
}

impl Work<'_> {
    /// Returns the positions of the ranks whose files get a region.
    pub(super) fn holders(&self, region: usize) -> &[usize] {
        self.shards.as_ref().map_or(&[], |shards| &shards.holders[region])
    }

    /// Returns the offset of a region in the file of a rank that gets it.
    pub(super) fn start(&self, region: usize, place: usize) -> u64 {
        self.chunks.get(region).map_or_else(|| self.starts[place], |(chunk, _)| chunk.bytes)
    }

    /// Calls `each` for the parts of a range of a region's bytes: their offsets in the file of a rank.
    pub(super) fn each_part<E>(
        &self,
        region: usize,
        holder: usize,
        range: Range<usize>,
        each: &mut dyn FnMut(u64, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.start(region, self.holders(region)[holder]);
        let Some(in_rank) = self.in_ranks.get(region).and_then(|holders| holders.get(holder)) else {
            return each(start + range.start as u64, 0..range.len());
        };
        let before = range.start;
        in_rank.each(self.tensor.units.bytes, range, &mut |at, part| {
            each(start + at as u64, part.start - before..part.end - before)
        })
    }

    /// Returns `true` if the bytes of a region are one range of each file.
    pub(super) fn is_contiguous(&self) -> bool {
        self.in_ranks.is_empty()
    }

    /// Returns the byte offset of a block in the whole.
    pub(super) fn place_in_whole(&self, slab: &Slab) -> usize {
        slab.part(&all(self.tensor.units.shape())).map_or(0, |part| part.bytes.start)
    }

    /// Returns the number of bytes of the whole.
    pub(super) fn whole_len(&self) -> usize {
        self.tensor.units.shape().iter().product::<usize>() * self.tensor.units.bytes
    }

    /// Marks a block as done; after the last, the checksums read must match the manifest of the input.
    pub(super) fn done(&self, checked: bool, finished: &Finished<'_>) -> Result<(), Error> {
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        let sums = self.tensor.tensor.sums.iter().enumerate().filter(|_| checked);
        for (region, said) in sums.filter_map(|(region, said)| Some((region, (*said)?))) {
            let found = self.read[region].get();
            if found != said {
                let bytes = &self.source.files[self.source.placed.holders[region][0]];
                let file = bytes.input().map(|input| input.path().display().to_string()).unwrap_or_default();
                let message = format!(
                    "checksum mismatch in {file}: computed {found:016x}, the manifest has {said:016x}; pass `--no-verify` to use it anyway"
                );
                return Err(Error::mismatch("checksum", message));
            }
        }
        self.finish(finished)
    }

    fn finish(&self, finished: &Finished<'_>) -> Result<(), Error> {
        let shards = self.written.iter().map(Sum::get).collect();
        let chunks = self.chunks.iter().map(|(chunk, sum)| (chunk.clone(), sum.get())).collect();
        let infinite = self.infinite.load(Ordering::Relaxed);
        finished.add(self.number, Sums { shards, whole: self.whole.get(), chunks, infinite })
    }
}
