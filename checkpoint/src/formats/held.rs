//! Tensors of which several files hold parts: each file has a region of the whole, and equal regions are replicas.

use std::path::Path;

use reshard_sharding::Region;

use crate::error::Error;
use crate::model::checkpoint::Tensor;
use crate::model::parts;
use crate::model::placed::{Placed, all};
use crate::model::stored::Stored;

/// One file's part of a tensor.
pub(crate) struct Held<'a> {
    pub(crate) file: &'a Path,
    /// The shape of the whole.
    pub(crate) shape: Vec<usize>,
    pub(crate) region: Region,
    pub(crate) stored: Stored,
}

impl<'a> Held<'a> {
    /// Returns a tensor that a file holds whole.
    pub(crate) fn whole(file: &'a Path, stored: Stored) -> Self {
        Self { file, shape: stored.shape.clone(), region: all(&stored.shape), stored }
    }
}

/// Returns the tensor that several files hold; an error if they differ about it, or lack some of it.
pub(crate) fn joined(name: &str, held: Vec<Held<'_>>) -> Result<Tensor, Error> {
    let Some(first) = held.first() else {
        return Err(Error::mismatch("parts", "no rank has any of it").about_tensor(name));
    };
    let (shape, dtype) = (first.shape.clone(), first.stored.dtype);
    if let Some(other) = held.iter().find(|one| (&one.shape, one.stored.dtype) != (&shape, dtype)) {
        let message = format!(
            "it is {dtype} {shape:?} in {}, but {} {:?} in {}",
            first.file.display(),
            other.stored.dtype,
            other.shape,
            other.file.display()
        );
        return Err(Error::mismatch("parts", message).about_tensor(name));
    }
    let held: Vec<_> = held.into_iter().filter(|one| one.region.numel() > 0).collect();
    let placed = Placed::held(held.iter().map(|one| one.region.clone()));
    let bytes = held.into_iter().map(|one| one.stored.bytes).collect();
    parts::tensor(name, dtype, &shape, placed, bytes).map_err(|error| error.about_tensor(name))
}
