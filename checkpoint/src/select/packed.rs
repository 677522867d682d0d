//! Loop nests over elements that share bytes, as loop nests over the units in which the bytes are read.
//!
//! With two elements in a byte, the row `a b c d` of a source is the units `ab cd`. So a nest that splits neither `ab` nor
//! `cd` is a nest over units, with half the extent of the last dim. One that splits a unit is an error.

use reshard_layout::internal::counted;
use reshard_mapping::{Axis, Piece};
use safetensors::Dtype;

use crate::error::Error;
use crate::model::units::Units;

/// Returns a nest in units; the shapes are those of its target and of its source, if it has one.
pub(crate) fn in_units(piece: &Piece, stored: Dtype, shapes: &[&[usize]]) -> Result<Piece, Error> {
    let mut unit = (1, 1);
    for shape in shapes {
        unit = Units::of(stored, shape).unit().ok_or_else(|| {
            let message = format!(
                "elements of {stored} share bytes, and rows of {shape:?} end inside one; only renaming works for such a tensor"
            );
            Error::refused("packed", message)
        })?;
    }
    let (elements, bytes) = unit;
    by_units(piece, elements, bytes).ok_or_else(|| {
        let message = format!(
            "{elements} elements of {stored} share {bytes}, and the rule would split them; keep the last dim last, and use multiples of {elements} on it",
            bytes = counted(bytes, "byte", "bytes")
        );
        Error::refused("packed", message)
    })
}

/// Returns a nest over units of the last dim, and over the bytes of a unit; `None` if it splits some.
fn by_units(piece: &Piece, elements: usize, bytes: usize) -> Option<Piece> {
    let mut piece = piece.clone();
    let divide = |n: &mut usize| {
        let whole = n.is_multiple_of(elements);
        *n /= elements;
        whole.then_some(())
    };
    let reads = piece.source.is_some();
    let target = piece.target_offset.len().checked_sub(1)?;
    let source = if reads { Some(piece.source_offset.len().checked_sub(1)?) } else { None };
    // The loop over the elements of a unit, which becomes one over units.
    let (inner, outer) = piece.axes.split_last_mut()?;
    if (inner.target_dim, inner.target_step) != (target, 1)
        || (inner.source_dim, inner.source_step) != (source, usize::from(reads))
    {
        return None;
    }
    divide(&mut inner.extent)?;
    for axis in outer {
        if axis.target_dim == target {
            divide(&mut axis.target_step)?;
        }
        if reads && axis.source_dim == source {
            divide(&mut axis.source_step)?;
        }
    }
    divide(&mut piece.target_offset[target])?;
    piece.target_offset.push(0);
    if let Some(source) = source {
        divide(&mut piece.source_offset[source])?;
        piece.source_offset.push(0);
    }
    piece.axes.push(Axis {
        extent: bytes,
        target_dim: target + 1,
        target_step: 1,
        source_dim: source.map(|source| source + 1),
        source_step: usize::from(reads),
    });
    piece.axes.retain(|axis| axis.extent != 1);
    Some(piece)
}

#[cfg(test)]
mod tests {
    use reshard_mapping::{Dtype, Mapping, SourceTensor};

    use super::in_units;

    /// The elements and offsets of a nest, of the target and of the source.
    type Nest = (usize, Vec<usize>, Vec<usize>);

    fn nests(rule: &str, shape: &[usize]) -> Result<Vec<Nest>, String> {
        let mapping: Mapping = rule.parse().unwrap();
        let made = mapping.apply(&[SourceTensor { name: "x", shape, dtype: Dtype::F4 }]).unwrap();
        let made = &made.tensors[0];
        let nest = |piece| match in_units(piece, Dtype::F4, &[&made.shape, shape]) {
            Ok(piece) => Ok((piece.elements(), piece.target_offset, piece.source_offset)),
            Err(error) => Err(error.to_string()),
        };
        made.pieces.iter().map(nest).collect()
    }

    #[test]
    fn nests_that_keep_units_together_are_nests_of_units() {
        assert_eq!(nests("y = x[1:, 2:]", &[3, 8]).unwrap(), [(6, vec![0, 0, 0], vec![1, 1, 0])]);
        let rows = "y = rearrange(x, 'a b -> b a')";
        assert!(nests(rows, &[4, 4]).unwrap_err().contains("multiples of 2"));
        let halves = "y = rearrange(x, 'a (b c) -> (b a) c', b=2)";
        assert_eq!(nests(halves, &[3, 8]).unwrap()[0].0, 12);
        assert!(nests("y = x[:, 1:3]", &[3, 4]).unwrap_err().contains("multiples of 2"));
        assert!(nests("y = x[:, 0:2]", &[3, 5]).unwrap_err().contains("rows of [3, 5] end inside one"));
    }
}
