//! Types along axes of one rank.
//!
//! A sharding is the elements that each rank holds, and along an axis of one rank every placement is the same:
//! on `dp=1`, `S(0)` and `R` are one sharding. A type is more: it states which ranks *would* differ. So a type
//! that is parsed stores its **letters**: the type along the axes of one rank, on a mesh of these axes alone
//! with two ranks each.
//!
//! ```text
//! mesh dp=1,tp=4         S(0),S(1)        letters, on dp=2: S(0)
//! ```
//!
//! Types of the same shardings are equal, whatever their letters. A type that is not made from a text or from
//! placements has no letters, nor has one that is valid for one size only, such as `RG(0,[8])`.

use std::sync::Arc;

use crate::notation::brackets::outside_brackets;
use crate::{Error, Mesh, Sharding, ShardingType};

/// The number of ranks in place of one: the least that can differ.
const RANKS: usize = 2;

/// The axes of one rank of a mesh that has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneRank {
    /// Their numbers.
    axes: Vec<usize>,
    /// The number of axes of the mesh.
    all: usize,
    /// The same mesh with more ranks along them.
    wide: Mesh,
    /// A mesh of these axes alone, with more ranks.
    alone: Mesh,
}

impl OneRank {
    /// Returns the axes of one rank of a mesh; `None` without any, and for a mesh that lists its ranks.
    pub fn of(mesh: &Mesh) -> Option<OneRank> {
        let axes: Vec<usize> = (0..mesh.axes().len()).filter(|&axis| mesh.axes()[axis].size() == 1).collect();
        let all = mesh.axes().iter().map(|axis| (axis.name().as_str(), axis.size()));
        if axes.is_empty() || Mesh::new(all.clone()).ok().as_ref() != Some(mesh) {
            return None;
        }
        let wide =
            Mesh::new(all.clone().map(|(name, size)| (name, if size == 1 { RANKS } else { size }))).ok()?;
        let alone = Mesh::new(all.filter(|(_, size)| *size == 1).map(|(name, _)| (name, RANKS))).ok()?;
        Some(OneRank { axes, all: mesh.axes().len(), wide, alone })
    }

    /// Returns the numbers of these axes in the mesh.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// Returns the mesh with more ranks along these axes.
    pub fn wide(&self) -> &Mesh {
        &self.wide
    }

    /// Returns a mesh of these axes alone, with more ranks.
    pub fn alone(&self) -> &Mesh {
        &self.alone
    }

    /// Returns the letters of a type given as text; `None` if it is valid for one size only.
    ///
    /// Fails with `no_gradient` if a type with a gradient has no cotangent along these axes.
    fn letters(
        &self,
        shape: &[usize],
        text: &str,
        has_gradient: bool,
    ) -> Result<Option<ShardingType>, Error> {
        let whole = match ShardingType::parse(&self.wide, shape, text) {
            Ok(whole) if has_gradient => whole,
            Ok(whole) => whole.without_gradient(),
            Err(error @ Error::NoGradient { .. }) if has_gradient => return Err(error),
            Err(_) if has_gradient => return Ok(None),
            Err(_) => match Sharding::parse(&self.wide, shape, text) {
                Ok(value) => ShardingType::new(value, None),
                Err(_) => return Ok(None),
            },
        };
        let text = whole.to_string();
        let Some(words) = words(&text, self.all) else { return Ok(None) };
        let own: Vec<&str> = self.axes.iter().map(|&axis| words[axis]).collect();
        Ok(ShardingType::parse(&self.alone, shape, &own.join(",")).ok())
    }

    /// Returns a text of types with the words of these axes from another one.
    ///
    /// Returns `None` unless both are written axis by axis.
    pub fn merged(&self, text: &str, letters: &str) -> Option<String> {
        let mut words = words(text, self.all)?;
        let own = self::words(letters, self.axes.len())?;
        for (&axis, word) in self.axes.iter().zip(own) {
            words[axis] = word;
        }
        Some(words.join(","))
    }
}

/// Returns the words of a type that is written axis by axis.
fn words(text: &str, axes: usize) -> Option<Vec<&str>> {
    let words: Vec<&str> = outside_brackets(text, ',').collect();
    (words.len() == axes).then_some(words)
}

impl ShardingType {
    /// Returns the type along the axes of one rank, with two ranks on each, if it is known.
    #[doc(hidden)]
    pub fn letters(&self) -> Option<&Arc<ShardingType>> {
        self.letters.as_ref()
    }

    /// Returns the same type as this text gives it along axes of one rank.
    ///
    /// Fails with `no_gradient` if it has no cotangent along these axes.
    #[doc(hidden)]
    pub fn written(mut self, text: &str) -> Result<ShardingType, Error> {
        if let Some(one_rank) = OneRank::of(self.value.mesh()) {
            let letters = one_rank.letters(self.value.shape(), text, self.gradient.is_some())?;
            self.letters = letters.map(Arc::new);
        }
        Ok(self)
    }

    /// Returns this type in a notation that lists axes: as it is with two ranks along each axis of one rank.
    ///
    /// Returns `None` if that is not known, or if a dim is too small for them.
    pub(super) fn kept(
        &self,
        write: impl Fn(&ShardingType) -> Result<String, Error>,
    ) -> Option<Result<String, Error>> {
        self.letters.as_ref()?;
        let (one_rank, text) = (OneRank::of(self.value.mesh())?, self.to_string());
        match write(&ShardingType::parse(one_rank.wide(), self.value.shape(), &text).ok()?) {
            Err(Error::Uneven { .. }) => None,
            written => Some(written),
        }
    }

    /// Returns a text of this type with its letters.
    pub(super) fn with_letters(&self, text: String) -> String {
        let merged =
            |letters: &Arc<ShardingType>| OneRank::of(self.value.mesh())?.merged(&text, &letters.to_string());
        self.letters.as_ref().and_then(merged).unwrap_or(text)
    }
}
