//! Plans: before and after of every step, arrows between ranks, bytes and times, the bound, and a greedy plan
//! for comparison.

use std::collections::BTreeMap;

use reshard_planner::{Phase, Plan, Step, StepOp};
use reshard_sharding::Sharding;

use crate::holders::{self, runs, sizes};
use crate::limits::{Limits, counted, titled};
use crate::scene::{Bar, Bundle, Cell, Direction, Flow, Grid, Group, Lane, Lanes, Part, Scene};
use crate::svg::broken;

/// Limit on the size of groups whose messages are drawn.
const MOST_MEMBERS: usize = 1 << 10;

/// Limit on the number of ranks of plans that are drawn rank by rank.
const MOST_RANKS: usize = 1 << 20;

/// Width of lines next to arrows, in columns.
const MOST_COLUMNS: usize = 24;

/// Ranks whose arrows are drawn.
const MOST_ARROWS: usize = 16;

/// Returns `true` if the ranks of a plan can be listed.
pub(crate) fn has_few_ranks(plan: &Plan) -> bool {
    plan.from().mesh().size().max(plan.to().mesh().size()) <= MOST_RANKS
}

/// Returns the name and the letter of each kind of step.
fn kinds() -> Vec<(String, char)> {
    let letter = |op: StepOp| match op {
        StepOp::Slice => 's',
        StepOp::AllGather => 'g',
        StepOp::ReduceScatter => 'r',
        StepOp::AllReduce => 'a',
        StepOp::AllToAll => 't',
        StepOp::Exchange => 'x',
        StepOp::ZeroFill => 'z',
    };
    StepOp::ALL.map(|op| (op.as_str().to_owned(), letter(op))).to_vec()
}

fn kind_of(op: StepOp) -> usize {
    StepOp::ALL.iter().position(|one| *one == op).unwrap_or(0)
}

/// Returns the title of a plan, `from on mesh -> to`.
fn title(plan: &Plan) -> String {
    let (from, to) = (plan.from(), plan.to());
    let elsewhere =
        if from.mesh() == to.mesh() { String::new() } else { format!(" on {}", titled(to.mesh())) };
    let tensor = format!("{} of {}", plan.dtype(), sizes(from.shape()));
    format!("{tensor}: {} on {} -> {}{elsewhere}", titled(from), titled(from.mesh()), titled(to))
}

/// Formats the bytes of a plan with their bound: `98304 bytes (bound 98304)`.
fn bounded_bytes(plan: &Plan) -> String {
    let bound =
        plan.lower_bound_bytes().map_or("no simple bound".to_owned(), |bytes| format!("bound {bytes} B"));
    format!("{} B received ({bound})", plan.received_bytes())
}

fn step_title(plan: &Plan, at: usize) -> String {
    let step = &plan.steps()[at];
    let over = step.axis_names().join(",");
    let over = if over.is_empty() { String::new() } else { format!(" over {over}") };
    format!("{} of {}: {}{over}", at + 1, plan.steps().len(), step.op())
}

/// Draws each step as a separate picture: before and after, with arrows between ranks.
///
/// ```
/// use reshard_draw::{Limits, plan_steps};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::Sharding;
/// let mesh = "x=2".parse()?;
/// let (from, to) = (Sharding::parse(&mesh, &[4], "S(0)")?, Sharding::parse(&mesh, &[4], "R")?);
/// let plan = Planner::new().plan(&from, &to, DType::F32)?;
/// let steps = plan_steps(&plan, Limits::USUAL);
/// assert_eq!(steps[0].title, "step 1 of 1: all_gather over x");
/// assert!(steps[0].text(false).contains("rank 0,rank 1 -> rank 0,rank 1   8 B per pair"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(hidden)]
pub fn plan_steps(plan: &Plan, limits: Limits) -> Vec<Scene> {
    let mut known = Phases { plan, of: BTreeMap::new() };
    let steps = plan.steps().iter().enumerate().take(limits.rows);
    steps.map(|(at, step)| step_scene(&mut known, at, step, limits)).collect()
}

