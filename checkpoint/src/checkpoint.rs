//! The input of a run: every tensor of a checkpoint with its current shards.
//!
//! ```text
//! nothing                          -> the embedded block          whole tensors
//! FILE.safetensors                 -> one file                    whole tensors
//! a folder with an index           -> the files it names          whole tensors
//! a folder with one such file      -> that file                   whole tensors
//! a folder with `.metadata`        -> PyTorch's DCP files         chunks of tensors
//! a folder of files with offsets   -> the same in safetensors     chunks of tensors
//! an archive of torch.save or npz  -> itself                      whole tensors
//! a file of NumPy                  -> itself                      one whole tensor
//! a directory of an earlier run    -> rank files and manifest     one shard per rank, and the sharding
//! ```
//!
//! Opening reads headers only; the bytes of a tensor are read when it is processed.

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
/// let block = Checkpoint::open(None)?; // the embedded one
/// let embedding = block.tensors().iter().find(|tensor| tensor.name() == "embedding.weight").unwrap();
/// assert_eq!((embedding.shape(), embedding.byte_len()), (&[2003, 256][..], 2003 * 256 * 4));
/// assert!(embedding.sharding().is_none()); // a whole tensor
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) free_texts: Option<FreeTexts>,
    pub(crate) origin: Origin,
    /// The manifest's checksums of the header data, if the manifest has checksums.
    pub(crate) sums: Option<Sums>,
    /// The zip archives of its files.
    pub(crate) archives: Vec<Archive>,
    /// The entries that are not tensors, in the order of their names.
    pub(crate) objects: Vec<Object>,
    /// The folders that it was opened from; no output is written into them.
    pub(crate) folders: Vec<PathBuf>,
    /// Files of its folder that its manifest does not list.
    pub(crate) ignored: Vec<String>,
    /// The names of the tensors that a selection left out; the patterns of a spec may match only these.
    pub(crate) unselected: Vec<String>,
}

/// The checksums of everything but tensors.
#[derive(Clone)]
pub(crate) struct Sums {
    pub(crate) manifest: PathBuf,
    /// `true` if the manifest matches the checksum that it contains.
    pub(crate) manifest_is_right: bool,
    /// Every rank file, the checksum of its header, and the checksum that the manifest lists.
    pub(crate) headers: Vec<(PathBuf, u64, u64)>,
}

/// The origin of a checkpoint, which decides the defaults of `--from` and `--mesh`.
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
    /// The path in nested dicts and lists; `None` if only the name is known.
    pub(crate) path: Option<Vec<Key>>,
    /// The dtype of the elements as they are read.
    pub(crate) dtype: Dtype,
    /// The dtype in the files; elements are converted during reading if it differs.
    pub(crate) stored: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Data,
    /// The checksums of the shards, one per distinct region.
    pub(crate) sums: Option<Vec<u64>>,
}

/// The bytes of a tensor.
#[derive(Clone)]
pub(crate) enum Data {
    /// All of them, in row-major order.
    Whole(Bytes),
    /// One shard per rank of the sharding's mesh, in the order of its ranks.
    Shards { sharding: Box<Sharding>, shards: Vec<Bytes> },
    /// The chunks of the tensor, in units, each row-major. Where two overlap, the later one holds.
    Chunks { placed: Arc<Placed>, chunks: Vec<Bytes> },
}

