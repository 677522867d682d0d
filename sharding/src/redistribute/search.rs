//! Search: the best plan over digit states, by A*.
//!
//! **Problem.** Digits that move alike (parallel paths of one signature: the same kinds of ends, the same levels) are one
//! digit of the product radix; placed digits that stay are dropped; idle replicas and kept partials are merged into at
//! most one of each per level and stay, because they can share the work. What remains is a map from few digits to few
//! places: the positions of both states, spares (positions local in both, as many as there are heads or tails that could
//! use one), replicated, partial.
//!
//! **Moves** go from a state to any other that one step reaches: a slice, zero-fill, all-gather, reduce-scatter or
//! all-reduce of any set of digits at any places, or an exchange of any digits that are not partial.
//!
//! **Order.** Nodes leave the queue by `cost so far + lower bound of the rest`, ties by a total order, and nothing that
//! cannot beat the best known candidate enters it. The bound never exceeds the truth, so the first arrival at the target
//! is optimal over these moves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::ReduceOp;
use crate::axis::SubAxis;
use crate::redistribute::bounds::{Code, Codes, NOWHERE, OWED, OWED_LATER, REPLICATED, Weight, need};
use crate::redistribute::cache::WordMap;
use crate::redistribute::closed_form::{Candidate, Move, paths};
use crate::redistribute::cost::all_reduce_bytes;
use crate::redistribute::network::{Network, UnitSizes, traffic};
use crate::redistribute::planner::Objective;
use crate::redistribute::step::StepOp;
use crate::redistribute::system::{Place, State, System};

/// A cost as the objective orders it: `[primary, secondary]` in picoseconds or bytes.
pub(crate) type Key = [u64; 2];

/// The most digits that a search is tried with: moving ones exactly, idle ones beside them.
const MAX_DIGITS: usize = 8;
/// The most digits that move for which the search promises the optimum.
pub(crate) const MAX_MOVING: usize = 4;
/// The most edges that are looked at before the best found so far is taken.
const MAX_EDGES: usize = 4_000_000;

/// A digit of the problem: real digits that move alike.
#[derive(Clone, Debug)]
struct Merged {
    real: SmallVec<[usize; 2]>,
    /// The radices of the real digits: only places of the same kind fit.
    kind: SmallVec<[usize; 2]>,
    /// Whether it may become a term of the common op: not if it was one of an average.
    fills: bool,
    /// Whether it ends as a term of an average, for which only replicas will do.
    ends_avg: bool,
}

/// A place of the problem: real positions, one for each real digit of a kind.
#[derive(Clone, Debug)]
struct Site {
    real: SmallVec<[usize; 2]>,
    kind: SmallVec<[usize; 2]>,
    spare: bool,
}

/// Digits along parallel paths.
struct Chain {
    signature: Signature,
    digits: Vec<SmallVec<[usize; 2]>>,
}

/// What parallel paths have in common.
#[derive(PartialEq)]
struct Signature {
    cycle: bool,
    idle: bool,
    /// Where the path starts and ends, if not at positions.
    start: Option<Place>,
    end: Option<Place>,
    levels: SmallVec<[usize; 4]>,
}

/// The groups met so far: whether they may be used, and how they spread.
#[derive(Default)]
struct Groups {
    index: WordMap<u32, usize>,
    all: Vec<(bool, SmallVec<[UnitSizes; 2]>)>,
}

// What the digits of a step do.
const SLICE: u8 = 1;
const FILL: u8 = 2;
const GATHER: u8 = 4;
const SCATTER: u8 = 8;
const REDUCE: u8 = 16;
const MOVE: u8 = 32;

/// Whether digits may do these in one step: all the same, or anything an exchange does.
fn may_be_step(kinds: u8) -> bool {
    kinds.count_ones() <= 1 || kinds & !(SLICE | GATHER | MOVE) == 0
}

fn step_of(kinds: u8) -> Option<StepOp> {
    match kinds {
        0 => None,
        SLICE => Some(StepOp::Slice),
        FILL => Some(StepOp::ZeroFill),
        GATHER => Some(StepOp::AllGather),
        SCATTER => Some(StepOp::ReduceScatter),
        REDUCE => Some(StepOp::AllReduce),
        _ => Some(StepOp::Exchange),
    }
}

