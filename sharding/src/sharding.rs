//! Shardings: the elements of a tensor that each rank holds.

mod local;
mod normal;

use std::hash::{Hash, Hasher};

pub(crate) use normal::made;
pub use normal::{canonical_partial, cut_after};
use normal::{lens_after, normal_cuts};
use reshard_layout::Boundary;
use reshard_layout::InlineVec;
use reshard_layout::{AxisStride, Layout, Mode, Modes};
use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::layout;
use crate::layout::encode::{cuts_of, dim_of_cuts, layout_of};
use crate::partition::{DimCut, PartitionRegistry};
use crate::{Error, Mesh, Placement, ReduceOp};

/// The extents of a tensor's dims.
pub type Shape = InlineVec<usize, 4>;

/// A sub-axis over which the tensor is partial: its ranks hold partial values whose reduction is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartialAxis {
    /// The sub-axis whose ranks hold the partial values.
    pub sub: SubAxis,
    /// The op that reduces the partial values.
    pub op: ReduceOp,
}

/// The elements of a tensor of a given shape that each rank holds; canonical by construction.
///
/// A sharding is a mesh, a shape, the partial axes, and one of two forms:
///
/// * a **layout** wherever every split divides: coalesced by dim, so that `==` means the same ownership,
///   whatever placements it was made from;
/// * **splits** where one does not, or a dim is of size 0: the list of splits of each dim in the order in
///   which they apply, normalised. A dim that divides has the splits of its modes, slowest first, each with
///   the product of the local modes above it as its split factor; on one that does not, needless split
///   factors are removed. Axes of size 1 are removed from both.
///
/// Either form gives `region(rank)`, and both have exactly the semantics of PyTorch's placements.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let s = Sharding::parse(&mesh, &[1024], "SS(0,4),S(0)")?;
/// assert_eq!(s, Sharding::parse(&mesh, &[1024], "[{tp,dp}]")?);
/// assert_eq!(s.to_string(), "SS(0,4),S(0)");
/// assert_eq!(s.layout().unwrap().to_string(), "((128,2,4),):((1,1@0,1@1),)"); // 1@0 is a step along dp
/// assert_eq!(s.ownership().unwrap().to_string(), "((4,2),(128,)):((256,128),(1,))");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Sharding {
    mesh: Mesh,
    shape: Shape,
    partial: SmallVec<[PartialAxis; 2]>,
    form: Form,
}

/// One split of a dim by a sub-axis, whose size is that of the split.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AxisCut {
    /// The dim.
    pub dim: usize,
    /// The sub-axis of the split.
    pub sub: SubAxis,
    /// The split of the dim.
    pub cut: DimCut,
}

/// The splits of some dims, those of one dim in the order in which they apply.
pub type Cuts = SmallVec<[AxisCut; 4]>;

/// The representation of the ownership of the elements.
#[derive(Debug, Eq)]
pub(crate) enum Form {
    /// One mode per dim, the last dim first.
    Layout(Layout<AxisStride>),
    /// By dim; within a dim in the order in which they apply.
    Cuts(Cuts),
}

impl PartialEq for Form {
    /// Compares the forms of shardings of one shape; the flat modes determine where each dim ends.
    #[inline]
    fn eq(&self, other: &Form) -> bool {
        match (self, other) {
            (Form::Layout(a), Form::Layout(b)) => a.flat() == b.flat(),
            (Form::Cuts(a), Form::Cuts(b)) => a == b,
            (Form::Layout(_), Form::Cuts(_)) | (Form::Cuts(_), Form::Layout(_)) => false,
        }
    }
}

impl Hash for Sharding {
    /// Hashes one number per part that distinguishes shardings as cache keys.
    ///
    /// Of the mesh, only the numbers of its ranks are used.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_usize(self.mesh.size() ^ self.mesh.world_size().rotate_left(32));
        for &n in &self.shape {
            hasher.write_usize(n);
        }
        match &self.form {
            Form::Layout(layout) => {
                for m in layout.flat() {
                    let axis = m.stride.axis().map_or(0, |axis| axis as usize + 1);
                    let step = m.stride.step() as usize;
                    hasher.write_usize(axis.rotate_left(8) ^ step.rotate_left(24) ^ m.extent as usize);
                }
            }
            Form::Cuts(cuts) => {
                for c in cuts {
                    hasher.write_usize(c.dim ^ c.sub.axis.rotate_left(16) ^ c.cut.pieces().rotate_left(32));
                    for &size in c.cut.sizes().into_iter().flat_map(|sizes| sizes.iter()) {
                        hasher.write_usize(size);
                    }
                }
            }
        }
        for p in &self.partial {
            hasher.write_usize(
                p.sub.axis ^ p.sub.pre_size.rotate_left(16) ^ usize::from(p.op.word()).rotate_left(56),
            );
        }
    }
}

