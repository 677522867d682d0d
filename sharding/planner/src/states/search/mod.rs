//! Search: the best plan over digit states, by A*.
//!
//! The **problem** (`problem`) is a map from a few digits to a few sites. **Transitions** (`moves`) go from a
//! state to any other that one step reaches: a slice, zero-fill, all-gather, reduce-scatter or all-reduce of
//! any set of digits at any sites, or an exchange of any digits that are not partial.
//!
//! **Order.** Nodes leave the queue by `cost so far + lower bound of the rest` (`estimate`), ties by a total
//! order. A node that cannot beat the best known candidate does not enter it. The bound never exceeds the
//! truth, so the first arrival at the target is optimal over these transitions.

mod estimate;
mod moves;
mod problem;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};
use smallvec::SmallVec;

use crate::budget::Effort;
use crate::hash::WordMap;
use crate::model::codes::Code;
use crate::model::totals::{Cost, Key, add};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::states::closed_form::{Move, Route};
use crate::stop;
use moves::{Groups, Visitor};

use problem::MAX_DIGITS;

pub(crate) use problem::Problem;
#[cfg(test)]
pub(crate) use problem::View;

/// The most digits that change for which the search promises the optimum.
pub(crate) const MAX_MOVING: usize = 4;

/// Work after which the search ends if limits of groups or memory leave no known path: about a second.
const UNTIL_ANY: u64 = 100_000_000;

/// Returns `true` if the group of some sub-axes may be used.
pub(crate) type Allowed<'a> = &'a dyn Fn(&[Mode<AxisStride>]) -> bool;

/// The limits of a search.
pub(crate) struct Limits<'a> {
    pub(crate) objective: Objective,
    pub(crate) item: u64,
    pub(crate) max_peak: Option<u64>,
    /// Work after which the best route found so far is taken.
    pub(crate) work: u64,
    /// The groups that may be used; `None` if all may.
    pub(crate) allowed: Option<Allowed<'a>>,
}

/// A state as one number, a byte for each of at most eight digits; ordered by the codes.
type Packed = u64;

fn packed(codes: &[Code]) -> Packed {
    codes.iter().fold(0, |x, &c| x << 8 | u64::from(c))
}

/// Returns a state in which one of `n` digits has another code.
fn with(state: Packed, n: usize, digit: usize, at: Code) -> Packed {
    let shift = 8 * (n - 1 - digit);
    state & !(0xFF << shift) | u64::from(at) << shift
}

/// A state that the search has reached.
struct Node {
    /// Lower bound of the rest from here.
    left: u64,
    /// The least cost at which it was reached; `parent` has the state before and the step.
    cost: Key,
    parent: Option<(Packed, StepOp)>,
}

/// The state of a search.
struct Search<'p> {
    problem: &'p Problem<'p>,
    nodes: WordMap<Packed, Node>,
    queue: BinaryHeap<Reverse<(Key, usize, Packed)>>,
    target: Packed,
    /// The least known cost of reaching the target.
    known: Option<Key>,
    /// The state that is expanded: its code, its cost, its steps.
    at: (Packed, Key, usize),
    /// Work so far.
    work: u64,
}

/// The cost of a state that was not reached yet.
const UNREACHED: Key = [u64::MAX; 2];

impl Search<'_> {
    /// Returns `true` if the budget is spent.
    ///
    /// If no plan is known yet, a far greater budget applies, since no problem is rejected for lack of it.
    fn ran_out(&self) -> bool {
        let most = self.problem.limits.work;
        stop::is_stopped() || self.work > if self.known.is_some() { most } else { most.max(UNTIL_ANY) }
    }

    /// Returns the node of a state, and computes its lower bound at first use.
    fn node(&mut self, state: Packed) -> &mut Node {
        let problem = self.problem;
        let unknown = || Node {
            left: problem.bound(problem.unpacked(&state.to_be_bytes())),
            cost: UNREACHED,
            parent: None,
        };
        self.nodes.entry(state).or_insert_with(unknown)
    }
}