/// How a state was reached.
struct Node {
    cost: Key,
    estimate: Key,
    parent: Option<(Packed, StepOp)>,
}

/// A state as one number, a byte for each of at most eight digits; ordered as the codes are.
type Packed = u64;

type Nodes = WordMap<Packed, Node>;

fn packed(codes: &[Code]) -> Packed {
    codes.iter().fold(0, |x, &c| x << 8 | u64::from(c))
}

/// Whether the group of some sub-axes may be used.
pub(crate) type Allowed<'a> = &'a dyn Fn(&[SubAxis]) -> bool;

/// What a search may use.
pub(crate) struct Limits<'a> {
    pub(crate) objective: Objective,
    pub(crate) item: u64,
    pub(crate) max_peak: Option<u64>,
    /// Which groups may be used; all without.
    pub(crate) allowed: Option<Allowed<'a>>,
}

/// The search problem of two states.
pub(crate) struct Problem<'a> {
    network: &'a Network<'a>,
    limits: &'a Limits<'a>,
    system: System,
    base: State,
    target: State,
    digits: SmallVec<[Merged; 8]>,
    weights: SmallVec<[Weight; 8]>,
    sites: SmallVec<[Site; 16]>,
    from: Codes,
    to: Codes,
    /// The op of every partial digit, if source and target agree on one.
    common: Option<ReduceOp>,
    /// Elements of a rank when no digit of the problem stands anywhere.
    whole: u64,
    moving: usize,
}

