//! Views: other shapes of the same tensor, which regroup digits and move nothing.
//!
//! Reshape keeps the row-major index of every element. Written one after the other, the words of all dims are the word
//! of that index,
//!
//! ```text
//! (4,6), S(1) over tp=3:    [local 4][tp 3][local 2]        =  the word of 24 = SS(0,4)
//! (16), S(0),S(0) on 2x2:   [a 2][b 2][local 4]             ->  (2,8):  [a 2] | [b 2][local 4]  =  S(0),S(1)
//! ```
//!
//! and the new dims are a grouping of it: read from the left, each dim takes digits until their product is its extent.
//! Where a dim ends inside a digit of radix `r`, `m` of it being still wanted, the digit splits into `m` and `r / m` (and
//! its axis into sub-axes) if `m` divides `r`. If it does not, no sharding of the new shape holds what the ranks hold:
//! in its word, neighbouring digits joined, a digit ends where the dim does, and the joined word of an ownership is
//! unique. So a view is free exactly if the grouping succeeds.
//!
//! Dims that do not divide have no word; [`uneven`] compares their cuts instead.

pub(crate) mod advice;
mod dims;
mod uneven;

use smallvec::SmallVec;

use crate::digits::{Digit, Digits, canonical};
use crate::{Error, Sharding};

impl Sharding {
    /// The sharding of the tensor in another shape of as many elements, if every rank can view its shard as that.
    ///
    /// ```text
    /// held(s, rank) == held(s.view(shape), rank)      for every rank, in order: the local tensors reshape, nothing moves
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
    /// assert_eq!(s.view(&[6, 4]).unwrap_err().kind(), "needs_redistribute");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `view` for another number of elements, with `overflow`, and with `needs_redistribute` where something
    /// has to move first: the error says which digit stands in the way, a sharding to redistribute to before the view,
    /// and how many elements the worst rank receives for that.
    pub fn view(&self, shape: &[usize]) -> Result<Sharding, Error> {
        self.check_numel(shape)?;
        regrouped(self, shape).map_err(|e| {
            if let Error::View { reason } = e { advice::needs_redistribute(self, shape, reason) } else { e }
        })
    }

    /// [`Sharding::view`] for those who ask often and do not want to know what to do where it is not free.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "a=2,b=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[4, 6], "S(0),S(0)")?;
    /// assert_eq!(s.view_if_free(&[6, 4]), None);
    /// assert_eq!(s.view_if_free(&[24]), s.view(&[24]).ok());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn view_if_free(&self, shape: &[usize]) -> Option<Sharding> {
        self.check_numel(shape).and_then(|()| regrouped(self, shape)).ok()
    }

    /// Fails with `view` unless a shape has as many elements.
    fn check_numel(&self, shape: &[usize]) -> Result<(), Error> {
        let numel = crate::sharding::numel(shape)?;
        if numel != self.numel() {
            return Err(Error::View {
                reason: format!(
                    "{:?} has {} elements and {shape:?} has {numel}: a view keeps their number",
                    self.shape(),
                    self.numel()
                ),
            });
        }
        Ok(())
    }
}

/// The view, or why it is not free.
fn regrouped(s: &Sharding, shape: &[usize]) -> Result<Sharding, Error> {
    match s.digits() {
        Some(digits) => {
            let digits = regroup(digits, shape).map_err(|x| x.reason(s, shape))?;
            Sharding::from_digits(s.mesh(), shape, digits, s.partial().iter().copied())
        }
        None => uneven::view(s, shape),
    }
}

/// A dim that ends inside a digit: `wanted` values of the digit belong to the dim, and do not divide it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Straddle {
    dim: usize,
    digit: Digit,
    wanted: usize,
}

impl Straddle {
    fn reason(self, s: &Sharding, shape: &[usize]) -> Error {
        let radix = self.digit.radix;
        let name = match self.digit.sub_axis() {
            Some(sub) => format!("{} (a digit of {radix})", sub.printed(s.mesh().axes())),
            None => format!("a local digit of {radix}"),
        };
        Error::View {
            reason: format!(
                "dim {} of {shape:?} ends inside {name} of {s}, after {} of its values, which does not divide it",
                self.dim, self.wanted
            ),
        }
    }
}

/// The word of the row-major index: all digits as one dim, neighbours joined.
fn linear(digits: &[Digit]) -> Digits {
    canonical(digits.iter().map(|&d| Digit { dim: 0, ..d }))
}

/// The same digits grouped into the dims of another shape of as many elements, none of them 0.
pub(crate) fn regroup(digits: &[Digit], shape: &[usize]) -> Result<Digits, Straddle> {
    let word = linear(digits);
    let mut out = Digits::new();
    let mut rest = word.iter().copied();
    let mut next = rest.next();
    for (dim, &len) in shape.iter().enumerate() {
        let mut wanted = len;
        while wanted > 1 {
            // The products of both sides are equal, so digits are left while some are wanted.
            let Some(d) = next else { break };
            if wanted.is_multiple_of(d.radix) {
                out.push(Digit { dim, ..d });
                wanted /= d.radix;
                next = rest.next();
            } else if d.radix.is_multiple_of(wanted) {
                let (major, minor) = d.split(wanted);
                out.push(Digit { dim, ..major });
                wanted = 1;
                next = Some(minor);
            } else {
                return Err(Straddle { dim, digit: d, wanted });
            }
        }
    }
    Ok(canonical(out))
}

/// How many elements stand behind each dim's index: where dims end in the row-major index, descending.
fn ends_of(shape: &[usize]) -> SmallVec<[usize; 8]> {
    let mut end: usize = shape.iter().product();
    shape
        .iter()
        .map(|len| {
            end /= len;
            end
        })
        .collect()
}

/// The digits of a word cut at these weights, wherever they divide; `behind` is the weight of its last index.
///
/// Requires descending ends.
fn ending_at(word: &[Digit], behind: usize, ends: &[usize]) -> Digits {
    let mut out = Digits::new();
    let mut weight = behind * word.iter().map(|d| d.radix).product::<usize>();
    for &d in word {
        let mut left = d;
        for &end in ends {
            let below = weight / left.radix;
            if below < end && end < weight && end.is_multiple_of(below) && weight.is_multiple_of(end) {
                let (major, minor) = left.split(weight / end);
                out.push(major);
                (left, weight) = (minor, end);
            }
        }
        weight /= left.radix;
        out.push(left);
    }
    out
}

/// Dims of two shapes of as many elements, cut into the shortest runs of equal products.
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