impl Checkpoint {
    /// Opens the checkpoint at `path`, or makes the embedded checkpoint.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(embedded::checkpoint()) };
        let kind = place::kind(path).map_err(|error| {
            Error::unreadable(format!("the input {} cannot be read: {error}", place::shown(path)))
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

    /// Returns the tensor of this name; an error if there is none.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        self.tensors.iter().find(|tensor| tensor.name == name).ok_or_else(|| {
            let message =
                format!("there is no tensor `{name}` among the {} of the input", self.tensors.len());
            Error::refused("no_such_tensor", message)
        })
    }

    /// Returns the mesh of its shardings; `None` if its tensors are whole.
    pub fn mesh(&self) -> Option<&Mesh> {
        match &self.origin {
            Origin::Sharded(mesh) => Some(mesh),
            Origin::Embedded | Origin::Files => None,
        }
    }

    /// Returns `true` if it has checksums, which [`Checkpoint::verify`] compares.
    ///
    /// The checksums are those of a manifest, or of zip archives if every archive has them.
    #[doc(hidden)]
    pub fn has_checksums(&self) -> bool {
        let archived = !self.archives.is_empty() && self.archives.iter().all(|archive| archive.has_checksums);
        self.sums.is_some() || archived
    }

    /// Returns the free texts that the writer of the file left.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.free_texts.iter().flatten().map(|(key, text)| (&key[..], &text[..]))
    }

    /// Returns the names of safetensors files in its folder that `sharding.json` omits; they are not read.
    #[doc(hidden)]
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Returns all tensors: an earlier job's output in manifest order, other inputs in file order.
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
                "has no {MANIFEST_NAME}, {METADATA_NAME} or {INDEX_NAME}, and its server cannot list other files; name a file"
            ));
        };
        if let Some(rank_file) = files.iter().find(|name| name.starts_with("rank-")) {
            return refused(&format!("holds {rank_file} but not the manifest {MANIFEST_NAME}"));
        }
        let mut names = files.iter();
        let first = names.next().map(|first| header::open(&dir.join(first))).transpose()?;
        match (first, names.next()) {
            (Some(first), _) if in_safetensors::has_chunks(&first) => in_safetensors::open(dir, &files),
            (Some(only), None) => Ok(Self::whole(only)),
            (Some(_), Some(_)) => refused(&format!("holds several .safetensors files and no {INDEX_NAME}")),
            (None, _) if place::exists(&dir.join(format!("__0{METADATA_NAME}")))? => refused(&format!(
                "holds the metadata of single ranks (__0{METADATA_NAME}), but no common {METADATA_NAME}"
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
            unselected: Vec::new(),
        }
    }

    /// Opens the files that an index names; index and files must agree about every tensor.
    fn open_indexed(dir: &Path, path: &Path) -> Result<Self, Error> {
        let index = Index::read(path)?;
        let said = |why: String| format!("{}: {why}", path.display());
        let differs = |why: String| Err(Error::mismatch("index", said(why)));
        let mut tensors: BTreeMap<String, Stored> = BTreeMap::new();
        let mut free_texts: Option<FreeTexts> = None;
        for file in index.files() {
            let file_path = dir.join(file);
            if !place::exists(&file_path)? {
                return Err(Error::refused(
                    "index",
                    said(format!("it names {file}, which is not in the folder")),
                ));
            }
            let opened = header::open(&file_path)?;
            for (name, stored) in opened.tensors {
                match index.file_of(&name) {
                    // It was taken from the file that the index names.
                    Some(first) if tensors.contains_key(&name) => {
                        return differs(format!("tensor `{name}` is both in {first} and in {file}"));
                    }
                    Some(said) if said == file => {}
                    Some(said) => return differs(format!("tensor `{name}` is in {file}, not in {said}")),
                    None => return differs(format!("tensor `{name}` of {file} is not in the index")),
                }
                tensors.insert(name, stored);
            }
            // Files of one checkpoint repeat the same texts; if they differ the first one holds.
            if let Some(texts) = opened.free_texts {
                let merged = free_texts.get_or_insert_default();
                for (key, text) in in_safetensors::not_about_chunks(texts) {
                    merged.entry(key).or_insert(text);
                }
            }
        }
        if let Some((name, file)) = index.entries().find(|(name, _)| !tensors.contains_key(*name)) {
            return differs(format!("tensor `{name}` is not in {file}"));
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
            unselected: Vec::new(),
        })
    }

    /// Opens the rank files of an earlier run, except those of the missing ranks `dead`, which are sorted.
    ///
    /// Manifest and files must agree about every other rank and every tensor.
    pub(crate) fn open_sharded(dir: &Path, path: &Path, dead: &[usize]) -> Result<Self, Error> {
        let (manifest, mesh, manifest_is_right) = Manifest::read(path)?;
        let has_checksums = manifest.has_checksums();
        let is_living = |rank: &usize| dead.binary_search(rank).is_err();
        let expected = || mesh.ranks().map(|rank| rank_file_name(rank, mesh.world_size()));
        let refused = |why: String| Err(Error::refused("rank_files", format!("{}: {why}", dir.display())));
        let mut ignored = Vec::new();
        // If no listing is available, a missing file is found when it is opened.
        if let Some(present) = safetensors_files(dir)? {
            let mut living = mesh.ranks().filter(is_living);
            if let Some(first) =
                living.find(|&rank| present.binary_search(&rank_file_name(rank, mesh.world_size())).is_err())
            {
                let missing = rank_file_name(first, mesh.world_size());
                let ranks = dead.iter().copied().chain([first]).map(|rank| rank.to_string());
                let ranks = ranks.collect::<Vec<_>>().join(",");
                return refused(format!(
                    "the rank file {missing} of mesh `{mesh}` is missing; pass `--missing-ranks {ranks}` to use the data of other ranks"
                ));
            }
            // A manifest cannot declare more ranks than there are files and missing ranks.
            let mut expected: Vec<String> = expected().collect();
            expected.sort_unstable();
            // Files that the manifest does not list are ignored.
            ignored.extend(present.into_iter().filter(|name| expected.binary_search(name).is_err()));
        }
        let mut tensors = Vec::new();
        for (name, entry) in manifest.tensors {
            let sharding = Sharding::parse(&mesh, &entry.shape, &entry.sharding)
                .map_err(|error| Error::from(error).about(format!("{}, tensor `{name}`", path.display())))?;
            if sharding.is_partial() {
                let message = format!(
                    "{}: tensor `{name}` is `{sharding}`, but files cannot hold partial values",
                    path.display()
                );
                return Err(Error::malformed("manifest", message));
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
            return Err(Error::malformed("manifest", message));
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
            take_shards(&mut tensors, opened.tensors, rank).map_err(|why| {
                Error::mismatch("manifest", format!("{}: {why}", dir.join(&file).display()))
            })?;
        }
        let objects = Listed::open(dir, &manifest.objects)?;
        let names: HashSet<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
        if let Some(twice) = objects.iter().find(|one| names.contains(&one.name[..])) {
            let message = format!("{} lists `{}` as a tensor and as an object", path.display(), twice.name);
            return Err(Error::malformed("manifest", message));
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
            unselected: Vec::new(),
        })
    }
}

