//! A plan as a framework's calls between strided views: of one rank, and of all ranks at once.

use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyDict, PyList};
use reshard_collectives::calls::{self, Call, Offers, RankCall, RankCalls, Spmd, SpmdCall, View};
use reshard_kernels::CombineOp;

use crate::dtype::PyDType;
use crate::failure::{Answer, Failure};
use crate::layout::PyLayout;
use crate::sequences::listed;
use crate::view::PyView;

fn views(list: &[View]) -> Vec<PyView> {
    list.iter().cloned().map(PyView).collect()
}

/// An op, and of each term where it begins and which views it has.
type Combined = (String, Vec<(usize, usize, usize)>);

fn name(op: CombineOp) -> String {
    op.to_string()
}

/// The groups that a framework has made, as (name, members in the framework's order); none is made by itself.
#[pyclass(frozen, name = "Offers", module = "reshard")]
#[derive(Clone)]
pub(crate) struct PyOffers(pub(crate) Arc<Offers>);

#[pymethods]
impl PyOffers {
    #[new]
    #[pyo3(signature = (groups=None))]
    fn new(groups: Option<&Bound<'_, PyAny>>) -> Answer<PyOffers> {
        let groups: Vec<(String, Vec<usize>)> = match groups {
            None => Vec::new(),
            Some(groups) => match groups.cast::<PyDict>() {
                Ok(by_name) => {
                    by_name.iter().map(|(k, v)| Ok((k.extract()?, listed(&v)?))).collect::<PyResult<_>>()?
                }
                Err(_) => listed::<(String, Bound<'_, PyAny>)>(groups)?
                    .into_iter()
                    .map(|(name, members)| Ok((name, listed(&members)?)))
                    .collect::<PyResult<_>>()?,
            },
        };
        Ok(PyOffers(Arc::new(Offers::new(groups)?)))
    }

    /// The groups as (name, members).
    #[getter]
    fn groups(&self) -> Vec<(String, Vec<usize>)> {
        self.0.iter().map(|offer| (offer.name().to_owned(), offer.members().to_vec())).collect()
    }

    fn __len__(&self) -> usize {
        self.0.iter().len()
    }

    fn __eq__(&self, other: &PyOffers) -> bool {
        self.groups() == other.groups()
    }

    fn __hash__(&self) -> u64 {
        crate::value::hash_of(self.groups())
    }

    fn __repr__(&self) -> String {
        let groups: Vec<String> =
            self.0.iter().map(|o| format!("({:?}, {:?})", o.name(), o.members())).collect();
        format!("Offers([{}])", groups.join(", "))
    }
}

/// One call of one rank: what is packed, what is called, and where it lands.
#[pyclass(frozen, name = "RankCall", module = "reshard")]
pub(crate) struct PyRankCall {
    calls: Arc<Vec<RankCall>>,
    index: usize,
}

impl PyRankCall {
    fn get(&self) -> &RankCall {
        &self.calls[self.index]
    }
}

#[pymethods]
impl PyRankCall {
    /// The step of the plan.
    #[getter]
    fn step(&self) -> usize {
        self.get().step
    }

