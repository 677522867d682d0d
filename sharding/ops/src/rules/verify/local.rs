//! The arguments of the op under test on one rank.

use reshard_sharding::{Interval, Region};

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

/// The indices of a whole tensor that a local one holds.
#[derive(Clone, Debug)]
pub struct ShardRegion {
    /// The indices, dim by dim.
    pub region: Region,
    /// The shape of the whole.
    pub whole: Vec<usize>,
}

impl ShardRegion {
    /// All of a tensor of this shape.
    ///
    /// ```
    /// use reshard_ops::rules::verify::ShardRegion;
    /// assert_eq!(ShardRegion::whole(&[2, 3]).elements(), [0, 1, 2, 3, 4, 5]);
    /// ```
    pub fn whole(shape: &[usize]) -> ShardRegion {
        let all = |&n: &usize| (n > 0).then_some(Interval { start: 0, len: n }).into_iter().collect();
        ShardRegion { region: Region { dims: shape.iter().map(all).collect() }, whole: shape.to_vec() }
    }

    /// The shape of the local tensor.
    pub fn shape(&self) -> Vec<usize> {
        self.region.local_shape().to_vec()
    }

    /// Returns the global indices of one dim, in local order; fails past the last dim.
    pub fn indices(&self, dim: usize) -> Result<Vec<usize>, reshard_sharding::Error> {
        Ok(self.region.indices(dim)?.collect())
    }

    /// The row-major global index of every element held, in local order.
    pub fn elements(&self) -> Vec<usize> {
        let mut all = vec![0usize];
        for (list, &n) in self.region.dims.iter().zip(&self.whole) {
            let held = || list.iter().flat_map(|x| x.start..x.start + x.len);
            all = all.iter().flat_map(|&e| held().map(move |i| e * n + i)).collect();
        }
        all
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
