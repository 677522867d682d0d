//! A sharding as a grid: which sub-axes cut each dim, into which regions.

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::mesh::Coordinate;
use crate::region::Intervals;
use crate::{Error, Sharding};

/// A sharding as a grid: for each dim the sub-axes that shard it.
pub(crate) struct Grid<'a> {
    pub(crate) sharding: &'a Sharding,
    pub(crate) dims: SmallVec<[SmallVec<[SubAxis; 4]>; 4]>,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(sharding: &'a Sharding) -> Grid<'a> {
        let of_dim = |dim: usize| -> SmallVec<[SubAxis; 4]> {
            match (sharding.digits(), sharding.cuts()) {
                (Some(digits), _) => digits
                    .iter()
                    .filter(|d| d.dim == dim)
                    .filter_map(crate::digits::Digit::sub_axis)
                    .collect(),
                (None, cuts) => {
                    cuts.unwrap_or_default().iter().filter(|c| c.dim == dim).map(|c| c.sub).collect()
                }
            }
        };
        Grid { sharding, dims: (0..sharding.shape().len()).map(of_dim).collect() }
    }

    fn axis_size(&self, s: SubAxis) -> usize {
        self.sharding.mesh().axes()[s.axis].size()
    }

    /// How many different regions a dim has.
    pub(crate) fn regions(&self, dim: usize) -> usize {
        self.dims[dim].iter().map(|s| s.size).product()
    }

    /// Sets the digits that shard a dim to those of its region `i`.
    pub(crate) fn set(&self, c: &mut Coordinate, dim: usize, i: usize) {
        let mut left = i;
        for &s in self.dims[dim].iter().rev() {
            let n = self.axis_size(s);
            c[s.axis] = c[s.axis] - s.digit(c[s.axis], n) * s.post(n) + left % s.size * s.post(n);
            left /= s.size;
        }
    }

    /// Which region of every dim a coordinate holds.
    pub(crate) fn regions_of(&self, c: &[usize]) -> SmallVec<[usize; 4]> {
        let region = |subs: &SmallVec<[SubAxis; 4]>| {
            subs.iter().fold(0, |i, &s| i * s.size + s.digit(c[s.axis], self.axis_size(s)))
        };
        self.dims.iter().map(region).collect()
    }

    pub(crate) fn intervals(&self, dim: usize, i: usize) -> Result<Intervals, Error> {
        let mut c = Coordinate::from_elem(0, self.sharding.mesh().axes().len());
        self.set(&mut c, dim, i);
        self.sharding.intervals(dim, &c)
    }
}
