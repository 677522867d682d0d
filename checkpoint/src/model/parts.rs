//! A tensor from parts in several files, whose regions must tile it.

use std::sync::Arc;

use reshard_sharding::{Interval, Region};
use safetensors::Dtype;

use crate::bytes::Bytes;
use crate::error::Error;
use crate::model::boxes::each_box;
use crate::model::checkpoint::{Data, Tensor};
use crate::model::placed::Placed;
use crate::model::stored;
use crate::model::tiling;
use crate::model::units::Units;

/// The largest number of boxes that the regions of a tensor may consist of.
const MOST_BOXES: usize = 1 << 22;

/// Returns the tensor of these regions, and the bytes of every position that holds one.
///
/// Regions have elements and are within the shape. It is an error if they do not tile it.
pub(crate) fn tensor(
    name: &str,
    dtype: Dtype,
    shape: &[usize],
    mut placed: Placed,
    mut files: Vec<Bytes>,
) -> Result<Tensor, Error> {
    if stored::byte_len(dtype, shape).is_none() {
        let message = format!("{dtype} {shape:?} has more than 2^64 bytes, or ends in the middle of one");
        return Err(Error::malformed("chunks", message));
    }
    let boxes = boxes(&placed.regions)?;
    if !tiling::tiles(shape, boxes.iter().map(|(start, len)| (&start[..], &len[..])))? {
        let message = format!(
            "its {} chunks do not tile {shape:?}: some element is in none of them or in several",
            placed.regions.len()
        );
        return Err(Error::malformed("chunks", message));
    }
    let data = if files.len() <= 1 {
        Data::Whole(files.pop().unwrap_or_else(|| Bytes::from(Vec::new())))
    } else {
        let units = Units::of(dtype, shape);
        for region in &mut placed.regions {
            *region = units.region(shape, region).map_err(|why| Error::refused("packed", why))?;
        }
        Data::Chunks { placed: Arc::new(placed), chunks: files }
    };
    let (name, shape) = (name.to_owned(), shape.to_vec());
    Ok(Tensor { name, path: None, dtype, stored: dtype, shape, data, sums: Vec::new(), parts: None })
}

/// The start and the extents of a box.
type Box = (Vec<usize>, Vec<usize>);

/// A chunk: its start in the tensor, its shape, its bytes.
pub(crate) type Chunk<'a> = (&'a [usize], &'a [usize], Bytes);

/// Returns a tensor of non-empty chunks within its shape; an error if they do not tile it.
pub(crate) fn of_chunks(
    name: &str,
    dtype: Dtype,
    shape: &[usize],
    chunks: Vec<Chunk<'_>>,
) -> Result<Tensor, Error> {
    let interval =
        |(start, len): (&usize, &usize)| [Interval { start: *start, len: *len }].into_iter().collect();
    let region =
        |(start, len, _): &Chunk<'_>| Region { dims: start.iter().zip(*len).map(interval).collect() };
    let placed = Placed::apart(chunks.iter().map(region).collect());
    tensor(name, dtype, shape, placed, chunks.into_iter().map(|(_, _, bytes)| bytes).collect())
}

/// Returns the boxes of all regions: one for every choice of an interval in each dim.
fn boxes(regions: &[Region]) -> Result<Vec<Box>, Error> {
    let mut boxes = Vec::with_capacity(regions.len());
    for region in regions {
        let count = region.dims.iter().try_fold(1_usize, |count, dim| count.checked_mul(dim.len()));
        if count.is_none_or(|count| count > MOST_BOXES - boxes.len()) {
            let message = format!("its chunks consist of more than {MOST_BOXES} boxes");
            return Err(Error::unsupported("chunks", message));
        }
        each_box(region, &mut |intervals| {
            boxes.push(intervals.iter().map(|one| (one.start, one.len)).unzip());
            Ok::<(), Error>(())
        })?;
    }
    Ok(boxes)
}
