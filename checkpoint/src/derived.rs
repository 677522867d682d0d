//! Checkpoints that are made of others: with other names, with some of the tensors, fused, split, or of another element type.
//!
//! They are the same bytes in the same files, read when they are asked for. So whatever is done with a checkpoint is done with
//! these too: parts are read, ranks get their shards, and it is resharded, compared and written in any format.
//!
//! ```
//! use reshard_checkpoint::Checkpoint;
//! let made = Checkpoint::open(None)?
//!     .only(["attention.*"])?
//!     .fused(&"*.qkv.* = *.query.* + *.key.* + *.value.* by 4".parse()?)?
//!     .renamed(r"s/^attention\.(\w+)/layers.0.attn.$1/")?
//!     .cast("bf16")?;
//! assert_eq!(made.tensor("layers.0.attn.qkv.weight")?.shape(), [768, 256]);
//! # Ok::<(), reshard_checkpoint::Error>(())
//! ```

use std::collections::HashMap;

use reshard_layout::internal::counted;

use super::cast::Float;
use super::checkpoint::{Checkpoint, Tensor};
use super::error::Error;
use super::fusion::Fusion;
use super::objects::Object;
use super::pattern::Pattern;
use super::rename::Rename;
use crate::shown::Shown;

impl Checkpoint {
    /// The tensors, and the entries that are not tensors, whose names one of the patterns matches: globs, or regular expressions
    /// between slashes.
    ///
    /// A pattern that matches none of them is refused.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let weights = Checkpoint::open(None)?.only(["mlp.*", r"/^attention\.(query|key)\./"])?;
    /// assert!(weights.tensor("mlp.up.weight").is_ok() && weights.tensor("embedding.weight").is_err());
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn filter<'a>(&self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let pattern = |text| Pattern::new(text).map_err(|why| Error::refused("pattern", why));
        let patterns = patterns.into_iter().map(pattern).collect::<Result<Vec<_>, _>>()?;
        let names = || {
            let tensors = self.tensors.iter().map(|tensor| &tensor.name);
            tensors.chain(self.objects.iter().map(|object| &object.name))
        };
        let unused = |one: &&Pattern| !names().any(|name| one.matches(name));
        if let Some(unused) = patterns.iter().find(unused) {
            let count = match (self.tensors.len(), self.objects.len()) {
                (tensors, 0) => counted(tensors, "tensor", "tensors").to_string(),
                (tensors, objects) => format!(
                    "{} and {}",
                    counted(tensors, "tensor", "tensors"),
                    counted(objects, "entry that is no tensor", "entries that are no tensors")
                ),
            };
            let message = format!("the pattern `{}` matches none of the {count}", unused.text().shown());
            return Err(Error::refused("unused_pattern", message));
        }
        let wanted = |name: &str| patterns.iter().any(|one| one.matches(name));
        let tensors = self.tensors.iter().filter(|tensor| wanted(&tensor.name)).cloned().collect();
        let objects = self.objects.iter().filter(|object| wanted(&object.name)).cloned().collect();
        self.with(tensors, objects)
    }

    /// The same tensors and other entries by other names: `s/EXPRESSION/NEW/`, or with a `g` behind it for every place where the expression matches.
    ///
    /// Refused where it changes no name, or makes two tensors one name.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let renamed = Checkpoint::open(None)?.renamed(r"s/^mlp\.(\w+)/layers.0.mlp.$1/")?;
    /// assert!(renamed.tensor("layers.0.mlp.up.weight").is_ok());
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn renamed(&self, rename: &str) -> Result<Self, Error> {
        let rename: Rename = rename.parse()?;
        let mut any = false;
        let (mut tensors, mut objects) = (self.tensors.clone(), self.objects.clone());
        let of_tensors = tensors.iter_mut().map(|tensor| (&mut tensor.name, &mut tensor.path));
        for (name, path) in of_tensors.chain(objects.iter_mut().map(|one| (&mut one.name, &mut one.path))) {
            if let Some(new) = rename.of(name) {
                any = true;
                // How the new name is nested is not known.
                (*name, *path) = (new, None);
            }
        }
        if !any {
            let message = format!("`{}` changes the name of no tensor", rename.text().shown());
            return Err(Error::refused("rename", message));
        }
        let olds = self.tensors.iter().map(|one| &one.name).chain(self.objects.iter().map(|one| &one.name));
        let news = tensors.iter().map(|one| &one.name).chain(objects.iter().map(|one| &one.name));
        let mut known: HashMap<&str, &str> = HashMap::new();
        for (name, old) in news.zip(olds) {
            if name.is_empty() {
                let (rename, old) = (rename.text().shown(), old.shown());
                return Err(Error::refused(
                    "rename",
                    format!("`{rename}` leaves nothing of the name `{old}`"),
                ));
            }
            // A part of a `.pt` file may have the name of another one, and then has it still.
            if let Some(other) = known.insert(name, old).filter(|other| *other != old) {
                let [other, old, name] = [other, &**old, &**name].map(Shown::shown);
                let message = format!("both `{other}` and `{old}` would be `{name}`");
                return Err(Error::refused("rename", message));
            }
        }
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        self.with(tensors, objects)
    }

    /// Whole tensors in place of their parts. See [`Fusion`] for what may be said; its parts must be there, of one type,
    /// and alike in all dims but one.
    pub fn fused(&self, fusion: &Fusion) -> Result<Self, Error> {
        self.with(fusion.fuse(&self.tensors)?, self.objects.clone())
    }

    /// Parts in place of whole tensors: what [`Checkpoint::fused`] undoes.
    ///
    /// A checksum of a whole is none of its parts, so those of the input are not compared where a tensor is split; its replicas are.
    pub fn split(&self, fusion: &Fusion) -> Result<Self, Error> {
        self.with(fusion.split(&self.tensors)?, self.objects.clone())
    }

    /// The same tensors of another type of floating point: `f16`, `bf16`, `f32` or `f64`.
    ///
    /// Elements are rounded once, to the nearest, ties to even; those past the largest number become infinite, and NaN
    /// stays NaN. Tensors of other types (integers, 8 bits and fewer) stay as they are.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let halves = Checkpoint::open(None)?.cast("bf16")?;
    /// let embedding = halves.tensor("embedding.weight")?;
    /// assert_eq!((embedding.dtype(), embedding.byte_len()), ("BF16".to_owned(), 2003 * 256 * 2));
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn cast(&self, dtype: &str) -> Result<Self, Error> {
        let to = Float::named(dtype)?;
        let mut tensors = self.tensors.clone();
        let floats = |tensor: &&mut Tensor| Float::of(tensor.dtype).is_some();
        let mut any = false;
        for tensor in tensors.iter_mut().filter(floats) {
            any = true;
            if tensor.stored != tensor.dtype && tensor.dtype != to {
                let message =
                    format!("it is rounded to {} already, and would be rounded twice", tensor.dtype);
                return Err(Error::refused("dtype", message).about_tensor(&tensor.name));
            }
            if super::header::byte_len(to, &tensor.shape).is_none() {
                let message = format!("{to} {:?} has more than 2^64 bytes", tensor.shape);
                return Err(Error::refused("dtype", message).about_tensor(&tensor.name));
            }
            tensor.dtype = to;
        }
        if !any {
            let message =
                format!("no tensor is of f16, bf16, f32 or f64, so none can become {}", dtype.shown());
            return Err(Error::refused("dtype", message));
        }
        self.with(tensors, self.objects.clone())
    }

    /// These tensors and objects instead of its own; no two that have bytes may have one name.
    fn with(&self, tensors: Vec<Tensor>, objects: Vec<Object>) -> Result<Self, Error> {
        let mut names: Vec<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
        names.extend(objects.iter().filter(|one| one.archive().is_some()).map(|object| &object.name[..]));
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let of_tensors = tensors.iter().filter(|tensor| tensor.name == twice[0]).count();
            let what = if of_tensors == 2 { "tensors" } else { "entries" };
            let message = format!("there would be two {what} `{}`", twice[0].shown());
            return Err(Error::refused("name", message));
        }
        Ok(Self { tensors, objects, ..self.clone() })
    }
}