impl Clone for Sharding {
    // Plans hold many: plain copies of the lists, not element by element.
    fn clone(&self) -> Sharding {
        let form = match &self.form {
            Form::Layout(layout) => Form::Layout(layout.clone()),
            Form::Cuts(cuts) => Form::Cuts(cuts.clone()),
        };
        Sharding {
            mesh: self.mesh.clone(),
            shape: Shape::from_slice(&self.shape),
            partial: SmallVec::from_slice(&self.partial),
            form,
        }
    }
}

impl Sharding {
    /// Returns the sharding of these placements, one per mesh axis, applied from the outermost axis in.
    pub fn new(mesh: &Mesh, shape: &[usize], placements: &[Placement]) -> Result<Sharding, Error> {
        Sharding::applied(mesh, shape, placements, 0..placements.len())
    }

    /// Returns the same, applied in an order of all axes.
    #[inline]
    pub(crate) fn applied(
        mesh: &Mesh,
        shape: &[usize],
        placements: &[Placement],
        order: impl Iterator<Item = usize>,
    ) -> Result<Sharding, Error> {
        if placements.len() != mesh.axes().len() {
            return Err(Error::PlacementCount {
                placements: placements.len(),
                axes: mesh.axes().len(),
                mesh: mesh.to_string(),
            });
        }
        let mut cuts = Cuts::new();
        let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
        for axis in order {
            let (a, p) = (&mesh.axes()[axis], &placements[axis]);
            if let Placement::Partial(op) = *p {
                partial.push(PartialAxis { sub: mesh.known_whole(axis), op });
            }
            if let Placement::Ragged { sizes, .. } = p {
                check_sizes(sizes, p, a)?;
            }
            let Some((dim, cut)) = p.cut(a.size()) else { continue };
            if dim >= shape.len() {
                return Err(Error::NoSuchDim { dim, dims: shape.len(), placement: Some(p.to_string()) });
            }
            if cut.pieces() == 0 {
                return Err(Error::Placement {
                    reason: format!("{p} has split factor 0; it must be at least 1"),
                });
            }
            if let (None, Placement::Ragged { sizes, .. }) = (cut.sizes(), p) {
                // Its sizes are plain chunks, of that length only.
                check_total(shape, &cuts, dim, sizes.iter().sum(), p)?;
            }
            let cut = if cut.is_chunks() { cut } else { cut_after(shape, &cuts, dim, cut)? };
            cuts.push(AxisCut { dim, sub: mesh.known_whole(axis), cut });
        }
        Sharding::from_cuts(mesh, shape, cuts, partial)
    }

    /// Parses a sharding on this mesh and shape, in any of the [notations](crate::notation).
    ///
    /// These are placements, by tensor, PyTorch's, JAX's, Shardy's and HLO's.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let s = Sharding::parse(&mesh, &[64, 32], "S(0),R")?;
    /// assert_eq!(s, Sharding::parse(&mesh, &[64, 32], "[{dp},{}]")?);
    /// assert_eq!(s, Sharding::parse(&mesh, &[64, 32], "PartitionSpec('dp', None)")?);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `parse` for a text that is none of these, and as [`Sharding::new`].
    pub fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<Sharding, Error> {
        crate::notation::parse_sharding(&PartitionRegistry::new(), mesh, shape, text)
    }

    /// Returns the same where placements may use the dim partitions of a registry: see [`PartitionRegistry`].
    pub fn parse_with(
        cuts: &PartitionRegistry,
        mesh: &Mesh,
        shape: &[usize],
        text: &str,
    ) -> Result<Sharding, Error> {
        crate::notation::parse_sharding(cuts, mesh, shape, text)
    }

    /// Returns the sharding that is replicated on every axis.
    pub fn replicated(mesh: &Mesh, shape: &[usize]) -> Result<Sharding, Error> {
        Sharding::from_cuts(mesh, shape, SmallVec::new(), SmallVec::new())
    }

