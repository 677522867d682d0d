//! The amount of computation of an op, derived from its rule.
//!
//! The inputs are combined in sequence. Two combined inputs iterate over all their factors jointly, and
//! factors that neither a later input nor an output has are summed:
//!
//! ```text
//! mk,kn->mn                          m k n products, each added
//! bhqd,bhkd,bhke->bhqe               b h q d k + b h q k e
//! ...,...->...                       one operation for each element
//! ```
//!
//! It is a measure for comparing strategies, not a model of a kernel: a softmax is one operation an element.

use smallvec::SmallVec;

use crate::rules::op::Op;
use crate::rules::row::OperandDims;

impl Op {
    /// The number of operations on whole tensors: two per product that is added, else one per element.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// assert_eq!(table.op(&"mm".parse()?, &[&[8, 16], &[16, 32]])?.operations(), 2.0 * 8.0 * 16.0 * 32.0);
    /// assert_eq!(table.op(&"gelu".parse()?, &[&[8, 16]])?.operations(), 128.0);
    /// assert_eq!(table.op(&"reshape(shape=[128])".parse()?, &[&[8, 16]])?.operations(), 0.0);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn operations(&self) -> f64 {
        self.operations_once(|| self.count_operations())
    }

    fn count_operations(&self) -> f64 {
        let Some(bound) = self.bound() else { return 0.0 };
        let elements = |shape: &Vec<usize>| shape.iter().map(|&n| n as f64).product::<f64>();
        let largest = self.inputs().iter().chain(self.outputs()).map(elements).fold(0.0, f64::max);
        let inputs = self.inputs().len();
        if bound.dims.len() < inputs + self.outputs().len() || inputs == 0 {
            return largest;
        }
        let factors = |dims: &OperandDims| -> SmallVec<[u16; 8]> {
            dims.iter().flatten().flat_map(|d| d.iter().copied()).collect()
        };
        let size =
            |list: &[u16]| list.iter().map(|&f| bound.factors[usize::from(f)].size as f64).product::<f64>();
        let mut seen = factors(&bound.dims[0]);
        let (mut operations, mut adds) = (0.0, false);
        for next in 1..inputs {
            for f in factors(&bound.dims[next]) {
                if !seen.contains(&f) {
                    seen.push(f);
                }
            }
            let later = |f: &u16| bound.dims[next + 1..].iter().any(|dims| factors(dims).contains(f));
            let kept: SmallVec<[u16; 8]> = seen.iter().copied().filter(later).collect();
            let sums = kept.len() < seen.len();
            operations += size(&seen) * if sums { 2.0 } else { 1.0 };
            adds |= sums;
            seen = kept;
        }
        if adds {
            operations
        } else {
            largest.max(if inputs == 1 { size(&factors(&bound.dims[0])) } else { 0.0 })
        }
    }
}
