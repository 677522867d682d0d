//! The report of a finished job.

use std::time::Duration;

use reshard_planner::Plan;
use serde::Serialize;

use crate::check::remains::LostRegion;
use crate::job::carried::Others;
use crate::job::decision::Move;

/// The results of a job, all of them verified.
///
/// As JSON it is the output of `reshard run`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct JobReport {
    /// The reports of all tensors, in the order of the files.
    pub tensors: Vec<TensorReport>,
    /// The bytes of all tensors, each counted once.
    pub bytes: u64,
    /// The sum over all tensors of the bytes that the worst rank received.
    pub received_bytes: u64,
    /// The regions that only missing ranks held, and that were read from another checkpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostRegion>,
    /// The bytes of tensors that a killed run of the same job had finished.
    #[serde(skip_serializing_if = "is_zero")]
    pub resumed_bytes: u64,
    /// The files in the input's folder that were not read, because its `sharding.json` does not list them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// The tensors of the input that the mapping drops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// The tensors of the input that no rule of the mapping names, and that keep their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// The entries that are not tensors: carried and not carried.
    pub others: Others,
    /// The duration of the whole job in seconds.
    pub seconds: f64,
    /// `true` if every byte of every rank was verified; `false` if no check was made.
    pub verified: bool,
    /// `true` if an engine executed plans, `false` if bytes were copied from files to files.
    pub through_engine: bool,
    /// The sum of the lower bounds on the received bytes of the worst ranks, where they are known.
    #[serde(skip)]
    pub lower_bound_bytes: u64,
    /// The outputs, with their locations.
    #[serde(skip)]
    pub written: Vec<String>,
}

/// The results of one tensor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TensorReport {
    /// The name in the checkpoint.
    pub name: String,
    /// The global shape.
    pub shape: Vec<usize>,
    /// The dtype of the elements, as safetensors names it.
    pub dtype: String,
    /// The source sharding.
    pub from: String,
    /// The target sharding.
    pub to: String,
    /// The reason why it is replicated although another sharding was requested.
    #[serde(rename = "replicated")]
    pub fallback_reason: Option<String>,
    /// The number of steps of its plan.
    pub steps: usize,
    /// The bytes that its worst rank received, as the exchange counted them at the receivers.
    pub received_bytes: u64,
    /// The lower bound on the bytes that the worst rank receives, if it is known.
    pub lower_bound_bytes: Option<u64>,
    /// The number of finite elements that became infinite by rounding to a narrower dtype.
    #[serde(skip_serializing_if = "is_zero")]
    #[serde(rename = "became_infinite")]
    pub overflowed: u64,
    /// `true` if every byte of every rank was verified.
    pub verified: bool,
    /// The bytes of the global tensor.
    #[serde(skip)]
    pub bytes: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TensorReport {
    /// Returns the report of a tensor that was copied from files to files, where no rank receives anything.
    pub(crate) fn offline(tensor: &Move<'_>, verified: bool, overflowed: u64) -> Self {
        Self {
            name: tensor.tensor.name.clone(),
            shape: tensor.tensor.shape.clone(),
            dtype: tensor.tensor.dtype.to_string(),
            from: tensor.from.to_string(),
            to: tensor.wanted(),
            fallback_reason: tensor.replicated.clone(),
            steps: 0,
            received_bytes: 0,
            lower_bound_bytes: None,
            overflowed,
            verified,
            bytes: tensor.tensor.byte_len(),
        }
    }

    /// Returns the report of a tensor that was exchanged and verified.
    pub(crate) fn new(tensor: &Move<'_>, plan: &Plan, received_bytes: u64) -> Self {
        Self {
            steps: plan.steps().len(),
            received_bytes,
            lower_bound_bytes: plan.lower_bound_bytes(),
            ..Self::offline(tensor, true, 0)
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
            dropped: Vec::new(),
            kept: Vec::new(),
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
