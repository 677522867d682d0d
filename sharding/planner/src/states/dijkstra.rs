//! The oracle of the search: an exhaustive Dijkstra over every digit state, written separately and simply.
//!
//! It has the same states (every digit at any site of its kind, replicated, or partial) and the same
//! transitions. Costs are counted rank by rank and element by element, not by formula.

use std::collections::BTreeMap;

use crate::candidates::CandidateSource;
use crate::candidates::states::routes;
use crate::choose::{self, key_of_route};
use crate::model::codes::{Code, PARTIAL, REPLICATED};
use crate::model::network::Network;
use crate::model::{Curve, Model, Profile, Topology};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::problem::Question;
use crate::states::closed_form::Route;
use crate::states::search::{Limits, Problem, View};
use reshard_kernels::DType;
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, Sweep, placements};

/// The position of a digit in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stand {
    At(usize),
    Everywhere,
    Partial,
}

/// Returns every state: each digit at one of its sites, no two at the same one.
fn states(v: &View) -> Vec<Vec<Stand>> {
    let mut all: Vec<Vec<Stand>> = vec![Vec::new()];
    for d in 0..v.radices.len() {
        let mut options: Vec<Stand> =
            (0..v.sites.len()).filter(|&i| v.sites[i] == v.kinds[d]).map(Stand::At).collect();
        options.push(Stand::Everywhere);
        if v.from.contains(&None) || v.to.contains(&None) {
            options.push(Stand::Partial);
        }
        all = all
            .iter()
            .flat_map(|s| {
                options.iter().filter(|o| !matches!(o, Stand::At(_)) || !s.contains(o)).map(|&o| {
                    let mut s = s.clone();
                    s.push(o);
                    s
                })
            })
            .collect();
    }
    all
}

/// Returns the time of a step: launch, latency per doubling, and the slowest level.
///
/// `traffic` has bytes and peers by level.
fn time_us(topology: &Topology, traffic: &[(f64, usize)], rounds: f64) -> f64 {
    let latency: f64 = (topology.levels().iter().zip(traffic))
        .map(|(l, x)| l.latency_us * (x.1 as f64 + 1.0).log2().ceil())
        .sum();
    let wire = topology.levels().iter().zip(traffic).map(|(l, x)| x.0 / (l.gbytes_per_s * 1e3));
    topology.launch_us() + rounds * latency + wire.fold(0.0, f64::max)
}

/// Returns the picoseconds of a collective on a tensor of `total` bytes; `n[l]` of the group are in a domain of
/// level `l`.
fn collective(topology: &Topology, op: StepOp, total: u64, n: &[usize]) -> u64 {
    let halves = if op == StepOp::AllReduce { 2.0 } else { 1.0 };
    let below = |l: usize| if l == 0 { 1 } else { n[l - 1] };
    let spread: Vec<usize> = (0..n.len()).map(|l| n[l] / below(l)).collect();
    measured(topology, op, spread, total).unwrap_or_else(|| {
        let of_level = |l: usize| {
            let bytes = halves * total as f64 * (1.0 / below(l) as f64 - 1.0 / n[l] as f64);
            (bytes, n[l].div_ceil(below(l)) - 1)
        };
        picoseconds(time_us(topology, &(0..n.len()).map(of_level).collect::<Vec<_>>(), halves))
    })
}

/// Returns the load that bears most over the outermost level, then over the next one, and so on.
///
/// By the formula of levels no other load is dearer; by curves, the model prices this one.
fn farthest<'a>(loads: impl Iterator<Item = &'a Load>) -> Load {
    let inwards = |load: &Load| load.iter().rev().map(|x| (x.0 as u64, x.1)).collect::<Vec<_>>();
    loads.max_by_key(|load| inwards(load)).expect("a rank that communicates").clone()
}