fn step_scene(known: &mut Phases<'_>, at: usize, step: &Step, limits: Limits) -> Scene {
    let plan = known.plan;
    let small = Limits { side: limits.side.min(8), ..limits };
    // The notes of a sharding are next to it, since every step has two shardings.
    let boxed = |when: &str, sharding: &Sharding| {
        let (grid, notes) = holders::grid(sharding, small);
        let lines = notes.iter().flat_map(|note| broken(note, MOST_COLUMNS)).map(Part::Line);
        let parts = core::iter::once(Part::Grid(grid)).chain(lines).collect();
        let title = format!("{when}: {}", titled(sharding));
        Part::Group(Group { title, way: Direction::Down, is_boxed: true, parts })
    };
    let mut notes = Vec::new();
    let mut parts = vec![boxed("before", &step.before)];
    let mut about = format!("Before, {} ", titled(&step.before));
    if step.op().communicates() {
        let (flow, words) = known.flow(at, step, limits, &mut notes);
        about.extend(["and then ", &words, "; "]);
        parts.push(Part::Flow(flow));
    }
    parts.push(boxed("after", &step.after));
    about.extend(["after, ", &titled(&step.after), "."]);
    let words = if step.op().communicates() {
        // A rank may send more than any receives.
        let sent = if step.sent_bytes > step.received_bytes {
            format!(", {} B sent by another", step.sent_bytes)
        } else {
            String::new()
        };
        format!(
            "{} B received by the worst rank{sent}, {:.1} us, groups {}",
            step.received_bytes,
            step.cost_us,
            titled(&step.group)
        )
    } else {
        "no communication between ranks".to_owned()
    };
    let scene = Scene::new(format!("step {}", step_title(plan, at)), format!("{about} {words}."))
        .with(Part::Line(words))
        .with(Part::Group(Group::across("", parts)));
    notes.into_iter().fold(scene, Scene::noted)
}

/// The phases of the ranks in a plan, computed once.
struct Phases<'a> {
    plan: &'a Plan,
    of: BTreeMap<usize, Vec<(usize, Phase)>>,
}

impl Phases<'_> {
    /// Returns the bytes from one rank to another in a step, for some ranks.
    ///
    /// Whole groups are included as long as they are not too large.
    fn edges(
        &mut self,
        at: usize,
        ranks: &[usize],
        most: usize,
    ) -> (Vec<usize>, BTreeMap<(usize, usize), u64>) {
        let mut drawn: Vec<usize> = Vec::new();
        let mut edges = BTreeMap::new();
        for &first in ranks {
            let mut next = vec![first];
            while let Some(rank) = next.pop() {
                if drawn.contains(&rank) {
                    continue;
                }
                if drawn.len() >= most {
                    break;
                }
                drawn.push(rank);
                let plan = self.plan;
                let phases = self.of.entry(rank).or_insert_with(|| plan.phases(rank).unwrap_or_default());
                for (_, phase) in phases.iter().filter(|(step, _)| *step == at) {
                    let bytes = |numel: usize| (numel * plan.dtype().bits()).div_ceil(8) as u64;
                    for message in phase.receives.iter().filter(|message| message.peer != rank) {
                        *edges.entry((message.peer, rank)).or_insert(0) += bytes(message.numel());
                        next.push(message.peer);
                    }
                    next.extend(phase.sends.iter().map(|message| message.peer));
                }
            }
            if drawn.len() >= most {
                break;
            }
        }
        drawn.sort_unstable();
        edges.retain(|(from, to), _| drawn.binary_search(from).is_ok() && drawn.binary_search(to).is_ok());
        (drawn, edges)
    }

    /// Returns the senders and receivers of a step, as arrows and in words.
    fn flow(&mut self, at: usize, step: &Step, limits: Limits, notes: &mut Vec<String>) -> (Flow, String) {
        let most = limits.ranks.min(MOST_ARROWS);
        if step.group.size() > MOST_MEMBERS || !has_few_ranks(self.plan) {
            notes.push(format!("arrows between the {} ranks of a group are left out", step.group.size()));
            return (Flow::default(), format!("{} in groups of {}", step.op(), step.group.size()));
        }
        let all = self.plan.ranks();
        let (ranks, edges) = self.edges(at, &all, most);
        if ranks.len() < all.len() {
            let left = all.len() - ranks.len();
            notes.push(format!("arrows of {} are drawn, {left} left out", counted(ranks.len(), "rank")));
        }
        let place: BTreeMap<usize, usize> = ranks.iter().enumerate().map(|(at, &rank)| (rank, at)).collect();
        let bundles = bundled(&edges);
        let mut words = Vec::new();
        let mut drawn = Vec::new();
        for (from, to, least, most) in bundles {
            let bytes = if least == most {
                format!("{least} B per pair")
            } else {
                format!("{least} to {most} B per pair")
            };
            words.push(format!("ranks {} to ranks {}: {bytes}", runs(&from), runs(&to)));
            let numbers = |ranks: &[usize]| ranks.iter().map(|rank| place[rank]).collect();
            drawn.push(Bundle { from: numbers(&from), to: numbers(&to), text: bytes });
        }
        if words.len() > 8 {
            let left = words.len() - 8;
            words.truncate(8);
            words.push(format!("and {left} more"));
        }
        let cells = || ranks.iter().map(|&rank| rank_cell(rank)).collect();
        (Flow { left: cells(), right: cells(), bundles: drawn }, words.join("; "))
    }
}

