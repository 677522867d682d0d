//! Tuples of integers in a pickle: extents, strides, offsets.

use reshard_layout::internal::counted;

use crate::error::Error;
use crate::formats::pickle::globals::Global;
use crate::formats::pickle::tree::{Id, Pickle, malformed, unsupported};
use crate::model::stored::MOST_DIMS;

impl Pickle<'_> {
    /// Returns extents or strides: a tuple of integers, or a `torch.Size` of one.
    pub(crate) fn sizes(&self, id: Id, what: &str) -> Result<Vec<usize>, Error> {
        let id = match self.call(id)? {
            Some((Global::Size, [tuple])) => *tuple,
            Some(_) | None => id,
        };
        let parts = self.parts(id)?;
        let parts = parts.ok_or_else(|| malformed(format!("{what} is not a tuple of integers")))?;
        if parts.len() > MOST_DIMS {
            return Err(unsupported(format!(
                "{what} has {}, and at most {MOST_DIMS} are read",
                counted(parts.len(), "dim", "dims")
            )));
        }
        parts.iter().map(|part| Ok(self.size(*part, what)? as usize)).collect()
    }
}
