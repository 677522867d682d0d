//! Types: in training a tensor is a value and its gradient, and a type holds the sharding of each.
//!
//! # Cotangent shardings
//!
//! Along an axis that replicates, the buffers of the ranks are a *subspace* of all that they could hold:
//! those that agree. Along a partial axis they are a *quotient*: buffers that sum to zero are identified with
//! zero. The dual space of a subspace is a quotient, so that, for every mesh and split,
//!
//! ```text
//! R* = P        P* = R        S* = S                 sum over ranks of  y_r . x_r  ==  assemble(y) . assemble(x)
//! ```
//!
//! for every `x` of a sharding and every `y` of its [cotangent sharding](Sharding::cotangent): the sum of the
//! local products of the ranks is the product of the two tensors. Averages, products, minima and maxima of
//! partial values are not linear, or not equally on every rank; they have no cotangent sharding, and
//! a value that is partial by them has no gradient.
//!
//! # Redistributions
//!
//! A redistribution from `(v1|g1)` to `(v2|g2)` redistributes values from `v1` to `v2`, and gradients from
//! `g2` to `g1`. Both preserve the global tensor, hence they are adjoint for every pair of types, and the
//! adjoint is the redistribution between the [transposed](ShardingType::gradient_type) types. With `I` for `R|R`
//! (replicas that compute the same, so that their gradients are replicas too):
//!
//! ```text
//! R -> I  nothing         all_reduce's other half: zero_fill        R -> S  slice           zero_fill
//! I -> R  nothing         all_reduce                                I -> S  slice           all_gather
//! P -> R  all_reduce      all_reduce                                P -> I  all_reduce      nothing
//! P -> S  reduce_scatter  all_gather                                S -> P  zero_fill       slice
//! S -> R  all_gather      reduce_scatter                            S -> I  all_gather      slice
//! ```

mod notation;
pub(crate) mod one_rank;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::sharding::PartialAxis;
use crate::{Error, Mesh, Placement, Placements, ReduceOp, Sharding, SubAxis};

/// The sharding of a tensor and that of its gradient, of one shape.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, ShardingType};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let weight = ShardingType::from_value(Sharding::parse(&mesh, &[64, 32], "R,S(1)")?)?;
/// assert_eq!(weight.gradient, Some(Sharding::parse(&mesh, &[64, 32], "P,S(1)")?));
/// assert_eq!(weight.to_string(), "R,S(1)");
/// let kept = ShardingType::parse(&mesh, &[64, 32], "I,S(1)")?;
/// assert_eq!(kept.gradient, Some(kept.value.clone()));
/// let zero2 = ShardingType::parse(&mesh, &[64, 32], "R|S(0),S(1)")?;
/// assert_eq!(zero2.gradient_type().map(|t| t.to_string()).as_deref(), Some("S(0)|R,S(1)"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
///
/// Along axes of one rank a type is printed as it was written; equality is that of the shardings.
///
/// ```
/// use reshard_sharding::{Mesh, ShardingType};
/// let alone: Mesh = "dp=1,tp=4".parse()?;
/// let is = ShardingType::parse(&alone, &[64, 32], "S(0),I")?;
/// assert_eq!((is.to_string().as_str(), is.value.to_string().as_str()), ("S(0),I", "R,R"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShardingType {
    /// The sharding of the value.
    pub value: Sharding,
    /// The sharding of the gradient; `None` for values without a gradient: integers, booleans, constants.
    pub gradient: Option<Sharding>,
    /// The same along the axes of one rank, if it is known; see [`one_rank`].
    letters: Option<Arc<ShardingType>>,
}

impl PartialEq for ShardingType {
    fn eq(&self, other: &ShardingType) -> bool {
        (&self.value, &self.gradient) == (&other.value, &other.gradient)
    }
}

impl Eq for ShardingType {}

impl Hash for ShardingType {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.value.hash(hasher);
        self.gradient.hash(hasher);
    }
}

impl ShardingType {
    /// Returns the type of these shardings.
    pub fn new(value: Sharding, gradient: Option<Sharding>) -> ShardingType {
        ShardingType { value, gradient, letters: None }
    }

