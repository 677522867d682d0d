//! Groups of ranks: their pattern, one group, and all groups of some axes.

use std::collections::BTreeMap;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use reshard_sharding::notation::ReplicaGroups;
use reshard_sharding::{GroupPattern, GroupRegistry, ProcessGroup, ProcessGroups};

use crate::arguments::{MeshArgument, type_name};
use crate::failure::{Answer, Failure, refused};
use crate::layout::PyLayout;
use crate::numbers::{number, number_if_any};
use crate::sequences::{listed, listed_twice};
use crate::texts::{text, words};
use crate::value::{by_notation, hash_of};

/// More ranks than this are not listed.
const MOST_LISTED: usize = 1 << 20;

/// Succeeds if `ranks` ranks may be listed.
pub(crate) fn check_listed(ranks: usize) -> Answer<()> {
    if ranks > MOST_LISTED {
        let message =
            format!("cannot list {ranks} ranks, more than the limit of {MOST_LISTED}; query single ranks");
        return Err(refused("too_many_ranks", message));
    }
    Ok(())
}

/// Converts a number to a rank; `None` if it is out of the range of ranks.
pub(crate) fn rank_of(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    match object.extract::<usize>() {
        Ok(rank) => Ok(Some(rank)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The offsets of a group's members from the lowest one, such as `GroupPattern("4:2")`.
#[pyclass(frozen, eq, hash, name = "GroupPattern", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyGroupPattern(pub(crate) GroupPattern);

by_notation! { PyGroupPattern {
    /// A pattern from its notation or from a layout: member number to offset from the lowest member.
    #[new]
    fn new(pattern: PatternArgument) -> PyGroupPattern {
        PyGroupPattern(pattern.0)
    }

    /// The layout from member numbers to offsets, or None where the members are listed.
    #[getter]
    fn layout(&self) -> Option<PyLayout> {
        self.0.layout().cloned().map(PyLayout)
    }

    /// The number of members.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    fn __len__(&self) -> usize {
        self.0.size()
    }

    /// The offsets of the members from the lowest one, ascending.
    fn offsets(&self) -> Answer<Vec<usize>> {
        check_listed(self.0.size())?;
        Ok(self.0.offsets().collect())
    }

    /// The members of the group with this lowest member, ascending.
    fn members(&self, #[pyo3(from_py_with = number)] first: usize) -> Answer<Vec<usize>> {
        check_listed(self.0.size())?;
        Ok(ProcessGroup::new(self.0.clone(), first)?.iter().collect())
    }

    /// `True` if a communicator of the other pattern can be used for this one.
    fn is_covered_by(&self, other: &PyGroupPattern) -> bool {
        self.0.is_covered_by(&other.0)
    }

    /// `True` if a group of this pattern shares at most one rank with any group of the other.
    fn is_orthogonal_to(&self, other: &PyGroupPattern) -> bool {
        self.0.is_orthogonal_to(&other.0)
    }
}}

/// A group pattern: itself, a layout, or its notation.
pub(crate) struct PatternArgument(pub(crate) GroupPattern);

impl<'py> FromPyObject<'_, 'py> for PatternArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<PatternArgument> {
        if let Ok(pattern) = object.cast::<PyGroupPattern>() {
            return Ok(PatternArgument(pattern.get().0.clone()));
        }
        if let Ok(layout) = object.cast::<PyLayout>() {
            return Ok(PatternArgument(GroupPattern::new(&layout.get().0).map_err(Failure::from)?));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(PatternArgument(words(&text)?.parse().map_err(Failure::from)?));
        }
        let name = type_name(&object);
        let message = format!("expected a GroupPattern, a Layout or a notation such as '4:2', found {name}");
        Err(pyo3::exceptions::PyTypeError::new_err(message))
    }
}

/// The ranks of one group, such as `ProcessGroup("4:2@1")` or `ProcessGroup([1, 3, 5, 7])`.
#[pyclass(frozen, eq, hash, name = "ProcessGroup", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyProcessGroup(pub(crate) ProcessGroup);

by_notation! { PyProcessGroup {
    /// A group from its notation, or of these ranks in any order.
    #[new]
    fn new(members: &Bound<'_, PyAny>) -> Answer<PyProcessGroup> {
        if let Ok(text) = members.cast::<PyString>() {
            return Ok(PyProcessGroup(words(text)?.parse()?));
        }
        Ok(PyProcessGroup(ProcessGroup::of_members(&listed::<usize>(members)?)?))
    }

    /// The pattern.
    #[getter]
    fn pattern(&self) -> PyGroupPattern {
        PyGroupPattern(self.0.pattern().clone())
    }

    /// The lowest member.
    #[getter]
    fn first(&self) -> usize {
        self.0.first()
    }

    /// The number of members.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// The members, ascending.
    #[getter]
    fn ranks(&self) -> Answer<Vec<usize>> {
        check_listed(self.0.size())?;
        Ok(self.0.iter().collect())
    }

    fn __len__(&self) -> usize {
        self.0.size()
    }

    fn __contains__(&self, rank: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(rank_of(rank)?.is_some_and(|rank| self.0.contains(rank)))
    }

    /// The member of this number, in ascending order, or None.
    fn rank_at(&self, #[pyo3(from_py_with = number)] number: usize) -> Option<usize> {
        self.0.rank_at(number)
    }

    /// The number of a member, or None for other ranks.
    fn group_rank(&self, #[pyo3(from_py_with = number)] rank: usize) -> Option<usize> {
        self.0.group_rank(rank)
    }

    /// The number of members below a rank.
    fn below(&self, #[pyo3(from_py_with = number)] rank: usize) -> usize {
        self.0.below(rank)
    }
}}

