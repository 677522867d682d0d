//! The least compute time of a statement, over all shardings.

use reshard_kernels::DType;

use crate::elaborate::ShardingSolver;
use crate::elaborate::segment::{Facts, Segment};
use crate::elaborate::ways::{self, Ways};
use crate::graph::{GraphStatement, ValueId};

impl Segment<'_> {
    /// Returns the minimum compute cost of statement `n` over all shardings, in picoseconds.
    pub(crate) fn least(&self, elaborator: &ShardingSolver, ways: &mut Ways, facts: &Facts, n: usize) -> u64 {
        let (GraphStatement::Op { call, op, inputs, outputs, .. }, Some((takes, _))) =
            (&self.statements[n], &facts.ops[n])
        else {
            return 0;
        };
        if op.is_view() {
            return 0;
        }
        let ranks = self.graph.meshes.at(self.runs_on(outputs)).size() as f64;
        let dtypes = inputs.iter().chain(outputs).map(|v| self.graph.dtype(*v)).collect();
        let back = ways.backward.of(&self.graph.table, (call, op), dtypes, takes);
        let back = back.map_or(0.0, |back| back.least_us(ranks, &elaborator.rates));
        ((self.least_forward_us(elaborator, n) + back) * 1e6) as u64
    }

    /// Returns the same of forward alone.
    pub(crate) fn least_forward(&self, elaborator: &ShardingSolver, n: usize) -> u64 {
        (self.least_forward_us(elaborator, n) * 1e6) as u64
    }

    fn least_forward_us(&self, elaborator: &ShardingSolver, n: usize) -> f64 {
        let GraphStatement::Op { op, inputs, outputs, .. } = &self.statements[n] else { return 0.0 };
        if op.is_view() {
            return 0.0;
        }
        let ranks = self.graph.meshes.at(self.runs_on(outputs)).size() as f64;
        let stored = self.stored(inputs, outputs);
        let bits = |v: &ValueId| {
            let elements = self.graph.shape(*v).iter().map(|&n| n as f64).product::<f64>();
            elements * self.graph.dtype(*v).bits() as f64
        };
        let operands = inputs.iter().chain(outputs).zip(stored).filter(|(_, stored)| *stored);
        let bytes = operands.map(|(v, _)| bits(v)).sum::<f64>() / 8.0 / ranks;
        if self.may_be_noop(n) {
            return 0.0;
        }
        let dtypes: Vec<DType> = inputs.iter().chain(outputs).map(|v| self.graph.dtype(*v)).collect();
        elaborator.rates.time_us(ways::computed(&dtypes), op.operations() / ranks, bytes as u64)
    }

    /// Returns `true` if some strategy of statement `n` may leave every rank's data in place.
    ///
    /// With one index of a dim on each rank, a permutation or a sum does.
    pub(crate) fn may_be_noop(&self, n: usize) -> bool {
        let GraphStatement::Op { op, inputs, outputs, .. } = &self.statements[n] else { return false };
        if op.is_view() {
            return true;
        }
        let size = self.graph.meshes.at(self.runs_on(outputs)).size();
        let smallest = |shape: &[usize]| shape.iter().map(|n| n.div_ceil(size)).collect::<Vec<_>>();
        match (op.inputs(), op.outputs(), inputs.as_slice(), outputs.as_slice()) {
            ([from], [to], [x], [y]) => {
                self.graph.dtype(*x) == self.graph.dtype(*y)
                    && op.is_local_noop(&smallest(from), &smallest(to))
            }
            _ => false,
        }
    }
}
