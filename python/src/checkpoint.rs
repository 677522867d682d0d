//! Checkpoints: opening, reading by region, comparing, and resharding to another mesh.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice, PyTuple};
use reshard_checkpoint::{Checkpoint, Key, Mapping, OutputFormat, PlacementSpec, ReshardJob, diff};
use reshard_kernels::DType;
use reshard_sharding::{Interval, Region};

use crate::arguments::MeshArgument;
use crate::arrays;
use crate::checkpoint_reports::{PyDifference, PyResharded, PyVerified};
use crate::dtype::{DTypeArgument, PyDType};
use crate::failure::{Answer, refused};
use crate::mesh::PyMesh;
use crate::numbers::number;
use crate::progress::Progress;
use crate::sequences::listed_if_any;
use crate::sharding::PySharding;
use crate::texts::{Names, text};
use crate::wanted::Wanted;

/// The tensors of a file or a folder in any supported format; opening reads headers only.
#[pyclass(frozen, name = "Checkpoint", module = "reshard")]
pub(crate) struct PyCheckpoint {
    checkpoint: Arc<Checkpoint>,
    path: PathBuf,
}

/// The metadata of a tensor in a checkpoint.
#[pyclass(frozen, get_all, name = "CheckpointTensor", module = "reshard")]
#[derive(Clone)]
pub(crate) struct PyCheckpointTensor {
    /// Its name.
    name: String,
    /// The type of its elements.
    dtype: PyDType,
    /// The shape of the global tensor.
    shape: Vec<usize>,
    /// Its sharding in the files; None if it is stored whole or in chunks.
    sharding: Option<PySharding>,
    /// The number of chunks, if it is stored in chunks of arbitrary sizes.
    chunks: Option<usize>,
    /// The bytes of the global tensor.
    bytes: u64,
}

#[pymethods]
impl PyCheckpointTensor {
    fn __repr__(&self) -> String {
        let sharding = self.sharding.as_ref().map_or_else(String::new, |s| format!(" {}", s.0));
        format!("<{}: {}{:?}{sharding}>", self.name, self.dtype.0, self.shape)
    }
}

/// Parses an element type by its name in safetensors.
fn dtype_of(name: &str) -> Answer<DType> {
    Ok(name.to_lowercase().parse()?)
}

/// Reads the requested indices of a dim.
fn interval(object: &Bound<'_, PyAny>, extent: usize) -> Answer<Vec<Interval>> {
    let whole = |start: usize, len: usize| if len == 0 { Vec::new() } else { vec![Interval { start, len }] };
    if let Ok(slice) = object.cast::<PySlice>() {
        let asked = slice.indices(isize::try_from(extent).map_err(PyErr::from)?)?;
        if asked.step != 1 {
            return Err(refused(
                "usage",
                format!("the slices of a region must have step 1, not {}", asked.step),
            ));
        }
        return Ok(whole(asked.start.unsigned_abs(), asked.slicelength));
    }
    let (start, stop): (usize, usize) = number(object)?;
    if start > stop || stop > extent {
        return Err(refused(
            "usage",
            format!("the range {start} to {stop} is outside a dim of size {extent}"),
        ));
    }
    Ok(whole(start, stop - start))
}

impl PyCheckpoint {
    fn opened(
        py: Python<'_>,
        path: PathBuf,
        dead: Option<Vec<usize>>,
        fill_from: Option<PathBuf>,
        source: Option<PathBuf>,
    ) -> Answer<PyCheckpoint> {
        if source.is_some() && (dead.is_some() || fill_from.is_some()) {
            return Err(refused(
                "usage",
                "`source` describes files of another program, and `dead` is for rank files",
            ));
        }
        let checkpoint = py.detach(|| match (dead, fill_from) {
            (None, None) => Ok(Checkpoint::open_described(&path, source.as_deref())?),
            (None, Some(_)) => Err(refused(
                "usage",
                "`fill_from` needs `dead`, a list of the missing ranks such as `dead=[3, 5]`",
            )),
            (Some(dead), None) => Ok(Checkpoint::open_degraded(&path, &dead)?.whole()?),
            (Some(dead), Some(other)) => {
                let other = Checkpoint::open(Some(&other))?;
                Ok(Checkpoint::open_degraded(&path, &dead)?.filled(&other)?)
            }
        })?;
        Ok(PyCheckpoint { checkpoint: Arc::new(checkpoint), path })
    }

    /// Wraps a checkpoint derived from this one.
    fn made_of(&self, checkpoint: Checkpoint) -> PyCheckpoint {
        PyCheckpoint { checkpoint: Arc::new(checkpoint), path: self.path.clone() }
    }

