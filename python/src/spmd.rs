//! A plan as one program of a framework's calls for all ranks at once, for frameworks that trace.

use std::sync::Arc;

use pyo3::prelude::*;
use reshard_collectives::calls::{self, SpmdCall, SpmdProgram};

use crate::calls::{PyRankCalls, name, views};
use crate::dtype::PyDType;
use crate::failure::{Answer, Failure};
use crate::layout::PyLayout;
use crate::numbers::number;
use crate::value::hash_of;
use crate::value::not_pickled;
use crate::view::PyView;

/// One exchange of all ranks.
#[pyclass(frozen, name = "SpmdCall", module = "reshard")]
pub(crate) struct PySpmdCall {
    program: Arc<SpmdProgram>,
    index: usize,
}

impl PySpmdCall {
    fn get(&self) -> &SpmdCall {
        &self.program.calls()[self.index]
    }

    fn table(&self, of: impl Fn(&SpmdCall) -> &calls::RankTable) -> Vec<Vec<usize>> {
        (0..self.program.ranks().len()).map(|place| of(self.get()).row(place).to_vec()).collect()
    }
}

#[pymethods]
impl PySpmdCall {
    /// The step of the plan.
    #[getter]
    fn step(&self) -> usize {
        self.get().step
    }

    /// The communication pattern: local, all_gather, reduce_scatter, all_reduce, all_to_all or permute.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.get().pattern {
            calls::CommPattern::Local => "local",
            calls::CommPattern::AllGather { .. } => "all_gather",
            calls::CommPattern::ReduceScatter { .. } => "reduce_scatter",
            calls::CommPattern::AllReduce { .. } => "all_reduce",
            calls::CommPattern::AllToAll { .. } => "all_to_all",
            calls::CommPattern::Permute { .. } => "permute",
        }
    }

    /// The groups of a collective: lists of ranks, each rank in one; empty for a permute.
    #[getter]
    fn groups(&self) -> Vec<Vec<usize>> {
        match &self.get().pattern {
            calls::CommPattern::AllGather { groups }
            | calls::CommPattern::ReduceScatter { groups, .. }
            | calls::CommPattern::AllReduce { groups, .. }
            | calls::CommPattern::AllToAll { groups } => groups.clone(),
            calls::CommPattern::Local | calls::CommPattern::Permute { .. } => Vec::new(),
        }
    }

    /// The (from, to) pairs of each round of a permute; empty for a collective.
    #[getter]
    fn rounds(&self) -> Vec<Vec<(usize, usize)>> {
        match &self.get().pattern {
            calls::CommPattern::Permute { rounds } => rounds.clone(),
            calls::CommPattern::Local
            | calls::CommPattern::AllGather { .. }
            | calls::CommPattern::ReduceScatter { .. }
            | calls::CommPattern::AllReduce { .. }
            | calls::CommPattern::AllToAll { .. } => Vec::new(),
        }
    }

    /// The op that combines two partial values, if the framework reduces.
    #[getter]
    fn op(&self) -> Option<String> {
        match &self.get().pattern {
            calls::CommPattern::ReduceScatter { op, .. } | calls::CommPattern::AllReduce { op, .. } => {
                Some(name(*op))
            }
            calls::CommPattern::Local
            | calls::CommPattern::AllGather { .. }
            | calls::CommPattern::AllToAll { .. }
            | calls::CommPattern::Permute { .. } => None,
        }
    }

    /// The loops of a block in the source, leftmost innermost: the same for all blocks of all ranks.
    #[getter]
    fn block(&self) -> PyLayout {
        PyLayout(self.get().block.clone())
    }

    /// For each rank the offsets of its blocks in its source, in the order of members or of rounds.
    #[getter]
    fn source_offsets(&self) -> Vec<Vec<usize>> {
        self.table(|call| &call.source_offsets)
    }

    /// The loops of a block in the target.
    #[getter]
    fn target_block(&self) -> PyLayout {
        PyLayout(self.get().target_block.clone())
    }

    /// The offsets of blocks in the target, ascending: the same for all ranks.
    #[getter]
    fn target_offsets(&self) -> Vec<usize> {
        self.get().target_offsets.clone()
    }

    /// The views of the target, one for each block.
    #[getter]
    fn unpack(&self) -> Vec<PyView> {
        views(&self.get().unpack)
    }

    /// For each rank and target block the index of the received block that is written there.
    #[getter]
    fn arrival_order(&self) -> Vec<Vec<usize>> {
        self.table(|call| &call.arrival_order)
    }

    /// The op that combines received operands, if their receiver reduces them.
    #[getter]
    fn combine(&self) -> Option<String> {
        self.get().combine.map(name)
    }

    /// The op with whose identity the target is filled before anything is written to it, or None.
    #[getter]
    fn fill(&self) -> Option<String> {
        self.get().fill.map(name)
    }

    /// The divisor of the target after all blocks were written.
    #[getter]
    fn divisor(&self) -> usize {
        self.get().divisor
    }

    /// Elements of the buffer before.
    #[getter]
    fn source_len(&self) -> usize {
        self.get().source_len
    }

    /// Elements of the buffer after.
    #[getter]
    fn target_len(&self) -> usize {
        self.get().target_len
    }

    fn __repr__(&self) -> String {
        format!("<SpmdCall {} of step {}>", self.kind(), self.step())
    }
}

/// A plan as one program for all ranks, with tables of ranks x peers where they differ.
#[pyclass(frozen, name = "SpmdProgram", module = "reshard")]
pub(crate) struct PySpmd(pub(crate) Arc<SpmdProgram>);

#[pymethods]
impl PySpmd {
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PySpmd>("pickle the plan, and call the same method on it")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The ranks, ascending; tables have a row for each.
    #[getter]
    fn ranks(&self) -> Vec<usize> {
        self.0.ranks().to_vec()
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// The exchanges in order: each reads what the one before has written.
    #[getter]
    fn calls(&self) -> Vec<PySpmdCall> {
        (0..self.0.calls().len()).map(|index| PySpmdCall { program: Arc::clone(&self.0), index }).collect()
    }

    /// The calls of one rank.
    fn at(&self, #[pyo3(from_py_with = number)] rank: usize) -> Answer<PyRankCalls> {
        Ok(PyRankCalls::new(self.0.at(rank).map_err(Failure::from)?))
    }

    fn __eq__(&self, other: &PySpmd) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<SpmdProgram of {} ranks: {} calls>", self.0.ranks().len(), self.0.calls().len())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySpmdCall>()?;
    module.add_class::<PySpmd>()
}
