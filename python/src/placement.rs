//! Placements: the distribution of a tensor along one axis of a mesh.

use std::num::NonZeroUsize;

use pyo3::prelude::*;
use pyo3::types::PyModule;
use reshard_sharding::{Counts, Placement, ReduceOp};

use crate::arguments::PlacementArgument;
use crate::failure::{Answer, refused};
use crate::numbers::{number, number_if_any};
use crate::sequences::{listed, listed_twice};
use crate::texts::text;
use crate::value::Reduced;

/// The distribution of a tensor along one axis of a mesh.
///
/// Examples are `R()`, `S(0)`, `SS(0, 2)`, `P("sum")`, or by notation `Placement("RG(0,[3,5])")`.
#[pyclass(frozen, eq, hash, name = "Placement", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyPlacement(pub(crate) Placement);

#[pymethods]
impl PyPlacement {
    #[new]
    fn new(placement: PlacementArgument) -> PyPlacement {
        PyPlacement(placement.0)
    }

    /// Shards a dim in ranges of these sizes, one for each rank of the axis.
    #[staticmethod]
    fn ragged(
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = listed)] sizes: Vec<usize>,
    ) -> PyPlacement {
        PyPlacement(Placement::ragged(dim, &sizes))
    }

    /// Ragged ranges of whole blocks of these sizes, distributed as evenly as possible over `ranks` ranks.
    #[staticmethod]
    fn ragged_of_blocks(
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = listed)] blocks: Vec<usize>,
        #[pyo3(from_py_with = number)] ranks: usize,
    ) -> Answer<PyPlacement> {
        Ok(PyPlacement(Placement::ragged_of_blocks(dim, &blocks, ranks)?))
    }

    /// Ragged ranges of whole blocks of one size, distributed as evenly as possible over `ranks` ranks.
    #[staticmethod]
    fn ragged_in_blocks(
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] len: usize,
        #[pyo3(from_py_with = number)] block: usize,
        #[pyo3(from_py_with = number)] ranks: usize,
    ) -> Answer<PyPlacement> {
        Ok(PyPlacement(Placement::ragged_in_blocks(dim, len, block, ranks)?))
    }

    /// Ragged ranges in proportion to these units, one for each rank of the axis.
    #[staticmethod]
    fn ragged_in_units(
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] len: usize,
        #[pyo3(from_py_with = listed)] units: Vec<usize>,
    ) -> Answer<PyPlacement> {
        Ok(PyPlacement(Placement::ragged_in_units(dim, len, &units)?))
    }

    /// Twice as many chunks as ranks: rank i keeps the i-th and the i-th from the end.
    #[staticmethod]
    fn zigzag(#[pyo3(from_py_with = number)] dim: usize) -> PyPlacement {
        PyPlacement(Placement::zigzag(dim))
    }

    /// Blocks of `len` indices, dealt to the ranks in turn.
    #[staticmethod]
    fn block(
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] len: usize,
    ) -> PyResult<PyPlacement> {
        let len = NonZeroUsize::new(len)
            .ok_or_else(|| refused("placement", "the block length must be at least 1, not 0"))?;
        Ok(PyPlacement(Placement::block(dim, len)))
    }

    /// Chunks that are rotated by `by` ranks.
    #[staticmethod]
    fn rolled(
        #[pyo3(from_py_with = number)] dim: usize,
        #[pyo3(from_py_with = number)] by: usize,
    ) -> PyPlacement {
        PyPlacement(Placement::rolled(dim, by))
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            Placement::Replicate => "R()".to_owned(),
            Placement::Shard(dim) => format!("S({dim})"),
            Placement::StridedShard { dim, split_factor } => format!("SS({dim}, {split_factor})"),
            Placement::Partial(op) => format!("P('{op}')"),
            Placement::Ragged { .. } | Placement::Custom { .. } => format!("Placement('{}')", self.0),
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (String,)> {
        (py.get_type::<PyPlacement>(), (self.0.to_string(),))
    }

    /// The dim that is sharded, or None.
    #[getter]
    fn dim(&self) -> Option<usize> {
        self.0.dim()
    }

    /// The reduction of the partial values, such as `sum`, or None if the placement is not partial.
    #[getter]
    fn op(&self) -> Option<String> {
        match self.0 {
            Placement::Partial(op) => Some(op.to_string()),
            Placement::Replicate
            | Placement::Shard(_)
            | Placement::StridedShard { .. }
            | Placement::Ragged { .. }
            | Placement::Custom { .. } => None,
        }
    }

    /// The same placement of another dim.
    fn with_dim(&self, #[pyo3(from_py_with = number)] dim: usize) -> PyPlacement {
        PyPlacement(self.0.with_dim(dim))
    }
}

