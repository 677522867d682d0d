//! The best plan that changes, at a time, the placements of one axis or of several axes that have a group.
//!
//! Where only some groups may be used and shards are uneven, no digit system lists the possible paths. So all
//! of them are tried, by Dijkstra over placements. Every step is one exchange of regions, one reduction, or
//! local:
//!
//! ```text
//! node    a placement of each axis: that of the source, of the target, replicated, a shard of any dim, partial by the target's op
//! edge    some axes get others, in one step whose group may be used, or that does not communicate
//! cost    the objective's, step by step
//! ```
//!
//! Partial axes that go away are reduced in one step with nothing else. When they are combined in rank order,
//! all that ever go away do so in the same step. Every plan of one step per axis is a path of this graph, if
//! the graph has as many axes as the plan needs. The plan of a greedy planner is one of these. So a plan is
//! found here whenever one exists axis by axis.
//!
//! If no known plan keeps to the limits, any plan is searched for before the best one. That search has few
//! placements. It always expands the node at which most axes have reached the target. It changes each axis
//! alone first; several axes change jointly to the target, to replicas or to partial values. The cost of the
//! plan that it finds bounds the search for the best.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use reshard_layout::InlineVec;
use smallvec::SmallVec;

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::candidates::region_steps::lie_in;
use crate::candidates::regions;
use crate::choose::{admits, beats, key};
use crate::hash::WordMap;
use crate::model::totals::{Cost, Key, add};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::plan::Plan;
use crate::problem::Question;
use crate::step::Step;
use crate::stop;
use reshard_sharding::{Placement, Sharding, SubAxis};

/// Maximum number of axes whose subsets are all tried when the best plan is searched for.
///
/// `AXES_OF_ANY` is the same for the search for any plan. `NODES` limits the nodes of the search for the
/// best.
const AXES: usize = 8;
const AXES_OF_ANY: usize = 12;
const NODES: u64 = 1 << 20;

/// Ratio of a plan to its lower bound above which a better plan is searched for.
///
/// `FEW` limits axes and dims, and `FEW_RANKS` the ranks, to those for which that is fast.
const FAR: f64 = 1.1;
const FEW: usize = 2;
const FEW_RANKS: usize = 64;

/// Work of examining a step, for each rank, in addition to that of an exchange of regions.
const OF_RANK: u64 = 128;

/// Work after which the search ends if no plan is known.
pub(super) const UNTIL_ANY: u64 = 60_000_000;

/// A node: the index of the placement of each axis, as one number.
type Letters = u64;

struct Node {
    sharding: Sharding,
    cost: Key,
    steps: usize,
    parent: Option<(Letters, Step)>,
    done: bool,
    /// `true` if each axis alone was tried from here, in a search that starts with these.
    singly: bool,
    /// `true` if an all-reduce is on the path to this node.
    all_reduced: bool,
}

/// Per axis, its possible placements, with the initial one first.
pub(super) type Choices = SmallVec<[Vec<Placement>; 4]>;

/// The order in which nodes are expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The cheapest node first: the first arrival at the target is the best.
    CheapestFirst,
    /// The node with most axes at the target first.
    NearestFirst,
}

/// The sets of axes that change in a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sets {
    All,
    Single,
    Larger,
}

/// The kind of group that covers some axes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Serves {
    /// A group of exactly these axes.
    Exactly,
    /// A group that has other axes too.
    Among,
    Nowhere,
}

struct Graph<'q, 'a> {
    q: &'q Question<'a>,
    /// The axes of the groups that may be used; `None` if all may be.
    given: Option<Vec<InlineVec<SubAxis, 4>>>,
    choices: &'q Choices,
    /// Per axis, the index of the target's placement.
    goal: SmallVec<[usize; 8]>,
    order: Order,
    nodes: WordMap<Letters, Node>,
    /// Entries: distance to the target if the order uses it, cost, number of steps, node.
    queue: BinaryHeap<Reverse<(usize, Key, usize, Letters)>>,
    /// The cost that must be beaten.
    known: Option<Key>,
    work: u64,
    /// Limit of the work.
    most: u64,
}

