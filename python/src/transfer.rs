//! Transfers of a whole model between two worlds: planned from the descriptions of both sides.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use reshard_mapping::Mapping;
use reshard_transfer::{Agreement, Options, Side, Transfer};

use crate::failure::{Answer, Failure, refused};
use crate::numbers::number;
use crate::sequences::{listed, printed};
use crate::texts::text;

/// The plan of a transfer, such as `Transfer.plan(source, target, "gate_up = gate | up", cast={"*": "bf16"})`.
///
/// The sides are JSON, as `WeightSync` describes them: `{"mesh": "dp=2", "tensors": [{"name": .., "dtype": "f32",
/// "shape": [8, 4], "placements": "S(0)"}]}`.
#[pyclass(frozen, name = "Transfer", module = "reshard")]
pub(crate) struct PyTransfer {
    plan: Transfer,
    mapping: Mapping,
    targets: Vec<String>,
}

/// The pairs of a dict from patterns to texts; None is `keep`.
fn pairs(table: Option<&Bound<'_, PyDict>>) -> Answer<Vec<(String, String)>> {
    let of = |(pattern, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<(String, String)> {
        let value = if value.is_none() { "keep".to_owned() } else { printed(&value)? };
        Ok((printed(&pattern)?, value))
    };
    Ok(table.into_iter().flat_map(PyDictMethods::iter).map(of).collect::<PyResult<_>>()?)
}

#[pymethods]
impl PyTransfer {
    /// The plan from a source to a target; a conversion needs a pattern of `cast`.
    ///
    /// `ranks_per_node` lets a rank receive from its own node where it can.
    #[staticmethod]
    #[pyo3(signature = (source, target, mapping="", *, cast=None, placements=None, ranks_per_node=None))]
    fn plan(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] source: &str,
        #[pyo3(from_py_with = text)] target: &str,
        #[pyo3(from_py_with = text)] mapping: &str,
        #[pyo3(from_py_with = text)] cast: Option<Bound<'_, PyDict>>,
        #[pyo3(from_py_with = text)] placements: Option<Bound<'_, PyDict>>,
        #[pyo3(from_py_with = number)] ranks_per_node: Option<usize>,
    ) -> Answer<PyTransfer> {
        let mut mapping: Mapping = mapping.parse()?;
        for (pattern, to) in pairs(cast.as_ref())? {
            mapping = mapping.with_cast(&pattern, &to)?;
        }
        for (pattern, to) in pairs(placements.as_ref())? {
            mapping = mapping.with_placements(&pattern, &to);
        }
        let options = match ranks_per_node {
            Some(ranks) => Options::default().with_ranks_per_node(ranks),
            None => Options::default(),
        };
        py.detach(|| {
            let (source, target) = (Side::from_json(source)?, Side::from_json(target)?);
            let plan = Transfer::plan(&source, &target, &mapping, &options)?;
            let targets = target.tensors().iter().map(|tensor| tensor.name.clone()).collect();
            Ok(PyTransfer { plan, mapping, targets })
        })
    }

    /// The description of a side of what each of its ranks describes.
    #[staticmethod]
    fn merge(#[pyo3(from_py_with = listed)] ranks: Vec<(usize, String)>) -> Answer<String> {
        let read = |(rank, side): &(usize, String)| Ok((*rank, Side::from_json(side)?));
        let sides = ranks.iter().map(read).collect::<Answer<Vec<_>>>()?;
        Ok(Side::merge(&sides)?.to_json())
    }

    /// Raises an error unless all ranks have one plan: `(rank, hash, mapping)` of each.
    #[staticmethod]
    fn agree(#[pyo3(from_py_with = listed)] ranks: Vec<(usize, String, String)>) -> Answer<()> {
        let of = |(rank, hash, mapping): &(usize, String, String)| -> Answer<Agreement> {
            let hash = u64::from_str_radix(hash, 16)
                .map_err(|_| refused("invalid", format!("the hash {hash:?} is not 16 hexadecimal digits")))?;
            Ok(Agreement::new(*rank, hash, &Mapping::from_toml(mapping)?))
        };
        Ok(Agreement::check(&ranks.iter().map(of).collect::<Answer<Vec<_>>>()?)?)
    }

    /// The hash of the descriptions, the mapping, the options and the version: 16 hexadecimal digits.
    #[getter]
    fn hash(&self) -> String {
        format!("{:016x}", self.plan.hash())
    }

    /// The mapping with its casts and placements, as TOML.
    #[getter]
    fn mapping(&self) -> String {
        self.mapping.to_toml()
    }

    /// The ranks of both sides, ascending.
    #[getter]
    fn ranks(&self) -> Vec<usize> {
        self.plan.ranks().to_vec()
    }

    /// The names of the tensors of the target, in their order.
    #[getter]
    fn targets(&self) -> Vec<String> {
        self.targets.clone()
    }

    /// The bytes of each rank: received, lacking (its bound), sent, share (its balanced bound), copied; and its boxes.
    fn rank_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.plan.bytes().into_iter().map(|one| {
            let row = PyDict::new(py);
            for (name, value) in [
                ("rank", one.rank as u64),
                ("received", one.received),
                ("lacking", one.lacking),
                ("sent", one.sent),
                ("share", one.share),
                ("copied", one.copied),
                ("descriptors", one.descriptors as u64),
            ] {
                row.set_item(name, value)?;
            }
            Ok(row)
        });
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    /// Proves that the parts write each element of the target exactly once; returns the proof as a table.
    fn certificate(&self, py: Python<'_>) -> Answer<String> {
        py.detach(|| Ok(self.plan.certificate()?.to_string()))
    }

    /// The part of a rank as JSON.
    fn part(&self, #[pyo3(from_py_with = number)] rank: usize) -> String {
        self.plan.part(rank).to_json()
    }

    /// The part of a rank in the binary form.
    fn part_bytes<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.plan.part(rank).to_bytes())
    }

    fn __repr__(&self) -> String {
        format!(
            "Transfer(hash={}, ranks={}, targets={})",
            self.hash(),
            self.plan.ranks().len(),
            self.targets.len()
        )
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTransfer>()
}

impl From<reshard_transfer::Error> for Failure {
    fn from(error: reshard_transfer::Error) -> Failure {
        refused(error.kind().code(), error.to_string())
    }
}

impl From<reshard_mapping::Error> for Failure {
    fn from(error: reshard_mapping::Error) -> Failure {
        refused("mapping", error.to_string())
    }
}
