//! A sharding as a grid: the modes of axes that split each dim, and the resulting regions.

use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use crate::Error;
use reshard_sharding::Coordinate;
use reshard_sharding::Intervals;
use reshard_sharding::Sharding;
use reshard_sharding::internal::{digit, set_digit};

/// A sharding as a grid: for each dim the modes that shard it, in order of application.
pub(crate) struct Grid<'a> {
    pub(crate) sharding: &'a Sharding,
    pub(crate) dims: SmallVec<[Modes<AxisStride>; 4]>,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(sharding: &'a Sharding) -> Grid<'a> {
        let mode = |x: reshard_sharding::internal::AxisCut| sharding.mesh().known_mode(x.sub);
        let of_dim = |dim: usize| sharding.dim_cuts(dim).into_iter().map(mode).collect();
        Grid { sharding, dims: (0..sharding.shape().len()).map(of_dim).collect() }
    }

    /// Returns the number of different regions of a dim.
    pub(crate) fn regions(&self, dim: usize) -> usize {
        self.dims[dim].iter().map(|m| m.extent as usize).product()
    }

    /// Sets the digits that shard a dim to those of its region `i`.
    pub(crate) fn set(&self, c: &mut Coordinate, dim: usize, i: usize) {
        let mut left = i as i64;
        for &m in self.dims[dim].iter().rev() {
            set_digit(c, m, left % m.extent);
            left /= m.extent;
        }
    }

    /// Returns the region of every dim at a coordinate.
    pub(crate) fn regions_of(&self, c: &[usize]) -> SmallVec<[usize; 4]> {
        (0..self.dims.len()).map(|dim| self.region_of(c, dim)).collect()
    }

    /// Returns the region of a dim at a coordinate.
    pub(crate) fn region_of(&self, c: &[usize], dim: usize) -> usize {
        self.dims[dim].iter().fold(0, |i, &m| i * m.extent + digit(c, m)) as usize
    }

    pub(crate) fn intervals(&self, dim: usize, i: usize) -> Result<Intervals, Error> {
        let mut c = Coordinate::from_elem(0, self.sharding.mesh().axes().len());
        self.set(&mut c, dim, i);
        Ok(self.sharding.intervals(dim, &c)?)
    }
}
