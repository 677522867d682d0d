//! Notations: one text for every value, the same in tests, errors, docs and on the command line.
//!
//! Wherever a sharding is read, each of these is accepted:
//!
//! ```text
//! S(0),R,SS(0,2),Z(-1),P(sum)                 placements, one per mesh axis; order={b,a} if the axes apply in another order
//! S(0)[1]S(0)[0]                              PyTorch's: the number of an axis in the shard order of its dim
//! [{dp,tp},{}] unreduced={cp}                 by tensor: for each dim its axes, most significant first
//! #sdy.sharding<@mesh, [{"dp"}, {}]>          Shardy, and XLA's {mesh['dp'=2,'tp'=4], [{'dp'}, {}]}
//! PartitionSpec(('dp', 'tp'), None)           JAX; P(..) where it cannot be a partial placement
//! {devices=[2,4]<=[8]}                        XLA's HloSharding, V1 and V2
//! ```
//!
//! It is printed as placements where they can hold it, else by tensor. The others are printed on request, or
//! fail with the part that they cannot hold. The parts of framework notations that no sharding has (open
//! dims, tuples) are preserved by [`PartitionSpec`], [`ShardySharding`] and [`HloShardings`]. Groups have
//! XLA's [`ReplicaGroups`], V1 to V3.

pub(crate) mod brackets;
pub(crate) mod by_tensor;
pub(crate) mod cursor;
pub(crate) mod dims;
mod hlo;
mod hlo_digits;
mod jax;
mod prefix;
mod pytorch;
mod replica_groups;
pub(crate) mod shardy;
mod shardy_text;
mod stored;

pub use hlo::{DeviceList, HloSharding, HloShardings, LastDim};
pub(crate) use hlo::{join, numbers};
pub use jax::{PartitionSpec, SpecDim};
pub use replica_groups::ReplicaGroups;
pub use shardy::inlined_mesh;
pub use shardy_text::{AxisPart, ShardyDim, ShardyMesh, ShardySharding};
pub use stored::StoredSharding;

use core::fmt;

use reshard_layout::Excerpt;
use smallvec::SmallVec;

use crate::axis::{AxisName, SubAxis};
use crate::partition::PartitionRegistry;
use crate::placement::{Placement, Placements};
use crate::{Error, Mesh, Sharding};
use cursor::Cursor;

/// The result of reading a text: a sharding, and the kind of notation.
pub(crate) enum Reading {
    /// One placement for each axis.
    ByAxis(Sharding),
    /// The axes of each dim, the partial axes, and the axes marked `reduced`.
    ByDim { value: Sharding, reduced: SmallVec<[SubAxis; 2]> },
}

impl Reading {
    fn by_dim(value: Sharding) -> Reading {
        Reading::ByDim { value, reduced: SmallVec::new() }
    }
}

/// Reads a sharding in any notation; placements may use these dim partitions.
pub(crate) fn parse_sharding(
    cuts: &PartitionRegistry,
    mesh: &Mesh,
    shape: &[usize],
    text: &str,
) -> Result<Sharding, Error> {
    value_of(read_sharding(cuts, mesh, shape, text)?, text)
}

/// Returns the sharding of a text, if the text specifies nothing else.
fn value_of(reading: Reading, text: &str) -> Result<Sharding, Error> {
    match reading {
        Reading::ByAxis(value) => Ok(value),
        Reading::ByDim { value, reduced } if reduced.is_empty() => Ok(value),
        Reading::ByDim { .. } => Err(Error::NotRepresentable {
            notation: "placements",
            reason: format!(
                "reduced={{..}} in {} describes a gradient, but a sharding was expected, not a type; parse it as a \
                 type, or remove it",
                Excerpt::of(text)
            ),
        }),
    }
}

