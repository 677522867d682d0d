//! Resharding from files to files, which needs no communication, and so no plan and no engine.
//!
//! ```text
//! per block:  files --read--> block --split by region(rank)--> written at its offset in every rank's file
//!                      |                                |
//!             replicas compared,               checksums of written bytes
//!             checksums of read bytes
//!
//! all blocks: checksums of the input compared; files synced, read back and compared; manifest; renamed into place
//! ```
//!
//! A block is one contiguous range of every file that has a part of it ([`slab`](crate::model::slab)). So every byte
//! of the input is read once, and every byte of the output is written once. Per thread, memory holds a block,
//! a part of it and a replica of that, for any tensors and ranks. If no checks are requested, the operating
//! system copies long common ranges from file to file, without passing them through this process.

#[cfg(target_os = "linux")]
mod direct;
mod feed;
mod files;
mod journal;
mod parcels;
mod read_back;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use reshard_layout::internal::counted;
use reshard_sharding::Mesh;

use crate::bytes;
use crate::bytes::checksum::{checksum, crc32};
use crate::error::{Error, ErrorClass, ErrorKind};
use crate::formats::dcp::written::{self, Chunk};
use crate::job::carried::{Others, Target};
use crate::job::decision::{self, Move};
use crate::job::input::Input;
use crate::job::observer::{Observer, moved};
use crate::job::report::{JobReport, TensorReport};
use crate::job::wish::Wish;
use crate::job::{OutputFormat, ReshardJob};
use crate::model::checkpoint::Checkpoint;
use crate::model::copies::{Stretch, copies};
use crate::model::objects::Object;
use crate::reading::slab_read::{Buffers, assemble, assemble_checked};
use crate::select::mapped::Unmade;
use crate::spread::{spread, threads};
use crate::write::reserved;
use crate::write::shard_files;
use crate::write::staging;
use feed::{Feed, Finished, Work};
use files::Files;
use journal::Done;

/// The largest number of bytes of a block, doubled with many ranks, since each gets one range of it.
///
/// Eight threads with three such buffers stay below 256 MiB.
const SLAB: usize = 4 << 20;

/// The number of files above which blocks are doubled.
const MANY: usize = 64;

/// The largest number of rank files that are written.
const MOST_RANKS: usize = 1 << 16;

/// The default limit of a file of whole tensors in a directory, in bytes.
pub(crate) const FILE_BYTES: u64 = 5_000_000_000;

/// Runs a job from files to files, on its opened input.
pub(crate) fn carry_out(
    job: &ReshardJob,
    input: Input,
    start: Instant,
    observer: &mut dyn Observer,
) -> Result<JobReport, Error> {
    let Input { checkpoint, lost, unmade, spec } = input;
    let wish = Wish::of(job, &checkpoint.origin, spec.as_ref())?;
    let report = reshard(&checkpoint, &wish, job, start, observer)?;
    let Unmade { dropped, kept } = unmade;
    Ok(JobReport { lost, dropped, kept, ..report })
}

/// Reshards an open checkpoint; everything that headers can show to be invalid is rejected before writing.
fn reshard(
    checkpoint: &Checkpoint,
    wish: &Wish<'_>,
    job: &ReshardJob,
    start: Instant,
    observer: &mut dyn Observer,
) -> Result<JobReport, Error> {
    let mut moves = decision::decide(checkpoint, wish)?;
    shard_files::in_file_order(&mut moves);
    let (out, gather) = (job.out.as_deref(), job.gather.as_deref());
    let target = Target::of(out, job.format, gather);
    let objects = &checkpoint.objects[..];
    let others = Others::of(objects, checkpoint.free_texts.as_ref(), target);
    others.check(objects, job.strict)?;
    staging::check(out, gather, job.force)?;
    staging::check_outside(out, gather, &checkpoint.folders)?;
    reserved::check(checkpoint, &moves, objects, target)?;
    check_ranks(&wish.mesh, job)?;
    if job.format.is_of_pytorch() && job.out.is_some() {
        for tensor in &moves {
            let in_safetensors = job.format == OutputFormat::DcpSafetensors;
            written::check(tensor.tensor.dtype, in_safetensors)
                .map_err(|error| error.about_tensor(&tensor.tensor.name))?;
        }
    }
    if job.verify {
        checkpoint.check_headers()?;
    }
    if job.resume && !job.verify {
        let message = "`--resume` finds finished work by checksums; drop `--resume` or `--no-verify`";
        return Err(Error::refused("usage", message));
    }
    let (report, resumed) = write(checkpoint, wish, &moves, job, job.resume, start, observer);
    let report = match report {
        // The resumed data failed verification: start from scratch. An input that fails it is rejected.
        Err(error)
            if resumed && (error.kind(), error.class()) == (ErrorKind::Verification, ErrorClass::Failed) =>
        {
            write(checkpoint, wish, &moves, job, false, start, observer).0
        }
        report => report,
    };
    report.map(|report| JobReport { others, ignored: checkpoint.ignored.clone(), ..report })
}