    /// What is called: local, all_gather, reduce_scatter, all_reduce, all_to_all or messages.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.get().call {
            Call::Local => "local",
            Call::AllGather { .. } => "all_gather",
            Call::ReduceScatter { .. } => "reduce_scatter",
            Call::AllReduce { .. } => "all_reduce",
            Call::AllToAll { .. } => "all_to_all",
            Call::Messages { .. } => "messages",
        }
    }

    /// The group whose members make this call together, as (name, members), or None.
    #[getter]
    fn group(&self) -> Option<(String, Vec<usize>)> {
        self.get().call.group().map(|offer| (offer.name().to_owned(), offer.members().to_vec()))
    }

    /// How the framework combines two terms, where it reduces.
    #[getter]
    fn op(&self) -> Option<String> {
        match &self.get().call {
            Call::ReduceScatter { op, .. } | Call::AllReduce { op, .. } => Some(name(*op)),
            Call::Local | Call::AllGather { .. } | Call::AllToAll { .. } | Call::Messages { .. } => None,
        }
    }

    /// What is sent, as (rank, elements): to every member of an all-to-all, none included, or to the ranks of messages.
    #[getter]
    fn sends(&self) -> Vec<(usize, usize)> {
        self.exchanged(|sends, _| sends)
    }

    /// What is received, likewise.
    #[getter]
    fn receives(&self) -> Vec<(usize, usize)> {
        self.exchanged(|_, receives| receives)
    }

    /// What is read of the source.
    #[getter]
    fn pack(&self) -> Vec<PyView> {
        views(&self.get().pack)
    }

    /// What is written of the target.
    #[getter]
    fn unpack(&self) -> Vec<PyView> {
        views(&self.get().unpack)
    }

    /// How terms that were received one by one combine: the op, and for each term in the order of combining (where it begins in what was
    /// received, the first and one past the last of its views of `unpack`); or None.
    #[getter]
    fn combine(&self) -> Option<Combined> {
        let combine = self.get().combine.as_ref()?;
        let terms = combine.terms.iter().map(|term| (term.start, term.views.start, term.views.end));
        Some((name(combine.op), terms.collect()))
    }

    /// The op with whose identity the target is filled before anything lands, if it is.
    #[getter]
    fn fill(&self) -> Option<String> {
        self.get().fill.map(name)
    }

    /// What the target is divided by when all has landed.
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

    /// Elements that are packed.
    #[getter]
    fn packed_len(&self) -> usize {
        self.get().packed_len()
    }

    /// Elements that the call brings.
    #[getter]
    fn received_len(&self) -> usize {
        self.get().received_len()
    }

    /// Whether the rank is there only because all members of a group must be: nothing moves, and the buffer stays.
    #[getter]
    fn attends(&self) -> bool {
        self.get().attends()
    }

    fn __eq__(&self, other: &PyRankCall) -> bool {
        self.get() == other.get()
    }

    fn __hash__(&self) -> u64 {
        crate::value::hash_of(self.get().to_string())
    }

    fn __repr__(&self) -> String {
        format!("<RankCall {}>", self.get())
    }

    fn __str__(&self) -> String {
        self.get().to_string()
    }
}

impl PyRankCall {
    fn exchanged(
        &self,
        of: impl Fn(Vec<(usize, usize)>, Vec<(usize, usize)>) -> Vec<(usize, usize)>,
    ) -> Vec<(usize, usize)> {
        match &self.get().call {
            Call::AllToAll { group, sends, receives } => {
                let each =
                    |counts: &[usize]| group.members().iter().copied().zip(counts.iter().copied()).collect();
                of(each(sends), each(receives))
            }
            Call::Messages { sends, receives } => of(sends.clone(), receives.clone()),
            Call::Local | Call::AllGather { .. } | Call::ReduceScatter { .. } | Call::AllReduce { .. } => {
                Vec::new()
            }
        }
    }
}

/// All calls of one rank, in order: each reads what the one before has written.
#[pyclass(frozen, name = "RankCalls", module = "reshard")]
pub(crate) struct PyRankCalls {
    all: RankCalls,
    calls: Arc<Vec<RankCall>>,
}

impl PyRankCalls {
    pub(crate) fn new(all: RankCalls) -> PyRankCalls {
        PyRankCalls { calls: Arc::new(all.iter().cloned().collect()), all }
    }
}

#[pymethods]
impl PyRankCalls {
    /// The rank.
    #[getter]
    fn rank(&self) -> usize {
        self.all.rank()
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.all.dtype())
    }

    fn __len__(&self) -> usize {
        self.calls.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<PyRankCall> {
        let len = self.calls.len();
        let at = if index < 0 { index + len as isize } else { index };
        match usize::try_from(at).ok().filter(|at| *at < len) {
            Some(index) => Ok(PyRankCall { calls: Arc::clone(&self.calls), index }),
            None => Err(PyIndexError::new_err(format!("call {index} of {len}"))),
        }
    }

    fn __eq__(&self, other: &PyRankCalls) -> bool {
        self.all == other.all
    }

    fn __hash__(&self) -> u64 {
        crate::value::hash_of(self.all.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<RankCalls of rank {}: {} calls>", self.all.rank(), self.calls.len())
    }

    fn __str__(&self) -> String {
        self.all.to_string()
    }

    /// What the calls of all ranks do to their sources, ranks in order, by definition: slowly, and to be compared with.
    #[staticmethod]
    fn interpret<'py>(
        py: Python<'py>,
        #[pyo3(from_py_with = listed)] ranks: Vec<PyRef<'py, PyRankCalls>>,
        #[pyo3(from_py_with = listed)] sources: Vec<PyBackedBytes>,
    ) -> Answer<Bound<'py, PyList>> {
        let ranks: Vec<RankCalls> = ranks.iter().map(|calls| calls.all.clone()).collect();
        let sources: Vec<Vec<u8>> = sources.iter().map(|source| source.to_vec()).collect();
        let made = py.detach(|| calls::interpret(&ranks, &sources))?;
        Ok(PyList::new(py, made.iter().map(|target| PyByteArray::new(py, target)))?)
    }
}

