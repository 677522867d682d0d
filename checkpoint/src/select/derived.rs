//! Checkpoints derived from others: renamed, filtered, or with another element type.
//!
//! They are the same bytes in the same files, read on demand. So a derived checkpoint supports every
//! operation of a checkpoint: parts are read, ranks get their shards, and it is resharded, compared and
//! written in any format.
//!
//! ```
//! use reshard_checkpoint::Checkpoint;
//! let made = Checkpoint::open(None)?
//!     .filter(["attention.*"])?
//!     .mapped(&"*.qkv.* = *.query.* + *.key.* + *.value.* by 4".parse()?)?
//!     .renamed(r"s/^attention\.(\w+)/layers.0.attn.$1/")?
//!     .cast("bf16")?;
//! assert_eq!(made.tensor("layers.0.attn.qkv.weight")?.shape(), [768, 256]);
//! # Ok::<(), reshard_checkpoint::Error>(())
//! ```

use std::collections::HashMap;

use reshard_layout::internal::counted;
use safetensors::Dtype;

use crate::error::Error;
use crate::model::checkpoint::{Checkpoint, Tensor};
use crate::model::objects::Object;
use crate::model::stored;
use crate::select::cast;
use crate::select::pattern::Pattern;
use crate::select::rename::Rename;
use crate::shown::Shown;

/// A dtype for some tensors.
struct CastRule<'a> {
    text: &'a str,
    /// `None` for all names.
    pattern: Option<Pattern>,
    /// `None` to leave them as they are.
    to: Option<Dtype>,
    used: bool,
}

