//! Writing a checkpoint by all ranks, from any thread or process.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reshard_checkpoint::CheckpointWriter;
use reshard_kernels::DType;

use crate::arguments::{MeshArgument, type_name};
use crate::arrays;
use crate::dtype::DTypeArgument;
use crate::failure::{Answer, refused};
use crate::numbers::number;
use crate::sharding::PySharding;
use crate::texts::text;

/// A checkpoint that ranks are writing: each saves its shards, and one commits.
///
/// It is never visible half-written.
#[pyclass(frozen, name = "CheckpointWriter", module = "reshard")]
pub(crate) struct PyWriter(CheckpointWriter);

#[pymethods]
impl PyWriter {
    /// Begins one in the folder `out`; `tensors` is a dict from names to pairs of element type and sharding.
    #[staticmethod]
    #[pyo3(signature = (out, mesh, tensors, *, force=false, texts=None))]
    fn begin(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] out: PathBuf,
        mesh: MeshArgument,
        tensors: &Bound<'_, PyDict>,
        force: bool,
        #[pyo3(from_py_with = text)] texts: Option<std::collections::BTreeMap<String, String>>,
    ) -> Answer<PyWriter> {
        let mut all = Vec::with_capacity(tensors.len());
        for item in tensors.items() {
            let (name, of): (String, Bound<'_, PyAny>) = text(&item)?;
            let Ok((dtype, sharding)) = of.extract::<(Bound<'_, PyAny>, PyRef<'_, PySharding>)>() else {
                return Err(PyTypeError::new_err(format!(
                    "tensor `{name}` must be given as a pair of an element type and a Sharding, not {}",
                    type_name(&of)
                ))
                .into());
            };
            let dtype = dtype.extract::<DTypeArgument>()?.0;
            all.push((name, dtype.name().to_owned(), sharding.0.clone()));
        }
        let texts = texts.unwrap_or_default();
        let writer = py.detach(|| {
            let tensors = all.iter().map(|(name, dtype, sharding)| (&name[..], &dtype[..], sharding));
            let texts = texts.iter().map(|(key, text)| (&key[..], &text[..]));
            CheckpointWriter::begin_with_texts(&out, &mesh.0, tensors, force, texts)
        })?;
        Ok(PyWriter(writer))
    }

    /// Joins the checkpoint that another process has begun in the folder `out`, by its token.
    #[staticmethod]
    fn join(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] out: PathBuf,
        #[pyo3(from_py_with = text)] token: &str,
    ) -> Answer<PyWriter> {
        Ok(PyWriter(py.detach(|| CheckpointWriter::join(&out, token))?))
    }

    /// The token with which other processes join.
    #[getter]
    fn token(&self) -> &str {
        self.0.token()
    }

    /// The element type and the shape of the shard that a rank saves of a tensor.
    fn expects(
        &self,
        #[pyo3(from_py_with = text)] tensor: &str,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<(String, Vec<usize>)> {
        let (dtype, shape) = self.0.expects(tensor, rank)?;
        Ok((dtype.to_lowercase(), shape))
    }

    /// Writes all shards of a rank: a dict from the names of all tensors to arrays.
    fn save(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] rank: usize,
        shards: &Bound<'_, PyDict>,
    ) -> Answer<()> {
        let mut file = py.detach(|| self.0.rank(rank))?;
        // Copy the dict to a list: methods of an array class may change the dict.
        for (name, array) in shards
            .items()
            .iter()
            .map(|item| text::<(String, Bound<'_, PyAny>)>(&item))
            .collect::<PyResult<Vec<_>>>()?
        {
            let (dtype, shape) = self.0.expects(&name, rank)?;
            let dtype: DType = dtype.to_lowercase().parse()?;
            let (found, has, bytes) = arrays::whole(&array, &name)?;
            if found != dtype {
                let message =
                    format!("tensor `{name}`: the shard is {found}, but the checkpoint has {dtype}");
                return Err(refused("dtype", message));
            }
            if has != shape {
                let message = format!(
                    "tensor `{name}`: the shard has the shape {has:?}, but rank {rank} saves {shape:?}"
                );
                return Err(refused("shape", message));
            }
            py.detach(|| file.write(&name, &bytes))?;
        }
        Ok(py.detach(|| file.finish())?)
    }

    /// Commits the checkpoint; an error while a rank has not saved, or if replicas differ.
    fn commit(&self, py: Python<'_>) -> Answer<()> {
        Ok(py.detach(|| self.0.commit())?)
    }

    /// Commits if every rank has saved and no other process commits; returns `True` if it did.
    fn commit_if_last(&self, py: Python<'_>) -> Answer<bool> {
        Ok(py.detach(|| self.0.commit_if_last())?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWriter>()
}
