//! What a run says at its end: one JSON object, or a closing table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanBytes;
use serde::Serialize;

use super::decision::Move;
use super::exchange::Moved;

/// The answer of `reshard run`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) tensors: Vec<TensorReport>,
    /// Bytes of all tensors, each counted once.
    bytes: u64,
    /// What each tensor's worst rank received, added up.
    received_bytes: u64,
    seconds: f64,
    verified: bool,
    #[serde(skip)]
    lower_bound_bytes: u64,
}

/// What happened to one tensor.
#[derive(Debug, Serialize)]
pub(crate) struct TensorReport {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) replicated: Option<String>,
    pub(crate) steps: usize,
    /// As the exchange counted it at the receivers.
    pub(crate) received_bytes: u64,
    pub(crate) lower_bound_bytes: Option<u64>,
    pub(crate) verified: bool,
    #[serde(skip)]
    pub(crate) bytes: u64,
}

impl TensorReport {
    /// A tensor that has arrived and been verified.
    pub(crate) fn new(tensor: &Move<'_>, moved: &Moved) -> Self {
        Self {
            name: tensor.tensor.name.clone(),
            shape: tensor.tensor.shape.clone(),
            dtype: tensor.tensor.dtype.to_string(),
            from: tensor.from.to_string(),
            to: tensor.to.to_string(),
            replicated: tensor.replicated.clone(),
            steps: moved.steps,
            received_bytes: moved.received_bytes,
            lower_bound_bytes: moved.lower_bound_bytes,
            verified: true,
            bytes: tensor.tensor.byte_len(),
        }
    }
}

impl Report {
    pub(crate) fn new(tensors: Vec<TensorReport>, elapsed: Duration) -> Self {
        Self {
            bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
            received_bytes: tensors.iter().map(|tensor| tensor.received_bytes).sum(),
            lower_bound_bytes: tensors.iter().filter_map(|tensor| tensor.lower_bound_bytes).sum(),
            seconds: elapsed.as_secs_f64(),
            verified: tensors.iter().all(|tensor| tensor.verified),
            tensors,
        }
    }

    /// The closing table. `written` says where the result went.
    pub(crate) fn table(&self, written: &[String]) -> String {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.tensors.iter().filter_map(|tensor| tensor.replicated.as_deref()) {
            *reasons.entry(reason).or_default() += 1;
        }
        let steps: usize = self.tensors.iter().map(|tensor| tensor.steps).sum();
        let rate = if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 };
        let mut rows = vec![
            ("tensors", self.tensors.len().to_string()),
            ("bytes", format!("{} ({})", self.bytes, HumanBytes(self.bytes))),
            ("steps", steps.to_string()),
            (
                "moved",
                format!("{} bytes to the worst rank, bound {}", self.received_bytes, self.lower_bound_bytes),
            ),
            ("time", format!("{:.3} s, {}/s", self.seconds, HumanBytes(rate as u64))),
            ("verified", if self.verified { "every byte of every rank" } else { "NO" }.to_owned()),
        ];
        rows.extend(reasons.iter().map(|(reason, count)| ("replicated", format!("{count} times: {reason}"))));
        rows.extend(written.iter().map(|place| ("written", place.clone())));
        let mut table = String::new();
        for (label, value) in rows {
            // Writing to a string does not fail.
            let _ = writeln!(table, "{label:<11} {value}");
        }
        table
    }
}
