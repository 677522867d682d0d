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

use super::cast::Float;
use super::checkpoint::{Checkpoint, Tensor};
use super::error::Error;
use super::fusion::Fusion;
use super::pattern::Pattern;
use super::rename::Rename;

impl Checkpoint {
    /// The tensors whose names one of the patterns matches: globs, or regular expressions between slashes.
    ///
    /// A pattern that matches no tensor is refused.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let weights = Checkpoint::open(None)?.only(["mlp.*", r"/^attention\.(query|key)\./"])?;
    /// assert!(weights.tensor("mlp.up.weight").is_ok() && weights.tensor("embedding.weight").is_err());
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn only<'a>(&self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let pattern = |text| Pattern::new(text).map_err(|why| Error::refused("pattern", why));
        let patterns = patterns.into_iter().map(pattern).collect::<Result<Vec<_>, _>>()?;
        let unused = |one: &&Pattern| !self.tensors.iter().any(|tensor| one.matches(&tensor.name));
        if let Some(unused) = patterns.iter().find(unused) {
            let message = format!(
                "the pattern `{}` matches none of the {} tensors",
                unused.text().escape_debug(),
                self.tensors.len()
            );
            return Err(Error::refused("unused_pattern", message));
        }
        let wanted = |tensor: &&Tensor| patterns.iter().any(|one| one.matches(&tensor.name));
        self.with(self.tensors.iter().filter(wanted).cloned().collect())
    }

    /// The same tensors by other names: `s/EXPRESSION/NEW/`, or with a `g` behind it for every place where the expression matches.
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
        let mut tensors = self.tensors.clone();
        for tensor in &mut tensors {
            if let Some(name) = rename.of(&tensor.name) {
                any = true;
                tensor.name = name;
            }
        }
        if !any {
            let message = format!("`{}` changes the name of no tensor", rename.text().escape_debug());
            return Err(Error::refused("rename", message));
        }
        if let Some(nameless) = tensors.iter().position(|tensor| tensor.name.is_empty()) {
            let old = self.tensors[nameless].name.escape_debug();
            let message = format!("`{}` leaves nothing of the name `{old}`", rename.text().escape_debug());
            return Err(Error::refused("rename", message));
        }
        let mut olds: HashMap<&str, &str> = HashMap::new();
        for (tensor, old) in tensors.iter().zip(&self.tensors) {
            if let Some(other) = olds.insert(&tensor.name, &old.name) {
                let [other, old, name] = [other, &old.name, &tensor.name].map(str::escape_debug);
                let message = format!("both `{other}` and `{old}` would be `{name}`");
                return Err(Error::refused("rename", message));
            }
        }
        self.with(tensors)
    }

    /// Whole tensors in place of their parts. See [`Fusion`] for what may be said; its parts must be there, of one type,
    /// and alike in all dims but one.
    pub fn fused(&self, fusion: &Fusion) -> Result<Self, Error> {
        self.with(fusion.fuse(&self.tensors)?)
    }

    /// Parts in place of whole tensors: what [`Checkpoint::fused`] undoes.
    ///
    /// A checksum of a whole is none of its parts, so those of the input are not compared where a tensor is split; its replicas are.
    pub fn split(&self, fusion: &Fusion) -> Result<Self, Error> {
        self.with(fusion.split(&self.tensors)?)
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
                format!("no tensor is of f16, bf16, f32 or f64, so none can become {}", dtype.escape_debug());
            return Err(Error::refused("dtype", message));
        }
        self.with(tensors)
    }

    /// These tensors instead of its own; no two may have one name.
    fn with(&self, tensors: Vec<Tensor>) -> Result<Self, Error> {
        let mut names: Vec<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("there would be two tensors `{}`", twice[0].escape_debug());
            return Err(Error::refused("name", message));
        }
        Ok(Self { tensors, ..self.clone() })
    }
}
