//! The problems that a check of a checkpoint finds.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::bytes::Bytes;
use crate::bytes::pieces::path;
use crate::model::checkpoint::Tensor;
use crate::shown::Shown;

/// A problem of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The file with the problem.
    pub file: String,
    /// The tensor with wrong bytes; `None` for a header or a manifest.
    pub tensor: Option<String>,
    /// The entry with wrong bytes that is not a tensor.
    #[serde(rename = "other", skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// A description of the problem.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.tensor, &self.object) {
            (Some(tensor), _) => {
                write!(f, "{}: tensor `{}`: {}", self.file, tensor.shown(), self.what)
            }
            (None, Some(object)) => write!(f, "{}: `{}`: {}", self.file, object.shown(), self.what),
            (None, None) => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl Problem {
    /// Returns a problem of a tensor in one of its files.
    pub(crate) fn of(tensor: &Tensor, file: &Bytes, what: String) -> Self {
        Self { file: path(file), tensor: Some(tensor.name.clone()), object: None, what }
    }
}

/// The problems, each with its position in the checkpoint.
#[derive(Default)]
pub(crate) struct Problems(Mutex<Vec<((usize, usize), Problem)>>);

impl Problems {
    pub(crate) fn push(&self, at: (usize, usize), problem: Problem) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((at, problem));
    }

    pub(crate) fn in_order(self) -> Vec<Problem> {
        let mut all = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, problem)| problem).collect()
    }
}
