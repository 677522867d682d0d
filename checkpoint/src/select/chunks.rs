//! The chunks of a made tensor: which bytes of which file fill which region of it.

use reshard_layout::internal::counted;
use reshard_mapping::Piece;
use reshard_sharding::{Interval, Intervals, Region};

use crate::bytes::Bytes;
use crate::bytes::strided::nest;
use crate::error::Error;
use crate::model::boxes::each_box;
use crate::model::checkpoint::Tensor;
use crate::model::placed::Placed;
use crate::reading::Source;
use crate::select::in_order::{InOrder, push};

/// The most intervals of a dim of a chunk.
const MOST_INTERVALS: usize = 1 << 20;

/// The regions of a made tensor, in units, with the bytes of each and the checksum that covers them.
pub(crate) struct Chunks {
    pub(crate) placed: Placed,
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) sums: Vec<Option<u64>>,
    dims: usize,
    item: usize,
}

impl Chunks {
    pub(crate) fn new(dims: usize, item: usize) -> Self {
        Self { placed: Placed::apart(Vec::new()), bytes: Vec::new(), sums: Vec::new(), dims, item }
    }

    /// Appends zeros.
    pub(crate) fn add_zeros(&mut self, piece: &Piece) -> Result<(), Error> {
        let zeros = nest(Bytes::from(vec![0; self.item]), self.item, 0, &[(piece.elements(), 0)])?;
        self.push(target(piece, self.dims)?, [zeros], None);
        Ok(())
    }

    /// Appends the parts of the files of a source that a loop nest reads.
    pub(crate) fn add(&mut self, tensor: &Tensor, source: &Source<'_>, piece: &Piece) -> Result<(), Error> {
        let in_order = InOrder::of(piece);
        for (number, held) in source.placed.regions.iter().enumerate().filter(|(_, held)| held.numel() > 0) {
            let files = || source.placed.holders[number].iter().map(|place| &source.files[*place]);
            match in_order.as_ref().and_then(|nest| nest.image(held)) {
                Some(image) => self.push(image, files().cloned(), tensor.sum(number)),
                None => self.add_parts(held, &files().collect::<Vec<_>>(), tensor.sum(number), piece)?,
            }
        }
        Ok(())
    }

    /// Appends the parts of the files of one region that a loop nest reads.
    fn add_parts(
        &mut self,
        held: &Region,
        files: &[&Bytes],
        sum: Option<u64>,
        piece: &Piece,
    ) -> Result<(), Error> {
        let extents = held.local_shape();
        let stride = |dim: usize| extents.iter().skip(dim + 1).product::<usize>();
        let strides: Vec<usize> = (0..extents.len()).map(stride).collect();
        each_box(held, &mut |intervals| {
            let start: Vec<usize> = intervals.iter().map(|one| one.start).collect();
            let stop: Vec<usize> = intervals.iter().map(|one| one.start + one.len).collect();
            // The index of its start in the region.
            let before = |(dim, one): (&Intervals, &Interval)| {
                dim.iter().take_while(|before| before.start < one.start).map(|before| before.len).sum()
            };
            let local: Vec<usize> = held.dims.iter().zip(intervals).map(before).collect();
            for part in piece.within_source(&start, &stop) {
                let first: usize = (0..strides.len())
                    .map(|dim| (local[dim] + part.source_offset[dim] - start[dim]) * strides[dim])
                    .sum();
                let axes: Vec<(usize, usize)> = part
                    .axes
                    .iter()
                    .map(|axis| {
                        (axis.extent, axis.source_dim.map_or(0, |dim| axis.source_step * strides[dim]))
                    })
                    .collect();
                let chunk = |file: &&Bytes| nest((*file).clone(), self.item, first, &axes);
                let chunks = files.iter().map(chunk).collect::<Result<Vec<_>, _>>()?;
                // A part of a file is not strided, so with all of its bytes it has them in their order.
                let is_all = |(chunk, file): (&Bytes, &&Bytes)| {
                    chunk.len() == file.len() && !matches!(chunk, Bytes::Strided(_))
                };
                let sum = sum.filter(|_| chunks.iter().zip(files).all(is_all));
                self.push(target(&part, self.dims)?, chunks, sum);
            }
            Ok::<(), Error>(())
        })
    }

    fn push(&mut self, region: Region, files: impl IntoIterator<Item = Bytes>, sum: Option<u64>) {
        let before = self.bytes.len();
        self.bytes.extend(files);
        self.placed.push(region, self.bytes.len() - before);
        self.sums.push(sum);
    }
}

/// Returns the region of the target that a loop nest fills, in the order of its axes.
fn target(piece: &Piece, dims: usize) -> Result<Region, Error> {
    let dim = |dim: usize| {
        let mut list: Intervals =
            [Interval { start: piece.target_offset.get(dim).copied().unwrap_or_default(), len: 1 }]
                .into_iter()
                .collect();
        for axis in piece.axes.iter().filter(|axis| axis.target_dim == dim) {
            if list.len().saturating_mul(axis.extent) > MOST_INTERVALS && axis.target_step != 1 {
                let message = format!(
                    "its rule splits dim {dim} into more than {count}",
                    count = counted(MOST_INTERVALS, "interval", "intervals")
                );
                return Err(Error::unsupported("mapping", message));
            }
            let mut longer = Intervals::default();
            for one in &list {
                if axis.target_step == one.len {
                    longer.push(Interval { start: one.start, len: one.len * axis.extent });
                    continue;
                }
                for step in 0..axis.extent {
                    longer.push(Interval { start: one.start + step * axis.target_step, len: one.len });
                }
            }
            list = longer;
        }
        let mut joined = Intervals::default();
        list.iter().for_each(|one| push(&mut joined, *one));
        Ok(joined)
    };
    Ok(Region { dims: (0..dims).map(dim).collect::<Result<_, Error>>()? })
}
