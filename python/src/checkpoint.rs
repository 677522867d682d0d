//! Checkpoints: opened, read by region, compared, and written anew over another mesh.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice, PyTuple};
use reshard_checkpoint::{Checkpoint, Fusion, Options, OutputFormat, PlacementSpec, diff};
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

/// The tensors of a file or a folder, whatever wrote them; opening reads headers only.
#[pyclass(frozen, name = "Checkpoint", module = "reshard")]
pub(crate) struct PyCheckpoint {
    checkpoint: Arc<Checkpoint>,
    path: PathBuf,
}

/// A tensor of a checkpoint: what its header says.
#[pyclass(frozen, get_all, name = "CheckpointTensor", module = "reshard")]
#[derive(Clone)]
pub(crate) struct PyCheckpointTensor {
    /// Its name.
    name: String,
    /// The type of its elements.
    dtype: PyDType,
    /// The shape of the whole.
    shape: Vec<usize>,
    /// The sharding that it has in the files; None where it is whole or in chunks.
    sharding: Option<PySharding>,
    /// How many chunks make it up, where it is cut in chunks of any sizes.
    chunks: Option<usize>,
    /// The bytes of the whole.
    bytes: u64,
}

#[pymethods]
impl PyCheckpointTensor {
    fn __repr__(&self) -> String {
        let sharding = self.sharding.as_ref().map_or_else(String::new, |s| format!(" {}", s.0));
        format!("<{}: {}{:?}{sharding}>", self.name, self.dtype.0, self.shape)
    }
}

/// The type of elements, of the name that safetensors has for it.
fn dtype_of(name: &str) -> Answer<DType> {
    Ok(name.to_lowercase().parse()?)
}

/// What indices of a dim are asked for.
fn interval(object: &Bound<'_, PyAny>, extent: usize) -> Answer<Vec<Interval>> {
    let whole = |start: usize, len: usize| if len == 0 { Vec::new() } else { vec![Interval { start, len }] };
    if let Ok(slice) = object.cast::<PySlice>() {
        let asked = slice.indices(isize::try_from(extent).map_err(PyErr::from)?)?;
        if asked.step != 1 {
            return Err(refused(
                "usage",
                format!("a region is of slices without steps, and not of steps of {}", asked.step),
            ));
        }
        return Ok(whole(asked.start.unsigned_abs(), asked.slicelength));
    }
    let (start, stop): (usize, usize) = number(object)?;
    if start > stop || stop > extent {
        return Err(refused("usage", format!("from {start} to {stop} is not in a dim of {extent}")));
    }
    Ok(whole(start, stop - start))
}

impl PyCheckpoint {
    fn opened(
        py: Python<'_>,
        path: PathBuf,
        dead: Option<Vec<usize>>,
        fill_from: Option<PathBuf>,
    ) -> Answer<PyCheckpoint> {
        let checkpoint = py.detach(|| match (dead, fill_from) {
            (None, None) => Checkpoint::open(Some(&path)).map_err(Into::into),
            (None, Some(_)) => Err(refused("usage", "say which ranks are dead: dead=[3, 5]")),
            (Some(dead), None) => Ok(Checkpoint::open_degraded(&path, &dead)?.whole()?),
            (Some(dead), Some(other)) => {
                let other = Checkpoint::open(Some(&other))?;
                Ok(Checkpoint::open_degraded(&path, &dead)?.filled(&other)?)
            }
        })?;
        Ok(PyCheckpoint { checkpoint: Arc::new(checkpoint), path })
    }

