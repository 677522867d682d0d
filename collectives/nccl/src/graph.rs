//! A captured plan.

use crate::Nccl;
use crate::comm::InFlight;

/// A plan on its buffers, captured by [`Comm::capture`](crate::Comm::capture); holds all that it uses.
#[derive(Debug)]
pub struct Graph<N: Nccl> {
    pub(crate) inner: N::Graph,
    pub(crate) kept: Vec<InFlight<N>>,
    pub(crate) comm: u64,
}

impl<N: Nccl> Graph<N> {
    /// The number of exchanges.
    pub fn exchanges(&self) -> usize {
        self.kept.len()
    }

    /// Where something may fail, for errors.
    pub(crate) fn places(&self) -> String {
        match self.kept.as_slice() {
            [] => "a replay of nothing".to_owned(),
            [one] => format!("{}, replayed", one.place),
            [first, .., last] => format!("{} to {}, replayed", first.place, last.place),
        }
    }
}
