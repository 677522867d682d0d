//! Whole tensors of numbers, and the loop nests of a mapping run on them, element by element.

use std::collections::BTreeMap;

use reshard_mapping::{Dtype, Error, Mapping, Piece, SourceTensor};

/// A tensor whose elements are numbers, row-major; 0 is padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) data: Vec<u64>,
}

/// Tensors by name, in the order of a file.
pub(crate) type Tensors = Vec<(String, Tensor)>;

/// Returns a tensor whose elements are different from those of all other numbers.
pub(crate) fn distinct(number: u64, shape: &[usize]) -> Tensor {
    let elements: usize = shape.iter().product();
    let data = (0..elements as u64).map(|id| (number + 1) << 32 | (id + 1)).collect();
    Tensor { shape: shape.to_vec(), dtype: Dtype::F32, data }
}

/// Returns named tensors with different elements.
pub(crate) fn sources(list: &[(&str, &[usize])]) -> Tensors {
    list.iter()
        .enumerate()
        .map(|(number, (name, shape))| ((*name).to_owned(), distinct(number as u64, shape)))
        .collect()
}

/// Returns the row-major offset of an index.
pub(crate) fn offset(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |offset, (extent, x)| {
        assert!(x < extent, "{index:?} of {shape:?}");
        offset * extent + x
    })
}

/// Returns all indices of a shape, the last dim fastest.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |all, extent| {
        all.iter()
            .flat_map(|index: &Vec<usize>| {
                (0..*extent).map(move |x| index.iter().copied().chain([x]).collect())
            })
            .collect()
    })
}

/// Runs loop nests; each element of the target must be written exactly once.
pub(crate) fn filled(shape: &[usize], pieces: &[Piece], sources: &Tensors) -> Vec<u64> {
    let mut data = vec![None; shape.iter().product()];
    for piece in pieces {
        let extents: Vec<usize> = piece.axes.iter().map(|axis| axis.extent).collect();
        assert!(extents.iter().all(|extent| *extent > 1), "{piece:?}");
        for x in indices(&extents) {
            let (mut target, mut source) = (piece.target_offset.clone(), piece.source_offset.clone());
            for (x, axis) in x.iter().zip(&piece.axes) {
                target[axis.target_dim] += x * axis.target_step;
                match axis.source_dim {
                    Some(dim) => source[dim] += x * axis.source_step,
                    None => assert_eq!(axis.source_step, 0),
                }
            }
            let element = match piece.source {
                Some(index) => {
                    let tensor = &sources[index].1;
                    tensor.data[offset(&tensor.shape, &source)]
                }
                None => 0,
            };
            assert_eq!(data[offset(shape, &target)].replace(element), None, "{target:?} is written twice");
        }
    }
    data.into_iter().map(|element| element.expect("an element is not written")).collect()
}

/// Returns the parts of nests that read each of the boxes into which two planes of each dim divide a source.
fn in_boxes(pieces: &[Piece], sources: &Tensors) -> Vec<Piece> {
    let mut parts = Vec::new();
    for piece in pieces {
        let Some(source) = piece.source else {
            assert!(piece.within_source(&[], &[]).is_empty());
            parts.push(piece.clone());
            continue;
        };
        let shape = &sources[source].1.shape;
        let planes: Vec<[usize; 4]> =
            shape.iter().map(|extent| [0, extent / 3, extent - extent / 2, *extent]).collect();
        for at in indices(&vec![3; shape.len()]) {
            let bound = |next: usize| at.iter().zip(&planes).map(|(at, planes)| planes[at + next]).collect();
            let (start, stop): (Vec<usize>, Vec<usize>) = (bound(0), bound(1));
            parts.extend(piece.within_source(&start, &stop));
        }
    }
    parts
}

/// The result of a mapping on whole tensors; `None` if copies differ.
pub(crate) type Outcome = Option<BTreeMap<String, Tensor>>;

/// Applies a mapping as loop nests, then runs them.
pub(crate) fn run(mapping: &Mapping, sources: &Tensors) -> Result<Outcome, Error> {
    let list: Vec<SourceTensor<'_>> = sources
        .iter()
        .map(|(name, tensor)| SourceTensor { name, shape: &tensor.shape, dtype: tensor.dtype })
        .collect();
    let mapped = mapping.apply(&list)?;
    assert_eq!(mapped, mapping.apply(&list)?, "not deterministic");
    for check in &mapped.checks {
        if filled(&check.shape, &check.left, sources) != filled(&check.shape, &check.right, sources) {
            return Ok(None);
        }
    }
    let made = mapped.tensors.iter().map(|made| {
        // Counted from the shapes alone: nests that cover as many elements as there are.
        let covered: usize = made.pieces.iter().map(Piece::elements).sum();
        assert_eq!(covered, made.shape.iter().product::<usize>(), "{}", made.name);
        if let Some(parts) = &made.local_parts {
            assert_eq!(parts.extents.iter().sum::<usize>(), made.shape[parts.dim]);
        }
        let data = filled(&made.shape, &made.pieces, sources);
        assert_eq!(filled(&made.shape, &in_boxes(&made.pieces, sources), sources), data, "{}", made.name);
        (made.name.clone(), Tensor { shape: made.shape.clone(), dtype: made.dtype, data })
    });
    Ok(Some(made.collect()))
}
