//! The files of the output: created with headers, written at any offset, synced, verified, renamed.
//!
//! There may be more files than a process may have open, so a file is open only while it is written.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use reshard_layout::internal::counted;
use reshard_sharding::Mesh;
use safetensors::Dtype;

use crate::bytes::checksum::{self, checksum};
use crate::bytes::write_all_at;
use crate::error::{Error, ErrorClass, ErrorKind};
use crate::formats::dcp::METADATA_NAME;
use crate::formats::dcp::frame::Frame;
use crate::formats::dcp::written::{self, Chunk};
use crate::formats::header;
use crate::formats::index::{INDEX_NAME, Index};
use crate::formats::manifest::{MANIFEST_NAME, Manifest, rank_file_name};
use crate::formats::objects_file::{self, Placed};
use crate::job::decision::Move;
use crate::job::wish::Wish;
use crate::job::{OutputFormat, ReshardJob};
use crate::model::checkpoint::Checkpoint;
use crate::model::objects::Object;
use crate::model::stored::{self, FreeTexts};
use crate::parallel;
use crate::shown::Shown;
use crate::stream::journal::{self, Done, Journal};
use crate::stream::parcels::Parcels;
use crate::stream::{FILE_BYTES, Sums};
use crate::write::staging::Staging;

/// The number of files synced at a time: each thread uses separate address space.
const SYNCS: usize = 3;

/// Outputs that have been begun, and appear when they are put in place.
pub(super) struct Files {
    pub(super) directory: Option<(Staging, Vec<Made>)>,
    pub(super) gathered: Option<(Staging, Made)>,
    journals: Vec<Journal>,
    format: OutputFormat,
    /// The assignment of tensors to files, in formats that store each element once.
    parcels: Parcels,
    /// The number of bytes that were written since the last sync.
    unsynced: AtomicU64,
}

/// The number of bytes that justifies a sync.
const WORTH_A_SYNC: u64 = 64 << 20;

/// The largest number of files that are synced while they are written.
///
/// More files are synced at the end only, because each sync costs time per file. So is a single file, because
/// its writers wait while it is synced.
const FEW: usize = 64;

/// The time between two checks of the thread that syncs.
const PAUSE: Duration = Duration::from_millis(10);

/// Stops the thread that syncs.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file with its header.
pub(super) struct Made {
    pub(super) path: PathBuf,
    /// The offset of its first tensor.
    data: u64,
    /// The checksum of its header.
    header: u64,
}

