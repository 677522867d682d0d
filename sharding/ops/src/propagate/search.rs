//! The cheapest path: best-first over rows of slots, with an admissible bound.
//!
//! ```text
//! cost(path) = sum over inputs  cost(source -> target spelled by the path)
//!            + sum over outputs cost of their constraints
//! ```
//!
//! The cost of an input is not a sum over slots: gathering two shards in one step costs one launch, and a
//! slice on one axis can make another axis cheaper. Rows therefore cannot be chosen slot by slot. A queue
//! holds paths ordered by
//!
//! ```text
//! (least possible cost, inputs that certainly change, path)           the last in lexicographic order of rows
//! ```
//!
//! A partial path is queued again with one more row. A whole path is queued again with its exact cost, one
//! input at a time. When it leaves the queue with nothing left open, it is the minimum of that order over all
//! paths. The next path that leaves the queue is the second best, and so on. The planner computes each
//! input's cost once per target.
//!
//! **Budget.** Rows that are tried and prices that are requested are counted. When the budget is spent, the
//! first paths of the queue are each completed greedily, with the cheapest row for every slot. Only these
//! paths and the best whole path with an upper bound are then priced. They are the remaining answers,
//! cheapest first, and are marked as exhausted. If none of them is valid, the search continues, because an op
//! is never rejected for lack of budget.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::Error;
use crate::propagate::bound::{Known, picoseconds_below};
use crate::propagate::made::Made;
use crate::propagate::problem::{Alike, Path, Problem, SlotRow};
use crate::rules::Entry;
use reshard_planner::SearchBudget;
use reshard_planner::internal::WordMap;
use reshard_planner::internal::{Ask, Effort, Price, is_stopped};
use reshard_sharding::Sharding;

/// The sharding that one input becomes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) sharding: Sharding,
    /// `true` if the target differs from the source.
    pub(super) changed: bool,
    /// Lower bound of the cost.
    least: u64,
    /// Upper bound of the cost, once it was requested.
    pub(super) most: Option<u64>,
}

impl Target {
    fn is_exact(&self) -> bool {
        self.most == Some(self.least)
    }
}

/// A whole path with its cost.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: Path,
    pub(super) picoseconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entered {
    least: u64,
    changed: u64,
    path: Path,
    /// For a whole path, the number of exact costs in `least`, with two kinds of bounds first.
    ///
    /// 0 if `least` is the bound of the slots' classes, 1 if it is the planner's bound, then one more for
    /// every input whose exact cost is in it, and one when the outputs' cost is.
    exact: usize,
}

impl Ord for Entered {
    // `BinaryHeap` pops the greatest entry, so the order is reversed.
    fn cmp(&self, other: &Entered) -> Ordering {
        (other.least, other.changed, &other.path, self.exact).cmp(&(
            self.least,
            self.changed,
            &self.path,
            other.exact,
        ))
    }
}

impl PartialOrd for Entered {
    fn partial_cmp(&self, other: &Entered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The requested targets of one input, by the letters that spell them.
type Targets = Vec<(Letters, Option<Target>)>;

/// The letters of one input along every slot.
type Letters = SmallVec<[u8; 8]>;

/// The work units of trying a row, of a target, of each rank examined for it, and of a price.
///
/// `ROW` counts per input and slot seen; `PRICE` is added to the planner's own effort.
const ROW: u64 = 10;
const TARGET: u64 = 200;
const RANK: u64 = 8;
const PRICE: u64 = 200;

/// The number of additional budgets that completing paths may use.
const TO_COMPLETE: u64 = 4;

/// The number of paths that are completed when the budget is spent.
const COMPLETED: usize = 8;

/// The extra effort when completing paths finds nothing, in budgets.
const UNTIL_ANY: u64 = 20;

/// Paths in order of cost.
pub(super) struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    queue: BinaryHeap<Entered>,
    targets: SmallVec<[Targets; 3]>,
    known_words: SmallVec<[WordMap<Letters, u32>; 3]>,
    made: Vec<Option<Made>>,
    known_paths: WordMap<Path, u32>,
    /// `true` if only the best path is wanted; `most` is then its upper bound.
    only_one: bool,
    most: u64,
    /// The path whose upper bound is `most`.
    known: Option<Path>,
    /// The work limit.
    budget: u64,
    /// The extra budget if completing paths finds nothing; `None` once it is granted.
    longer: Option<u64>,
    /// The remaining answers once the budget is spent, cheapest last.
    completed: Option<Vec<Found>>,
    /// The effort so far.
    pub(super) effort: Effort,
    /// The reason why the last whole path was not a strategy.
    pub(super) refusal: Option<Error>,
}

impl<'p, 'a> Search<'p, 'a> {
    /// Returns the same search, which fails instead of exceeding its budget.
    pub(super) fn hasty(self) -> Search<'p, 'a> {
        Search { longer: None, ..self }
    }