/// Returns the picoseconds of an exchange by the load of a receiver, and of a sender that bears more anywhere.
fn of_farthest(topology: &Topology, [received, sent]: [Load; 2]) -> u64 {
    let bears_more = sent.iter().zip(&received).any(|(a, b)| a.0 > b.0 || a.1 > b.1);
    let sent = if bears_more { exchange(topology, &sent) } else { 0 };
    exchange(topology, &received).max(sent)
}

/// Returns the picoseconds of an exchange: an all-to-all among a rank and its peers, if that was measured.
fn exchange(topology: &Topology, traffic: &[(f64, usize)]) -> u64 {
    let ranks: Vec<usize> =
        (0..traffic.len()).map(|l| 1 + traffic[..=l].iter().map(|x| x.1).sum::<usize>()).collect();
    let spread: Vec<usize> =
        (0..ranks.len()).map(|l| ranks[l].div_ceil(if l == 0 { 1 } else { ranks[l - 1] })).collect();
    let (n, peers): (usize, usize) = (spread.iter().product(), ranks[ranks.len() - 1] - 1);
    let received = traffic.iter().map(|x| x.0).sum::<f64>() as u64;
    let size = (received * n as u64).div_ceil(n as u64 - 1);
    measured(topology, StepOp::AllToAll, spread, size).unwrap_or_else(|| {
        picoseconds(time_us(topology, traffic, 1.0) + topology.message_us() * peers as f64)
    })
}

/// Returns the time at a size by the curve of a spread, or by those of the nearest last factors.
fn measured(topology: &Topology, op: StepOp, mut spread: Vec<usize>, size: u64) -> Option<u64> {
    while spread.last() == Some(&1) {
        spread.pop();
    }
    let last = spread.pop()?;
    let curves = &topology.calibration()?.profile().curves;
    let alike =
        || curves.iter().filter(|c| c.collective == op && c.spread[..c.spread.len() - 1] == spread[..]);
    let of = |c: &&Curve| c.spread[c.spread.len() - 1];
    let below = alike().filter(|c| of(c) <= last).max_by_key(of)?;
    let above = alike().filter(|c| of(c) >= last).min_by_key(of)?;
    let at = |c: &Curve| -> u128 {
        let knots: Vec<(u64, u64)> =
            c.bytes.iter().copied().zip(c.us.iter().map(|&us| picoseconds(us))).collect();
        if size <= knots[0].0 {
            return u128::from(knots[0].1);
        }
        let around =
            knots.windows(2).find(|w| w[0].0 <= size && size <= w[1].0).expect("a size within the curve");
        let (wide, high) = (around[1].0 - around[0].0, around[1].1 - around[0].1);
        u128::from(around[0].1) + u128::from(size - around[0].0) * u128::from(high) / u128::from(wide)
    };
    let (near, far) = ((last - of(&below)) as u128, (of(&above) - last) as u128);
    let between = (at(below) * far + at(above) * near).checked_div(near + far).unwrap_or_else(|| at(below));
    Some(between as u64)
}

fn picoseconds(us: f64) -> u64 {
    (us * 1e6).round() as u64
}

/// Returns the one step that leads from a state to another, if it exists.
fn step(a: &[Stand], b: &[Stand]) -> Option<StepOp> {
    use Stand::{At, Everywhere, Partial};
    let mut ops = Vec::new();
    for (x, y) in a.iter().zip(b).filter(|(x, y)| x != y) {
        ops.push(match (x, y) {
            (Everywhere, At(_)) => StepOp::Slice,
            (At(_), At(_)) => StepOp::Exchange,
            (At(_), Everywhere) => StepOp::AllGather,
            (Partial, At(_)) => StepOp::ReduceScatter,
            (Partial, Everywhere) => StepOp::AllReduce,
            (At(_) | Everywhere, Partial) => StepOp::ZeroFill,
            (Partial, Partial) | (Everywhere, Everywhere) => return None,
        });
    }
    ops.sort_by_key(|o| o.as_str());
    ops.dedup();
    match ops.as_slice() {
        [one] => Some(*one),
        [] => None,
        many => many
            .iter()
            .all(|o| matches!(o, StepOp::Slice | StepOp::Exchange | StepOp::AllGather))
            .then_some(StepOp::Exchange),
    }
}

