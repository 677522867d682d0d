//! The order in which statements are typed: gradients last, where none is of another.
//!
//! ```text
//! what no gradient leads to, the gradients, what is made of them
//! ```
//!
//! So all of forward is typed with its gradients before any is taken, and what the first takes is marked as backward although another comes after it.
//! Where a gradient is of what another made, that one is forward to it, and statements stay as they are.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use crate::graph::{Graph, GraphStatement, ValueId};

/// The statements of a graph in this order, which are borrowed where they stay.
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
