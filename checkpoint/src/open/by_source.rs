//! Opens files that do not describe their parts, by a [`SourceSpec`].

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use reshard_layout::internal::counted;
use reshard_sharding::{Placements, Sharding};

use crate::bytes::place::{self, Kind};
use crate::error::Error;
use crate::formats::held::{Held, joined};
use crate::model::archives;
use crate::model::checkpoint::{Checkpoint, Data, Origin, Tensor};
use crate::model::objects::{Container, Key, Object};
use crate::model::stored::Stored;
use crate::open::by_content;
use crate::open::source::SourceSpec;

/// The most files of a source.
const MOST_FILES: usize = 1 << 16;

impl Checkpoint {
    /// Opens the checkpoint at `path`, by the source in a file if there is one.
    #[doc(hidden)]
    pub fn open_described(path: &Path, source: Option<&Path>) -> Result<Self, Error> {
        match source {
            None => Self::open(Some(path)),
            Some(source) => Self::open_source(path, &SourceSpec::read(source)?),
        }
    }

    /// Opens a folder of files that do not describe their parts, by a source that does.
    ///
    /// Tensors get the shapes that their parts add up to. Everything else is listed as an object, of
    /// the first file that has it.
    pub fn open_source(folder: &Path, source: &SourceSpec) -> Result<Self, Error> {
        let opened = open(folder, source).map_err(|error| error.about(place::shown(folder)))?;
        let names = opened.tensors.iter().map(|tensor| &tensor.name[..]);
        source.placements.all_used(names).map_err(|error| error.about("the source"))?;
        Ok(opened)
    }
}

/// A tensor in the file of one rank.
struct Local<'a> {
    rank: usize,
    file: &'a Path,
    path: Option<Vec<Key>>,
    stored: Stored,
}

/// Opens the files of a source; its patterns need not all match.
pub(super) fn open(folder: &Path, source: &SourceSpec) -> Result<Checkpoint, Error> {
    let mesh = &source.mesh;
    if mesh.size() > MOST_FILES {
        let message = format!(
            "the mesh `{mesh}` has {}, and at most {MOST_FILES} files are read",
            counted(mesh.size(), "rank", "ranks")
        );
        return Err(Error::unsupported("source", message));
    }
    let coordinates = mesh.ranks().map(|rank| (rank, mesh.coordinate(rank).unwrap_or_default()));
    let files: Vec<(usize, PathBuf, Vec<usize>)> = coordinates
        .map(|(rank, coordinate)| (rank, folder.join(source.file(&coordinate)), coordinate.to_vec()))
        .collect();
    let mut tensors: BTreeMap<String, Vec<Local<'_>>> = BTreeMap::new();
    let (mut archives, mut objects) = (Vec::new(), BTreeMap::new());
    check_files(folder, &files)?;
    let mut renumbered = false;
    for (rank, file, coordinate) in &files {
        if !place::exists(file)? {
            let message = format!("the file {} of rank {rank} is missing", source.file(coordinate));
            return Err(Error::refused("source", message));
        }
        let opened = by_content::open(file)?;
        archives.extend(opened.archives);
        for Tensor { name, path, dtype, shape, data, .. } in opened.tensors {
            let named = source.name(&name, coordinate).map_err(|error| error.about(file.display()))?;
            let Some((local, whole)) = named else {
                let object = Object { path, ..Object::part_of(name.clone(), Container::OfOneRank) };
                objects.entry(name).or_insert(object);
                continue;
            };
            renumbered |= local != whole || source.is_numbered(local);
            let Data::Whole(bytes) = data else { return Err(Error::internal("a file holds chunks")) };
            let path = path
                .filter(|_| local == whole)
                .and_then(|path| path.get(source.depth()..).map(<[Key]>::to_vec));
            let stored = Stored { dtype, shape, bytes };
            tensors.entry(whole).or_default().push(Local { rank: *rank, file, path, stored });
        }
        for object in opened.objects {
            objects.entry(object.name.clone()).or_insert(object);
        }
    }
    source.check_used(!tensors.is_empty(), renumbered)?;
    let mut all = Vec::with_capacity(tensors.len());
    for (name, locals) in tensors {
        all.push(tensor(&name, locals, source)?);
    }
    let objects = objects.into_values().collect();
    let checkpoint = Checkpoint::of_tensors(all, Origin::Files, None);
    let folders = vec![folder.to_owned()];
    Ok(Checkpoint { archives: archives::in_order(archives), objects, folders, ..checkpoint })
}

