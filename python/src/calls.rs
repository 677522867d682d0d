//! A plan as one rank's framework calls, between strided views and on the framework's groups.

use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyDict, PyList};
use reshard_collectives::calls::{self, CollectiveCall, FrameworkGroups, RankCall, RankCalls, View};
use reshard_kernels::CombineOp;

use crate::dtype::PyDType;
use crate::failure::Answer;
use crate::numbers::number;
use crate::sequences::listed;
use crate::texts::text;
use crate::value::not_pickled;
use crate::value::{Reduced, hash_of};
use crate::view::PyView;

pub(crate) fn views(list: &[View]) -> Vec<PyView> {
    list.iter().cloned().map(PyView).collect()
}

/// The groups of a framework, by name.
type Groups = Vec<(String, Vec<usize>)>;

/// An op, and for each operand its start and its range of views.
type Combined = (String, Vec<(usize, usize, usize)>);

pub(crate) fn name(op: CombineOp) -> String {
    op.to_string()
}

/// The process groups that a framework has made, as (name, members in the framework's order).
///
/// None is made automatically.
#[pyclass(frozen, name = "FrameworkGroups", module = "reshard")]
#[derive(Clone)]
pub(crate) struct PyOffers(pub(crate) Arc<FrameworkGroups>);

impl PyOffers {
    /// Reads groups: an instance, a dict from names to members, or pairs of them.
    pub(crate) fn of(groups: Option<&Bound<'_, PyAny>>) -> Answer<PyOffers> {
        if let Some(made) = groups.and_then(|groups| groups.cast::<PyOffers>().ok()) {
            return Ok(made.get().clone());
        }
        let groups: Groups = match groups {
            None => Vec::new(),
            Some(groups) => match groups.cast::<PyDict>() {
                Ok(by_name) => {
                    by_name.iter().map(|(k, v)| Ok((text(&k)?, listed(&v)?))).collect::<PyResult<_>>()?
                }
                Err(_) => listed::<(String, Bound<'_, PyAny>)>(groups)?
                    .into_iter()
                    .map(|(name, members)| Ok((name, listed(&members)?)))
                    .collect::<PyResult<_>>()?,
            },
        };
        Ok(PyOffers(Arc::new(FrameworkGroups::new(groups)?)))
    }
}

#[pymethods]
impl PyOffers {
    #[new]
    #[pyo3(signature = (groups=None))]
    fn new(groups: Option<&Bound<'_, PyAny>>) -> Answer<PyOffers> {
        PyOffers::of(groups)
    }

    /// The groups as (name, members).
    #[getter]
    fn groups(&self) -> Groups {
        self.0.iter().map(|offer| (offer.name().to_owned(), offer.members().to_vec())).collect()
    }

    fn __len__(&self) -> usize {
        self.0.iter().len()
    }

    fn __eq__(&self, other: &PyOffers) -> bool {
        self.groups() == other.groups()
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.groups())
    }

    fn __repr__(&self) -> String {
        let groups: Vec<String> =
            self.0.iter().map(|o| format!("({:?}, {:?})", o.name(), o.members())).collect();
        format!("FrameworkGroups([{}])", groups.join(", "))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Groups,)> {
        (py.get_type::<PyOffers>(), (self.groups(),))
    }
}