impl<'a> Problem<'a> {
    /// The problem of two states, or `None` if it has too many digits.
    pub(crate) fn new(
        network: &'a Network<'a>,
        limits: &'a Limits<'a>,
        system: &System,
        s: &State,
        t: &State,
    ) -> Option<Problem<'a>> {
        let op_of = |state: &State| {
            state.iter().find_map(|p| match p {
                Place::Partial(op) => Some(op.combining()),
                Place::At(_) | Place::Replicated => None,
            })
        };
        let common = match (op_of(s), op_of(t)) {
            (Some(a), Some(b)) => (a == b).then_some(a),
            (a, b) => a.or(b),
        };
        let mut p = Problem {
            network,
            limits,
            system: system.clone(),
            base: s.clone(),
            target: t.clone(),
            digits: SmallVec::new(),
            weights: SmallVec::new(),
            sites: SmallVec::new(),
            from: Codes::new(),
            to: Codes::new(),
            common,
            whole: 0,
            moving: 0,
        };
        let chains = p.chains(s, t);
        if chains.iter().map(|c| c.digits.len()).sum::<usize>() > MAX_DIGITS {
            return None;
        }
        let (mut s, mut t) = (s.clone(), t.clone());
        p.place_chains(&chains, &s, &t);
        p.add_spares(&mut s, &mut t);
        (p.base, p.target) = (s, t);
        if p.sites.len() > u32::BITS as usize {
            return None;
        }
        let placed: u64 =
            p.from.iter().zip(&p.weights).filter(|(c, _)| **c < NOWHERE).map(|(_, w)| w.radix).product();
        p.whole = p.system.local_numel(&p.base) as u64 * placed;
        Some(p)
    }

    /// How many digits move.
    pub(crate) fn moving(&self) -> usize {
        self.moving
    }

    /// Parallel paths and cycles of one signature, each as one chain of merged digits.
    fn chains(&self, s: &State, t: &State) -> Vec<Chain> {
        let partial = s.iter().chain(t).any(|p| p.is_partial());
        let levels = self.network.levels();
        let mut chains: Vec<Chain> = Vec::new();
        let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, s.len());
        let merge = self.limits.allowed.is_none();
        let mut add = |path: &[usize], cycle: bool, seen: &mut SmallVec<[bool; 8]>| {
            for &d in path {
                seen[d] = true;
            }
            let (head, tail) = (path[0], path[path.len() - 1]);
            let idle = path.len() == 1 && s[head] == t[head];
            let at = |p: Place| p.position().is_none().then_some(p);
            if idle && (at(s[head]).is_none() || (levels == 1 && !partial && self.limits.max_peak.is_none()))
            {
                return;
            }
            let levels: SmallVec<[usize; 4]> =
                path.iter().map(|&d| self.network.level(self.system.digits[d]).0).collect();
            let signature = Signature { cycle, start: at(s[head]), end: at(t[tail]), levels, idle };
            let known = chains.iter_mut().find(|c| merge && c.signature == signature);
            match known {
                Some(chain) => {
                    for (merged, &d) in chain.digits.iter_mut().zip(path) {
                        merged.push(d);
                    }
                }
                None => chains.push(Chain {
                    signature,
                    digits: path.iter().map(|&d| SmallVec::from_slice(&[d])).collect(),
                }),
            }
        };
        for path in paths(&self.system, s, t) {
            add(&path, false, &mut seen);
        }
        let owner = self.system.owners(s);
        for first in 0..s.len() {
            if seen[first] || s[first] == t[first] {
                continue;
            }
            let mut cycle: SmallVec<[usize; 4]> = SmallVec::from_slice(&[first]);
            let mut d = first;
            while let Some(next) = t[d].position().and_then(|p| owner[p]).filter(|&n| n != first) {
                cycle.push(next);
                d = next;
            }
            add(&cycle, true, &mut seen);
        }
        chains
    }

    fn site(&mut self, real: SmallVec<[usize; 2]>, spare: bool) -> Code {
        if let Some(i) = self.sites.iter().position(|x| x.real == real) {
            return i as Code;
        }
        let kind = real.iter().map(|&p| self.system.positions[p].radix).collect();
        self.sites.push(Site { real, kind, spare });
        (self.sites.len() - 1) as Code
    }

    fn place_chains(&mut self, chains: &[Chain], s: &State, t: &State) {
        for chain in chains {
            for real in &chain.digits {
                let code = |p: &mut Problem<'a>, state: &State| match state[real[0]] {
                    Place::At(_) => {
                        let at = real.iter().filter_map(|&d| state[d].position()).collect();
                        p.site(at, false)
                    }
                    Place::Replicated => REPLICATED,
                    Place::Partial(_) => OWED,
                };
                let (a, mut b) = (code(self, s), code(self, t));
                let (first, last) = (s[real[0]], t[real[0]]);
                let by_common =
                    !first.is_partial() && self.common.is_some_and(|op| last == Place::Partial(op));
                if b == OWED && first != last && !by_common {
                    b = OWED_LATER;
                }
                let average = Place::Partial(ReduceOp::Avg);
                let fills = self.common.is_some() && first != average;
                let ends_avg = last == average;
                self.from.push(a);
                self.to.push(b);
                self.moving += usize::from(a != b);
                let kind: SmallVec<[usize; 2]> = real.iter().map(|&d| self.system.digits[d].size).collect();
                let radix = kind.iter().map(|&r| r as u64).product();
                let level =
                    real.iter().map(|&d| self.network.level(self.system.digits[d]).0).max().unwrap_or(0);
                self.weights.push(Weight { radix, level });
                self.digits.push(Merged { real: real.clone(), kind, fills, ends_avg });
            }
        }
    }

    /// Splits off positions local in both states, for every digit that could use one.
    fn add_spares(&mut self, s: &mut State, t: &mut State) {
        // Digits that are owed something first, then other moving ones, then idle ones.
        let mut wanting: SmallVec<[usize; 8]> =
            (0..self.digits.len()).filter(|&d| self.from[d] >= NOWHERE || self.to[d] >= NOWHERE).collect();
        wanting.sort_by_key(|&d| (self.from[d] != OWED, self.from[d] == self.to[d]));
        for d in wanting {
            let kind = self.digits[d].kind.clone();
            let mut real: SmallVec<[usize; 2]> = SmallVec::new();
            for &radix in &kind {
                let free = |p: usize| {
                    !real.contains(&p)
                        && !s.contains(&Place::At(p))
                        && !t.contains(&Place::At(p))
                        && !self.sites.iter().any(|x| x.real.contains(&p))
                };
                let found = (0..self.system.positions.len())
                    .find(|&p| self.system.positions[p].radix.is_multiple_of(radix) && free(p));
                let Some(p) = found else { break };
                if self.system.positions[p].radix != radix {
                    self.system.split(p, radix, &mut [s, t]);
                    for x in self.sites.iter_mut().flat_map(|x| x.real.iter_mut()).chain(&mut real) {
                        *x += usize::from(*x > p);
                    }
                }
                real.push(p);
            }
            if real.len() == kind.len() {
                self.site(real, true);
            }
        }
    }

    fn local(&self, state: &[Code]) -> u64 {
        let placed: u64 =
            state.iter().zip(&self.weights).filter(|(c, _)| **c < NOWHERE).map(|(_, w)| w.radix).product();
        self.whole / placed
    }

    /// A bound on what is left from a state.
    fn bound(&self, state: &[Code]) -> u64 {
        match self.limits.objective {
            Objective::Peak => 0,
            Objective::Bytes => {
                let elements = need(&self.weights, state, &self.to, self.whole, 0).unwrap_or(0.0);
                (elements - 1e-6).max(0.0).floor() as u64 * self.limits.item
            }
            Objective::Time => {
                let levels = self.network.levels();
                let mut needs: SmallVec<[f64; 3]> = SmallVec::new();
                for l in 0..levels {
                    let Some(n) = need(&self.weights, state, &self.to, self.whole, l) else {
                        return if self.must_talk(state) { self.launch() } else { 0 };
                    };
                    needs.push(n * self.limits.item as f64);
                }
                (self.network.topology.bound_us(&needs) * 1e6 * (1.0 - 1e-9)).floor() as u64
            }
        }
    }

    /// Whether slices and zero-fills alone do not lead from a state to the target: what stands somewhere else, or must be
    /// gathered, or is owed, needs others.
    fn must_talk(&self, state: &[Code]) -> bool {
        state
            .iter()
            .zip(&self.to)
            .any(|(&c, &t)| c != t && (c == OWED || (c < NOWHERE && t != OWED && t != OWED_LATER)))
    }

    /// What a communicating step takes at least, in picoseconds.
    fn launch(&self) -> u64 {
        (self.network.topology.launch_us() * 1e6) as u64
    }

    fn spread(&self, mask: u32, cache: &mut Groups) -> usize {
        if let Some(&i) = cache.index.get(&mask) {
            return i;
        }
        let subs: SmallVec<[SubAxis; 8]> = (0..self.digits.len())
            .filter(|d| mask >> d & 1 == 1)
            .flat_map(|d| self.digits[d].real.iter().map(|&r| self.system.digits[r]))
            .collect();
        let allowed = self.limits.allowed.is_none_or(|f| f(&subs));
        let spread = self.network.spread(&subs).unwrap_or_default();
        cache.all.push((allowed, spread));
        cache.index.insert(mask, cache.all.len() - 1);
        cache.all.len() - 1
    }

    /// The step that leads from one state to another, with time in picoseconds, bytes, and peak bytes.
    fn edge(&self, f: &[Code], g: &[Code], op: StepOp, cache: &mut Groups) -> Option<(u64, u64, u64)> {
        let (a, b) = (self.local(f), self.local(g));
        let item = self.limits.item;
        if !op.communicates() {
            return Some((0, 0, (a + b) * item));
        }
        let mut mask = 0u32;
        let mut size = 1u64;
        for d in 0..f.len() {
            if f[d] != g[d] {
                mask |= 1 << d;
                size *= self.weights[d].radix;
            }
        }
        let group = self.spread(mask, cache);
        let (allowed, spread) = &cache.all[group];
        if !allowed {
            return None;
        }
        let ps = |us: f64| (us * 1e6).round() as u64;
        let whole = a.max(b);
        Some(match op {
            StepOp::AllGather | StepOp::ReduceScatter => {
                let time = self.network.collective_us((whole * item) as f64, spread, 1.0);
                (ps(time), (whole - a.min(b)) * item, (a + b) * item)
            }
            StepOp::AllReduce => {
                let (bytes, modelled) = all_reduce_bytes(whole, size, item);
                let time = self.network.collective_us(modelled as f64, spread, 2.0);
                (ps(time), bytes, (a + b + whole.div_ceil(size)) * item)
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let x = traffic(&self.weights, f, g, b * item, self.network.levels());
                let bytes: f64 = x.iter().map(|x| x.0).sum();
                (ps(self.network.topology.exchange_us(&x)), bytes.round() as u64, (a + b) * item)
            }
            StepOp::Slice | StepOp::ZeroFill => (0, 0, 0),
        })
    }

    /// Calls `f` with every state that one step reaches, and the step.
    fn neighbours(&self, state: &Codes, f: &mut impl FnMut(&Codes, StepOp)) {
        // Terms of two ops do not meet: what the source owes goes first.
        let pending = self.common.is_none() && state.contains(&OWED);
        let mut next = state.clone();
        self.extend(state, &mut next, 0, 0, 0, pending, f);
    }

    #[allow(clippy::too_many_arguments, reason = "one recursion over digits")]
    fn extend(
        &self,
        state: &Codes,
        next: &mut Codes,
        d: usize,
        kinds: u8,
        used: u32,
        pending: bool,
        f: &mut impl FnMut(&Codes, StepOp),
    ) {
        if d == state.len() {
            if let Some(op) = step_of(kinds) {
                f(next, op);
            }
            return;
        }
        let now = state[d];
        let mut go = |code: Code, kind: u8| {
            let kinds = kinds | kind;
            if !may_be_step(kinds) {
                return;
            }
            let bit = if code < NOWHERE { 1 << code } else { 0 };
            if used & bit != 0 {
                return;
            }
            next[d] = code;
            self.extend(state, next, d + 1, kinds, used | bit, pending, f);
            next[d] = now;
        };
        go(now, 0);
        let at = now < NOWHERE;
        let owed = now == OWED;
        if now == OWED_LATER {
            return;
        }
        let mut spare_seen = false;
        for (i, site) in self.sites.iter().enumerate() {
            let code = i as Code;
            if code == now || site.kind != self.digits[d].kind {
                continue;
            }
            if site.spare && !state.contains(&code) && used >> i & 1 == 0 {
                // Spares of a kind are alike: the first free one stands for all.
                if spare_seen {
                    continue;
                }
                spare_seen = true;
            }
            go(
                code,
                if at {
                    MOVE
                } else if owed {
                    SCATTER
                } else {
                    SLICE
                },
            );
        }
        if at {
            go(REPLICATED, GATHER);
        } else if owed {
            go(REPLICATED, REDUCE);
        }
        let digit = &self.digits[d];
        if !owed && digit.fills {
            go(OWED, FILL);
        }
        // Only replicas will do as terms of an average.
        if !owed && self.to[d] == OWED_LATER && !pending && (now == REPLICATED || !digit.ends_avg) {
            go(OWED_LATER, FILL);
        }
    }

    /// The best plan, if one is better than `best` (or any, without one).
    pub(crate) fn search(&self, best: Option<Key>) -> Option<Candidate> {
        let mut groups = Groups::default();
        let mut nodes = Nodes::default();
        let mut bounds: WordMap<Packed, u64> = WordMap::default();
        let mut queue: BinaryHeap<Reverse<(Key, usize, Packed)>> = BinaryHeap::new();
        let (first, last) = (packed(&self.from), packed(&self.to));
        let estimate = [self.bound(&self.from), 0];
        nodes.insert(first, Node { cost: [0, 0], estimate, parent: None });
        queue.push(Reverse((estimate, 0, first)));
        let mut edges = 0usize;
        let mut known = best;
        let timed = self.limits.objective == Objective::Time;
        let launch = self.launch();
        while let Some(Reverse((estimate, steps, at))) = queue.pop() {
            let node = &nodes[&at];
            if at == last || known.is_some_and(|k| estimate >= k) || edges > MAX_EDGES {
                break;
            }
            if node.estimate != estimate {
                // It was reached at less cost since.
                continue;
            }
            let cost = node.cost;
            let state = self.unpacked(at);
            self.neighbours(&state, &mut |next, op| {
                edges += 1;
                let to = packed(next);
                let least = cost[0] + if timed && op.communicates() { launch } else { 0 };
                // Cheap reasons first: whatever the step costs beyond its launch, it cannot beat what is known.
                if known.is_some_and(|k| least > k[0]) {
                    return;
                }
                let reached = nodes.get(&to).map(|n| n.cost);
                if reached.is_some_and(|r| r[0] < least) {
                    return;
                }
                let left = *bounds.entry(to).or_insert_with(|| self.bound(next));
                if known.is_some_and(|k| least.saturating_add(left) > k[0]) {
                    return;
                }
                let Some((time, bytes, peak)) = self.edge(&state, next, op, &mut groups) else { return };
                if self.limits.max_peak.is_some_and(|m| peak > m) {
                    return;
                }
                let total: Key = match self.limits.objective {
                    Objective::Time => [cost[0] + time, cost[1] + bytes],
                    Objective::Bytes => [cost[0] + bytes, cost[1] + time],
                    Objective::Peak => [cost[0].max(peak), cost[1] + time],
                };
                if known.is_some_and(|k| total >= k) || reached.is_some_and(|r| r <= total) {
                    return;
                }
                let estimate = [total[0].saturating_add(left), total[1]];
                if to == last {
                    known = Some(total);
                } else if known.is_some_and(|k| estimate >= k) {
                    return;
                }
                nodes.insert(to, Node { cost: total, estimate, parent: Some((at, op)) });
                queue.push(Reverse((estimate, steps + 1, to)));
            });
        }
        nodes.contains_key(&last).then(|| self.plan(&nodes))
    }

    fn unpacked(&self, state: Packed) -> Codes {
        let n = self.to.len();
        (0..n).map(|d| (state >> (8 * (n - 1 - d))) as Code).collect()
    }

    fn plan(&self, nodes: &Nodes) -> Candidate {
        let mut moves: SmallVec<[Move; 6]> = SmallVec::new();
        let mut at = packed(&self.to);
        while let Some((before, op)) = nodes[&at].parent {
            let state = |x: Packed| self.real(&self.unpacked(x));
            moves.push(Move { op, before: state(before), after: state(at) });
            at = before;
        }
        moves.reverse();
        Candidate { system: self.system.clone(), moves }
    }

    /// How a real digit is owed: as in the source, or by the common op.
    fn owed(&self, real: usize) -> Place {
        match (self.base[real], self.common) {
            (Place::At(_) | Place::Replicated, Some(op)) => Place::Partial(op),
            (place, _) => place,
        }
    }

    /// The real state of a state of the problem.
    fn real(&self, codes: &Codes) -> State {
        let mut state = self.base.clone();
        for (d, &code) in codes.iter().enumerate() {
            for (i, &real) in self.digits[d].real.iter().enumerate() {
                state[real] = match code {
                    REPLICATED => Place::Replicated,
                    OWED => self.owed(real),
                    OWED_LATER => self.target[real],
                    at => Place::At(self.sites[at as usize].real[i]),
                };
            }
        }
        state
    }
}