/// Returns `true` if this search may find a better plan.
///
/// It may if no known plan keeps to the limits. It may also if the best known plan is far from its bound, and
/// either only some groups may be used or the axes are few.
pub(super) fn may_help(q: &Question<'_>, best: Option<&Plan>, by_regions: bool) -> bool {
    let Some(best) = best else { return true };
    let may_be_dear = by_regions || q.options.objective == Objective::Peak || owes_uneven(q);
    let may = q.options.groups.is_some() || are_few(q) && may_be_dear;
    may && is_far(q, best, FAR)
}

/// Returns `true` if a plan is more than `times` its bound.
pub(super) fn is_far(q: &Question<'_>, plan: &Plan, times: f64) -> bool {
    match q.options.objective {
        Objective::Time => plan.cost_us() > times * plan.lower_bound_us,
        Objective::Bytes => {
            plan.lower_bound_bytes.is_none_or(|b| plan.received_bytes as f64 > times * b as f64)
        }
        Objective::Peak => plan.peak_bytes > plan.max_shard_bytes(),
    }
}

/// Returns `true` if replicas become partial that could split the work of a dim only unevenly.
///
/// Their number divides no dim, and digits do not represent such a split.
pub(super) fn owes_uneven(q: &Question<'_>) -> bool {
    let divides = |n: usize| q.from.shape().iter().any(|len| len.is_multiple_of(n));
    are_few(q) && q.to.partial().iter().any(|p| !divides(p.sub.size))
}

fn are_few(q: &Question<'_>) -> bool {
    let mesh = q.from.mesh();
    let axes = mesh.axes().iter().filter(|a| a.size() > 1).count();
    q.on_one_mesh() && mesh.size() <= FEW_RANKS && axes <= FEW && q.from.shape().len() <= FEW
}

/// Returns the best of these plans if it beats `known`, without its bounds, and the effort.
///
/// If no plan is known, any plan is searched for first, through the nodes with most axes at the target. Its
/// cost bounds the rest.
pub(super) fn best_plan(q: &Question<'_>, known: Option<&Plan>) -> Result<(Option<Plan>, Effort), Error> {
    // Each step examines every rank.
    let may = q.on_one_mesh() && q.few_ranks().is_ok();
    let (Ok(from), Ok(to), true) = (q.from.placements(), q.to.placements(), may) else {
        return Ok((None, Effort::default()));
    };
    let most = q.options.budget.work();
    let all = |is_known: bool| choices(q, [&from, &to], true, !is_known || q.options.groups.is_some());
    if known.is_some() {
        return search(q, &all(true), Order::CheapestFirst, known, most);
    }
    let until = most.max(UNTIL_ANY);
    let (any, effort) = search(q, &choices(q, [&from, &to], false, true), Order::NearestFirst, None, until)?;
    let (best, more) = search(q, &all(false), Order::CheapestFirst, any.as_ref(), until)?;
    Ok((best.or(any), effort.and(more)))
}

/// Returns the possible placements of each axis.
///
/// They are those of the source and the target, replicated, partial, and with `more` a shard of any dim.
/// Partial placements have the op of the target. They have the op of the source where all of these may have
/// to go away in a group that has other axes too.
pub(super) fn choices(
    q: &Question<'_>,
    [from, to]: [&[Placement]; 2],
    more: bool,
    of_source: bool,
) -> Choices {
    let is_partial = |p: &&Placement| matches!(p, Placement::Partial(_));
    let of_source = from.iter().find(|p| is_partial(p) && of_source);
    let terms = to.iter().find(is_partial).or(of_source);
    let mut choices = Choices::new();
    for ((a, b), axis) in from.iter().zip(to).zip(q.from.mesh().axes()) {
        let mut of_axis = vec![if axis.size() == 1 { b } else { a }.clone()];
        let dims = (0..if more { q.from.shape().len() } else { 0 }).map(Placement::Shard);
        let others = [b.clone(), Placement::Replicate].into_iter().chain(dims).chain(terms.cloned());
        for other in others.filter(|_| axis.size() > 1) {
            if !of_axis.contains(&other) {
                of_axis.push(other);
            }
        }
        choices.push(of_axis);
    }
    choices
}

