//! A tensor as loop nests, and the operations of rules on it: no operation touches an element.

use safetensors::Dtype;

use crate::digits;
use crate::error::{Error, ErrorKind};
use crate::piece::{Axis, Piece, Side};

/// The largest number of nests of one tensor.
pub(crate) const MOST_PIECES: usize = 1 << 16;

/// The largest number of elements of a tensor, and the largest extent.
pub(crate) const MOST_ELEMENTS: usize = usize::MAX >> 4;

/// The largest rank of a tensor.
const MOST_DIMS: usize = 64;

/// A tensor that some rule computes; disjoint nests cover its elements.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) pieces: Vec<Piece>,
}

/// Returns an error if a tensor has more nests than the limit.
pub(crate) fn check_pieces(pieces: usize) -> Result<(), Error> {
    if pieces <= MOST_PIECES {
        return Ok(());
    }
    let message = format!(
        "a tensor or a stack has more than {MOST_PIECES} loop nests; choose extents that divide, or split the rule"
    );
    Err(Error::new(ErrorKind::TooComplex, message))
}

/// Returns an error if a shape is over the limits; below them products of extents never overflow.
pub(crate) fn check_shape(shape: &[usize]) -> Result<(), Error> {
    let mut elements: usize = 1;
    for extent in shape {
        elements = match elements.checked_mul((*extent).max(1)) {
            Some(product) if product <= MOST_ELEMENTS => product,
            Some(_) | None => {
                let message = format!("the shape {shape:?} is over the limit of {MOST_ELEMENTS} elements");
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
        };
    }
    if shape.len() > MOST_DIMS {
        let message = format!("a tensor has {} dims, over the limit of {MOST_DIMS}", shape.len());
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

impl Value {
    /// Returns all of a source.
    pub(crate) fn source(index: usize, shape: &[usize], dtype: Dtype) -> Self {
        let pieces = if shape.contains(&0) { Vec::new() } else { vec![Piece::whole(Some(index), shape)] };
        Self { shape: shape.to_vec(), dtype, pieces }
    }

    /// Returns the tensor with its nests normalised and in the order of their target offsets.
    pub(crate) fn sorted(mut self) -> Self {
        self.pieces.iter_mut().for_each(Piece::normalise);
        self.pieces.sort_by(|a, b| a.target_offset.cmp(&b.target_offset));
        self
    }

    /// Returns the extent of a dim.
    pub(crate) fn extent(&self, dim: usize) -> Result<usize, Error> {
        self.shape.get(dim).copied().ok_or_else(|| {
            let message =
                format!("`on {dim}` is over the dims of the shape {:?}; dims are counted from 0", self.shape);
            Error::new(ErrorKind::Shape, message)
        })
    }

    /// Returns the indices `start .. stop` of a dim.
    pub(crate) fn sliced(&self, dim: usize, start: usize, stop: usize) -> Result<Self, Error> {
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            piece.restrict(Side::Target, dim, start, stop, &mut pieces);
            check_pieces(pieces.len())?;
        }
        for piece in &mut pieces {
            piece.target_offset[dim] -= start;
        }
        let mut shape = self.shape.clone();
        shape[dim] = stop - start;
        Ok(Self { shape, dtype: self.dtype, pieces })
    }

    /// Returns one index of a dim, without the dim.
    pub(crate) fn selected(&self, dim: usize, index: usize) -> Result<Self, Error> {
        Ok(self.sliced(dim, index, index + 1)?.without_dim(dim))
    }

    /// Returns the tensor without a dim of extent 1.
    pub(crate) fn without_dim(mut self, dim: usize) -> Self {
        self.shape.remove(dim);
        for piece in &mut self.pieces {
            piece.target_offset.remove(dim);
            for axis in &mut piece.axes {
                axis.target_dim -= usize::from(axis.target_dim > dim);
            }
        }
        self
    }

    /// Returns the tensor with a new dim of this extent, along which it repeats.
    pub(crate) fn repeated(mut self, dim: usize, extent: usize) -> Result<Self, Error> {
        self.shape.insert(dim, extent);
        check_shape(&self.shape)?;
        if extent == 0 {
            self.pieces.clear();
        }
        for piece in &mut self.pieces {
            piece.target_offset.insert(dim, 0);
            for axis in &mut piece.axes {
                axis.target_dim += usize::from(axis.target_dim >= dim);
            }
            piece.axes.push(Axis {
                extent,
                target_dim: dim,
                target_step: 1,
                source_dim: None,
                source_step: 0,
            });
            piece.normalise();
        }
        Ok(self)
    }

    /// Splits a dim into an outer and an inner one; the product of their extents is that of the dim.
    pub(crate) fn split_dim(&self, dim: usize, outer: usize, inner: usize) -> Result<Self, Error> {
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            digits::split(piece, Side::Target, dim, inner, &mut pieces)?;
        }
        let mut shape = self.shape.clone();
        shape[dim] = outer;
        shape.insert(dim + 1, inner);
        // Extents next to an extent of 0 may be of any size.
        check_shape(&shape)?;
        Ok(Self { shape, dtype: self.dtype, pieces })
    }

    /// Merges a dim with the next one, which is the inner one.
    pub(crate) fn merged_dims(mut self, dim: usize) -> Result<Self, Error> {
        let inner = self.shape.remove(dim + 1);
        self.shape[dim] = self.shape[dim].saturating_mul(inner);
        check_shape(&self.shape)?;
        for piece in &mut self.pieces {
            let offset = piece.target_offset.remove(dim + 1);
            piece.target_offset[dim] = piece.target_offset[dim] * inner + offset;
            for axis in &mut piece.axes {
                if axis.target_dim == dim {
                    axis.target_step *= inner;
                } else if axis.target_dim > dim {
                    axis.target_dim -= 1;
                }
            }
            piece.normalise();
        }
        Ok(self)
    }

    /// Permutes the dims: dim `k` of the result is dim `order[k]`.
    pub(crate) fn permuted(mut self, order: &[usize]) -> Self {
        let mut to = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            to[*old] = new;
        }
        self.shape = order.iter().map(|old| self.shape[*old]).collect();
        for piece in &mut self.pieces {
            piece.target_offset = order.iter().map(|old| piece.target_offset[*old]).collect();
            for axis in &mut piece.axes {
                axis.target_dim = to[axis.target_dim];
            }
            piece.normalise();
        }
        self
    }

    /// Returns the tensor with zeros at the end of a dim, up to this extent.
    pub(crate) fn padded(&self, dim: usize, size: usize) -> Result<Self, Error> {
        let extent = self.extent(dim)?;
        let Some(missing) = size.checked_sub(extent) else {
            let message = format!(
                "dim {dim} of {:?} is longer than {size} already; pad to at least {extent}",
                self.shape
            );
            return Err(Error::new(ErrorKind::Shape, message));
        };
        let mut padding = self.shape.clone();
        padding[dim] = missing;
        check_shape(&padding)?;
        let pieces = if padding.contains(&0) { Vec::new() } else { vec![Piece::whole(None, &padding)] };
        Self::concatenated(vec![self.clone(), Self { shape: padding, dtype: self.dtype, pieces }], dim)
    }

    /// Concatenates tensors of equal dtype whose other extents are equal.
    pub(crate) fn concatenated(parts: Vec<Self>, dim: usize) -> Result<Self, Error> {
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else {
            return Err(Error::new(ErrorKind::Shape, "a concatenation needs at least one part"));
        };
        whole.extent(dim)?;
        for part in parts {
            if part.dtype != whole.dtype {
                let message = format!(
                    "the parts of a concatenation are {} and {}; convert one of them by cast(..)",
                    whole.dtype, part.dtype
                );
                return Err(Error::new(ErrorKind::MixedTypes, message));
            }
            let mut expected = whole.shape.clone();
            if let (Some(extent), true) = (part.shape.get(dim), part.shape.len() == expected.len()) {
                expected[dim] = *extent;
            }
            if part.shape != expected {
                let message = format!(
                    "the shapes {:?} and {:?} differ on other dims than {dim}; parts are concatenated on dim {dim}",
                    whole.shape, part.shape
                );
                return Err(Error::new(ErrorKind::Shape, message));
            }
            let offset = whole.shape[dim];
            whole.shape[dim] = offset.saturating_add(part.shape[dim]);
            check_shape(&whole.shape)?;
            check_pieces(whole.pieces.len() + part.pieces.len())?;
            whole.pieces.extend(part.pieces.into_iter().map(|mut piece| {
                piece.target_offset[dim] += offset;
                piece
            }));
        }
        Ok(whole)
    }
}
