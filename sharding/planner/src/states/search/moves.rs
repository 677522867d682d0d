//! The transitions of the search: every state that one step reaches.
//!
//! First the action of every digit is chosen (stay, take a site, become replicated, become partial), then the
//! *site* that each takes. The cost of a collective follows from the actions alone, and so does a lower bound
//! of the cost of an exchange. So most sites are never tried.

use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use super::estimate::ANYWHERE;
use super::problem::{MAX_DIGITS, Problem};
use super::{Packed, with};
use crate::hash::WordMap;
use crate::model::codes::{Code, NOWHERE, PARTIAL, PARTIAL_LATER, REPLICATED};
use crate::model::load::{DomainSizes, Traffic, Volume, traffic, traffic_sent};
use crate::model::totals::Cost;
use crate::op::StepOp;
use crate::states::system::has_group;

/// The action of one digit in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Stay,
    /// Slice, reduce-scatter or exchange onto a site.
    Take,
    /// Gather or all-reduce.
    Spread,
    /// Become partial.
    BecomePartial(Code),
}

type Acts = [Act; MAX_DIGITS];
/// Digits that take a site.
type Takes = SmallVec<[usize; 8]>;

/// The groups seen so far, with their sizes in domains, and whether they may be used.
#[derive(Default)]
pub(super) struct Groups {
    index: WordMap<u32, usize>,
    all: Vec<Known>,
}

/// A group that was seen.
struct Known {
    axes: Modes<AxisStride>,
    allowed: bool,
    sizes: SmallVec<[DomainSizes; 2]>,
}

// The actions of the digits of a step, as bits.
const SLICE: u8 = 1;
const FILL: u8 = 2;
const GATHER: u8 = 4;
const SCATTER: u8 = 8;
const REDUCE: u8 = 16;
const MOVE: u8 = 32;

/// Returns `true` if these actions may share one step: all the same, or any that an exchange does.
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

/// The receiver of the transitions.
pub(super) trait Visitor {
    /// Counts work; returns `true` if the budget allows more.
    fn works(&mut self, work: u64) -> bool;
    /// Returns `true` if a step of this cost may be profitable, given the best state it can lead to.
    ///
    /// For an exchange the cost is a lower bound.
    fn wants(&mut self, step: &Cost, at_best: Packed) -> bool;
    /// Receives a transition that costs at least `least`; `exactly` computes its cost on demand.
    ///
    /// It takes a predicate. If that is true of the cost of the receivers alone, it may return that.
    fn visit(
        &mut self,
        next: Packed,
        op: StepOp,
        least: &Cost,
        exactly: impl FnOnce(&dyn Fn(&Cost) -> bool) -> Cost,
    );
}

/// The transitions of one state.
struct Expansion<'p, 'v, V> {
    problem: &'p Problem<'p>,
    groups: &'v mut Groups,
    visitor: &'v mut V,
    state: &'p [Code],
    /// The sites that digits of the state occupy, as bits.
    occupied: u32,
    local: u64,
    pending: bool,
    /// The group of the current step.
    group: usize,
    /// The sites that the step leaves, as bits.
    ///
    /// `costs` has the traffic of the worst receiver of an exchange and its cost, by those of these sites
    /// that are taken over.
    left: u32,
    costs: SmallVec<[(u32, Traffic, Cost); 8]>,
}

impl Problem<'_> {
    /// Calls `visitor` with every state that one step reaches from a state.
    pub(super) fn moves(&self, state: &[Code], groups: &mut Groups, visitor: &mut impl Visitor) {
        // Partial values of two ops cannot coexist: those of the source are reduced first.
        let pending = self.common.is_none() && state.contains(&PARTIAL);
        let occupied = state.iter().filter(|&&c| c < NOWHERE).fold(0, |mask, &c| mask | 1 << c);
        let local = self.local(state);
        let (group, left, costs) = (0, 0, SmallVec::new());
        let mut x =
            Expansion { problem: self, groups, visitor, state, occupied, local, pending, group, left, costs };
        x.choose(&mut [Act::Stay; MAX_DIGITS], 0, 0, x.local);
    }

    fn group(&self, mask: u32, groups: &mut Groups) -> usize {
        if let Some(&i) = groups.index.get(&mask) {
            return i;
        }
        let mut digits: SmallVec<[usize; 8]> = (0..self.digits.len())
            .filter(|d| mask >> d & 1 == 1)
            .flat_map(|d| self.digits[d].real.iter().copied())
            .collect();
        digits.sort_unstable();
        // Digits that make a whole axis are a group, even if each alone has none.
        let mut axes = Modes::new();
        for &digit in digits.iter().rev() {
            axes.push_coalesced(0, self.system.digits[digit]);
        }
        axes.reverse();
        let allowed = self.limits.allowed.is_none_or(|f| f(&axes)) && has_group(&self.system.mesh, &axes);
        let sizes = self.network.domain_sizes(&axes).unwrap_or_default();
        groups.all.push(Known { axes, allowed, sizes });
        groups.index.insert(mask, groups.all.len() - 1);
        groups.all.len() - 1
    }
}

