//! What a program communicates, computes and holds.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_program::{CommCost, Pass, PerPass, RedistributionReport, Report, StepReport, ValueClass};

use crate::dtype::PyDType;
use crate::value::not_pickled;

/// What communication is and costs: steps, bytes that the worst rank receives, and time by the cost model.
#[pyclass(frozen, eq, name = "Traffic", module = "reshard")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PyTraffic(CommCost);

#[pymethods]
impl PyTraffic {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyTraffic>("pickle the program, and call its report() again")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        let CommCost { steps, received_bytes, cost_us } = self.0;
        format!("<{steps} steps, {received_bytes} bytes, {cost_us:.1} us>")
    }

    /// In how many steps ranks talk to each other.
    #[getter]
    fn steps(&self) -> usize {
        self.0.steps
    }

    /// Bytes that the worst rank receives.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.0.received_bytes
    }

    /// The time that the cost model gives it, in microseconds.
    #[getter]
    fn cost_us(&self) -> f64 {
        self.0.cost_us
    }
}

/// One of something for each pass, by the names of the passes.
fn passes<'py, T, U: IntoPyObject<'py>>(
    py: Python<'py>,
    all: &PerPass<T>,
    each: impl Fn(&T) -> U,
) -> PyResult<Bound<'py, PyDict>> {
    let by_name = PyDict::new(py);
    for pass in Pass::ALL {
        by_name.set_item(pass.as_str(), each(all.of(pass)))?;
    }
    Ok(by_name)
}

/// A value in a report: what it is for, and when it is made.
#[pyclass(frozen, get_all, name = "ValueReport", module = "reshard")]
pub(crate) struct PyValueReport {
    /// Its name.
    name: String,
    /// The type of its elements.
    dtype: PyDType,
    /// The shape of the whole.
    shape: Vec<usize>,
    /// Its type as the text says it.
    r#type: String,
    /// `parameter`, `state`, `input`, `activation` or `gradient`.
    class_: &'static str,
    /// `forward`, `backward` or `update`.
    pass_: &'static str,
}

#[pymethods]
impl PyValueReport {
    fn __repr__(&self) -> String {
        format!("<{} {} {}>", self.class_, self.name, self.r#type)
    }
}

/// A communicating step of a move.
#[pyclass(frozen, get_all, name = "StepReport", module = "reshard")]
pub(crate) struct PyStepReport {
    /// When: `forward`, `backward` or `update`.
    pass_: &'static str,
    /// What kind of operation, such as `all_gather`.
    op: String,
    /// The axes over which it runs, or the meshes between which, such as `tp` or `ep on experts`.
    over: String,
    /// The ranks that talk to each other, as a layout.
    group: String,
    /// What it costs.
    traffic: PyTraffic,
}

#[pymethods]
impl PyStepReport {
    fn __repr__(&self) -> String {
        let traffic = self.traffic.__repr__();
        format!("<{} {} over {} ({}): {}", self.pass_, self.op, self.over, self.group, &traffic[1..])
    }
}

impl PyStepReport {
    fn of(step: &StepReport) -> PyStepReport {
        PyStepReport {
            pass_: step.pass.as_str(),
            op: step.op.to_string(),
            over: step.over.to_string(),
            group: step.group.clone(),
            traffic: PyTraffic(step.traffic),
        }
    }
}

/// A move in a report.
#[pyclass(frozen, name = "MoveReport", module = "reshard")]
pub(crate) struct PyMoveReport(RedistributionReport);

#[pymethods]
impl PyMoveReport {
    fn __repr__(&self) -> String {
        let RedistributionReport { value, consumer, texts: [from, to], .. } = &self.0;
        format!("<{value} at {consumer}: {from} -> {to}>")
    }

    /// The value that is moved.
    #[getter]
    fn value(&self) -> &str {
        &self.0.value
    }

