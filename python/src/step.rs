//! Steps of a plan, and the phases of a rank in them.

use std::sync::Arc;

use pyo3::prelude::*;
use reshard_planner::{Message, Phase, Plan, Step};

use crate::failure::Answer;
use crate::group::PyGroupPattern;
use crate::numbers::number;
use crate::sharding::PySharding;
use crate::value::not_pickled;

/// One operation of a plan.
#[pyclass(frozen, name = "Step", module = "reshard")]
pub(crate) struct PyStep {
    plan: Arc<Plan>,
    index: usize,
}

/// The steps of a plan.
pub(crate) fn steps(plan: &Arc<Plan>) -> Vec<PyStep> {
    (0..plan.steps().len()).map(|index| PyStep { plan: Arc::clone(plan), index }).collect()
}

impl PyStep {
    fn step(&self) -> &Step {
        &self.plan.steps()[self.index]
    }
}

#[pymethods]
impl PyStep {
    /// The operation: slice, all_gather, reduce_scatter, all_reduce, all_to_all, exchange or zero_fill.
    #[getter]
    fn op(&self) -> &'static str {
        self.step().op().as_str()
    }

    /// The axes, or parts of axes, that it runs over.
    #[getter]
    fn axes(&self) -> Vec<String> {
        self.step().axis_names()
    }

    /// The ranks that communicate.
    #[getter]
    fn group(&self) -> PyGroupPattern {
        PyGroupPattern(self.step().group.clone())
    }

    /// The sharding before the step.
    #[getter]
    fn before(&self) -> PySharding {
        PySharding((*self.step().before).clone())
    }

    /// The sharding after the step.
    #[getter]
    fn after(&self) -> PySharding {
        PySharding((*self.step().after).clone())
    }

    /// The most bytes that any rank receives.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.step().received_bytes
    }

    /// The most bytes that any rank sends.
    #[getter]
    fn sent_bytes(&self) -> u64 {
        self.step().sent_bytes
    }

    /// The most bytes that any rank holds: the operand of the step, its result, and its staging.
    #[getter]
    fn peak_bytes(&self) -> u64 {
        self.step().peak_bytes
    }

    /// Modelled time in microseconds, of the worst rank.
    #[getter]
    fn cost_us(&self) -> f64 {
        self.step().cost_us
    }

    /// `True` if ranks communicate in the step.
    #[getter]
    fn communicates(&self) -> bool {
        self.step().op().communicates()
    }

    /// `True` if it is a step between the cotangent shardings, executed as the transpose of another.
    #[getter]
    fn is_transposed(&self) -> bool {
        self.step().is_transposed()
    }

    /// The number of exchanges of the step: two for an all-reduce in chunks, else one.
    #[getter]
    fn exchanges(&self) -> usize {
        self.step().exchanges()
    }

    /// The phases of one rank: one, two for an all-reduce in chunks, none for a rank outside the group.
    fn phases(&self, py: Python<'_>, #[pyo3(from_py_with = number)] rank: usize) -> Answer<Vec<PyPhase>> {
        let phases = py.detach(|| self.step().phases(rank))?;
        Ok(phases.into_iter().map(|phase| PyPhase { step: self.index, phase }).collect())
    }

    fn __repr__(&self) -> String {
        format!("<Step {}>", self.step())
    }

    fn __str__(&self) -> String {
        self.step().to_string()
    }
}

/// The transfers of one rank in one phase of a step.
///
/// Offsets and strides count elements of row-major, dense local buffers.
#[pyclass(frozen, eq, name = "Phase", module = "reshard")]
#[derive(PartialEq)]
pub(crate) struct PyPhase {
    pub(crate) step: usize,
    pub(crate) phase: Phase,
}

fn messages(messages: &[Message]) -> Vec<PyMessage> {
    messages.iter().cloned().map(PyMessage).collect()
}

#[pymethods]
impl PyPhase {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyPhase>("pickle the plan, and call the same method on it")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The index of its step.
    #[getter]
    fn step(&self) -> usize {
        self.step
    }

    /// The elements of this rank's buffer before the phase.
    #[getter]
    fn source_len(&self) -> usize {
        self.phase.source_len
    }

    /// The elements of this rank's buffer after the phase.
    #[getter]
    fn target_len(&self) -> usize {
        self.phase.target_len
    }

    /// The reduction with whose identity the target is first filled, or None.
    #[getter]
    fn fill_identity(&self) -> Option<String> {
        self.phase.fill_identity.map(|op| op.to_string())
    }

    /// The messages written to this rank's target; one from itself is a local copy.
    #[getter]
    fn receives(&self) -> Vec<PyMessage> {
        messages(&self.phase.receives)
    }

    /// The messages that other ranks read from this rank's source.
    #[getter]
    fn sends(&self) -> Vec<PyMessage> {
        messages(&self.phase.sends)
    }

    /// The op that combines received messages, in the order listed, and the divisor of the result.
    ///
    /// None if there is none.
    #[getter]
    fn reduce(&self) -> Option<(String, usize)> {
        self.phase.reduce.map(|reduce| (reduce.op.to_string(), reduce.divisor))
    }

    /// The ranks that take part in the phase, ascending.
    #[getter]
    fn members(&self) -> Vec<usize> {
        self.phase.members.clone()
    }

    fn __repr__(&self) -> String {
        let phase = &self.phase;
        let peers =
            |messages: &[Message]| -> Vec<usize> { messages.iter().map(|message| message.peer).collect() };
        format!(
            "<Phase of step {}: {} elements to {}, receives from {:?}, sends to {:?}>",
            self.step,
            phase.source_len,
            phase.target_len,
            peers(&phase.receives),
            peers(&phase.sends)
        )
    }
}

/// The blocks that one rank sends to another.
#[pyclass(frozen, eq, name = "Message", module = "reshard")]
#[derive(PartialEq)]
pub(crate) struct PyMessage(pub(crate) Message);

/// A block: source offset, target offset, and modes (extent, source stride, target stride), leftmost fastest.
type Block = (usize, usize, Vec<(i64, i64, i64)>);

#[pymethods]
impl PyMessage {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyMessage>("pickle the plan, and call the same method on it")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The other rank.
    #[getter]
    fn peer(&self) -> usize {
        self.0.peer
    }

    /// The number of elements.
    #[getter]
    fn numel(&self) -> usize {
        self.0.numel()
    }

    /// The blocks of the message.
    ///
    /// Each is a source offset, a target offset, and modes (extent, source stride, target stride), leftmost
    /// fastest.
    #[getter]
    fn blocks(&self) -> Vec<Block> {
        let block = |block: &reshard_planner::Block| {
            let modes = block.modes.iter().map(|mode| (mode.extent, mode.stride.0, mode.stride.1)).collect();
            (block.source_offset, block.target_offset, modes)
        };
        self.0.blocks.iter().map(block).collect()
    }

    fn __repr__(&self) -> String {
        format!("<Message of {} elements, peer {}>", self.0.numel(), self.0.peer)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyStep>()?;
    module.add_class::<PyPhase>()?;
    module.add_class::<PyMessage>()
}
