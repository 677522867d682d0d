//! The values that all ranks held.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use reshard_kernels::DType;
use reshard_program::Program;
use reshard_sharding::Sharding;

use crate::arrays;
use crate::failure::{Answer, refused};
use crate::run::{OfRank, Stopped};
use crate::shards;
use crate::texts::text;

/// The shards of a value, in the order of the ranks of its mesh.
pub(crate) struct Held {
    pub(crate) sharding: Sharding,
    pub(crate) dtype: DType,
    pub(crate) shards: Vec<Vec<u8>>,
}

/// The shards of each value that is live at the end, and the bytes received in each redistribution.
pub(crate) type OfReference = (BTreeMap<String, Held>, Vec<(String, u64)>);

/// The values of all ranks at the end of their schedules, and the bytes that they received.
#[pyclass(frozen, name = "Ranks", module = "reshard")]
pub(crate) struct PyRanks {
    program: Arc<Program>,
    values: BTreeMap<String, Held>,
    moves: Vec<(String, u64)>,
    hashes: Vec<String>,
    arena_bytes: Vec<usize>,
}

impl PyRanks {
    /// Collects the results of all ranks, or the error of the first rank that failed by itself.
    pub(crate) fn of_ranks(
        program: Arc<Program>,
        results: Vec<Result<Option<OfRank>, Stopped>>,
    ) -> Answer<PyRanks> {
        let (mut ranks, mut stopped) = (Vec::with_capacity(results.len()), None);
        for result in results {
            match (result, &stopped) {
                (Ok(made), _) => ranks.push(made),
                (Err(own @ Stopped::Python(_)), None | Some(Stopped::Engine(_))) => stopped = Some(own),
                (Err(other), None) => stopped = Some(other),
                (Err(Stopped::Python(_) | Stopped::Engine(_)), Some(_)) => {}
            }
        }
        if let Some(stopped) = stopped {
            return Err(stopped.into());
        }
        let mut most: BTreeMap<String, u64> = BTreeMap::new();
        for (name, bytes) in ranks.iter().flatten().flat_map(|rank| &rank.received) {
            let worst = most.entry(name.clone()).or_default();
            *worst = (*worst).max(*bytes);
        }
        let hashes = ranks.iter().flatten().filter_map(|rank| rank.hashes.clone()).collect();
        let arena_bytes = ranks.iter().map(|rank| rank.as_ref().map_or(0, |rank| rank.arena_bytes)).collect();
        let mut values = BTreeMap::new();
        for value in program.values() {
            let sharding = value.ty.value.clone();
            let mut take = |rank: usize| ranks.get_mut(rank)?.as_mut()?.held.remove(&value.name);
            let shards: Option<Vec<Vec<u8>>> = sharding.mesh().ranks().map(&mut take).collect();
            if let Some(shards) = shards {
                values.insert(value.name.clone(), Held { sharding, dtype: value.dtype, shards });
            }
        }
        Ok(PyRanks { program, values, moves: most.into_iter().collect(), hashes, arena_bytes })
    }

    /// Wraps the results of the reference.
    pub(crate) fn of_reference(program: Arc<Program>, (values, moves): OfReference) -> PyRanks {
        PyRanks { program, values, moves, hashes: Vec::new(), arena_bytes: Vec::new() }
    }

    fn held(&self, name: &str) -> Answer<&Held> {
        self.values.get(name).ok_or_else(|| {
            let reason = if self.program.value(name).is_some() {
                format!("`{name}` is no longer live at the end; run with liveness=False to keep all values")
            } else {
                format!("there is no value {name}")
            };
            refused("input", reason)
        })
    }
}

#[pymethods]
impl PyRanks {
    fn __repr__(&self) -> String {
        format!("<Ranks of {}: {} values>", self.program.mesh(), self.values.len())
    }

    fn __contains__(&self, #[pyo3(from_py_with = text)] name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The names of the values that are live at the end, in order.
    #[getter]
    fn names(&self) -> Vec<&str> {
        let values = self.program.values().iter().map(|value| value.name.as_str());
        values.filter(|name| self.values.contains_key(*name)).collect()
    }

    /// The shards of a value, in the order of the ranks of its mesh.
    fn shards<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> Answer<Bound<'py, PyList>> {
        let Held { sharding, dtype, shards } = self.held(name)?;
        let ranks = sharding.mesh().ranks().zip(shards);
        let shard =
            |(rank, bytes): (usize, &Vec<u8>)| arrays::of(py, *dtype, &sharding.local_shape(rank)?, bytes);
        Ok(PyList::new(py, ranks.map(shard).collect::<Answer<Vec<_>>>()?)?)
    }

    /// The global tensor of a value; an error if replicas differ in a bit.
    fn whole<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> Answer<Bound<'py, PyAny>> {
        let Held { sharding, dtype, shards } = self.held(name)?;
        let shards: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
        arrays::made(py, *dtype, sharding.shape(), |whole| {
            shards::meaning_bytes(sharding, *dtype, &shards, whole)
        })
    }

    /// The sum over the redistributions of the bytes that the worst rank received.
    #[getter]
    fn received_bytes(&self) -> u64 {
        self.moves.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The bytes that the worst rank received in each communicating redistribution, by its result's name.
    #[getter]
    fn moves(&self) -> Vec<(String, u64)> {
        self.moves.clone()
    }

    /// Hashes of the values of each rank, as texts for `Program.replicas`.
    ///
    /// Empty if it was run without `hashed=True`.
    #[getter]
    fn hashes(&self) -> Vec<String> {
        self.hashes.clone()
    }

    /// The bytes of the arena of each rank; empty for the reference.
    #[getter]
    fn arena_bytes(&self) -> Vec<usize> {
        self.arena_bytes.clone()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRanks>()
}
