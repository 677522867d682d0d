//! Regions: which indices of a tensor a rank holds.

use pyo3::prelude::*;
use pyo3::types::{PyRange, PySlice, PyTuple};
use reshard_sharding::{Interval, Intervals, Region};

use crate::arguments::ShapeArgument;
use crate::failure::{Answer, refused};
use crate::numbers::number;
use crate::sequences::{list_of, listed_twice};

/// For every dim the indices that a rank holds, as ranges in local order.
#[pyclass(frozen, eq, hash, name = "Region", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyRegion(pub(crate) Region);

#[pymethods]
impl PyRegion {
    /// A region of ranges for every dim: `Region([[range(0, 4)], [range(0, 2), range(6, 8)]])`.
    #[new]
    fn new(#[pyo3(from_py_with = listed_twice)] dims: Vec<Vec<Bound<'_, PyRange>>>) -> PyResult<PyRegion> {
        let mut region = Region { dims: reshard_layout::InlineVec::new() };
        for dim in &dims {
            let mut intervals = Intervals::new();
            let mut end = None;
            for range in dim {
                let part = |name: &str| number::<usize>(&range.getattr(name)?);
                let (start, stop, step) = (part("start")?, part("stop")?, part("step")?);
                if step != 1 || stop <= start || end.is_some_and(|end| start <= end) {
                    let message = format!(
                        "range({start}, {stop}, {step}): the ranges of a dim ascend, are not empty and do not touch"
                    );
                    return Err(refused("region", message).into());
                }
                end = Some(stop);
                intervals.push(Interval { start, len: stop - start });
            }
            region.dims.push(intervals);
        }
        Ok(PyRegion(region))
    }

    /// For every dim its ranges of indices, in local order.
    #[getter]
    fn intervals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let range = |part: &Interval| -> PyResult<Bound<'py, PyRange>> {
            PyRange::new(py, part.start as isize, (part.start + part.len) as isize)
        };
        let dims = self.0.dims.iter().map(|dim| {
            let ranges = dim.iter().map(range).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, ranges)
        });
        PyTuple::new(py, dims.collect::<PyResult<Vec<_>>>()?)
    }

    /// A slice for every dim, or None where some dim has several ranges: `whole[region.slices]`.
    #[getter]
    fn slices<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut slices = Vec::with_capacity(self.0.dims.len());
        for dim in &self.0.dims {
            slices.push(match dim.as_slice() {
                [] => PySlice::new(py, 0, 0, 1),
                [part] => PySlice::new(py, part.start as isize, (part.start + part.len) as isize, 1),
                [..] => return Ok(None),
            });
        }
        Ok(Some(PyTuple::new(py, slices)?))
    }

    /// The number of indices of each dim.
    #[getter]
    fn local_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.local_shape())
    }

    /// The number of elements.
    #[getter]
    fn numel(&self) -> usize {
        self.0.numel()
    }

    /// The indices of a dim, in local order.
    fn indices(&self, #[pyo3(from_py_with = number)] dim: usize) -> Answer<Vec<usize>> {
        let count = self
            .0
            .dims
            .get(dim)
            .map_or(0, |ranges| ranges.iter().fold(0, |n, range| range.len.saturating_add(n)));
        let indices = self.0.indices(dim)?;
        list_of(count, || indices)
    }

    /// The row-major indices of the elements in a tensor of this shape, in local order, as ranges.
    fn runs<'py>(&self, py: Python<'py>, shape: ShapeArgument) -> Answer<Vec<Bound<'py, PyRange>>> {
        let runs = self.0.runs(&shape.0)?.map(|run| {
            let (start, stride) = (run.start as isize, run.stride as isize);
            // From the last index on a stride further: past it, and no index between.
            let stop = run.last().map_or(start, |last| last as isize + stride);
            PyRange::new_with_step(py, start, stop, stride.max(1))
        });
        Ok(list_of(0, || runs)?.into_iter().collect::<PyResult<_>>()?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Region({})", self.intervals(py)?.repr()?))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<crate::value::Reduced<'py, (Bound<'py, PyTuple>,)>> {
        Ok((py.get_type::<PyRegion>(), (self.intervals(py)?,)))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRegion>()
}