    pub(super) fn new(problem: &'p Problem<'a>, only_one: bool, budget: SearchBudget) -> Search<'p, 'a> {
        let mut queue = BinaryHeap::new();
        queue.push(Entered { least: 0, changed: 0, path: Path::new(), exact: 0 });
        let targets = problem.inputs.iter().map(|_| Vec::new()).collect();
        let known_words = problem.inputs.iter().map(|_| WordMap::default()).collect();
        Search {
            problem,
            queue,
            targets,
            known_words,
            made: Vec::new(),
            known_paths: WordMap::default(),
            only_one,
            most: u64::MAX,
            known: None,
            budget: budget.work(),
            longer: Some(budget.work().max(1 << 20).saturating_mul(UNTIL_ANY)),
            completed: None,
            effort: Effort::default(),
            refusal: None,
        }
    }

    /// The next best path.
    pub(super) fn next_best(&mut self) -> Option<Found> {
        let whole = self.problem.slots.len();
        if let Some(completed) = &mut self.completed
            && let Some(found) = completed.pop()
        {
            return Some(found);
        }
        while let Some(top) = self.queue.pop() {
            if self.effort.work > self.budget || is_stopped() {
                self.queue.push(top);
                return self.complete();
            }
            if top.path.len() < whole {
                self.extend(&top);
            } else if top.exact > self.problem.inputs.len() + 1 {
                return Some(Found { path: top.path, picoseconds: top.least });
            } else {
                self.refine(top);
            }
        }
        None
    }

    /// Completes paths after the budget is spent, and returns the first of the remaining answers.
    fn complete(&mut self) -> Option<Found> {
        self.effort.exhausted = true;
        if self.completed.is_some() {
            // All answers were returned. Only a search with budget left knows the next best one.
            return None;
        }
        let whole = self.problem.slots.len();
        let mut ends: Vec<Path> = self.known.iter().cloned().collect();
        let queue = core::mem::take(&mut self.queue);
        let mut starts = queue.into_sorted_vec();
        // The front of the queue first.
        starts.reverse();
        let mut found: Vec<Found> = Vec::new();
        for start in starts.iter().take(COMPLETED) {
            self.queue.push(start.clone());
            while let Some(top) = self.queue.pop().filter(|top| top.path.len() < whole) {
                // Only the best of its rows is followed.
                self.queue.clear();
                self.extend(&top);
                if let Some(next) = self.queue.pop() {
                    self.queue.clear();
                    if next.path.len() == whole {
                        ends.push(next.path);
                        break;
                    }
                    self.queue.push(next);
                }
            }
            if start.path.len() == whole {
                ends.push(start.path.clone());
            }
            self.queue.clear();
        }
        // Replicas are mostly possible where nothing else is.
        ends.extend(self.plain());
        ends.sort_unstable();
        ends.dedup();
        // The smallest bounds first, within a few more budgets: for uneven shards each path examines every
        // rank.
        let mut promising: Vec<(u64, Path)> =
            ends.into_iter().map(|path| (self.promise(&path), path)).collect();
        promising.sort_unstable();
        let until = self.effort.work.saturating_add(self.budget.saturating_mul(TO_COMPLETE));
        for (_, path) in promising {
            if !found.is_empty() && self.effort.work > until {
                break;
            }
            found.extend(self.exactly(path));
        }
        found.sort_by(|a, b| (b.picoseconds, &b.path).cmp(&(a.picoseconds, &a.path)));
        let first = found.pop();
        self.completed = Some(found);
        if first.is_none()
            && let Some(longer) = self.longer.take()
        {
            // Nothing found: continue from the old queue with the extra budget, but only once, so that an
            // error is bounded too.
            self.queue = starts.into_iter().collect();
            self.budget = longer;
            self.completed = None;
            return self.next_best();
        }
        first
    }

