//! Search: the best plan over digit states, by A*.
//!
//! The **problem** (`problem`) is a map from few digits to few places. **Moves** (`moves`) go from a state to any other that
//! one step reaches: a slice, zero-fill, all-gather, reduce-scatter or all-reduce of any set of digits at any places, or
//! an exchange of any digits that are not partial.
//!
//! **Order.** Nodes leave the queue by `cost so far + lower bound of the rest` (`estimate`), ties by a total order, and
//! nothing that cannot beat the best known candidate enters it. The bound never exceeds the truth, so the first arrival at
//! the target is optimal over these moves.

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

/// The most digits that move for which the search promises the optimum.
pub(crate) const MAX_MOVING: usize = 4;

/// The work after which nothing is looked for any more where limits of groups or memory leave no way that is known: a second
/// or so.
const UNTIL_ANY: u64 = 100_000_000;

/// Whether the group of some sub-axes may be used.
pub(crate) type Allowed<'a> = &'a dyn Fn(&[Mode<AxisStride>]) -> bool;

/// What a search may use.
pub(crate) struct Limits<'a> {
    pub(crate) objective: Objective,
    pub(crate) item: u64,
    pub(crate) max_peak: Option<u64>,
    /// How much is looked at before the best found so far is taken.
    pub(crate) work: u64,
    /// Which groups may be used; all without.
    pub(crate) allowed: Option<Allowed<'a>>,
}

/// A state as one number, a byte for each of at most eight digits; ordered as the codes are.
type Packed = u64;

fn packed(codes: &[Code]) -> Packed {
    codes.iter().fold(0, |x, &c| x << 8 | u64::from(c))
}

/// A state in which a digit of `n` stands somewhere else.
fn with(state: Packed, n: usize, digit: usize, at: Code) -> Packed {
    let shift = 8 * (n - 1 - digit);
    state & !(0xFF << shift) | u64::from(at) << shift
}

/// What is known of a state.
struct Node {
    /// What is left from it at least.
    left: u64,
    /// The least cost at which it was reached, from where and how.
    cost: Key,
    parent: Option<(Packed, StepOp)>,
}

/// All that a search knows.
struct Search<'p> {
    problem: &'p Problem<'p>,
    nodes: WordMap<Packed, Node>,
    queue: BinaryHeap<Reverse<(Key, usize, Packed)>>,
    target: Packed,
    /// The least cost known to lead to the target.
    known: Option<Key>,
    /// The state that is expanded: itself, its cost, its steps.
    at: (Packed, Key, usize),
    /// What was looked at so far.
    work: u64,
}

/// Where no cost is known.
const UNREACHED: Key = [u64::MAX; 2];

impl Search<'_> {
    /// Whether the budget is spent; where nothing is known yet, a far greater one, since nothing is refused for want of it.
    fn ran_out(&self) -> bool {
        let most = self.problem.limits.work;
        stop::is_stopped() || self.work > if self.known.is_some() { most } else { most.max(UNTIL_ANY) }
    }

    /// What is known of a state, first of all what is left from it.
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

    fn visit(&mut self, to: Packed, op: StepOp, least: &Cost, exactly: impl FnOnce() -> Cost) {
        let known = self.known;
        let Node { left, cost, .. } = *self.node(to);
        let estimate = |total: Key| [total[0].saturating_add(left), total[1]];
        let loses = |total: Key| cost <= total || known.is_some_and(|k| estimate(total) >= k);
        let total = |step: &Cost| add(self.problem.limits.objective, self.at.1, step);
        if loses(total(least)) {
            return;
        }
        let total = total(&exactly());
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
    /// The best plan, if one is better than `best` (or any, without one); and what knowing that took.
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
                // It was reached at less cost since.
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

    /// The codes of a packed state, of which these are the bytes, most significant first.
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
