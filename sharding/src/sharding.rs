//! Shardings: who holds which elements of a tensor.
//!
//! A sharding is a mesh, a shape, the partial axes, and one of two forms:
//!
//! * **digits** wherever the ownership is a layout: canonical words (see [`crate::digits`]), so that `==` means the same
//!   ownership, whatever placements it was made from;
//! * **cuts** where it is not (a dim that does not divide, or of size 0): the list of cuts of each dim in the order in
//!   which they apply, normalised. A dim that divides has the cuts of its canonical word, most significant first, each
//!   with the product of the local digits before it as its split factor; on one that does not, needless split factors
//!   are gone. Axes of size 1 are gone from both.
//!
//! Either form gives `region(rank)`, and both are what PyTorch's placements mean, exactly.

mod decode;
mod normal;

use normal::{canonical_partial, digits_of, lens_after, normal_cuts};
pub(crate) use normal::{cuts_of, word_of};

use reshard_layout::Layout;
use smallvec::SmallVec;

use crate::axis::{SubAxis, complement};
use crate::cut::{Cut, MAX_PIECES};
use crate::digits::{Digit, Digits, Owner, canonical};
use crate::region::{Interval, Intervals, Region, push};
use crate::{Error, Mesh, Placement, ReduceOp};

/// The extents of a tensor's dims.
pub type Shape = SmallVec<[usize; 4]>;

/// A sub-axis over which the tensor is a reduction that is still owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartialAxis {
    /// The sub-axis whose ranks hold the terms.
    pub sub: SubAxis,
    /// How the terms make the value.
    pub op: ReduceOp,
}

/// Who holds which elements of a tensor of a given shape (see the [module](self)); canonical by construction.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let s = Sharding::parse(&mesh, &[1024], "SS(0,4),S(0)")?;
/// assert_eq!(s, Sharding::parse(&mesh, &[1024], "[{tp,dp}]")?);
/// assert_eq!(s.to_string(), "SS(0,4),S(0)");
/// assert_eq!(s.ownership().unwrap().to_string(), "((4,2),(128,)):((256,128),(1,))");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Sharding {
    mesh: Mesh,
    shape: Shape,
    partial: SmallVec<[PartialAxis; 2]>,
    form: Form,
}

/// One cut of a dim by a sub-axis, whose size is that of the cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AxisCut {
    pub(crate) dim: usize,
    pub(crate) sub: SubAxis,
    pub(crate) cut: Cut,
}

/// The cuts of some dims, those of one dim in the order in which they apply.
pub(crate) type Cuts = SmallVec<[AxisCut; 4]>;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Form {
    Digits(Digits),
    /// By dim; within a dim in the order in which they apply.
    Cuts(Cuts),
}