/// The number of rows that every source sends to every rank, such as tokens to experts.
///
/// Example: `Counts([[3, 1], [0, 2]])`.
#[pyclass(frozen, name = "Counts", module = "reshard")]
pub(crate) struct PyCounts {
    counts: Counts,
    /// The rows that it was made of.
    rows: Vec<Vec<usize>>,
    capacity: Option<usize>,
}

#[pymethods]
impl PyCounts {
    /// Reads a row for each source, with the numbers that it sends to each rank.
    ///
    /// A `capacity` limits the rows that a rank receives.
    #[new]
    #[pyo3(signature = (rows, capacity=None))]
    fn new(
        #[pyo3(from_py_with = listed_twice)] rows: Vec<Vec<usize>>,
        #[pyo3(from_py_with = number_if_any)] capacity: Option<usize>,
    ) -> Answer<PyCounts> {
        let counts = Counts::new(&rows)?;
        let counts = match capacity {
            Some(capacity) => counts.within(capacity)?,
            None => counts,
        };
        Ok(PyCounts { counts, rows, capacity })
    }

    fn __eq__(&self, other: &PyCounts) -> bool {
        self.counts == other.counts
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Vec<Vec<usize>>, Option<usize>)> {
        (py.get_type::<PyCounts>(), (self.rows.clone(), self.capacity))
    }

    /// The number of sources.
    #[getter]
    fn sources(&self) -> usize {
        self.counts.sources()
    }

    /// The number of receiving ranks.
    #[getter]
    fn ranks(&self) -> usize {
        self.counts.ranks()
    }

    /// The total number of rows.
    #[getter]
    fn total(&self) -> usize {
        self.counts.total()
    }

    /// The number of rows that a rank receives.
    fn receives(&self, #[pyo3(from_py_with = number)] rank: usize) -> Answer<usize> {
        if rank >= self.counts.ranks() {
            let message = format!("there is no rank {rank}: the counts are of {} ranks", self.counts.ranks());
            return Err(refused("no_such_rank", message));
        }
        Ok(self.counts.receives(rank))
    }

    /// The placement of the rows as they are sent.
    fn source_placement(&self, #[pyo3(from_py_with = number)] dim: usize) -> PyPlacement {
        PyPlacement(self.counts.source_placement(dim))
    }

    /// The placement of the rows as they are received.
    fn target_placement(&self, #[pyo3(from_py_with = number)] dim: usize) -> PyPlacement {
        PyPlacement(self.counts.target_placement(dim))
    }
}

/// Every rank holds the whole tensor.
#[pyfunction]
#[pyo3(name = "R")]
fn replicate() -> PyPlacement {
    PyPlacement(Placement::Replicate)
}

/// Chunks of a dim: `torch.chunk`, the last ones short or empty.
#[pyfunction]
#[pyo3(name = "S")]
fn shard(#[pyo3(from_py_with = number)] dim: usize) -> PyPlacement {
    PyPlacement(Placement::Shard(dim))
}

/// The dim is split into `split_factor` blocks, and each block is chunked over the ranks.
#[pyfunction]
#[pyo3(name = "SS")]
fn strided_shard(
    #[pyo3(from_py_with = number)] dim: usize,
    #[pyo3(from_py_with = number)] split_factor: usize,
) -> Answer<PyPlacement> {
    // Parsing the notation checks the arguments as it does for a text.
    Ok(PyPlacement(format!("SS({dim},{split_factor})").parse()?))
}

/// Every rank holds a partial value of the whole shape; the value is their reduction.
///
/// Reductions are sum, avg, prod, min, max and norm2.
#[pyfunction]
#[pyo3(name = "P", signature = (op="sum"))]
fn partial(#[pyo3(from_py_with = text)] op: &str) -> Answer<PyPlacement> {
    Ok(PyPlacement(Placement::Partial(op.parse::<ReduceOp>()?)))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPlacement>()?;
    module.add_class::<PyCounts>()?;
    module.add_function(wrap_pyfunction!(replicate, module)?)?;
    module.add_function(wrap_pyfunction!(shard, module)?)?;
    module.add_function(wrap_pyfunction!(strided_shard, module)?)?;
    module.add_function(wrap_pyfunction!(partial, module)?)
}
