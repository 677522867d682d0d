//! What a run starts from: every tensor of a checkpoint with the shards it has now.
//!
//! ```text
//! nothing                          -> the embedded block          whole tensors
//! FILE.safetensors                 -> one file                    whole tensors
//! a folder with an index           -> the files it names          whole tensors
//! a folder with one such file      -> that file                   whole tensors
//! a folder with `.metadata`        -> PyTorch's distributed ones  chunks of tensors
//! a folder of files with offsets   -> the same in safetensors     chunks of tensors
//! an archive of torch.save or npz  -> itself                      whole tensors
//! a file of NumPy                  -> itself                      one whole tensor
//! a directory of an earlier run    -> rank files and manifest     one shard per rank, and the sharding
//! ```
//!
//! Opening reads headers only; the bytes stay in their files until a tensor's turn comes.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::{Mesh, Sharding};
use safetensors::Dtype;

use super::archives::Archive;
use super::bytes::Bytes;
use super::checksum;
use super::dcp::{METADATA_NAME, in_safetensors};
use super::header::{self, FreeTexts, Stored};
use super::index::{INDEX_NAME, Index};
use super::manifest::{Entry, MANIFEST_NAME, Manifest, rank_file_name};
use super::objects::{Key, Listed, Object};
use super::place::{self, Kind};
use super::placed::Placed;
use super::{by_content, dcp, embedded, header::Opened};
use crate::error::Error;

/// The tensors of an input; opening reads headers only.
///
/// ```
/// use reshard_checkpoint::Checkpoint;
///
/// let block = Checkpoint::open(None)?; // the one made by code
/// let embedding = block.tensors().iter().find(|tensor| tensor.name() == "embedding.weight").unwrap();
/// assert_eq!((embedding.shape(), embedding.byte_len()), (&[2003, 256][..], 2003 * 256 * 4));
/// assert!(embedding.sharding().is_none()); // it is whole
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) free_texts: Option<FreeTexts>,
    pub(crate) origin: Origin,
    /// What a manifest says of the bytes beside it, where it has checksums.
    pub(crate) sums: Option<Sums>,
    /// The zip archives that it is made of.
    pub(crate) archives: Vec<Archive>,
    /// What is in it and not a tensor, in the order of the names.
    pub(crate) objects: Vec<Object>,
    /// The folders that it was opened from: nothing is written into them.
    pub(crate) folders: Vec<PathBuf>,
    /// Files of its folder that its manifest does not list.
    pub(crate) ignored: Vec<String>,
}

/// The checksums of what is no tensor.
#[derive(Clone)]
pub(crate) struct Sums {
    pub(crate) manifest: PathBuf,
    /// Whether the manifest has the checksum that it says.
    pub(crate) manifest_is_right: bool,
    /// Every rank file, the checksum that its header has, and what the manifest says.
    pub(crate) headers: Vec<(PathBuf, u64, u64)>,
}

/// Where a checkpoint comes from, which decides what `--from` and `--mesh` mean when they are not given.
#[derive(Clone)]
pub(crate) enum Origin {
    /// Made by this program.
    Embedded,
    /// Whole tensors in files.
    Files,
    /// A directory of an earlier run, sharded over this mesh.
    Sharded(Mesh),
}

/// One tensor of an input.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) name: String,
    /// Where it is in nested dicts and lists; None where only its name is known.
    pub(crate) path: Option<Vec<Key>>,
    /// The type of its elements, as they are read.
    pub(crate) dtype: Dtype,
    /// That of the elements in the files, which are converted on the way if it is another.
    pub(crate) stored: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Data,
    /// The checksums of its shards, of each region once.
    pub(crate) sums: Option<Vec<u64>>,
}

/// The bytes of a tensor.
#[derive(Clone)]
pub(crate) enum Data {
    /// All of them, in row-major order.
    Whole(Bytes),
    /// One shard per rank of the sharding's mesh, in the order of its ranks.
    Shards { sharding: Box<Sharding>, shards: Vec<Bytes> },
    /// Parts that make it up, in units, each with its bytes in row-major order. Where two have something in common, the later one's holds.
    Chunks { placed: Arc<Placed>, chunks: Vec<Bytes> },
}