/// Reads a sharding in any notation, with its `reduced` axes; placements may use these dim partitions.
pub(crate) fn read_sharding(
    cuts: &PartitionRegistry,
    mesh: &Mesh,
    shape: &[usize],
    text: &str,
) -> Result<Reading, Error> {
    if is_by_tensor(text) {
        return by_tensor::parse(mesh, shape, text);
    }
    if shardy::is_sharding(text) {
        return shardy::parse(mesh, shape, text);
    }
    if text.trim_start().starts_with('{') {
        return Sharding::from_hlo(mesh, shape, &text.parse()?).map(Reading::by_dim);
    }
    if jax::is_spec(text) {
        return jax::parse(mesh, shape, text);
    }
    parse_placements(cuts, mesh, shape, text).map(Reading::ByAxis)
}

fn parse_placements(
    cuts: &PartitionRegistry,
    mesh: &Mesh,
    shape: &[usize],
    text: &str,
) -> Result<Sharding, Error> {
    let mut r = Cursor::new("placements", text);
    let read = Placements::read(&mut r, cuts, Some(shape.len()))?;
    let mut order = if r.eat("order") { Some(read_order(&mut r, mesh)?) } else { None };
    if read.numbers.iter().any(Option::is_some) {
        order = Some(pytorch::order(&r, &read.placements, &read.numbers)?);
    }
    r.finish()?;
    let (flat, placements);
    let (shape, placements) = if read.prefix.is_some() || read.units.contains(&true) {
        (flat, placements) = prefix::resolved(mesh, shape, &read, order.as_deref())?;
        (&flat[..], placements)
    } else {
        (shape, read.placements)
    };
    match order {
        None => Sharding::new(mesh, shape, &placements),
        Some(order) => in_order(mesh, shape, &placements, &order),
    }
}

/// Returns `true` for the notation by tensor: it starts with `[{`, or is the `[]` of a tensor without dims.
fn is_by_tensor(text: &str) -> bool {
    let mut r = Cursor::new("sharding", text);
    r.eat("[") && (r.eat("{") || r.eat("]"))
}

fn read_order(r: &mut Cursor<'_>, mesh: &Mesh) -> Result<SmallVec<[usize; 4]>, Error> {
    r.expect("=")?;
    r.expect("{")?;
    let mut order = SmallVec::new();
    loop {
        let at = r.here();
        let name = r.take_while(AxisName::continues);
        if name.is_empty() {
            return Err(r.error_at(at, "the name of an axis, as in order={tp,dp}"));
        }
        let axis = mesh.axis(name)?;
        if order.contains(&axis) {
            return Err(r.error_at(at, "each axis once"));
        }
        order.push(axis);
        if !r.eat(",") {
            break;
        }
    }
    r.expect("}")?;
    Ok(order)
}

/// Returns the sharding of the same placements, applied in another order of axes.
fn in_order(
    mesh: &Mesh,
    shape: &[usize],
    placements: &[Placement],
    order: &[usize],
) -> Result<Sharding, Error> {
    for (axis, (p, a)) in placements.iter().zip(mesh.axes()).enumerate() {
        if p.dim().is_some() && !order.contains(&axis) {
            let name = a.name();
            return Err(Error::Placement {
                reason: format!("order={{..}} lacks axis {name}, which is {p}; list every axis that shards"),
            });
        }
    }
    // Those that do not shard may come last.
    let others = (0..placements.len()).filter(|axis| !order.contains(axis));
    Sharding::applied(mesh, shape, placements, order.iter().copied().chain(others))
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(p) = self.placements() {
            return p.fmt(f);
        }
        match self.cuts() {
            Some(cuts) if self.whole_axes() => {
                let mut list: Placements = self.mesh().axes().iter().map(|_| Placement::Replicate).collect();
                for p in self.partial() {
                    list.0[p.sub.axis] = Placement::Partial(p.op);
                }
                for x in cuts {
                    list.0[x.sub.axis] = Placement::of_cut(x.dim, &x.cut);
                }
                write!(f, "{list} order={{")?;
                for (i, x) in cuts.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}", self.mesh().axes()[x.sub.axis].name())?;
                }
                f.write_str("}")
            }
            Some(_) | None => by_tensor::write(self, f),
        }
    }
}
