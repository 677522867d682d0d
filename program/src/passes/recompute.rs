//! Which values backward makes again, so that a program fits into memory: of all choices whose peak fits the one that takes least time.
//!
//! ```text
//! time of a choice   the ops and moves that are done twice, by rates and cost model
//! peak of a choice   the report's, of the worst rank
//! ```
//!
//! Candidates are the ops and moves of forward from which backward takes something, itself or through others. Of at most
//! [`MOST_EXACT`] all choices are looked at. Of more these:
//!
//! ```text
//! cuts        forward in 1, 2, 3, .. parts, which end where few bytes cross from one to the next: what crosses is kept
//!             (Chen et al., Training deep nets with sublinear memory cost, 2016)
//! price       of what lies within parts all that takes at most so much time for a byte that it holds: at first what costs nothing, at last all
//! less        for each of some peaks, from the best of these that fits: items are kept after all, the dearest first, many at a time and fewer
//!             where many do not fit
//! ```
//!
//! Which choices are looked at does not depend on what is allowed: those that no other beats in both are the [`Frontier`], of which the
//! best that fits is taken. So with more memory no program takes more time.

use std::collections::{BTreeSet, VecDeque};

use crate::graph::ValueId;
use crate::passes::again::{Again, Forward, Line};
use crate::program::Statement;
use crate::report::{Walk, computing_us, local_bytes};
use crate::{ComputeRates, Error, Program};

/// Of so many candidates all choices are looked at.
const MOST_EXACT: usize = 12;

/// In so many parts forward is cut at most.
const MOST_PARTS: usize = 64;

/// So many lines are walked over in all: a choice of a program of 3,000 items is walked over 1,400 times.
const MOST_LINES: usize = 1 << 22;

/// So many prices are tried with each number of parts.
const PRICES: usize = 12;

/// For so many peaks between the least and that of nothing items are taken away.
const PEAKS: u64 = 24;

impl Program {
    /// The same program, in which backward makes again what has to be made again for the [peak](crate::Report::peak) to be at most so many
    /// bytes: of the choices that fit the one that takes least time, which for programs of few ops is the best of all.
    ///
    /// ```
    /// use reshard_program::{Elaborator, Graph, Rates};
    /// let graph: Graph = "
    ///     mesh dp=2
    ///     x: f32[64,256] S(0)
    ///     w: f32[256,256] I
    ///     a = mm(x, w)
    ///     b = sin(a)
    ///     c = sin(b)
    ///     d = sin(c)
    ///     e = sin(d)
    ///     loss = sum(e)
    ///     gradient loss wrt w
    /// ".parse()?;
    /// let program = Elaborator::new().elaborate(&graph)?;
    /// let rates = Rates::uniform();
    /// let peak = program.report(&rates).peak.bytes;
    /// let fits = program.recompute(peak - 1, &rates)?;
    /// assert!(fits.report(&rates).peak.bytes < peak);
    /// assert!(program.recompute(1000, &rates).unwrap_err().to_string().contains("the least that was found is"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails where no choice that is looked at fits.
    pub fn rematerialize_to_fit(&self, limit_bytes: u64, rates: &ComputeRates) -> Result<Program, Error> {
        let mut choices = Choices::of(self, rates);
        let peak = choices.walk.peak().bytes;
        if peak <= limit_bytes {
            return Ok(self.clone());
        }
        let frontier =
            if choices.candidates.len() <= MOST_EXACT { choices.all() } else { choices.some(peak) };
        if let Some(best) = frontier.best(limit_bytes) {
            return Ok(choices.forward.program(&best.again));
        }
        let least = frontier.0.first().map_or(peak, |tried| peak.min(tried.peak));
        Err(Error::Schedule {
            reason: format!(
                "no choice of what backward makes again fits into {limit_bytes} bytes of a rank, and the least that was found is {least}: allow so many, or cut inputs over more ranks"
            ),
        })
    }
}

/// What may be made again.
struct Choices<'a> {
    forward: Forward<'a>,
    walk: Walk<'a>,
    /// The time of each item, in microseconds.
    cost_us: Vec<f64>,
    /// Items that may be done again, in order.
    candidates: Vec<usize>,
    /// How many choices may still be looked at.
    left: usize,
}

/// A choice and its time.
struct Priced {
    is_chosen: Vec<bool>,
    again: Again,
    lines: Vec<Line>,
    cost_us: f64,
}

