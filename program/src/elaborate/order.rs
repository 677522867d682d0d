//! The order in which statements are typed: gradients last, if no gradient is of another gradient.
//!
//! ```text
//! statements before gradients, the gradients, statements that use them
//! ```
//!
//! So all of forward is typed with its gradients before any is used, and the statements that use the first
//! gradient are backward although another gradient comes later. If a gradient depends on another one, that
//! one is forward to it, and the statements keep their order.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use crate::graph::{Graph, GraphStatement, ValueId};

/// Returns the statements of a graph in this order, borrowed if it is unchanged.
pub(crate) fn gradients_last(graph: &Graph) -> Cow<'_, [GraphStatement]> {
    let all = &graph.statements[..];
    let end = all.iter().position(|s| *s == GraphStatement::NoGrad).unwrap_or(all.len());
    let (before, rest) = all.split_at(end);
    let (mut forward, mut gradients, mut made) = (Vec::new(), Vec::new(), Vec::new());
    let mut reached: FxHashSet<ValueId> = FxHashSet::default();
    for statement in before {
        let takes = statement.takes().iter().any(|v| reached.contains(v));
        match statement {
            GraphStatement::Gradient { loss, .. } => {
                if takes || reached.contains(loss) {
                    return Cow::Borrowed(all);
                }
                gradients.push(statement);
            }
            GraphStatement::Input(_)
            | GraphStatement::Op { .. }
            | GraphStatement::Move { .. }
            | GraphStatement::NoGrad => {
                if !takes {
                    forward.push(statement);
                    continue;
                }
                made.push(statement);
            }
        }
        reached.extend(statement.makes());
    }
    if gradients.len() < 2 {
        return Cow::Borrowed(all);
    }
    Cow::Owned(forward.into_iter().chain(gradients).chain(made).chain(rest).cloned().collect())
}
