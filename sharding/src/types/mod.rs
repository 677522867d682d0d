//! Types: in training a tensor is two, the value and its gradient, and a type says who holds each.
//!
//! # Duals
//!
//! Along an axis that replicates, the buffers of the ranks are a *subspace* of all that they could hold: those that agree.
//! Along an axis of terms they are a *quotient*: what sums to nothing does not count. The dual of a subspace is a quotient,
//! so that, whatever the mesh and the cuts,
//!
//! ```text
//! R* = P        P* = R        S* = S                 sum over ranks of  y_r . x_r  ==  meaning(y) . meaning(x)
//! ```
//!
//! for every `x` of a sharding and every `y` of its [dual](Sharding::dual): what the ranks compute each for itself and then add is the
//! product of the two tensors. Averages, products, minima and maxima of terms are not linear, or not in the same way on
//! every rank; they have no dual, and a value of them has no gradient.
//!
//! # Moves
//!
//! A move from `(v1|g1)` to `(v2|g2)` redistributes values from `v1` to `v2`, and gradients from `g2` to `g1`. Both keep the
//! meaning, hence they are adjoint for every pair of types, and the adjoint is the move between the
//! [transposed](Type::transposed) types. With `I` for `R|R` (replicas that compute the same, so that their gradients are
//! replicas too):
//!
//! ```text
//! R -> I  nothing         all_reduce's other half: zero_fill        R -> S  slice           zero_fill
//! I -> R  nothing         all_reduce                                I -> S  slice           all_gather
//! P -> R  all_reduce      all_reduce                                P -> I  all_reduce      nothing
//! P -> S  reduce_scatter  all_gather                                S -> P  zero_fill       slice
//! S -> R  all_gather      reduce_scatter                            S -> I  all_gather      slice
//! ```

mod notation;

use crate::sharding::PartialAxis;
use crate::{Error, ReduceOp, Sharding, SubAxis};

/// Who holds a tensor and who holds its gradient: two shardings of one shape.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, Type};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let weight = Type::natural(Sharding::parse(&mesh, &[64, 32], "R,S(1)")?)?;
/// assert_eq!(weight.gradient, Some(Sharding::parse(&mesh, &[64, 32], "P,S(1)")?));
/// assert_eq!(weight.to_string(), "R,S(1)");
/// let kept = Type::parse(&mesh, &[64, 32], "I,S(1)")?;
/// assert_eq!(kept.gradient, Some(kept.value.clone()));
/// let zero2 = Type::parse(&mesh, &[64, 32], "R|S(0),S(1)")?;
/// assert_eq!(zero2.transposed().map(|t| t.to_string()).as_deref(), Some("S(0)|R,S(1)"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardingType {
    /// Who holds the value.
    pub value: Sharding,
    /// Who holds the gradient; `None` for what has none: integers, booleans, constants.
    pub gradient: Option<Sharding>,
}

impl ShardingType {
    /// The type whose gradient is the value's dual: what an op finds without a move.
    ///
    /// Fails with `no_gradient` as [`Sharding::dual`].
    pub fn from_value(value: Sharding) -> Result<ShardingType, Error> {
        let gradient = Some(value.cotangent()?);
        Ok(ShardingType { value, gradient })
    }

    /// The type whose gradient is the value's dual, but along these sub-axes, where ranks do the same work and replicas have
    /// replicas for a gradient.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, SubAxis, Type};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let whole = Sharding::replicated(&mesh, &[64, 32])?;
    /// let tp = SubAxis { axis: 1, pre: 1, size: 4 };
    /// assert_eq!(Type::same_work(whole, &[tp])?.to_string(), "R,I");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_gradient` as [`Sharding::dual`].
    pub fn invariant_along(value: Sharding, along: &[SubAxis]) -> Result<ShardingType, Error> {
        // Refuses what has no dual.
        value.cotangent()?;
        let terms = value.replicated_axes_but(along);
        let gradient =
            Some(value.with_partial(terms.iter().map(|&sub| PartialAxis { sub, op: ReduceOp::Sum }))?);
        Ok(ShardingType { value, gradient })
    }

    /// The type of the gradient: value and gradient change places; `None` without one.
    pub fn gradient_type(&self) -> Option<ShardingType> {
        Some(ShardingType { value: self.gradient.clone()?, gradient: Some(self.value.clone()) })
    }
}

impl Sharding {
    /// The sharding of the gradients that ranks get each from its own shard: replicas become terms, terms replicas, and cuts
    /// stay.
    ///
    /// ```text
    /// sum over ranks of  y_r . x_r  ==  meaning(y) . meaning(x)        for every x of s and y of s.dual()
    /// ```
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4,cp=3".parse()?;
    /// let s = Sharding::parse(&mesh, &[8, 5], "R,S(1),P")?;
    /// assert_eq!(s.dual()?.to_string(), "P(sum),S(1),R");
    /// assert_eq!(s.dual()?.dual()?, s);
    /// let max = Sharding::parse(&mesh, &[8, 5], "R,R,P(max)")?;
    /// assert_eq!(max.dual().unwrap_err().kind(), "no_gradient");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_gradient` for terms of anything but sums.
    pub fn cotangent(&self) -> Result<Sharding, Error> {
        if let Some(p) = self.partial().iter().find(|p| p.op != ReduceOp::Sum) {
            return Err(Error::NoGradient {
                reason: format!(
                    "{self} is P({}) along {}, whose terms have no gradient: reduce them first, or make them terms of a sum",
                    p.op,
                    p.sub.printed(self.mesh().axes())
                ),
            });
        }
        self.with_partial(self.replicated_axes().iter().map(|&sub| PartialAxis { sub, op: ReduceOp::Sum }))
    }
}