    fn tensor(&self, tensor: &reshard_checkpoint::Tensor) -> Answer<PyCheckpointTensor> {
        Ok(PyCheckpointTensor {
            name: tensor.name().to_owned(),
            dtype: PyDType(dtype_of(&tensor.dtype())?),
            shape: tensor.shape().to_vec(),
            sharding: tensor.sharding().cloned().map(PySharding),
            chunks: tensor.chunks(),
            bytes: tensor.byte_len(),
        })
    }
}

#[pymethods]
impl PyCheckpoint {
    #[new]
    #[pyo3(signature = (path, *, dead=None, fill_from=None, source=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] path: PathBuf,
        #[pyo3(from_py_with = listed_if_any)] dead: Option<Vec<usize>>,
        #[pyo3(from_py_with = text)] fill_from: Option<PathBuf>,
        #[pyo3(from_py_with = text)] source: Option<PathBuf>,
    ) -> Answer<PyCheckpoint> {
        PyCheckpoint::opened(py, path, dead, fill_from, source)
    }

    /// The tensors whose names one of the patterns matches: globs, or regular expressions between slashes.
    #[pyo3(signature = (*patterns))]
    fn filter(&self, patterns: Names) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.filter(patterns.0.iter().map(|pattern| &pattern[..]))?))
    }

    /// The same tensors, renamed: `"s/^model/decoder/"`.
    fn renamed(&self, #[pyo3(from_py_with = text)] rename: &str) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.renamed(rename)?))
    }

    /// The tensors that the rules of a mapping make: `"*.qkv = 4 *.q + 1 *.k + 1 *.v"`, one rule a line.
    ///
    /// `inverse` reads the rules from right to left; `numbers` are the values of `$name`.
    #[pyo3(signature = (rules, *, inverse=false, numbers=None))]
    fn mapped(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] rules: &str,
        inverse: bool,
        numbers: Option<&Bound<'_, PyDict>>,
    ) -> Answer<PyCheckpoint> {
        let mut mapping: Mapping = rules.parse().map_err(reshard_checkpoint::Error::from)?;
        for (name, value) in numbers.into_iter().flat_map(PyDictMethods::iter) {
            let (name, value): (String, usize) = (text(&name)?, number(&value)?);
            mapping = mapping.with_number(&name, value).map_err(reshard_checkpoint::Error::from)?;
        }
        if inverse {
            mapping = mapping.inverse().map_err(reshard_checkpoint::Error::from)?;
        }
        // It reads the tensors that must be equal.
        Ok(self.made_of(py.detach(|| self.checkpoint.mapped(&mapping))?))
    }

    /// The same tensors, with floating-point elements rounded to this type: to nearest, ties to even.
    fn cast(&self, dtype: DTypeArgument) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.cast(dtype.0.name())?))
    }

    fn __repr__(&self) -> String {
        format!("Checkpoint('{}')", self.path.display())
    }

    fn __len__(&self) -> usize {
        self.checkpoint.tensors().len()
    }

    fn __contains__(&self, #[pyo3(from_py_with = text)] name: &str) -> bool {
        self.checkpoint.tensor(name).is_ok()
    }

    /// The names of the tensors.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.checkpoint.tensors().iter().map(reshard_checkpoint::Tensor::name).collect()
    }

    /// The metadata of all tensors.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyTuple>> {
        let all = self.checkpoint.tensors().iter().map(|tensor| self.tensor(tensor));
        Ok(PyTuple::new(py, all.collect::<Answer<Vec<_>>>()?)?)
    }

    /// The metadata of a tensor.
    fn __getitem__(&self, #[pyo3(from_py_with = text)] name: &str) -> Answer<PyCheckpointTensor> {
        self.tensor(self.checkpoint.tensor(name)?)
    }

    /// The mesh of its shardings; None if its tensors are stored whole.
    #[getter]
    fn mesh(&self) -> Option<PyMesh> {
        self.checkpoint.mesh().cloned().map(PyMesh)
    }

    /// `True` if a manifest has checksums for it, which `verify` compares.
    #[getter]
    fn has_checksums(&self) -> bool {
        self.checkpoint.has_checksums()
    }

    /// The metadata texts of its writer.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (key, text) in self.checkpoint.metadata() {
            all.set_item(key, text)?;
        }
        Ok(all)
    }

    /// The names of the entries that are not tensors.
    #[getter]
    fn non_tensors(&self) -> Vec<String> {
        self.checkpoint.objects().iter().map(|object| object.name().to_owned()).collect()
    }

    /// The names of those of them that have separate bytes, which `object` returns.
    #[getter]
    fn _objects_with_bytes(&self) -> Vec<String> {
        let objects = self.checkpoint.objects().iter().filter(|object| object.byte_len().is_some());
        objects.map(|object| object.name().to_owned()).collect()
    }

    /// The keys of every entry in nested dicts and lists, by its name: texts, and indices of lists.
    ///
    /// It lacks entries of which only the name is known.
    #[getter]
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tensors = self.checkpoint.tensors().iter().map(|tensor| (tensor.name(), tensor.path()));
        let objects = self.checkpoint.objects().iter().map(|object| (object.name(), object.path()));
        let all = PyDict::new(py);
        for (name, path) in tensors.chain(objects) {
            let Some(path) = path else { continue };
            let keys = path.iter().map(|key| match key {
                Key::Text(text) => text.into_bound_py_any(py),
                Key::Index(index) => index.into_bound_py_any(py),
            });
            all.set_item(name, PyTuple::new(py, keys.collect::<PyResult<Vec<_>>>()?)?)?;
        }
        Ok(all)
    }

    /// The bytes of an entry that is not a tensor, as `torch.save` wrote them.
    ///
    /// They are copied, never unpickled.
    fn object<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> Answer<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.checkpoint.object(name))?;
        // Python raises the error if memory for the bytes cannot be allocated.
        Ok(PyBytes::new_with(py, bytes.len(), |room| {
            room.copy_from_slice(&bytes);
            Ok(())
        })?)
    }

    /// The number of tensor bytes read so far; headers do not count.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.checkpoint.bytes_read()
    }

    /// Reads a tensor or a region of it: for each dim a slice, or a pair of start and stop.
    ///
    /// Reads no other bytes of it.
    #[pyo3(signature = (name, region=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = listed_if_any)] region: Option<Vec<Bound<'py, PyAny>>>,
    ) -> Answer<Bound<'py, PyAny>> {
        let tensor = self.checkpoint.tensor(name)?;
        let given = region.unwrap_or_default();
        let shape = tensor.shape();
        if given.len() > shape.len() {
            return Err(refused(
                "usage",
                format!("`{name}` has {} dims, but the region has {}", shape.len(), given.len()),
            ));
        }
        let all = PySlice::full(py).into_any();
        let dims = shape.iter().enumerate().map(|(dim, &n)| interval(given.get(dim).unwrap_or(&all), n));
        let dims = dims.collect::<Answer<Vec<_>>>()?;
        let local: Vec<usize> = dims.iter().map(|list| list.iter().map(|one| one.len).sum()).collect();
        let region = Region { dims: dims.into_iter().map(|list| list.into_iter().collect()).collect() };
        self.made(py, dtype_of(&tensor.dtype())?, &local, || self.checkpoint.read(name, &region))
    }

    /// Reads the shard of a tensor on a rank of a sharding. Reads no other bytes of the tensor.
    fn shard<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
        sharding: &PySharding,
        #[pyo3(from_py_with = number)] rank: usize,
    ) -> Answer<Bound<'py, PyAny>> {
        let dtype = dtype_of(&self.checkpoint.tensor(name)?.dtype())?;
        let local = sharding.0.local_shape(rank)?.to_vec();
        self.made(py, dtype, &local, || self.checkpoint.shard(name, &sharding.0, rank))
    }

    /// Reads everything, and compares all checksums and all replicas; returns a list of problems.
    #[pyo3(signature = (*, progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> Answer<PyVerified> {
        let mut progress = Progress::of(py, progress)?;
        let made = py.detach(|| self.checkpoint.verify(&mut progress));
        Ok(PyVerified(progress.answer(made)?))
    }

    /// Compares the tensors of two checkpoints; texts, files and shardings do not count.
    #[pyo3(signature = (other, *, progress=None))]
    fn diff(
        &self,
        py: Python<'_>,
        other: &PyCheckpoint,
        progress: Option<Py<PyAny>>,
    ) -> Answer<PyDifference> {
        let mut progress = Progress::of(py, progress)?;
        let made = py.detach(|| diff(&self.checkpoint, &other.checkpoint, &mut progress));
        Ok(PyDifference(progress.answer(made)?))
    }

    /// Reshards the checkpoint to another mesh. The output appears whole or not at all.
    ///
    /// `out` is a folder with a file for each rank and `sharding.json`, or a file of whole tensors if it ends
    /// in `.safetensors`.
    ///
    /// `to` is a sharding for all tensors that have its dims, or a dict from patterns of names to placements,
    /// of which the first that matches wins. `format` is `"rank_files"`, `"dcp"` or `"dcp_safetensors"` for a
    /// distributed checkpoint of PyTorch, or `"safetensors"` for whole tensors in several files with an
    /// index. With `verify=False` nothing is verified; `force` replaces the output of an earlier call; `resume`
    /// continues an earlier call with the same arguments that was killed; `progress` is called with bytes and
    /// total bytes.
    #[pyo3(signature = (mesh, to, out, *, format="rank_files", force=false, resume=false, verify=true, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn reshard(
        &self,
        py: Python<'_>,
        mesh: MeshArgument,
        to: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = text)] out: PathBuf,
        #[pyo3(from_py_with = text)] format: &str,
        force: bool,
        resume: bool,
        verify: bool,
        progress: Option<Py<PyAny>>,
    ) -> Answer<PyResharded> {
        let format = match format {
            "rank_files" => OutputFormat::RankFiles,
            "dcp" => OutputFormat::Dcp,
            "dcp_safetensors" => OutputFormat::DcpSafetensors,
            "safetensors" => OutputFormat::Safetensors,
            other => {
                return Err(refused(
                    "usage",
                    format!(
                        "unknown format {other:?}; expected one of: \"rank_files\", \"dcp\", \"dcp_safetensors\", \"safetensors\""
                    ),
                ));
            }
        };
        let to = Wanted::of(to)?;
        let (for_all, rules) = match &to {
            Wanted::All(text) => (Some(text.clone()), Vec::new()),
            Wanted::ByName(rules) => (None, rules.clone()),
        };
        let mut progress = Progress::of(py, progress)?;
        let report = py.detach(|| -> Result<_, reshard_checkpoint::Error> {
            let spec = PlacementSpec::new(rules.iter().map(|(pattern, to)| (pattern.as_str(), to.as_str())))?;
            let job = ReshardJob {
                mesh: Some(mesh.0.to_string()),
                to: for_all,
                out: Some(out),
                format,
                force,
                resume,
                verify,
                ..ReshardJob::default()
            };
            job.run_on(&self.checkpoint, Some(&spec), &mut progress)
        });
        Ok(PyResharded(progress.answer(report)?))
    }
}

