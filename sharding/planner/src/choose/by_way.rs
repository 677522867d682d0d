//! The shortest path through any placements: two-stage plans, generalized to any number of stages. Uneven
//! partial values may need fewer bytes on it.
//!
//! A* over a graph that is small where the mesh is:
//!
//! ```text
//! node    a placement of each axis: that of the source, of the target, replicated, a shard of any dim, partial; where axes share a dim,
//!         in either order
//! edge    from each to each, the best direct plan between them, including the transposed plan and one exchange
//! cost    the bytes that the worst rank receives on the whole path
//! ahead   lower bound of the bytes of any plan from here to the target
//! ```
//!
//! An edge is planned when it is the first in the queue; until then it waits there with its lower bound in
//! bytes. Two consecutive paths of this graph form a path of it, which is why
//! `bytes(S, U) <= bytes(S, T) + bytes(T, U)` for its nodes. Exceptions are paths that the budget leaves out,
//! and two paths to a node with different worst ranks.
//!
//! This search runs last. It returns a plan only if that beats the best known one, so that it never makes a
//! plan worse.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use reshard_layout::InlineVec;

use crate::Error;
use crate::assemble::{assemble_unbounded, received_by_rank};
use crate::budget::Effort;
use crate::candidates::regions::pieces;
use crate::choose::{admits, axes, turned};
use crate::hash::WordMap;
use crate::op::StepOp;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::problem::Question;
use crate::step::Step;
use crate::stop;
use reshard_sharding::{Placement, Sharding, SubAxis};

/// Maximum number of ranks for which this search runs.
///
/// `DIMS` is the most dims, and `PLACED` the most placements that are considered.
const RANKS: usize = 32;
const DIMS: usize = 2;
const PLACED: u64 = 1 << 8;

/// Work of planning an edge, for each rank, and of a bound, in addition to the planner's own count.
const OF_RANK: u64 = 1 << 7;
const OF_BOUND: u64 = 1 << 8;

/// Returns `true` if the graph is small enough.
pub(super) fn is_small(q: &Question<'_>) -> bool {
    q.from.mesh().size() <= RANKS && q.from.shape().len() <= DIMS
}

/// Indices of the source and the target among the nodes.
const SOURCE: usize = 0;
const TARGET: usize = 1;

/// Returns the best plan if it receives less than `most`, without its bounds, and the effort.
///
/// The search stops when the budget is exhausted, so that a smaller budget never finds more.
pub(super) fn best_plan(q: &Question<'_>, most: u64) -> Result<(Option<Plan>, Effort), Error> {
    let nodes = nodes(q)?;
    let options = q.options.without_limits();
    let graph = Graph {
        q,
        options: &options,
        ahead: WordMap::default(),
        nodes,
        edges: WordMap::default(),
        paths: vec![Path {
            node: SOURCE,
            before: None,
            by_rank: vec![0; q.from.mesh().size()],
            all_reduced: false,
        }],
        queue: BinaryHeap::new(),
        most,
        effort: Effort::default(),
    };
    graph.search()
}

/// Returns the shardings of the graph, the source and the target first.
///
/// There are no others if there would be too many.
fn nodes(q: &Question<'_>) -> Result<Vec<Sharding>, Error> {
    let mut all = vec![q.from.clone(), q.to.clone()];
    let (Ok(from), Ok(to)) = (q.from.placements(), q.to.placements()) else { return Ok(all) };
    let choices = axes::choices(q, [&from, &to], true, true);
    let count = choices.iter().fold(1u64, |n, c| n.saturating_mul(c.len() as u64));
    for word in 0..if count > PLACED { 0 } else { count } {
        let digits = axes::digits(&choices, word);
        let placements: Vec<Placement> =
            choices.iter().zip(digits).map(|(of_axis, choice)| of_axis[choice].clone()).collect();
        let Ok(placed) = Sharding::new(q.from.mesh(), q.from.shape(), &placements) else { continue };
        for made in the_other_way_round(&placed, &placements)?.into_iter().chain([placed]) {
            if !all.contains(&made) {
                all.push(made);
            }
        }
    }
    Ok(all)
}

