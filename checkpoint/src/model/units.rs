//! Units of the exchange: opaque blocks of whole bytes.
//!
//! For most element types a unit is one element. Elements smaller than a byte (F4, F6) share bytes, so there
//! the unit is the fewest elements that fill whole bytes, along the last dim: two F4 in one byte, four F6 in
//! three. These bytes form a further dim that is never split. Such a tensor can be sharded wherever no rank's
//! shard ends inside a unit. If even the rows end inside one, it can only be replicated, as plain bytes.

use reshard_layout::internal::counted;
use reshard_sharding::{Interval, Region, Sharding};
use safetensors::Dtype;

use crate::model::placed::all;
use crate::model::stored;

/// The largest number of ranks whose shards of packed elements are checked.
const MOST_RANKS: usize = 1 << 16;

/// The shape of a tensor for the exchange: units in place of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    shape: Vec<usize>,
    /// The size of a unit in bytes: 1, 2, 4 or 8.
    pub(crate) bytes: usize,
    packing: Packing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// A unit is an element.
    Element,
    /// `elements` elements of the last dim share `bytes` bytes.
    Packed { elements: usize, bytes: usize },
    /// Rows end inside a unit: the tensor is treated as its bytes.
    Indivisible,
}

impl Units {
    pub(crate) fn of(dtype: Dtype, shape: &[usize]) -> Self {
        let bits = dtype.bitsize();
        let (elements, bytes) = match bits {
            4 => (2, 1),
            6 => (4, 3),
            _ => return Self { shape: shape.to_vec(), bytes: bits / 8, packing: Packing::Element },
        };
        let mut shape = shape.to_vec();
        match shape.last_mut() {
            Some(last) if last.is_multiple_of(elements) => {
                *last /= elements;
                shape.push(bytes);
                Self { shape, bytes: 1, packing: Packing::Packed { elements, bytes } }
            }
            Some(_) | None => {
                let all = stored::byte_len(dtype, &shape).unwrap_or(0);
                Self { shape: vec![all], bytes: 1, packing: Packing::Indivisible }
            }
        }
    }

    /// Returns the extents of its dims, in units.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns how many elements a unit has, and in how many bytes; `None` if rows end inside a unit.
    pub(crate) fn unit(&self) -> Option<(usize, usize)> {
        match self.packing {
            Packing::Element => Some((1, self.bytes)),
            Packing::Packed { elements, bytes } => Some((elements, bytes)),
            Packing::Indivisible => None,
        }
    }

    /// Converts a region of elements to units; the error is the reason if it would end inside a unit.
    pub(crate) fn region(&self, whole: &[usize], region: &Region) -> Result<Region, String> {
        let (elements, bytes) = match self.packing {
            Packing::Element => return Ok(region.clone()),
            Packing::Packed { elements, bytes } => (elements, bytes),
            Packing::Indivisible if *region == all(whole) => return Ok(all(&self.shape)),
            Packing::Indivisible => return Err("its rows end in the middle of a byte".to_owned()),
        };
        let mut region = region.clone();
        for interval in region.dims.last_mut().into_iter().flatten() {
            if !interval.start.is_multiple_of(elements) || !interval.len.is_multiple_of(elements) {
                return Err(format!(
                    "{elements} elements share {bytes}, and the region would split them",
                    bytes = counted(bytes, "byte", "bytes")
                ));
            }
            interval.start /= elements;
            interval.len /= elements;
        }
        region.dims.push([Interval { start: 0, len: bytes }].into_iter().collect());
        Ok(region)
    }

    /// Converts a sharding of elements to units; the error is the reason if a shard would end inside a unit.
    pub(crate) fn sharding(&self, sharding: &Sharding) -> Result<Sharding, String> {
        let mesh = sharding.mesh();
        let said = |error: reshard_sharding::Error| error.to_string();
        let (elements, bytes) = match self.packing {
            Packing::Element => return Ok(sharding.clone()),
            Packing::Packed { elements, bytes } => (elements, bytes),
            Packing::Indivisible
                if *sharding == Sharding::replicated(mesh, sharding.shape()).map_err(said)? =>
            {
                return Sharding::replicated(mesh, &self.shape).map_err(said);
            }
            Packing::Indivisible => return Err("its rows end in the middle of a byte".to_owned()),
        };
        let units = Sharding::parse(mesh, &self.shape, &sharding.to_string()).map_err(said)?;
        if mesh.size() > MOST_RANKS {
            return Err(format!(
                "{elements} elements share {bytes}, which is checked per rank, for at most {MOST_RANKS} ranks",
                bytes = counted(bytes, "byte", "bytes")
            ));
        }
        for rank in mesh.ranks() {
            let mut scaled = units.region(rank).map_err(said)?;
            scaled.dims.pop();
            for interval in scaled.dims.last_mut().into_iter().flatten() {
                interval.start *= elements;
                interval.len *= elements;
            }
            if scaled != sharding.region(rank).map_err(said)? {
                return Err(format!(
                    "{elements} elements share {bytes}, and rank {rank} would split them",
                    bytes = counted(bytes, "byte", "bytes")
                ));
            }
        }
        Ok(units)
    }
}
