//! What a set of shards denotes: the definition that everything else is tested against.
//!
//! ```text
//! meaning(shards)[e] = reduce over the terms that hold e          (one term per coordinate of the partial axes)
//! ```
//!
//! Every rank that holds an element of a term must hold the same value. Short and slow on purpose: no layout, no plan.

use crate::{Error, ReduceOp, Sharding};

/// A value that terms can be reduced in.
pub trait Term: Copy + PartialEq + core::fmt::Debug {
    /// Two terms as one, for the ops that combine (avg combines like sum).
    #[must_use]
    fn combine(op: ReduceOp, a: Self, b: Self) -> Self;
    /// A sum divided by the number of its terms.
    #[must_use]
    fn divide(self, n: usize) -> Self;
    /// Whether two replicas agree; for floats bit by bit.
    fn same(self, other: Self) -> bool;
}

/// The norm of two numbers, by its definition; scaled, so that no power overflows.
fn norm(p: f64, a: f64, b: f64) -> f64 {
    let (a, b) = (a.abs(), b.abs());
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let most = a.max(b);
    if most == 0.0 || most.is_infinite() || p.is_infinite() {
        return most;
    }
    most * ((a / most).powf(p) + (b / most).powf(p)).powf(1.0 / p)
}

macro_rules! integer_terms {
    ($($t:ty),*) => {$(
        impl Term for $t {
            fn combine(op: ReduceOp, a: $t, b: $t) -> $t {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    // No kernel has norms of integers: that of two, rounded.
                    ReduceOp::Norm(p) => norm(p.value(), a as f64, b as f64).round() as $t,
                }
            }
            fn divide(self, n: usize) -> $t {
                self / n as $t
            }
            fn same(self, other: $t) -> bool {
                self == other
            }
        }
    )*};
}
#[allow(clippy::cast_lossless, reason = "one macro for integers of all widths")]
mod integers {
    use super::{ReduceOp, Term, norm};
    integer_terms!(i32, i64, u64);
}

macro_rules! float_terms {
    ($($t:ty),*) => {$(
        impl Term for $t {
            fn combine(op: ReduceOp, a: $t, b: $t) -> $t {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => a + b,
                    ReduceOp::Prod => a * b,
                    ReduceOp::Min | ReduceOp::Max if a.is_nan() || b.is_nan() => <$t>::NAN,
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Norm(p) => norm(p.value(), a.into(), b.into()) as $t,
                }
            }
            fn divide(self, n: usize) -> $t {
                self / n as $t
            }
            fn same(self, other: $t) -> bool {
                self.to_bits() == other.to_bits()
            }
        }
    )*};
}
float_terms!(f32, f64);

/// The most ranks whose shards are listed.
const MOST_RANKS: usize = 1 << 20;

/// The shards of a whole tensor, in the order of [`crate::Mesh::ranks`]: what each rank's region holds.
///
/// A partial sharding gets the whole value on coordinate 0 of its partial axes and `identity` elsewhere.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, meaning};
/// let mesh: Mesh = "x=2".parse()?;
/// let s = Sharding::parse(&mesh, &[3], "S(0)")?;
/// assert_eq!(meaning::scatter(&s, &[7, 8, 9], 0)?, [vec![7, 8], vec![9]]);
/// assert_eq!(meaning::meaning(&s, &[vec![7, 8], vec![9]])?, [7, 8, 9]);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
pub fn scatter<T: Copy>(s: &Sharding, whole: &[T], identity: T) -> Result<Vec<Vec<T>>, Error> {
    if whole.len() != s.numel() {
        return Err(Error::Meaningless {
            reason: format!("a tensor {:?} has {} elements, not {}", s.shape(), s.numel(), whole.len()),
        });
    }
    if s.mesh().size() > MOST_RANKS {
        return Err(Error::Meaningless {
            reason: format!("{} has more than {MOST_RANKS} ranks, and each would get a list", s.mesh()),
        });
    }
    s.mesh()
        .ranks()
        .map(|rank| {
            let first = term_of(s, rank)? == 0;
            Ok(held(s, rank)?.into_iter().map(|e| if first { whole[e] } else { identity }).collect())
        })
        .collect()
}

/// The one tensor that shards denote, given in the order of [`crate::Mesh::ranks`]; an error where they denote none.
///
/// Fails where a shard has the wrong length, or two replicas differ.
pub fn meaning<T: Term>(s: &Sharding, shards: &[Vec<T>]) -> Result<Vec<T>, Error> {
    let wrong = |reason: String| Error::Meaningless { reason };
    if shards.len() != s.mesh().size() {
        return Err(wrong(format!(
            "{} shards for the {} ranks of {}",
            shards.len(),
            s.mesh().size(),
            s.mesh()
        )));
    }
    // Before anything is made that is as large as the shape says.
    for (rank, shard) in s.mesh().ranks().zip(shards) {
        let (has, wants) = (shard.len(), s.region(rank)?.numel());
        if has != wants {
            return Err(wrong(format!(
                "rank {rank} has a shard of {has} elements, but holds {wants} of {s}"
            )));
        }
    }
    let terms: usize = s.partial().iter().map(|p| p.sub.size).product();
    let mut seen: Vec<Vec<Option<T>>> = vec![vec![None; s.numel()]; terms];
    for (rank, shard) in s.mesh().ranks().zip(shards) {
        let elements = held(s, rank)?;
        let term = &mut seen[term_of(s, rank)?];
        for (e, &x) in elements.into_iter().zip(shard) {
            match term[e] {
                Some(y) if !x.same(y) => {
                    return Err(wrong(format!(
                        "replicas differ: element {e} is {x:?} on rank {rank}, {y:?} before"
                    )));
                }
                Some(_) => {}
                None => term[e] = Some(x),
            }
        }
    }
    (0..s.numel())
        .map(|e| {
            let mut values = Vec::with_capacity(terms);
            for term in &seen {
                values.push(term[e].ok_or_else(|| wrong(format!("no rank holds element {e}")))?);
            }
            let first = values[0];
            let Some((op, divisor)) = s.reduction() else { return Ok(first) };
            let all = values[1..].iter().fold(first, |a, &b| T::combine(op, a, b));
            Ok(if divisor == 1 { all } else { all.divide(divisor) })
        })
        .collect()
}

/// The row-major global index of every element of a rank's shard, in local order.
pub fn held(s: &Sharding, rank: usize) -> Result<Vec<usize>, Error> {
    let region = s.region(rank)?;
    // A dim of none makes none, however long the others are.
    if region.dims.iter().any(|list| list.is_empty()) {
        return Ok(Vec::new());
    }
    let mut all = vec![0usize];
    for (dim, &n) in s.shape().iter().enumerate() {
        let indices: Vec<usize> = region.indices(dim)?.collect();
        all = all.iter().flat_map(|&e| indices.iter().map(move |i| e * n + i)).collect();
    }
    Ok(all)
}

/// Which term of the reduction a rank holds: its coordinate on the partial axes as one number.
fn term_of(s: &Sharding, rank: usize) -> Result<usize, Error> {
    let c =
        s.mesh().coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: s.mesh().to_string() })?;
    let digit = |p: &crate::PartialAxis| p.sub.known_digit(c[p.sub.axis], s.mesh().axes()[p.sub.axis].size());
    Ok(s.partial().iter().fold(0, |t, p| t * p.sub.size + digit(p)))
}
