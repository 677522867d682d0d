//! Keys of the random ops of a graph.
//!
//! ```text
//! key=[3]        3 folded into the step's key; by default the number of the op among the random ops
//! key=[3,1]      on coordinate 1 of a shard map: the coordinate is folded in too
//! ```
//!
//! An element is a function of the key and of its index in the whole tensor, so random values need not be
//! saved: backward and rematerialization draw the same values by the same key.

use reshard_ops::rules::{Argument, OpCall};

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::notation::refused;

impl Graph {
    /// Returns a call that draws random numbers with a distinct key: the given number, or the next.
    ///
    /// Returns an error for a number used by another op; ops after `no_grad` may reuse a key.
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
            let free = // Among `len + 1` numbers at least one is unused.
                (known.len() as i64..=2 * known.len() as i64).find(is_free).unwrap_or_default();
            return Ok(call.clone().with("key", Argument::Numbers(vec![free])));
        };
        match known.iter().find(|(other, _)| other == key && !self.is_marked()) {
            None => Ok(call.clone()),
            Some((_, v)) => refused(format!(
                "{call}: `{}` already uses key={key}, so both would draw the same random numbers; give each op a different key, or none to have one assigned",
                self.name(*v)
            )),
        }
    }
}