/// The problem as its oracle sees it.
#[cfg(test)]
#[allow(clippy::option_option, reason = "three states, as the exhaustive search of the tests spells them")]
pub(crate) struct View {
    pub(crate) radices: Vec<u64>,
    pub(crate) levels: Vec<usize>,
    pub(crate) kinds: Vec<Vec<usize>>,
    pub(crate) sites: Vec<Vec<usize>>,
    /// `None` partial, `Some(None)` replicated, `Some(Some(i))` at site `i`.
    pub(crate) from: Vec<Option<Option<usize>>>,
    pub(crate) to: Vec<Option<Option<usize>>>,
    pub(crate) whole: u64,
}

#[cfg(test)]
impl Problem<'_> {
    pub(crate) fn start_bound(&self) -> u64 {
        self.bound(&self.from)
    }

    pub(crate) fn view(&self) -> View {
        #[allow(clippy::option_option, reason = "the oracle's own notation")]
        let place = |codes: &Codes| -> Vec<Option<Option<usize>>> {
            let one = |&c: &Code| match c {
                REPLICATED => Some(None),
                OWED | OWED_LATER => None,
                at => Some(Some(usize::from(at))),
            };
            codes.iter().map(one).collect()
        };
        View {
            radices: self.weights.iter().map(|w| w.radix).collect(),
            levels: self.weights.iter().map(|w| w.level).collect(),
            kinds: self.digits.iter().map(|d| d.kind.to_vec()).collect(),
            sites: self.sites.iter().map(|x| x.kind.to_vec()).collect(),
            from: place(&self.from),
            to: place(&self.to),
            whole: self.whole,
        }
    }
}
