//! Slots: the parts of mesh axes that take a strategy each, and the class of a tensor along them.
//!
//! Usually a slot is a whole mesh axis. Where a tensor uses sub-axes, every axis is split at every position
//! where some tensor splits it, so that each tensor has one class along a slot:
//!
//! ```text
//! tp=8, one operand [{tp:(1)2}], another [{tp:(2)4}]        slots tp:(1)2 and tp:(2)4
//! ```
//!
//! An axis that is split at positions which do not divide each other (at 2 and at 3 of 6) stays whole. Then
//! some tensor has no named class along it, and only strategies that redistribute that tensor remain.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use reshard_sharding::internal::{DimCut, Made};
use reshard_sharding::{Mesh, Placement, ReduceOp, Sharding, SubAxis};

/// A kind of shard, which fills the placeholder of a strategy.
///
/// Texts round-trip, except for custom partitions, whose ranges only a sharding has.
///
/// ```
/// use reshard_ops::propagate::ShardKind;
/// assert_eq!("SS(2)".parse::<ShardKind>()?, ShardKind::Strided(2));
/// assert_eq!(ShardKind::Plain.to_string(), "S");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum ShardKind {
    /// `S(d)`.
    Plain,
    /// `SS(d,k)` with this split factor.
    Strided(usize),
    /// `RG(d,[..])` with these sizes.
    Ragged(Arc<[usize]>),
    /// A custom partition, for the lengths for which some input has it.
    Other(Arc<Made>),
}

impl ShardKind {
    fn of(cut: &DimCut) -> ShardKind {
        match (cut.sizes(), cut.other()) {
            (Some(sizes), _) => ShardKind::Ragged(Arc::clone(sizes)),
            (None, Some(made)) => ShardKind::Other(Arc::clone(made)),
            (None, None) => ShardKind::strided(cut.pieces()),
        }
    }

    fn strided(split_factor: usize) -> ShardKind {
        if split_factor == 1 { ShardKind::Plain } else { ShardKind::Strided(split_factor) }
    }

    /// Returns the number of blocks into which it first splits a dim: 1 if plain, `None` without chunks.
    pub(super) fn split_factor(&self) -> Option<usize> {
        match self {
            ShardKind::Plain => Some(1),
            ShardKind::Strided(k) => Some(*k),
            ShardKind::Ragged(_) | ShardKind::Other(_) => None,
        }
    }

    /// Returns the split over `n` ranks after local digits of product `skip`.
    ///
    /// `None` for a kind without chunks that cannot follow local digits.
    pub(super) fn cut(&self, n: usize, skip: usize) -> Option<DimCut> {
        match self {
            ShardKind::Plain => Some(DimCut::chunks(skip, n)),
            ShardKind::Strided(k) => k.checked_mul(skip).map(|k| DimCut::chunks(k, n)),
            ShardKind::Ragged(sizes) => (skip == 1 && sizes.len() == n).then(|| DimCut::ragged(sizes)),
            ShardKind::Other(made) => {
                (skip == 1 && made.ranks() == n).then(|| DimCut::Other(Arc::clone(made)))
            }
        }
    }
}

impl fmt::Display for ShardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardKind::Plain => f.write_str("S"),
            ShardKind::Strided(k) => write!(f, "SS({k})"),
            ShardKind::Ragged(sizes) => {
                let text: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                write!(f, "RG([{}])", text.join(","))
            }
            ShardKind::Other(made) => made.fmt(f),
        }
    }
}

impl FromStr for ShardKind {
    type Err = Error;
    fn from_str(s: &str) -> Result<ShardKind, Error> {
        // A kind is a placement without its dim.
        let text = match s.trim().split_once('(') {
            None => format!("{}(0)", s.trim()),
            Some((name, rest)) => format!("{name}(0,{rest}"),
        };
        match text.parse::<Placement>() {
            Ok(Placement::Shard(_)) => Ok(ShardKind::Plain),
            Ok(Placement::StridedShard { split_factor, .. }) if split_factor > 0 => {
                Ok(ShardKind::strided(split_factor))
            }
            Ok(Placement::Ragged { sizes, .. }) => Ok(ShardKind::Ragged(sizes)),
            Ok(
                Placement::StridedShard { .. }
                | Placement::Custom { .. }
                | Placement::Replicate
                | Placement::Partial(_),
            )
            | Err(_) => Err(Error::Sharding(reshard_sharding::Error::Parse {
                what: "kind of shard",
                input: s.to_owned(),
                at: 0,
                expected: "S, SS(2) or RG([3,5])".to_owned(),
            })),
        }
    }
}

