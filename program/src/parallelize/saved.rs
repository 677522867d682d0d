//! The values that backward reads, each counted once, with the least time to compute it again.
//!
//! ```text
//! again(v)  =  computing of the op that makes v
//!            + sum over its inputs u that backward does not read, and that no op took before
//!              of min( price of the bytes of u,  again(u) )
//! ```
//!
//! Values that may share a buffer, as views do, count once. Every part of it is a lower bound: an input is counted with
//! the first op that takes it, with the fewest bytes that a rank can have of it. So is the whole: a program saves a
//! value, or recomputes it from saved ones.

use reshard_ops::gradients::Saved as Reads;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::elaborate::held::{MemoryPrice, Saved};
use crate::graph::{Graph, GraphStatement, ValueId};

/// The operands of an op that backward reads, and the least time of the op itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) reads: Vec<Reads>,
    /// The least time of forward computing, in picoseconds.
    pub(super) forward: u64,
    /// `true` if the result may share the buffer of the first operand.
    pub(super) shares: bool,
}

/// The values of forward that backward reads.
#[derive(Debug)]
pub(super) struct SavedValues {
    /// For each statement, the operands that count there, each with the statement and output that make it.
    at: Vec<Vec<(usize, (usize, usize))>>,
    /// For each statement: the values that it makes, the time of the op, and the inputs that count with it.
    made: Vec<(Vec<ValueId>, u64, Vec<ValueId>)>,
    /// The fewest bytes of each value on a rank.
    least_bytes: FxHashMap<ValueId, u64>,
}

impl SavedValues {
    pub(super) fn of(graph: &Graph, statements: &[GraphStatement], readings: &[Reading]) -> SavedValues {
        let ranks = graph.mesh().size().max(1) as u128;
        let mut out = SavedValues {
            at: vec![Vec::new(); statements.len()],
            made: Vec::new(),
            least_bytes: FxHashMap::default(),
        };
        // The statement and output that make each value, and the first value in its buffer.
        let mut made_by: FxHashMap<ValueId, (usize, usize)> = FxHashMap::default();
        let mut buffers: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut counted: FxHashSet<ValueId> = FxHashSet::default();
        for (n, statement) in statements.iter().enumerate() {
            match statement {
                GraphStatement::Op { inputs, outputs, .. } => {
                    for (o, &v) in outputs.iter().enumerate() {
                        made_by.insert(v, (n, o));
                        let first = inputs.first().filter(|_| readings[n].shares);
                        let buffer = first.map_or(v, |of| buffers.get(of).copied().unwrap_or(*of));
                        buffers.insert(v, buffer);
                        let elements = graph.shape(v).iter().map(|&size| size as u128).product::<u128>();
                        let bytes = elements * graph.dtype(v).bits() as u128 / 8 / ranks;
                        out.least_bytes.insert(v, u64::try_from(bytes).unwrap_or(u64::MAX));
                    }
                    for read in &readings[n].reads {
                        let (operand, v) = match *read {
                            Reads::Input(i) => (i, inputs[i]),
                            Reads::Output(o) => (inputs.len() + o, outputs[o]),
                            Reads::Gradient(_) => continue,
                        };
                        let buffer = buffers.get(&v).copied().unwrap_or(v);
                        // Inputs of the program are there anyway, and values inside a kernel have no bytes.
                        let counts = made_by.contains_key(&buffer) && !graph.values[v.0].inner;
                        if let Some(&made) = made_by.get(&v).filter(|_| counts && counted.insert(buffer)) {
                            out.at[n].push((operand, made));
                        }
                    }
                }
                // A redistribution may share its buffer too, and nothing is known about its value.
                GraphStatement::Move { from, to, .. } => {
                    let buffer = buffers.get(from).copied().unwrap_or(*from);
                    buffers.insert(*to, buffer);
                }
                GraphStatement::Input(_) | GraphStatement::Gradient { .. } | GraphStatement::NoGrad => {}
            }
        }
        let mut taken: FxHashSet<ValueId> = FxHashSet::default();
        for (n, statement) in statements.iter().enumerate() {
            let mut with = Vec::new();
            for &v in statement.takes() {
                let buffer = buffers.get(&v).copied().unwrap_or(v);
                let is_first = taken.insert(buffer);
                if is_first && made_by.contains_key(&v) && !counted.contains(&buffer) {
                    with.push(v);
                }
            }
            out.made.push(match statement {
                GraphStatement::Op { outputs, .. } => (outputs.clone(), readings[n].forward, with),
                GraphStatement::Input(_)
                | GraphStatement::Move { .. }
                | GraphStatement::Gradient { .. }
                | GraphStatement::NoGrad => (Vec::new(), 0, Vec::new()),
            });
        }
        out
    }

    /// Returns the saved operands of each statement at a price of memory.
    pub(super) fn at_price(&self, price: MemoryPrice) -> Vec<Vec<Saved>> {
        let mut again: FxHashMap<ValueId, u64> = FxHashMap::default();
        let mut before = Vec::with_capacity(self.made.len());
        for (outputs, forward, with) in &self.made {
            let inputs = with.iter().map(|v| {
                let bytes = self.least_bytes.get(v).copied().unwrap_or(0);
                price.of(bytes).min(again.get(v).copied().unwrap_or(0))
            });
            let of_inputs = inputs.fold(0, u64::saturating_add);
            // One call makes all outputs.
            let time = if outputs.len() == 1 { forward.saturating_add(of_inputs) } else { 0 };
            again.extend(outputs.iter().map(|v| (*v, time)));
            before.push(of_inputs);
        }
        // Of several outputs the first has the inputs.
        let of = |&(operand, made): &(usize, (usize, usize))| Saved {
            operand,
            made,
            before: if made.1 == 0 { before[made.0] } else { 0 },
        };
        self.at.iter().map(|list| list.iter().map(of).collect()).collect()
    }
}
