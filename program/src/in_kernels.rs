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

use crate::program::{Program, Statement, Value};
use crate::report::local_bytes;
use crate::{ComputeRates, ValueId};

/// A statement as a kernel sees it: its inputs, its outputs, and `true` for a view.
pub(crate) type InKernel<'a, V> = (&'a [V], &'a [V], bool);

/// Returns the kernel of each statement, by its first statement; `None` for statements without inner values.
fn kernels<V: Copy + Eq + Hash>(
    statements: &[InKernel<'_, V>],
    is_inner: impl Fn(V) -> bool,
) -> Vec<Option<usize>> {
    let mut makers: FxHashMap<V, usize> = FxHashMap::default();
    let mut first: Vec<usize> = (0..statements.len()).collect();
    let mut is_in_kernel = vec![false; statements.len()];
    for (n, (takes, makes, _)) in statements.iter().enumerate() {
        for v in takes.iter().filter(|v| is_inner(**v)) {
            let Some(&maker) = makers.get(v) else { continue };
            is_in_kernel[n] = true;
            let (a, b) = (root(&mut first, maker), root(&mut first, n));
            first[a.max(b)] = a.min(b);
        }
        for v in makes.iter().filter(|v| is_inner(**v)) {
            is_in_kernel[n] = true;
            makers.insert(*v, n);
        }
    }
    (0..statements.len()).map(|n| is_in_kernel[n].then(|| root(&mut first, n))).collect()
}

/// Returns for each statement which operands are read from memory or written to it, inputs before outputs.
///
/// A statement finds in its kernel what stays inside, results of the kernel, and what an earlier statement of
/// the kernel has read. Views read and write nothing. A value and its views are one buffer, which is in memory
/// if one of them is.
pub(crate) fn stored_operands<V: Copy + Eq + Hash>(
    statements: &[InKernel<'_, V>],
    is_inner: impl Fn(V) -> bool,
) -> Vec<Vec<bool>> {
    let mut roots: FxHashMap<V, V> = FxHashMap::default();
    let mut in_memory: FxHashSet<V> = FxHashSet::default();
    for (takes, makes, is_view) in statements {
        if let ([from, ..], [to, ..], true) = (takes, makes, is_view) {
            let root = roots.get(from).copied().unwrap_or(*from);
            roots.insert(*to, root);
        }
        let own = takes.iter().chain(*makes).filter(|v| !is_inner(**v));
        in_memory.extend(own.map(|v| roots.get(v).copied().unwrap_or(*v)));
    }
    let mut known: FxHashSet<(usize, V)> = FxHashSet::default();
    let of = |((takes, makes, is_view), kernel): (&InKernel<'_, V>, Option<usize>)| {
        let mut is_stored = |(i, v): (usize, &V)| {
            let root = roots.get(v).copied().unwrap_or(*v);
            let Some(kernel) = kernel else { return true };
            !is_view && in_memory.contains(&root) && (known.insert((kernel, root)) || i >= takes.len())
        };
        takes.iter().chain(*makes).enumerate().map(&mut is_stored).collect()
    };
    statements.iter().zip(kernels(statements, &is_inner)).map(of).collect()
}

/// The most statements from the first of a kernel to its last.
const LONGEST: usize = 4096;

/// Returns the first statement of a kernel, and halves the path to it.
fn root(kernels: &mut [usize], mut n: usize) -> usize {
    while kernels[n] != n {
        kernels[n] = kernels[kernels[n]];
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

    /// Stores inner values that no kernel can hold.
    ///
    /// ```text
    /// results             values that no statement takes, and updates
    /// copies              redistributions of values that are stored
    /// torn kernels        all values of a kernel that takes what others compute from its results
    /// ```
    pub(crate) fn store_results(&mut self) {
        let mut is_used = vec![false; self.values.len()];
        self.statements.iter().flat_map(Statement::inputs).for_each(|v| is_used[v.0] = true);
        let mut is_input: FxHashSet<&str> = FxHashSet::default();
        is_input.extend(self.statements.iter().filter_map(|item| match item {
            Statement::Input(v) => Some(self.values[v.0].name.as_str()),
            Statement::Op { .. } | Statement::Redistribute { .. } | Statement::NoGrad => None,
        }));
        let is_update =
            |value: &Value| value.name.strip_suffix('\'').is_some_and(|name| is_input.contains(name));
        let stays: Vec<bool> = (self.values.iter().zip(is_used))
            .map(|(value, is_used)| value.inner && is_used && !is_update(value))
            .collect();
        self.values.iter_mut().zip(stays).for_each(|(value, stays)| value.inner = stays);
        for item in &self.statements {
            if let Statement::Redistribute { from, to, .. } = item {
                self.values[to.0].inner &= self.values[from.0].inner;
            }
        }
        for v in self.torn() {
            self.values[v.0].inner = false;
        }
    }

    fn in_kernels(&self) -> Vec<InKernel<'_, ValueId>> {
        self.statements.iter().map(|item| (item.inputs(), item.outputs(), item.viewed().is_some())).collect()
    }

    /// Returns the kernel of each statement, by its first statement.
    pub(crate) fn kernels(&self) -> Vec<Option<usize>> {
        kernels(&self.in_kernels(), |v| self.get(v).inner)
    }

    /// Returns which operands of each statement are read from memory or written to it, inputs before outputs.
    pub(crate) fn stored_operands(&self) -> Vec<Vec<bool>> {
        stored_operands(&self.in_kernels(), |v| self.get(v).inner)
    }

    /// Returns the inner values of kernels that other statements interrupt, and of very long ones.
    fn torn(&self) -> Vec<ValueId> {
        let kernels = self.kernels();
        let mut last: FxHashMap<usize, usize> = FxHashMap::default();
        last.extend(kernels.iter().enumerate().filter_map(|(n, kernel)| Some(((*kernel)?, n))));
        let mut torn = Vec::new();
        for (&first, &last) in &last {
            let items = || self.statements[first..=last].iter().zip(&kernels[first..=last]);
            // The results so far, and what other statements compute from them.
            let (mut results, mut after) = (FxHashSet::default(), FxHashSet::default());
            let mut is_torn = last - first > LONGEST;
            for (item, kernel) in items().take_while(|_| last - first <= LONGEST) {
                let takes = |of: &FxHashSet<ValueId>| item.inputs().iter().any(|v| of.contains(v));
                if *kernel == Some(first) {
                    is_torn |= takes(&after);
                    results.extend(item.outputs());
                } else if takes(&results) || takes(&after) {
                    after.extend(item.outputs());
                }
            }
            if is_torn {
                let own = items().filter(|(_, kernel)| **kernel == Some(first));
                torn.extend(own.flat_map(|(item, _)| item.outputs()));
            }
        }
        torn
    }
}

/// The compute times of the statements of a program.
pub(crate) struct Computing<'a> {
    program: &'a Program,
    stored: Vec<Vec<bool>>,
    rates: &'a ComputeRates,
}

impl<'a> Computing<'a> {
    pub(crate) fn of(program: &'a Program, rates: &'a ComputeRates) -> Computing<'a> {
        Computing { program, stored: program.stored_operands(), rates }
    }

    pub(crate) fn rates(&self) -> &ComputeRates {
        self.rates
    }

    /// Returns the compute time of a statement, from its operations and its memory traffic.
    pub(crate) fn us(&self, n: usize) -> f64 {
        let program = self.program;
        let Statement::Op { is_view, inputs, outputs, operations, .. } = &program.statements()[n] else {
            return 0.0;
        };
        let values = || inputs.iter().chain(outputs).map(|&v| program.get(v));
        let stored = values().zip(&self.stored[n]).filter(|(_, stored)| !is_view && **stored);
        let bytes = stored.map(|(value, _)| local_bytes(value)).fold(0, u64::saturating_add);
        let dtype = values().map(|v| v.dtype).find(|d| !d.is_integral());
        dtype.map_or(0.0, |dtype| self.rates.time_us(dtype, *operations, bytes))
    }
}