    /// Returns the type of these placements, one for each axis of the mesh, with their cotangent as gradient.
    ///
    /// It prints these placements along axes of one rank too, unlike [`ShardingType::from_value`] of a sharding.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Placement, ShardingType};
    /// let alone: Mesh = "dp=1".parse()?;
    /// let is = ShardingType::from_placements(&alone, &[64, 32], &[Placement::Shard(0)])?;
    /// assert_eq!(is.to_string(), "S(0)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails as [`Sharding::new`], and with `no_gradient` as [`Sharding::cotangent`].
    pub fn from_placements(
        mesh: &Mesh,
        shape: &[usize],
        placements: &[Placement],
    ) -> Result<ShardingType, Error> {
        let text = Placements(placements.iter().cloned().collect()).to_string();
        ShardingType::from_value(Sharding::new(mesh, shape, placements)?)?.written(&text)
    }

    /// Returns the type without its gradient.
    #[must_use]
    pub fn without_gradient(self) -> ShardingType {
        let letters = self.letters.map(|letters| Arc::new(ShardingType::clone(&letters).without_gradient()));
        ShardingType { value: self.value, gradient: None, letters }
    }

    /// Returns the type whose gradient is the value's cotangent sharding.
    ///
    /// Backward produces it without communication.
    ///
    /// Fails with `no_gradient` as [`Sharding::cotangent`].
    pub fn from_value(value: Sharding) -> Result<ShardingType, Error> {
        let gradient = Some(value.cotangent()?);
        Ok(ShardingType::new(value, gradient))
    }

    /// Returns the type with the value's cotangent sharding, except along `along`.
    ///
    /// The gradient is replicated there.
    ///
    /// Along these sub-axes the ranks do the same work, and replicas have replicas for a gradient.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, SubAxis, ShardingType};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let whole = Sharding::replicated(&mesh, &[64, 32])?;
    /// let tp = SubAxis { axis: 1, pre_size: 1, size: 4 };
    /// assert_eq!(ShardingType::invariant_along(whole, &[tp])?.to_string(), "R,I");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_gradient` as [`Sharding::cotangent`].
    pub fn invariant_along(value: Sharding, along: &[SubAxis]) -> Result<ShardingType, Error> {
        // Fails for a value without a cotangent sharding.
        value.cotangent()?;
        let terms = value.replicated_axes_but(along);
        let gradient =
            Some(value.with_partial(terms.iter().map(|&sub| PartialAxis { sub, op: ReduceOp::Sum }))?);
        Ok(ShardingType::new(value, gradient))
    }

    /// Returns the type of the gradient: value and gradient are exchanged; `None` without one.
    pub fn gradient_type(&self) -> Option<ShardingType> {
        let letters = self.letters.as_ref().and_then(|letters| letters.gradient_type()).map(Arc::new);
        Some(ShardingType { value: self.gradient.clone()?, gradient: Some(self.value.clone()), letters })
    }
}

impl Sharding {
    /// Returns the cotangent sharding: that of the gradients that each rank computes from its own shard.
    ///
    /// Replicas become partial values, partial values replicas, and splits stay.
    ///
    /// ```text
    /// sum over ranks of  y_r . x_r  ==  assemble(y) . assemble(x)        for every x of s and y of s.cotangent()
    /// ```
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "dp=2,tp=4,cp=3".parse()?;
    /// let s = Sharding::parse(&mesh, &[8, 5], "R,S(1),P")?;
    /// assert_eq!(s.cotangent()?.to_string(), "P(sum),S(1),R");
    /// assert_eq!(s.cotangent()?.cotangent()?, s);
    /// let max = Sharding::parse(&mesh, &[8, 5], "R,R,P(max)")?;
    /// assert_eq!(max.cotangent().unwrap_err().code(), "no_gradient");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_gradient` for values that are partial by an op other than sum.
    pub fn cotangent(&self) -> Result<Sharding, Error> {
        if let Some(p) = self.partial().iter().find(|p| p.op != ReduceOp::Sum) {
            return Err(Error::NoGradient {
                reason: format!(
                    "{self} is P({}) along {}, and such partial values have no gradient; reduce them first, or use \
                     P(sum)",
                    p.op,
                    p.sub.printed(self.mesh().axes())
                ),
            });
        }
        self.with_partial(self.replicated_axes().iter().map(|&sub| PartialAxis { sub, op: ReduceOp::Sum }))
    }
}