/// Returns, for each dim that axes share, the sharding that splits it in the reverse order.
fn the_other_way_round(placed: &Sharding, placements: &[Placement]) -> Result<Vec<Sharding>, Error> {
    let mut all = Vec::new();
    for dim in 0..placed.shape().len() {
        let subs: InlineVec<SubAxis, 4> = placed.dim_cuts(dim).iter().rev().map(|cut| cut.sub).collect();
        if subs.len() < 2 {
            continue;
        }
        let mut bare = placements.to_vec();
        for sub in &subs {
            bare[sub.axis] = Placement::Replicate;
        }
        let bare = Sharding::new(placed.mesh(), placed.shape(), &bare)?;
        all.extend(pieces(&bare, &subs, dim)?);
    }
    Ok(all)
}

/// A path from the source to a node.
struct Path {
    node: usize,
    /// Index of the path without its last edge.
    before: Option<usize>,
    /// Bytes that each rank received on it.
    by_rank: Vec<u64>,
    /// `true` if a reduction on it produced replicas.
    all_reduced: bool,
}

impl Path {
    /// Returns the bytes of the worst rank.
    fn received(&self) -> u64 {
        self.by_rank.iter().copied().max().unwrap_or(0)
    }
}

/// The next unit of the search.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// The end of a path, to be expanded.
    From(usize),
    /// One more edge of a path, with the lower bound of its bytes.
    Along { path: usize, to: usize, least: u64 },
}

/// The best plan between two nodes.
struct Edge {
    steps: Vec<Step>,
    /// Bytes that each rank receives.
    by_rank: Vec<u64>,
}

struct Graph<'q, 'a> {
    q: &'q Question<'a>,
    options: &'q PlanOptions,
    nodes: Vec<Sharding>,
    ahead: WordMap<usize, Option<u64>>,
    edges: WordMap<(usize, usize), Option<Edge>>,
    paths: Vec<Path>,
    /// Ordered by the lower bound of the bytes of a path.
    ///
    /// Among equal ones, the entry comes first that was added when most were waiting.
    queue: BinaryHeap<Reverse<(u64, Reverse<usize>, Next)>>,
    /// The number of bytes that must be beaten.
    most: u64,
    effort: Effort,
}

/// Per node, whether the shortest path to it is known: without any all-reduce, and with one.
type Done = Vec<[bool; 2]>;

impl Graph<'_, '_> {
    fn search(mut self) -> Result<(Option<Plan>, Effort), Error> {
        let mut done: Done = vec![[false; 2]; self.nodes.len()];
        let mut best: Option<Plan> = None;
        self.push(0, Next::From(0));
        while let Some(Reverse((least, _, next))) = self.queue.pop() {
            if least >= self.most {
                break;
            }
            match next {
                Next::From(path) if self.paths[path].node == TARGET => {
                    let plan = assemble_unbounded(self.q, self.steps(path), None)?;
                    if admits(self.q.options, &plan) && plan.received_bytes < self.most {
                        self.most = plan.received_bytes;
                        best = Some(plan);
                    }
                }
                Next::From(path) => self.expand(path, &mut done)?,
                Next::Along { path, to, least } => {
                    let Path { node, all_reduced, .. } = self.paths[path];
                    if done[to][usize::from(all_reduced)] {
                        continue;
                    }
                    self.plan(node, to, least)?;
                    if self.effort.exhausted {
                        break;
                    }
                    self.extend(path, to)?;
                }
            }
        }
        Ok((best, self.effort))
    }

    /// Queues all edges from the end of a path, if it is the shortest to there.
    fn expand(&mut self, path: usize, done: &mut Done) -> Result<(), Error> {
        let Path { node, all_reduced, .. } = self.paths[path];
        if core::mem::replace(&mut done[node][usize::from(all_reduced)], true) {
            return Ok(());
        }
        let received = self.paths[path].received();
        for (to, done) in done.iter().enumerate() {
            let is_known = node == SOURCE && to == TARGET;
            if to == SOURCE || is_known || done[usize::from(all_reduced)] {
                continue;
            }
            let Some(ahead) = self.ahead(to)? else { continue };
            if received.saturating_add(ahead) >= self.most {
                continue;
            }
            let Some(least) = self.least(node, to)? else { continue };
            self.push(received.saturating_add(least).saturating_add(ahead), Next::Along { path, to, least });
        }
        Ok(())
    }

