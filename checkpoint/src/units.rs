//! What the exchange moves: opaque units of whole bytes.
//!
//! For most element types a unit is one element. Elements smaller than a byte (F4, F6) share bytes, so there the unit
//! is the fewest elements that fill whole bytes, along the last dim: two F4 in one byte, four F6 in three, which are a
//! further dim that is never cut. A tensor of them can be sharded wherever no rank's piece ends inside a unit; where even
//! the rows end inside one, it can only be replicated, as the bytes it has.

use reshard_layout::internal::counted;
use reshard_sharding::{Interval, Region, Sharding};
use safetensors::Dtype;

use super::header;
use super::placed::all;

/// The most ranks whose pieces of packed elements are looked at.
const MOST_RANKS: usize = 1 << 16;

/// A tensor as the exchange sees it: units in place of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    shape: Vec<usize>,
    /// The size of what is moved: 1, 2, 4 or 8.
    pub(crate) bytes: usize,
    packing: Packing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// A unit is an element.
    Element,
    /// So many elements of the last dim share so many bytes.
    Packed { elements: usize, bytes: usize },
    /// Rows end inside a unit: the tensor is its bytes.
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
                let all = header::byte_len(dtype, &shape).unwrap_or(0);
                Self { shape: vec![all], bytes: 1, packing: Packing::Indivisible }
            }
        }
    }

    /// The sizes of its dims, in units.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The same region of a tensor of this shape, of units instead of elements; or why it would end inside a unit.
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
                    "{elements} elements share {bytes}, and the region would cut them",
                    bytes = counted(bytes, "byte", "bytes")
                ));
            }
            interval.start /= elements;
            interval.len /= elements;
        }
        region.dims.push([Interval { start: 0, len: bytes }].into_iter().collect());
        Ok(region)
    }

    /// The same sharding, of units instead of elements; or why some rank's piece would end inside a unit.
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
                "{elements} elements share {bytes}, which is looked at rank by rank, for at most {MOST_RANKS} ranks",
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
                    "{elements} elements share {bytes}, and rank {rank} would cut them",
                    bytes = counted(bytes, "byte", "bytes")
                ));
            }
        }
        Ok(units)
    }
}
