//! A plan as a framework's calls of one rank, between strided views and on the groups that the framework has.

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

/// An op, and of each term where it begins and which views it has.
type Combined = (String, Vec<(usize, usize, usize)>);

pub(crate) fn name(op: CombineOp) -> String {
    op.to_string()
}

/// The groups that a framework has made, as (name, members in the framework's order); none is made by itself.
#[pyclass(frozen, name = "Offers", module = "reshard")]
#[derive(Clone)]
pub(crate) struct PyOffers(pub(crate) Arc<FrameworkGroups>);

impl PyOffers {
    /// Offers, or what they are made of: a dict from names to members, or pairs of them.
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
        format!("Offers([{}])", groups.join(", "))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Groups,)> {
        (py.get_type::<PyOffers>(), (self.groups(),))
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
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyRankCall>("pickle the plan, and call the same method of it again")
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

    /// What is called: local, all_gather, reduce_scatter, all_reduce, all_to_all or messages.
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

    /// The group whose members make this call together, as (name, members), or None.
    #[getter]
    fn group(&self) -> Option<(String, Vec<usize>)> {
        self.get().call.group().map(|offer| (offer.name().to_owned(), offer.members().to_vec()))
    }

    /// How the framework combines two terms, where it reduces.
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
    fn __reduce__(&self) -> PyResult<()> {
        not_pickled::<PyRankCalls>("pickle the plan, and call the same method of it again")
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOffers>()?;
    module.add_class::<PyRankCall>()?;
    module.add_class::<PyRankCalls>()
}
