//! Saving by ranks: each writes its shard, from any thread or process, and one commits the checkpoint.
//!
//! ```text
//! .NAME.reshard-HASH-N/lock           held, shared, by every process that takes part
//! .NAME.reshard-HASH-N/plan.json      the saved data: mesh, tensors, types and shardings, as in sharding.json
//! .NAME.reshard-HASH-N/token          the owner of the folder, so that no process joins an earlier attempt
//! .NAME.reshard-HASH-N/new/rank-..    the files of the ranks
//! .NAME.reshard-HASH-N/done-RANK      marks a file as complete and synced; its checksums
//! .NAME.reshard-HASH-N/objects/..     objects that are not tensors (`saved_objects`)
//! .NAME.reshard-HASH-N/committing     created by the process that commits
//! ```
//!
//! None of these files is a checkpoint, or at a path where a reader looks for one, until all ranks are done
//! and the manifest is written; then one rename makes it a checkpoint. If a process dies its file is not
//! done, and no process commits. The last process that leaves removes the folder. If all are killed, the next
//! writer to the same path does.

mod saved_objects;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use reshard_kernels::DType;
use reshard_layout::internal::counted;
use reshard_sharding::{Mesh, Sharding};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use crate::bytes::checksum::{self, checksum};
use crate::bytes::read::read_text;
use crate::bytes::write_all_at;
use crate::error::Error;
use crate::formats::header;
use crate::formats::manifest::{Entry, MANIFEST_NAME, Manifest, rank_file_name};
use crate::formats::objects_file;
use crate::model::objects::Key;
use crate::model::placed::Known;
use crate::model::stored::{self, FreeTexts};
use crate::model::units::Units;
use crate::shown::Shown;
use crate::write::reserved;
use crate::write::shard_files::file_order;
use crate::write::staging::{self, Staging};
use saved_objects::SavedObjects;

/// The largest number of ranks that write.
const MOST_RANKS: usize = 1 << 16;

/// The largest number of ranks that a message names.
const NAMED: usize = 8;

/// A checkpoint that ranks are writing.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, CheckpointWriter};
/// use reshard_sharding::{Mesh, Sharding};
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("step_1000");
/// let mesh: Mesh = "dp=4".parse()?;
/// let rows = Sharding::parse(&mesh, &[8, 2], "S(0)")?;
/// let writer = CheckpointWriter::begin(&out, &mesh, [("w", "U8", &rows)], false)?; // one process, which shares writer.token()
/// let other = CheckpointWriter::join(&out, writer.token())?;                        // each other process
/// for rank in mesh.ranks() {
///     let writer = if rank < 2 { &writer } else { &other };
///     writer.save(rank, [("w", &[rank as u8; 4][..])])?;                  // each rank, from any thread
/// }
/// writer.commit()?;                                                       // one of them; or all call commit_if_last()
/// assert_eq!(Checkpoint::open(Some(&out))?.shard("w", &rows, 3)?, [3; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CheckpointWriter {
    staging: Mutex<Option<Staging>>,
    hidden: PathBuf,
    target: PathBuf,
    token: String,
    mesh: Mesh,
    /// In the order of the files.
    tensors: Vec<Saved>,
    /// The index of each name in that order.
    numbers: HashMap<String, usize>,
    objects: SavedObjects,
    texts: Option<FreeTexts>,
}

/// A tensor that is saved.
struct Saved {
    name: String,
    dtype: Dtype,
    sharding: Sharding,
}

/// The record that a rank writes when its file is complete.
#[derive(Serialize, Deserialize)]
struct Done {
    header_crc64nvme: String,
    /// The checksums of the tensors in the order of the file.
    crc64nvme: String,
}

/// The file of one rank, being written; if dropped before [`RankWriter::finish`], the rank may begin again.
pub struct RankWriter<'a> {
    writer: &'a CheckpointWriter,
    rank: usize,
    path: PathBuf,
    file: File,
    header: u64,
    /// The offset and the number of bytes of each tensor in the file.
    places: Vec<(u64, usize)>,
    sums: Vec<Option<u64>>,
    finished: bool,
}

