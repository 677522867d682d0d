//! The order of all calls, posts and waits: one for all ranks.

use crate::program::{Item, Program};

/// One thing that ranks do, by the number of its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// An op runs.
    Call(usize),
    /// A move begins.
    Post(usize),
    /// A move ends.
    Wait(usize),
}

/// That of the items, where a move ends where it begins. What leaves all bytes where they are has no turn.
pub(super) fn order(program: &Program) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(program.items().len());
    for (n, item) in program.items().iter().enumerate() {
        match item {
            Item::Op { op, .. } if !op.is_view() => turns.push(Turn::Call(n)),
            Item::Move { forward, .. } if !forward.steps().is_empty() => {
                turns.extend([Turn::Post(n), Turn::Wait(n)]);
            }
            Item::Input(_) | Item::NoGrad | Item::Op { .. } | Item::Move { .. } => {}
        }
    }
    turns
}
