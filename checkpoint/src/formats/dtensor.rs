//! Shards of DTensors in files of `torch.save`: a rank's file has its shard, the mesh, the placements and the shape.
//!
//! ```text
//! _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, arguments, state)
//!     state          (None, {"_local_tensor": a tensor, "_spec": DTensorSpec}), or the second of them
//! DTensorSpec        {mesh: DeviceMesh, placements: (Shard | _StridedShard | Replicate, ..), tensor_meta, shard_order, ..}
//! tensor_meta        TensorMeta(shape, stride, dtype)
//! DeviceMesh         {_layout: {axes: ({shape, stride}, ..)}, _rank_map, _rank, _coordinate_on_dim, ..}
//! shard_order        (ShardOrderEntry(tensor_dim, mesh_dims), ..)
//! ```
//!
//! These are attributes of PyTorch 2.15, which may change with a release. So everything that is known of them is in this
//! file, and an error names the attribute that is lacking. A rank's coordinate on its mesh is enough for its region:
//! the mesh may be a part of a larger one, and each rank has its own such part.

use reshard_sharding::{Error as ShardingError, Mesh, Placement, Region, Sharding};

use crate::error::Error;
use crate::formats::pickle::{Global, Id, Pickle};
use crate::model::placed::all;
use crate::model::stored::Stored;

/// One rank's shard of a DTensor.
pub(crate) struct Part {
    pub(crate) local: Stored,
    /// The shape of the whole.
    pub(crate) shape: Vec<usize>,
    /// The region of the whole; `None` if the rank is not in the mesh.
    pub(crate) region: Option<Region>,
    /// The rank that wrote it.
    pub(crate) rank: usize,
}

/// A DTensor in a pickle: its shard, and its spec.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) local: Id,
    spec: Id,
}

/// Returns the parts of a DTensor; `None` for other values.
pub(crate) fn parts(pickle: &Pickle<'_>, id: Id) -> Result<Option<Parts>, Error> {
    let Some((Global::RebuildFromType, [by, class, _, state])) = pickle.call(id)? else { return Ok(None) };
    if (pickle.global(*by), pickle.global(*class))
        != (Some(Global::RebuildWrapperSubclass), Some(Global::DTensor))
    {
        return Ok(None);
    }
    // Attributes in slots are in a second dict.
    let state = match pickle.parts(*state)? {
        Some([_, slots]) => *slots,
        Some(_) | None => *state,
    };
    let attribute = |name| pickle.needed(state, name).map_err(|error| error.about("a DTensor"));
    Ok(Some(Parts { local: attribute("_local_tensor")?, spec: attribute("_spec")? }))
}

impl Part {
    /// Returns `true` if the rank holds the whole tensor.
    pub(crate) fn is_whole(&self) -> bool {
        self.region.as_ref() == Some(&all(&self.shape))
    }

    /// Reads the spec of a DTensor, and joins it with its shard.
    pub(crate) fn of(pickle: &Pickle<'_>, spec: Parts, local: Stored) -> Result<Self, Error> {
        let spec = pickle.state(spec.spec, Global::DTensorSpec, "the spec of a DTensor")?;
        let about = |error: Error| error.about("the mesh of a DTensor");
        let mesh = DeviceMesh::read(pickle, pickle.needed(spec, "mesh")?).map_err(about)?;
        let meta = pickle.needed(spec, "tensor_meta")?;
        let shape = match pickle.call(meta)? {
            Some((Global::TensorMeta, [shape, ..])) => pickle.sizes(*shape, "the shape of a DTensor")?,
            Some(_) | None => return Err(pickle.wrong(meta, "the attribute `tensor_meta`", "a TensorMeta")),
        };
        let Some(coordinate) = &mesh.coordinate else {
            return Ok(Self { local, shape, region: None, rank: mesh.rank });
        };
        let axes = mesh.shape.iter().enumerate().map(|(dim, size)| (axis_name(dim), *size));
        let over = Mesh::new(axes)?;
        let sharding = sharding(pickle, spec, &over, &shape)?;
        let at = over.rank_at(coordinate);
        let region = sharding.region(at.ok_or_else(|| Error::internal("a coordinate has no rank"))?)?;
        if region.local_shape() != local.shape {
            let message = format!(
                "the shard of rank {} is {:?}, but `{sharding}` of {shape:?} gives it {:?}",
                mesh.rank,
                local.shape,
                region.local_shape()
            );
            return Err(Error::mismatch("dtensor", message));
        }
        Ok(Self { local, shape, region: Some(region), rank: mesh.rank })
    }
}

/// The parts of a device mesh that decide the region of a rank.
struct DeviceMesh {
    shape: Vec<usize>,
    rank: usize,
    /// `None` if the rank is not in the mesh.
    coordinate: Option<Vec<usize>>,
}

