//! Views: other shapes of the same tensor, without communication.
//!
//! Reshape keeps the row-major index of every element, and the flat list of a sharding's modes is a layout of
//! that index. So a view is that list coalesced as a whole and split at the new dims, which is composition
//! with the compact layout of the new shape:
//!
//! ```text
//! view(S, shape)  =  split(coalesce(S), shape)  =  S o row_major(shape)
//!
//! (4,6), S(1) over tp=3:    [local 4][tp 3][local 2]        =  the modes of 24 = SS(0,4)
//! (16), S(0),S(0) on 2x2:   [a 2][b 2][local 4]             ->  (2,8):  [a 2] | [b 2][local 4]  =  S(0),S(1)
//! ```
//!
//! Where a dim ends inside a mode that it divides, the mode splits, and its axis into sub-axes. Where it does
//! not divide, no sharding of the new shape matches the elements that the ranks hold: coalesced layouts are
//! unique, and in that sharding a mode would have to end there. So a view is free exactly if the split
//! succeeds.
//!
//! Dims that do not divide have no layout; [`uneven`] compares their splits instead.

pub(crate) mod advice;
mod dims;
mod uneven;

use reshard_layout::Boundary;
use reshard_layout::{AxisStride, Layout, Mode, Modes};
use smallvec::SmallVec;

use crate::layout::{make_dense, of_modes};
use crate::{Error, Sharding};

impl Sharding {
    /// Returns the sharding of the tensor in another shape of equal size, if every rank can view its shard.
    ///
    /// ```text
    /// s.global_indices(rank) == s.view(shape).global_indices(rank)      for every rank, in order: local tensors only reshape
    /// ```
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "a=2,b=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[16], "S(0),S(0)")?;
    /// assert_eq!(s.view(&[2, 8])?.to_string(), "S(0),S(1)");
    /// let s = Sharding::parse(&mesh, &[2, 8], "S(1),S(1)")?;
    /// assert_eq!(s.view(&[16])?.to_string(), "SS(0,2),SS(0,2)");
    /// let s = Sharding::parse(&mesh, &[6, 4], "R,S(0)")?;
    /// assert_eq!(s.view(&[4, 6])?.to_string(), "R,S(0)");
    /// let s = Sharding::parse(&mesh, &[4, 6], "S(0),S(0)")?;
    /// assert_eq!(s.view(&[6, 4]).unwrap_err().code(), "needs_redistribute");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `view` for another number of elements, with `overflow`, and with `needs_redistribute` where
    /// a redistribution is needed first. That error names the digit that prevents the view, a sharding to
    /// redistribute to before the view, and the number of elements that the worst rank receives for that.
    pub fn view(&self, shape: &[usize]) -> Result<Sharding, Error> {
        self.check_numel(shape)?;
        regrouped(self, shape).map_err(|e| {
            if let Error::View { reason } = e { advice::needs_redistribute(self, shape, reason) } else { e }
        })
    }

    /// Returns the result of [`Sharding::view`] if the view is free.
    ///
    /// If not, it saves the cost of computing advice.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "a=2,b=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[4, 6], "S(0),S(0)")?;
    /// assert_eq!(s.try_view(&[6, 4]), None);
    /// assert_eq!(s.try_view(&[24]), s.view(&[24]).ok());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn try_view(&self, shape: &[usize]) -> Option<Sharding> {
        self.check_numel(shape).and_then(|()| regrouped(self, shape)).ok()
    }

    /// Fails with `view` unless a shape has as many elements.
    fn check_numel(&self, shape: &[usize]) -> Result<(), Error> {
        let numel = crate::sharding::numel(shape)?;
        if numel != self.numel() {
            return Err(Error::View {
                reason: format!(
                    "{:?} has {} elements and {shape:?} has {numel}; a view must have equally many",
                    self.shape(),
                    self.numel()
                ),
            });
        }
        Ok(())
    }
}

/// Returns the view, or why it is not free.
fn regrouped(s: &Sharding, shape: &[usize]) -> Result<Sharding, Error> {
    match s.modes() {
        Some(modes) => {
            let whole = Modes::from_slice(modes).coalesce();
            let view = Sharding::from_modes(s.mesh(), shape, whole.clone(), s.partial());
            view.map_err(|Boundary(_)| straddles(s, &whole, shape, shape))
        }
        None => uneven::view(s, shape),
    }
}

/// Modes of a row-major index, the fastest first, coalesced as a whole and split into dims of these extents.
fn reshaped(mut modes: Modes<AxisStride>, shape: &[usize]) -> Result<Layout<AxisStride>, Boundary> {
    make_dense(&mut modes);
    of_modes(shape, modes.coalesce())
}