impl CheckpointWriter {
    /// Begins a checkpoint of the given tensors in the directory `out`.
    ///
    /// A tensor is its name, the type of its elements (`F32`, `bf16`, `torch.bfloat16`, ..) and its sharding,
    /// which must be over `mesh` and without partial values.
    ///
    /// One process begins, and sends its [`token`](CheckpointWriter::token) to the others, which
    /// [`join`](CheckpointWriter::join). With `force` an existing output of an earlier run is replaced when this one is
    /// committed.
    pub fn begin<'t>(
        out: &Path,
        mesh: &Mesh,
        tensors: impl IntoIterator<Item = (&'t str, &'t str, &'t Sharding)>,
        force: bool,
    ) -> Result<Self, Error> {
        Self::begin_with_texts(out, mesh, tensors, force, [])
    }

    /// Begins a checkpoint with free texts for readers, such as the number of a step.
    #[doc(hidden)]
    pub fn begin_with_texts<'t>(
        out: &Path,
        mesh: &Mesh,
        tensors: impl IntoIterator<Item = (&'t str, &'t str, &'t Sharding)>,
        force: bool,
        texts: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<Self, Error> {
        if mesh.size() > MOST_RANKS {
            let message = format!(
                "the mesh `{mesh}` has {}, but at most {MOST_RANKS} can write",
                counted(mesh.size(), "rank", "ranks")
            );
            return Err(Error::unsupported("too_many_ranks", message));
        }
        let mut entries = BTreeMap::new();
        for (name, dtype, sharding) in tensors {
            reserved::check_tensor(name)?;
            let entry = entry(mesh, dtype, sharding).map_err(|error| error.about_tensor(name))?;
            if entries.insert(name.to_owned(), entry).is_some() {
                return Err(Error::refused("name", "it is given twice").about_tensor(name));
            }
        }
        let mut said = FreeTexts::new();
        said.extend(texts.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())));
        said.keys().try_for_each(|key| reserved::check_text(key))?;
        staging::check(Some(out), None, force)?;
        let staging = Staging::shared(out, force)?;
        let nonce = format!("{:016x}", RandomState::new().build_hasher().finish());
        let hidden = staging.hidden().to_owned();
        let plan = Manifest::new(mesh, entries).to_text()?;
        let texts = serde_json::to_string(&said)
            .map_err(|error| Error::internal(format!("texts cannot be written as JSON: {error}")))?;
        for (name, text) in [("plan.json", &plan), ("texts.json", &texts), ("token", &nonce)] {
            let path = hidden.join(name);
            fs::write(&path, text).map_err(|error| Error::io("writing", &path, &error))?;
        }
        SavedObjects::of(&hidden).begin()?;
        Self::of(staging, &nonce)
    }

    /// Joins the checkpoint that another process has begun in the directory `out`, by its token.
    pub fn join(out: &Path, token: &str) -> Result<Self, Error> {
        let said = |why: &str| {
            let said = token.shown();
            format!("no process is saving to {} with the token `{said}`: {why}", out.display())
        };
        let refused = |why: &str| Error::refused("token", said(why));
        let malformed = || Error::malformed("token", said("a token has the form 0-89abcdef"));
        let (number, nonce) = token.split_once('-').ok_or_else(malformed)?;
        let number = number.parse().map_err(|_| malformed())?;
        let staging =
            Staging::joined(out, number)?.ok_or_else(|| refused("it has ended or was abandoned"))?;
        let found = read_text(&staging.hidden().join("token")).unwrap_or_default();
        if found != nonce {
            return Err(refused("it belongs to another attempt"));
        }
        Self::of(staging, nonce)
    }

    fn of(staging: Staging, nonce: &str) -> Result<Self, Error> {
        let (hidden, target) = (staging.hidden().to_owned(), staging.target().to_owned());
        let (plan, mesh, _) = Manifest::read(&hidden.join("plan.json"))?;
        let path = hidden.join("texts.json");
        let texts = read_text(&path).map_err(|error| Error::io("reading", &path, &error))?;
        let texts: FreeTexts = serde_json::from_slice(texts.as_bytes())
            .map_err(|error| Error::internal(format!("{}: {error}", path.display())))?;
        let mut tensors = Vec::new();
        for (name, Entry { shape, dtype, sharding, .. }) in plan.tensors {
            let sharding = Sharding::parse(&mesh, &shape, &sharding)?;
            tensors.push(Saved { name, dtype, sharding });
        }
        tensors.sort_by(|a, b| file_order((&a.name, a.dtype), (&b.name, b.dtype)));
        let numbers = tensors.iter().enumerate().map(|(at, one)| (one.name.clone(), at)).collect();
        let objects = SavedObjects::of(&hidden);
        let token = format!("{}-{nonce}", staging.number());
        let texts = Some(texts).filter(|texts| !texts.is_empty());
        let staging = Mutex::new(Some(staging));
        Ok(Self { staging, hidden, target, token, mesh, tensors, numbers, objects, texts })
    }

    /// Returns the token by which other processes join.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the dtype and the local shape of the shard of a tensor that a rank writes.
    #[doc(hidden)]
    pub fn expects(&self, tensor: &str, rank: usize) -> Result<(String, Vec<usize>), Error> {
        let number = self.number(tensor)?;
        let found = &self.tensors[number];
        let shape =
            found.sharding.local_shape(rank).map_err(|error| Error::from(error).about_tensor(tensor))?;
        Ok((found.dtype.to_string(), shape.to_vec()))
    }

    fn number(&self, tensor: &str) -> Result<usize, Error> {
        self.numbers.get(tensor).copied().ok_or_else(|| {
            Error::refused("no_such_tensor", "it is not among the tensors being saved").about_tensor(tensor)
        })
    }

    /// Writes an entry that is not a tensor: its name, its nested path, and its bytes from `torch.save`.
    ///
    /// Any process may write it, each entry once, before the checkpoint is committed: then it is part of it.
    /// After a commit by any process it is an error.
    pub fn save_object(&self, name: &str, path: Option<&[Key]>, bytes: &[u8]) -> Result<(), Error> {
        let refused = |why: &str| Error::refused("name", why).about(format_args!("`{}`", name.shown()));
        self.open()?;
        if name.is_empty() {
            return Err(refused("an object needs a name"));
        }
        if self.number(name).is_ok() {
            return Err(refused("it is the name of a tensor being saved"));
        }
        match self.objects.save(name, path, bytes)? {
            saved_objects::Outcome::Saved => Ok(()),
            saved_objects::Outcome::Twice => Err(refused("it is already being saved, or was saved")),
            saved_objects::Outcome::Closed => Err(self.has_been_committed()),
        }
    }

    /// Writes all tensors of a rank: the name of each and the bytes of its shard, in any order.
    pub fn save<'b>(
        &self,
        rank: usize,
        shards: impl IntoIterator<Item = (&'b str, &'b [u8])>,
    ) -> Result<(), Error> {
        let mut file = self.rank(rank)?;
        for (name, bytes) in shards {
            file.write(name, bytes)?;
        }
        file.finish()
    }

    /// Begins the file of a rank, to which tensors are written one at a time; each rank is begun once.
    pub fn rank(&self, rank: usize) -> Result<RankWriter<'_>, Error> {
        if !self.mesh.ranks().any(|one| one == rank) {
            return Err(Error::refused("rank", format!("rank {rank} is not in the mesh `{}`", self.mesh)));
        }
        self.open()?;
        let shapes = self.tensors.iter().map(|tensor| tensor.sharding.local_shape(rank));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        let mut described = self
            .tensors
            .iter()
            .zip(&shapes)
            .map(|(tensor, shape)| (&tensor.name[..], tensor.dtype, shape.as_slice()));
        let header = header::encode(&mut described, self.texts.as_ref())?;
        let mut end = header.len() as u64;
        let mut places = Vec::with_capacity(self.tensors.len());
        for (tensor, shape) in self.tensors.iter().zip(&shapes) {
            let len = stored::byte_len(tensor.dtype, shape).unwrap_or(0);
            places.push((end, len));
            end += len as u64;
        }
        let path = self.hidden.join(staging::NEW).join(rank_file_name(rank, self.mesh.world_size()));
        let created = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match created {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let message = format!("rank {rank} is already being saved, or was saved");
                return Err(Error::refused("rank", message));
            }
            created => created.map_err(|error| Error::io("creating", &path, &error))?,
        };
        let sums = vec![None; places.len()];
        let header_sum = checksum(&header);
        let this =
            RankWriter { writer: self, rank, path, file, header: header_sum, places, sums, finished: false };
        let written = this.file.set_len(end).and_then(|()| write_all_at(&this.file, 0, &header));
        written.map_err(|error| Error::io("writing", &this.path, &error))?;
        Ok(this)
    }

    /// Commits the checkpoint; an error if a rank or an object is unfinished, or if replicas differ.
    pub fn commit(&self) -> Result<(), Error> {
        self.open()?;
        let missing = self.missing();
        if !missing.is_empty() {
            let ranks: Vec<String> = missing.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if missing.len() > NAMED { ", .." } else { "" };
            let (count, all) = (missing.len(), self.mesh.size());
            let ranks = ranks.join(", ");
            let message = format!("{count} of {all} ranks have not saved their shards: {ranks}{more}");
            return Err(Error::refused("rank_missing", message));
        }
        if let Some(name) = self.objects.unfinished()?.first() {
            let message =
                "it is being saved, or its process has died; it can be neither left out nor included";
            return Err(Error::refused("object_missing", message).about(format_args!("`{}`", name.shown())));
        }
        if self.claimed()? {
            return self.put_in_place();
        }
        let message = format!("another process is committing {}, or has committed it", self.target.display());
        Err(Error::refused("committed", message))
    }

    /// Commits the checkpoint if all ranks and objects are finished; returns `true` if this call did.
    ///
    /// It returns `false` if another process commits. If every process calls it when its ranks have finished
    /// and its objects are saved, the last one commits.
    pub fn commit_if_last(&self) -> Result<bool, Error> {
        if self.staging().is_none() || !self.missing().is_empty() {
            return Ok(false);
        }
        if !self.objects.unfinished()?.is_empty() || !self.claimed()? {
            return Ok(false);
        }
        self.put_in_place().map(|()| true)
    }

    fn staging(&self) -> MutexGuard<'_, Option<Staging>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error if this writer has committed, or tried to.
    fn open(&self) -> Result<(), Error> {
        if self.staging().is_some() {
            return Ok(());
        }
        Err(self.has_been_committed())
    }

    fn has_been_committed(&self) -> Error {
        let message = format!("{} has been committed; nothing can be added to it", self.target.display());
        Error::refused("committed", message)
    }

    fn done(&self, rank: usize) -> PathBuf {
        self.hidden.join(format!("done-{rank}"))
    }

    /// Returns the ranks that are not done.
    fn missing(&self) -> Vec<usize> {
        self.mesh.ranks().filter(|rank| !self.done(*rank).exists()).collect()
    }

    /// Returns `true` if this writer is the one that commits.
    fn claimed(&self) -> Result<bool, Error> {
        let path = self.hidden.join("committing");
        match File::create_new(&path) {
            Ok(_) => Ok(true),
            // If the folder is missing another process has committed, and left.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => Ok(false),
            Err(error) => Err(Error::io("creating", &path, &error)),
        }
    }

    fn put_in_place(&self) -> Result<(), Error> {
        let placed = self.manifest().and_then(|text| {
            let path = self.hidden.join(staging::NEW).join(MANIFEST_NAME);
            let written = fs::write(&path, text).and_then(|()| File::open(&path)?.sync_all());
            written.map_err(|error| Error::io("writing", &path, &error))
        });
        let Some(staging) = self.staging().take() else {
            return Err(Error::refused("committed", "it has been committed"));
        };
        placed.and_then(|()| staging.put_in_place())
    }

    /// Returns the manifest, built from the records of the ranks; an error if replicas differ.
    fn manifest(&self) -> Result<String, Error> {
        let mut headers = Vec::with_capacity(self.mesh.size());
        let mut of_rank = Vec::with_capacity(self.mesh.size());
        for rank in self.mesh.ranks() {
            let path = self.done(rank);
            let text = read_text(&path).map_err(|error| Error::io("reading", &path, &error))?;
            let done: Option<Done> = serde_json::from_slice(text.as_bytes()).ok();
            let sums = done.and_then(|done| {
                Some((checksum::of_text(&done.header_crc64nvme)?, checksum::of_text(&done.crc64nvme)?))
            });
            let Some((header, sums)) =
                sums.filter(|(header, sums)| header.len() == 1 && sums.len() == self.tensors.len())
            else {
                return Err(Error::failed(
                    crate::ErrorKind::Io,
                    "io",
                    format!("{} is not a valid record of a finished rank", path.display()),
                ));
            };
            headers.extend(header);
            of_rank.push((rank, sums));
        }
        let mut known = Known::default();
        let mut entries = BTreeMap::new();
        for (number, tensor) in self.tensors.iter().enumerate() {
            let units = Units::of(tensor.dtype, tensor.sharding.shape());
            let sharding = units.sharding(&tensor.sharding).map_err(|why| Error::refused("packed", why))?;
            let placed = known.placed(&sharding)?;
            let mut sums = Vec::with_capacity(placed.regions.len());
            for holders in &placed.holders {
                let (first, sum) = (of_rank[holders[0]].0, of_rank[holders[0]].1[number]);
                if let Some(other) = holders.iter().find(|place| of_rank[**place].1[number] != sum) {
                    let other = of_rank[*other].0;
                    let message = format!("ranks {first} and {other} should hold the same bytes, but do not");
                    return Err(Error::mismatch("replicas", message).about_tensor(&tensor.name));
                }
                sums.push(sum);
            }
            let (shape, sharding) = (tensor.sharding.shape().to_vec(), tensor.sharding.to_string());
            let crc64nvme = Some(checksum::to_text(&sums));
            let entry = Entry { crc64nvme, ..Entry::of(shape, tensor.dtype, sharding) };
            entries.insert(tensor.name.clone(), entry);
        }
        let objects = self.objects.close()?;
        let placed = objects_file::write_file(&self.hidden.join(staging::NEW), &objects, true)?;
        Manifest::new(&self.mesh, entries).with_objects(&placed).with_headers(&headers).to_text()
    }
}