    fn push(&mut self, least: u64, next: Next) {
        if least < self.most {
            let age = Reverse(self.queue.len());
            self.queue.push(Reverse((least, age, next)));
        }
    }

    /// Adds a path with one more edge, if that edge has a plan.
    fn extend(&mut self, path: usize, to: usize) -> Result<(), Error> {
        let Path { node, all_reduced, ref by_rank, .. } = self.paths[path];
        let Some(Some(edge)) = self.edges.get(&(node, to)) else { return Ok(()) };
        // Replicas come from one reduction: another group may round differently. Where only some groups may
        // be used, a second reduction may be the only path.
        if all_reduced && self.q.options.groups.is_none() && edge.steps.iter().any(Step::adds) {
            return Ok(());
        }
        let all_reduced = all_reduced || edge.steps.iter().any(|step| step.op() == StepOp::AllReduce);
        let by_rank: Vec<u64> =
            by_rank.iter().zip(&edge.by_rank).map(|(a, b)| a.saturating_add(*b)).collect();
        let Some(ahead) = self.ahead(to)? else { return Ok(()) };
        let longer = Path { node: to, before: Some(path), by_rank, all_reduced };
        self.push(longer.received().saturating_add(ahead), Next::From(self.paths.len()));
        self.paths.push(longer);
        Ok(())
    }

    /// Returns the lower bound in bytes from a node to the target; `None` if there is no plan.
    fn ahead(&mut self, node: usize) -> Result<Option<u64>, Error> {
        if node == TARGET {
            return Ok(Some(0));
        }
        if let Some(&known) = self.ahead.get(&node) {
            return Ok(known);
        }
        let least = self.least(node, TARGET)?;
        self.ahead.insert(node, least);
        Ok(least)
    }

    fn question(&self, from: usize, to: usize) -> Option<Question<'_>> {
        Question::checked(self.options, &self.nodes[from], &self.nodes[to], self.q.dtype).ok()
    }

    /// Returns the lower bound in bytes from one node to another.
    fn least(&mut self, from: usize, to: usize) -> Result<Option<u64>, Error> {
        self.effort.work += OF_BOUND;
        self.question(from, to).map(|part| part.least_bytes()).transpose()
    }

    /// Plans an edge; a part that cannot be planned has none.
    fn plan(&mut self, from: usize, to: usize, least: u64) -> Result<(), Error> {
        if self.edges.contains_key(&(from, to)) {
            return Ok(());
        }
        let mut edge = None;
        let mut effort = Effort::default();
        if let Some(part) = self.question(from, to)
            && let Ok(mut best) = turned(&part, least)
        {
            best.exchange(&part, &mut None)?;
            effort = best.effort;
            if let Some(Plan { steps, .. }) = best.plan {
                edge = Some(Edge { by_rank: received_by_rank(&part, &steps)?, steps });
            }
        }
        self.effort = self.effort.and(effort);
        self.effort.work += OF_RANK * self.q.from.mesh().size() as u64;
        self.effort.exhausted |= self.effort.work > self.q.options.budget.work() || stop::is_stopped();
        self.edges.insert((from, to), edge);
        Ok(())
    }

    /// Returns the steps of a path.
    fn steps(&self, path: usize) -> Vec<Step> {
        let mut edges = Vec::new();
        let mut at = path;
        while let Some(before) = self.paths[at].before {
            edges.push((self.paths[before].node, self.paths[at].node));
            at = before;
        }
        let steps = |edge| self.edges.get(edge).into_iter().flatten().flat_map(|edge| &edge.steps);
        edges.iter().rev().flat_map(steps).cloned().collect()
    }
}