/// Returns the index of the choice of each axis in a node.
pub(super) fn digits(choices: &Choices, mut word: Letters) -> SmallVec<[usize; 8]> {
    let mut digits = SmallVec::new();
    for of_axis in choices {
        digits.push((word % of_axis.len() as u64) as usize);
        word /= of_axis.len() as u64;
    }
    digits
}

/// Returns the best plan, or any plan, over these choices if it beats `known`.
fn search(
    q: &Question<'_>,
    choices: &Choices,
    order: Order,
    known: Option<&Plan>,
    most: u64,
) -> Result<(Option<Plan>, Effort), Error> {
    let nodes = choices.iter().try_fold(1u64, |n, c| n.checked_mul(c.len() as u64));
    let moving = choices.iter().filter(|c| c.len() > 1).count();
    let most_axes = match order {
        Order::CheapestFirst => AXES,
        Order::NearestFirst => AXES_OF_ANY,
    };
    if moving > most_axes || nodes.is_none_or(|n| n > NODES && order == Order::CheapestFirst) {
        return Ok((None, Effort::default()));
    }
    let known_key = known.map(|plan| key(q.options, plan));
    let first = Node {
        sharding: q.from.clone(),
        cost: [0, 0],
        steps: 0,
        parent: None,
        done: false,
        singly: false,
        all_reduced: false,
    };
    let to = q.to.placements()?;
    let goal =
        choices.iter().zip(to.iter()).map(|(of_axis, b)| of_axis.iter().position(|c| c == b).unwrap_or(0));
    let mesh = q.from.mesh();
    let given = q.options.groups.as_ref();
    let mut graph = Graph {
        q,
        given: given.map(|known| known.iter().filter_map(|g| mesh.axes_of_group(g)).collect()),
        choices,
        goal: goal.collect(),
        order,
        nodes: WordMap::default(),
        queue: BinaryHeap::from([Reverse((0, [0, 0], 0, 0))]),
        known: known_key.map(|[a, b, _]| [a, b]),
        work: 0,
        most,
    };
    graph.nodes.insert(0, first);
    let mut exhausted = false;
    while let Some(Reverse((_, cost, _, word))) = graph.queue.pop() {
        stop::go_on()?;
        let Some(node) = graph.nodes.get_mut(&word).filter(|node| !node.done && node.cost == cost) else {
            continue;
        };
        node.done = true;
        if node.sharding == *q.to {
            let plan = assemble_unbounded(q, graph.way(word), None)?;
            let effort = Effort { work: graph.work, exhausted };
            return Ok(((beats(q, &plan, known) && admits(q.options, &plan)).then_some(plan), effort));
        }
        exhausted = graph.work > most;
        if exhausted {
            break;
        }
        let at = node.sharding.clone();
        let sets = match (order, node.singly) {
            (Order::CheapestFirst, _) => Sets::All,
            (Order::NearestFirst, false) => Sets::Single,
            (Order::NearestFirst, true) => Sets::Larger,
        };
        if sets == Sets::Single {
            // Larger sets are tried only if single axes lead no further.
            (node.done, node.singly) = (false, true);
            let (cost, steps) = (node.cost, node.steps);
            graph.queue.push(Reverse((moving + 1, cost, steps, word)));
        }
        graph.expand(word, &at, sets)?;
    }
    Ok((None, Effort { work: graph.work, exhausted }))
}