/// One exchange of all ranks.
#[pyclass(frozen, name = "SpmdCall", module = "reshard")]
pub(crate) struct PySpmdCall {
    program: Arc<Spmd>,
    index: usize,
}

impl PySpmdCall {
    fn get(&self) -> &SpmdCall {
        &self.program.calls()[self.index]
    }

    fn table(&self, of: impl Fn(&SpmdCall) -> &calls::Table) -> Vec<Vec<usize>> {
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

    /// Who sends to whom: local, all_gather, reduce_scatter, all_reduce, all_to_all or permute.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.get().pattern {
            calls::Pattern::Local => "local",
            calls::Pattern::AllGather { .. } => "all_gather",
            calls::Pattern::ReduceScatter { .. } => "reduce_scatter",
            calls::Pattern::AllReduce { .. } => "all_reduce",
            calls::Pattern::AllToAll { .. } => "all_to_all",
            calls::Pattern::Permute { .. } => "permute",
        }
    }

    /// The groups of a collective: lists of ranks, each rank in one; none of a permute.
    #[getter]
    fn groups(&self) -> Vec<Vec<usize>> {
        match &self.get().pattern {
            calls::Pattern::AllGather { groups }
            | calls::Pattern::ReduceScatter { groups, .. }
            | calls::Pattern::AllReduce { groups, .. }
            | calls::Pattern::AllToAll { groups } => groups.clone(),
            calls::Pattern::Local | calls::Pattern::Permute { .. } => Vec::new(),
        }
    }

    /// The (from, to) of each round of a permute; none of a collective.
    #[getter]
    fn rounds(&self) -> Vec<Vec<(usize, usize)>> {
        match &self.get().pattern {
            calls::Pattern::Permute { rounds } => rounds.clone(),
            calls::Pattern::Local
            | calls::Pattern::AllGather { .. }
            | calls::Pattern::ReduceScatter { .. }
            | calls::Pattern::AllReduce { .. }
            | calls::Pattern::AllToAll { .. } => Vec::new(),
        }
    }

    /// How two terms combine, where the framework reduces.
    #[getter]
    fn op(&self) -> Option<String> {
        match &self.get().pattern {
            calls::Pattern::ReduceScatter { op, .. } | calls::Pattern::AllReduce { op, .. } => {
                Some(name(*op))
            }
            calls::Pattern::Local
            | calls::Pattern::AllGather { .. }
            | calls::Pattern::AllToAll { .. }
            | calls::Pattern::Permute { .. } => None,
        }
    }

    /// The loops of a block in the source, leftmost innermost: the same for all blocks of all ranks.
    #[getter]
    fn block(&self) -> PyLayout {
        PyLayout(self.get().block.clone())
    }

    /// For each rank where its blocks begin in its source, in the order of members or of rounds.
    #[getter]
    fn packs(&self) -> Vec<Vec<usize>> {
        self.table(|call| &call.packs)
    }

    /// The loops of a block in the target.
    #[getter]
    fn landed(&self) -> PyLayout {
        PyLayout(self.get().landed.clone())
    }

    /// Where blocks begin in the target, ascending: the same for all ranks.
    #[getter]
    fn places(&self) -> Vec<usize> {
        self.get().places.clone()
    }

    /// The blocks at all places, one behind the other.
    #[getter]
    fn unpack(&self) -> Vec<PyView> {
        views(&self.get().unpack)
    }

    /// For each rank and place the number of the received block that lands there.
    #[getter]
    fn lands(&self) -> Vec<Vec<usize>> {
        self.table(|call| &call.lands)
    }

    /// How received terms combine, if they are reduced by who received them.
    #[getter]
    fn combine(&self) -> Option<String> {
        self.get().combine.map(name)
    }

    /// The op with whose identity the target is filled before anything lands, if it is.
    #[getter]
    fn fill(&self) -> Option<String> {
        self.get().fill.map(name)
    }

    /// What the target is divided by when all has landed.
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
#[pyclass(frozen, name = "Spmd", module = "reshard")]
pub(crate) struct PySpmd(pub(crate) Arc<Spmd>);

#[pymethods]
impl PySpmd {
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

    /// One rank's calls again.
    fn at(&self, rank: usize) -> Answer<PyRankCalls> {
        Ok(PyRankCalls::new(self.0.at(rank).map_err(Failure::from)?))
    }

    fn __eq__(&self, other: &PySpmd) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        crate::value::hash_of(self.0.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<Spmd of {} ranks: {} calls>", self.0.ranks().len(), self.0.calls().len())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOffers>()?;
    module.add_class::<PyRankCall>()?;
    module.add_class::<PyRankCalls>()?;
    module.add_class::<PySpmdCall>()?;
    module.add_class::<PySpmd>()
}
