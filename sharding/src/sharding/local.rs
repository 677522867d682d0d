//! The shard of a rank: its extents and its region, and all shards as one layout.

use reshard_layout::{AxisStride, InlineVec, Layout, Modes};

use crate::axis::SubAxis;
use crate::layout::{self, inverse};
use crate::region::{Interval, Intervals, Region, push};
use crate::sharding::normal::lens_after;
use crate::sharding::{AxisCut, Form};
use crate::{Error, Sharding};

impl Sharding {
    fn coordinate(&self, rank: usize) -> Result<crate::mesh::Coordinate, Error> {
        self.mesh.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: self.mesh.to_string() })
    }

    /// Returns the index of the rank at a coordinate within a split.
    fn place(&self, x: &AxisCut, c: &[usize]) -> usize {
        x.sub.known_digit(c[x.sub.axis], self.mesh.axes()[x.sub.axis].size())
    }

    /// Returns the extents of the local tensor of a rank.
    pub fn local_shape(&self, rank: usize) -> Result<InlineVec<usize, 6>, Error> {
        let c = self.coordinate(rank)?;
        let mut local = InlineVec::from_slice(&self.shape);
        match &self.form {
            Form::Layout(layout) => {
                for (n, dim) in local.iter_mut().rev().zip(layout.flat_modes()) {
                    *n = layout::local_len(dim) as usize;
                }
            }
            Form::Cuts(cuts) => {
                for x in cuts {
                    local[x.dim] = x.cut.len(local[x.dim], self.place(x, &c));
                }
            }
        }
        Ok(local)
    }

    /// Returns the number of elements of a rank's shard; 0 if the mesh does not hold the rank.
    pub fn local_numel(&self, rank: usize) -> usize {
        self.local_shape(rank).map_or(0, |shape| shape.iter().product())
    }

    /// Returns the extents of the local tensors, where they are the same on all ranks.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let of = |shape: &[usize]| Sharding::parse(&mesh, shape, "S(0),Z(1)").map(|s| s.common_local_shape());
    /// assert_eq!(of(&[4, 8])?.as_deref(), Some(&[2, 4][..]));
    /// assert_eq!(of(&[5, 8])?, None);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn common_local_shape(&self) -> Option<InlineVec<usize, 6>> {
        match &self.form {
            Form::Layout(_) => self.local_shape(self.mesh.min_rank()).ok(),
            Form::Cuts(cuts) => {
                let dims = self.shape.iter().enumerate().map(|(dim, &len)| {
                    let lens = lens_after(len, cuts.iter().filter(|x| x.dim == dim));
                    let first = *lens.first()?;
                    lens.iter().all(|&n| n == first).then_some(first)
                });
                dims.collect()
            }
        }
    }

    /// Returns the greatest number of elements that any rank holds.
    #[doc(hidden)]
    pub fn max_local_numel(&self) -> usize {
        match &self.form {
            Form::Layout(layout) => layout::local_len(layout.flat()) as usize,
            Form::Cuts(cuts) => self.most_by_dim(cuts).product(),
        }
    }

    /// Returns the local shape of a rank that holds the most; `None` if not every rank holds a block.
    #[doc(hidden)]
    pub fn max_local_shape(&self) -> Option<InlineVec<usize, 6>> {
        match &self.form {
            Form::Layout(_) => self.local_shape(self.mesh.min_rank()).ok(),
            Form::Cuts(cuts) => Some(self.most_by_dim(cuts).collect()),
        }
    }

    /// Returns the most indices that a rank holds along each dim.
    ///
    /// No sub-axis splits two dims, so the maxima of all dims occur on one rank.
    fn most_by_dim<'a>(&'a self, cuts: &'a [AxisCut]) -> impl Iterator<Item = usize> + 'a {
        self.shape.iter().enumerate().map(move |(dim, &len)| {
            lens_after(len, cuts.iter().filter(|x| x.dim == dim)).into_iter().max().unwrap_or(0)
        })
    }

    /// Returns the region of a rank: the global indices that it holds.
    pub fn region(&self, rank: usize) -> Result<Region, Error> {
        let c = self.coordinate(rank)?;
        let dims = (0..self.shape.len()).map(|dim| self.intervals(dim, &c)).collect::<Result<_, Error>>()?;
        Ok(Region { dims })
    }

    /// Returns the indices of one dim that the rank at a coordinate holds.
    #[doc(hidden)]
    pub fn intervals(&self, dim: usize, c: &[usize]) -> Result<Intervals, Error> {
        let len = self.shape[dim];
        match &self.form {
            Form::Layout(layout) => inverse::intervals(layout::dim_of(layout, self.shape.len(), dim), dim, c),
            Form::Cuts(cuts) => {
                let mut list = Intervals::new();
                push(&mut list, Interval { start: 0, len });
                for x in cuts.iter().filter(|x| x.dim == dim) {
                    list = x.cut.keep(&list, self.place(x, c), dim)?;
                }
                Ok(list)
            }
        }
    }

    /// Returns the ownership as one layout `(mesh modes, local modes) -> global row-major index`.
    ///
    /// Returns `None` where there is none.
    ///
    /// Both modes are in the order of memory, reversed as row-major is: index `i` of the first counts ranks
    /// in mesh order (last axis fastest), index `j` of the second is the row-major offset in the local
    /// tensor. Replicated and partial axes have stride 0. Uneven and zero-size tensors have none.
    #[doc(hidden)]
    pub fn ownership(&self) -> Option<Layout> {
        inverse::ownership(&self.mesh, self.layout()?)
    }

    /// Returns the sub-axes that neither shard a dim nor are partial: the tensor is the same along them.
    #[doc(hidden)]
    pub fn replicated_axes(&self) -> InlineVec<SubAxis, 4> {
        self.replicated_axes_but(&[])
    }

    /// Returns the same without these sub-axes.
    pub(crate) fn replicated_axes_but(&self, but: &[SubAxis]) -> InlineVec<SubAxis, 4> {
        let besides = self.partial.iter().map(|p| p.sub).chain(but.iter().copied());
        let mut used: Modes<AxisStride> = besides.map(|sub| self.mesh.known_mode(sub)).collect();
        match &self.form {
            Form::Layout(layout) => {
                used.extend(layout.flat().iter().copied().filter(|m| !m.stride.is_local()));
            }
            Form::Cuts(cuts) => used.extend(cuts.iter().map(|x| self.mesh.known_mode(x.sub))),
        }
        self.mesh.complement(&used)
    }
}
