//! Gradient flow: the inputs and outputs of an op through which gradients flow, by its formula.

use reshard_ops::gradients::Saved;
use reshard_ops::rules::{Op, OpCall, OpTable};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;

/// Two lists: `true` for each input that has a gradient, and for each output that participates.
pub(crate) type Flows = (Vec<bool>, Vec<bool>);

/// A cache of the inputs of ops that have gradients, and of the outputs these flow through.
#[derive(Default)]
pub(crate) struct Differentiable {
    known: FxHashMap<Op, FxHashMap<OpCall, Flows>>,
}

impl Differentiable {
    /// Returns the gradient flow through an op if any is `wanted`.
    ///
    /// An op without a formula is an error if `strict`, and otherwise stops the gradient.
    pub(crate) fn of(
        &mut self,
        table: &OpTable,
        call: &OpCall,
        op: &Op,
        wanted: bool,
        strict: bool,
    ) -> Result<Flows, Error> {
        let none = || (vec![false; op.inputs().len()], vec![false; op.outputs().len()]);
        if !wanted {
            return Ok(none());
        }
        if let Some(found) = self.known.get(op).and_then(|calls| calls.get(call)) {
            return Ok(found.clone());
        }
        let shapes: Vec<&[usize]> = op.inputs().iter().map(Vec::as_slice).collect();
        let found = match table.gradient(call, &shapes) {
            Err(e) if strict => return Err(e.into()),
            Err(_) => none(),
            Ok(gradient) => {
                let taken: FxHashSet<usize> = (gradient.inputs().iter())
                    .filter_map(|saved| match saved {
                        Saved::Gradient(o) => Some(*o),
                        Saved::Input(_) | Saved::Output(_) => None,
                    })
                    .collect();
                let gives = gradient.input_gradients().iter().map(Option::is_some).collect();
                (gives, (0..op.outputs().len()).map(|o| taken.contains(&o)).collect())
            }
        };
        self.known.entry(op.clone()).or_default().insert(call.clone(), found.clone());
        Ok(found)
    }
}
