//! The rank files of an earlier run, with their manifest.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use reshard_layout::internal::counted;
use reshard_sharding::Sharding;

use crate::bytes::checksum;
use crate::bytes::place;
use crate::error::Error;
use crate::formats::header;
use crate::formats::manifest::{Entry, Manifest, rank_file_name};
use crate::formats::objects_file::Listed;
use crate::model::checkpoint::{Checkpoint, Data, Origin, Sums, Tensor};
use crate::model::stored::Stored;

/// Opens the rank files of an earlier run, except those of the missing ranks `dead`, which are sorted.
///
/// Manifest and files must agree about every other rank and every tensor.
pub(crate) fn open(dir: &Path, path: &Path, dead: &[usize]) -> Result<Checkpoint, Error> {
    let (manifest, mesh, manifest_is_right) = Manifest::read(path)?;
    let has_checksums = manifest.has_checksums();
    let is_living = |rank: &usize| dead.binary_search(rank).is_err();
    let expected = || mesh.ranks().map(|rank| rank_file_name(rank, mesh.world_size()));
    let refused = |why: String| Err(Error::refused("rank_files", format!("{}: {why}", dir.display())));
    let mut ignored = Vec::new();
    // If no listing is available, a missing file is found when it is opened.
    if let Some(present) = place::safetensors_files(dir)? {
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
        let stored = entry.stored.as_ref().unwrap_or(&entry.sharding);
        let sharding = Sharding::parse(&mesh, &entry.shape, stored)
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
            Some(text) => sums(text).map_err(|error| error.about_tensor(&name).about(path.display()))?,
            None => Vec::new(),
        };
        tensors.push(Tensor {
            name,
            path: keys,
            dtype,
            stored: dtype,
            shape,
            data: Data::Shards { sharding: Box::new(sharding), shards: Vec::new() },
            sums: sums.into_iter().map(Some).collect(),
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
        take_shards(&mut tensors, opened.tensors, rank)
            .map_err(|why| Error::mismatch("manifest", format!("{}: {why}", dir.join(&file).display())))?;
    }
    let objects = Listed::open(dir, &manifest.objects)?;
    let names: HashSet<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
    if let Some(twice) = objects.iter().find(|one| names.contains(&one.name[..])) {
        let message = format!("{} lists `{}` as a tensor and as an object", path.display(), twice.name);
        return Err(Error::malformed("manifest", message));
    }
    let sums = has_checksums.then(|| Sums { manifest: path.to_owned(), manifest_is_right, headers });
    let checkpoint = Checkpoint::of_tensors(tensors, Origin::Sharded(mesh), free_texts);
    Ok(Checkpoint { sums, objects, folders: vec![dir.to_owned()], ignored, ..checkpoint })
}

/// Parses the checksums in a manifest's text, at least one.
fn sums(text: &str) -> Result<Vec<u64>, Error> {
    checksum::of_text(text).filter(|sums| !sums.is_empty()).ok_or_else(|| {
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