/// Returns the mixed-radix digits of a number, most significant first.
fn digits(mut n: usize, radices: &[usize]) -> Vec<usize> {
    let mut out = vec![0; radices.len()];
    for (x, r) in out.iter_mut().zip(radices).rev() {
        *x = n % r;
        n /= r;
    }
    out
}

/// Bytes and peers of a rank over each level, in one direction.
type Load = Vec<(f64, usize)>;

/// Every rank and every cell of the sites by its digits.
struct Space {
    ranks: Vec<Vec<usize>>,
    cells: Vec<Vec<usize>>,
}

impl Space {
    fn of(v: &View) -> Space {
        let all = |radices: Vec<usize>| (0..radices.iter().product()).map(|n| digits(n, &radices)).collect();
        Space {
            ranks: all(v.radices.iter().map(|&r| r as usize).collect()),
            cells: all(v.sites.iter().map(|k| k.iter().product::<i64>() as usize).collect()),
        }
    }
}

/// Returns time and bytes of a step, by examining every rank.
fn cost(
    (v, space): (&View, &Space),
    topology: &Topology,
    item: u64,
    a: &[Stand],
    b: &[Stand],
    op: StepOp,
) -> (u64, u64) {
    let levels = topology.levels().len();
    // Elements per cell: those of all positions that are not sites.
    let each = v.whole / space.cells.len() as u64;
    let holds = |state: &[Stand], rank: &[usize], cell: &[usize]| {
        state.iter().zip(rank).all(|(s, &c)| !matches!(s, Stand::At(p) if cell[*p] != c))
    };
    let local = |state: &[Stand]| -> u64 {
        let placed: u64 = state
            .iter()
            .zip(&v.radices)
            .filter(|(s, _)| matches!(s, Stand::At(_)))
            .map(|(_, &r)| r)
            .product();
        v.whole / placed
    };
    let level = |x: &[usize], y: &[usize]| (0..x.len()).filter(|&d| x[d] != y[d]).map(|d| v.levels[d]).max();
    match op {
        StepOp::Slice | StepOp::ZeroFill => (0, 0),
        StepOp::AllGather | StepOp::ReduceScatter | StepOp::AllReduce => {
            let moved: Vec<usize> = (0..a.len()).filter(|&d| a[d] != b[d]).collect();
            let me = vec![0; v.radices.len()];
            let alike = |c: &&Vec<usize>| (0..c.len()).all(|d| moved.contains(&d) || c[d] == 0);
            let group: Vec<&Vec<usize>> = space.ranks.iter().filter(alike).collect();
            let n: Vec<usize> = (0..levels)
                .map(|l| group.iter().filter(|c| level(c, &me).is_none_or(|x| x <= l)).count())
                .collect();
            let g = group.len() as u64;
            let large = local(a).max(local(b));
            if op == StepOp::AllReduce {
                let piece = large.div_ceil(g);
                (collective(topology, op, g * piece * item, &n), ((g - 1) * piece + large - piece) * item)
            } else {
                (collective(topology, op, large * item, &n), (large - local(a).min(local(b))) * item)
            }
        }
        StepOp::Exchange | StepOp::AllToAll => {
            // A replicated digit that takes a site has the value of the last digit in the chain of those that
            // leave their sites, unless it is further out than all of these.
            let read = |d: usize| {
                let next = |e: usize| match b[e] {
                    Stand::At(p) => (0..a.len()).find(|&x| x != e && a[x] == Stand::At(p)),
                    Stand::Everywhere | Stand::Partial => None,
                };
                let chain: Vec<usize> = core::iter::successors(Some(d), |&e| next(e)).skip(1).collect();
                let outermost = chain.iter().map(|&e| v.levels[e]).max();
                chain.last().copied().filter(|_| outermost.is_some_and(|l| v.levels[d] <= l)).unwrap_or(d)
            };
            let reads: Vec<usize> =
                (0..a.len()).map(|d| if a[d] == Stand::Everywhere { read(d) } else { d }).collect();
            let mut loads: [BTreeMap<&Vec<usize>, Load>; 2] = [BTreeMap::new(), BTreeMap::new()];
            for me in &space.ranks {
                let mut peers: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
                for cell in space.cells.iter().filter(|cell| holds(b, me, cell)) {
                    let source: Vec<usize> = (0..me.len())
                        .map(|d| match a[d] {
                            Stand::At(p) => cell[p],
                            Stand::Everywhere | Stand::Partial => me[reads[d]],
                        })
                        .collect();
                    *peers.entry(source).or_default() += each * item;
                }
                for (peer, n) in &peers {
                    let peer = space.ranks.iter().find(|rank| *rank == peer).expect("a rank");
                    let Some(l) = level(peer, me) else { continue };
                    for (loads, rank) in loads.iter_mut().zip([me, peer]) {
                        let at = &mut loads.entry(rank).or_insert(vec![(0.0, 0); levels])[l];
                        *at = (at.0 + *n as f64, at.1 + 1);
                    }
                }
            }
            let us = if topology.has_curves() {
                of_farthest(topology, loads.each_ref().map(|of| farthest(of.values())))
            } else {
                loads.iter().flat_map(BTreeMap::values).map(|x| exchange(topology, x)).max().unwrap_or(0)
            };
            let received = |x: &Load| x.iter().map(|at| at.0).sum::<f64>() as u64;
            let worst_bytes = loads[0].values().map(received).max().unwrap_or(0);
            (us, worst_bytes)
        }
    }
}

