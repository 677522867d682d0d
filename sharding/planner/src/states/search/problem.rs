//! The search problem of two states: few digits, few sites.
//!
//! Digits of equal paths (parallel paths of one signature: the same kinds of ends, the same levels) are one
//! digit of the product radix. Digits that stay at their position are dropped. Idle replicas and partial
//! digits that stay are merged into at most one of each per level and stay, because they can share the work.
//! The rest is a map from few digits to few sites: the positions of both states, unused positions (local in
//! both, as many as there are heads or tails that could use one), replicated, partial.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Limits;
use crate::model::MinTraffic;
use crate::model::codes::{Code, Codes, NOWHERE, PARTIAL, PARTIAL_LATER, REPLICATED, Weight};
use crate::model::network::Network;
use crate::model::totals::picoseconds_below;
use crate::states::closed_form::paths;
use crate::states::system::{Place, Stands, State, System};
use reshard_sharding::ReduceOp;

/// The most digits that a search is tried with: changing ones exactly, and idle ones in addition.
pub(super) const MAX_DIGITS: usize = 8;

/// A digit of the problem: real digits on parallel paths.
#[derive(Clone, Debug)]
pub(super) struct Merged {
    pub(super) real: SmallVec<[usize; 2]>,
    /// The radices of the real digits: only sites of the same kind fit.
    pub(super) kind: SmallVec<[i64; 2]>,
    /// `true` if it may become partial with the common op: not if it was partial in an average.
    pub(super) fills: bool,
    /// `true` if it ends as partial in an average, for which only replicas can be used.
    pub(super) ends_avg: bool,
}

/// A site of the problem: real positions, one for each real digit of a kind.
#[derive(Clone, Debug)]
pub(super) struct Site {
    real: SmallVec<[usize; 2]>,
    pub(super) kind: SmallVec<[i64; 2]>,
    pub(super) spare: bool,
}

/// Digits along parallel paths.
struct Chain {
    signature: Signature,
    digits: Vec<SmallVec<[usize; 2]>>,
}

/// The common properties of parallel paths.
#[derive(PartialEq)]
struct Signature {
    cycle: bool,
    idle: bool,
    /// The start and the end of the path, if they are not positions.
    start: Option<Place>,
    end: Option<Place>,
    levels: SmallVec<[usize; 4]>,
}

/// The search problem of two states.
pub(crate) struct Problem<'a> {
    pub(super) network: &'a Network<'a>,
    pub(super) limits: &'a Limits<'a>,
    pub(super) system: Arc<System>,
    base: State,
    target: State,
    pub(super) digits: SmallVec<[Merged; 8]>,
    pub(super) weights: SmallVec<[Weight; 8]>,
    /// The same for lower bounds: if some digit does not nest with domains, all have the innermost level.
    pub(super) bounding: SmallVec<[Weight; 8]>,
    pub(super) sites: SmallVec<[Site; 16]>,
    /// Per digit, the sites of its kind as bits; `spares` has the unused ones.
    pub(super) fits: SmallVec<[u32; 8]>,
    pub(super) spares: u32,
    pub(super) from: Codes,
    pub(super) to: Codes,
    /// The op of every partial digit, if source and target have the same one.
    pub(super) common: Option<ReduceOp>,
    /// Elements of a rank when no digit of the problem has a position.
    pub(super) whole: u64,
    /// Ranks of a domain below each level, counting only digits of the problem.
    pub(super) domain_sizes: SmallVec<[u64; 3]>,
    /// Lower bound of the time of a communicating step, in picoseconds.
    pub(super) least_step: u64,
    moving: usize,
}

impl<'a> Problem<'a> {
    /// Returns the problem of two states, or `None` if it has too many digits.
    pub(crate) fn new(
        network: &'a Network<'a>,
        limits: &'a Limits<'a>,
        system: &Arc<System>,
        s: &State,
        t: &State,
    ) -> Option<Problem<'a>> {
        let op_of = |state: &State| {
            state.iter().find_map(|p| match p.stands() {
                Stands::Partial(op) => Some(op.combining()),
                Stands::At(_) | Stands::Replicated => None,
            })
        };
        let common = match (op_of(s), op_of(t)) {
            (Some(a), Some(b)) => (a == b).then_some(a),
            (a, b) => a.or(b),
        };
        let mut p = Problem {
            network,
            limits,
            system: Arc::clone(system),
            base: s.clone(),
            target: t.clone(),
            digits: SmallVec::new(),
            weights: SmallVec::new(),
            bounding: SmallVec::new(),
            sites: SmallVec::new(),
            fits: SmallVec::new(),
            spares: 0,
            from: Codes::new(),
            to: Codes::new(),
            common,
            whole: 0,
            domain_sizes: SmallVec::new(),
            least_step: picoseconds_below(network.model.least_us(&MinTraffic::STEP)),
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
        let bits = |sites: &[Site], is: &dyn Fn(&Site) -> bool| {
            sites.iter().enumerate().fold(0, |mask, (i, site)| mask | u32::from(is(site)) << i)
        };
        p.fits = p.digits.iter().map(|digit| bits(&p.sites, &|site| site.kind == digit.kind)).collect();
        p.spares = bits(&p.sites, &|site| site.spare);
        let placed: u64 =
            p.from.iter().zip(&p.weights).filter(|(c, _)| **c < NOWHERE).map(|(_, w)| w.radix).product();
        p.whole = p.system.local_numel(&p.base) as u64 * placed;
        p.bounding =
            network.bounding(&p.weights, p.digits.iter().flat_map(|d| &d.real).map(|&r| p.system.digits[r]));
        let below = |l: usize| p.bounding.iter().filter(|w| w.level < l).map(|w| w.radix).product();
        p.domain_sizes = (0..network.levels()).map(below).collect();
        Some(p)
    }