    /// Returns the path of replicas alone, if the op has one.
    fn plain(&self) -> Option<Path> {
        let p = self.problem;
        let rows = &p.bound.get().rows;
        let of_slot = |slot: &SmallVec<[SlotRow; 12]>| {
            let plain = |r: &SlotRow| rows[usize::from(r.row)].entries.iter().all(|e| *e == Entry::Replicate);
            slot.iter().position(plain).map(|at| at as u16)
        };
        let path: Option<Path> = p.rows.iter().map(of_slot).collect();
        path.filter(|path| self.known_of(path).iter().zip(&p.inputs).all(|(k, a)| !(a.stays && k.changed)))
    }

    /// Returns the lower bound of a whole path, from the digits of its inputs.
    fn promise(&self, path: &Path) -> u64 {
        let (p, known) = (self.problem, self.known_of(path));
        let least =
            p.inputs.iter().zip(&known).map(|(a, k)| a.count.saturating_mul(p.least(a, k, p.slots.len())));
        least.fold(0, u64::saturating_add)
    }

    /// Returns a whole path with its exact cost.
    fn exactly(&mut self, path: Path) -> Option<Found> {
        let inputs = self.problem.inputs.len();
        let queue = core::mem::take(&mut self.queue);
        let mut top = Some(Entered { least: 0, changed: 0, path, exact: 0 });
        while let Some(entered) = top.take().filter(|top| top.exact <= inputs + 1) {
            self.refine(entered);
            top = self.queue.pop();
            if let Some(done) = top.as_ref().filter(|top| top.exact > inputs + 1) {
                self.queue = queue;
                return Some(Found { path: done.path.clone(), picoseconds: done.least });
            }
        }
        self.queue = queue;
        None
    }

    /// Returns the known properties of every input's target on a path.
    fn known_of(&self, path: &[u16]) -> SmallVec<[Known; 3]> {
        let p = self.problem;
        let of = |a: &Alike<'_>| {
            path.iter().enumerate().fold(Known::NOTHING, |k, (slot, &row)| self.grown(k, a, slot, row))
        };
        p.inputs.iter().map(of).collect()
    }

    fn grown(&self, known: Known, a: &Alike<'_>, slot: usize, row: u16) -> Known {
        let p = self.problem;
        let letter = p.letter(slot, row, a.operand);
        let fixed = match letter.entry {
            Entry::Fixed(i) => p.bound.get().fixed[usize::from(i)].dim(),
            Entry::Replicate | Entry::Partial(_) | Entry::Shard { .. } => None,
        };
        known.with(&a.at[slot], letter, p.slots[slot].size, fixed, a.source.layout().is_some())
    }

    fn extend(&mut self, top: &Entered) {
        let p = self.problem;
        let slot = top.path.len();
        let known = self.known_of(&top.path);
        let seen = (p.inputs.len() * p.rows[slot].len() + slot) as u64;
        self.effort.work = self.effort.work.saturating_add(ROW * seen);
        for row in 0..p.rows[slot].len() as u16 {
            let (mut least, mut changed) = (0u64, 0u64);
            let mut moves = false;
            for (a, k) in p.inputs.iter().zip(&known) {
                let k = self.grown(*k, a, slot, row);
                moves |= a.stays && k.changed;
                least = least.saturating_add(a.count.saturating_mul(p.least(a, &k, slot + 1)));
                changed += if k.changed { a.count } else { 0 };
            }
            if moves {
                continue;
            }
            let mut path = top.path.clone();
            path.push(row);
            if !p.is_even(&path) {
                continue;
            }
            let constraints = (0..p.constraints.len()).map(|o| p.least_of_constraint(o, &path));
            least = constraints.fold(least, u64::saturating_add);
            if least <= self.most {
                self.queue.push(Entered { least, changed, path, exact: 0 });
            }
        }
    }

