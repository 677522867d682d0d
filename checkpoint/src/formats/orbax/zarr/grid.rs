//! A regular grid of chunks over an array.

use crate::error::Error;
use crate::formats::orbax::zarr::MOST_DIMS;

/// The most chunks of an array, and of a shard: 4 million.
const MOST_CHUNKS: usize = 1 << 22;

/// The shape of an array, and of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    shape: Vec<usize>,
    chunk_shape: Vec<usize>,
    /// The number of chunks along each dim.
    counts: Vec<usize>,
}

/// A chunk of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The position in the grid.
    pub(crate) index: Vec<usize>,
    /// The index of the first element.
    pub(crate) start: Vec<usize>,
    /// The shape inside the array.
    pub(crate) shape: Vec<usize>,
}

impl Grid {
    /// Checks the shapes; a chunk may extend past the end of the array.
    pub(crate) fn new(shape: Vec<usize>, chunk_shape: Vec<usize>) -> Result<Self, Error> {
        if shape.len() != chunk_shape.len() {
            return Err(Error::malformed(
                "orbax",
                format!(
                    "its shape has {} dims, but that of its chunks has {}",
                    shape.len(),
                    chunk_shape.len()
                ),
            ));
        }
        if shape.len() > MOST_DIMS {
            return Err(Error::unsupported(
                "orbax",
                format!("it has {} dims; at most {MOST_DIMS} are supported", shape.len()),
            ));
        }
        if chunk_shape.contains(&0) {
            return Err(Error::malformed(
                "orbax",
                format!("its chunks have shape {chunk_shape:?}, without elements"),
            ));
        }
        let counts: Vec<usize> =
            shape.iter().zip(&chunk_shape).map(|(extent, chunk)| extent.div_ceil(*chunk)).collect();
        if product(&counts).is_none_or(|count| count > MOST_CHUNKS) {
            return Err(Error::unsupported(
                "orbax",
                format!(
                    "its shape {shape:?} in chunks of {chunk_shape:?} exceeds the limit of {MOST_CHUNKS} chunks"
                ),
            ));
        }
        Ok(Self { shape, chunk_shape, counts })
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn chunk_shape(&self) -> &[usize] {
        &self.chunk_shape
    }

    /// Returns the number of chunks.
    pub(crate) fn count(&self) -> usize {
        product(&self.counts).unwrap_or_default()
    }

    /// Returns the bytes of a full chunk of elements of `element` bytes; `None` past 2^63.
    pub(crate) fn chunk_bytes(&self, element: usize) -> Option<usize> {
        bytes(&self.chunk_shape, element)
    }

    /// Returns the bytes of all elements; `None` past 2^63.
    pub(crate) fn array_bytes(&self, element: usize) -> Option<usize> {
        bytes(&self.shape, element)
    }

    /// Returns all chunks in row-major order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        (0..self.count()).map(|number| {
            let mut rest = number;
            let dims = self.counts.iter().zip(&self.shape).zip(&self.chunk_shape);
            let mut block = Block { index: Vec::new(), start: Vec::new(), shape: Vec::new() };
            // The last dim is the fastest; a grid with a chunk has no count of 0.
            for ((count, extent), chunk) in dims.rev() {
                let index = rest % count;
                rest /= count;
                let start = index * chunk;
                block.index.push(index);
                block.start.push(start);
                block.shape.push((extent - start).min(*chunk));
            }
            for dims in [&mut block.index, &mut block.start, &mut block.shape] {
                dims.reverse();
            }
            block
        })
    }
}

fn product(factors: &[usize]) -> Option<usize> {
    // Before any overflow, since a zero makes the whole product zero.
    if factors.contains(&0) {
        return Some(0);
    }
    factors.iter().try_fold(1_usize, |product, factor| product.checked_mul(*factor))
}

fn bytes(shape: &[usize], element: usize) -> Option<usize> {
    product(shape)?.checked_mul(element).filter(|bytes| isize::try_from(*bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::{Block, Grid};

    #[test]
    fn blocks_cover_the_array_once() {
        for (shape, chunk) in
            [(vec![7, 5, 1], vec![3, 2, 4]), (vec![4], vec![9]), (vec![], vec![]), (vec![0, 3], vec![1, 2])]
        {
            let grid = Grid::new(shape.clone(), chunk).unwrap();
            let blocks: Vec<Block> = grid.blocks().collect();
            assert_eq!(blocks.len(), grid.count());
            let covered: usize = blocks.iter().map(|block| block.shape.iter().product::<usize>()).sum();
            assert_eq!(covered, shape.iter().product::<usize>());
            assert!(blocks.is_sorted_by(|a, b| a.index < b.index));
        }
        let grid = Grid::new(vec![7, 5], vec![3, 2]).unwrap();
        let last = Block { index: vec![2, 2], start: vec![6, 4], shape: vec![1, 1] };
        assert_eq!(grid.blocks().last(), Some(last));
    }

    #[test]
    fn shapes_are_bounded() {
        Grid::new(vec![usize::MAX; 3], vec![1; 3]).unwrap_err();
        Grid::new(vec![usize::MAX], vec![usize::MAX / 2]).unwrap();
        Grid::new(vec![3], vec![0]).unwrap_err();
        Grid::new(vec![3], vec![]).unwrap_err();
        Grid::new(vec![1; 65], vec![1; 65]).unwrap_err();
        assert_eq!(Grid::new(vec![usize::MAX; 2], vec![usize::MAX; 2]).unwrap().chunk_bytes(1), None);
        assert_eq!(Grid::new(vec![usize::MAX, 0], vec![usize::MAX, 1]).unwrap().count(), 0);
    }
}