impl Files {
    /// Makes every file with its header and its length, and begins journals if the run can be resumed.
    ///
    /// With `resume` it takes over the files of a killed run with the same fingerprint, and returns the
    /// finished tensors.
    pub(super) fn begin(
        job: &ReshardJob,
        wish: &Wish<'_>,
        moves: &[Move<'_>],
        checkpoint: &Checkpoint,
        resume: bool,
    ) -> Result<(Self, HashMap<usize, Done>), Error> {
        let mesh = &wish.mesh;
        let objects = &checkpoint.objects[..];
        let fingerprint = job.verify.then(|| journal::fingerprint(moves, objects, job));
        let wanted =
            |hidden: &Path| fingerprint.is_some_and(|fingerprint| journal::is_of(hidden, fingerprint));
        let mut begun: Vec<(bool, PathBuf)> = Vec::new();
        let texts = checkpoint.free_texts.as_ref();
        let mut parcels = Parcels::default();
        let directory = match &job.out {
            None => None,
            Some(out) => {
                // Before any file is made: there may be too many files.
                match job.format {
                    OutputFormat::RankFiles | OutputFormat::Dcp => {}
                    OutputFormat::DcpSafetensors => parcels = Parcels::of_chunks(mesh, moves, texts)?,
                    OutputFormat::Safetensors => {
                        parcels = Parcels::of_wholes(moves, job.file_bytes.unwrap_or(FILE_BYTES), texts)?;
                    }
                }
                let taken = if resume { Staging::resumed_directory(out, job.force, wanted)? } else { None };
                let (resumed, staging) = match taken {
                    Some(taken) => (true, taken),
                    None => (false, Staging::directory(out, job.force)?),
                };
                begun.push((resumed, staging.hidden().to_owned()));
                let folder = staging.path();
                let made = Made::all(&folder, job.format, mesh, moves, texts, &parcels, resumed)?;
                Some((staging, made))
            }
        };
        let gathered = match &job.gather {
            None => None,
            Some(file) => {
                let taken = if resume { Staging::resumed_file(file, job.force, wanted)? } else { None };
                let (resumed, staging) = match taken {
                    Some(taken) => (true, taken),
                    None => (false, Staging::file(file, job.force)?),
                };
                begun.push((resumed, staging.hidden().to_owned()));
                let tensors = moves.iter().map(|tensor| described(tensor, &tensor.tensor.shape));
                let made = Made::new(staging.path(), tensors, texts, resumed)?;
                Some((staging, made))
            }
        };
        let mut this = Self {
            directory,
            gathered,
            journals: Vec::new(),
            format: job.format,
            parcels,
            unsynced: AtomicU64::new(0),
        };
        let mut done: Option<HashMap<usize, Done>> = None;
        for (resumed, hidden) in begun {
            let Some(fingerprint) = fingerprint else { break };
            let said = if resumed { Journal::go_on(&hidden, fingerprint)? } else { None };
            let (journal, said) = match said {
                Some(said) => said,
                None => (Journal::begin(&hidden, fingerprint)?, HashMap::new()),
            };
            this.journals.push(journal);
            // A tensor is finished if it is finished in every output.
            done = Some(match done {
                None => said,
                Some(mut both) => {
                    both.retain(|tensor, one| said.get(tensor) == Some(one));
                    both
                }
            });
        }
        if resume {
            this.keep(true);
        }
        Ok((this, done.unwrap_or_default()))
    }

    /// Sets if the partial outputs are retained when this run ends before they are put in place.
    pub(super) fn keep(&self, kept: bool) {
        let stagings = self.directory.iter().map(|(staging, _)| staging);
        for staging in stagings.chain(self.gathered.iter().map(|(staging, _)| staging)) {
            staging.keep(kept);
        }
    }

    /// Records that a tensor is finished.
    pub(super) fn note(&self, tensor: usize, done: &Done) -> Result<(), Error> {
        self.journals.iter().try_for_each(|journal| journal.note(tensor, done))
    }

    pub(super) fn writes_shards(&self) -> bool {
        self.directory.is_some()
    }

    pub(super) fn gathers(&self) -> bool {
        self.gathered.is_some()
    }

    /// Returns the assignment of tensors to files, in formats that store each element once.
    pub(super) fn parcels(&self) -> &Parcels {
        &self.parcels
    }

    /// Returns the offset of the first tensor in every rank's file.
    pub(super) fn starts(&self) -> Vec<u64> {
        self.directory.iter().flat_map(|(_, made)| made.iter().map(|file| file.data)).collect()
    }

    /// Returns the offset of the first tensor in the gathered file.
    pub(super) fn whole_start(&self) -> u64 {
        self.gathered.as_ref().map_or(0, |(_, file)| file.data)
    }

    /// Returns the file of the rank at this position.
    pub(super) fn shard(&self, place: usize) -> Option<&Path> {
        self.directory.as_ref().and_then(|(_, made)| made.get(place)).map(|file| &*file.path)
    }

    /// Returns the gathered file.
    pub(super) fn whole(&self) -> Option<&Path> {
        self.gathered.as_ref().map(|(_, file)| &*file.path)
    }

    /// Writes bytes to the file of the rank at this position, in the parts that `each_part` calls with their offsets.
    pub(super) fn write_shard(
        &self,
        place: usize,
        bytes: &[u8],
        each_part: impl FnOnce(
            &mut dyn FnMut(u64, Range<usize>) -> Result<(), io::Error>,
        ) -> Result<(), io::Error>,
    ) -> Result<(), Error> {
        self.unsynced.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let Some(path) = self.shard(place) else { return Ok(()) };
        let written = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|file| each_part(&mut |at, part| write_all_at(&file, at, &bytes[part])));
        written.map_err(|error| Error::io("writing", path, &error))
    }

    pub(super) fn write_whole(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.unsynced.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.whole().map_or(Ok(()), |path| write(path, at, bytes))
    }