impl<V: Visitor> Expansion<'_, '_, V> {
    /// Chooses the actions of digit `d` and all after it.
    ///
    /// `local` is the number of elements of a rank after the choices so far.
    fn choose(&mut self, acts: &mut Acts, d: usize, kinds: u8, local: u64) {
        if d == self.state.len() {
            if self.visitor.works(2) {
                self.place_all(acts, kinds, local);
            }
            return;
        }
        let (now, p, pending) = (self.state[d], self.problem, self.pending);
        let (at, partial) = (now < NOWHERE, now == PARTIAL);
        let radix = p.weights[d].radix;
        let mut go = |act: Act, kind: u8, local: u64| {
            if may_be_step(kinds | kind) {
                acts[d] = act;
                self.choose(acts, d + 1, kinds | kind, local);
            }
        };
        go(Act::Stay, 0, local);
        if now == PARTIAL_LATER {
            return;
        }
        let left = |local: u64| local / radix;
        if at {
            go(Act::Take, MOVE, local);
            go(Act::Spread, GATHER, local * radix);
        } else if partial {
            go(Act::Take, SCATTER, left(local));
            go(Act::Spread, REDUCE, local);
        } else {
            go(Act::Take, SLICE, left(local));
        }
        let digit = &p.digits[d];
        let grown = if at { local * radix } else { local };
        if !partial && digit.fills {
            go(Act::BecomePartial(PARTIAL), FILL, grown);
        }
        // Only replicas can become partial values of an average.
        if !partial && p.to[d] == PARTIAL_LATER && !pending && (now == REPLICATED || !digit.ends_avg) {
            go(Act::BecomePartial(PARTIAL_LATER), FILL, grown);
        }
    }

    /// Visits every choice of sites for these actions.
    fn place_all(&mut self, acts: &Acts, kinds: u8, after: u64) {
        let Some(op) = step_of(kinds) else { return };
        let p = self.problem;
        // Replicas must come from one reduction of all digits that are still to be reduced: a later reduction
        // in another group may round differently. Where only some groups may be used, several reductions are
        // admitted.
        let reduced = |d: usize| p.to[d] != PARTIAL && p.to[d] != PARTIAL_LATER;
        let leaves = |d: usize| self.state[d] == PARTIAL && acts[d] == Act::Stay && reduced(d);
        let leaves_terms = || (0..self.state.len()).any(leaves);
        if op == StepOp::AllReduce && p.limits.allowed.is_none() && leaves_terms() {
            return;
        }
        if op.communicates() {
            let moves = (0..self.state.len()).filter(|&d| acts[d] != Act::Stay);
            self.group = p.group(moves.fold(0, |mask, d| mask | 1 << d), self.groups);
        }
        if !self.visitor.works(10) {
            return;
        }
        let Some(least) = self.least_cost(acts, op, after) else { return };
        let (mut at_best, mut takes) = (0, Takes::new());
        let (mut used, mut left) = (0u32, 0u32);
        for (d, &now) in self.state.iter().enumerate() {
            if now < NOWHERE {
                *(if acts[d] == Act::Stay { &mut used } else { &mut left }) |= 1 << now;
            }
            let best = match acts[d] {
                Act::Stay => now,
                Act::Take => {
                    takes.push(d);
                    if p.to[d] < NOWHERE { p.to[d] } else { ANYWHERE }
                }
                Act::Spread => REPLICATED,
                Act::BecomePartial(code) => code,
            };
            at_best = at_best << 8 | Packed::from(best);
        }
        self.left = left;
        self.costs.clear();
        if self.visitor.wants(&least, at_best) {
            self.place(&takes, at_best, used, op, &least);
        }
    }