fn rank_cell(rank: usize) -> Cell {
    Cell { ranks: vec![rank], ..Cell::hued(format!("rank {rank}"), rank) }
}

/// Senders and receivers, and the least and most bytes from one of them to another.
type Bundled = (Vec<usize>, Vec<usize>, u64, u64);

/// Groups edges into few bundles, in each of which every sender sends to every receiver but itself.
///
/// Senders to the same receivers, with the senders counted among these, form one bundle.
fn bundled(edges: &BTreeMap<(usize, usize), u64>) -> Vec<Bundled> {
    let mut receivers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &(from, to) in edges.keys() {
        receivers.entry(from).or_default().push(to);
    }
    let mut bundles: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for (&from, to) in &receivers {
        // Of the senders to all but themselves, each is one of the receivers.
        let with_self = |to: &[usize]| {
            let mut all = to.to_vec();
            if !all.contains(&from) {
                all.push(from);
                all.sort_unstable();
            }
            all
        };
        let known = bundles.iter_mut().find(|(_, known)| *known == *to || *known == with_self(to));
        if let Some((senders, _)) = known {
            senders.push(from);
            continue;
        }
        // A sender belongs to such a group if another one sends to it and to the same receivers.
        let all = with_self(to);
        let is_group = receivers.iter().any(|(other, theirs)| {
            *other != from && all.contains(other) && theirs.contains(&from) && theirs.len() == to.len() && {
                theirs.iter().all(|rank| all.contains(rank))
            }
        });
        bundles.push((vec![from], if is_group { all } else { to.clone() }));
    }
    let bytes = |(from, to): (Vec<usize>, Vec<usize>)| {
        let all = from.iter().flat_map(|&a| to.iter().map(move |&b| (a, b)));
        let bytes: Vec<u64> = all.filter_map(|edge| edges.get(&edge).copied()).collect();
        let (least, most) = (bytes.iter().min().copied(), bytes.iter().max().copied());
        (from, to, least.unwrap_or(0), most.unwrap_or(0))
    };
    bundles.into_iter().map(bytes).collect()
}

/// Draws the cost of a plan, step by step, with the bound, and a greedy plan for comparison.
///
/// ```
/// use reshard_draw::cost;
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::Sharding;
/// let mesh = "x=2,y=2".parse()?;
/// let (from, to) = (Sharding::parse(&mesh, &[64, 64], "P,P")?, Sharding::parse(&mesh, &[64, 64], "R,R")?);
/// let explanation = Planner::new().explain(&from, &to, DType::F32)?;
/// let text = cost(&explanation.plan, explanation.greedy.as_ref()).text(false);
/// assert!(text.contains("this plan |aaa") && text.contains("greedy"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cost(plan: &Plan, greedy: Option<&Plan>) -> Scene {
    let lane = |label: &str, plan: &Plan| {
        let mut at = 0.0;
        let bars = plan.steps().iter().map(|step| {
            let from = at;
            at += step.cost_us;
            let text = format!("{} {}", step.op(), step.axis_names().join(","));
            Bar { from, to: at, kind: kind_of(step.op()), text, is_strong: false }
        });
        let bars = bars.filter(|bar| bar.to > bar.from).take(Limits::USUAL.bars).collect();
        let end = format!("{:.1} us, {} B", plan.cost_us(), plan.received_bytes());
        Lane { label: label.to_owned(), end, bars, ranks: Vec::new() }
    };
    let mut lanes = vec![lane("this plan", plan)];
    lanes.extend(greedy.map(|greedy| lane("greedy", greedy)));
    let most = greedy.map_or(0.0, Plan::cost_us).max(plan.cost_us()).max(plan.lower_bound_us());
    let marks = if plan.lower_bound_us() > 0.0 {
        vec![(plan.lower_bound_us(), format!("bound {:.1} us: no plan takes less", plan.lower_bound_us()))]
    } else {
        Vec::new()
    };
    let baseline = greedy.map_or_else(String::new, |greedy| {
        format!(" A greedy plan takes {:.1} us and receives {} B.", greedy.cost_us(), greedy.received_bytes())
    });
    let about = format!(
        "The time of the plan by step: {:.1} us in {}, at least {:.1} us by any plan. {}.{baseline}",
        plan.cost_us(),
        counted(plan.steps().len(), "step"),
        plan.lower_bound_us(),
        bounded_bytes(plan)
    );
    let lanes = Lanes { unit: "us".to_owned(), until: most, kinds: kinds(), lanes, marks };
    let scene = Scene::new(format!("time of {}", title(plan)), about)
        .with(Part::Lanes(lanes))
        .with(Part::Line(format!("{}, peak {} B", bounded_bytes(plan), plan.peak_bytes())));
    match by_level(plan) {
        Some(table) => scene
            .with(Part::Group(Group::down("bytes of the worst rank by level of the network", vec![table]))),
        None => scene,
    }
}