    /// Returns the number of files.
    pub(super) fn count(&self) -> usize {
        self.made().count()
    }

    fn made(&self) -> impl Iterator<Item = &Made> {
        let shards = self.directory.iter().flat_map(|(_, made)| made);
        shards.chain(self.gathered.iter().map(|(_, made)| made))
    }

    /// Runs `work` while another thread syncs the bytes written so far.
    pub(super) fn flushed_meanwhile<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let done = AtomicBool::new(!(2..=FEW).contains(&self.count()));
        let flush = || -> Result<(), Error> {
            while !done.load(Ordering::Relaxed) {
                thread::park_timeout(PAUSE);
                if self.unsynced.load(Ordering::Relaxed) < WORTH_A_SYNC {
                    continue;
                }
                self.unsynced.store(0, Ordering::Relaxed);
                for file in self.made().take_while(|_| !done.load(Ordering::Relaxed)) {
                    let synced =
                        OpenOptions::new().write(true).open(&file.path).and_then(|file| file.sync_data());
                    // The system reports a sync error only once, so it must not be dropped here.
                    synced.map_err(|error| Error::io("syncing", &file.path, &error))?;
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let flushing = thread::Builder::new().spawn_scoped(scope, flush).ok();
            // Dropped at the end of the work, also if it panics.
            let end = Ends(&done);
            let worked = work();
            drop(end);
            let flushed = flushing.map_or(Ok(Ok(())), |thread| {
                thread.thread().unpark();
                thread.join()
            });
            let flushed = flushed.unwrap_or_else(|_| Err(Error::internal("the syncing thread panicked")));
            worked.and_then(|worked| flushed.map(|()| worked))
        })
    }

