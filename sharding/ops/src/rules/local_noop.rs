//! Local no-ops: ops that regroup, reorder or sum only dims along which a rank has one index.
//!
//! ```text
//! permute(dims=[1,0,2])    [16,1,8] -> [1,16,8]     dims of one index at other positions
//! sum(dims=[0])            [1,4,8]  -> [4,8]        of one element
//! roll, split_shards, ..   [1,8]    -> [1,8]        around a dim of one index, into one slice
//! expand                   [1,4]    -> [1,4]        once
//! ```
//!
//! On whole tensors they reorder elements. Where the dim is split so that a rank has one index, as always in
//! [regions](crate::rules::Vmapped), a rank's input and output are the same bytes.

use crate::rules::op::Op;
use crate::rules::row::DimFactors;

impl Op {
    /// Returns `true` if, for these shard shapes, the only result has the only operand's elements in order.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let op = table.op(&"permute(dims=[1,0,2])".parse()?, &[&[16, 4, 8]])?;
    /// assert!(op.is_local_noop(&[16, 1, 8], &[1, 16, 8]) && !op.is_local_noop(&[16, 2, 8], &[2, 16, 8]));
    /// let op = table.op(&"sum(dims=[0])".parse()?, &[&[4, 8]])?;
    /// assert!(op.is_local_noop(&[1, 8], &[8]) && !op.is_local_noop(&[2, 8], &[8]));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_local_noop(&self, takes: &[usize], makes: &[usize]) -> bool {
        if self.is_view() {
            return true;
        }
        let ([input], [output], Some(bound)) = (self.inputs(), self.outputs(), self.bound()) else {
            return false;
        };
        let [from, to] = bound.dims.as_slice() else { return false };
        let numel = |shape: &[usize]| shape.iter().product::<usize>();
        if (takes.len(), makes.len()) != (input.len(), output.len())
            || numel(takes) != numel(makes)
            || !bound.written.is_empty()
        {
            return false;
        }
        // The dims along which a rank has more than one index, with their factors and sizes.
        let long = |dims: &[DimFactors], shape: &[usize]| -> Vec<(DimFactors, usize)> {
            dims.iter().cloned().zip(shape.iter().copied()).filter(|(_, n)| *n > 1).collect()
        };
        let (long_from, long_to) = (long(from, takes), long(to, makes));
        let same = long_from == long_to && long_from.iter().all(|(dim, _)| dim.is_some());
        match self.name().split('(').next().unwrap_or_default() {
            "permute" | "transpose" | "t" | "matrix_transpose" | "movedim" | "roll" | "flip" | "sum"
            | "amax" | "amin" | "prod" | "expand" => same,
            // Into one slice, or out of one: only one side has the dim of the slices.
            "split_shards" => one_slice((to, makes), (from, takes)),
            "join_shards" => one_slice((from, takes), (to, makes)),
            _ => false,
        }
    }
}

/// Returns `true` if the separate dim of slices has one index, and the slice is as large as the whole.
fn one_slice((slices, shape): (&[DimFactors], &[usize]), (whole, all): (&[DimFactors], &[usize])) -> bool {
    let is_own = |dim: &DimFactors| dim.is_some() && !whole.contains(dim);
    let (own, slice): (Vec<_>, Vec<_>) = slices.iter().zip(shape).partition(|(dim, _)| is_own(dim));
    own.iter().all(|(_, n)| **n == 1) && slice.iter().map(|(_, n)| **n).eq(all.iter().copied())
}
