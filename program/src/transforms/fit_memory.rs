//! Selects the values that backward rematerializes: the fastest selection whose peak memory fits.
//!
//! ```text
//! time of a selection   the repeated ops and redistributions, by compute rates and cost model
//! peak of a selection   the peak of the report, of the worst rank
//! ```
//!
//! Candidates are the ops and redistributions of forward that backward depends on, directly or through
//! others. For at most [`MOST_EXACT`] candidates all selections are tried. For more, these:
//!
//! ```text
//! segments    forward in 1, 2, 3, .. segments that end where few bytes cross; values that cross are saved
//!             (Chen et al., Training deep nets with sublinear memory cost, 2016)
//! threshold   within segments, all values up to some time per byte: from those that are free to all
//! refinement  for some peaks, from the best of these that fits: values are saved after all, the most expensive
//!             first, several at a time, and fewer where several do not fit
//! ```
//!
//! The tried selections do not depend on the memory limit: those that no other beats in time and memory form
//! the [`Frontier`], and the best one that fits is returned. So with more memory no program takes more time.

use std::collections::{BTreeSet, VecDeque};

use crate::graph::ValueId;
use crate::in_kernels::Computing;
use crate::program::Statement;
use crate::report::{Walk, local_bytes};
use crate::transforms::rematerialize::{Again, Forward, Line};
use crate::{ComputeRates, Error, Program};

/// The number of candidates up to which all selections are tried.
const MOST_EXACT: usize = 12;

/// The maximum number of parts that forward is split into.
const MOST_PARTS: usize = 64;

/// The maximum number of statements simulated in total.
///
/// A program of 3,000 statements is simulated 1,400 times.
const MOST_LINES: usize = 1 << 22;

/// The number of price thresholds tried with each number of parts.
const PRICES: usize = 12;

/// The number of memory limits for which selections are reduced.
///
/// They range from the least peak found to the peak of no selection.
const PEAKS: u64 = 24;

impl Program {
    /// Returns the program with rematerialization such that the [peak](crate::Report::peak) fits.
    ///
    /// The limit is `limit_bytes` bytes. Of the selections that fit, the one with the least time is used. For
    /// programs of few ops it is the optimum.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, Graph, ComputeRates};
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
    /// let program = ShardingSolver::new().solve(&graph)?;
    /// let rates = ComputeRates::uniform();
    /// let peak = program.report(&rates).peak.bytes;
    /// let fits = program.rematerialize_to_fit(peak - 1, &rates)?;
    /// assert!(fits.report(&rates).peak.bytes < peak);
    /// assert!(program.rematerialize_to_fit(1000, &rates).unwrap_err().to_string().contains("the best needs"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error if no tried selection fits.
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
        Err(Error::Memory {
            needed: least,
            reason: format!(
                "no rematerialization fits in {limit_bytes} bytes per rank; the best needs {least}; raise the limit to that, or shard the inputs further"
            ),
        })
    }
}

/// The search over selections of values to rematerialize.
struct Choices<'a> {
    forward: Forward<'a>,
    walk: Walk<'a>,
    /// The time of each statement, in microseconds.
    cost_us: Vec<f64>,
    /// The statements that may be rematerialized, in order.
    candidates: Vec<usize>,
    /// The number of selections that may still be tried.
    left: usize,
}

/// A selection with its time.
struct Priced {
    is_chosen: Vec<bool>,
    again: Again,
    lines: Vec<Line>,
    cost_us: f64,
}

/// The Pareto front of the tried selections in time and peak memory, sorted by peak.
#[derive(Default)]
struct Frontier(Vec<Tried>);

impl Frontier {
    fn add(&mut self, tried: Tried) {
        let Frontier(all) = self;
        let at = all.partition_point(|known| known.peak <= tried.peak);
        // Those before it have no larger peak, and the last of them takes the least time.
        if all[..at].last().is_some_and(|known| known.order(&tried).is_le()) {
            return;
        }
        let from = all.partition_point(|known| known.peak < tried.peak);
        let beaten = all[from..].iter().take_while(|known| tried.cost_us <= known.cost_us).count();
        all.splice(from..from + beaten, [tried]);
    }

    /// Returns the fastest selection whose peak is at most `limit`.
    fn best(&self, limit: u64) -> Option<&Tried> {
        self.0[..self.0.partition_point(|known| known.peak <= limit)].last()
    }
}

/// A tried selection.
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
        let computing = Computing::of(program, rates);
        let cost_us = program.statements().iter().enumerate().map(|(n, item)| match item {
            Statement::Op { .. } => computing.us(n),
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

    /// Tries all selections.
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

    /// Tries selections by parts and price thresholds, and then reduces the best ones.
    ///
    /// The reduction is done for several memory limits below the peak of no selection.
    fn some(&mut self, of_nothing: u64) -> Frontier {
        let mut frontier = Frontier::default();
        let price: Vec<f64> = self.candidates.iter().map(|&n| self.price(n)).collect();
        let prices = some_of(price.clone());
        // Half of the tries is for the reduction.
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

    /// Removes statements from a selection as long as the peak fits, in at most `most` tries.
    ///
    /// The more expensive half is removed first; halves that do not fit are halved again.
    fn less(&mut self, mut best: Tried, limit: u64, most: usize, frontier: &mut Frontier) {
        let mut dearest: Vec<usize> =
            self.candidates.iter().copied().filter(|&n| best.is_chosen[n]).collect();
        dearest.sort_by(|&a, &b| self.cost_us[b].total_cmp(&self.cost_us[a]).then(a.cmp(&b)));
        // Removing all of them at once would leave no rematerialization, so begin with the halves.
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

    /// Returns the time of a statement per byte of its outputs.
    fn price(&self, n: usize) -> f64 {
        let program = self.forward.program;
        let bytes = program.statements()[n].outputs().iter().map(|v| local_bytes(program.get(*v)));
        self.cost_us[n] / (bytes.fold(0, u64::saturating_add).max(1) as f64)
    }

    /// Returns the statements to save, for up to `most` numbers of parts.
    ///
    /// They produce the values that cross from one part to the next.
    fn kept_at_cuts(&self, most: usize) -> Vec<Vec<bool>> {
        let Choices { forward, candidates, .. } = self;
        let program = forward.program;
        let takes = forward.last_takers();
        // The bytes that cross before each statement: produced before it, and taken by it or later.
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

/// Returns a sample of these prices in order, including the highest.
fn some_of(mut all: Vec<f64>) -> Vec<f64> {
    all.sort_by(f64::total_cmp);
    all.dedup();
    let last = all.len().saturating_sub(1);
    let mut places: Vec<usize> = (0..=PRICES).map(|i| last * i / PRICES).collect();
    places.dedup();
    places.into_iter().filter_map(|at| all.get(at).copied()).collect()
}

impl Tried {
    /// Orders by time, then by peak, then by selection: a total order.
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
