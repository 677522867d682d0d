//! Reports of the communication, computation and memory of a program.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_program::{CommCost, Pass, PerPass, RedistributionReport, Report, StepReport, ValueClass};

use crate::dtype::PyDType;
use crate::value::not_pickled;

/// The cost of communication: steps, bytes that the worst rank receives, and time by the cost model.
#[pyclass(frozen, eq, name = "CommCost", module = "reshard")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PyTraffic(CommCost);

#[pymethods]
impl PyTraffic {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyTraffic>("pickle the program, and call its report()")
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

    /// The number of steps in which ranks communicate.
    #[getter]
    fn steps(&self) -> usize {
        self.0.steps
    }

    /// Bytes that the worst rank receives.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.0.received_bytes
    }

    /// The time by the cost model, in microseconds.
    #[getter]
    fn cost_us(&self) -> f64 {
        self.0.cost_us
    }
}

/// A dict with one entry for each pass, by the name of the pass.
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

/// A value in a report: its class, and the pass that makes it.
#[pyclass(frozen, get_all, name = "ValueReport", module = "reshard")]
pub(crate) struct PyValueReport {
    /// Its name.
    name: String,
    /// The type of its elements.
    dtype: PyDType,
    /// The shape of the global tensor.
    shape: Vec<usize>,
    /// Its type as text.
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

/// A communicating step of a redistribution.
#[pyclass(frozen, get_all, name = "StepReport", module = "reshard")]
pub(crate) struct PyStepReport {
    /// The pass: `forward`, `backward` or `update`.
    pass_: &'static str,
    /// The kind of operation, such as `all_gather`.
    op: String,
    /// The axes over which it runs, or the meshes between which, such as `tp` or `ep on experts`.
    over: String,
    /// The ranks that communicate, as a layout.
    group: String,
    /// The cost of the step.
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

/// A redistribution in a report.
#[pyclass(frozen, name = "RedistributionReport", module = "reshard")]
pub(crate) struct PyMoveReport(RedistributionReport);

#[pymethods]
impl PyMoveReport {
    fn __repr__(&self) -> String {
        let RedistributionReport { value, consumer, texts: [from, to], .. } = &self.0;
        format!("<{value} at {consumer}: {from} -> {to}>")
    }

    /// The value that is redistributed.
    #[getter]
    fn value(&self) -> &str {
        &self.0.value
    }

    /// Its consumer: the first result of the op that uses the value so, or the result's name in the text.
    #[getter]
    fn consumer(&self) -> &str {
        &self.0.consumer
    }

    /// The name of the result.
    #[getter]
    fn result(&self) -> &str {
        &self.0.result
    }

    /// The type before, as text.
    #[getter]
    fn from_(&self) -> &str {
        &self.0.texts[0]
    }

    /// The type after, as text.
    #[getter]
    fn to(&self) -> &str {
        &self.0.texts[1]
    }

    /// The cost of its communication by pass; None in a pass in which nothing of it runs.
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.traffic, |traffic| traffic.map(PyTraffic))
    }

    /// Its communicating steps, in all passes.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.steps.iter().map(PyStepReport::of).collect::<Vec<_>>())
    }

    /// `True` if ranks communicate for it in any pass.
    #[getter]
    fn communicates(&self) -> bool {
        self.0.communicates()
    }
}

/// A report of a program's communication, computation and memory; `str` is the output of `reshard check`.
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

    /// The values, in the order of the program.
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

    /// The redistributions, in the order in which they are first executed.
    #[getter]
    fn redistributions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.redistributions.iter().cloned().map(PyMoveReport).collect::<Vec<_>>())
    }

    /// The communication of all redistributions, by pass.
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.traffic, |traffic| PyTraffic(*traffic))
    }

    /// The communication by axes, such as `tp` or `ep on experts`, and by pass.
    #[getter]
    fn by_axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (over, traffic) in &self.0.by_axes {
            all.set_item(over.to_string(), passes(py, traffic, |traffic| PyTraffic(*traffic))?)?;
        }
        Ok(all)
    }

    /// The operations of the rank that does most, by pass.
    #[getter]
    fn operations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.operations, |n| *n)
    }

    /// The time of the operations, with their reads and writes, in microseconds, by pass.
    #[getter]
    fn compute_us<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        passes(py, &self.0.compute_us, |us| *us)
    }

    /// The peak of live bytes.
    #[getter]
    fn peak_bytes(&self) -> u64 {
        self.0.peak.bytes
    }

    /// The value that is computed at the peak.
    #[getter]
    fn peak_at(&self) -> &str {
        &self.0.peak.at
    }

    /// The live bytes at the peak by class, and `staging`, the bytes that a redistribution needs in addition.
    #[getter]
    fn peak<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for class in ValueClass::ALL {
            all.set_item(class.as_str(), self.0.peak.of(class))?;
        }
        all.set_item("staging", self.0.peak.staging)?;
        Ok(all)
    }

    /// `True` if the program has an explicit backward pass.
    ///
    /// Else the report assumes the one that a gradient would add.
    #[getter]
    fn has_explicit_backward(&self) -> bool {
        self.0.has_explicit_backward
    }

    /// An upper bound of the time lost to the cheapest choices, in microseconds; 0 if the redistributions were given.
    #[getter]
    fn optimality_gap_us(&self) -> f64 {
        self.0.optimality_gap_us
    }

    /// The notes, such as `"dp computes the same on all 4 ranks"`.
    #[getter]
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.notes.iter().map(ToString::to_string))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTraffic>()?;
    module.add_class::<PyValueReport>()?;
    module.add_class::<PyStepReport>()?;
    module.add_class::<PyMoveReport>()?;
    module.add_class::<PyReport>()
}