impl DeviceMesh {
    fn read(pickle: &Pickle<'_>, id: Id) -> Result<Self, Error> {
        let mesh = pickle.state(id, Global::DeviceMesh, "it")?;
        let layout = pickle.needed(mesh, "_layout")?;
        let layout = pickle.state(layout, Global::MeshLayout, "the attribute `_layout`")?;
        let axes = pickle.tuple(pickle.needed(layout, "axes")?, "its axes")?;
        let size = |axis: &Id| -> Result<usize, Error> {
            let axis = pickle.state(*axis, Global::FlatLayout, "an axis")?;
            let extents = pickle.sizes(pickle.needed(axis, "shape")?, "the shape of an axis")?;
            let size = extents.iter().try_fold(1_usize, |size, extent| size.checked_mul(*extent));
            size.ok_or_else(|| malformed(format!("an axis of {extents:?} has more than 2^64 ranks")))
        };
        let shape = axes.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let coordinate = pickle.needed(mesh, "_coordinate_on_dim")?;
        let coordinate = if pickle.is_none(coordinate) {
            None
        } else {
            Some(pickle.sizes(coordinate, "the coordinate of a rank")?)
        };
        let inside = |coordinate: &Vec<usize>| {
            coordinate.len() == shape.len() && coordinate.iter().zip(&shape).all(|(at, size)| at < size)
        };
        if let Some(outside) = coordinate.as_ref().filter(|coordinate| !inside(coordinate)) {
            return Err(malformed(format!("the coordinate {outside:?} is not on a mesh of {shape:?}")));
        }
        let rank = pickle.size(pickle.needed(mesh, "_rank")?, "the attribute `_rank`")? as usize;
        Ok(Self { shape, rank, coordinate })
    }
}

fn axis_name(dim: usize) -> String {
    format!("d{dim}")
}

/// Returns the sharding of a spec, as PyTorch's own redistribution interprets it.
fn sharding(pickle: &Pickle<'_>, spec: Id, over: &Mesh, shape: &[usize]) -> Result<Sharding, Error> {
    let listed = pickle.tuple(pickle.needed(spec, "placements")?, "the placements of a DTensor")?;
    let placements = listed.iter().map(|one| placement(pickle, *one)).collect::<Result<Vec<_>, _>>()?;
    let strided = listed.iter().any(|one| pickle.is(*one, Global::StridedShard));
    if strided {
        let as_order = pickle.attribute(spec, "use_strided_shard_as_shard_order")?;
        if as_order.is_none_or(|as_order| pickle.is_true(as_order)) {
            match Sharding::with_axis_order(over, shape, &placements) {
                Err(ShardingError::NotRepresentable { .. }) => {}
                found => return Ok(found?),
            }
        }
        return Ok(Sharding::new(over, shape, &placements)?);
    }
    let text = placements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let order = shard_order(pickle, spec)?.map_or_else(String::new, |order| format!(" order={{{order}}}"));
    Ok(Sharding::parse(over, shape, &(text + &order))?)
}

/// Returns the order of the axes, if they are not in the order of the mesh.
///
/// A dim does not depend on the order of another one, so the orders of all dims in sequence are one order of all axes.
fn shard_order(pickle: &Pickle<'_>, spec: Id) -> Result<Option<String>, Error> {
    let Some(order) = pickle.attribute(spec, "shard_order")?.filter(|order| !pickle.is_none(*order)) else {
        return Ok(None);
    };
    let (mut axes, mut ascends) = (Vec::new(), true);
    for entry in pickle.tuple(order, "the shard order of a DTensor")? {
        let Some((Global::ShardOrderEntry, [_, dims])) = pickle.call(*entry)? else {
            return Err(pickle.wrong(*entry, "an entry of a shard order", "a ShardOrderEntry"));
        };
        let dims = pickle.sizes(*dims, "the mesh dims of a shard order")?;
        ascends &= dims.is_sorted();
        axes.extend(dims.into_iter().map(axis_name));
    }
    Ok((!ascends).then(|| axes.join(",")))
}

fn placement(pickle: &Pickle<'_>, id: Id) -> Result<Placement, Error> {
    if pickle.is(id, Global::Replicate) {
        return Ok(Placement::Replicate);
    }
    if pickle.is(id, Global::Partial) {
        let why = "it has partial values, which are not the elements of a tensor; redistribute it before it is saved";
        return Err(Error::unsupported("dtensor", why));
    }
    let (class, factor) = if pickle.is(id, Global::StridedShard) {
        (Global::StridedShard, Some("split_factor"))
    } else {
        (Global::Shard, None)
    };
    let state = pickle.state(id, class, "a placement of a DTensor")?;
    let number = |name| pickle.size(pickle.needed(state, name)?, "a number of a placement");
    let dim = number("dim")?;
    let text = match factor {
        None => format!("S({dim})"),
        Some(factor) => format!("SS({dim},{})", number(factor)?),
    };
    Ok(text.parse()?)
}

fn malformed(why: String) -> Error {
    Error::malformed("dtensor", why)
}