impl RankWriter<'_> {
    /// Writes the shard of a tensor: its bytes in row-major order.
    pub fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), Error> {
        let rank = self.rank;
        let refused = |message: String| Error::refused("shard", message).about_tensor(tensor);
        let number = self.writer.number(tensor)?;
        let (at, len) = self.places[number];
        if bytes.len() != len {
            let found = bytes.len();
            return Err(refused(format!(
                "rank {rank} holds {len} of it, but {found} are given",
                len = counted(len, "byte", "bytes")
            )));
        }
        if self.sums[number].is_some() {
            return Err(refused(format!("rank {rank} has already written it")));
        }
        write_all_at(&self.file, at, bytes).map_err(|error| Error::io("writing", &self.path, &error))?;
        self.sums[number] = Some(checksum(bytes));
        Ok(())
    }

    /// Syncs the file and records that it is complete; every tensor must have been written.
    pub fn finish(mut self) -> Result<(), Error> {
        let sums: Option<Vec<u64>> = self.sums.iter().copied().collect();
        let Some(sums) = sums else {
            let missing = self.sums.iter().position(Option::is_none).unwrap_or(0);
            let message = format!("rank {} has not written its shard", self.rank);
            let name = &self.writer.tensors[missing].name;
            return Err(Error::refused("shard", message).about_tensor(name));
        };
        self.file.sync_all().map_err(|error| Error::io("syncing", &self.path, &error))?;
        let done =
            Done { header_crc64nvme: checksum::to_text(&[self.header]), crc64nvme: checksum::to_text(&sums) };
        let text = serde_json::to_string(&done)
            .map_err(|error| Error::internal(format!("checksums cannot be written as JSON: {error}")))?;
        let (path, meanwhile) =
            (self.writer.done(self.rank), self.writer.hidden.join(format!("tells-{}", self.rank)));
        // Written to another name and renamed, so that it appears completely or not at all.
        let said = File::create(&meanwhile)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&meanwhile, &path));
        said.map_err(|error| Error::io("writing", &path, &error))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for RankWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // The rank may begin again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the plan's entry of a tensor.