/// Checks that the input is a folder, and that each rank has a separate file.
fn check_files(folder: &Path, files: &[(usize, PathBuf, Vec<usize>)]) -> Result<(), Error> {
    let kind = place::kind(folder)
        .map_err(|error| Error::unreadable(format!("the input cannot be read: {error}")))?;
    if kind != Kind::Directory {
        return Err(Error::refused("source", "it is not a folder, and the files of a source are in one"));
    }
    let mut ranks: HashMap<&Path, usize> = HashMap::new();
    for (rank, file, _) in files {
        if let Some(other) = ranks.insert(file, *rank) {
            let message = format!(
                "ranks {other} and {rank} would both be in {}; separate the coordinates, or give them a number of digits: {{tp:02}}",
                file.display()
            );
            return Err(Error::malformed("source", message));
        }
    }
    Ok(())
}

/// Returns the tensor of which these files have parts.
fn tensor(name: &str, locals: Vec<Local<'_>>, source: &SourceSpec) -> Result<Tensor, Error> {
    let about = |error: Error| error.about_tensor(name);
    let text = source.placements.placements(name).ok_or_else(|| {
        about(Error::refused(
            "source",
            "no pattern of [source.placements] matches it, so its parts are not known",
        ))
    })?;
    let placements: Placements =
        text.parse().map_err(|error: reshard_sharding::Error| about(error.into()))?;
    let shape = whole_shape(&locals, &placements, source).map_err(about)?;
    let sharding = Sharding::new(&source.mesh, &shape, &placements).map_err(|error| about(error.into()))?;
    if sharding.is_partial() {
        let message = format!("`{text}` has a partial sum, but files hold complete values");
        return Err(about(Error::refused("source", message)));
    }
    let mut held = Vec::with_capacity(locals.len());
    let mut nesting = None;
    for Local { rank, file, path, stored } in locals {
        let region = sharding.region(rank).map_err(|error| about(error.into()))?;
        let expected = region.local_shape();
        if expected != stored.shape {
            let message = format!(
                "it is {:?} in {}, but `{text}` of {shape:?} gives rank {rank} {expected:?}",
                stored.shape,
                file.display()
            );
            return Err(about(Error::mismatch("source", message)));
        }
        nesting = nesting.or(path);
        held.push(Held { file, shape: shape.clone(), region, stored });
    }
    Ok(Tensor { path: nesting, ..joined(name, held)? })
}

/// Returns the shape that the parts add up to: the extents along the axes that split a dim, summed.
fn whole_shape(
    locals: &[Local<'_>],
    placements: &Placements,
    source: &SourceSpec,
) -> Result<Vec<usize>, Error> {
    let Some(first) = locals.first() else { return Err(Error::internal("a tensor is in no file")) };
    let mesh = &source.mesh;
    let at = |rank: usize| mesh.coordinate(rank).unwrap_or_default();
    let origin = at(first.rank);
    let mut shape = first.stored.shape.clone();
    for (dim, extent) in shape.iter_mut().enumerate() {
        let splits: Vec<bool> = placements.iter().map(|one| one.dim() == Some(dim)).collect();
        // The ranks that differ from the first in these axes only.
        let beside = |local: &&Local<'_>| {
            at(local.rank).iter().zip(&origin).zip(&splits).all(|((a, b), splits)| *splits || a == b)
        };
        let mut sum = 0_usize;
        for local in locals.iter().filter(beside) {
            let more = local.stored.shape.get(dim).copied().ok_or_else(|| {
                let message = format!(
                    "it is {:?} in {}, but {:?} in {}",
                    first.stored.shape,
                    first.file.display(),
                    local.stored.shape,
                    local.file.display()
                );
                Error::mismatch("source", message)
            })?;
            sum = sum
                .checked_add(more)
                .ok_or_else(|| Error::malformed("source", "its parts add up to more than 2^64"))?;
        }
        *extent = sum;
    }
    Ok(shape)
}