    /// Returns the number of digits that change.
    pub(crate) fn moving(&self) -> usize {
        self.moving
    }

    /// Returns parallel paths and cycles of one signature, each as one chain of merged digits.
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
        let standing = self.system.standing(s);
        for first in 0..s.len() {
            if seen[first] || s[first] == t[first] {
                continue;
            }
            let mut cycle: SmallVec<[usize; 4]> = SmallVec::from_slice(&[first]);
            let mut d = first;
            while let Some(next) =
                t[d].position().and_then(|p| standing[p]).map(usize::from).filter(|&n| n != first)
            {
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
        let kind = real.iter().map(|&p| self.system.zip[p].extent).collect();
        self.sites.push(Site { real, kind, spare });
        (self.sites.len() - 1) as Code
    }

    fn place_chains(&mut self, chains: &[Chain], s: &State, t: &State) {
        for chain in chains {
            for real in &chain.digits {
                let code = |p: &mut Problem<'a>, state: &State| match state[real[0]].stands() {
                    Stands::At(_) => {
                        let at = real.iter().filter_map(|&d| state[d].position()).collect();
                        p.site(at, false)
                    }
                    Stands::Replicated => REPLICATED,
                    Stands::Partial(_) => PARTIAL,
                };
                let (a, mut b) = (code(self, s), code(self, t));
                let (first, last) = (s[real[0]], t[real[0]]);
                let by_common =
                    !first.is_partial() && self.common.is_some_and(|op| last == Place::partial(op));
                if b == PARTIAL && first != last && !by_common {
                    b = PARTIAL_LATER;
                }
                let fills = self.common.is_some() && !first.is_average();
                let ends_avg = last.is_average();
                self.from.push(a);
                self.to.push(b);
                self.moving += usize::from(a != b);
                let kind: SmallVec<[i64; 2]> = real.iter().map(|&d| self.system.digits[d].extent).collect();
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
        // Digits that are partial first, then other changing ones, then idle ones.
        let mut wanting: SmallVec<[usize; 8]> =
            (0..self.digits.len()).filter(|&d| self.from[d] >= NOWHERE || self.to[d] >= NOWHERE).collect();
        wanting.sort_by_key(|&d| (self.from[d] != PARTIAL, self.from[d] == self.to[d]));
        for d in wanting {
            let kind = self.digits[d].kind.clone();
            let mut real: SmallVec<[usize; 2]> = SmallVec::new();
            for &extent in &kind {
                let free = |p: usize| {
                    !real.contains(&p)
                        && !s.contains(&Place::at(p))
                        && !t.contains(&Place::at(p))
                        && !self.sites.iter().any(|x| x.real.contains(&p))
                };
                let zip = &self.system.zip;
                let found = (0..zip.len()).rev().find(|&p| zip[p].extent % extent == 0 && free(p));
                let Some(mut p) = found else { break };
                if zip[p].extent != extent {
                    for x in self.sites.iter_mut().flat_map(|x| x.real.iter_mut()).chain(&mut real) {
                        *x += usize::from(*x > p);
                    }
                    p = Arc::make_mut(&mut self.system).split(p, extent, &mut [s, t]);
                }
                real.push(p);
            }
            if real.len() == kind.len() {
                self.site(real, true);
            }
        }
    }

    pub(super) fn local(&self, state: &[Code]) -> u64 {
        let placed: u64 =
            state.iter().zip(&self.weights).filter(|(c, _)| **c < NOWHERE).map(|(_, w)| w.radix).product();
        self.whole / placed
    }

    /// Returns the partial state of a real digit: as in the source, or with the common op.
    fn partial(&self, real: usize) -> Place {
        match (self.base[real], self.common) {
            (place, Some(op)) if !place.is_partial() => Place::partial(op),
            (place, _) => place,
        }
    }

    /// Returns the real state of a state of the problem.
    pub(super) fn real(&self, codes: &[Code]) -> State {
        let mut state = self.base.clone();
        for (d, &code) in codes.iter().enumerate() {
            for (i, &real) in self.digits[d].real.iter().enumerate() {
                state[real] = match code {
                    REPLICATED => Place::REPLICATED,
                    PARTIAL => self.partial(real),
                    PARTIAL_LATER => self.target[real],
                    at => Place::at(self.sites[at as usize].real[i]),
                };
            }
        }
        state
    }
}

/// The problem in the form that its oracle uses.
#[cfg(test)]
#[allow(clippy::option_option, reason = "three states, as the exhaustive search of the tests spells them")]
pub(crate) struct View {
    pub(crate) radices: Vec<u64>,
    pub(crate) levels: Vec<usize>,
    pub(crate) kinds: Vec<Vec<i64>>,
    pub(crate) sites: Vec<Vec<i64>>,
    /// `None` partial, `Some(None)` replicated, `Some(Some(i))` at site `i`.
    pub(crate) from: Vec<Option<Option<usize>>>,
    pub(crate) to: Vec<Option<Option<usize>>>,
    pub(crate) whole: u64,
}

#[cfg(test)]
impl Problem<'_> {
    pub(crate) fn view(&self) -> View {
        #[allow(clippy::option_option, reason = "the oracle's own notation")]
        let place = |codes: &Codes| -> Vec<Option<Option<usize>>> {
            let one = |&c: &Code| match c {
                REPLICATED => Some(None),
                PARTIAL | PARTIAL_LATER => None,
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
