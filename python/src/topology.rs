//! Networks: the cost of communication steps.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyString;
use reshard_checkpoint::read_text;
use reshard_planner::{Level, Profile, Topology};

use crate::arguments::type_name;
use crate::failure::{Answer, Failure, refused};
use crate::numbers::number;
use crate::sequences::listed;
use crate::texts::{text, words};
use crate::value::hash_of;

/// The cost of transfers between ranks.
///
/// Examples are `Topology("h100")`, `Topology("launch=2;message=0.1;level=8:3:400;level=*:10:50")`, and
/// `Topology.load("mine.toml")` for a profile with measured times. Networks are equal if all steps cost the same;
/// the text of one with curves has a digest of them.
#[pyclass(frozen, eq, name = "Topology", module = "reshard")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyTopology(pub(crate) Topology);

impl PyTopology {
    /// Reads the text of a profile file.
    pub(crate) fn of_profile(text: &str) -> Result<PyTopology, reshard_planner::Error> {
        Ok(PyTopology(Topology::try_from(text.parse::<Profile>()?)?))
    }
}

/// Returns the profile of a network whose notation does not have its name, its source or its curves.
pub(crate) fn pickled_profile(topology: &Topology) -> Option<String> {
    let profile = topology.calibration()?.profile();
    let of_notation = topology.to_string().parse::<Topology>().map(Profile::from);
    (of_notation.as_ref() != Ok(profile)).then(|| profile.to_string())
}

#[pymethods]
impl PyTopology {
    #[new]
    fn new(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyTopology> {
        Ok(PyTopology(text.parse()?))
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }

    /// A network of a launch and a message time in us, and of levels from within: (ranks or None, latency in us, GB/s).
    #[staticmethod]
    fn of(
        #[pyo3(from_py_with = number)] launch_us: f64,
        #[pyo3(from_py_with = number)] message_us: f64,
        #[pyo3(from_py_with = listed)] levels: Vec<(Option<usize>, f64, f64)>,
    ) -> Answer<PyTopology> {
        let level = |(ranks, latency_us, gbytes_per_s)| Level { ranks, latency_us, gbytes_per_s };
        let levels: Vec<Level> = levels.into_iter().map(level).collect();
        Ok(PyTopology(Topology::new(launch_us, message_us, &levels)?))
    }

    /// A network of one level, on which all ranks are equivalent.
    #[staticmethod]
    fn uniform() -> PyTopology {
        PyTopology(Topology::uniform())
    }

    /// Nodes of eight H100: times measured inside of a node, and rates of NCCL's tuner between nodes.
    #[staticmethod]
    fn h100() -> PyTopology {
        PyTopology(Topology::h100())
    }

    /// Nodes of eight A100: times measured inside of a node, and nominal rates between nodes.
    #[staticmethod]
    fn a100() -> PyTopology {
        PyTopology(Topology::a100())
    }

    /// Nodes of eight B200: times measured inside of a node, and nominal rates between nodes.
    #[staticmethod]
    fn b200() -> PyTopology {
        PyTopology(Topology::b200())
    }

    /// Nodes of eight H100 with nominal rates.
    #[staticmethod]
    fn h100_lines() -> PyTopology {
        PyTopology(Topology::h100_lines())
    }

    /// Reads the file of a profile, as `reshard calibrate` writes it and `--topology` takes it.
    #[staticmethod]
    fn load(py: Python<'_>, #[pyo3(from_py_with = text)] path: PathBuf) -> Answer<PyTopology> {
        let shown = path.display();
        let read = || match read_text(&path) {
            Ok(content) => PyTopology::of_profile(&content)
                .map_err(|error| refused(error.code(), format!("the profile `{shown}`: {error}"))),
            Err(error) => Err(refused("io", format!("the profile `{shown}` cannot be read: {error}"))),
        };
        py.detach(read)
    }

    /// Reads the text of a profile file, the text of `to_toml`.
    #[staticmethod]
    fn from_toml(py: Python<'_>, #[pyo3(from_py_with = text)] text: &str) -> Answer<PyTopology> {
        Ok(py.detach(|| PyTopology::of_profile(text))?)
    }

    /// The whole profile as the text of a file: name, source, levels and curves.
    fn to_toml(&self) -> String {
        Profile::from(self.0.clone()).to_string()
    }

    /// The source of the times: `"h100: measured by .."` with the expected error, or `"uniform: nominal"`.
    #[getter]
    fn origin(&self) -> String {
        self.0.origin()
    }

    /// The network without curves: all steps are priced by the levels.
    fn lines(&self) -> PyTopology {
        PyTopology(self.0.lines())
    }

    /// The time to start a step, in microseconds.
    #[getter]
    fn launch_us(&self) -> f64 {
        self.0.launch_us()
    }

    /// The time of a message in addition to its bytes, in microseconds.
    #[getter]
    fn message_us(&self) -> f64 {
        self.0.message_us()
    }

    /// The levels from within: (ranks of a domain or None, latency in us, GB/s).
    #[getter]
    fn levels(&self) -> Vec<(Option<usize>, f64, f64)> {
        self.0.levels().iter().map(|level| (level.ranks, level.latency_us, level.gbytes_per_s)).collect()
    }

    /// The level that connects two ranks.
    fn level_of(
        &self,
        #[pyo3(from_py_with = number)] a: usize,
        #[pyo3(from_py_with = number)] b: usize,
    ) -> usize {
        self.0.level_of(a, b)
    }

    fn __repr__(&self) -> String {
        format!("Topology('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let class = py.get_type::<PyTopology>();
        Ok(match pickled_profile(&self.0) {
            Some(profile) => (class.getattr("from_toml")?, (profile,)),
            None => (class.into_any(), (self.0.to_string(),)),
        })
    }
}

/// A network: itself or its notation.
pub(crate) struct TopologyArgument(pub(crate) Topology);

impl<'py> FromPyObject<'_, 'py> for TopologyArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<TopologyArgument> {
        if let Ok(topology) = object.cast::<PyTopology>() {
            return Ok(TopologyArgument(topology.get().0.clone()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(TopologyArgument(words(&text)?.parse().map_err(Failure::from)?));
        }
        let name = type_name(&object);
        let message = format!("expected a Topology or a notation such as 'h100', found {name}");
        Err(pyo3::exceptions::PyTypeError::new_err(message))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTopology>()
}