    /// Returns the sharding of these splits, applied in the order given.
    ///
    /// Overlapping sub-axes are not checked.
    #[doc(hidden)]
    pub fn from_cuts(
        mesh: &Mesh,
        shape: &[usize],
        mut cuts: Cuts,
        partial: SmallVec<[PartialAxis; 2]>,
    ) -> Result<Sharding, Error> {
        check_shape(shape)?;
        let partial = canonical_partial(mesh, partial)?;
        for i in 0..cuts.len() {
            if cuts[i].cut.is_chunks() {
                continue;
            }
            if let Some(total) = cuts[i].cut.total() {
                let p = Placement::of_cut(cuts[i].dim, &cuts[i].cut);
                check_total(shape, &cuts[..i], cuts[i].dim, total, &p)?;
            }
            cuts[i].cut = cut_after(shape, &cuts[..i], cuts[i].dim, cuts[i].cut.clone())?;
        }
        cuts.retain(|c| c.cut.ranks() > 1);
        cuts.sort_by_key(|c| c.dim);
        let form = if let Some(layout) = layout_of(mesh, shape, &cuts) {
            Form::Layout(layout)
        } else {
            let dims = cuts.chunk_by(|a, b| a.dim == b.dim);
            Form::Cuts(dims.flat_map(|c| normal_cuts(mesh, shape, c)).collect())
        };
        Ok(Sharding { mesh: mesh.clone(), shape: Shape::from_slice(shape), partial, form })
    }

    /// Returns the sharding of these modes of the row-major index, the fastest first.
    ///
    /// Local strides need not be right.
    ///
    /// Requires that the extents multiply to the number of elements, which is not 0, and that no sub-axis is
    /// used twice. Fails only where a dim ends inside a mode that it does not divide, with that boundary.
    #[doc(hidden)]
    pub fn from_modes(
        mesh: &Mesh,
        shape: &[usize],
        modes: Modes<AxisStride>,
        partial: &[PartialAxis],
    ) -> Result<Sharding, Boundary> {
        let form = Form::Layout(layout::of_modes(shape, modes)?);
        Ok(Sharding {
            mesh: mesh.clone(),
            shape: Shape::from_slice(shape),
            partial: SmallVec::from_slice(partial),
            form,
        })
    }

    /// Returns the same tensor on the same mesh with other modes.
    ///
    /// Requires that they nest with its dims.
    #[doc(hidden)]
    #[must_use]
    pub fn with_modes(&self, modes: impl Iterator<Item = Mode<AxisStride>>) -> Sharding {
        Sharding::from_modes(&self.mesh, &self.shape, modes.collect(), &self.partial)
            .expect("the modes of each dim stay in it")
    }

    /// Returns the mesh.
    #[inline]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the extents of the whole tensor.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements of the whole tensor.
    #[inline]
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the partial axes, outermost first; empty for a tensor without a pending reduction.
    #[inline]
    pub fn partial(&self) -> &[PartialAxis] {
        &self.partial
    }

    /// Returns the same sharding with its partial values reduced to replicas.
    #[doc(hidden)]
    #[must_use]
    pub fn reduced(&self) -> Sharding {
        Sharding { partial: SmallVec::new(), ..self.clone() }
    }

    /// Returns `true` if ranks hold partial values whose reduction is pending.
    #[inline]
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Returns the op that combines the partial values, and the divisor of the result (1 without avg).
    #[doc(hidden)]
    pub fn reduction(&self) -> Option<(ReduceOp, usize)> {
        let op = self.partial.first()?.op.combining();
        let divisor = self.partial.iter().filter(|p| p.op.divides()).map(|p| p.sub.size).product();
        Some((op, divisor))
    }

    /// Returns the layout from the row-major index to coordinates and local offset.
    ///
    /// Returns `None` where there is none.
    ///
    /// One mode per dim, the last dim first; `step@a` goes along axis `a` of the mesh, plain strides are
    /// those of the dense local buffer. Uneven and zero-size tensors have none.
    pub fn layout(&self) -> Option<&Layout<AxisStride>> {
        match &self.form {
            Form::Layout(layout) => Some(layout),
            Form::Cuts(_) => None,
        }
    }

    pub(crate) fn form(&self) -> &Form {
        &self.form
    }

    /// Returns the modes of the row-major index, fastest first, where there is a layout.
    #[inline]
    #[doc(hidden)]
    pub fn modes(&self) -> Option<&[Mode<AxisStride>]> {
        self.layout().map(Layout::flat)
    }

