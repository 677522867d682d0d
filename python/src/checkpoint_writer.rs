//! Ranks that save what they hold, from whatever thread or process.

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

/// A checkpoint that ranks are writing: each saves its own shards, and one commits. Nothing half-written is ever one.
#[pyclass(frozen, name = "Writer", module = "reshard")]
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
                    "tensor `{name}` is to be a pair of an element type and a Sharding, not {}",
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

    /// Takes part in what another process has begun in the folder `out`, and whose token this is.
    #[staticmethod]
    fn join(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] out: PathBuf,
        #[pyo3(from_py_with = text)] token: &str,
    ) -> Answer<PyWriter> {
        Ok(PyWriter(py.detach(|| CheckpointWriter::join(&out, token))?))
    }

    /// What other processes join by.
    #[getter]
    fn token(&self) -> &str {
        self.0.token()
    }

    /// The name of the element type and the shape of what a rank saves of a tensor.
    fn expects(
        &self,
        #[pyo3(from_py_with = text)] tensor: &str,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<(String, Vec<usize>)> {
        let (dtype, shape) = self.0.expects(tensor, rank)?;
        Ok((dtype.to_lowercase(), shape))
    }

    /// Writes all that a rank holds: a dict from the names of all tensors to its shards.
    fn save(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] rank: usize,
        shards: &Bound<'_, PyDict>,
    ) -> Answer<()> {
        let mut file = py.detach(|| self.0.rank(rank))?;
        // A list of the items: an array may be of a class whose methods change the dict.
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
                let message = format!("tensor `{name}`: its shard is {found}, and what is saved is {dtype}");
                return Err(refused("dtype", message));
            }
            if has != shape {
                let message = format!(
                    "tensor `{name}`: its shard has the shape {has:?}, and rank {rank} saves {shape:?}"
                );
                return Err(refused("shape", message));
            }
            py.detach(|| file.write(&name, &bytes))?;
        }
        Ok(py.detach(|| file.finish())?)
    }

    /// Puts the checkpoint in place. Refused while a rank has not saved, and where replicas differ.
    fn commit(&self, py: Python<'_>) -> Answer<()> {
        Ok(py.detach(|| self.0.commit())?)
    }

    /// Puts it in place if every rank has saved and nobody else does; says whether it did.
    fn commit_if_last(&self, py: Python<'_>) -> Answer<bool> {
        Ok(py.detach(|| self.0.commit_if_last())?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWriter>()
}
