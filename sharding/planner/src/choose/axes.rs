//! The best plan that changes placements of one axis, or of a few whose group exists, at a time.
//!
//! Where only some groups may be used and shards are uneven, no digit system says which ways there are. So all of these are tried, by
//! Dijkstra over placements, every step of which is one move of regions, one reduction, or local:
//!
//! ```text
//! node    a placement of each axis: that of the source, of the target, replicated, a shard of any dim, terms of the target's op
//! edge    some axes get others, in one step whose group may be used, or in which nobody talks
//! cost    the objective's, step by step
//! ```
//!
//! Terms that go away are reduced in one step with nothing else; combined in order, all that ever go in the same one.
//! On as many axes as a way needs, every plan of one step per axis is a path of this graph, what a greedy planner does included,
//! so that there is a plan here whenever there is one axis by axis.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::candidates::regions;
use crate::choose::ways::with_sent;
use crate::choose::{admits, key};
use crate::hash::WordMap;
use crate::model::totals::{Cost, Key, add};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::plan::Plan;
use crate::question::Question;
use crate::step::Step;
use reshard_sharding::{Placement, Sharding};

/// The most axes of which all sets are tried, and the most nodes.
const AXES: usize = 8;
const NODES: u64 = 1 << 20;

/// How far from its bound a plan is that is worth to look for a better one, and the most axes, dims and ranks for which that
/// is soon done.
const FAR: f64 = 1.1;
const FEW: usize = 2;
const FEW_RANKS: usize = 64;

/// The work of a reduction, beside what a move of regions takes.
const REDUCTION: u64 = 200;

/// The work after which nothing is looked for any more where no plan is known.
const UNTIL_ANY: u64 = 100_000_000;

/// A node: which of its axis' placements each axis has, as one number.
type Letters = u64;

struct Node {
    sharding: Sharding,
    cost: Key,
    steps: usize,
    parent: Option<(Letters, Step)>,
    done: bool,
    /// Whether an all-reduce led here.
    all_reduced: bool,
}

struct Graph<'q, 'a> {
    q: &'q Question<'a>,
    /// By axis, what it may be.
    choices: SmallVec<[Vec<Placement>; 4]>,
    nodes: WordMap<Letters, Node>,
    queue: BinaryHeap<Reverse<(Key, usize, Letters)>>,
    /// What must be beaten.
    known: Option<Key>,
    work: u64,
}

/// Whether there may be a better plan here: of regions where only some groups may be used, and where all may be, what is known
/// is far from the bound and the axes are few.
pub(super) fn may_help(q: &Question<'_>, best: Option<&Plan>, by_regions: bool) -> bool {
    if q.options.groups.is_some() {
        return best.is_none() || by_regions;
    }
    let far = |plan: &Plan| match q.options.objective {
        Objective::Time => plan.cost_us() > FAR * plan.lower_bound_us,
        Objective::Bytes => {
            plan.lower_bound_bytes.is_none_or(|b| plan.received_bytes as f64 > FAR * b as f64)
        }
        Objective::Peak => false,
    };
    (by_regions || owes_uneven(q)) && are_few(q) && best.is_some_and(far)
}

/// Whether replicas become terms that could share the work if they divided a dim, which digits do not see.
pub(super) fn owes_uneven(q: &Question<'_>) -> bool {
    let divides = |n: usize| q.from.shape().iter().any(|len| len.is_multiple_of(n));
    are_few(q) && q.to.partial().iter().any(|p| !divides(p.sub.size))
}

fn are_few(q: &Question<'_>) -> bool {
    let mesh = q.from.mesh();
    let axes = mesh.axes().iter().filter(|a| a.size() > 1).count();
    q.on_one_mesh() && mesh.size() <= FEW_RANKS && axes <= FEW && q.from.shape().len() <= FEW
}

/// The best of these plans if it beats `known`, without its bounds, and what it took.
pub(super) fn best_plan(q: &Question<'_>, known: Option<&Plan>) -> Result<(Option<Plan>, Effort), Error> {
    let none = || Ok((None, Effort::default()));
    let (Ok(from), Ok(to), true) = (q.from.placements(), q.to.placements(), q.on_one_mesh()) else {
        return none();
    };
    let mut choices: SmallVec<[Vec<Placement>; 4]> = SmallVec::new();
    let terms = to.iter().find(|p| matches!(p, Placement::Partial(_)));
    for (a, b) in from.iter().zip(to.iter()) {
        let mut of_axis = vec![a.clone()];
        let dims = (0..q.from.shape().len()).map(Placement::Shard);
        for more in [b.clone(), Placement::Replicate].into_iter().chain(dims).chain(terms.cloned()) {
            if !of_axis.contains(&more) {
                of_axis.push(more);
            }
        }
        choices.push(of_axis);
    }
    let nodes = choices.iter().try_fold(1u64, |n, c| n.checked_mul(c.len() as u64));
    if choices.len() > AXES || nodes.is_none_or(|n| n > NODES) {
        return none();
    }
    let known_key = known.map(|plan| key(q.options, plan));
    let first = Node {
        sharding: q.from.clone(),
        cost: [0, 0],
        steps: 0,
        parent: None,
        done: false,
        all_reduced: false,
    };
    let mut graph = Graph {
        q,
        choices,
        nodes: WordMap::default(),
        queue: BinaryHeap::from([Reverse(([0, 0], 0, 0))]),
        known: known_key.map(|[a, b, _]| [a, b]),
        work: 0,
    };
    graph.nodes.insert(0, first);
    let mut exhausted = false;
    let most = q.options.budget.work();
    while let Some(Reverse((cost, _, word))) = graph.queue.pop() {
        let Some(node) = graph.nodes.get_mut(&word).filter(|node| !node.done && node.cost == cost) else {
            continue;
        };
        node.done = true;
        if node.sharding == *q.to {
            let plan = assemble_unbounded(q, with_sent(q, graph.way(word))?, None)?;
            let wins = known_key.is_none_or(|k| key(q.options, &plan) < k);
            let effort = Effort { work: graph.work, exhausted };
            return Ok(((wins && admits(q.options, &plan)).then_some(plan), effort));
        }
        exhausted = graph.work > if known.is_some() { most } else { most.max(UNTIL_ANY) };
        if exhausted {
            break;
        }
        let at = node.sharding.clone();
        graph.expand(word, &at)?;
    }
    Ok((None, Effort { work: graph.work, exhausted }))
}

