//! The slabs of all tensors, one after the other, with what is known of each tensor: made when its first slab is handed out, and
//! gone with its last. So memory holds what belongs to the few tensors that are being moved.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Sums;
use super::files::Files;
use super::journal::Done;
use super::parcels::Parcels;
use crate::checksum::{Sum, Sum32};
use crate::dcp::written::{self, Chunk};
use crate::decision::Move;
use crate::error::Error;
use crate::job::OutputFormat;
use crate::placed::{Known, Placed, all};
use crate::reading::Source;
use crate::slab::{Slab, Slabs};

/// What the slabs of one tensor share.
pub(super) struct Work<'a> {
    pub(super) tensor: &'a Move<'a>,
    number: usize,
    pub(super) slabs: Slabs,
    /// Slabs that are not done.
    left: AtomicUsize,
    /// Elements that were finite and became infinite.
    pub(super) infinite: AtomicU64,
    pub(super) source: Source<'a>,
    /// The checksums of what each region of the source has.
    pub(super) read: Vec<Sum>,
    /// What the ranks are to hold, where rank files are written.
    pub(super) shards: Option<Arc<Placed>>,
    /// The checksum of each of these shards.
    pub(super) written: Vec<Sum>,
    /// Where each rank's shard begins in its file.
    starts: Vec<u64>,
    /// The chunks that they are, of a distributed checkpoint, each with its checksum.
    pub(super) chunks: Vec<(Chunk, Sum32)>,
    /// Whether they lie in archives, which say their checksums.
    pub(super) has_archives: bool,
    /// The checksum of the whole.
    pub(super) whole: Sum,
    /// Where the whole begins in the gathered file.
    pub(super) whole_start: u64,
}

/// Hands out slabs.
pub(super) struct Feed<'a> {
    moves: std::iter::Enumerate<std::slice::Iter<'a, Move<'a>>>,
    most: usize,
    from: Known,
    to: Known,
    writes_shards: bool,
    format: OutputFormat,
    parcels: &'a Parcels,
    /// Where the next tensor begins in each file.
    starts: Vec<u64>,
    whole_start: u64,
    current: Option<(Arc<Work<'a>>, usize)>,
    finished: &'a Finished<'a>,
}

/// What is known of tensors that are done.
pub(super) struct Finished<'a> {
    sums: Mutex<Vec<Option<Sums>>>,
    /// What an earlier run has done.
    before: &'a HashMap<usize, Done>,
    files: &'a Files,
}

impl<'a> Finished<'a> {
    pub(super) fn new(tensors: usize, before: &'a HashMap<usize, Done>, files: &'a Files) -> Self {
        let sums = std::iter::repeat_with(|| None).take(tensors).collect();
        Self { sums: Mutex::new(sums), before, files }
    }

    /// What was written of all tensors.
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

    /// Takes a tensor as an earlier run has left it, if it has done it.
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

    /// The next slab, and of what; None after the last.
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
        let mut shards = if self.writes_shards { Some(self.to.placed(&tensor.unit_to)?) } else { None };
        let mut chunks = Vec::new();
        let sums = |count: usize| std::iter::repeat_with(Sum::default).take(count).collect::<Vec<_>>();
        let slabs = Slabs::of(units.shape(), units.bytes, self.most);
        let starts = self.starts.clone();
        if let (Some(shards), Some(parts)) = (&mut shards, self.parcels.tensors.get(number)) {
            *shards = Arc::clone(&parts.placed);
            // Behind the header of its file.
            let placed =
                |chunk: &Chunk| Chunk { bytes: self.starts[chunk.place] + chunk.bytes, ..chunk.clone() };
            chunks.extend(parts.chunks.iter().map(|chunk| (placed(chunk), Sum32::default())));
        } else if let (Some(shards), OutputFormat::Dcp) = (&mut shards, self.format) {
            *shards = Arc::new(written::chunks(shards, units.shape(), number)?);
            for (region, holders) in shards.regions.iter().zip(&shards.holders) {
                let place = holders.first().copied().unwrap_or(0);
                let chunk = written::place(region, tensor.tensor.dtype, place, &mut self.starts[place]);
                let no_type = || Error::failed("internal", "a chunk has no place");
                chunks.push((chunk.ok_or_else(no_type)?, Sum32::default()));
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
            chunks,
            has_archives: self.format == OutputFormat::Dcp && self.writes_shards,
            whole: Sum::default(),
            whole_start,
        })
    }
}

impl Work<'_> {
    /// The places of the ranks that are to hold a region.
    pub(super) fn holders(&self, region: usize) -> &[usize] {
        self.shards.as_ref().map_or(&[], |shards| &shards.holders[region])
    }

    /// Where a region begins in the file of a rank that is to hold it.
    pub(super) fn start(&self, region: usize, place: usize) -> u64 {
        self.chunks.get(region).map_or_else(|| self.starts[place], |(chunk, _)| chunk.bytes)
    }

    /// Where a slab begins in the whole, in bytes.
    pub(super) fn place_in_whole(&self, slab: &Slab) -> usize {
        slab.part(&all(self.tensor.units.shape())).map_or(0, |part| part.bytes.start)
    }

    /// The bytes of the whole.
    pub(super) fn whole_len(&self) -> usize {
        self.tensor.units.shape().iter().product::<usize>() * self.tensor.units.bytes
    }

    /// A slab is done. After the last, what was read must be what the manifest of the input says.
    pub(super) fn done(&self, checked: bool, finished: &Finished<'_>) -> Result<(), Error> {
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        for (region, said) in self.tensor.tensor.sums.iter().flatten().enumerate().filter(|_| checked) {
            let found = self.read[region].get();
            if found != *said {
                let bytes = &self.source.files[self.source.placed.holders[region][0]];
                let file = bytes.input().map(|input| input.path().display().to_string()).unwrap_or_default();
                let message = format!(
                    "its bytes in {file} have the checksum {found:016x}, and the manifest says {said:016x}; --no-verify takes it as it is"
                );
                return Err(Error::refused("checksum", message));
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
