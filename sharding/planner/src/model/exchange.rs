//! An exchange by the load of each rank: its elements and peers over each level, received and sent.
//!
//! The model does not change: a port of each rank, level and direction, all of them at once. So an exchange
//! costs what the worst rank bears, in one direction. The transposed exchange has the same loads with the
//! directions changed over, and the same cost.

use smallvec::SmallVec;

use crate::model::Model;
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic};
use crate::model::totals::Cost;
use reshard_sharding::internal::ranks_of_both;
use reshard_sharding::{GroupPattern, Sharding};

/// A direction of a rank's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// The worst loads of an exchange so far.
pub(crate) struct Worst<'a> {
    model: &'a Model,
    item: u64,
    group: &'a GroupPattern,
    traffic: Traffic,
    peak: u64,
    us: f64,
    received: u64,
    sent: u64,
}

impl<'a> Worst<'a> {
    /// Creates the loads of no rank; an element has `item` bytes.
    pub(crate) fn new(model: &'a Model, item: u64, group: &'a GroupPattern, peak: u64) -> Worst<'a> {
        let traffic = SmallVec::from_elem(LevelTraffic::default(), model.levels().len());
        Worst { model, item, group, traffic, peak, us: 0.0, received: 0, sent: 0 }
    }

    /// Takes in the elements and peers of one rank over each level, in one direction.
    pub(crate) fn see(&mut self, direction: Direction, of_levels: &[(usize, usize)]) {
        let mut bytes = 0;
        for (at, &(numel, peers)) in self.traffic.iter_mut().zip(of_levels) {
            let of_level = numel as u64 * self.item;
            bytes += of_level;
            *at = LevelTraffic { bytes: of_level as f64, peers };
        }
        if bytes > 0 {
            let load = StepTraffic::exchange(&self.traffic, self.peak, Span::Group(self.group));
            self.us = self.us.max(self.model.cost_us(&load));
        }
        let most = match direction {
            Direction::In => &mut self.received,
            Direction::Out => &mut self.sent,
        };
        *most = (*most).max(bytes);
    }

    /// Returns the cost of the exchange, and the bytes that the worst rank sends.
    pub(crate) fn cost(&self) -> (Cost, u64) {
        (Cost::new(self.us, self.received, self.peak), self.sent)
    }
}

/// The loads of all ranks of an exchange, added message by message.
pub(crate) struct Messages<'a> {
    model: &'a Model,
    ranks: Vec<usize>,
    /// By direction, rank and level.
    loads: [Vec<(usize, usize)>; 2],
}

impl<'a> Messages<'a> {
    /// Creates the loads of the ranks of two shardings, all 0.
    pub(crate) fn new(model: &'a Model, [from, to]: [&Sharding; 2]) -> Messages<'a> {
        let ranks = ranks_of_both(from.mesh(), to.mesh());
        let none = vec![(0, 0); ranks.len() * model.levels().len()];
        Messages { model, ranks, loads: [none.clone(), none] }
    }

    /// Adds a message of some elements; one from a rank to itself does not count.
    pub(crate) fn add(&mut self, [sender, receiver]: [usize; 2], numel: usize) {
        if sender == receiver || numel == 0 {
            return;
        }
        let (levels, level) = (self.model.levels().len(), self.model.level_of(sender, receiver));
        for (loads, rank) in self.loads.iter_mut().zip([receiver, sender]) {
            // Ranks are mostly dense.
            let guess = rank.wrapping_sub(self.ranks[0]);
            let at = match self.ranks.get(guess) {
                Some(&there) if there == rank => guess,
                Some(_) | None => self.ranks.binary_search(&rank).expect("a rank of one of the meshes"),
            };
            let load = &mut loads[at * levels + level];
            *load = (load.0 + numel, load.1 + 1);
        }
    }

    /// Returns the cost of the exchange of elements of `item` bytes, and the bytes that the worst rank sends.
    pub(crate) fn cost(&self, item: u64, group: &GroupPattern, peak: u64) -> (Cost, u64) {
        let mut worst = Worst::new(self.model, item, group, peak);
        for (direction, loads) in [Direction::In, Direction::Out].into_iter().zip(&self.loads) {
            for of_rank in loads.chunks(self.model.levels().len()) {
                worst.see(direction, of_rank);
            }
        }
        worst.cost()
    }
}