impl Graph<'_, '_> {
    /// The steps that lead to a node.
    fn way(&self, mut word: Letters) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((before, step)) = self.nodes.get(&word).and_then(|node| node.parent.as_ref()) {
            steps.push(step.clone());
            word = *before;
        }
        steps.reverse();
        steps
    }

    /// What each axis is in a node.
    fn digits(&self, mut word: Letters) -> SmallVec<[usize; 8]> {
        let mut digits = SmallVec::new();
        for of_axis in &self.choices {
            digits.push((word % of_axis.len() as u64) as usize);
            word /= of_axis.len() as u64;
        }
        digits
    }

    /// Every node that one step reaches: each set of axes whose group may be used, and each axis alone, since nobody
    /// may have to talk.
    fn expand(&mut self, word: Letters, at: &Sharding) -> Result<(), Error> {
        let now = self.digits(word);
        let mesh = self.q.from.mesh();
        for set in 1usize..1 << now.len() {
            let axes: SmallVec<[usize; 8]> = (0..now.len()).filter(|a| set >> a & 1 == 1).collect();
            let whole: SmallVec<[_; 8]> = axes.iter().map(|&a| mesh.known_whole(a)).collect();
            if axes.len() > 1 && !mesh.group(&whole).is_ok_and(|group| self.q.options.admits_group(&group)) {
                continue;
            }
            let mut next = now.clone();
            self.each_choice(&axes, &now, &mut next, &mut |graph, next| graph.visit(word, at, next))?;
        }
        Ok(())
    }

    fn each_choice(
        &mut self,
        axes: &[usize],
        now: &[usize],
        next: &mut SmallVec<[usize; 8]>,
        f: &mut impl FnMut(&mut Self, &[usize]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some((&axis, rest)) = axes.split_first() else { return f(self, next) };
        for choice in (0..self.choices[axis].len()).filter(|&choice| choice != now[axis]) {
            next[axis] = choice;
            self.each_choice(rest, now, next, f)?;
        }
        next[axis] = now[axis];
        Ok(())
    }

    fn visit(&mut self, from: Letters, at: &Sharding, next: &[usize]) -> Result<(), Error> {
        let mut word = 0;
        for (of_axis, &choice) in self.choices.iter().zip(next).rev() {
            word = word * of_axis.len() as u64 + choice as u64;
        }
        let (reached, steps) = self.nodes.get(&from).map_or(([0, 0], 0), |node| (node.cost, node.steps));
        let known = self.nodes.get(&word);
        if known.is_some_and(|node| node.done || node.cost <= reached) {
            return Ok(());
        }
        let to = if let Some(node) = known {
            node.sharding.clone()
        } else {
            let placed: Vec<Placement> =
                self.choices.iter().zip(next).map(|(of_axis, &choice)| of_axis[choice].clone()).collect();
            let Ok(made) = Sharding::new(self.q.from.mesh(), self.q.from.shape(), &placed) else {
                return Ok(());
            };
            made
        };
        let Some((step, work)) = regions::one_step(self.q, at, &to)? else { return Ok(()) };
        self.work = self.work.saturating_add(work + REDUCTION);
        let options = self.q.options;
        let talks = step.op().communicates();
        if !options.admits_peak(step.peak_bytes) || (talks && !options.admits_group(&step.group)) {
            return Ok(());
        }
        // Where every group may be used, nothing is reduced after an all-reduce.
        let all_reduces = step.op() == StepOp::AllReduce;
        let done = self.nodes.get(&from).is_some_and(|node| node.all_reduced);
        let reduces = at.partial().iter().any(|p| !to.partial().contains(p));
        if options.groups.is_none() && done && reduces {
            return Ok(());
        }
        let cost = Cost::new(step.cost_us, step.received_bytes, step.peak_bytes);
        let total = add(options.objective, reached, &cost);
        let (least, fewest) =
            self.nodes.get(&word).map_or(([u64::MAX; 2], usize::MAX), |n| (n.cost, n.steps));
        if self.known.is_some_and(|k| total > k) || (least, fewest) <= (total, steps + 1) {
            return Ok(());
        }
        let parent = Some((from, step));
        let all_reduced = done || all_reduces;
        let node = Node { sharding: to, cost: total, steps: steps + 1, parent, done: false, all_reduced };
        self.nodes.insert(word, node);
        self.queue.push(Reverse((total, steps + 1, word)));
        Ok(())
    }
}
