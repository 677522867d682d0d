//! The arguments of the op under test on one rank.

use reshard_ops::rules::ShardRegion;

/// A tensor in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements.
    pub data: Vec<f64>,
}

impl Tensor {
    /// A tensor of this shape.
    pub fn new(shape: &[usize], data: Vec<f64>) -> Tensor {
        Tensor { shape: shape.to_vec(), data }
    }
}

/// One rank's part of a call.
#[derive(Debug)]
pub struct LocalView<'a> {
    /// The rank's part of each input.
    pub inputs: Vec<&'a Tensor>,
    /// The region of that part in the whole input; all of it for partial values.
    pub input_regions: Vec<&'a ShardRegion>,
    /// The wanted region of each output, if inputs do not determine it: factories, `expand`, `one_hot`.
    pub output_regions: Vec<&'a ShardRegion>,
}

/// An op on one rank's tensors; an error, in words, counts as a wrong result.
pub type LocalOp<'a> = dyn Fn(&LocalView<'_>) -> Result<Vec<Tensor>, String> + 'a;
