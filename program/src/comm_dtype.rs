//! Communication dtypes: redistribute in a narrower dtype, and add partial values in their original dtype.
//!
//! ```text
//! y: S(1) via bf16 = x     x is S(0)     cast, the plan in bf16, cast back
//! y: S(0) via bf16 = x     x is P        cast partial values; each rank gets those of its shard, casts back and adds
//! y: R via bf16 = x        x is P        y.1: S(0) via bf16 = x;  y: R via bf16 = y.1
//! ```
//!
//! **Partial values are a hidden dim.** A value that is partial over `n` ranks is, rank by rank, a tensor
//! with one more dim of size `n`, sharded over these ranks. So no new collective is needed. Partial values
//! become slices, which is a view; these become shards of another dim, which is an all-to-all; and the new
//! dim is summed by the rank that has all of it. A sum is rounded in the partial values, never in between,
//! and one more time if it is gathered. All ranks gather the same numbers, so that replicas are bitwise
//! equal.
//!
//! **A redistribution has one plan in each direction**, so reducing and gathering is two redistributions. As
//! a type is a pair, this also holds for a redistribution that reduces in one direction only:
//!
//! ```text
//! P|R -> I       P|R -> S(0)|R -> I          a reduction forward, nothing backward
//! I -> R|P       I -> R|S(0) -> R|P          nothing forward, a reduction backward
//! ```
//!
//! The adjoint of a redistribution in a communication dtype is the swapped redistribution in the same dtype:
//! the gradient of the exact function, not of its rounding. Data that is not sent is not rounded.

use reshard_kernels::DType;
use reshard_planner::internal::{Ask, Price};
use reshard_planner::{Plan, Planner};
use reshard_sharding::internal::{AxisCut, Cuts, DimCut};
use reshard_sharding::{PartialAxis, ReduceOp, Sharding, ShardingType};

use crate::Error;
use crate::notation::refused;

/// Returns the mantissa and exponent bits of a float that is a valid cast target; `None` for other dtypes.
fn widths(dtype: DType) -> Option<(usize, usize)> {
    match dtype {
        DType::F64 => Some((52, 11)),
        DType::F32 => Some((23, 8)),
        DType::F16 => Some((10, 5)),
        DType::BF16 => Some((7, 8)),
        DType::Bool
        | DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::U8
        | DType::I8
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::I16
        | DType::U16
        | DType::I32
        | DType::U32
        | DType::C64
        | DType::I64
        | DType::U64 => None,
    }
}

/// Returns `true` if `via` has fewer bits than `dtype`, and all its numbers are numbers of `dtype`.
pub(crate) fn is_narrower(via: DType, dtype: DType) -> bool {
    widths(via).zip(widths(dtype)).is_some_and(|(to, from)| to.0 < from.0 && to.1 <= from.1)
}

/// Checks that a value of `dtype` may be sent as `via`.
pub(crate) fn check(name: &str, dtype: DType, via: DType) -> Result<(), Error> {
    if is_narrower(via, dtype) {
        return Ok(());
    }
    let known: Vec<&str> = [DType::F32, DType::F16, DType::BF16]
        .into_iter()
        .filter(|via| is_narrower(*via, dtype))
        .map(DType::name)
        .collect();
    let error = format!("`{name}` is {dtype} and cannot be sent as {via}");
    refused(if known.is_empty() {
        format!("{error}; remove `via {via}`")
    } else {
        format!("{error}; write `via {}`", known.join("` or `via "))
    })
}

/// Returns the reductions of a redistribution: the axes that are partial before and not after.
pub(crate) fn reduced(from: &Sharding, to: &Sharding) -> Vec<PartialAxis> {
    let stays = |terms: &PartialAxis| from.mesh() == to.mesh() && to.partial().contains(terms);
    from.partial().iter().filter(|terms| !stays(terms)).copied().collect()
}

/// Returns the number of ranks of these partial axes.
fn ranks(terms: &[PartialAxis]) -> usize {
    terms.iter().map(|terms| terms.sub.size).product()
}

fn cuts(of: &Sharding) -> impl Iterator<Item = AxisCut> + '_ {
    (0..of.shape().len()).flat_map(|dim| of.dim_cuts(dim))
}

/// Returns the sharding with one more leading dim, of which each rank has one slice, or all of it.
fn with_terms(is: &Sharding, terms: &[PartialAxis], slices: bool) -> Result<Sharding, Error> {
    let shape: Vec<usize> = core::iter::once(ranks(terms)).chain(is.shape().iter().copied()).collect();
    let own = terms.iter().filter(|_| slices).map(|terms| AxisCut {
        dim: 0,
        sub: terms.sub,
        cut: DimCut::chunks(1, terms.sub.size),
    });
    let others = cuts(is).map(|cut| AxisCut { dim: cut.dim + 1, ..cut });
    let partial = is.partial().iter().filter(|known| !slices || !terms.contains(known)).copied().collect();
    Ok(Sharding::from_cuts(is.mesh(), &shape, own.chain(others).collect(), partial)?)
}

/// A strategy to lower a redistribution.
pub(crate) enum Way {
    /// Without casts, because nothing is sent.
    Alone,
    /// In the communication dtype.
    Narrow,
    /// In the communication dtype, with partial values as slices, between these shardings of them.
    Terms(Box<[Sharding; 2]>),
}

impl Way {
    /// Returns the strategy from one sharding to another.
    pub(crate) fn of(from: &Sharding, to: &Sharding) -> Result<Way, Error> {
        let terms = reduced(from, to);
        if terms.is_empty() {
            return Ok(Way::Narrow);
        }
        if let Some(other) = terms.iter().find(|terms| terms.op != ReduceOp::Sum) {
            return refused(format!(
                "partial values of P({}) are not sums and cannot be reduced in another dtype; remove `via`",
                other.op
            ));
        }
        Ok(Way::Terms(Box::new([with_terms(from, &terms, true)?, with_terms(to, &terms, false)?])))
    }
}

