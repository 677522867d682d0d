//! Shards of a tensor: who holds which element, and the one tensor that a set of shards represents.
//!
//! ```text
//! assemble(shards)[e] = reduce over the partial values of e       (one per coordinate of the partial axes)
//! ```
//!
//! Every rank that holds an element of a partial value must hold the same bits. These are definitions, short and slow on
//! purpose: no layout, no plan. Everything else is tested against them.

use crate::{Error, ReduceOp, Sharding};

/// An element type in which partial values can be reduced.
pub trait Reducible: Copy + PartialEq + core::fmt::Debug {
    /// Combines two partial values; `avg` combines like `sum`.
    #[must_use]
    fn combine(op: ReduceOp, a: Self, b: Self) -> Self;
    /// Divides a sum by the number of partial values.
    #[must_use]
    fn divide(self, n: usize) -> Self;
    /// Returns `true` if two replicas are equal; floats are compared bit by bit.
    fn same(self, other: Self) -> bool;
}

/// Computes the p-norm of two numbers, scaled so that no power overflows.
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

macro_rules! integer_values {
    ($($t:ty),*) => {$(
        impl Reducible for $t {
            fn combine(op: ReduceOp, a: $t, b: $t) -> $t {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    // No kernel computes norms of integers; the norm of two is rounded.
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
    use super::{ReduceOp, Reducible, norm};
    integer_values!(i32, i64, u64);
}

macro_rules! float_values {
    ($($t:ty),*) => {$(
        impl Reducible for $t {
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
float_values!(f32, f64);

/// Maximum number of ranks whose shards are listed.
const MOST_RANKS: usize = 1 << 20;

/// Maximum number of listed elements of one rank.
const MOST_HELD: usize = 1 << 30;

/// Maximum number of listed elements of all ranks.
const MOST_ELEMENTS: usize = 1 << 32;

impl Sharding {
    /// Returns every rank's shard of a whole tensor, in the order of [`crate::Mesh::ranks`].
    ///
    /// `whole` is in row-major order. A partial sharding gets the whole value on coordinate 0 of its partial axes and
    /// `identity` elsewhere.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "x=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[3], "S(0)")?;
    /// assert_eq!(s.shard_all(&[7, 8, 9], 0)?, [vec![7, 8], vec![9]]);
    /// assert_eq!(s.assemble(&[vec![7, 8], vec![9]])?, [7, 8, 9]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Sharding::shard`], and for more than 2^20 ranks or 2^32 elements of all ranks.
    pub fn shard_all<T: Copy>(&self, whole: &[T], identity: T) -> Result<Vec<Vec<T>>, Error> {
        if self.mesh().size() > MOST_RANKS {
            return Err(Error::InconsistentShards {
                reason: format!(
                    "{} has more than {MOST_RANKS} ranks, the limit for a list of all shards",
                    self.mesh()
                ),
            });
        }
        let most = self.max_local_numel().saturating_mul(self.mesh().size());
        if most > MOST_ELEMENTS {
            return Err(Error::InconsistentShards {
                reason: format!(
                    "the shards of all ranks of {self} have {most} elements; list them rank by rank"
                ),
            });
        }
        self.mesh().ranks().map(|rank| self.shard(rank, whole, identity)).collect()
    }

    /// Returns one rank's shard of a whole tensor, in local order.
    ///
    /// `whole` is in row-major order. A partial sharding gets the whole value on coordinate 0 of its partial axes and
    /// `identity` elsewhere.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[2, 2], "P,S(1)")?;
    /// let whole = [1.0_f32, 2.0, 3.0, 4.0];
    /// assert_eq!(s.shard(1, &whole, 0.0)?, [2.0, 4.0]);
    /// assert_eq!(s.shard(3, &whole, 0.0)?, [0.0, 0.0]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the length of `whole` is not the number of elements of the shape, and those of [`Sharding::global_indices`].
    pub fn shard<T: Copy>(&self, rank: usize, whole: &[T], identity: T) -> Result<Vec<T>, Error> {
        if whole.len() != self.numel() {
            return Err(Error::InconsistentShards {
                reason: format!(
                    "a tensor {:?} has {} elements, not {}",
                    self.shape(),
                    self.numel(),
                    whole.len()
                ),
            });
        }
        let first = partial_index(self, rank)? == 0;
        Ok(self.global_indices(rank)?.into_iter().map(|e| if first { whole[e] } else { identity }).collect())
    }

    /// Returns the one tensor that shards represent, in row-major order.
    ///
    /// The shards are given in the order of [`crate::Mesh::ranks`].
    ///
    /// # Errors
    ///
    /// If a shard has the wrong length, two replicas differ, or no rank holds some element.
    pub fn assemble<T: Reducible>(&self, shards: &[Vec<T>]) -> Result<Vec<T>, Error> {
        let wrong = |reason: String| Error::InconsistentShards { reason };
        if shards.len() != self.mesh().size() {
            return Err(wrong(format!(
                "{} shards for the {} ranks of {}",
                shards.len(),
                self.mesh().size(),
                self.mesh()
            )));
        }
        // Lengths are checked before anything as large as the shape is allocated.
        for (rank, shard) in self.mesh().ranks().zip(shards) {
            let (has, wants) = (shard.len(), self.region(rank)?.numel());
            if has != wants {
                return Err(wrong(format!(
                    "rank {rank} has a shard of {has} elements, but holds {wants} of {self}"
                )));
            }
        }
        let partials: usize = self.partial().iter().map(|p| p.sub.size).product();
        let mut seen: Vec<Vec<Option<T>>> = vec![vec![None; self.numel()]; partials];
        for (rank, shard) in self.mesh().ranks().zip(shards) {
            let elements = self.global_indices(rank)?;
            let partial = &mut seen[partial_index(self, rank)?];
            for (e, &x) in elements.into_iter().zip(shard) {
                match partial[e] {
                    Some(y) if !x.same(y) => {
                        return Err(wrong(format!(
                            "replicas differ: element {e} is {x:?} on rank {rank}, but {y:?} on an earlier rank"
                        )));
                    }
                    Some(_) => {}
                    None => partial[e] = Some(x),
                }
            }
        }
        (0..self.numel())
            .map(|e| {
                let mut values = Vec::with_capacity(partials);
                for partial in &seen {
                    values.push(partial[e].ok_or_else(|| wrong(format!("no rank holds element {e}")))?);
                }
                let first = values[0];
                let Some((op, divisor)) = self.reduction() else { return Ok(first) };
                let all = values[1..].iter().fold(first, |a, &b| T::combine(op, a, b));
                Ok(if divisor == 1 { all } else { all.divide(divisor) })
            })
            .collect()
    }

    /// Returns the row-major global index of every element of a rank's shard, in local order.
    ///
    /// # Errors
    ///
    /// If the mesh does not hold the rank, and for more than 2^30 elements.
    pub fn global_indices(&self, rank: usize) -> Result<Vec<usize>, Error> {
        let region = self.region(rank)?;
        // An empty dim makes the region empty, however long the other dims are.
        if region.dims.iter().any(|list| list.is_empty()) {
            return Ok(Vec::new());
        }
        let many = region.numel();
        if many > MOST_HELD {
            return Err(Error::InconsistentShards {
                reason: format!(
                    "rank {rank} holds {many} elements of {self}, more than the limit of {MOST_HELD} to list"
                ),
            });
        }
        let mut all = vec![0usize];
        for (dim, &n) in self.shape().iter().enumerate() {
            let indices: Vec<usize> = region.indices(dim)?.collect();
            all = all.iter().flat_map(|&e| indices.iter().map(move |i| e * n + i)).collect();
        }
        Ok(all)
    }
}

/// Returns a rank's coordinate on the partial axes as one number.
fn partial_index(s: &Sharding, rank: usize) -> Result<usize, Error> {
    let c =
        s.mesh().coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: s.mesh().to_string() })?;
    let digit = |p: &crate::PartialAxis| p.sub.known_digit(c[p.sub.axis], s.mesh().axes()[p.sub.axis].size());
    Ok(s.partial().iter().fold(0, |t, p| t * p.sub.size + digit(p)))
}
