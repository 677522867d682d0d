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
//! less        from the best of these one item after another is kept after all, the dearest first, as long as it fits
//! ```

use crate::graph::ValueId;
use crate::passes::again::{Again, Forward, Line};
use crate::program::Item;
use crate::report::{Walk, computing_us, local_bytes};
use crate::{Error, Program, Rates};

/// Of so many candidates all choices are looked at.
const MOST_EXACT: usize = 12;

/// In so many parts forward is cut at most.
const MOST_PARTS: usize = 64;

/// So many lines are walked over in all: a choice of a program of 3,000 items is walked over 1,400 times.
const MOST_LINES: usize = 1 << 22;

/// So many prices are tried with each number of parts.
const PRICES: usize = 12;

/// From so many choices items are taken away.
const BEGINNINGS: usize = 3;

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
    pub fn recompute(&self, limit_bytes: u64, rates: &Rates) -> Result<Program, Error> {
        let mut choices = Choices::of(self, rates);
        let peak = choices.walk.peak().bytes;
        if peak <= limit_bytes {
            return Ok(self.clone());
        }
        let best = if choices.candidates.len() <= MOST_EXACT {
            choices.best_of_all(limit_bytes, peak)
        } else {
            choices.best_found(limit_bytes, peak)
        };
        match best {
            Ok(again) => Ok(choices.forward.program(&again)),
            Err(least) => Err(Error::Schedule {
                reason: format!(
                    "no choice of what backward makes again fits into {limit_bytes} bytes of a rank, and the least that was found is {least}: allow so many, or cut inputs over more ranks"
                ),
            }),
        }
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

/// A choice that was looked at.
#[derive(Clone)]
struct Tried {
    is_chosen: Vec<bool>,
    again: Again,
    cost_us: f64,
    peak: u64,
}

impl<'a> Choices<'a> {
    fn of(program: &'a Program, rates: &Rates) -> Choices<'a> {
        let forward = Forward::of(program);
        let cost_us = program.items().iter().map(|item| match item {
            Item::Op { .. } => computing_us(program, item, rates),
            Item::Move { forward, .. } => forward.cost_us(),
            Item::Input(_) | Item::NoGrad => 0.0,
        });
        let cost_us = cost_us.collect();
        let candidates = forward.candidates();
        let left = MOST_LINES / program.items().len().max(1);
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

    /// By the definition; else the least peak, of which one is that of nothing.
    fn best_of_all(&mut self, limit: u64, mut least: u64) -> Result<Again, u64> {
        let mut best: Option<Tried> = None;
        for bits in 1u64..1 << self.candidates.len() {
            let mut is_chosen = self.none();
            for (at, &n) in self.candidates.iter().enumerate() {
                is_chosen[n] = bits >> at & 1 == 1;
            }
            let tried = self.tried(self.priced(is_chosen));
            least = least.min(tried.peak);
            if tried.peak <= limit && best.as_ref().is_none_or(|best| tried.is_before(best)) {
                best = Some(tried);
            }
        }
        best.map(|best| best.again).ok_or(least)
    }

    /// The best of those that are looked at; else the least peak, of which one is that of nothing.
    fn best_found(&mut self, limit: u64, mut least: u64) -> Result<Again, u64> {
        let mut fitting: Vec<Tried> = Vec::new();
        let price: Vec<f64> = self.candidates.iter().map(|&n| self.price(n)).collect();
        let prices = some_of(price.clone());
        // Half of what may be looked at is for taking away.
        let numbers = (self.left / 2 / prices.len().max(1)).clamp(1, MOST_PARTS);
        for kept in self.kept_at_cuts(numbers) {
            for &most in &prices {
                if self.left == 0 {
                    break;
                }
                let mut is_chosen = self.none();
                for (&n, of) in self.candidates.iter().zip(&price).filter(|(n, _)| !kept[**n]) {
                    is_chosen[n] = *of <= most;
                }
                let priced = self.priced(is_chosen);
                if fitting.get(BEGINNINGS - 1).is_some_and(|worst| priced.cost_us >= worst.cost_us) {
                    continue;
                }
                let tried = self.tried(priced);
                least = least.min(tried.peak);
                if tried.peak <= limit {
                    fitting.push(tried);
                    fitting.sort_by(Tried::order);
                    fitting.truncate(BEGINNINGS);
                }
            }
        }
        let less: Vec<Tried> = fitting.into_iter().map(|tried| self.less(tried, limit)).collect();
        let best = less.into_iter().min_by(Tried::order);
        best.map(|best| best.again).ok_or(least)
    }

    /// Keeps one item after another after all, as long as the peak fits.
    fn less(&mut self, mut best: Tried, limit: u64) -> Tried {
        let mut dearest: Vec<usize> =
            self.candidates.iter().copied().filter(|&n| best.is_chosen[n]).collect();
        dearest.sort_by(|&a, &b| self.cost_us[b].total_cmp(&self.cost_us[a]).then(a.cmp(&b)));
        let shares = self.left / BEGINNINGS;
        for n in dearest.into_iter().take(shares) {
            let mut is_chosen = best.is_chosen.clone();
            is_chosen[n] = false;
            let tried = self.tried(self.priced(is_chosen));
            if tried.peak <= limit && tried.is_before(&best) {
                best = tried;
            }
        }
        best
    }

    /// The time of an item for a byte that it makes.
    fn price(&self, n: usize) -> f64 {
        let program = self.forward.program;
        let bytes = program.items()[n].makes().iter().map(|v| local_bytes(program.get(*v)));
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
            for v in program.items()[n].makes() {
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
                    kept[n] |= program.items()[n].makes().iter().any(crosses);
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