    /// Another one, made of this.
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
    #[pyo3(signature = (path, *, dead=None, fill_from=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = text)] path: PathBuf,
        #[pyo3(from_py_with = listed_if_any)] dead: Option<Vec<usize>>,
        #[pyo3(from_py_with = text)] fill_from: Option<PathBuf>,
    ) -> Answer<PyCheckpoint> {
        PyCheckpoint::opened(py, path, dead, fill_from)
    }

    /// The tensors whose names one of the patterns matches: globs, or regular expressions between slashes.
    #[pyo3(signature = (*patterns))]
    fn only(&self, patterns: Names) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.filter(patterns.0.iter().map(|pattern| &pattern[..]))?))
    }

    /// The same tensors by other names: `"s/^model/decoder/"`.
    fn renamed(&self, #[pyo3(from_py_with = text)] rename: &str) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.renamed(rename)?))
    }

    /// Whole tensors in place of their parts: `"*.qkv.weight = *.q.weight + *.k.weight + *.v.weight by 8"`.
    fn fused(&self, #[pyo3(from_py_with = text)] fusion: &str) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.fused(&fusion.parse::<Fusion>()?)?))
    }

    /// Parts in place of whole tensors, said in the same way; a number before a part says how many shares it has.
    fn split(&self, #[pyo3(from_py_with = text)] fusion: &str) -> Answer<PyCheckpoint> {
        Ok(self.made_of(self.checkpoint.split(&fusion.parse::<Fusion>()?)?))
    }

    /// The same tensors, those of floating point rounded to this type: to the nearest, ties to even.
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

    /// The tensors: what their headers say.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyTuple>> {
        let all = self.checkpoint.tensors().iter().map(|tensor| self.tensor(tensor));
        Ok(PyTuple::new(py, all.collect::<Answer<Vec<_>>>()?)?)
    }

    /// What the header of a tensor says.
    fn __getitem__(&self, #[pyo3(from_py_with = text)] name: &str) -> Answer<PyCheckpointTensor> {
        self.tensor(self.checkpoint.tensor(name)?)
    }

    /// The mesh that its shardings are over; None where its tensors are whole.
    #[getter]
    fn mesh(&self) -> Option<PyMesh> {
        self.checkpoint.mesh().cloned().map(PyMesh)
    }

    /// Whether a manifest has checksums of it, which `verify` compares.
    #[getter]
    fn has_checksums(&self) -> bool {
        self.checkpoint.has_checksums()
    }

    /// The free texts that its writer left for readers.
    #[getter]
    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (key, text) in self.checkpoint.metadata() {
            all.set_item(key, text)?;
        }
        Ok(all)
    }

    /// The names of what is in it and is no tensor.
    #[getter]
    fn others(&self) -> Vec<String> {
        self.checkpoint.objects().iter().map(|object| object.name().to_owned()).collect()
    }

    /// The bytes of an entry that is no tensor: what `torch.save` wrote. They are copied, never run.
    fn object<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> Answer<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.checkpoint.object(name))?;
        // Where there is no memory for them Python says so.
        Ok(PyBytes::new_with(py, bytes.len(), |room| {
            room.copy_from_slice(&bytes);
            Ok(())
        })?)
    }

    /// How many bytes of tensors have been read; headers do not count.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.checkpoint.bytes_read()
    }

    /// A tensor, or a region of it: a slice or a pair of start and stop for each dim. No byte more is read.
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
                format!("{name} has {} dims, and the region {}", shape.len(), given.len()),
            ));
        }
        let all = PySlice::full(py).into_any();
        let dims = shape.iter().enumerate().map(|(dim, &n)| interval(given.get(dim).unwrap_or(&all), n));
        let dims = dims.collect::<Answer<Vec<_>>>()?;
        let local: Vec<usize> = dims.iter().map(|list| list.iter().map(|one| one.len).sum()).collect();
        let region = Region { dims: dims.into_iter().map(|list| list.into_iter().collect()).collect() };
        self.made(py, dtype_of(&tensor.dtype())?, &local, || self.checkpoint.read(name, &region))
    }

    /// What a rank of a sharding holds of a tensor. No byte more is read.
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

    /// Reads everything, and compares all checksums and all replicas; what is wrong is listed.
    #[pyo3(signature = (*, progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> Answer<PyVerified> {
        let mut progress = Progress::of(py, progress)?;
        let made = py.detach(|| self.checkpoint.verify(&mut progress));
        Ok(PyVerified(progress.answer(made)?))
    }

    /// What it does not have in common with another; texts, files and shardings do not count.
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

    /// Writes it anew over another mesh: a file for each rank and `sharding.json` in the folder `out`, or whole tensors where `out` ends in
    /// `.safetensors`. It appears whole or not at all.
    ///
    /// `to` is a sharding for all tensors that have its dims, or a dict from patterns of names to placements, of which the first that
    /// matches wins. `format` is `"rank_files"`, `"dcp"` or `"dcp_safetensors"` for a distributed checkpoint of PyTorch, or
    /// `"safetensors"` for whole tensors in several files with an index. With `unchecked` nothing is compared or read back; `force`
    /// replaces the output of an earlier call; with `resume` it goes on where an earlier call for the same was killed; `progress` is
    /// called with bytes and all bytes.
    #[pyo3(signature = (mesh, to, out, *, tensor=None, format="rank_files", force=false, resume=false, unchecked=false, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn reshard(
        &self,
        py: Python<'_>,
        mesh: MeshArgument,
        to: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = text)] out: PathBuf,
        #[pyo3(from_py_with = text)] tensor: Option<String>,
        #[pyo3(from_py_with = text)] format: &str,
        force: bool,
        resume: bool,
        unchecked: bool,
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
                        "format is {other:?}, and should be \"rank_files\", \"dcp\", \"dcp_safetensors\" or \"safetensors\""
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
            let options = Options {
                to: for_all,
                tensor,
                format,
                force,
                resume,
                strict: false,
                unchecked,
                file_bytes: None,
                observer: Some(&mut progress),
            };
            reshard_checkpoint::reshard(&self.checkpoint, &mesh.0, &spec, &out, options)
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
            // Elements that share bytes are bytes.
            return arrays::of(py, DType::U8, &[bytes.len()], &bytes);
        }
        arrays::of(py, dtype, shape, &bytes)
    }
}

/// Opens what a path is: a file or a folder of safetensors, of this library, of PyTorch or of NumPy. Reads headers only.
///
/// The files of `dead` ranks of a folder of rank files are not read: what other ranks hold as well is read from those, and what
/// nobody else holds from the checkpoint `fill_from`.
#[pyfunction]
#[pyo3(signature = (path, *, dead=None, fill_from=None))]
fn open_checkpoint(
    py: Python<'_>,
    #[pyo3(from_py_with = text)] path: PathBuf,
    #[pyo3(from_py_with = listed_if_any)] dead: Option<Vec<usize>>,
    #[pyo3(from_py_with = text)] fill_from: Option<PathBuf>,
) -> Answer<PyCheckpoint> {
    PyCheckpoint::opened(py, path, dead, fill_from)
}

/// What a rank holds of the tensors of a checkpoint, by name: no byte more is read.
///
/// `to` is a sharding for all tensors that have its dims, or a dict from patterns of names to placements, of which the first that
/// matches wins. `names` are the tensors that are wanted, all where none are said.
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
    let opened = PyCheckpoint::opened(py, path, None, None)?;
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