    /// Refines a whole path by the planner's bounds, the exact cost of one more input, or of the outputs.
    fn refine(&mut self, mut top: Entered) {
        let p = self.problem;
        top.exact += 1;
        let mut at: SmallVec<[usize; 4]> = SmallVec::new();
        for i in 0..p.inputs.len() {
            let Some(found) = self.target_at(&top.path, i) else { return };
            at.push(found);
        }
        if top.exact == 2 {
            self.bound_from_above(&top.path, &at);
        }
        if top.exact > 1 && !self.price_one(&at, top.exact - 2) {
            return;
        }
        let known = self.known_of(&top.path);
        (top.least, top.changed) = (0, 0);
        for (i, a) in p.inputs.iter().enumerate() {
            let Some(target) = &self.targets[i][at[i]].1 else { return };
            let bound = if target.is_exact() { 0 } else { p.least(a, &known[i], p.slots.len()) };
            top.least = top.least.saturating_add(a.count.saturating_mul(target.least.max(bound)));
            top.changed += if target.changed { a.count } else { 0 };
            if a.stays && target.changed {
                return;
            }
        }
        if top.exact > p.inputs.len() + 1 || !p.constraints.is_empty() {
            let limit = if self.most == u64::MAX { u64::MAX } else { self.most.saturating_sub(top.least) };
            let is_last = top.exact > p.inputs.len() + 1;
            let mut effort = self.effort;
            let Some(made) = self.made(&top.path) else { return };
            let priced = if is_last { made.price(p, limit, &mut effort) } else { Ok(()) };
            let least = made.least;
            self.effort = effort;
            if let Err(e) = priced {
                self.refusal = Some(e);
                return;
            }
            top.least = top.least.saturating_add(least);
        }
        if top.least <= self.most {
            self.queue.push(top);
        }
    }

    /// Lowers the upper bound with that of a whole path, if only the best path is wanted.
    fn bound_from_above(&mut self, path: &Path, at: &[usize]) {
        let p = self.problem;
        if !self.only_one {
            return;
        }
        let mut most = 0u64;
        for (i, a) in p.inputs.iter().enumerate() {
            let Some(target) = &mut self.targets[i][at[i]].1 else { return };
            if target.most.is_none() {
                let price = p.planner.price(a.source, &target.sharding, a.dtype, Ask::Quick);
                match price.map(|(price, took)| (price, self.effort = self.effort.and(took)).0) {
                    Ok(Price::Exactly(cost)) => (target.least, target.most) = (cost, Some(cost)),
                    Ok(Price::AtMost(cost)) => target.most = Some(cost),
                    Ok(Price::MoreThan(_)) | Err(_) => {}
                }
            }
            most = most.saturating_add(a.count.saturating_mul(target.most.unwrap_or(u64::MAX)));
        }
        if most >= self.most {
            return;
        }
        // The outputs of the path must exist and have a cost.
        let mut effort = self.effort;
        let Some(made) = self.made(path) else { return };
        made.bound_from_above(p, &mut effort);
        most = most.saturating_add(made.most.unwrap_or(u64::MAX));
        self.effort = effort;
        if most < self.most {
            (self.most, self.known) = (most, Some(path.clone()));
        }
    }

    /// Requests the exact cost of one input if it can still matter; returns `false` if it has none.
    fn price_one(&mut self, at: &[usize], input: usize) -> bool {
        let p = self.problem;
        let Some(a) = p.inputs.get(input) else { return true };
        let others = |i: usize| {
            let least = self.targets[i][at[i]].1.as_ref().map_or(0, |t| t.least);
            p.inputs[i].count.saturating_mul(least)
        };
        let rest = (0..p.inputs.len()).filter(|&i| i != input).map(others).fold(0, u64::saturating_add);
        let limit = self.most.saturating_sub(rest) / a.count;
        self.price(input, at[input], if self.most == u64::MAX { u64::MAX } else { limit })
    }