/// All groups of one pattern, such as `mesh.groups("tp")`.
#[pyclass(frozen, eq, name = "ProcessGroups", module = "reshard")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyProcessGroups(pub(crate) ProcessGroups);

by_notation! { PyProcessGroups {
    /// Groups from their notation, or from lists of their members.
    #[new]
    fn new(groups: &Bound<'_, PyAny>) -> Answer<PyProcessGroups> {
        if let Ok(text) = groups.cast::<PyString>() {
            return Ok(PyProcessGroups(words(text)?.parse()?));
        }
        Ok(PyProcessGroups(ProcessGroups::listed(listed_twice::<usize>(groups)?)?))
    }

    fn __hash__(&self) -> u64 {
        hash_of(self.0.to_string())
    }

    /// Reads XLA's `replica_groups`: V1 `{{0,1},{2,3}}`, V2 `[2,2]<=[4]` or V3 `mesh['x'=4] {'x':(1)2}`.
    #[staticmethod]
    fn from_replica_groups(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyProcessGroups> {
        Ok(PyProcessGroups(text.parse::<ReplicaGroups>()?.groups()?))
    }

    /// XLA's V1: every group's members.
    fn replica_groups_v1(&self) -> Answer<String> {
        Ok(self.0.replica_groups_v1()?.to_string())
    }

    /// XLA's V2: an iota, reshaped and transposed.
    fn replica_groups_v2(&self) -> Answer<String> {
        Ok(self.0.replica_groups_v2()?.to_string())
    }

    /// The pattern that all groups have.
    #[getter]
    fn pattern(&self) -> PyGroupPattern {
        PyGroupPattern(self.0.pattern().clone())
    }

    /// The pattern of the lowest members.
    #[getter]
    fn firsts(&self) -> PyGroupPattern {
        PyGroupPattern(self.0.firsts().clone())
    }

    /// The lowest rank of all.
    #[getter]
    fn lowest(&self) -> usize {
        self.0.lowest()
    }

    /// The number of groups.
    #[getter]
    fn count(&self) -> usize {
        self.0.count()
    }

    fn __len__(&self) -> usize {
        self.0.count()
    }

    /// All groups by lowest member.
    fn groups(&self) -> Answer<Vec<PyProcessGroup>> {
        check_listed(self.0.count())?;
        Ok(self.0.iter().map(PyProcessGroup).collect())
    }

    /// Every group's members.
    fn members(&self) -> Answer<Vec<Vec<usize>>> {
        check_listed(self.0.count().saturating_mul(self.0.pattern().size()))?;
        Ok(self.0.iter().map(|group| group.iter().collect()).collect())
    }

    /// The group that holds a rank, or None.
    fn group_of(&self, #[pyo3(from_py_with = number)] rank: usize) -> Option<PyProcessGroup> {
        self.0.group_of(rank).map(PyProcessGroup)
    }

    /// The patterns within and across nodes of `node` ranks, if the groups are split equally by all nodes.
    fn split_at_node(&self, #[pyo3(from_py_with = number)] node: usize) -> Option<(PyGroupPattern, PyGroupPattern)> {
        self.0.split_at_node(node).map(|(within, across)| (PyGroupPattern(within), PyGroupPattern(across)))
    }

    /// `True` if these are the same communicators as the others.
    fn same_members(&self, other: &PyProcessGroups) -> bool {
        self.0.same_members(&other.0)
    }

    /// `True` if each of these groups is one of the others.
    fn is_subset_of(&self, other: &PyProcessGroups) -> bool {
        self.0.is_subset_of(&other.0)
    }
}}

/// The existing groups, by name, such as those of a mesh's axes.
///
/// Finds the one that can be used for a requested group.
#[pyclass(frozen, name = "GroupRegistry", module = "reshard")]
pub(crate) struct PyGroupRegistry(GroupRegistry);

#[pymethods]
impl PyGroupRegistry {
    /// Registers the groups of a mesh's axes, the group of all `world` ranks, and others by name.
    #[new]
    #[pyo3(signature = (mesh=None, *, world=None, groups=None))]
    fn new(
        mesh: Option<MeshArgument>,
        #[pyo3(from_py_with = number_if_any)] world: Option<usize>,
        #[pyo3(from_py_with = text)] groups: Option<BTreeMap<String, Py<PyProcessGroups>>>,
    ) -> Answer<PyGroupRegistry> {
        let mut registry = GroupRegistry::new();
        if let Some(mesh) = mesh {
            registry.add_axes(&mesh.0)?;
        }
        if let Some(world) = world {
            registry.add_world(world)?;
        }
        for (name, groups) in groups.unwrap_or_default() {
            registry.add(name, groups.get().0.clone());
        }
        Ok(PyGroupRegistry(registry))
    }

    /// The name of the groups that can be used for these, or None.
    fn find(&self, wanted: &PyProcessGroups) -> Option<&str> {
        self.0.find(&wanted.0)
    }

    /// The names and the groups, in the order in which they were added.
    fn items(&self) -> Vec<(String, PyProcessGroups)> {
        self.0.iter().map(|(name, groups)| (name.to_owned(), PyProcessGroups(groups.clone()))).collect()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGroupPattern>()?;
    module.add_class::<PyProcessGroup>()?;
    module.add_class::<PyProcessGroups>()?;
    module.add_class::<PyGroupRegistry>()
}
