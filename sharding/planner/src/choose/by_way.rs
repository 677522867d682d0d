//! The shortest way by way of any placements, where uneven terms may move fewer bytes so: detours of any number of parts.
//!
//! A* over a graph that is small where the mesh is:
//!
//! ```text
//! node    a placement of each axis: that of the source, of the target, replicated, a shard of any dim, terms; where axes share a dim,
//!         in their order and the other way round
//! edge    from each to each, the best plan between them that makes no detour itself, what the mirror says and one exchange among them
//! cost    the bytes that the worst rank receives on the whole way
//! ahead   the bytes that no plan from here to the target can do without
//! ```
//!
//! An edge is planned when it is the first in the queue, and waits there with the bytes that it cannot do without. A way of this
//! graph that goes on by another is a way of it, which is why `bytes(S, U) <= bytes(S, T) + bytes(T, U)` of its nodes, but for
//! what the budget leaves out and where two ways to a node have different worst ranks.
//!
//! It is asked after all else, and says something only if that beats what is known, so that no plan gets dearer by it.

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
use crate::question::Question;
use crate::step::Step;
use crate::stop;
use reshard_sharding::{Placement, Sharding, SubAxis};

/// The most ranks and dims for which it is asked, and placements that are looked at.
const RANKS: usize = 32;
const DIMS: usize = 2;
const PLACED: u64 = 1 << 8;

/// The work of planning an edge, for each rank, and of a bound, beside what the planner counts.
const OF_RANK: u64 = 1 << 7;
const OF_BOUND: u64 = 1 << 8;

/// Whether the graph is small enough.
pub(super) fn is_small(q: &Question<'_>) -> bool {
    q.from.mesh().size() <= RANKS && q.from.shape().len() <= DIMS
}

/// The source and the target among the nodes.
const SOURCE: usize = 0;
const TARGET: usize = 1;

/// The best of them if it receives less than `most`, without its bounds, and what it took.
///
/// Where the budget runs out it is looked no further, so that less of it never finds more.
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

/// The shardings of the graph, the source and the target first; no others if there are too many.
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

/// For each dim that axes share, the sharding in which they cut it in the other order.
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

/// A way from the source to a node.
struct Path {
    node: usize,
    /// The way before its last edge.
    before: Option<usize>,
    /// The bytes that each rank received on it.
    by_rank: Vec<u64>,
    /// Whether replicas came of a reduction on it.
    all_reduced: bool,
}

impl Path {
    /// The bytes of the worst rank.
    fn received(&self) -> u64 {
        self.by_rank.iter().copied().max().unwrap_or(0)
    }
}

/// What is looked at next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Where a way led.
    From(usize),
    /// One more edge of a way, and what no plan of it can do without.
    Along { path: usize, to: usize, least: u64 },
}

/// The best plan between two nodes.
struct Edge {
    steps: Vec<Step>,
    /// The bytes that each rank receives.
    by_rank: Vec<u64>,
}

struct Graph<'q, 'a> {
    q: &'q Question<'a>,
    options: &'q PlanOptions,
    nodes: Vec<Sharding>,
    ahead: WordMap<usize, Option<u64>>,
    edges: WordMap<(usize, usize), Option<Edge>>,
    paths: Vec<Path>,
    /// By the bytes that a way takes at least; of equal ones first what came when most were waiting.
    queue: BinaryHeap<Reverse<(u64, Reverse<usize>, Next)>>,
    /// What must be beaten.
    most: u64,
    effort: Effort,
}

/// Of each node, whether the shortest way to it is known on which nothing was all-reduced, and on which something was.
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

    /// All edges that go on from where a way led, if it is the shortest.
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

    /// One more edge of a way, if there is one.
    fn extend(&mut self, path: usize, to: usize) -> Result<(), Error> {
        let Path { node, all_reduced, ref by_rank, .. } = self.paths[path];
        let Some(Some(edge)) = self.edges.get(&(node, to)) else { return Ok(()) };
        // Replicas come of one reduction, which they may round otherwise in another group; where only some groups may be used
        // that may be the only way.
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

    /// What no plan from a node to the target can do without, if there is a plan.
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

    /// What no plan from one to another can do without.
    fn least(&mut self, from: usize, to: usize) -> Result<Option<u64>, Error> {
        self.effort.work += OF_BOUND;
        self.question(from, to).map(|part| part.least_bytes()).transpose()
    }

    /// Plans an edge; a part that cannot be planned is none.
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

    /// The steps of a way.
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
