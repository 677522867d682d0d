//! Views that name dims: flatten, split, squeeze, unsqueeze, permute, expand and narrow.

use core::ops::Range;
use reshard_layout::InlineVec;

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::layout::dim_of;
use crate::sharding::{AxisCut, Cuts, Shape};
use crate::{Error, Sharding};

impl Sharding {
    /// Returns the view in which some neighbouring dims are one, the first of them slowest.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "tp=3".parse()?;
    /// let s = Sharding::parse(&mesh, &[4, 6], "S(1)")?;
    /// assert_eq!(s.flatten(0..2)?.to_string(), "SS(0,4)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Sharding::view`], and with `view` for dims that the tensor does not have; no dims make
    /// one of size 1.
    pub fn flatten(&self, dims: Range<usize>) -> Result<Sharding, Error> {
        let Some(inside) = self.shape().get(dims.clone()) else {
            return Err(self.no_dims(&format!("{dims:?}")));
        };
        let mut shape = Shape::from_slice(&self.shape()[..dims.start]);
        shape.push(inside.iter().product());
        shape.extend_from_slice(&self.shape()[dims.end..]);
        self.view(&shape)
    }

    /// Returns the view in which one dim is several, the first of them slowest.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "tp=3".parse()?;
    /// let s = Sharding::parse(&mesh, &[24], "SS(0,4)")?;
    /// assert_eq!(s.split(0, &[4, 6])?.to_string(), "S(1)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Sharding::view`], and with `view` for a dim that the tensor does not have.
    pub fn split(&self, dim: usize, into: &[usize]) -> Result<Sharding, Error> {
        self.extent(dim)?;
        let mut shape = Shape::from_slice(&self.shape()[..dim]);
        shape.extend_from_slice(into);
        shape.extend_from_slice(&self.shape()[dim + 1..]);
        self.view(&shape)
    }

    /// Returns the view without a dim of size 1.
    ///
    /// Fails like [`Sharding::view`], and with `view` for a dim that is not there or not of size 1.
    pub fn squeeze(&self, dim: usize) -> Result<Sharding, Error> {
        let len = self.extent(dim)?;
        if len != 1 {
            return Err(Error::View {
                reason: format!(
                    "dim {dim} of {:?} is {len}: only dims of size 1 can be squeezed",
                    self.shape()
                ),
            });
        }
        let mut shape = Shape::from_slice(self.shape());
        shape.remove(dim);
        self.view(&shape)
    }

    /// Returns the view with a new dim of size 1 before dim `dim`.
    ///
    /// It is after the last one if `dim` is their number.
    ///
    /// Fails with `view` if `dim` exceeds the number of dims.
    pub fn unsqueeze(&self, dim: usize) -> Result<Sharding, Error> {
        if dim > self.shape().len() {
            return Err(self.no_dims(&dim.to_string()));
        }
        let mut shape = Shape::from_slice(self.shape());
        shape.insert(dim, 1);
        self.renumbered(&shape, |d| if d < dim { d } else { d + 1 })
    }

    /// Returns the view in which dim `i` is dim `order[i]` of this one; every rank permutes its strides.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[8, 5, 6], "SS(2,3),S(1)")?;
    /// assert_eq!(s.permute(&[2, 0, 1])?.to_string(), "SS(0,3),S(2)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `view` unless every dim is named once.
    pub fn permute(&self, order: &[usize]) -> Result<Sharding, Error> {
        let n = self.shape().len();
        let mut to: Shape = InlineVec::from_elem(n, n);
        for (i, &d) in order.iter().enumerate() {
            if let Some(x) = to.get_mut(d) {
                *x = i;
            }
        }
        if order.len() != n || to.contains(&n) {
            return Err(Error::View {
                reason: format!(
                    "{order:?} is not a permutation of the dims of {:?}; list each once",
                    self.shape()
                ),
            });
        }
        let shape: Shape = order.iter().map(|&d| self.shape()[d]).collect();
        self.renumbered(&shape, |d| to[d])
    }

    /// Returns the view in which a dim of size 1 repeats its index `len` times, with stride 0 on every rank.
    ///
    /// ```text
    /// new[.., j, ..] = old[.., 0, ..]
    /// ```
    ///
    /// Fails with `view` for a dim that is not there or not of size 1, and with `needs_redistribute` where
    /// the dim is sharded, so that some ranks hold no index to repeat.
    pub fn expand(&self, dim: usize, len: usize) -> Result<Sharding, Error> {
        let old = self.extent(dim)?;
        if old != 1 {
            return Err(Error::View {
                reason: format!(
                    "dim {dim} of {:?} is {old}: only dims of size 1 can be expanded",
                    self.shape()
                ),
            });
        }
        let mut shape = Shape::from_slice(self.shape());
        shape[dim] = len;
        crate::sharding::numel(&shape)?;
        let Some(cuts) = self.cuts() else {
            if len == 0 {
                return self.without_elements(&shape);
            }
            let repeated = Modes::from_slice(&[Mode::new(len as i64, AxisStride::local(1))]);
            return Ok(self.of_dims(&shape, |d| if d == dim { repeated.clone() } else { self.modes_of(d) }));
        };
        if cuts.iter().any(|c| c.dim == dim) {
            let reason = format!("dim {dim} of size 1 is sharded, so only some ranks of {self} hold it");
            return self.uncut_first(dim, reason);
        }
        Sharding::from_cuts(
            self.mesh(),
            &shape,
            cuts.iter().cloned().collect(),
            self.partial().iter().copied().collect(),
        )
    }

