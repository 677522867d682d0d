//! Keys: which random numbers an op of a graph draws.
//!
//! ```text
//! key=[3]        the step's key, into which 3 is folded; of an op of which nobody says it, its number among those that draw
//! key=[3,1]      of a region, on its coordinate 1: that too is folded in
//! ```
//!
//! An element is a function of the key and of its index in the whole tensor, so nobody has to save what was drawn: backward draws the
//! same again by the same key, and so does what is computed again.

use reshard_ops::rules::{Argument, OpCall};

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::notation::refused;

impl Graph {
    /// A call that draws random numbers, with a key of its own: the number that is given, or the next.
    ///
    /// Fails for a number that another op draws by; what is made after `no_grad` may draw the same again.
    pub(crate) fn keyed(&self, call: &OpCall) -> Result<OpCall, Error> {
        let draws =
            call.name().and_then(|name| self.table.parameters(name)).is_some_and(|p| p.get("key").is_some());
        if !draws {
            return Ok(call.clone());
        }
        let known = |s: &GraphStatement| match s {
            GraphStatement::Op { call, outputs, .. } => {
                Some((call.argument("key")?.clone(), *outputs.first()?))
            }
            GraphStatement::Input(_)
            | GraphStatement::Move { .. }
            | GraphStatement::Gradient { .. }
            | GraphStatement::NoGrad => None,
        };
        let known: Vec<(Argument, ValueId)> = self.statements.iter().filter_map(known).collect();
        let Some(key) = call.argument("key") else {
            let is_free = |n: &i64| !known.iter().any(|(key, _)| *key == Argument::Numbers(vec![*n]));
            let free = // Of so many and one numbers one is free.
                (known.len() as i64..=2 * known.len() as i64).find(is_free).unwrap_or_default();
            return Ok(call.clone().with("key", Argument::Numbers(vec![free])));
        };
        match known.iter().find(|(other, _)| other == key && !self.is_marked()) {
            None => Ok(call.clone()),
            Some((_, v)) => refused(format!(
                "{call}: {} draws by key={key} already, and would be the same random numbers; give each its own key, or none and it gets one",
                self.name(*v)
            )),
        }
    }
}
