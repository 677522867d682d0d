//! What a job says at its end.

use std::time::Duration;

use reshard_planner::Plan;
use serde::Serialize;

use super::carried::Others;
use super::decision::Move;
use super::remains::LostRegion;

/// What a job did; all of it has been verified.
///
/// As JSON it is the answer of `reshard run`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct JobReport {
    /// Every tensor, in the order of the files.
    pub tensors: Vec<TensorReport>,
    /// Bytes of all tensors, each counted once.
    pub bytes: u64,
    /// What each tensor's worst rank received, added up.
    pub received_bytes: u64,
    /// What only dead ranks of the input held, and was read from another checkpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostRegion>,
    /// Bytes of tensors that an earlier run of the same job had done, which was killed.
    #[serde(skip_serializing_if = "is_zero")]
    pub resumed_bytes: u64,
    /// Files of the folder of the input that were not read, as its `sharding.json` does not list them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// What became of the entries that are not tensors.
    pub others: Others,
    /// How long the whole job took.
    pub seconds: f64,
    /// Whether every byte of every rank is as it should be; false where nobody looked.
    pub verified: bool,
    /// Whether plans were carried out by an engine, or bytes moved from files to files.
    pub through_engine: bool,
    /// The least that any way would make the worst ranks receive, added up where it is known.
    #[serde(skip)]
    pub lower_bound_bytes: u64,
    /// What was written, and where.
    #[serde(skip)]
    pub written: Vec<String>,
}

/// What happened to one tensor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TensorReport {
    /// Its name in the checkpoint.
    pub name: String,
    /// The shape of the whole.
    pub shape: Vec<usize>,
    /// The type of its elements, as safetensors names it.
    pub dtype: String,
    /// The sharding it came from.
    pub from: String,
    /// The sharding it has now.
    pub to: String,
    /// Why it is replicated although the wish was another.
    pub fallback_reason: Option<String>,
    /// How many steps its plan has.
    pub steps: usize,
    /// Bytes that its worst rank received, as the exchange counted them at the receivers.
    pub received_bytes: u64,
    /// The least that any way would make the worst rank receive, where it is known.
    pub lower_bound_bytes: Option<u64>,
    /// How many of its elements were finite, and are past the largest number of the type that they were rounded to.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflowed: u64,
    /// Whether every byte of every rank is as it should be.
    pub verified: bool,
    /// The bytes of the whole.
    #[serde(skip)]
    pub bytes: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TensorReport {
    /// A tensor that went from files to files, where nobody receives anything.
    pub(crate) fn offline(tensor: &Move<'_>, verified: bool, overflowed: u64) -> Self {
        Self {
            name: tensor.tensor.name.clone(),
            shape: tensor.tensor.shape.clone(),
            dtype: tensor.tensor.dtype.to_string(),
            from: tensor.from.to_string(),
            to: tensor.to.to_string(),
            fallback_reason: tensor.replicated.clone(),
            steps: 0,
            received_bytes: 0,
            lower_bound_bytes: None,
            overflowed,
            verified,
            bytes: tensor.tensor.byte_len(),
        }
    }

    /// A tensor that has arrived and been verified.
    pub(crate) fn new(tensor: &Move<'_>, plan: &Plan, received_bytes: u64) -> Self {
        Self {
            name: tensor.tensor.name.clone(),
            shape: tensor.tensor.shape.clone(),
            dtype: tensor.tensor.dtype.to_string(),
            from: tensor.from.to_string(),
            to: tensor.to.to_string(),
            fallback_reason: tensor.replicated.clone(),
            steps: plan.steps().len(),
            received_bytes,
            lower_bound_bytes: plan.lower_bound_bytes(),
            overflowed: 0,
            verified: true,
            bytes: tensor.tensor.byte_len(),
        }
    }
}

impl JobReport {
    pub(crate) fn new(
        tensors: Vec<TensorReport>,
        through_engine: bool,
        written: Vec<String>,
        elapsed: Duration,
    ) -> Self {
        Self {
            lost: Vec::new(),
            resumed_bytes: 0,
            ignored: Vec::new(),
            others: Others::default(),
            through_engine,
            bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
            received_bytes: tensors.iter().map(|tensor| tensor.received_bytes).sum(),
            lower_bound_bytes: tensors.iter().filter_map(|tensor| tensor.lower_bound_bytes).sum(),
            seconds: elapsed.as_secs_f64(),
            verified: tensors.iter().all(|tensor| tensor.verified),
            tensors,
            written,
        }
    }
}
