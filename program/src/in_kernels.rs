//! Kernels: statements that share values inside them, and what these read from memory.
//!
//! ```text
//! d.1: inner S(0) = sigmoid(x)        reads x
//! d.2: inner S(0) = mul(x, d.1)       reads nothing: x is read once
//! dx: S(0) = mul(dy, d.2)             reads dy, and writes dx
//! ```
//!
//! Statements are in one kernel if one makes an inner value that the other takes.

use core::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::program::{Program, Statement};
use crate::report::local_bytes;
use crate::{ComputeRates, ValueId};

/// Returns the operands that a statement finds in its kernel: its number, and the number of the input.
///
/// These are inner values, results of the kernel, and what an earlier statement of the kernel reads.
pub(crate) fn at_hand_in_kernels<V: Copy + Eq + Hash>(
    statements: &[(&[V], &[V])],
    is_inner: impl Fn(V) -> bool,
) -> FxHashSet<(usize, usize)> {
    let mut makers: FxHashMap<V, usize> = FxHashMap::default();
    let mut kernels: Vec<usize> = (0..statements.len()).collect();
    let mut is_in_kernel = vec![false; statements.len()];
    for (n, (takes, makes)) in statements.iter().enumerate() {
        for v in takes.iter().filter(|v| is_inner(**v)) {
            let Some(&maker) = makers.get(v) else { continue };
            is_in_kernel[n] = true;
            let (a, b) = (root(&kernels, maker), root(&kernels, n));
            kernels[a.max(b)] = a.min(b);
        }
        for v in makes.iter().filter(|v| is_inner(**v)) {
            is_in_kernel[n] = true;
            makers.insert(*v, n);
        }
    }
    let (mut known, mut at_hand) = (FxHashSet::default(), FxHashSet::default());
    for (n, (takes, makes)) in statements.iter().enumerate().filter(|(n, _)| is_in_kernel[*n]) {
        let kernel = root(&kernels, n);
        at_hand.extend(
            (0..takes.len())
                .filter(|&i| !known.insert((kernel, takes[i])) || is_inner(takes[i]))
                .map(|i| (n, i)),
        );
        known.extend(makes.iter().map(|&v| (kernel, v)));
    }
    at_hand
}

/// Returns the first statement of a kernel.
fn root(kernels: &[usize], mut n: usize) -> usize {
    while kernels[n] != n {
        n = kernels[n];
    }
    n
}

impl Program {
    /// Returns the program in which every value is in memory.
    pub(crate) fn without_kernels(&self) -> Program {
        let mut program = self.clone();
        program.values.iter_mut().for_each(|value| value.inner = false);
        program
    }

    /// Stores the results of statements none of whose results is used: they are results of the program.
    pub(crate) fn store_results(&mut self) {
        let mut is_used = vec![false; self.values.len()];
        self.statements.iter().flat_map(Statement::inputs).for_each(|v| is_used[v.0] = true);
        let ends = self.statements.iter().filter(|item| !item.outputs().iter().any(|v| is_used[v.0]));
        ends.flat_map(Statement::outputs).for_each(|v| self.values[v.0].inner = false);
    }
}

/// The operands of a program's statements that are read from memory, or written to it.
pub(crate) struct Stored<'a> {
    program: &'a Program,
    at_hand: FxHashSet<(usize, usize)>,
}

impl<'a> Stored<'a> {
    pub(crate) fn of(program: &'a Program) -> Stored<'a> {
        let statements: Vec<(&[ValueId], &[ValueId])> =
            program.statements().iter().map(|item| (item.inputs(), item.outputs())).collect();
        let at_hand = at_hand_in_kernels(&statements, |v| program.get(v).inner);
        Stored { program, at_hand }
    }

    /// Returns `true` for each operand of a statement that is, inputs before outputs.
    pub(crate) fn operands(&self, n: usize) -> impl Iterator<Item = bool> {
        let item = &self.program.statements()[n];
        let operands = item.inputs().iter().chain(item.outputs()).enumerate();
        operands.map(move |(i, v)| !self.program.get(*v).inner && !self.at_hand.contains(&(n, i)))
    }
}

/// The compute times of the statements of a program.
pub(crate) struct Computing<'a> {
    stored: Stored<'a>,
    rates: &'a ComputeRates,
}

impl<'a> Computing<'a> {
    pub(crate) fn of(program: &'a Program, rates: &'a ComputeRates) -> Computing<'a> {
        Computing { stored: Stored::of(program), rates }
    }

    pub(crate) fn rates(&self) -> &ComputeRates {
        self.rates
    }

    /// Returns the compute time of a statement, from its operations and its memory traffic.
    pub(crate) fn us(&self, n: usize) -> f64 {
        let program = self.stored.program;
        let Statement::Op { is_view, inputs, outputs, operations, .. } = &program.statements()[n] else {
            return 0.0;
        };
        let values = || inputs.iter().chain(outputs).map(|&v| program.get(v));
        let stored = values().zip(self.stored.operands(n)).filter(|(_, stored)| !is_view && *stored);
        let bytes = stored.map(|(value, _)| local_bytes(value)).fold(0, u64::saturating_add);
        let dtype = values().map(|v| v.dtype).find(|d| !d.is_integral());
        dtype.map_or(0.0, |dtype| self.rates.time_us(dtype, *operations, bytes))
    }
}