#[allow(clippy::option_option, reason = "the notation of the view")]
fn stands(place: &[Option<Option<usize>>]) -> Vec<Stand> {
    let one = |p: &Option<Option<usize>>| match p {
        Some(Some(i)) => Stand::At(*i),
        Some(None) => Stand::Everywhere,
        None => Stand::Partial,
    };
    place.iter().map(one).collect()
}

/// Returns the least `[time, bytes]` or `[bytes, time]` to the target, from every state.
fn least(v: &View, topology: &Topology, item: u64, objective: Objective) -> BTreeMap<Vec<Stand>, [u64; 2]> {
    let (all, space) = (states(v), Space::of(v));
    let to = all.iter().position(|x| *x == stands(&v.to)).expect("every state is listed");
    let mut best = vec![[u64::MAX; 2]; all.len()];
    let mut done = vec![false; all.len()];
    best[to] = [0, 0];
    while let Some(next) =
        (0..all.len()).filter(|&i| !done[i] && best[i] != [u64::MAX; 2]).min_by_key(|&i| best[i])
    {
        done[next] = true;
        for i in (0..all.len()).filter(|&i| !done[i]) {
            let Some(op) = step(&all[i], &all[next]) else { continue };
            // Replicas must come from the last reduction: only digits that are partial in the target may
            // still be partial.
            let reduced = |(x, to): (&Stand, &Stand)| *x == Stand::Partial && *to != Stand::Partial;
            if op == StepOp::AllReduce && all[next].iter().zip(&all[to]).any(reduced) {
                continue;
            }
            let (time, bytes) = cost((v, &space), topology, item, &all[i], &all[next], op);
            let add = match objective {
                Objective::Time | Objective::Peak => [time, bytes],
                Objective::Bytes => [bytes, time],
            };
            best[i] = best[i].min([best[next][0] + add[0], best[next][1] + add[1]]);
        }
    }
    all.into_iter().zip(best).collect()
}

/// Converts a state to the codes of the search.
fn codes(state: &[Stand]) -> Vec<Code> {
    let one = |s: &Stand| match s {
        Stand::At(i) => *i as Code,
        Stand::Everywhere => REPLICATED,
        Stand::Partial => PARTIAL,
    };
    state.iter().map(one).collect()
}

