//! Regions: the global indices that a rank holds, for any placements, even or not.

use reshard_layout::InlineVec;

use crate::Error;

/// The indices `start .. start + len` of one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The first index.
    pub start: usize,
    /// The number of indices.
    pub len: usize,
}

/// The indices of one dim that a rank holds, in ascending local order.
///
/// No interval is empty and no two touch.
pub type Intervals = InlineVec<Interval, 2>;

/// The global indices that a rank holds: the product over dims of lists of intervals in local order.
///
/// Local index `j` of a dim is the `j`-th index of the concatenated list; the local tensor is row-major over
/// these.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "dp=4,tp=2".parse()?;
/// let s = Sharding::parse(&mesh, &[15, 5], "SS(0,2),S(0)")?;
/// let region = s.region(0)?;
/// assert_eq!(region.local_shape().as_slice(), [2, 5]);
/// assert_eq!(region.indices(0)?.collect::<Vec<_>>(), [0, 1]);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// One list per dim.
    pub dims: InlineVec<Intervals, 4>,
}

impl Region {
    /// Returns the number of indices of each dim.
    pub fn local_shape(&self) -> InlineVec<usize, 6> {
        self.dims.iter().map(|list| list.iter().map(|x| x.len).sum()).collect()
    }

    /// Returns the number of elements: the product of the local shape.
    pub fn numel(&self) -> usize {
        self.local_shape().iter().product()
    }

    /// Returns the global indices of one dim, in local order; an error past the last dim.
    pub fn indices(&self, dim: usize) -> Result<impl Iterator<Item = usize> + '_, Error> {
        let dims = self.dims.len();
        let list = self.dims.get(dim).ok_or(Error::NoSuchDim { dim, dims, placement: None })?;
        Ok(list.iter().flat_map(|x| x.start..x.start + x.len))
    }
}

/// Appends an interval, joined to the last one where they touch.
pub(crate) fn push(out: &mut Intervals, x: Interval) {
    if x.len == 0 {
        return;
    }
    match out.last_mut() {
        Some(last) if last.start + last.len == x.start => last.len += x.len,
        _ => out.push(x),
    }
}

/// A regular family of ranges that are in two lists at once.
///
/// It has `count` ranges of `len` indices, each a step further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first range in the source.
    pub source: usize,
    /// Offset of the first range in the target.
    pub target: usize,
    /// Elements of each.
    pub len: usize,
    /// The number of ranges.
    pub count: usize,
    /// From one to the next in the source.
    pub source_step: usize,
    /// From one to the next in the target.
    pub target_step: usize,
}

/// Returns the overlaps of two ascending lists, as `(source local index, target local index, length)`.
fn overlaps<'a>(
    source: &'a [Interval],
    target: &'a [Interval],
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    let (mut i, mut j, mut before_i, mut before_j) = (0, 0, 0, 0);
    core::iter::from_fn(move || {
        while i < source.len() && j < target.len() {
            let (a, b) = (source[i], target[j]);
            let (end_a, end_b) = (a.start + a.len, b.start + b.len);
            let (lo, hi) = (a.start.max(b.start), end_a.min(end_b));
            let found = (lo < hi).then(|| (before_i + lo - a.start, before_j + lo - b.start, hi - lo));
            if end_a <= end_b {
                i += 1;
                before_i += a.len;
            } else {
                j += 1;
                before_j += b.len;
            }
            if found.is_some() {
                return found;
            }
        }
        None
    })
}

/// Returns the indices that two ascending lists share, as local indices of each, in few regular runs.
pub fn shared(source: &[Interval], target: &[Interval]) -> Vec<Run> {
    let mut runs = Vec::new();
    for (s, t, len) in overlaps(source, target) {
        append(&mut runs, s, t, len);
    }
    runs
}

/// Returns the number of indices that two ascending lists share.
pub fn shared_len(source: &[Interval], target: &[Interval]) -> usize {
    overlaps(source, target).map(|(.., len)| len).sum()
}

/// Adds one range to the runs: grown onto the last one, or as a repetition of it, where it continues it.
pub fn append(runs: &mut Vec<Run>, source: usize, target: usize, len: usize) {
    if let Some(last) = runs.last_mut() {
        if last.count == 1 && source == last.source + last.len && target == last.target + last.len {
            last.len += len;
            return;
        }
        if last.len == len {
            let (ds, dt) = (source - last.source, target - last.target);
            if last.count == 1 {
                *last = Run { count: 2, source_step: ds, target_step: dt, ..*last };
                return;
            }
            if ds == last.source_step * last.count && dt == last.target_step * last.count {
                last.count += 1;
                return;
            }
        }
    }
    runs.push(Run { source, target, len, count: 1, source_step: 0, target_step: 0 });
}