impl PyCheckpoint {
    fn made<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[usize],
        read: impl FnOnce() -> Result<Vec<u8>, reshard_checkpoint::Error> + Send,
    ) -> Answer<Bound<'py, PyAny>> {
        let bytes = py.detach(read)?;
        if dtype.element_bytes().is_err() {
            // NumPy has no elements that share bytes: return the bytes.
            return arrays::of(py, DType::U8, &[bytes.len()], &bytes);
        }
        arrays::of(py, dtype, shape, &bytes)
    }
}

/// Opens a file or a folder of safetensors, of this library, of PyTorch or of NumPy. Reads headers only.
///
/// The files of `dead` ranks of a folder of rank files are not read: replicas on other ranks are read
/// instead, and regions without a replica from the checkpoint `fill_from`.
///
/// `source` is a TOML file that describes files of another program, if they do not describe their parts:
/// names by coordinate, a mesh, and placements.
#[pyfunction]
#[pyo3(signature = (path, *, dead=None, fill_from=None, source=None))]
fn open_checkpoint(
    py: Python<'_>,
    #[pyo3(from_py_with = text)] path: PathBuf,
    #[pyo3(from_py_with = listed_if_any)] dead: Option<Vec<usize>>,
    #[pyo3(from_py_with = text)] fill_from: Option<PathBuf>,
    #[pyo3(from_py_with = text)] source: Option<PathBuf>,
) -> Answer<PyCheckpoint> {
    PyCheckpoint::opened(py, path, dead, fill_from, source)
}