fn compare(mesh: &str, shape: &[usize], choices: &[&str], topology: &Topology, every: usize) -> usize {
    let mesh: Mesh = mesh.parse().unwrap();
    let all = placements(choices, mesh.axes().len());
    let shardings: Vec<Sharding> = all.iter().filter_map(|p| Sharding::parse(&mesh, shape, p).ok()).collect();
    let mut count = 0;
    let sweep = Sweep::asked();
    let mut turn = 0;
    let mut misses = Vec::new();
    for from in &shardings {
        for to in shardings.iter().filter(|t| *t != from) {
            turn += 1;
            if turn % every != 0 || !sweep.takes(turn as u64) {
                continue;
            }
            for (objective, item) in [(Objective::Time, 4), (Objective::Time, 40_000), (Objective::Bytes, 4)]
            {
                let planner = crate::Planner::new().topology(topology.clone()).objective(objective);
                let model = Model::Topology(topology.clone());
                let network = Network::new(&model, &mesh);
                let q = Question::new(planner.options(), from, to, DType::U8, item);
                let Some(ends) = q.ends() else { continue };
                let limits = Limits { objective, item, max_peak: None, work: u64::MAX, allowed: None };
                let Some(problem) = Problem::new(&network, &limits, &ends.system, &ends.from, &ends.to)
                else {
                    continue;
                };
                let v = problem.view();
                if states(&v).len() > 160 || v.sites.iter().flatten().product::<i64>() > 256 {
                    continue;
                }
                let all = least(&v, topology, item, objective);
                for (state, truth) in &all {
                    let bound = problem.bound(&codes(state));
                    assert!(
                        bound <= truth[0],
                        "{from} -> {to} on {mesh}, {objective}, {item} bytes: {bound} > {} from {state:?} to {:?}",
                        truth[0],
                        stands(&v.to)
                    );
                }
                let truth = all[&stands(&v.from)];
                let found = problem.search(None).0.expect("the target is reachable");
                let key = |route: &Route| {
                    let (weights, _) = q.weigh(route.system.digits.iter().copied());
                    let [a, b, _] = key_of_route(&q, route, &weights, CandidateSource::Search, &mut None)
                        .unwrap()
                        .unwrap()
                        .0;
                    [a, b]
                };
                assert_eq!(key(&found), truth, "{from} -> {to} on {mesh}, {objective}, {item} bytes");
                // The planner's result is as good, with or without search; transposed plans also include
                // exchanges that add.
                let plan = choose::plan_straight(&q).unwrap();
                let best =
                    routes(&ends).iter().map(|(_, route)| key(route)).min().unwrap_or(truth).min(truth);
                let of = |p: &crate::Plan| {
                    let time: u64 = p.steps().iter().map(|s| (s.cost_us * 1e6).round() as u64).sum();
                    match objective {
                        Objective::Time | Objective::Peak => time,
                        Objective::Bytes => p.received_bytes(),
                    }
                };
                let searched = from.is_partial()
                    || to.is_partial()
                    || topology.levels().len() > 1
                    || topology.has_curves();
                assert!(of(&choose::plan(&q, u64::MAX, None).unwrap()) <= of(&plan), "{plan}");
                if of(&plan) != best[0] && (searched || objective == Objective::Bytes) {
                    misses.push(format!("{plan} {objective}, {item} bytes: {} is best", best[0]));
                }
                count += 1;
            }
        }
    }
    assert!(misses.is_empty(), "{} of {count}:\n{}", misses.len(), misses[..misses.len().min(9)].join("\n"));
    count
}