/// Draws the bytes of each step by network level.
///
/// Returns `None` for a single level, and if the plan is too large to list its messages.
fn by_level(plan: &Plan) -> Option<Part> {
    let topology = plan.options().topology()?;
    let levels = topology.levels();
    if levels.len() < 2 || !has_few_ranks(plan) {
        return None;
    }
    let ranks = plan.ranks();
    if levels.len() < 2 || ranks.len() > 256 || plan.steps().iter().any(|step| step.group.size() > 256) {
        return None;
    }
    let mut worst = vec![vec![0u64; levels.len()]; plan.steps().len()];
    for &rank in &ranks {
        let mut own = vec![vec![0u64; levels.len()]; plan.steps().len()];
        for (step, phase) in plan.phases(rank).ok()? {
            for message in phase.receives.iter().filter(|message| message.peer != rank) {
                own[step][topology.level_of(message.peer, rank)] +=
                    (message.numel() * plan.dtype().bits()).div_ceil(8) as u64;
            }
        }
        for (all, own) in worst.iter_mut().flatten().zip(own.into_iter().flatten()) {
            *all = own.max(*all);
        }
    }
    let names: Vec<String> = levels
        .iter()
        .map(|level| match level.ranks {
            Some(ranks) => format!("within {ranks} ranks ({} GB/s)", level.gbytes_per_s),
            None => format!("beyond ({} GB/s)", level.gbytes_per_s),
        })
        .collect();
    let mut heads = vec!["step"];
    heads.extend(names.iter().map(String::as_str));
    let rows = plan.steps().iter().zip(worst).enumerate().map(|(at, (step, bytes))| {
        let mut row = vec![Cell::plain(format!("{}. {}", at + 1, step.op()))];
        row.extend(bytes.into_iter().map(|bytes| Cell::plain(format!("{bytes} B"))));
        row
    });
    Some(Part::Grid(Grid::table(&heads, rows.collect())))
}

/// Draws a plan: its cost next to that of a greedy plan, and before and after of every step.
///
/// ```
/// use reshard_draw::{Limits, plan};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::Sharding;
/// let mesh = "x=2,y=2".parse()?;
/// let (from, to) = (Sharding::parse(&mesh, &[8, 8], "S(0),S(1)")?, Sharding::parse(&mesh, &[8, 8], "R,S(1)")?);
/// let plan_of = Planner::new().plan(&from, &to, DType::F32)?;
/// let text = plan(&plan_of, None, Limits::USUAL).text(false);
/// assert!(text.starts_with("f32 of 8x8: S(0),S(1) on x=2,y=2 -> R,S(1)\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(plan: &Plan, greedy: Option<&Plan>, limits: Limits) -> Scene {
    let cost = cost(plan, greedy);
    let mut scene = Scene::new(title(plan), cost.about);
    scene.parts = cost.parts;
    if plan.steps().is_empty() {
        scene.parts = vec![Part::Line("no communication: every rank holds its target".to_owned())];
    }
    for step in plan_steps(plan, limits) {
        scene.about.extend([" ", &step.title, ": ", &step.about]);
        scene.parts.push(Part::Group(Group::down(step.title, step.parts)));
        for note in step.notes {
            scene = scene.noted(note);
        }
    }
    if plan.steps().len() > limits.rows {
        let left = plan.steps().len() - limits.rows;
        scene = scene.noted(format!("{} left out", counted(left, "step")));
    }
    scene
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::bundled;

    /// Property: bundles are the edges.
    ///
    /// Every sender of a bundle sends to every receiver but itself, no further messages exist, and no edge is
    /// in two bundles.
    #[test]
    fn bundles_are_the_edges() {
        // All graphs of four ranks without loops.
        for graph in 0u32..1 << 12 {
            let pairs = (0..4).flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| (a, b)));
            let chosen = pairs.enumerate().filter(|(at, _)| graph >> at & 1 == 1);
            let edges: BTreeMap<(usize, usize), u64> = chosen.map(|(at, pair)| (pair, at as u64)).collect();
            let mut seen = BTreeMap::new();
            for (from, to, ..) in bundled(&edges) {
                for &a in &from {
                    for &b in to.iter().filter(|&&b| b != a) {
                        *seen.entry((a, b)).or_insert(0) += 1;
                    }
                }
            }
            assert!(seen.values().all(|&n| n == 1), "{edges:?}");
            assert_eq!(seen.keys().collect::<Vec<_>>(), edges.keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_group_is_one_bundle() {
        let edges = (0..4).flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| ((a, b), 8))).collect();
        assert_eq!(bundled(&edges), [(vec![0, 1, 2, 3], vec![0, 1, 2, 3], 8, 8)]);
    }
}