/// Reads the shards of a rank of the tensors of a checkpoint, by name. Reads no other bytes.
///
/// `to` is a sharding for all tensors that have its dims, or a dict from patterns of names to placements, of
/// which the first that matches wins. `names` selects tensors; the default is all.
#[pyfunction]
#[pyo3(signature = (path, mesh, to, rank, *, names=None))]
fn load<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = text)] path: PathBuf,
    mesh: MeshArgument,
    to: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = number)] rank: usize,
    #[pyo3(from_py_with = listed_if_any)] names: Option<Vec<String>>,
) -> Answer<Bound<'py, PyDict>> {
    let opened = PyCheckpoint::opened(py, path, None, None, None)?;
    let wanted = Wanted::of(to)?;
    let checkpoint = &opened.checkpoint;
    let listed: Vec<(&str, &[usize])> = match &names {
        None => checkpoint.tensors().iter().map(|t| (t.name(), t.shape())).collect(),
        Some(names) => {
            let of = |name: &String| checkpoint.tensor(name).map(|t| (t.name(), t.shape()));
            names.iter().map(of).collect::<Result<_, _>>()?
        }
    };
    let all = PyDict::new(py);
    for ((name, _), sharding) in listed.iter().zip(wanted.shardings(&mesh.0, &listed)?) {
        all.set_item(name, opened.shard(py, name, &PySharding(sharding), rank)?)?;
    }
    Ok(all)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCheckpoint>()?;
    module.add_class::<PyCheckpointTensor>()?;
    module.add_function(wrap_pyfunction!(open_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(load, module)?)
}