/// Returns a network with drawn curves that jump, some of them missing.
fn with_curves(lines: &Topology, spreads: &[&[usize]], random: &mut Random) -> Topology {
    let mut profile = Profile::from(lines.clone());
    for collective in [StepOp::AllGather, StepOp::ReduceScatter, StepOp::AllReduce, StepOp::AllToAll] {
        for spread in spreads {
            let mut us = 4.0 + random.below(100) as f64 / 7.0;
            let mut bytes = vec![1u64 << 4];
            let mut times = vec![us];
            while bytes[bytes.len() - 1] < 1 << 36 {
                let last = bytes[bytes.len() - 1];
                bytes.push(last * (2 + random.below(9) as u64));
                us = us * [1.0, 1.1, 1.7][random.below(3)] + last as f64 / 1e5 * random.below(7) as f64;
                times.push(us);
            }
            if random.below(5) > 0 {
                profile.curves.push(Curve {
                    collective,
                    spread: spread.to_vec(),
                    bytes,
                    us: times,
                    p90_percent: None,
                });
            }
        }
    }
    Topology::try_from(profile).unwrap()
}

#[test]
fn search_equals_exhaustive_dijkstra_under_curves() {
    let mut random = Random(57);
    let two: Topology = "launch=6.6;message=0.2;level=2:2:370;level=*:8:45".parse().unwrap();
    let three: Topology = "launch=3;message=0.2;level=2:1:300;level=4:2:100;level=*:9:20".parse().unwrap();
    let (one_level, two_levels): (&[&[usize]], &[&[usize]]) =
        (&[&[2], &[4], &[8]], &[&[2], &[1, 2], &[2, 2], &[1, 4], &[2, 4]]);
    let three_levels: &[&[usize]] = &[&[2], &[1, 2], &[2, 2], &[1, 1, 2], &[1, 2, 2], &[2, 2, 2], &[2, 1, 2]];
    let sweep = Sweep::asked();
    let one_in = |n: usize| if sweep.is_exhaustive() { 1 } else { n };
    let mut count = 0;
    for (lines, spreads) in [(&Topology::uniform(), one_level), (&two, two_levels), (&three, three_levels)] {
        for _ in 0..3 {
            let topology = with_curves(lines, spreads, &mut random);
            count += compare("x=2,y=2", &[16, 4], &["R", "S(0)", "S(1)", "P"], &topology, one_in(17));
            // Three ranks do not fill domains of four evenly.
            if lines.levels().len() < 3 {
                count += compare("x=3,y=2", &[12, 6], &["R", "S(0)", "S(1)"], &topology, one_in(5));
            }
            count += compare("x=4,y=2", &[16, 8], &["R", "S(0)", "P"], &topology, one_in(7));
            count += compare("x=2,y=2,z=2", &[8, 4], &["R", "S(0)", "P"], &topology, one_in(61));
        }
    }
    println!("{count} cases equal to an exhaustive Dijkstra");
    assert!(count as u64 > sweep.least(200, 3_000), "only {count} cases were small enough");
}

#[test]
fn search_equals_exhaustive_dijkstra() {
    let uniform = Topology::uniform();
    let two: Topology = "launch=6.6;message=0.2;level=2:2:370;level=*:8:45".parse().unwrap();
    let choices = ["R", "S(0)", "S(1)", "SS(0,2)", "P"];
    // All pairs, or one in `n`: the numbers are coprime to those of the placements.
    let sweep = Sweep::asked();
    let one_in = |n: usize| if sweep.is_exhaustive() { 1 } else { n };
    let mut count = 0;
    for topology in [&uniform, &two] {
        count += compare("x=2", &[16, 4], &choices, topology, 1);
        count += compare("x=2,y=2", &[16, 4], &choices, topology, one_in(17));
        count += compare("x=3,y=2", &[12, 6], &choices[..3], topology, 1);
        count += compare("x=4,y=2", &[16, 8], &["R", "S(0)", "P"], topology, 1);
        count += compare("x=2,y=2,z=2", &[8, 4], &["R", "S(0)", "P"], topology, one_in(31));
    }
    println!("{count} cases equal to an exhaustive Dijkstra");
    assert!(count as u64 > sweep.least(700, 6_000), "only {count} cases were small enough");
}