impl Checkpoint {
    /// Opens what `path` is, or makes the embedded checkpoint.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(embedded::checkpoint()) };
        let kind = place::kind(path).map_err(|error| {
            Error::refused("input", format!("the input {} cannot be read: {error}", place::shown(path)))
        })?;
        let of_folder = |folder: &Path, opened: Result<Self, Error>| {
            opened.map(|opened| Self { folders: vec![folder.to_owned()], ..opened })
        };
        if kind == Kind::Directory {
            return of_folder(path, Self::open_directory(path));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        if path.file_name().is_some_and(|name| name == INDEX_NAME) {
            return of_folder(folder, Self::open_indexed(folder, path));
        }
        if path.file_name().is_some_and(|name| name == METADATA_NAME) {
            return of_folder(folder, dcp::open(folder, path));
        }
        by_content::open(path)
    }

    /// The tensor of this name; refused where there is none.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        self.tensors.iter().find(|tensor| tensor.name == name).ok_or_else(|| {
            let message =
                format!("there is no tensor `{name}` among the {} of the input", self.tensors.len());
            Error::refused("no_such_tensor", message)
        })
    }

    /// The mesh that its shardings are over; None where its tensors are whole.
    pub fn mesh(&self) -> Option<&Mesh> {
        match &self.origin {
            Origin::Sharded(mesh) => Some(mesh),
            Origin::Embedded | Origin::Files => None,
        }
    }

    /// Whether there are checksums of it, which [`Checkpoint::verify`] compares: of a manifest, or of the zip archives that it is made
    /// of, each of them.
    pub fn has_checksums(&self) -> bool {
        let archived = !self.archives.is_empty() && self.archives.iter().all(|archive| archive.has_checksums);
        self.sums.is_some() || archived
    }

    /// The free texts that its writer left for readers.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.free_texts.iter().flatten().map(|(key, text)| (&key[..], &text[..]))
    }

    /// The names of safetensors files in its folder that are not read, as its `sharding.json` does not list them.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Every tensor; of an earlier job's output in the order of its manifest, else as the files name them.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn open_directory(dir: &Path) -> Result<Self, Error> {
        let manifest = dir.join(MANIFEST_NAME);
        if place::exists(&manifest)? {
            return Self::open_sharded(dir, &manifest, &[]);
        }
        let metadata = dir.join(METADATA_NAME);
        if place::exists(&metadata)? {
            return dcp::open(dir, &metadata);
        }
        let index = dir.join(INDEX_NAME);
        if place::exists(&index)? {
            return Self::open_indexed(dir, &index);
        }
        let refused =
            |why: &str| Err(Error::refused("input", format!("the directory {} {why}", dir.display())));
        let Some(files) = safetensors_files(dir)? else {
            return refused(&format!(
                "has no {MANIFEST_NAME}, {METADATA_NAME} or {INDEX_NAME}, and its server has no list of what else it holds: name a file"
            ));
        };
        if let Some(rank_file) = files.iter().find(|name| name.starts_with("rank-")) {
            return refused(&format!(
                "holds {rank_file} but not the {MANIFEST_NAME} that says what it is a shard of"
            ));
        }
        let mut names = files.iter();
        let first = names.next().map(|first| header::open(&dir.join(first))).transpose()?;
        match (first, names.next()) {
            (Some(first), _) if in_safetensors::has_chunks(&first) => in_safetensors::open(dir, &files),
            (Some(only), None) => Ok(Self::whole(only)),
            (Some(_), Some(_)) => refused(&format!("holds several .safetensors files and no {INDEX_NAME}")),
            (None, _) if place::exists(&dir.join(format!("__0{METADATA_NAME}")))? => refused(&format!(
                "holds what ranks wrote each for itself (__0{METADATA_NAME}), and no {METADATA_NAME} of them all"
            )),
            (None, _) => refused(&format!(
                "holds no .safetensors file, no {INDEX_NAME}, no {MANIFEST_NAME} and no {METADATA_NAME}"
            )),
        }
    }

    pub(crate) fn whole(file: Opened) -> Self {
        let tensors = file.tensors.into_iter().map(|(name, stored)| Tensor::whole(name, stored)).collect();
        Self {
            tensors,
            free_texts: file.free_texts.map(in_safetensors::not_about_chunks),
            origin: Origin::Files,
            sums: None,
            archives: Vec::new(),
            objects: Vec::new(),
            folders: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// The files that an index names; index and files must agree about every tensor.
    fn open_indexed(dir: &Path, path: &Path) -> Result<Self, Error> {
        let index = Index::read(path)?;
        let refused = |why: String| Err(Error::refused("index", format!("{}: {why}", path.display())));
        let mut tensors: BTreeMap<String, Stored> = BTreeMap::new();
        let mut free_texts: Option<FreeTexts> = None;
        for file in index.files() {
            let file_path = dir.join(file);
            if !place::exists(&file_path)? {
                return refused(format!("it names {file}, which is not in the folder"));
            }
            let opened = header::open(&file_path)?;
            for (name, stored) in opened.tensors {
                match index.file_of(&name) {
                    // It was taken from the file that the index says.
                    Some(first) if tensors.contains_key(&name) => {
                        return refused(format!("tensor `{name}` is both in {first} and in {file}"));
                    }
                    Some(said) if said == file => {}
                    Some(said) => return refused(format!("tensor `{name}` is in {file}, not in {said}")),
                    None => return refused(format!("tensor `{name}` of {file} is not in the index")),
                }
                tensors.insert(name, stored);
            }
            // Files of one checkpoint repeat the same texts; where they differ the first one stays.
            if let Some(texts) = opened.free_texts {
                let merged = free_texts.get_or_insert_default();
                for (key, text) in in_safetensors::not_about_chunks(texts) {
                    merged.entry(key).or_insert(text);
                }
            }
        }
        if let Some((name, file)) = index.entries().find(|(name, _)| !tensors.contains_key(*name)) {
            return refused(format!("tensor `{name}` is not in {file}"));
        }
        let tensors = tensors.into_iter().map(|(name, stored)| Tensor::whole(name, stored)).collect();
        Ok(Self {
            tensors,
            free_texts,
            origin: Origin::Files,
            sums: None,
            archives: Vec::new(),
            objects: Vec::new(),
            folders: Vec::new(),
            ignored: Vec::new(),
        })
    }

    /// The rank files of an earlier run, but of dead ranks, which are in order; manifest and files must agree about every other rank
    /// and every tensor.
    pub(crate) fn open_sharded(dir: &Path, path: &Path, dead: &[usize]) -> Result<Self, Error> {
        let (manifest, mesh, manifest_is_right) = Manifest::read(path)?;
        let has_checksums = manifest.has_checksums();
        let is_living = |rank: &usize| dead.binary_search(rank).is_err();
        let expected = || mesh.ranks().map(|rank| rank_file_name(rank, mesh.world_size()));
        let refused = |why: String| Err(Error::refused("rank_files", format!("{}: {why}", dir.display())));
        let mut ignored = Vec::new();
        // Where nobody has a list, what is missing is found when it is opened.
        if let Some(present) = safetensors_files(dir)? {
            let mut living = mesh.ranks().filter(is_living);
            if let Some(first) =
                living.find(|&rank| present.binary_search(&rank_file_name(rank, mesh.world_size())).is_err())
            {
                let missing = rank_file_name(first, mesh.world_size());
                let ranks = dead.iter().copied().chain([first]).map(|rank| rank.to_string());
                let ranks = ranks.collect::<Vec<_>>().join(",");
                return refused(format!(
                    "the rank file {missing} of mesh `{mesh}` is missing; a run with --dead {ranks} takes what other ranks hold"
                ));
            }
            // There are no more ranks than files and dead ones, whatever the manifest says.
            let mut expected: Vec<String> = expected().collect();
            expected.sort_unstable();
            // The manifest says what belongs to it.
            ignored.extend(present.into_iter().filter(|name| expected.binary_search(name).is_err()));
        }
        let mut tensors = Vec::new();
        for (name, entry) in manifest.tensors {
            let sharding = Sharding::parse(&mesh, &entry.shape, &entry.sharding)
                .map_err(|error| Error::from(error).about(format!("{}, tensor `{name}`", path.display())))?;
            if sharding.is_partial() {
                let message = format!(
                    "{}: tensor `{name}` is `{sharding}`, and files hold no terms of sums",
                    path.display()
                );
                return Err(Error::refused("manifest", message));
            }
            let Entry { shape, dtype, crc64nvme, path: keys, .. } = entry;
            let sums = match &crc64nvme {
                Some(text) => {
                    Some(sums(text).map_err(|error| error.about_tensor(&name).about(path.display()))?)
                }
                None => None,
            };
            tensors.push(Tensor {
                name,
                path: keys,
                dtype,
                stored: dtype,
                shape,
                data: Data::Shards { sharding: Box::new(sharding), shards: Vec::new() },
                sums,
            });
        }
        let said = match &manifest.headers_crc64nvme {
            Some(text) => sums(text).map_err(|error| error.about(path.display()))?,
            None => Vec::new(),
        };
        if !said.is_empty() && said.len() != mesh.size() {
            let message = format!(
                "{}: {} for {}",
                path.display(),
                counted(said.len(), "checksum", "checksums"),
                counted(mesh.size(), "file", "files")
            );
            return Err(Error::refused("manifest", message));
        }
        let mut headers = Vec::new();
        let mut free_texts = None;
        let mut texts_known = false;
        for (position, rank) in mesh.ranks().enumerate().filter(|(_, rank)| is_living(rank)) {
            let file = rank_file_name(rank, mesh.world_size());
            let opened = header::open(&dir.join(&file))?;
            if let Some(said) = said.get(position) {
                headers.push((dir.join(&file), opened.checksum, *said));
            }
            if !texts_known {
                (free_texts, texts_known) = (opened.free_texts, true);
            }
            take_shards(&mut tensors, opened.tensors, rank)
                .map_err(|why| Error::refused("manifest", format!("{}: {why}", dir.join(&file).display())))?;
        }
        let objects = Listed::open(dir, &manifest.objects)?;
        let names: HashSet<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
        if let Some(twice) = objects.iter().find(|one| names.contains(&one.name[..])) {
            let message = format!("{} lists `{}` as a tensor and as an object", path.display(), twice.name);
            return Err(Error::refused("manifest", message));
        }
        let sums = has_checksums.then(|| Sums { manifest: path.to_owned(), manifest_is_right, headers });
        Ok(Self {
            tensors,
            free_texts,
            origin: Origin::Sharded(mesh),
            sums,
            archives: Vec::new(),
            objects,
            folders: vec![dir.to_owned()],
            ignored,
        })
    }
}

impl Tensor {
    pub(crate) fn whole(name: String, stored: Stored) -> Self {
        let Stored { dtype, shape, bytes } = stored;
        Self { name, path: None, dtype, stored: dtype, shape, data: Data::Whole(bytes), sums: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is in nested dicts and lists; `None` where only its name is known.
    pub fn path(&self) -> Option<&[Key]> {
        self.path.as_deref()
    }

    /// The shape of the whole.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of its elements, as safetensors names it: `F32`, `BF16`, ..
    pub fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// The sharding that it has in the files; None where it is whole or in chunks.
    pub fn sharding(&self) -> Option<&Sharding> {
        match &self.data {
            Data::Whole(_) | Data::Chunks { .. } => None,
            Data::Shards { sharding, .. } => Some(sharding),
        }
    }

    /// How many chunks make it up, where it is cut in chunks of any sizes.
    pub fn chunks(&self) -> Option<usize> {
        match &self.data {
            Data::Whole(_) | Data::Shards { .. } => None,
            Data::Chunks { chunks, .. } => Some(chunks.len()),
        }
    }

    /// The bytes of the whole tensor.
    pub fn byte_len(&self) -> u64 {
        header::byte_len(self.dtype, &self.shape).unwrap_or(0) as u64
    }
}

/// The checksums of a text of a manifest.
fn sums(text: &str) -> Result<Vec<u64>, Error> {
    checksum::of_text(text)
        .ok_or_else(|| Error::refused("manifest", "a checksum is not 16 of the digits 0 to 9 and a to f"))
}

/// Hands every tensor its shard from one rank's file, if the file holds exactly what the manifest says.
fn take_shards(
    tensors: &mut [Tensor],
    mut stored: BTreeMap<String, Stored>,
    rank: usize,
) -> Result<(), String> {
    for tensor in tensors {
        let Data::Shards { sharding, shards } = &mut tensor.data else { continue };
        let name = &tensor.name;
        let Some(shard) = stored.remove(name) else {
            return Err(format!("tensor `{name}` of the manifest is missing"));
        };
        let local = sharding.local_shape(rank).map_err(|error| error.to_string())?;
        if shard.dtype != tensor.dtype || shard.shape != local.as_slice() {
            return Err(format!(
                "tensor `{name}` is {} {:?}, and by the manifest's `{sharding}` it is {} {:?}",
                shard.dtype,
                shard.shape,
                tensor.dtype,
                local.as_slice()
            ));
        }
        shards.push(shard.bytes);
    }
    match stored.into_keys().next() {
        None => Ok(()),
        Some(name) => Err(format!("tensor `{name}` is not in the manifest")),
    }
}

/// The names of all `.safetensors` files of a directory, in order; None where nobody has a list.
pub(crate) fn safetensors_files(dir: &Path) -> Result<Option<Vec<String>>, Error> {
    let mut names = place::names(dir).map_err(|error| Error::io("reading", dir, &error))?;
    let is_one = |name: &String| {
        let suffix = Path::new(name).extension();
        suffix.is_some_and(|suffix| suffix == "safetensors") && !name.starts_with('.')
    };
    if let Some(names) = &mut names {
        names.retain(is_one);
        names.sort_unstable();
        names.dedup();
    }
    Ok(names)
}