/// The class of a tensor along one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Replicate,
    Partial(ReduceOp),
    Shard {
        dim: usize,
        kind: ShardKind,
    },
    /// A class without a name.
    Mixed,
}

/// One value for each slot.
pub(super) type PerSlot<T> = SmallVec<[T; 6]>;

/// The slots of a mesh for these tensors, outermost first.
pub(super) fn slots<'a>(
    mesh: &Mesh,
    tensors: &(impl Iterator<Item = &'a Sharding> + Clone),
) -> PerSlot<SubAxis> {
    let mut out = PerSlot::new();
    let whole = tensors.clone().all(Sharding::whole_axes);
    for (axis, a) in mesh.axes().iter().enumerate() {
        let mut cuts: SmallVec<[usize; 8]> = SmallVec::from_slice(&[1, a.size()]);
        if !whole {
            for t in tensors.clone() {
                for sub in used(t).filter(|s| s.axis == axis) {
                    cuts.extend([sub.pre_size, sub.pre_size * sub.size]);
                }
            }
            cuts.sort_unstable();
            cuts.dedup();
            if cuts.windows(2).any(|w| !w[1].is_multiple_of(w[0])) {
                cuts = SmallVec::from_slice(&[1, a.size()]);
            }
        }
        let parts = cuts.windows(2).map(|w| SubAxis { axis, pre_size: w[0], size: w[1] / w[0] });
        out.extend(parts.filter(|s| s.size > 1));
    }
    out
}

/// The sub-axes that a tensor is not replicated over.
fn used(t: &Sharding) -> impl Iterator<Item = SubAxis> + '_ {
    let partial = t.partial().iter().map(|p| p.sub);
    partial.chain(t.cutting())
}

/// Returns `true` if a slot is part of a sub-axis.
fn within(slot: SubAxis, sub: SubAxis) -> bool {
    let end = |s: SubAxis| s.pre_size * s.size;
    slot.axis == sub.axis
        && slot.pre_size.is_multiple_of(sub.pre_size)
        && end(sub).is_multiple_of(end(slot))
        && slot.pre_size >= sub.pre_size
        && end(slot) <= end(sub)
}

/// Returns `true` if two sub-axes share digits of ranks.
fn overlaps(a: SubAxis, b: SubAxis) -> bool {
    a.axis == b.axis && a.pre_size < b.pre_size * b.size && b.pre_size < a.pre_size * a.size
}

/// Returns the class of a tensor along each slot.
pub(super) fn classify(t: &Sharding, slots: &[SubAxis]) -> PerSlot<Class> {
    let mut out: PerSlot<Class> = slots.iter().map(|_| Class::Replicate).collect();
    let mark = |out: &mut PerSlot<Class>, sub: SubAxis, class: &dyn Fn(usize) -> Class| {
        for (i, &slot) in slots.iter().enumerate() {
            if within(slot, sub) {
                out[i] = class(i);
            } else if overlaps(slot, sub) {
                out[i] = Class::Mixed;
            }
        }
    };
    for p in t.partial() {
        mark(&mut out, p.sub, &|_| Class::Partial(p.op));
    }
    for dim in 0..t.shape().len() {
        let Some(modes) = t.dim_modes(dim) else {
            for c in t.cuts().into_iter().flatten().filter(|c| c.dim == dim) {
                let exact = |i: usize| slots[i] == c.sub;
                mark(&mut out, c.sub, &|i| {
                    if exact(i) { Class::Shard { dim, kind: ShardKind::of(&c.cut) } } else { Class::Mixed }
                });
            }
            continue;
        };
        if modes.iter().all(|m| m.stride.is_local()) {
            continue;
        }
        // The modes, split by slot, slowest first; a placement skips modes that are local or belong to a
        // later slot.
        let mut pieces: SmallVec<[(Option<usize>, usize); 12]> = SmallVec::new();
        for &m in modes.iter().rev() {
            match t.mesh().sub_axis(m) {
                None => pieces.push((None, m.extent as usize)),
                Some(sub) => {
                    let inside = (0..slots.len()).filter(|&i| within(slots[i], sub));
                    pieces.extend(inside.map(|i| (Some(i), slots[i].size)));
                    mark(&mut out, sub, &|_| Class::Mixed);
                }
            }
        }
        for (at, &(owner, _)) in pieces.iter().enumerate() {
            let Some(i) = owner else { continue };
            let skipped = pieces[..at].iter().filter(|(o, _)| o.is_none_or(|o| o > i));
            out[i] = Class::Shard { dim, kind: ShardKind::strided(skipped.map(|p| p.1).product()) };
        }
    }
    out
}