    /// Returns the splits, by dim and in order of application, where there are no digits.
    #[inline]
    #[doc(hidden)]
    pub fn cuts(&self) -> Option<&[AxisCut]> {
        match &self.form {
            Form::Layout(_) => None,
            Form::Cuts(c) => Some(c),
        }
    }

    /// Returns the modes of a dim that divides, coalesced, fastest first.
    ///
    /// The other dims need not divide. A dim of 1 has one mode of extent 1.
    #[inline]
    #[doc(hidden)]
    pub fn dim_modes(&self, dim: usize) -> Option<Modes<AxisStride>> {
        match &self.form {
            Form::Layout(layout) => Some(Modes::from_slice(layout::dim_of(layout, self.shape.len(), dim))),
            Form::Cuts(cuts) => dim_of_cuts(&self.mesh, dim, self.shape[dim], cuts),
        }
    }

    /// Returns the splits of a dim in order of application, whatever the form.
    #[doc(hidden)]
    pub fn dim_cuts(&self, dim: usize) -> Cuts {
        match &self.form {
            Form::Layout(layout) => cuts_of(&self.mesh, dim, layout::dim_of(layout, self.shape.len(), dim)),
            Form::Cuts(cuts) => cuts.iter().filter(|c| c.dim == dim).cloned().collect(),
        }
    }

    /// Returns the sub-axes that shard a dim, by dim and in order of application.
    #[doc(hidden)]
    pub fn cutting(&self) -> impl Iterator<Item = SubAxis> + Clone + '_ {
        let modes = self.modes().unwrap_or_default().iter().rev().filter_map(|&m| self.mesh.sub_axis(m));
        modes.chain(self.cuts().unwrap_or_default().iter().map(|x| x.sub))
    }

    /// This sharding with other partial axes.
    #[doc(hidden)]
    pub fn with_partial(&self, partial: impl IntoIterator<Item = PartialAxis>) -> Result<Sharding, Error> {
        let partial = canonical_partial(&self.mesh, partial.into_iter().collect())?;
        Ok(Sharding { partial, ..self.clone() })
    }
}

/// Fails unless the number of elements (not counting dims of size 0) fits.
fn check_shape(shape: &[usize]) -> Result<(), Error> {
    numel(shape).map(|_| ())
}

/// Limit on the number of dims; layouts can hold that many, each split several times.
const MOST_DIMS: usize = 256;

/// Returns the number of elements of a shape.
///
/// The product of its nonzero dims must fit, so that every partial product does.
#[inline]
pub fn numel(shape: &[usize]) -> Result<usize, Error> {
    if shape.len() > MOST_DIMS {
        return Err(Error::Placement {
            reason: format!(
                "the tensor has {} dims, and at most {MOST_DIMS} can be sharded; merge some of them",
                shape.len()
            ),
        });
    }
    let product = shape
        .iter()
        .filter(|&&n| n > 0)
        .try_fold(1i64, |p, &n| p.checked_mul(i64::try_from(n).ok()?))
        .ok_or_else(|| Error::overflow(format!("the number of elements of {shape:?}")))?;
    Ok(if shape.contains(&0) { 0 } else { product as usize })
}

/// Fails unless there is a size for each rank of an axis and their sum fits.
pub fn check_sizes(sizes: &[usize], p: &Placement, axis: &crate::Axis) -> Result<(), Error> {
    if sizes.len() != axis.size() {
        return Err(Error::Placement {
            reason: format!(
                "{p} has {} sizes, but the axis {} has {} ranks: give one size per rank",
                sizes.len(),
                axis.name(),
                axis.size()
            ),
        });
    }
    let sum = sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(i64::try_from(n).ok()?));
    sum.map(|_| ()).ok_or_else(|| Error::overflow(format!("the sum of the sizes of {p}")))
}

/// Fails unless earlier splits leave every rank exactly `total` indices of a dim, the sum of a ragged split.
fn check_total(
    shape: &[usize],
    earlier: &[AxisCut],
    dim: usize,
    total: usize,
    p: &Placement,
) -> Result<(), Error> {
    let lens = lens_after(shape.get(dim).copied().unwrap_or(total), earlier.iter().filter(|c| c.dim == dim));
    match lens.iter().find(|&&len| len != total) {
        None => Ok(()),
        Some(len) => Err(Error::Placement {
            reason: format!(
                "the sizes of {p} add up to {total}, but earlier axes leave a rank {len} of dim {dim}: they must be equal"
            ),
        }),
    }
}