fn entry(mesh: &Mesh, dtype: &str, sharding: &Sharding) -> Result<Entry, Error> {
    let named: DType = dtype
        .parse()
        .map_err(|error: reshard_kernels::Error| Error::malformed("dtype", error.to_string()))?;
    let dtype = serde_json::from_value::<Dtype>(named.name().to_uppercase().into());
    let dtype = dtype.map_err(|_| Error::unsupported("dtype", format!("safetensors has no type {named}")))?;
    if sharding.mesh() != mesh {
        let message =
            format!("`{sharding}` is on the mesh `{}`, but the checkpoint is on `{mesh}`", sharding.mesh());
        return Err(Error::refused("mesh", message));
    }
    if sharding.is_partial() {
        let message =
            format!("`{sharding}` has a partial sum, but files hold complete values; reduce it first");
        return Err(Error::refused("partial_target", message));
    }
    let shape = sharding.shape().to_vec();
    if stored::byte_len(dtype, &shape).is_none() {
        let message = format!("{dtype} {shape:?} has more than 2^64 bytes, or ends in the middle of one");
        return Err(Error::refused("shape", message));
    }
    Units::of(dtype, &shape).sharding(sharding).map_err(|why| Error::refused("packed", why))?;
    Ok(Entry::of(shape, dtype, sharding.to_string()))
}