    /// Returns the view of a range of the indices of one dim.
    ///
    /// ```text
    /// new[.., j, ..] = old[.., range.start + j, ..]
    /// ```
    ///
    /// Free where every rank holds its share of the range: where the dim is whole on every rank, and where
    /// its most significant digit is local and the range consists of whole values of it.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[24, 8], "SS(0,3),S(1)")?;
    /// assert_eq!(s.narrow(0, 8..24)?.to_string(), "SS(0,2),S(1)");
    /// assert_eq!(s.narrow(0, 4..12).unwrap_err().code(), "needs_redistribute");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `view` for indices out of range, and with `needs_redistribute` where the view needs
    /// communication first.
    pub fn narrow(&self, dim: usize, range: Range<usize>) -> Result<Sharding, Error> {
        let old = self.extent(dim)?;
        let Range { start, end } = range;
        if start > end || end > old {
            return Err(Error::View {
                reason: format!("dim {dim} has the indices 0..{old}, not {start}..{end}"),
            });
        }
        let len = end - start;
        if len == old {
            return Ok(self.clone());
        }
        let mut shape = Shape::from_slice(self.shape());
        shape[dim] = len;
        let in_the_way = || {
            self.uncut_first(
                dim,
                format!("{len} indices from {start} on are not an equal share of every rank of {self}"),
            )
        };
        if self.layout().is_some() {
            let mut modes = self.modes_of(dim);
            let Some(slowest) = modes.pop() else { return in_the_way() };
            let below = old as i64 / slowest.extent;
            let (start, len) = (start as i64, len as i64);
            if !slowest.stride.is_local() || start % below != 0 || len % below != 0 {
                return in_the_way();
            }
            if len == 0 {
                return self.without_elements(&shape);
            }
            modes.push(Mode { extent: len / below, ..slowest });
            return Ok(self.of_dims(&shape, |d| if d == dim { modes.clone() } else { self.modes_of(d) }));
        }
        let mut cuts: Cuts = self.cuts().unwrap_or_default().iter().cloned().collect();
        let of_dim: SmallVec<[usize; 4]> = (0..cuts.len()).filter(|&i| cuts[i].dim == dim).collect();
        match of_dim[..] {
            [] => {}
            // One strided split: whole chunks of it.
            [i] => match cuts[i].cut.narrowed(old, start..start + len) {
                Some(cut) => cuts[i].cut = cut,
                None => return in_the_way(),
            },
            _ => return in_the_way(),
        }
        Sharding::from_cuts(self.mesh(), &shape, cuts, self.partial().iter().copied().collect())
    }

    /// Returns the same ownership with dims renumbered.
    ///
    /// `to` is a bijection onto the dims of `shape` that are not new.
    fn renumbered(&self, shape: &[usize], to: impl Fn(usize) -> usize) -> Result<Sharding, Error> {
        if self.layout().is_some() {
            let from = |dim: usize| (0..self.shape().len()).find(|&d| to(d) == dim);
            return Ok(self.of_dims(shape, |dim| from(dim).map_or_else(Modes::new, |d| self.modes_of(d))));
        }
        let cuts = self.cuts().unwrap_or_default().iter().map(|c| AxisCut { dim: to(c.dim), ..c.clone() });
        Sharding::from_cuts(self.mesh(), shape, cuts.collect(), self.partial().iter().copied().collect())
    }

    /// Returns the modes of a dim where there is a layout.
    fn modes_of(&self, dim: usize) -> Modes<AxisStride> {
        let modes = self.layout().map(|layout| dim_of(layout, self.shape().len(), dim));
        Modes::from_slice(modes.unwrap_or_default())
    }

    /// Returns the sharding of another shape with these modes of every dim.
    fn of_dims(&self, shape: &[usize], modes: impl Fn(usize) -> Modes<AxisStride>) -> Sharding {
        let mut all = Modes::new();
        for dim in (0..shape.len()).rev() {
            all.extend_from_slice(&modes(dim));
        }
        Sharding::from_modes(self.mesh(), shape, all, self.partial()).expect("the modes of each dim make it")
    }

    /// Returns the same placements for a shape without elements.
    ///
    /// No dim is split where only sub-axes could hold them.
    fn without_elements(&self, shape: &[usize]) -> Result<Sharding, Error> {
        match self.placements() {
            Ok(placements) => Sharding::new(self.mesh(), shape, &placements),
            Err(_) => Sharding::from_cuts(
                self.mesh(),
                shape,
                SmallVec::new(),
                self.partial().iter().copied().collect(),
            ),
        }
    }

    /// Returns the error of a view for which dim `dim` has to be whole on every rank first.
    fn uncut_first(&self, dim: usize, reason: String) -> Result<Sharding, Error> {
        let first = if self.layout().is_some() {
            let whole = Modes::from_slice(&[Mode::new(self.shape()[dim] as i64, AxisStride::local(1))]);
            self.of_dims(self.shape(), |d| if d == dim { whole.clone() } else { self.modes_of(d) })
        } else {
            let rest = self.cuts().unwrap_or_default().iter().filter(|c| c.dim != dim).cloned();
            let partial = self.partial().iter().copied();
            Sharding::from_cuts(self.mesh(), self.shape(), rest.collect(), partial.collect())?
        };
        let elements = (first.max_local_numel() - first.max_local_numel().min(self.max_local_numel())) as u64;
        Err(Error::NeedsRedistribution { reason, first: first.to_string(), elements })
    }

    fn extent(&self, dim: usize) -> Result<usize, Error> {
        self.shape().get(dim).copied().ok_or_else(|| self.no_dims(&dim.to_string()))
    }

    fn no_dims(&self, dims: &str) -> Error {
        Error::View { reason: format!("there is no dim {dims} in {:?}: dims count from 0", self.shape()) }
    }
}