    /// Where: the first result of the op that takes it so, or what the text calls the moved value.
    #[getter]
    fn at(&self) -> &str {
        &self.0.consumer
    }

    /// The name of what is made.
    #[getter]
    fn made(&self) -> &str {
        &self.0.result
    }

    /// What it was, as the text says it.
    #[getter]
    fn from_(&self) -> &str {
        &self.0.texts[0]
    }

    /// What it becomes, as the text says it.
    #[getter]
    fn to(&self) -> &str {
        &self.0.texts[1]
    }

    /// What it communicates by pass; None in a pass in which nothing of it runs.
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.traffic, |traffic| traffic.map(PyTraffic))
    }

    /// Its communicating steps, in all passes.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.steps.iter().map(PyStepReport::of).collect::<Vec<_>>())
    }

    /// Whether ranks talk to each other for it in any pass.
    #[getter]
    fn communicates(&self) -> bool {
        self.0.communicates()
    }
}

/// What a program communicates, computes and holds; `str` is what `reshard check` prints.
#[pyclass(frozen, name = "Report", module = "reshard")]
pub(crate) struct PyReport(pub(crate) Report);

#[pymethods]
impl PyReport {
    fn __repr__(&self) -> String {
        let Report { values, redistributions, peak, .. } = &self.0;
        format!(
            "<Report of {} values and {} redistributions, peak {} bytes>",
            values.len(),
            redistributions.len(),
            peak.bytes
        )
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The values, in the order in which they are made.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let value = |value: &reshard_program::ValueReport| PyValueReport {
            name: value.name.clone(),
            dtype: PyDType(value.dtype),
            shape: value.ty.value.shape().to_vec(),
            r#type: value.text.clone(),
            class_: value.class.as_str(),
            pass_: value.pass.as_str(),
        };
        PyTuple::new(py, self.0.values.iter().map(value).collect::<Vec<_>>())
    }

    /// The moves, in the order in which they are first carried out.
    #[getter]
    fn moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.redistributions.iter().cloned().map(PyMoveReport).collect::<Vec<_>>())
    }

    /// What all moves communicate, by pass.
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.traffic, |traffic| PyTraffic(*traffic))
    }

    /// What the steps over some axes communicate, by these, such as `tp` or `ep on experts`, and by pass.
    #[getter]
    fn by_axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (over, traffic) in &self.0.by_axes {
            all.set_item(over.to_string(), passes(py, traffic, |traffic| PyTraffic(*traffic))?)?;
        }
        Ok(all)
    }

    /// Operations of the rank with most of them, by pass.
    #[getter]
    fn operations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.operations, |n| *n)
    }

    /// The time of these, and of what they read and write, in microseconds, by pass.
    #[getter]
    fn compute_us<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.compute_us, |us| *us)
    }

    /// The most bytes at hand at a time.
    #[getter]
    fn peak_bytes(&self) -> u64 {
        self.0.peak.bytes
    }

    /// What is made at that moment.
    #[getter]
    fn peak_at(&self) -> &str {
        &self.0.peak.at
    }

    /// The bytes at hand at that moment by class, and `staging`, which a move holds beyond source and target.
    #[getter]
    fn peak<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for class in ValueClass::ALL {
            all.set_item(class.as_str(), self.0.peak.of(class))?;
        }
        all.set_item("staging", self.0.peak.staging)?;
        Ok(all)
    }

    /// Whether backward is written; where it is not, it is what a gradient would do.
    #[getter]
    fn gradients_written(&self) -> bool {
        self.0.has_explicit_backward
    }

    /// By how much the choices may cost more than the cheapest, in microseconds.
    #[getter]
    fn gap_us(&self) -> f64 {
        self.0.gap_us
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTraffic>()?;
    module.add_class::<PyValueReport>()?;
    module.add_class::<PyStepReport>()?;
    module.add_class::<PyMoveReport>()?;
    module.add_class::<PyReport>()
}
