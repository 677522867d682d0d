//! What is answered about checkpoints: what a check found, what two have not in common, what was written anew.

use pyo3::prelude::*;

/// What a checkpoint was found to be: `problems` is empty if all is well.
#[pyclass(frozen, name = "Verified", module = "reshard")]
pub(crate) struct PyVerified(pub(crate) reshard_checkpoint::VerifyReport);

#[pymethods]
impl PyVerified {
    fn __repr__(&self) -> String {
        format!("<Verified {} tensors, {} problems>", self.0.tensors, self.0.problems.len())
    }

    fn __bool__(&self) -> bool {
        self.0.problems.is_empty()
    }

    /// What is wrong, in the order of the tensors.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.problems.iter().map(ToString::to_string).collect()
    }

    /// How many tensors there are.
    #[getter]
    fn tensors(&self) -> usize {
        self.0.tensors
    }

    /// How many shards of tensors were read.
    #[getter]
    fn shards(&self) -> usize {
        self.0.shards
    }

    /// How many bytes of tensors were read.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether there are checksums to compare them with.
    #[getter]
    fn checksums(&self) -> bool {
        self.0.checksums
    }
}

/// What two checkpoints do not have in common; true where that is nothing.
#[pyclass(frozen, name = "Difference", module = "reshard")]
pub(crate) struct PyDifference(pub(crate) reshard_checkpoint::DiffReport);

#[pymethods]
impl PyDifference {
    fn __repr__(&self) -> String {
        let how = if self.0.equal { "equal" } else { "different" };
        format!("<Difference: {how}, {} tensors in both>", self.0.tensors)
    }

    /// Whether they are equal as tensors.
    #[getter]
    fn equal(&self) -> bool {
        self.0.equal
    }

    /// How many tensors both have.
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

    /// Tensors that both have and that differ: the name, how, and the index of the first element that differs.
    #[getter]
    fn different(&self) -> Vec<(String, String, Option<Vec<usize>>)> {
        let one = |d: &reshard_checkpoint::TensorDiff| (d.name.clone(), d.what.clone(), d.first.clone());
        self.0.different.iter().map(one).collect()
    }
}

/// What a checkpoint that was written anew is: all of it has been verified, where that was not left out.
#[pyclass(frozen, name = "Resharded", module = "reshard")]
pub(crate) struct PyResharded(pub(crate) reshard_checkpoint::JobReport);

#[pymethods]
impl PyResharded {
    fn __repr__(&self) -> String {
        format!("<Resharded {} tensors, {} bytes>", self.0.tensors.len(), self.0.bytes)
    }

    /// Every tensor: its name, the sharding that it had, and the one that it has.
    #[getter]
    fn tensors(&self) -> Vec<(String, String, String)> {
        let one = |t: &reshard_checkpoint::TensorReport| (t.name.clone(), t.from.clone(), t.to.clone());
        self.0.tensors.iter().map(one).collect()
    }

    /// Why tensors are replicated although the wish was another, by name.
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

    /// Bytes that an earlier call for the same had done, which was killed.
    #[getter]
    fn resumed_bytes(&self) -> u64 {
        self.0.resumed_bytes
    }

    /// How many elements were finite and past the largest number of the type that they were rounded to, by tensor.
    #[getter]
    fn became_infinite(&self) -> Vec<(String, u64)> {
        let one = |t: &reshard_checkpoint::TensorReport| (t.name.clone(), t.overflowed);
        self.0.tensors.iter().map(one).filter(|(_, count)| *count > 0).collect()
    }

    /// How long it took, in seconds.
    #[getter]
    fn seconds(&self) -> f64 {
        self.0.seconds
    }

    /// Whether every byte is as it should be; false where nobody looked.
    #[getter]
    fn verified(&self) -> bool {
        self.0.verified
    }

    /// What was written, and where.
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