impl Tensor {
    pub(crate) fn whole(name: String, stored: Stored) -> Self {
        let Stored { dtype, shape, bytes } = stored;
        Self { name, path: None, dtype, stored: dtype, shape, data: Data::Whole(bytes), sums: None }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path in nested dicts and lists; `None` if only the name is known.
    pub fn path(&self) -> Option<&[Key]> {
        self.path.as_deref()
    }

    /// Returns the global shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the dtype of the elements, as safetensors names it: `F32`, `BF16`, ..
    pub fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// Returns the sharding in the files; `None` if the tensor is whole or in chunks.
    pub fn sharding(&self) -> Option<&Sharding> {
        match &self.data {
            Data::Whole(_) | Data::Chunks { .. } => None,
            Data::Shards { sharding, .. } => Some(sharding),
        }
    }

    /// Returns the number of chunks, if the tensor is stored in chunks of arbitrary sizes.
    #[doc(hidden)]
    pub fn chunks(&self) -> Option<usize> {
        match &self.data {
            Data::Whole(_) | Data::Shards { .. } => None,
            Data::Chunks { chunks, .. } => Some(chunks.len()),
        }
    }

    /// Returns the bytes of the whole tensor.
    pub fn byte_len(&self) -> u64 {
        header::byte_len(self.dtype, &self.shape).unwrap_or(0) as u64
    }
}

/// Parses the checksums in a manifest's text.
fn sums(text: &str) -> Result<Vec<u64>, Error> {
    checksum::of_text(text).ok_or_else(|| {
        Error::malformed("manifest", "a checksum is not 16 hexadecimal digits (0 to 9, a to f)")
    })
}

/// Gives every tensor its shard from one rank's file, if the file holds exactly the manifest's tensors.
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
                "tensor `{name}` is {} {:?}, but the manifest's `{sharding}` requires {} {:?}",
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

/// Returns the sorted names of all `.safetensors` files of a directory; `None` if it cannot be listed.
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