    /// Assigns sites to the digits in `takes`, the first one next; the others are at their best site.
    fn place(&mut self, takes: &[usize], state: Packed, used: u32, op: StepOp, least: &Cost) {
        if !self.visitor.works(4) {
            return;
        }
        let p = self.problem;
        let Some((&d, takes)) = takes.split_first() else {
            let (taken_over, costs) = (used & self.left, &mut self.costs);
            let (groups, group, local) = (&*self.groups, self.group, self.local);
            let exactly = |is_enough: &dyn Fn(&Cost) -> bool| {
                if op != StepOp::Exchange {
                    return *least;
                }
                let (bytes, next) = (least.peak - local * p.limits.item, state.to_be_bytes());
                let next = p.unpacked(&next);
                let known = costs.iter().position(|x| x.0 == taken_over).unwrap_or_else(|| {
                    let x = traffic(&p.weights, self.state, next, bytes, p.network.levels());
                    let cost = p.network.cost_of_exchange(&x, None, least.peak, &groups.all[group].axes);
                    costs.push((taken_over, x, cost));
                    costs.len() - 1
                });
                let (_, received, cost) = &costs[known];
                if is_enough(cost) {
                    return *cost;
                }
                match traffic_sent(&p.weights, self.state, next, received, bytes) {
                    Some(sent) => {
                        let sent =
                            p.network.cost_of_exchange(&sent, None, cost.peak, &groups.all[group].axes);
                        Cost::new(cost.us.max(sent.us), cost.received, cost.peak)
                    }
                    None => *cost,
                }
            };
            self.visitor.visit(state, op, least, exactly);
            return;
        };
        let now = self.state[d];
        let mut free = p.fits[d] & !used & if now < NOWHERE { !(1 << now) } else { u32::MAX };
        // Unused sites of a kind are equivalent: only the first free one is tried.
        let spares = free & p.spares & !self.occupied;
        free &= !(spares & spares.wrapping_sub(1));
        while free > 0 {
            let i = free.trailing_zeros();
            free &= free - 1;
            let state = with(state, p.to.len(), d, i as Code);
            if takes.is_empty() || self.visitor.wants(least, state) {
                self.place(takes, state, used | 1 << i, op, least);
            }
        }
    }

    /// Returns a lower bound of the cost of a step, exact unless it is an exchange.
    ///
    /// It is `None` if the group of the step may not be used.
    fn least_cost(&mut self, acts: &Acts, op: StepOp, after: u64) -> Option<Cost> {
        let (p, item) = (self.problem, self.problem.limits.item);
        let mut size = 1u64;
        for d in (0..self.state.len()).filter(|&d| acts[d] != Act::Stay) {
            size *= p.weights[d].radix;
        }
        let volume = Volume::new(op, [self.local, after], size, item);
        if !op.communicates() {
            return Some(Cost::new(0.0, 0, volume.peak));
        }
        let group = &self.groups.all[self.group];
        if !group.allowed {
            return None;
        }
        Some(match op {
            StepOp::AllToAll | StepOp::Exchange => {
                // Bytes are least where no digit takes over a site: a rank then has some of its target
                // already. Peers are least where all sites are taken over: there is one peer, at the level of
                // the outermost digit that changes.
                let mut free = [REPLICATED; MAX_DIGITS];
                let free = &mut free[..self.state.len()];
                for (d, &now) in self.state.iter().enumerate() {
                    if acts[d] == Act::Stay || now >= NOWHERE {
                        free[d] = now;
                    }
                }
                let mut x = traffic(&p.weights, self.state, free, after * item, p.network.levels());
                let outermost = x.iter().rposition(|x| x.peers > 0);
                for (l, x) in x.iter_mut().enumerate() {
                    x.peers = usize::from(Some(l) == outermost);
                }
                let axes = &self.groups.all[self.group].axes;
                p.network.least_cost_of_exchange(&x, volume.peak, axes)
            }
            StepOp::AllGather
            | StepOp::ReduceScatter
            | StepOp::AllReduce
            | StepOp::Slice
            | StepOp::ZeroFill => p.network.cost_of_collective(op, &volume, &group.sizes, &group.axes),
        })
    }
}