impl Clone for Sharding {
    // Plans hold many: plain copies of the lists, not element by element.
    fn clone(&self) -> Sharding {
        let form = match &self.form {
            Form::Digits(digits) => Form::Digits(Digits::from_slice(digits)),
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
    /// The sharding that these placements mean, one per mesh axis, applied from the outermost axis in.
    pub fn new(mesh: &Mesh, shape: &[usize], placements: &[Placement]) -> Result<Sharding, Error> {
        if placements.len() != mesh.axes().len() {
            return Err(Error::PlacementCount {
                placements: placements.len(),
                axes: mesh.axes().len(),
                mesh: mesh.to_string(),
            });
        }
        let mut cuts = Cuts::new();
        let mut partial: SmallVec<[PartialAxis; 2]> = SmallVec::new();
        for (axis, p) in placements.iter().enumerate() {
            let a = &mesh.axes()[axis];
            if let Placement::Partial(op) = *p {
                partial.push(PartialAxis { sub: mesh.whole(axis), op });
            }
            if let Placement::Ragged { sizes, .. } = p {
                check_sizes(sizes, p, a)?;
            }
            let Some((dim, cut)) = p.cut(a.size()) else { continue };
            if dim >= shape.len() {
                return Err(Error::NoSuchDim { dim, dims: shape.len(), placement: p.to_string() });
            }
            if cut.pieces() == 0 {
                return Err(Error::Placement { reason: format!("{p} has split factor 0: it is at least 1") });
            }
            if let (None, Placement::Ragged { sizes, .. }) = (cut.sizes(), p) {
                // Its sizes are plain chunks, of that length only.
                check_total(shape, &cuts, dim, sizes.iter().sum(), p)?;
            }
            cuts.push(AxisCut { dim, sub: mesh.whole(axis), cut });
        }
        Sharding::from_cuts(mesh, shape, cuts, partial)
    }

    /// The sharding that a text means on this mesh and shape: placements or by tensor.
    pub fn parse(mesh: &Mesh, shape: &[usize], text: &str) -> Result<Sharding, Error> {
        crate::notation::parse_sharding(mesh, shape, text)
    }

    /// Everything everywhere.
    pub fn replicated(mesh: &Mesh, shape: &[usize]) -> Result<Sharding, Error> {
        Sharding::from_cuts(mesh, shape, SmallVec::new(), SmallVec::new())
    }

    /// The sharding of these cuts, applied in the order given; cuts by sub-axes that overlap are the caller's fault.
    pub(crate) fn from_cuts(
        mesh: &Mesh,
        shape: &[usize],
        mut cuts: Cuts,
        partial: SmallVec<[PartialAxis; 2]>,
    ) -> Result<Sharding, Error> {
        check_shape(shape)?;
        let partial = canonical_partial(mesh, partial)?;
        for i in 0..cuts.len() {
            if let Some(total) = cuts[i].cut.total() {
                let p = Placement::of_cut(cuts[i].dim, &cuts[i].cut);
                check_total(shape, &cuts[..i], cuts[i].dim, total, &p)?;
            }
        }
        cuts.retain(|c| c.cut.ranks() > 1);
        cuts.sort_by_key(|c| c.dim);
        let form = if let Some(digits) = digits_of(shape, &cuts) {
            Form::Digits(digits)
        } else {
            Form::Cuts(cuts.chunk_by(|a, b| a.dim == b.dim).flat_map(|c| normal_cuts(shape, c)).collect())
        };
        Ok(Sharding { mesh: mesh.clone(), shape: Shape::from_slice(shape), partial, form })
    }

    /// The sharding of these digits, by dim and most significant first.
    ///
    /// Requires that each dim's radices multiply to its extent and that no sub-axis is used twice.
    pub(crate) fn from_digits(
        mesh: &Mesh,
        shape: &[usize],
        digits: impl IntoIterator<Item = Digit>,
        partial: impl IntoIterator<Item = PartialAxis>,
    ) -> Result<Sharding, Error> {
        let partial = canonical_partial(mesh, partial.into_iter().collect())?;
        let form = Form::Digits(canonical(digits));
        Ok(Sharding { mesh: mesh.clone(), shape: Shape::from_slice(shape), partial, form })
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The extents of the whole tensor.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements of the whole tensor.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The partial axes, outermost first; none for a tensor that owes nothing.
    pub fn partial(&self) -> &[PartialAxis] {
        &self.partial
    }

    /// The same with its terms reduced to replicas.
    pub(crate) fn settled(&self) -> Sharding {
        Sharding { partial: SmallVec::new(), ..self.clone() }
    }

    /// Whether ranks hold terms of a reduction that is still owed.
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// The op that combines the terms, and the number that their combination is divided by (1 without avg).
    pub fn reduction(&self) -> Option<(ReduceOp, usize)> {
        let op = self.partial.first()?.op.combining();
        let divisor = self.partial.iter().filter(|p| p.op == ReduceOp::Avg).map(|p| p.sub.size).product();
        Some((op, divisor))
    }

    /// The canonical digits of all dims, or `None` where the ownership is not a layout.
    pub fn digits(&self) -> Option<&[Digit]> {
        match &self.form {
            Form::Digits(d) => Some(d),
            Form::Cuts(_) => None,
        }
    }

    /// The cuts, by dim and in order of application, where there are no digits.
    pub(crate) fn cuts(&self) -> Option<&[AxisCut]> {
        match &self.form {
            Form::Digits(_) => None,
            Form::Cuts(c) => Some(c),
        }
    }

    /// The canonical word of a dim that divides, whatever the others do.
    pub(crate) fn word(&self, dim: usize) -> Option<Digits> {
        match &self.form {
            Form::Digits(digits) => Some(digits.iter().copied().filter(|d| d.dim == dim).collect()),
            Form::Cuts(cuts) => word_of(dim, self.shape[dim], cuts),
        }
    }

    /// Feeds a hasher with a part of what tells shardings apart: equal ones alike, and quickly.
    pub(crate) fn hash_word(&self, hasher: &mut impl core::hash::Hasher) {
        hasher.write_usize(self.mesh.size() ^ self.mesh.world().rotate_left(32));
        for &n in &self.shape {
            hasher.write_usize(n);
        }
        match &self.form {
            Form::Digits(digits) => {
                for d in digits {
                    let owner = match d.owner {
                        Owner::Local => 0,
                        Owner::Axis { axis, pre } => (axis + 1) ^ pre.rotate_left(16),
                    };
                    hasher.write_usize(d.dim ^ owner.rotate_left(8) ^ d.radix.rotate_left(40));
                }
            }
            Form::Cuts(cuts) => {
                for c in cuts {
                    hasher.write_usize(c.dim ^ c.sub.axis.rotate_left(16) ^ c.cut.pieces().rotate_left(32));
                }
            }
        }
        for p in &self.partial {
            hasher.write_usize(p.sub.axis ^ p.sub.pre.rotate_left(16) ^ (p.op as usize).rotate_left(56));
        }
    }

    /// This sharding with other partial axes.
    pub(crate) fn with_partial(
        &self,
        partial: impl IntoIterator<Item = PartialAxis>,
    ) -> Result<Sharding, Error> {
        let partial = canonical_partial(&self.mesh, partial.into_iter().collect())?;
        Ok(Sharding { partial, ..self.clone() })
    }

    fn coordinate(&self, rank: usize) -> Result<crate::mesh::Coordinate, Error> {
        self.mesh.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: self.mesh.to_string() })
    }

    /// Which piece of a cut the rank at a coordinate keeps.
    fn place(&self, x: &AxisCut, c: &[usize]) -> usize {
        x.sub.digit(c[x.sub.axis], self.mesh.axes()[x.sub.axis].size())
    }

    /// The extents of the local tensor of a rank.
    pub fn local_shape(&self, rank: usize) -> Result<SmallVec<[usize; 6]>, Error> {
        let c = self.coordinate(rank)?;
        let mut local: SmallVec<[usize; 6]> = SmallVec::from_slice(&self.shape);
        match &self.form {
            Form::Digits(digits) => {
                for d in digits.iter().filter(|d| d.owner != Owner::Local) {
                    local[d.dim] /= d.radix;
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

    /// The greatest number of elements that any rank holds.
    pub fn max_local_numel(&self) -> usize {
        match &self.form {
            Form::Digits(_) => self.numel() / self.shards(),
            // No sub-axis cuts two dims, so the greatest of each dim meet on one rank.
            Form::Cuts(cuts) => (0..self.shape.len())
                .map(|dim| {
                    let cuts = cuts.iter().filter(|x| x.dim == dim);
                    lens_after(self.shape[dim], cuts).into_iter().max().unwrap_or(0)
                })
                .product(),
        }
    }

    /// Into how many equal shards the digits cut the tensor.
    fn shards(&self) -> usize {
        self.digits().map_or(1, |ds| ds.iter().filter(|d| d.owner != Owner::Local).map(|d| d.radix).product())
    }

    /// Which global indices a rank holds.
    pub fn region(&self, rank: usize) -> Result<Region, Error> {
        let c = self.coordinate(rank)?;
        let dims = (0..self.shape.len()).map(|dim| self.intervals(dim, &c)).collect::<Result<_, Error>>()?;
        Ok(Region { dims })
    }

    /// Which indices of one dim the rank at a coordinate holds.
    pub(crate) fn intervals(&self, dim: usize, c: &[usize]) -> Result<Intervals, Error> {
        let len = self.shape[dim];
        match &self.form {
            Form::Digits(digits) => {
                let word: SmallVec<[Digit; 8]> = digits.iter().copied().filter(|d| d.dim == dim).collect();
                self.intervals_of_word(dim, &word, c)
            }
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

    fn intervals_of_word(&self, dim: usize, word: &[Digit], c: &[usize]) -> Result<Intervals, Error> {
        let mut base = 0;
        let mut weight = self.shape[dim];
        let mut loops: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for d in word {
            weight /= d.radix;
            match d.sub_axis() {
                Some(sub) => base += sub.digit(c[sub.axis], self.mesh.axes()[sub.axis].size()) * weight,
                None => loops.push((d.radix, weight)),
            }
        }
        // A last local digit is a contiguous run.
        let run = match loops.last() {
            Some(&(radix, 1)) => {
                loops.pop();
                radix
            }
            _ => 1,
        };
        let pieces: usize = loops.iter().map(|l| l.0).product();
        if pieces > MAX_PIECES {
            return Err(Error::TooFragmented { dim, pieces, limit: MAX_PIECES });
        }
        let mut list = Intervals::with_capacity(pieces);
        for i in 0..pieces {
            let mut left = i;
            let mut start = base;
            for &(radix, weight) in loops.iter().rev() {
                start += left % radix * weight;
                left /= radix;
            }
            push(&mut list, Interval { start, len: run });
        }
        Ok(list)
    }

    /// The ownership as one layout `(mesh modes, local modes) -> global row-major index`, or `None` where there is none.
    ///
    /// Both modes are in the order of memory, reversed as row-major is: index `i` of the first counts ranks in mesh
    /// order (last axis fastest), index `j` of the second is the row-major offset in the local tensor. Replicated and
    /// partial axes have stride 0. Uneven and zero-size tensors have none.
    pub fn ownership(&self) -> Option<Layout> {
        let digits = self.digits()?;
        // The weight of each digit in the row-major index of the whole tensor.
        let mut weight = 1i64;
        let mut weights: SmallVec<[i64; 8]> = SmallVec::new();
        let mut at = digits.len();
        for (dim, &n) in self.shape.iter().enumerate().rev() {
            let mut left = 1i64;
            while at > 0 && digits[at - 1].dim == dim {
                at -= 1;
                weights.push(weight * left);
                left *= digits[at].radix as i64;
            }
            weight *= n as i64;
        }
        weights.reverse();
        let mut mesh_modes: SmallVec<[Layout; 4]> = SmallVec::new();
        for (i, axis) in self.mesh.axes().iter().enumerate().rev() {
            let mut subs: SmallVec<[(SubAxis, i64); 4]> = digits
                .iter()
                .zip(&weights)
                .filter_map(|(d, &w)| d.sub_axis().filter(|s| s.axis == i).map(|s| (s, w)))
                .collect();
            subs.sort_by_key(|(s, _)| s.pre);
            let mut modes: SmallVec<[(i64, i64); 6]> = SmallVec::new();
            let mut pre = 1;
            for (s, w) in subs {
                if s.pre > pre {
                    modes.push(((s.pre / pre) as i64, 0));
                }
                modes.push((s.size as i64, w));
                pre = s.pre * s.size;
            }
            if pre < axis.size() || modes.is_empty() {
                modes.push(((axis.size() / pre) as i64, 0));
            }
            modes.reverse();
            mesh_modes.push(Layout::from_modes(&modes).ok()?.coalesce());
        }
        let mut local_modes: SmallVec<[Layout; 4]> = SmallVec::new();
        for dim in (0..self.shape.len()).rev() {
            let mut modes: SmallVec<[(i64, i64); 6]> = digits
                .iter()
                .zip(&weights)
                .filter(|(d, _)| d.dim == dim && d.owner == Owner::Local)
                .map(|(d, &w)| (d.radix as i64, w))
                .collect();
            modes.reverse();
            local_modes.push(Layout::from_modes(&modes).ok()?.coalesce());
        }
        let tuple = |modes: &[Layout]| {
            if modes.is_empty() { Layout::from_modes(&[]) } else { Layout::concat(modes) }
        };
        Layout::concat(&[tuple(&mesh_modes).ok()?, tuple(&local_modes).ok()?]).ok()
    }

    /// The sub-axes that neither shard a dim nor are partial: the tensor is the same along them.
    pub fn replicated_axes(&self) -> SmallVec<[SubAxis; 4]> {
        let mut used: SmallVec<[SubAxis; 8]> = self.partial.iter().map(|p| p.sub).collect();
        match &self.form {
            Form::Digits(d) => used.extend(d.iter().filter_map(Digit::sub_axis)),
            Form::Cuts(c) => used.extend(c.iter().map(|x| x.sub)),
        }
        complement(&used, self.mesh.axes())
    }
}

/// Fails unless the number of elements (not counting dims of size 0) fits.
fn check_shape(shape: &[usize]) -> Result<(), Error> {
    numel(shape).map(|_| ())
}

/// The number of elements of a shape; that of its dims that are not 0 must fit, so that every partial product does.
pub(crate) fn numel(shape: &[usize]) -> Result<usize, Error> {
    let product = shape
        .iter()
        .filter(|&&n| n > 0)
        .try_fold(1i64, |p, &n| p.checked_mul(i64::try_from(n).ok()?))
        .ok_or_else(|| Error::overflow(format!("the number of elements of {shape:?}")))?;
    Ok(if shape.contains(&0) { 0 } else { product as usize })
}

/// Fails unless there is a size for each rank of an axis and their sum fits.
pub(crate) fn check_sizes(sizes: &[usize], p: &Placement, axis: &crate::Axis) -> Result<(), Error> {
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

/// Fails unless earlier cuts leave every rank exactly `total` indices of a dim, for a ragged cut that has so many.
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