/// Returns the error of modes that do not split into dims: the first dim that ends inside a mode, slowest
/// first.
///
/// An index can be split at `end` exactly if `end` and the weight below every mode divide each other in
/// either direction.
fn straddles(s: &Sharding, modes: &[Mode<AxisStride>], dims: &[usize], shape: &[usize]) -> Error {
    let mut above: i64 = modes.iter().map(|m| m.extent).product();
    let mut left: Modes<AxisStride> = Modes::from_slice(modes);
    for (dim, &len) in dims.iter().enumerate() {
        let end = above / len as i64;
        // Whole modes belong to this dim until it ends; the last one may be split.
        while above > end {
            let Some(m) = left.pop() else { break };
            let wanted = above / end;
            if wanted % m.extent == 0 {
                above /= m.extent;
            } else if m.extent % wanted == 0 {
                left.extend(m.cut(m.extent / wanted).map(|(low, _)| low));
                above = end;
            } else {
                let name = match s.mesh().sub_axis(m) {
                    Some(sub) => format!("{} (a digit of {})", sub.printed(s.mesh().axes()), m.extent),
                    None => format!("a local digit of {}", m.extent),
                };
                return Error::View {
                    reason: format!(
                        "dim {dim} of {shape:?} ends inside {name} of {s}, after {wanted} of its values, which does \
                         not divide it"
                    ),
                };
            }
        }
    }
    Error::View { reason: format!("{s} does not become {shape:?}") }
}

/// Returns the number of elements after each dim's index: where dims end in the row-major index, descending.
fn ends_of(shape: &[usize]) -> SmallVec<[i64; 8]> {
    let mut end: i64 = shape.iter().map(|&n| n as i64).product();
    shape
        .iter()
        .map(|&len| {
            end /= len as i64;
            end
        })
        .collect()
}

/// Splits modes at these weights, wherever that divides; `behind` is the weight of the fastest index.
///
/// Requires descending ends: the further ones come first where two do not nest.
fn ending_at(modes: &[Mode<AxisStride>], behind: i64, ends: &[i64]) -> Modes<AxisStride> {
    let mut slowest_first = Modes::new();
    let mut above = behind * modes.iter().map(|m| m.extent).product::<i64>();
    for &m in modes.iter().rev() {
        let below = above / m.extent;
        let mut low = m;
        for &end in ends.iter().filter(|&&end| end % below == 0) {
            if below < end
                && end < above
                && above % end == 0
                && let Some((lower, upper)) = low.cut(end / below)
            {
                slowest_first.push(upper);
                (low, above) = (lower, end);
            }
        }
        slowest_first.push(low);
        above = below;
    }
    slowest_first.iter().rev().copied().collect()
}

/// Splits the dims of two shapes of equal size into the shortest runs of equal products.
///
/// Dims of size 1 belong to the run on their left. Requires that no dim is 0.
fn runs(from: &[usize], to: &[usize]) -> SmallVec<[(core::ops::Range<usize>, core::ops::Range<usize>); 4]> {
    let mut out = SmallVec::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let (start_i, start_j) = (i, j);
        let (mut a, mut b) = (1usize, 1usize);
        loop {
            if a <= b && i < from.len() && (a < b || j == start_j || i == start_i) {
                a *= from[i];
                i += 1;
            } else if j < to.len() && (b < a || j == start_j) {
                b *= to[j];
                j += 1;
            } else {
                break;
            }
        }
        while i < from.len() && from[i] == 1 {
            i += 1;
        }
        while j < to.len() && to[j] == 1 {
            j += 1;
        }
        out.push((start_i..i, start_j..j));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn runs_are_the_shortest_of_equal_products() {
        let cases: [(&[usize], &[usize], &str); 7] = [
            (&[7, 4, 6], &[7, 24], "[(0..1, 0..1), (1..3, 1..2)]"),
            (&[7, 24], &[7, 4, 6], "[(0..1, 0..1), (1..2, 1..3)]"),
            (&[2, 3, 2], &[3, 2, 2], "[(0..2, 0..2), (2..3, 2..3)]"),
            (&[1, 5], &[5], "[(0..2, 0..1)]"),
            (&[5], &[1, 1, 5, 1], "[(0..1, 0..4)]"),
            (&[], &[1], "[(0..0, 0..1)]"),
            (&[4, 1, 3], &[4, 3], "[(0..2, 0..1), (2..3, 1..2)]"),
        ];
        for (from, to, want) in cases {
            assert_eq!(format!("{:?}", runs(from, to)), want, "{from:?} {to:?}");
        }
    }
}
