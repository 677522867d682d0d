//! The cheapest path: best-first over rows of slots, with an admissible bound.
//!
//! ```text
//! cost(path) = sum over inputs  cost(source -> target spelled by the path)
//!            + sum over outputs cost of what is wished of them
//! ```
//!
//! The cost of an input is not a sum over slots (two shards gathered together cost one launch; a slice on one axis can
//! make another axis cheaper), so that rows cannot be chosen slot by slot. A queue holds paths ordered by
//!
//! ```text
//! (least possible cost, inputs that certainly change, path)           the last in lexicographic order of rows
//! ```
//!
//! A partial path goes back with one more row. A whole path goes back with its exact cost, one input at a time, and when
//! it comes out with nothing left open it is the minimum of that order over all paths: what comes out next is second
//! best, and so on. Each input's cost is asked of the planner once for each target.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::propagate::bound::{Known, picoseconds_below};
use crate::propagate::problem::{Alike, Path, Problem};
use crate::propagate::wish::Wish;
use crate::redistribute::Plan;
use crate::redistribute::cache::WordMap;
use crate::rules::Entry;
use crate::{Error, Sharding};

/// What one input becomes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) sharding: Sharding,
    /// Whether it is not the source.
    pub(super) changed: bool,
    /// What it cannot cost less than.
    least: u64,
    /// The plan and its cost, once they were asked for; no plan if nothing changes.
    exact: Option<(u64, Option<Plan>)>,
}

impl Target {
    pub(super) fn plan(&self) -> Option<&Plan> {
        self.exact.as_ref().and_then(|e| e.1.as_ref())
    }
}

/// What the outputs are, and what becomes of them.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) outputs: Vec<Sharding>,
    pub(super) plans: Vec<Option<Plan>>,
    cost: u64,
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
    /// Of a whole path: 0 if `least` is the bound of what the slots are, 1 if it is the planner's bound, then one more for
    /// every input whose exact cost is in it, and one when the outputs' is.
    exact: usize,
}

impl Ord for Entered {
    // The greatest comes out first.
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

/// The targets of one input that were asked for, by the letters that spell them.
type Targets = Vec<(Word, Option<Target>)>;

/// The letters of one input along every slot.
type Word = SmallVec<[u8; 8]>;

/// Paths in order of cost.
pub(super) struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    queue: BinaryHeap<Entered>,
    targets: SmallVec<[Targets; 3]>,
    known_words: SmallVec<[WordMap<Word, u32>; 3]>,
    made: Vec<(Path, Option<Made>)>,
    /// Only paths that leave the inputs alone.
    untouched: bool,
    /// Why the last whole path was no strategy.
    pub(super) refusal: Option<Error>,
}

impl<'p, 'a> Search<'p, 'a> {
    pub(super) fn new(problem: &'p Problem<'a>, untouched: bool) -> Search<'p, 'a> {
        let mut queue = BinaryHeap::new();
        queue.push(Entered { least: 0, changed: 0, path: Path::new(), exact: 0 });
        let targets = problem.inputs.iter().map(|_| Vec::new()).collect();
        let known_words = problem.inputs.iter().map(|_| WordMap::default()).collect();
        Search { problem, queue, targets, known_words, made: Vec::new(), untouched, refusal: None }
    }

