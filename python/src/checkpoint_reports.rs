//! Reports on checkpoints: verification, comparison and resharding.

use pyo3::prelude::*;

/// The result of a verification; `problems` is empty if the checkpoint is correct.
#[pyclass(frozen, name = "VerifyReport", module = "reshard")]
pub(crate) struct PyVerified(pub(crate) reshard_checkpoint::VerifyReport);

#[pymethods]
impl PyVerified {
    fn __repr__(&self) -> String {
        format!("<VerifyReport {} tensors, {} problems>", self.0.tensors, self.0.problems.len())
    }

    fn __bool__(&self) -> bool {
        self.0.problems.is_empty()
    }

    /// The problems, in the order of the tensors.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.problems.iter().map(ToString::to_string).collect()
    }

    /// The number of tensors.
    #[getter]
    fn tensors(&self) -> usize {
        self.0.tensors
    }

    /// The number of shards that were read.
    #[getter]
    fn shards(&self) -> usize {
        self.0.shards
    }

    /// The number of tensor bytes that were read.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// `True` if the checkpoint has checksums to compare with.
    #[getter]
    fn checksums(&self) -> bool {
        self.0.checksums
    }
}

/// The differences of two checkpoints; true if they are equal.
#[pyclass(frozen, name = "DiffReport", module = "reshard")]
pub(crate) struct PyDifference(pub(crate) reshard_checkpoint::DiffReport);

#[pymethods]
impl PyDifference {
    fn __repr__(&self) -> String {
        let how = if self.0.equal { "equal" } else { "different" };
        format!("<DiffReport: {how}, {} tensors in both>", self.0.tensors)
    }

    /// `True` if both are equal as tensors.
    #[getter]
    fn equal(&self) -> bool {
        self.0.equal
    }

    /// The number of tensors that both have.
    #[getter]
    fn tensors(&self) -> usize {
        self.0.tensors
    }

    /// Names that only the first has.
    #[getter]
    fn only_first(&self) -> Vec<String> {
        self.0.only_first.clone()
    }

    /// Names that only the second has.
    #[getter]
    fn only_second(&self) -> Vec<String> {
        self.0.only_second.clone()
    }

    /// Tensors of both that differ: name, kind of difference, and index of the first element that differs.
    #[getter]
    fn different(&self) -> Vec<(String, String, Option<Vec<usize>>)> {
        let one = |d: &reshard_checkpoint::TensorDiff| (d.name.clone(), d.what.clone(), d.first.clone());
        self.0.different.iter().map(one).collect()
    }
}

/// The report of a resharded checkpoint; it was verified unless that was switched off.
#[pyclass(frozen, name = "JobReport", module = "reshard")]
pub(crate) struct PyResharded(pub(crate) reshard_checkpoint::JobReport);

#[pymethods]
impl PyResharded {
    fn __repr__(&self) -> String {
        format!("<JobReport {} tensors, {} bytes>", self.0.tensors.len(), self.0.bytes)
    }

    /// Every tensor: its name, its sharding before, and its sharding after.
    #[getter]
    fn tensors(&self) -> Vec<(String, String, String)> {
        let one = |t: &reshard_checkpoint::TensorReport| (t.name.clone(), t.from.clone(), t.to.clone());
        self.0.tensors.iter().map(one).collect()
    }

    /// The reasons for which tensors are replicated in place of the requested sharding, by name.
    #[getter]
    fn replicated(&self) -> Vec<(String, String)> {
        let one = |t: &reshard_checkpoint::TensorReport| Some((t.name.clone(), t.fallback_reason.clone()?));
        self.0.tensors.iter().filter_map(one).collect()
    }

    /// Bytes of all tensors, each counted once.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes that an earlier, killed call with the same arguments had written.
    #[getter]
    fn resumed_bytes(&self) -> u64 {
        self.0.resumed_bytes
    }

    /// By tensor, the number of finite elements that became infinite when rounded to the new dtype.
    #[getter]
    fn became_infinite(&self) -> Vec<(String, u64)> {
        let one = |t: &reshard_checkpoint::TensorReport| (t.name.clone(), t.overflowed);
        self.0.tensors.iter().map(one).filter(|(_, count)| *count > 0).collect()
    }

    /// The time taken, in seconds.
    #[getter]
    fn seconds(&self) -> f64 {
        self.0.seconds
    }

    /// `True` if every byte was verified; false if verification was switched off.
    #[getter]
    fn verified(&self) -> bool {
        self.0.verified
    }

    /// The files that were written.
    #[getter]
    fn written(&self) -> Vec<String> {
        self.0.written.clone()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyVerified>()?;
    module.add_class::<PyDifference>()?;
    module.add_class::<PyResharded>()
}
