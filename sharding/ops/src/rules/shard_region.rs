//! The global indices of a shard, for ops that need them.

use reshard_sharding::{Interval, Region};

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
    /// use reshard_ops::rules::ShardRegion;
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
