//! Files of objects in the folder of a distributed checkpoint: `NAME.pt`, with entries that `.metadata` omits.
//!
//! Megatron-Core writes `common.pt`: arguments, steps and everything else that is equal on all ranks. Its entries get
//! the names `common.args`, `common.iteration`, .. A file that cannot be read is one object, named by the file.

use std::collections::HashSet;
use std::path::Path;

use crate::bytes::place;
use crate::bytes::zip;
use crate::error::{Error, ErrorClass};
use crate::formats::torch_save::{self, Entry};
use crate::model::archives::Archive;
use crate::model::checkpoint::Tensor;
use crate::model::objects::{Container, Object};

/// The file of Megatron-Core.
const COMMON_NAME: &str = "common.pt";

/// The entries of these files.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) tensors: Vec<Tensor>,
    pub(super) objects: Vec<Object>,
    pub(super) archives: Vec<Archive>,
}

impl Beside {
    /// Reads the files of a folder; their entries must have other names than those of `.metadata`.
    pub(super) fn read(dir: &Path, tensors: &[Tensor], objects: &[Object]) -> Result<Self, Error> {
        let mut this = Self::default();
        for file in names(dir)? {
            this.add(dir, &file)?;
        }
        let known = tensors.iter().map(|one| &one.name[..]).chain(objects.iter().map(|one| &one.name[..]));
        let known: HashSet<&str> = known.collect();
        let mut new =
            this.tensors.iter().map(|one| &one.name).chain(this.objects.iter().map(|one| &one.name));
        match new.find(|name| known.contains(&name[..])) {
            None => Ok(this),
            Some(twice) => {
                let message =
                    format!("{}: `{twice}` is in .metadata and in a file next to it", dir.display());
                Err(Error::mismatch("dcp", message))
            }
        }
    }

    fn add(&mut self, dir: &Path, file: &str) -> Result<(), Error> {
        let (saved, archive) = match torch_save::file(&dir.join(file), &mut zip::room()) {
            Ok(opened) => opened,
            Err(error) if error.class() == ErrorClass::Refused => {
                self.objects.push(Object::part_of(file.to_owned(), Container::BesideDcp));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let stem = file.strip_suffix(".pt").unwrap_or(file);
        for (name, path, entry) in saved.below(&[stem]) {
            match entry {
                Entry::Tensor(stored) => self.tensors.push(Tensor { path, ..Tensor::whole(name, stored) }),
                Entry::Object(container) => {
                    self.objects.push(Object { path, ..Object::part_of(name, container) });
                }
                // One rank's part of a tensor is not the tensor.
                Entry::Part(part) => {
                    let container =
                        Container::AroundTensors(format!("the part of rank {}", part.rank).into());
                    self.objects.push(Object { path, ..Object::part_of(name, container) });
                }
            }
        }
        self.archives.push(archive);
        Ok(())
    }
}

fn names(dir: &Path) -> Result<Vec<String>, Error> {
    // Without a listing, only the file whose name is known can be checked.
    let names = match place::names(dir) {
        Ok(Some(names)) => names,
        Ok(None) | Err(_) if place::exists(&dir.join(COMMON_NAME))? => vec![COMMON_NAME.to_owned()],
        Ok(None) | Err(_) => Vec::new(),
    };
    let is_one =
        |name: &String| !name.starts_with('.') && Path::new(name).extension().is_some_and(|it| it == "pt");
    let mut names: Vec<String> = names.into_iter().filter(is_one).collect();
    names.sort_unstable();
    Ok(names)
}