/// One call of one rank: the packed elements, the call, and the views that it writes.
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
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyRankCall>("pickle the plan, and call the same method on it")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The step of the plan.
    #[getter]
    fn step(&self) -> usize {
        self.get().step
    }

    /// The kind of call: local, all_gather, reduce_scatter, all_reduce, all_to_all or messages.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.get().call {
            CollectiveCall::Local => "local",
            CollectiveCall::AllGather { .. } => "all_gather",
            CollectiveCall::ReduceScatter { .. } => "reduce_scatter",
            CollectiveCall::AllReduce { .. } => "all_reduce",
            CollectiveCall::AllToAll { .. } => "all_to_all",
            CollectiveCall::Messages { .. } => "messages",
        }
    }

    /// The group whose members make this call, as (name, members), or None.
    #[getter]
    fn group(&self) -> Option<(String, Vec<usize>)> {
        self.get().call.group().map(|offer| (offer.name().to_owned(), offer.members().to_vec()))
    }

    /// The op with which the framework combines two partial values, if it reduces.
    #[getter]
    fn op(&self) -> Option<String> {
        match &self.get().call {
            CollectiveCall::ReduceScatter { op, .. } | CollectiveCall::AllReduce { op, .. } => {
                Some(name(*op))
            }
            CollectiveCall::Local
            | CollectiveCall::AllGather { .. }
            | CollectiveCall::AllToAll { .. }
            | CollectiveCall::Messages { .. } => None,
        }
    }

    /// The elements sent, as (rank, elements).
    ///
    /// An all-to-all lists every member, also with 0 elements; messages list their receivers.
    #[getter]
    fn sends(&self) -> Vec<(usize, usize)> {
        self.exchanged(|sends, _| sends)
    }

    /// The elements received, in the same form.
    #[getter]
    fn receives(&self) -> Vec<(usize, usize)> {
        self.exchanged(|_, receives| receives)
    }

    /// The views of the source buffer that are packed.
    #[getter]
    fn pack(&self) -> Vec<PyView> {
        views(&self.get().pack)
    }

    /// The views of the target buffer that are written.
    #[getter]
    fn unpack(&self) -> Vec<PyView> {
        views(&self.get().unpack)
    }

    /// The combination of operands that were received separately; or None.
    ///
    /// It has the op, and for each operand in the order of combining its start in the received elements, and
    /// its first and one past its last view in `unpack`.
    #[getter]
    fn combine(&self) -> Option<Combined> {
        let combine = self.get().combine.as_ref()?;
        let terms = combine.terms.iter().map(|term| (term.start, term.views.start, term.views.end));
        Some((name(combine.op), terms.collect()))
    }

    /// The op with whose identity the target is filled before anything is written to it, or None.
    #[getter]
    fn fill(&self) -> Option<String> {
        self.get().fill.map(name)
    }

    /// The divisor of the target after all elements were written.
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

    /// Elements that the call receives.
    #[getter]
    fn received_len(&self) -> usize {
        self.get().received_len()
    }

    /// `True` if the rank takes part without data, because the call is collective, and keeps its buffer.
    #[getter]
    fn is_idle(&self) -> bool {
        self.get().is_idle()
    }

    fn __eq__(&self, other: &PyRankCall) -> bool {
        self.get() == other.get()
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.get().to_string())
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
            CollectiveCall::AllToAll { group, sends, receives } => {
                let each =
                    |counts: &[usize]| group.members().iter().copied().zip(counts.iter().copied()).collect();
                of(each(sends), each(receives))
            }
            CollectiveCall::Messages { sends, receives } => of(sends.clone(), receives.clone()),
            CollectiveCall::Local
            | CollectiveCall::AllGather { .. }
            | CollectiveCall::ReduceScatter { .. }
            | CollectiveCall::AllReduce { .. } => Vec::new(),
        }
    }
}

/// All calls of one rank, in order: each reads the buffer that the one before has written.
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
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyRankCalls>("pickle the plan, and call the same method on it")
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

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

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<PyRankCall> {
        let index: isize = number(index)?;
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
        hash_of(self.all.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<RankCalls of rank {}: {} calls>", self.all.rank(), self.calls.len())
    }

    fn __str__(&self) -> String {
        self.all.to_string()
    }

    /// Runs the calls of all ranks on their sources, in rank order, by definition.
    ///
    /// It is slow: a reference for comparison.
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOffers>()?;
    module.add_class::<PyRankCall>()?;
    module.add_class::<PyRankCalls>()
}