/// Returns the strategy from one sharding to another, and the plan of the communication.
pub(crate) fn plan(
    planner: &Planner,
    from: &Sharding,
    to: &Sharding,
    dtype: DType,
    via: DType,
) -> Result<(Way, Plan), Error> {
    let way = Way::of(from, to)?;
    let plan = match &way {
        Way::Alone | Way::Narrow => planner.plan(from, to, via)?,
        Way::Terms(slices) => planner.plan(&slices[0], &slices[1], via)?,
    };
    // Partial values of which each rank already has all are added without a cast.
    if plan.communicating_steps() == 0 {
        return Ok((Way::Alone, planner.plan(from, to, dtype)?));
    }
    Ok((way, plan))
}

fn price(planner: &Planner, from: &Sharding, to: &Sharding, via: DType) -> Option<u64> {
    let way = Way::of(from, to).ok()?;
    let (from, to) = match &way {
        Way::Alone | Way::Narrow => (from, to),
        Way::Terms(slices) => (&slices[0], &slices[1]),
    };
    match planner.price(from, to, via, Ask::Within(u64::MAX)).ok()?.0 {
        Price::Exactly(cost) | Price::AtMost(cost) | Price::MoreThan(cost) => Some(cost),
    }
}

/// Returns the intermediate sharding in which a sum required by all its ranks is reduced.
///
/// `None` if the direct plan is cheaper, or if no dim can be split into enough parts.
fn scattered(
    planner: &Planner,
    from: &Sharding,
    to: &Sharding,
    via: DType,
) -> Result<Option<Sharding>, Error> {
    let terms = reduced(from, to);
    let is_used = |of: &Sharding, terms: &PartialAxis| {
        of.mesh() == from.mesh()
            && (cuts(of).any(|cut| cut.sub.axis == terms.sub.axis)
                || of.partial().iter().any(|known| known.sub.axis == terms.sub.axis))
    };
    if terms.iter().all(|terms| is_used(to, terms)) {
        return Ok(None);
    }
    let kept = from.partial().iter().filter(|known| !terms.contains(known)).copied();
    let before = Sharding::from_cuts(from.mesh(), from.shape(), cuts(from).collect(), kept.collect())?;
    let mut best: Option<(u64, Sharding)> = None;
    for base in [&before, to] {
        // A sharding on another mesh cannot be the base of the intermediate one.
        if base.mesh() != from.mesh() {
            continue;
        }
        let free: Vec<&PartialAxis> = terms.iter().filter(|terms| !is_used(base, terms)).collect();
        let parts: usize = free.iter().map(|terms| terms.sub.size).product();
        for dim in 0..base.shape().len() {
            let pieces: usize = base.dim_cuts(dim).iter().map(|cut| cut.cut.ranks()).product();
            let (whole, pieces) = (base.shape()[dim], pieces.saturating_mul(parts));
            if whole == 0 || pieces < 2 || !whole.is_multiple_of(pieces) {
                continue;
            }
            let own = free.iter().map(|terms| AxisCut {
                dim,
                sub: terms.sub,
                cut: DimCut::chunks(1, terms.sub.size),
            });
            let all: Cuts = cuts(base).chain(own).collect();
            let Ok(is) = Sharding::from_cuts(base.mesh(), base.shape(), all, base.partial().into()) else {
                continue;
            };
            let legs = price(planner, from, &is, via).zip(price(planner, &is, to, via));
            let Some(cost) = legs.map(|(a, b)| a.saturating_add(b)) else { continue };
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, is));
            }
        }
    }
    let direct = price(planner, from, to, via);
    Ok(best.filter(|(cost, _)| direct.is_none_or(|direct| *cost <= direct)).map(|(_, is)| is))
}

/// Returns the intermediate type if the redistribution needs two; `None` if one suffices.
pub(crate) fn between(
    planner: &Planner,
    from: &ShardingType,
    to: &ShardingType,
    via: DType,
) -> Result<Option<ShardingType>, Error> {
    let value = scattered(planner, &from.value, &to.value, via)?;
    let gradient = match (&from.gradient, &to.gradient) {
        (Some(to), Some(from)) => scattered(planner, from, to, via)?,
        (None, _) | (_, None) => None,
    };
    if value.is_none() && gradient.is_none() {
        return Ok(None);
    }
    // The first redistribution does everything that needs no intermediate type.
    let gradient = gradient.or_else(|| to.gradient.clone());
    Ok(Some(ShardingType::new(value.unwrap_or_else(|| to.value.clone()), gradient)))
}

/// Returns the modelled cost in picoseconds, forward and backward; `None` if there is no plan.
pub(crate) fn priced(planner: &Planner, from: &ShardingType, to: &ShardingType, via: DType) -> Option<u64> {
    let one_way = |a: &Sharding, b: &Sharding| {
        if a == b {
            return Some(0);
        }
        price(planner, a, b, via)
    };
    let leg = |from: &ShardingType, to: &ShardingType| {
        let forward = one_way(&from.value, &to.value)?;
        match (&from.gradient, &to.gradient) {
            (Some(to), Some(from)) => Some(forward.saturating_add(one_way(from, to)?)),
            (_, None) => Some(forward),
            (None, Some(_)) => None,
        }
    };
    match between(planner, from, to, via).ok()? {
        None => leg(from, to),
        Some(middle) => Some(leg(from, &middle)?.saturating_add(leg(&middle, to)?)),
    }
}