    /// Waits until all files are on the disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        let mut files: Vec<&Made> = self.made().collect();
        parallel::for_each(
            SYNCS,
            &mut files,
            || (),
            |(), file| {
                let synced = OpenOptions::new().write(true).open(&file.path).and_then(|file| file.sync_all());
                synced.map_err(|error| Error::io("syncing", &file.path, &error))
            },
        )
    }

    /// Copies the entries that are not tensors, after the chunks of a file or into a separate file.
    ///
    /// Formats that cannot hold them are skipped.
    pub(super) fn write_objects<'a>(
        &self,
        objects: &'a [Object],
        sums: &[Sums],
        checked: bool,
    ) -> Result<Vec<Placed<'a>>, Error> {
        let Some((staging, made)) = &self.directory else { return Ok(Vec::new()) };
        match self.format {
            OutputFormat::RankFiles => objects_file::write_file(&staging.path(), objects, checked),
            OutputFormat::DcpSafetensors | OutputFormat::Safetensors => Ok(Vec::new()),
            OutputFormat::Dcp => {
                let mut ends = vec![0; made.len()];
                for (chunk, _) in sums.iter().flat_map(|sums| &sums.chunks) {
                    if let Some(end) = ends.get_mut(chunk.place) {
                        *end = (chunk.offset + chunk.len).max(*end);
                    }
                }
                let mut placed = Vec::new();
                for object in objects.iter().filter(|object| object.archive().is_some()) {
                    let place = object.holder(made.len());
                    let (Some(file), Some(end)) = (made.get(place), ends.get_mut(place)) else {
                        let message = format!("`{}` has no output file", object.name().shown());
                        return Err(Error::internal(message));
                    };
                    let one = objects_file::copy(object, (place, &file.path), *end, checked)?;
                    *end += one.len;
                    placed.push(one);
                }
                Ok(placed)
            }
        }
    }

    /// Writes and syncs the manifest of the rank files.
    pub(super) fn write_manifest(
        &self,
        mesh: &Mesh,
        moves: &[Move<'_>],
        sums: Option<&[Sums]>,
        objects: &[Placed<'_>],
    ) -> Result<(), Error> {
        let Some((staging, made)) = &self.directory else { return Ok(()) };
        let of_tensor = |at: usize| Some(checksum::to_text(&sums?.get(at)?.shards));
        let mut manifest = Manifest::of_moves(mesh, moves, &of_tensor).with_objects(objects);
        if sums.is_some() {
            let headers: Vec<u64> = made.iter().map(|file| file.header).collect();
            manifest = manifest.with_headers(&headers);
        }
        write_synced(&staging.path().join(MANIFEST_NAME), manifest.to_text()?.as_bytes())
    }

    /// Writes the archives around the chunks, and writes and syncs `.metadata`.
    pub(super) fn write_metadata(
        &self,
        mesh: &Mesh,
        moves: &[Move<'_>],
        sums: &[Sums],
        objects: &[Placed<'_>],
    ) -> Result<(), Error> {
        let Some((staging, made)) = &self.directory else { return Ok(()) };
        for (tensor, sums) in moves.iter().zip(sums) {
            for (chunk, crc) in &sums.chunks {
                let dtype = tensor.tensor.dtype;
                let len = stored::byte_len(dtype, &chunk.shape).unwrap_or(0) as u64;
                let frame = Frame::new(dtype, &chunk.shape, len, *crc);
                let (Some(frame), Some(file)) = (frame, made.get(chunk.place)) else {
                    let error = Error::internal("a chunk has no output file");
                    return Err(error.about_tensor(&tensor.tensor.name));
                };
                write(&file.path, chunk.offset, &frame.head)?;
                write(&file.path, chunk.bytes + len, &frame.tail)?;
            }
        }
        let chunks: Vec<Vec<Chunk>> =
            sums.iter().map(|sums| sums.chunks.iter().map(|(chunk, _)| chunk.clone()).collect()).collect();
        let tensors = moves.iter().zip(&chunks).map(|(tensor, chunks)| written::Tensor {
            name: &tensor.tensor.name,
            path: tensor.tensor.path.as_deref(),
            dtype: tensor.tensor.dtype,
            shape: &tensor.tensor.shape,
            chunks,
        });
        let tensors: Vec<_> = tensors.collect();
        let ranks: Vec<usize> = mesh.ranks().collect();
        let text = written::metadata(&tensors, objects, |place| ranks.get(place).copied().unwrap_or(place));
        write_synced(&staging.path().join(METADATA_NAME), &text)
    }

    /// Writes and syncs the index of files of whole tensors.
    pub(super) fn write_index(&self, moves: &[Move<'_>]) -> Result<(), Error> {
        let Some((staging, _)) = &self.directory else { return Ok(()) };
        let mut named = BTreeMap::new();
        named.extend(moves.iter().zip(&self.parcels.tensors).map(|(tensor, parts)| {
            let file = parts.chunks.first().and_then(|chunk| self.parcels.files.get(chunk.place));
            (tensor.tensor.name.clone(), file.map(|file| file.name.clone()).unwrap_or_default())
        }));
        let total = moves.iter().map(|tensor| tensor.tensor.byte_len()).sum();
        let text = serde_json::to_string_pretty(&Index::new(total, named));
        let failed = |error| {
            Error::failed(ErrorKind::Internal, "index", format!("the index cannot be written: {error}"))
        };
        write_synced(&staging.path().join(INDEX_NAME), (text.map_err(failed)? + "\n").as_bytes())
    }

    /// Renames all outputs to their final paths, and returns these.
    ///
    /// If that fails, the remaining partial outputs are retained as configured, but not if another run was
    /// first.
    pub(super) fn put_in_place(self, mesh: &Mesh) -> Result<Vec<String>, Error> {
        // Closed first: after an exchange of names the old output is at this path.
        let placed = self.journals.iter().try_for_each(Journal::close).and_then(|()| self.place(mesh));
        placed.inspect_err(|error| match error.class() {
            ErrorClass::Refused | ErrorClass::ToldElsewhere(_) => self.keep(false),
            // A journal that cannot be opened again is removed by the next run.
            ErrorClass::Failed => self.journals.iter().for_each(Journal::open_again),
        })
    }

    fn place(&self, mesh: &Mesh) -> Result<Vec<String>, Error> {
        let mut written = Vec::new();
        if let Some((staging, _)) = &self.directory {
            let files = match self.format {
                OutputFormat::RankFiles => format!("{} rank files and {MANIFEST_NAME}", mesh.size()),
                OutputFormat::Dcp => format!("{} .distcp files and {METADATA_NAME}", mesh.size()),
                OutputFormat::DcpSafetensors => {
                    format!("{} of chunks", counted(self.parcels.files.len(), "file", "files"))
                }
                OutputFormat::Safetensors => {
                    format!("{} and {INDEX_NAME}", counted(self.parcels.files.len(), "file", "files"))
                }
            };
            let said = format!("{files} in {}", staging.target().display());
            staging.put_in_place()?;
            written.push(said);
        }
        if let Some((staging, _)) = &self.gathered {
            let said = format!("whole tensors in {}", staging.target().display());
            staging.put_in_place()?;
            written.push(said);
        }
        Ok(written)
    }
}

impl Made {
    /// Makes the files of a directory.
    fn all(
        folder: &Path,
        format: OutputFormat,
        mesh: &Mesh,
        moves: &[Move<'_>],
        texts: Option<&FreeTexts>,
        parcels: &Parcels,
        may_be_there: bool,
    ) -> Result<Vec<Self>, Error> {
        match format {
            OutputFormat::RankFiles => {
                let of_rank = |rank: usize| {
                    let shapes: Vec<_> =
                        moves.iter().map(|tensor| tensor.local_shape(rank)).collect::<Result<_, _>>()?;
                    let tensors = moves.iter().zip(&shapes).map(|(tensor, shape)| described(tensor, shape));
                    Self::new(
                        folder.join(rank_file_name(rank, mesh.world_size())),
                        tensors,
                        texts,
                        may_be_there,
                    )
                };
                mesh.ranks().map(of_rank).collect()
            }
            OutputFormat::Dcp => mesh
                .ranks()
                .map(|rank| Self::empty(folder.join(written::file_name(rank)), may_be_there))
                .collect(),
            OutputFormat::DcpSafetensors | OutputFormat::Safetensors => {
                let of_parcel = |parcel: &crate::stream::parcels::Parcel| {
                    let tensors = parcel.entries.iter().filter_map(|(number, shape)| {
                        moves.get(*number).map(|tensor| described(tensor, shape))
                    });
                    Self::new(folder.join(&parcel.name), tensors, parcel.texts.as_ref(), may_be_there)
                };
                parcels.files.iter().map(of_parcel).collect()
            }
        }
    }

    /// Makes an empty file whose contents are written later.
    fn empty(path: PathBuf, may_be_there: bool) -> Result<Self, Error> {
        create(&path, may_be_there).map_err(|error| Error::io("creating", &path, &error))?;
        Ok(Self { path, data: 0, header: 0 })
    }

    fn new<'a>(
        path: PathBuf,
        tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])> + Clone,
        texts: Option<&FreeTexts>,
        may_be_there: bool,
    ) -> Result<Self, Error> {
        let header = header::encode(&mut tensors.clone(), texts)?;
        let bytes: usize = tensors.map(|(_, dtype, shape)| stored::byte_len(dtype, shape).unwrap_or(0)).sum();
        let data = header.len() as u64;
        let made = create(&path, may_be_there).and_then(|file| file.set_len(data + bytes as u64));
        made.map_err(|error| Error::io("creating", &path, &error))?;
        write(&path, 0, &header)?;
        Ok(Self { path, data, header: checksum(&header) })
    }
}

/// Creates a file; it must not exist unless `may_be_there`.
fn create(path: &Path, may_be_there: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true);
    if may_be_there { options.create(true).truncate(false) } else { options.create_new(true) }.open(path)
}

/// Returns a tensor's entry in the header of a file that holds this part of it.
fn described<'a>(tensor: &'a Move<'_>, shape: &'a [usize]) -> (&'a str, Dtype, &'a [usize]) {
    (&tensor.tensor.name, tensor.tensor.dtype, shape)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes)
        .and_then(|()| File::open(path)?.sync_all())
        .map_err(|error| Error::io("writing", path, &error))
}

fn write(path: &Path, at: u64, bytes: &[u8]) -> Result<(), Error> {
    let written = OpenOptions::new().write(true).open(path).and_then(|file| write_all_at(&file, at, bytes));
    written.map_err(|error| Error::io("writing", path, &error))
}