impl Checkpoint {
    /// Returns the tensors, and the other entries, whose names match one of the patterns.
    ///
    /// A pattern is a glob, or a regular expression between slashes. After `!` it excludes names; the last pattern
    /// that matches a name decides, and if the first one excludes, all other names are selected. A pattern that
    /// matches nothing is an error.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let weights = Checkpoint::open(None)?.filter(["mlp.*", r"/^attention\.(query|key)\./"])?;
    /// assert!(weights.tensor("mlp.up.weight").is_ok() && weights.tensor("embedding.weight").is_err());
    /// let rest = weights.filter(["!*.bias"])?;
    /// assert!(rest.tensor("mlp.up.weight").is_ok() && rest.tensor("mlp.up.bias").is_err());
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn filter<'a>(&self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let pattern = |text: &'a str| {
            let (selects, text) = text.strip_prefix('!').map_or((true, text), |rest| (false, rest));
            let pattern = Pattern::new(text).map_err(|why| Error::malformed("pattern", why))?;
            Ok((selects, pattern))
        };
        let patterns = patterns.into_iter().map(pattern).collect::<Result<Vec<_>, Error>>()?;
        let names = || {
            let tensors = self.tensors.iter().map(|tensor| &tensor.name);
            tensors.chain(self.objects.iter().map(|object| &object.name))
        };
        let unused = |(_, one): &&(bool, Pattern)| !names().any(|name| one.matches(name));
        if let Some((_, unused)) = patterns.iter().find(unused) {
            let count = match (self.tensors.len(), self.objects.len()) {
                (tensors, 0) => counted(tensors, "tensor", "tensors").to_string(),
                (tensors, objects) => format!(
                    "{} and {}",
                    counted(tensors, "tensor", "tensors"),
                    counted(objects, "non-tensor entry", "non-tensor entries")
                ),
            };
            let message = format!("the pattern `{}` matches none of the {count}", unused.text().shown());
            return Err(Error::refused("unused_pattern", message));
        }
        let without = patterns.first().is_some_and(|(selects, _)| !selects);
        let wanted = |name: &str| {
            let last = patterns.iter().rev().find(|(_, pattern)| pattern.matches(name));
            last.map_or(without, |(selects, _)| *selects)
        };
        let (tensors, others): (Vec<_>, Vec<_>) =
            self.tensors.iter().partition(|tensor| wanted(&tensor.name));
        let objects = self.objects.iter().filter(|object| wanted(&object.name)).cloned().collect();
        let mut selected = self.with(tensors.into_iter().cloned().collect(), objects)?;
        selected.unselected.extend(others.into_iter().map(|tensor| tensor.name.clone()));
        Ok(selected)
    }

    /// Returns the same tensors and other entries under new names, by `s/EXPRESSION/NEW/`.
    ///
    /// With a final `g` every match in a name is replaced. It is an error if no name changes, or if two
    /// tensors get one name.
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
                // The nesting of the new name is not known.
                (*name, *path) = (new, None);
            }
        }
        if !any {
            let message = format!("`{}` does not change the name of any tensor", rename.text().shown());
            return Err(Error::refused("rename", message));
        }
        let olds = self.tensors.iter().map(|one| &one.name).chain(self.objects.iter().map(|one| &one.name));
        let news = tensors.iter().map(|one| &one.name).chain(objects.iter().map(|one| &one.name));
        let mut known: HashMap<&str, &str> = HashMap::new();
        for (name, old) in news.zip(olds) {
            if name.is_empty() {
                let (rename, old) = (rename.text().shown(), old.shown());
                return Err(Error::refused("rename", format!("`{rename}` makes the name `{old}` empty")));
            }
            // Two parts of `.pt` files may have had the same name; they still may after renaming.
            if let Some(other) = known.insert(name, old).filter(|other| *other != old) {
                let [other, old, name] = [other, &**old, &**name].map(Shown::shown);
                let message = format!("both `{other}` and `{old}` would be named `{name}`");
                return Err(Error::refused("rename", message));
            }
        }
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        let mut renamed = self.with(tensors, objects)?;
        for name in &mut renamed.unselected {
            *name = rename.of(name).unwrap_or_else(|| name.clone());
        }
        Ok(renamed)
    }

    /// Returns the tensors in another floating-point type: `f16`, `bf16`, `f32` or `f64`.
    ///
    /// Elements are rounded once, to the nearest, ties to even; those past the largest number become
    /// infinite, and NaN stays NaN. Tensors of other types (integers, 8 bits and fewer) are unchanged.
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
        self.cast_each([dtype])
    }

    /// Returns the tensors in other floating-point types: each rule is a dtype, or `PATTERN=DTYPE` for some names.
    ///
    /// The first rule that matches a name decides; `keep` leaves a tensor as it is. A rule that decides about no
    /// floating-point tensor is an error.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let mixed = Checkpoint::open(None)?.cast_each(["*.bias=f16", "bf16"])?;
    /// assert_eq!(mixed.tensor("mlp.up.bias")?.dtype(), "F16");
    /// assert_eq!(mixed.tensor("mlp.up.weight")?.dtype(), "BF16");
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn cast_each<'a>(&self, rules: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let rule = |text: &'a str| -> Result<CastRule<'a>, Error> {
            let (pattern, dtype) =
                text.rsplit_once('=').map_or((None, text), |(pattern, dtype)| (Some(pattern), dtype));
            let pattern =
                pattern.map(Pattern::new).transpose().map_err(|why| Error::malformed("pattern", why))?;
            let to = if dtype == "keep" { None } else { Some(cast::named(dtype)?) };
            Ok(CastRule { text, pattern, to, used: false })
        };
        let mut rules = rules.into_iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let mut tensors = self.tensors.clone();
        for tensor in tensors.iter_mut().filter(|tensor| cast::is_float(tensor.dtype)) {
            let matches = |rule: &&mut CastRule<'_>| {
                rule.pattern.as_ref().is_none_or(|pattern| pattern.matches(&tensor.name))
            };
            let Some(rule) = rules.iter_mut().find(matches) else { continue };
            rule.used = true;
            let Some(to) = rule.to else { continue };
            if tensor.stored != tensor.dtype && tensor.dtype != to {
                let message = format!("it is already rounded to {} and would be rounded twice", tensor.dtype);
                return Err(Error::refused("dtype", message).about_tensor(&tensor.name));
            }
            if stored::byte_len(to, &tensor.shape).is_none() {
                let message = format!("{to} {:?} has more than 2^64 bytes", tensor.shape);
                return Err(Error::refused("dtype", message).about_tensor(&tensor.name));
            }
            tensor.dtype = to;
        }
        if let Some(unused) = rules.iter().find(|rule| !rule.used) {
            let text = unused.text.shown();
            let message = match &unused.pattern {
                None => format!("no tensor is f16, bf16, f32 or f64, so none can be converted to {text}"),
                Some(_) => format!(
                    "`{text}` applies to no tensor that is f16, bf16, f32 or f64; it is misspelled, or an earlier one matches first"
                ),
            };
            return Err(Error::refused("dtype", message));
        }
        self.with(tensors, self.objects.clone())
    }

    /// Replaces tensors and objects; no two entries that have bytes may have the same name.
    pub(super) fn with(&self, tensors: Vec<Tensor>, objects: Vec<Object>) -> Result<Self, Error> {
        let mut names: Vec<&str> = tensors.iter().map(|tensor| &tensor.name[..]).collect();
        names.extend(objects.iter().filter(|one| one.archive().is_some()).map(|object| &object.name[..]));
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let of_tensors = tensors.iter().filter(|tensor| tensor.name == twice[0]).count();
            let what = if of_tensors == 2 { "tensors" } else { "entries" };
            let message = format!("there would be two {what} named `{}`", twice[0].shown());
            return Err(Error::refused("name", message));
        }
        Ok(Self { tensors, objects, ..self.clone() })
    }
}