impl Visitor for Search<'_> {
    fn works(&mut self, work: u64) -> bool {
        self.work = self.work.saturating_add(work);
        !self.ran_out()
    }

    fn wants(&mut self, step: &Cost, at_best: Packed) -> bool {
        let limits = self.problem.limits;
        if limits.max_peak.is_some_and(|m| step.peak > m) {
            return false;
        }
        let Some(known) = self.known else { return true };
        let least = add(limits.objective, self.at.1, step);
        least < known && [least[0].saturating_add(self.node(at_best).left), least[1]] < known
    }

    fn visit(
        &mut self,
        to: Packed,
        op: StepOp,
        least: &Cost,
        exactly: impl FnOnce(&dyn Fn(&Cost) -> bool) -> Cost,
    ) {
        let known = self.known;
        let Node { left, cost, .. } = *self.node(to);
        let estimate = |total: Key| [total[0].saturating_add(left), total[1]];
        let loses = |total: Key| cost <= total || known.is_some_and(|k| estimate(total) >= k);
        let total = |step: &Cost| add(self.problem.limits.objective, self.at.1, step);
        if loses(total(least)) {
            return;
        }
        let total = total(&exactly(&|step| loses(total(step))));
        self.work = self.work.saturating_add(6);
        if loses(total) {
            return;
        }
        self.queue.push(Reverse((estimate(total), self.at.2 + 1, to)));
        let parent = Some((self.at.0, op));
        self.nodes.insert(to, Node { left, cost: total, parent });
        if to == self.target {
            self.known = Some(total);
        }
    }
}

impl Problem<'_> {
    /// Returns the best plan if it is better than `best` (any plan without one), and the effort.
    pub(crate) fn search(&self, best: Option<Key>) -> (Option<Route>, Effort) {
        let (mut groups, mut exhausted) = (Groups::default(), false);
        let (first, target) = (packed(&self.from), packed(&self.to));
        let left = self.bound(&self.from);
        let mut s = Search {
            problem: self,
            nodes: WordMap::default(),
            queue: BinaryHeap::new(),
            target,
            known: best,
            at: (first, [0, 0], 0),
            work: 0,
        };
        s.nodes.insert(first, Node { left, cost: [0, 0], parent: None });
        s.queue.push(Reverse(([left, 0], 0, first)));
        while let Some(Reverse((estimate, steps, at))) = s.queue.pop() {
            let Some(node) = s.nodes.get(&at) else { continue };
            let cost = node.cost;
            if at == target || s.known.is_some_and(|k| estimate >= k) {
                break;
            }
            if [cost[0].saturating_add(node.left), cost[1]] != estimate {
                // It has since been reached at less cost.
                continue;
            }
            s.at = (at, cost, steps);
            self.moves(self.unpacked(&at.to_be_bytes()), &mut groups, &mut s);
            if s.ran_out() {
                exhausted = true;
                break;
            }
        }
        let found = s.nodes.get(&target).is_some_and(|n| n.cost != UNREACHED);
        (found.then(|| self.plan(&s.nodes)), Effort { work: s.work, exhausted })
    }

    /// Returns the codes of a packed state, whose bytes are given, most significant first.
    fn unpacked<'s>(&self, bytes: &'s [u8; MAX_DIGITS]) -> &'s [Code] {
        &bytes[MAX_DIGITS - self.to.len()..]
    }

    fn plan(&self, nodes: &WordMap<Packed, Node>) -> Route {
        let mut moves: SmallVec<[Move; 4]> = SmallVec::new();
        let mut at = packed(&self.to);
        while let Some((before, op)) = nodes.get(&at).and_then(|n| n.parent) {
            let state = |x: Packed| self.real(self.unpacked(&x.to_be_bytes()));
            moves.push(Move { op, before: state(before), after: state(at) });
            at = before;
        }
        moves.reverse();
        Route { system: Arc::clone(&self.system), moves }
    }
}
