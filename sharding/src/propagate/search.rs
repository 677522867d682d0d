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

use crate::propagate::bound::Known;
use crate::propagate::problem::{Alike, Path, Problem};
use crate::propagate::wish::Wish;
use crate::redistribute::Plan;
use crate::rules::Entry;
use crate::{Error, Sharding};

/// What one input becomes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) sharding: Sharding,
    /// None if it stays as it is.
    pub(super) plan: Option<Plan>,
    cost: u64,
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
    /// How many inputs of a whole path have their exact cost in `least`; one more when the outputs have too.
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
type Targets = Vec<(SmallVec<[u8; 8]>, Option<Target>)>;

/// Paths in order of cost.
pub(super) struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    queue: BinaryHeap<Entered>,
    targets: SmallVec<[Targets; 3]>,
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
        Search { problem, queue, targets, made: Vec::new(), untouched, refusal: None }
    }

    /// The next best path.
    pub(super) fn next_best(&mut self) -> Option<Found> {
        let whole = self.problem.slots.len();
        while let Some(top) = self.queue.pop() {
            if top.path.len() < whole {
                self.extend(&top);
            } else if top.exact > self.problem.inputs.len() {
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

    /// Takes the exact cost of one more input, or of the outputs, into a whole path.
    fn refine(&mut self, mut top: Entered) {
        let p = self.problem;
        let known = self.known(&top.path);
        let slots = p.slots.len();
        top.exact += 1;
        (top.least, top.changed) = (0, 0);
        for (i, (a, k)) in p.inputs.iter().zip(&known).enumerate() {
            let (cost, changed) = if i < top.exact {
                let Some(target) = self.target(&top.path, i) else { return };
                (target.cost, target.plan.is_some())
            } else {
                (p.least(a, k, slots), k.changed)
            };
            top.least += a.count * cost;
            top.changed += if changed { a.count } else { 0 };
        }
        if self.untouched && top.changed > 0 {
            return;
        }
        top.least += if top.exact > p.inputs.len() {
            let Some(made) = self.made(&top.path) else { return };
            made.cost
        } else {
            (0..p.wishes.len()).map(|o| p.least_of_wish(o, &top.path)).sum::<u64>()
        };
        self.queue.push(top);
    }

    /// What one input becomes by a whole path; `None` where that cannot be.
    pub(super) fn target(&mut self, path: &Path, input: usize) -> Option<&Target> {
        let p = self.problem;
        let a = &p.inputs[input];
        let word: SmallVec<[u8; 8]> =
            path.iter().enumerate().map(|(slot, &row)| a.letters[slot][usize::from(row)]).collect();
        let at = match self.targets[input].iter().position(|t| t.0 == word) {
            Some(at) => at,
            None => {
                let target = match make(p, a, path) {
                    Ok(target) => Some(target),
                    Err(e) => {
                        self.refusal = Some(e);
                        None
                    }
                };
                self.targets[input].push((word, target));
                self.targets[input].len() - 1
            }
        };
        self.targets[input][at].1.as_ref()
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

fn make(p: &Problem<'_>, a: &Alike<'_>, path: &Path) -> Result<Target, Error> {
    let sharding = p.target(path, a.operand, a.source.shape())?;
    if sharding == *a.source {
        return Ok(Target { sharding, plan: None, cost: 0 });
    }
    let plan = p.planner.plan(a.source, &sharding, a.item_bytes)?;
    let cost = picoseconds(&plan);
    Ok(Target { sharding, plan: Some(plan), cost })
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