impl Graph<'_, '_> {
    /// Returns the steps that lead to a node.
    fn way(&self, mut word: Letters) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((before, step)) = self.nodes.get(&word).and_then(|node| node.parent.as_ref()) {
            steps.push(step.clone());
            word = *before;
        }
        steps.reverse();
        steps
    }

    /// Returns the partial placement that axes may have.
    fn terms(&self) -> Option<Placement> {
        self.choices.iter().flatten().find(|p| matches!(p, Placement::Partial(_))).cloned()
    }

    /// Returns the number of axes that are not at the target.
    fn far(&self, now: &[usize]) -> usize {
        now.iter().zip(&self.goal).filter(|(now, goal)| now != goal).count()
    }

    /// Returns the kind of group that lets some axes communicate.
    fn serves(&self, axes: &[usize]) -> Serves {
        let mesh = self.q.from.mesh();
        let Some(given) = &self.given else { return Serves::Exactly };
        let whole: SmallVec<[SubAxis; 8]> = axes.iter().map(|&a| mesh.known_whole(a)).collect();
        let size = |axes: &[SubAxis]| axes.iter().map(|s| s.size).product::<usize>();
        let mut serves = Serves::Nowhere;
        for group in given.iter().filter(|group| lie_in(&whole, group)) {
            serves = if size(group) == size(&whole) { return Serves::Exactly } else { Serves::Among };
        }
        serves
    }

    /// Visits every node that one step reaches.
    ///
    /// A step changes a set of axes whose group may be used, or one axis, since it may need no communication.
    fn expand(&mut self, word: Letters, at: &Sharding, sets: Sets) -> Result<(), Error> {
        let now = digits(self.choices, word);
        let moving: SmallVec<[usize; 8]> = (0..now.len()).filter(|&a| self.choices[a].len() > 1).collect();
        for set in 1usize..1 << moving.len() {
            let axes = moving.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
            let axes: SmallVec<[usize; 8]> = axes.map(|(_, a)| *a).collect();
            let is_asked = match sets {
                Sets::All => true,
                Sets::Single => axes.len() == 1,
                Sets::Larger => axes.len() > 1,
            };
            if !is_asked {
                continue;
            }
            // Two axes, or all, may be exchanged in a smaller group than theirs.
            let nearest = self.order == Order::NearestFirst;
            let always = nearest && (axes.len() == 2 || axes.len() == moving.len());
            let serves = if axes.len() == 1 { Serves::Exactly } else { self.serves(&axes) };
            if serves == Serves::Nowhere && !always {
                continue;
            }
            let mut next = now.clone();
            if axes.len() > 1 && (nearest || serves == Serves::Among) {
                // All of them change to the target, to replicated, or to partial.
                for placement in
                    [None, Some(Placement::Replicate)].into_iter().chain(self.terms().into_iter().map(Some))
                {
                    for &axis in &axes {
                        let of_axis = &self.choices[axis];
                        let choice = placement.as_ref().and_then(|p| of_axis.iter().position(|c| c == p));
                        next[axis] = choice.unwrap_or(self.goal[axis]);
                    }
                    self.visit(word, at, &next)?;
                }
                continue;
            }
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
        if self.work > self.most {
            return Ok(());
        }
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
        let is_seen = |node: &Node| node.done || node.cost <= reached || self.order == Order::NearestFirst;
        if known.is_some_and(is_seen) {
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
        self.work = self.work.saturating_add(work + OF_RANK * self.q.from.mesh().size() as u64);
        let options = self.q.options;
        let talks = step.op().communicates();
        if !options.admits_peak(step.peak_bytes) || (talks && !options.admits_group(&step.group)) {
            return Ok(());
        }
        // If every group may be used, nothing is reduced after an all-reduce.
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
        let node = Node {
            sharding: to,
            cost: total,
            steps: steps + 1,
            parent,
            done: false,
            singly: false,
            all_reduced,
        };
        self.nodes.insert(word, node);
        let far = match self.order {
            Order::CheapestFirst => 0,
            Order::NearestFirst => self.far(next),
        };
        self.queue.push(Reverse((far, total, steps + 1, word)));
        Ok(())
    }
}