    /// Returns the target of one input on a whole path.
    pub(super) fn target(&mut self, path: &Path, input: usize) -> Option<&Target> {
        let at = self.target_at(path, input)?;
        self.targets[input][at].1.as_ref()
    }

    /// Returns the index of that target in `targets`; `None` if there is no such target.
    fn target_at(&mut self, path: &Path, input: usize) -> Option<usize> {
        let p = self.problem;
        let a = &p.inputs[input];
        let word: Letters =
            path.iter().enumerate().map(|(slot, &row)| a.letters[slot][usize::from(row)]).collect();
        let at = if let Some(&at) = self.known_words[input].get(&word) {
            at as usize
        } else {
            // An invalid target is rejected before any rank is examined; there may be very many of them.
            let (made, ranks) = match bounded(p, a, path) {
                Ok((made, ranks)) => (Some(made), ranks),
                Err(e) => {
                    self.refusal = Some(e);
                    (None, p.mesh.size())
                }
            };
            let work = TARGET.saturating_add(RANK.saturating_mul(ranks as u64));
            self.effort.work = self.effort.work.saturating_add(work);
            let at = self.targets[input].len();
            self.targets[input].push((word.clone(), made));
            self.known_words[input].insert(word, at as u32);
            at
        };
        self.targets[input][at].1.is_some().then_some(at)
    }

    /// Requests the cost of an unpriced target: exact within a limit, else a better lower bound.
    ///
    /// Returns `false` if the target has no cost.
    fn price(&mut self, input: usize, at: usize, limit: u64) -> bool {
        let p = self.problem;
        let a = &p.inputs[input];
        let Some(target) = &mut self.targets[input][at].1 else { return false };
        if target.is_exact() || target.least > limit {
            return true;
        }
        self.effort.work = self.effort.work.saturating_add(PRICE);
        let price = p.planner.price(a.source, &target.sharding, a.dtype, Ask::Within(limit));
        match price.map(|(price, took)| (price, self.effort = self.effort.and(took)).0) {
            Ok(Price::Exactly(cost)) => (target.least, target.most) = (cost, Some(cost)),
            Ok(Price::MoreThan(limit)) => target.least = limit.saturating_add(1),
            Ok(Price::AtMost(cost)) => target.most = Some(cost),
            Err(e) => {
                self.refusal = Some(e.into());
                self.targets[input][at].1 = None;
                return false;
            }
        }
        true
    }

    /// Returns the outputs of a whole path.
    pub(super) fn made(&mut self, path: &Path) -> Option<&mut Made> {
        let p = self.problem;
        let at = if let Some(&at) = self.known_paths.get(path) {
            at as usize
        } else {
            let first = if p.op.is_view() { self.target(path, 0).map(|t| t.sharding.clone()) } else { None };
            self.effort.work = self.effort.work.saturating_add(TARGET);
            let made = Made::new(p, path, first.as_ref()).map_err(|e| self.refusal = Some(e)).ok();
            self.made.push(made);
            self.known_paths.insert(path.clone(), self.made.len() as u32 - 1);
            self.made.len() - 1
        };
        self.made[at].as_mut()
    }
}

/// Returns a target with the planner's lower bound of its cost, and the number of ranks that were examined.
fn bounded(p: &Problem<'_>, a: &Alike<'_>, path: &Path) -> Result<(Target, usize), Error> {
    let sharding = p.target(path, a.operand, a.source.shape())?;
    if sharding == *a.source {
        return Ok((Target { sharding, changed: false, least: 0, most: Some(0) }, 0));
    }
    let (bound, ranks) = p.planner.lower_bound_and_ranks(a.source, &sharding, a.dtype)?;
    // The bound is 0 exactly if nothing has to be sent.
    let free = bound == 0.0 && p.trusts_free;
    let (least, most) = (picoseconds_below(bound), free.then_some(0));
    Ok((Target { sharding, changed: true, least, most }, ranks))
}
