//! Ops: a call of the table, or of a rule, on inputs of given shapes.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_ops::rules::{Op, OpCall, OpTable};

use crate::call::{arguments, call};
use crate::failure::{Answer, refused};
use crate::numbers::number;
use crate::sequences::{listed, listed_twice, listed_twice_if_any};
use crate::table::{PyTable, standard, table_or_standard};
use crate::texts::text;
use crate::value::Reduced;

/// A call of an op on inputs of some shapes, such as `Op("mm", [(64, 32), (32, 16)])` or `Op("mk,kn->mn", ...)`.
///
/// Arguments are in the text, `Op("softmax(dim=1)", [(8, 6)])`, or are keywords, `Op("softmax", [(8, 6)], dim=1)`.
#[pyclass(frozen, eq, hash, name = "Op", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyOp {
    pub(crate) op: Op,
    /// The call; `None` for a backward op.
    call: Option<OpCall>,
    table: Arc<OpTable>,
}

impl PartialEq for PyOp {
    fn eq(&self, other: &PyOp) -> bool {
        self.op == other.op && self.call == other.call
    }
}

impl Eq for PyOp {}

impl std::hash::Hash for PyOp {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.op.hash(state);
    }
}

/// Converts shapes to Python tuples.
pub(crate) fn shapes<'py>(py: Python<'py>, shapes: &[Vec<usize>]) -> PyResult<Bound<'py, PyTuple>> {
    let each = shapes.iter().map(|shape| PyTuple::new(py, shape)).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, each)
}

impl PyOp {
    /// A call of the standard table, on inputs of these shapes.
    pub(crate) fn standard(text: &str, inputs: &[&[usize]]) -> Answer<PyOp> {
        let (call, table) = (call(text, None)?, standard());
        Ok(PyOp { op: table.op(&call, inputs)?, call: Some(call), table })
    }

    /// Returns the call, or an error for a backward op, which has none.
    fn called(&self) -> Answer<&OpCall> {
        let reason = || format!("{} is a backward op; use its forward op", self.op.name());
        self.call.as_ref().ok_or_else(|| refused("unsupported", reason()))
    }

    fn inputs_as_slices(&self) -> Vec<&[usize]> {
        self.op.inputs().iter().map(Vec::as_slice).collect()
    }
}

#[pymethods]
impl PyOp {
    #[new]
    #[pyo3(signature = (op, shapes, /, *, table=None, outputs=None, **arguments))]
    fn new(
        #[pyo3(from_py_with = text)] op: &str,
        #[pyo3(from_py_with = listed_twice)] shapes: Vec<Vec<usize>>,
        table: Option<&PyTable>,
        #[pyo3(from_py_with = listed_twice_if_any)] outputs: Option<Vec<Vec<usize>>>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Answer<PyOp> {
        let (call, table) = (call(op, arguments)?, table_or_standard(table));
        let inputs: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let op = match outputs {
            None => table.op(&call, &inputs)?,
            Some(outputs) => {
                table.op_to(&call, &inputs, &outputs.iter().map(Vec::as_slice).collect::<Vec<_>>())?
            }
        };
        Ok(PyOp { op, call: Some(call), table })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let inputs = shapes(py, self.op.inputs())?.repr()?;
        match &self.call {
            Some(call) if Arc::ptr_eq(&self.table, &standard()) => Ok(format!("Op('{call}', {inputs})")),
            Some(_) | None => Ok(format!("<Op {} on {inputs}>", self.__str__())),
        }
    }

    fn __str__(&self) -> String {
        self.call.as_ref().map_or_else(|| self.op.name().to_owned(), OpCall::to_string)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Answer<Reduced<'py, (String, Bound<'py, PyTuple>)>> {
        if !Arc::ptr_eq(&self.table, &standard()) {
            let reason = format!("{} is an op of a custom table and cannot be pickled", self.op.name());
            return Err(refused("unsupported", reason));
        }
        Ok((py.get_type::<PyOp>(), (self.called()?.to_string(), shapes(py, self.op.inputs())?)))
    }

    /// The name; for a rule its text.
    #[getter]
    fn name(&self) -> &str {
        self.call.as_ref().and_then(OpCall::name).unwrap_or_else(|| self.op.name())
    }

    /// The arguments that are given, by name.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.call.as_ref().map_or_else(|| Ok(PyDict::new(py)), |call| arguments(py, call))
    }

    /// The shapes of the inputs.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shapes(py, self.op.inputs())
    }

    /// The shapes of the outputs.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shapes(py, self.op.outputs())
    }

    /// The rule on these shapes, such as `"ab->ab {b: replicate}"`; None of a view.
    #[getter]
    fn rule(&self) -> Option<String> {
        self.op.rule().map(ToString::to_string)
    }

    /// The placements of the operands along one mesh axis, such as `"S(m0),R -> S(m0)"`; empty for a view.
    #[getter]
    fn strategies(&self) -> Vec<String> {
        self.op.strategies().iter().map(ToString::to_string).collect()
    }

    /// For each strategy `True` if the op must know the region of the global tensor that a rank holds.
    #[getter]
    fn regions(&self) -> Vec<bool> {
        self.op.regions()
    }

    /// `True` if each element of its results depends only on the elements of its inputs at the same index.
    #[getter]
    fn is_elementwise(&self) -> bool {
        self.op.is_elementwise()
    }

    /// `True` if it only regroups digits: its mesh axes then are not independent.
    #[getter]
    fn is_view(&self) -> bool {
        self.op.is_view()
    }

    /// The number of operations on global tensors.
    #[getter]
    fn operations(&self) -> f64 {
        self.op.operations()
    }

    /// The inputs that are written in place, each with the output that is stored there.
    #[getter]
    fn in_place_inputs(&self) -> Vec<(usize, usize)> {
        self.op.in_place_inputs()
    }

    /// The dims of an input that appear unchanged in all outputs, each with its index in every output.
    fn batch_dims(&self, #[pyo3(from_py_with = number)] input: usize) -> Answer<Vec<(usize, Vec<usize>)>> {
        if input < self.op.inputs().len() {
            return Ok(self.op.batch_dims(input));
        }
        let reason =
            format!("there is no input {input}: {} has {} inputs", self.op.name(), self.op.inputs().len());
        Err(refused("rule", reason))
    }

    /// The possible backward strategies of every strategy: from output gradients to input gradients.
    fn transposes(&self) -> Vec<(String, Vec<String>)> {
        let of = |strategy: &reshard_ops::rules::Strategy| {
            let backward = strategy.transposes().iter().map(ToString::to_string).collect();
            (strategy.to_string(), backward)
        };
        self.op.strategies().iter().map(of).collect()
    }

    /// The formula of its gradient, a line for each call of an op; an error if it has none.
    fn gradient(&self) -> Answer<Vec<String>> {
        Ok(self.table.gradient(self.called()?, &self.inputs_as_slices())?.lines())
    }

    /// The backward as an op: of inputs and outputs that are saved, and the gradients of the outputs, to those of the inputs.
    #[pyo3(signature = (inputs=vec![], outputs=vec![]))]
    fn vjp(
        &self,
        #[pyo3(from_py_with = listed)] inputs: Vec<usize>,
        #[pyo3(from_py_with = listed)] outputs: Vec<usize>,
    ) -> Answer<PyOp> {
        let op = self.op.vjp(&inputs, &outputs)?;
        Ok(PyOp { op, call: None, table: Arc::clone(&self.table) })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOp>()
}