/// Writes the output; also returns `true` if it continued the work of an earlier run.
fn write(
    checkpoint: &Checkpoint,
    wish: &Wish<'_>,
    moves: &[Move<'_>],
    job: &ReshardJob,
    resume: bool,
    start: Instant,
    observer: &mut dyn Observer,
) -> (Result<JobReport, Error>, bool) {
    let (files, before) = match Files::begin(job, wish, moves, checkpoint, resume) {
        Ok(begun) => begun,
        Err(error) => return (Err(error), false),
    };
    files.keep(job.resume);
    let resumed = !before.is_empty();
    let objects = &checkpoint.objects[..];
    let sums = match fill(&files, wish, (moves, objects), &before, job, observer) {
        Ok(sums) => sums,
        Err(error) => {
            // A full disk may have space later, so that work is retained; other errors are permanent.
            files.keep(job.resume && error.kind() == ErrorKind::Io);
            return (Err(error), resumed);
        }
    };
    let resumed_bytes = bytes_of(moves, &before);
    let placed = files.put_in_place(&wish.mesh).map(|written| {
        let offline =
            |(tensor, sums): (&Move<'_>, &Sums)| TensorReport::offline(tensor, job.verify, sums.infinite);
        let reports = moves.iter().zip(&sums).map(offline).collect();
        JobReport { resumed_bytes, ..JobReport::new(reports, false, written, start.elapsed()) }
    });
    (placed, resumed)
}

/// Returns the bytes of the tensors that an earlier run finished.
fn bytes_of(moves: &[Move<'_>], before: &HashMap<usize, Done>) -> u64 {
    before.keys().filter_map(|tensor| moves.get(*tensor)).map(|one| one.tensor.byte_len()).sum()
}

/// Writes all files and verifies them by reading.
fn fill(
    files: &Files,
    wish: &Wish<'_>,
    (moves, objects): (&[Move<'_>], &[Object]),
    before: &HashMap<usize, Done>,
    job: &ReshardJob,
    observer: &mut dyn Observer,
) -> Result<Vec<Sums>, Error> {
    observer.on_start(moves.iter().map(|tensor| tensor.tensor.byte_len()).sum());
    if !before.is_empty() {
        moved(observer, bytes_of(moves, before))?;
    }
    let sums = files.flushed_meanwhile(|| copy(moves, files, before, job.verify, job.format, observer))?;
    let objects = files.write_objects(objects, &sums, job.verify)?;
    match job.format {
        OutputFormat::RankFiles => {
            files.write_manifest(&wish.mesh, moves, job.verify.then_some(&sums[..]), &objects)?;
        }
        OutputFormat::Dcp => files.write_metadata(&wish.mesh, moves, &sums, &objects)?,
        OutputFormat::Safetensors => files.write_index(moves)?,
        // The headers of its files contain all metadata.
        OutputFormat::DcpSafetensors => {}
    }
    // The disk writes while the written data is read.
    let (synced, read_back) = thread::scope(|scope| {
        let syncing = thread::Builder::new().spawn_scoped(scope, || files.sync()).ok();
        let read_back = if job.verify { files.read_back(moves, &sums, &objects) } else { Ok(()) };
        let synced = match syncing.map(thread::ScopedJoinHandle::join) {
            None => files.sync(),
            Some(synced) => synced.unwrap_or_else(|_| Err(Error::internal("the syncing thread panicked"))),
        };
        (synced, read_back)
    });
    synced?;
    read_back?;
    observer.on_finish();
    Ok(sums)
}

fn check_ranks(mesh: &Mesh, job: &ReshardJob) -> Result<(), Error> {
    if job.out.is_none() || mesh.size() <= MOST_RANKS {
        return Ok(());
    }
    let message = format!(
        "the mesh `{mesh}` has {}, but files are written for at most {MOST_RANKS}",
        counted(mesh.size(), "rank", "ranks")
    );
    Err(Error::unsupported("too_many_ranks", message))
}

/// The checksums of the bytes written for one tensor.
pub(crate) struct Sums {
    /// One per distinct shard, in the order of the first ranks that hold it.
    pub(crate) shards: Vec<u64>,
    /// The checksum of the whole.
    pub(crate) whole: u64,
    /// The chunks of a distributed checkpoint, each with the checksum in its archive.
    pub(crate) chunks: Vec<(Chunk, u32)>,
    /// The number of elements that were finite and became infinite.
    pub(crate) infinite: u64,
}

/// Copies all bytes of all tensors.
fn copy(
    moves: &[Move<'_>],
    files: &Files,
    before: &HashMap<usize, Done>,
    checked: bool,
    format: OutputFormat,
    observer: &mut dyn Observer,
) -> Result<Vec<Sums>, Error> {
    let finished = Finished::new(moves.len(), before, files);
    let most = if files.count() > MANY { 2 * SLAB } else { SLAB };
    let mut feed = Feed::new(moves, files, most, format, &finished);
    spread(
        threads(),
        || feed.next(),
        Buffers::default,
        |buffers, (work, number)| {
            let about = |error: Error| error.about_tensor(&work.tensor.tensor.name);
            let bytes = slab(&work, number, files, checked, buffers).map_err(about)?;
            work.done(checked, &finished).map_err(about)?;
            Ok(bytes)
        },
        &mut |bytes| moved(observer, bytes),
    )?;
    finished.all().ok_or_else(|| Error::internal("a tensor was not copied"))
}

/// Processes one block; returns its number of bytes.
fn slab(
    work: &Work<'_>,
    number: usize,
    files: &Files,
    checked: bool,
    buffers: &mut Buffers,
) -> Result<u64, Error> {
    let slab = work.slabs.get(number);
    let item_bytes = work.tensor.units.bytes;
    #[cfg(target_os = "linux")]
    let can_copy_ranges = !work.has_archives && work.source.cast.is_none() && work.is_contiguous();
    #[cfg(target_os = "linux")]
    if !checked && can_copy_ranges && direct::copy(work, &slab, files)? {
        return Ok(slab.len as u64);
    }
    let infinite = if checked {
        assemble_checked(work.tensor, &work.source, &work.read, &slab, buffers)?
    } else {
        assemble(&work.source, &slab, buffers)?
    };
    work.infinite.fetch_add(infinite, Ordering::Relaxed);
    let Buffers { slab: whole, part: room, .. } = buffers;
    for (at, region) in work.shards.iter().flat_map(|shards| shards.regions.iter().enumerate()) {
        let Some(part) = slab.part(region) else { continue };
        let Some(copies) = copies(&slab.region, &part.region, item_bytes) else { continue };
        let mut stretch = 0..0;
        if copies.shortest() == part.bytes.len() {
            copies.each(&mut |Stretch { from, len, .. }| {
                stretch = from..from + len;
                Ok::<(), Error>(())
            })?;
        } else {
            bytes::resize(room, part.bytes.len())?;
            copies.each(&mut |Stretch { from, to, len }| {
                room[to..to + len].copy_from_slice(&whole[from..from + len]);
                Ok::<(), Error>(())
            })?;
        }
        let bytes = if stretch.is_empty() { &room[..] } else { &whole[stretch] };
        if checked {
            work.written[at].add(checksum(bytes), region.numel() * item_bytes - part.bytes.end);
        }
        if let Some((_, sum)) = work.chunks.get(at).filter(|_| work.has_archives) {
            sum.add(crc32(bytes), region.numel() * item_bytes - part.bytes.end);
        }
        for (holder, place) in work.holders(at).iter().enumerate() {
            let range = part.bytes.clone();
            files.write_shard(*place, bytes, |each| work.each_part(at, holder, range, each))?;
        }
    }
    if files.gathers() {
        let start = work.place_in_whole(&slab);
        if checked {
            work.whole.add(checksum(whole), work.whole_len() - start - slab.len);
        }
        files.write_whole(work.whole_start + start as u64, whole)?;
    }
    Ok(slab.len as u64)
}