/// The choices that were looked at and that no other beats in time and in peak: more of one is less of the other.
#[derive(Default)]
struct Frontier(Vec<Tried>);

impl Frontier {
    fn add(&mut self, tried: Tried) {
        let Frontier(all) = self;
        let at = all.partition_point(|known| known.peak <= tried.peak);
        // Those before it have no more bytes, and the last of them takes least time.
        if all[..at].last().is_some_and(|known| known.order(&tried).is_le()) {
            return;
        }
        let from = all.partition_point(|known| known.peak < tried.peak);
        let beaten = all[from..].iter().take_while(|known| tried.cost_us <= known.cost_us).count();
        all.splice(from..from + beaten, [tried]);
    }

    /// Of what fits the one that takes least time.
    fn best(&self, limit: u64) -> Option<&Tried> {
        self.0[..self.0.partition_point(|known| known.peak <= limit)].last()
    }
}

/// A choice that was looked at.
#[derive(Clone)]
struct Tried {
    is_chosen: Vec<bool>,
    again: Again,
    cost_us: f64,
    peak: u64,
}

impl<'a> Choices<'a> {
    fn of(program: &'a Program, rates: &ComputeRates) -> Choices<'a> {
        let forward = Forward::of(program);
        let cost_us = program.statements().iter().map(|item| match item {
            Statement::Op { .. } => computing_us(program, item, rates),
            Statement::Redistribute { forward, .. } => forward.cost_us(),
            Statement::Input(_) | Statement::NoGrad => 0.0,
        });
        let cost_us = cost_us.collect();
        let candidates = forward.candidates();
        let left = MOST_LINES / program.statements().len().max(1);
        Choices { walk: Walk::of(program), forward, cost_us, candidates, left }
    }

    fn priced(&self, is_chosen: Vec<bool>) -> Priced {
        let again = self.forward.again(is_chosen.clone());
        let lines = self.forward.lines(&again);
        let copies = lines.iter().filter(|line| line.is_copy);
        let cost_us = copies.fold(0.0, |sum, line| sum + self.cost_us[line.item]);
        Priced { is_chosen, again, lines, cost_us }
    }

    fn tried(&mut self, Priced { is_chosen, again, lines, cost_us }: Priced) -> Tried {
        self.left = self.left.saturating_sub(1);
        self.walk.follow(&self.forward, &lines, &again);
        Tried { is_chosen, again, cost_us, peak: self.walk.peak().bytes }
    }

    fn none(&self) -> Vec<bool> {
        vec![false; self.cost_us.len()]
    }

    /// By the definition.
    fn all(&mut self) -> Frontier {
        let mut frontier = Frontier::default();
        for bits in 1u64..1 << self.candidates.len() {
            let mut is_chosen = self.none();
            for (at, &n) in self.candidates.iter().enumerate() {
                is_chosen[n] = bits >> at & 1 == 1;
            }
            frontier.add(self.tried(self.priced(is_chosen)));
        }
        frontier
    }

    /// Those of cuts and prices, and for some peaks, below that of nothing, what is left of them.
    fn some(&mut self, of_nothing: u64) -> Frontier {
        let mut frontier = Frontier::default();
        let price: Vec<f64> = self.candidates.iter().map(|&n| self.price(n)).collect();
        let prices = some_of(price.clone());
        // Half of what may be looked at is for taking away.
        let numbers = (self.left / 2 / prices.len().max(1)).clamp(1, MOST_PARTS);
        let mut known: BTreeSet<Vec<bool>> = BTreeSet::new();
        for kept in self.kept_at_cuts(numbers) {
            for &most in &prices {
                let mut is_chosen = self.none();
                for (&n, of) in self.candidates.iter().zip(&price).filter(|(n, _)| !kept[**n]) {
                    is_chosen[n] = *of <= most;
                }
                if self.left > 0 && known.insert(is_chosen.clone()) {
                    frontier.add(self.tried(self.priced(is_chosen)));
                }
            }
        }
        let least = frontier.0.first().map_or(of_nothing, |tried| tried.peak);
        let between = of_nothing.saturating_sub(least);
        for at in 0..PEAKS {
            let limit = least + (u128::from(between) * u128::from(at) / u128::from(PEAKS)) as u64;
            let share = self.left / (PEAKS - at) as usize;
            if let Some(best) = frontier.best(limit).cloned() {
                self.less(best, limit, share, &mut frontier);
            }
        }
        frontier
    }

    /// Keeps items after all, as long as the peak fits: halves of the dearest first, then halves of what did not fit, in at most so many tries.
    fn less(&mut self, mut best: Tried, limit: u64, most: usize, frontier: &mut Frontier) {
        let mut dearest: Vec<usize> =
            self.candidates.iter().copied().filter(|&n| best.is_chosen[n]).collect();
        dearest.sort_by(|&a, &b| self.cost_us[b].total_cmp(&self.cost_us[a]).then(a.cmp(&b)));
        // All of them are nothing that is made again.
        let rest = dearest.split_off(dearest.len().div_ceil(2));
        let mut parts = VecDeque::from([dearest, rest]);
        for _ in 0..most {
            let Some(mut part) = parts.pop_front() else { return };
            if part.is_empty() {
                continue;
            }
            let mut is_chosen = best.is_chosen.clone();
            for &n in &part {
                is_chosen[n] = false;
            }
            let tried = self.tried(self.priced(is_chosen));
            let fits = tried.peak <= limit && tried.is_before(&best);
            frontier.add(tried.clone());
            if fits {
                best = tried;
            } else if part.len() > 1 {
                let rest = part.split_off(part.len().div_ceil(2));
                parts.extend([part, rest]);
            }
        }
    }

    /// The time of an item for a byte that it makes.
    fn price(&self, n: usize) -> f64 {
        let program = self.forward.program;
        let bytes = program.statements()[n].outputs().iter().map(|v| local_bytes(program.get(*v)));
        self.cost_us[n] / (bytes.fold(0, u64::saturating_add).max(1) as f64)
    }

    /// For at most so many numbers of parts, the items that make what crosses from one to the next.
    fn kept_at_cuts(&self, most: usize) -> Vec<Vec<bool>> {
        let Choices { forward, candidates, .. } = self;
        let program = forward.program;
        let takes = forward.last_takers();
        // What crosses before each item, in bytes: what is made before it and taken by it or after it.
        let mut crossing = vec![0u64; forward.items + 1];
        for &n in candidates {
            for v in program.statements()[n].outputs() {
                let last = takes[v.index()].unwrap_or(n);
                let bytes = local_bytes(program.get(*v));
                crossing[n + 1..=last.max(n)].iter_mut().for_each(|sum| *sum = sum.saturating_add(bytes));
            }
        }
        let (Some(&first), Some(&end)) = (candidates.first(), candidates.last()) else { return Vec::new() };
        let length = end - first;
        let mut all: Vec<Vec<bool>> = Vec::new();
        for parts in (1..=MOST_PARTS.min(length)).step_by(MOST_PARTS.div_ceil(most)) {
            let mut kept = self.none();
            for part in 1..parts {
                let near = |halves: usize| first + length * halves / (2 * parts);
                let cut = (near(2 * part - 1)..=near(2 * part + 1)).min_by_key(|&at| crossing[at]);
                let Some(cut) = cut else { continue };
                for &n in candidates.iter().filter(|&&n| n < cut) {
                    let crosses = |v: &ValueId| takes[v.index()].is_some_and(|last| last >= cut);
                    kept[n] |= program.statements()[n].outputs().iter().any(crosses);
                }
            }
            if !all.contains(&kept) {
                all.push(kept);
            }
        }
        all
    }
}

/// Some of these prices, the highest among them, in order.
fn some_of(mut all: Vec<f64>) -> Vec<f64> {
    all.sort_by(f64::total_cmp);
    all.dedup();
    let last = all.len().saturating_sub(1);
    let mut places: Vec<usize> = (0..=PRICES).map(|i| last * i / PRICES).collect();
    places.dedup();
    places.into_iter().filter_map(|at| all.get(at).copied()).collect()
}

impl Tried {
    /// By time, then by peak, then by what is chosen: an order of all.
    fn order(&self, other: &Tried) -> core::cmp::Ordering {
        let chosen = |tried: &Tried| tried.is_chosen.iter().filter(|is| **is).count();
        self.cost_us
            .total_cmp(&other.cost_us)
            .then(self.peak.cmp(&other.peak))
            .then(chosen(self).cmp(&chosen(other)))
    }

    fn is_before(&self, other: &Tried) -> bool {
        self.order(other).is_lt()
    }
}