    /// The next best path.
    pub(super) fn next_best(&mut self) -> Option<Found> {
        let whole = self.problem.slots.len();
        while let Some(top) = self.queue.pop() {
            STATS[0].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
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

    /// What is known of every input by a path.
    fn known(&self, path: &[u16]) -> SmallVec<[Known; 3]> {
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
        known.with(&a.at[slot], letter, p.slots[slot].size, fixed)
    }

    fn extend(&mut self, top: &Entered) {
        let p = self.problem;
        let slot = top.path.len();
        let known = self.known(&top.path);
        for row in 0..p.rows[slot].len() as u16 {
            let (mut least, mut changed) = (0u64, 0u64);
            for (a, k) in p.inputs.iter().zip(&known) {
                let k = self.grown(*k, a, slot, row);
                least += a.count * p.least(a, &k, slot + 1);
                changed += if k.changed { a.count } else { 0 };
            }
            if self.untouched && (least > 0 || changed > 0) {
                continue;
            }
            let mut path = top.path.clone();
            path.push(row);
            if !p.is_even(&path) {
                continue;
            }
            least += (0..p.wishes.len()).map(|o| p.least_of_wish(o, &path)).sum::<u64>();
            self.queue.push(Entered { least, changed, path, exact: 0 });
        }
    }

    /// Takes the planner's bounds, the exact cost of one more input, or that of the outputs into a whole path.
    fn refine(&mut self, mut top: Entered) {
        let p = self.problem;
        top.exact += 1;
        (top.least, top.changed) = (0, 0);
        let known = self.known(&top.path);
        for (i, a) in p.inputs.iter().enumerate() {
            let Some(at) = self.target_at(&top.path, i) else { return };
            if i + 1 < top.exact && !self.price(i, at) {
                return;
            }
            let Some(target) = &self.targets[i][at].1 else { return };
            let least = target.least.max(p.least(a, &known[i], p.slots.len()));
            top.least += a.count * target.exact.as_ref().map_or(least, |e| e.0);
            top.changed += if target.changed { a.count } else { 0 };
        }
        if self.untouched && top.changed > 0 {
            return;
        }
        top.least += if top.exact > p.inputs.len() + 1 {
            let Some(made) = self.made(&top.path) else { return };
            made.cost
        } else {
            (0..p.wishes.len()).map(|o| p.least_of_wish(o, &top.path)).sum::<u64>()
        };
        self.queue.push(top);
    }

    /// What one input becomes by a whole path.
    pub(super) fn target(&mut self, path: &Path, input: usize) -> Option<&Target> {
        let at = self.target_at(path, input)?;
        if self.price(input, at) { self.targets[input][at].1.as_ref() } else { None }
    }

    /// Where that is kept; `None` where it cannot be.
    fn target_at(&mut self, path: &Path, input: usize) -> Option<usize> {
        let p = self.problem;
        let a = &p.inputs[input];
        let word: Word =
            path.iter().enumerate().map(|(slot, &row)| a.letters[slot][usize::from(row)]).collect();
        let at = match self.known_words[input].get(&word) {
            Some(&at) => at as usize,
            None => {
                let made = bounded(p, a, path).map_err(|e| self.refusal = Some(e)).ok();
                let at = self.targets[input].len();
                self.targets[input].push((word.clone(), made));
                self.known_words[input].insert(word, at as u32);
                at
            }
        };
        self.targets[input][at].1.is_some().then_some(at)
    }

    /// Asks the planner for the exact cost of a target, once; whether there is a plan.
    fn price(&mut self, input: usize, at: usize) -> bool {
        let p = self.problem;
        let a = &p.inputs[input];
        let Some(target) = &mut self.targets[input][at].1 else { return false };
        if target.exact.is_some() {
            return true;
        }
        STATS[2].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match p.planner.plan(a.source, &target.sharding, a.item_bytes) {
            Ok(plan) => {
                target.exact = Some((picoseconds(&plan), Some(plan)));
                true
            }
            Err(e) => {
                self.refusal = Some(e);
                self.targets[input][at].1 = None;
                false
            }
        }
    }

    /// What the outputs are by a whole path.
    pub(super) fn made(&mut self, path: &Path) -> Option<&Made> {
        let p = self.problem;
        let at = match self.made.iter().position(|m| m.0 == *path) {
            Some(at) => at,
            None => {
                let first =
                    if p.op.is_view() { self.target(path, 0).map(|t| t.sharding.clone()) } else { None };
                let made = match make_outputs(p, path, first.as_ref()) {
                    Ok(made) => Some(made),
                    Err(e) => {
                        self.refusal = Some(e);
                        None
                    }
                };
                self.made.push((path.clone(), made));
                self.made.len() - 1
            }
        };
        self.made[at].1.as_ref()
    }
}

/// A target with what the planner says that it cannot cost less than.
fn bounded(p: &Problem<'_>, a: &Alike<'_>, path: &Path) -> Result<Target, Error> {
    STATS[1].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let sharding = p.target(path, a.operand, a.source.shape())?;
    if sharding == *a.source {
        return Ok(Target { sharding, changed: false, least: 0, exact: Some((0, None)) });
    }
    let least = picoseconds_below(p.planner.lower_bound_us(a.source, &sharding, a.item_bytes)?);
    Ok(Target { sharding, changed: true, least, exact: None })
}

fn make_outputs(p: &Problem<'_>, path: &Path, first: Option<&Sharding>) -> Result<Made, Error> {
    let mut outputs = p.outputs(path, first)?;
    let mut cost = 0;
    let mut plans = Vec::new();
    for (out, wish) in outputs.iter_mut().zip(p.wishes) {
        plans.push(match wish {
            Wish::Prefer { sharding, penalty_us } => {
                let extra = (penalty_us.max(0.0) * 1e6).round() as u64;
                cost += if out == sharding { 0 } else { extra };
                None
            }
            Wish::Become(sharding) if out != sharding => {
                let plan = p.planner.plan(out, sharding, p.output_bytes)?;
                cost += picoseconds(&plan);
                *out = sharding.clone();
                Some(plan)
            }
            Wish::Any | Wish::Become(_) => None,
        });
    }
    plans.resize(outputs.len(), None);
    Ok(Made { outputs, plans, cost })
}

/// The steps of a plan in whole picoseconds, so that the order of additions decides nothing.
fn picoseconds(plan: &Plan) -> u64 {
    plan.steps().iter().map(|s| (s.cost_us * 1e6).round() as u64).sum()
}

#[doc(hidden)]
pub static STATS: [std::sync::atomic::AtomicU64; 3] = [const { std::sync::atomic::AtomicU64::new(0) }; 3];
