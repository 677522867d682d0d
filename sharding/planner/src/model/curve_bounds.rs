//! What no plan can do without, where steps are priced by [curves](super::curves).
//!
//! Let `y` be the bytes that the worst rank of a step receives over levels `l` and up. Each curve that spans
//! such a level is a function of `y`: of a gather over `n` ranks, `m` of them in a domain of the level below,
//! `y` is the tensor's size times `1/m - 1/n`; of an all-reduce, twice that; of an exchange, at most the size
//! times `1 - 1/n`. The formula of the levels is at least `launch + latency_l + y / (rates of l and up)`.
//!
//! A plan that needs `b` bytes of `D` domains from beyond the domains of level `l` takes at least
//!
//! ```text
//! one step      the least of all curves that reach D domains, at b or any more bytes
//! more steps    max over R of  A_g1(R) + A_g2(R) + .. + b / R
//! A_g(R)        min over curves of reach g, and sizes y, of  time(y) - y / R
//! ```
//!
//! for rates `R` where every `A` is at least 0. At level 0 the reaches of the steps multiply to at least `D`.
//! Further out, one step may cross the level, and the others are at least the cheapest step there is. A plan
//! whose steps are all priced by the formula keeps the bound of the formula, so the smaller one holds.
//!
//! Each spread between two measured ones has a function, up to [`EACH`] of them. Of more, one function is below
//! all: the smaller of both curves, at the size of the last.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::model::curves::{Curves, Found, MEASURED, Spread, passes, ranks};
use crate::model::{Level, MinTraffic};
use crate::op::StepOp;

/// The greatest number of spreads between two measured ones that have a function each.
const EACH: u32 = 16;

/// The error of times that are rounded down to picoseconds, twice.
const ROUNDED_US: f64 = 2e-6;

/// The greatest number of domains that plans of several steps are bounded by.
const MOST_DOMAINS: u64 = 1 << 12;

/// A function that is below a curve: linear between knots of bytes and time, constant before the first.
#[derive(Clone, Debug)]
struct Floor {
    /// The number of domains whose data a rank may have after one step.
    reach: u64,
    is_exchange: bool,
    knots: Vec<(f64, f64)>,
    /// Microseconds per byte beyond the last knot.
    slope: f64,
}

impl Floor {
    fn at(&self, bytes: f64) -> f64 {
        value(&self.knots, self.slope, bytes)
    }

    /// Returns the least of `time(y) - y / R`, if there is one.
    fn intercept(&self, per_byte: f64) -> Option<f64> {
        let least = self.knots.iter().map(|&(y, us)| us - y * per_byte).fold(self.knots[0].1, f64::min);
        (self.slope >= per_byte).then_some(least)
    }
}

/// Returns the value of a function of knots.
fn value(knots: &[(f64, f64)], slope: f64, bytes: f64) -> f64 {
    let after = knots.partition_point(|&(y, _)| y <= bytes);
    let Some(at) = after.checked_sub(1) else { return knots[0].1 };
    let (y, us) = knots[at];
    match knots.get(after) {
        Some(&(next, then)) => us + (bytes - y) * ((then - us) / (next - y)),
        None => us + (bytes - y) * slope,
    }
}

/// The least of some functions, at a size or any greater one.
#[derive(Clone, Debug)]
struct Ascending {
    knots: Vec<(f64, f64)>,
    slope: f64,
}

impl Ascending {
    /// Returns the least of functions between `sizes`; `None` of no function.
    ///
    /// The sizes include the knots of all. Between two of them each function is linear, so that their least is
    /// nowhere below the chord.
    fn of<'f>(floors: impl Iterator<Item = &'f Floor> + Clone, sizes: &[f64]) -> Option<Ascending> {
        floors.clone().next()?;
        let least = |y: f64| floors.clone().map(|f| f.at(y)).fold(f64::INFINITY, f64::min);
        let mut knots: Vec<(f64, f64)> = sizes.iter().map(|&y| (y, least(y))).collect();
        let mut last = f64::INFINITY;
        for (_, us) in knots.iter_mut().rev() {
            last = last.min(*us);
            *us = last;
        }
        let slope = floors.map(|f| f.slope).fold(f64::INFINITY, f64::min);
        Some(Ascending { knots, slope })
    }

    fn at(&self, bytes: f64) -> f64 {
        value(&self.knots, self.slope, bytes)
    }
}

/// The greatest of some lines, from 0.
#[derive(Clone, Debug, Default)]
struct Lines {
    /// Microseconds at no bytes, and per byte; each is the greatest from its start on.
    lines: Vec<(f64, f64)>,
    starts: Vec<f64>,
}

impl Lines {
    fn of(mut all: Vec<(f64, f64)>) -> Lines {
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.0.total_cmp(&a.0)));
        let mut made = Lines::default();
        for (us, slope) in all {
            // A line of a greater slope replaces those that it passes before they are the greatest.
            let start = loop {
                let Some(&(above, flatter)) = made.lines.last() else { break 0.0 };
                let meets = if slope > flatter { (above - us) / (slope - flatter) } else { f64::INFINITY };
                if meets > made.starts[made.starts.len() - 1] {
                    break meets;
                }
                made.lines.pop();
                made.starts.pop();
            };
            if start.is_finite() {
                made.lines.push((us, slope));
                made.starts.push(start);
            }
        }
        made
    }

    fn at(&self, bytes: f64) -> f64 {
        let after = self.starts.partition_point(|&start| start <= bytes);
        after.checked_sub(1).map_or(0.0, |at| self.lines[at].0 + bytes * self.lines[at].1)
    }
}

/// The bounds of the bytes from beyond the domains of one level.
#[derive(Clone, Debug)]
struct OfLevel {
    /// By the least reach: the functions of at least that reach.
    one_step: Vec<(u64, Ascending)>,
    /// The same for exchanges alone; the reach is the number of ranks.
    exchanges: Vec<(u64, Ascending)>,
    /// By the least number of domains.
    more_steps: Vec<(u64, Lines)>,
}

/// The bounds of a network with curves.
#[derive(Clone, Debug)]
pub(crate) struct CurveBounds {
    levels: SmallVec<[OfLevel; 3]>,
}

impl CurveBounds {
    pub(crate) fn new(curves: &Curves, launch_us: f64, levels: &[Level]) -> CurveBounds {
        // A step that transfers nothing takes at least this; one between two curves is not below both.
        let of_launch = launch_us + levels[0].latency_us;
        let firsts =
            MEASURED.iter().flat_map(|&op| curves.of(op)).map(|knots| rounded_us(knots.picoseconds[0]));
        let least = firsts.fold(of_launch, f64::min);
        let levels = (0..levels.len()).map(|l| OfLevel::new(curves, launch_us, levels, l, least)).collect();
        CurveBounds { levels }
    }

    /// Returns the least time of a plan with a step that has a curve.
    pub(crate) fn least_us(&self, needs: &[MinTraffic]) -> f64 {
        self.levels.iter().zip(needs).map(|(level, need)| level.least_us(need)).fold(0.0, f64::max)
    }

    /// Returns the least time of an exchange that has a curve, given the bytes of at least `peers` peers over
    /// each level.
    ///
    /// It is infinite if there is no such curve.
    pub(crate) fn exchange_us(
        &self,
        peers: usize,
        bytes_of_levels: impl DoubleEndedIterator<Item = f64> + ExactSizeIterator,
    ) -> f64 {
        let mut least = 0.0f64;
        let mut beyond = 0.0;
        for (level, bytes) in self.levels[..bytes_of_levels.len()].iter().zip(bytes_of_levels).rev() {
            beyond += bytes;
            if beyond > 0.0 {
                least = least.max(
                    at_least(&level.exchanges, peers as u64 + 1).map_or(f64::INFINITY, |f| f.at(beyond)),
                );
            }
        }
        least
    }
}

/// Returns microseconds that are not above a time before it was rounded.
fn rounded_us(picoseconds: u64) -> f64 {
    (picoseconds as f64 / 1e6 - ROUNDED_US).max(0.0)
}

/// Returns the function of the least reach from `reach` on.
fn at_least(by_reach: &[(u64, Ascending)], reach: u64) -> Option<&Ascending> {
    by_reach.get(by_reach.partition_point(|&(of, _)| of < reach)).map(|(_, f)| f)
}

impl OfLevel {
    fn new(curves: &Curves, launch_us: f64, levels: &[Level], l: usize, least: f64) -> OfLevel {
        let floors = floors(curves, l);
        // The same sizes for all reaches: with fewer, a farther reach might be bounded by less.
        let mut sizes: Vec<f64> = floors.iter().flat_map(|f| f.knots.iter().map(|k| k.0)).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let by_reach = |only_exchanges: bool| {
            let chosen = move |f: &&Floor| f.is_exchange || !only_exchanges;
            let mut reaches: Vec<u64> = floors.iter().filter(chosen).map(|f| f.reach).collect();
            reaches.sort_unstable();
            reaches.dedup();
            let of = |reach: u64| {
                let far = floors.iter().filter(chosen).filter(move |f| f.reach >= reach);
                Some((reach, Ascending::of(far, &sizes)?))
            };
            reaches.into_iter().filter_map(of).collect()
        };
        let rates: f64 = levels[l..].iter().map(|level| level.gbytes_per_s * 1e3).sum();
        let formula = Floor {
            reach: u64::MAX,
            is_exchange: false,
            knots: vec![(0.0, launch_us + levels[l].latency_us)],
            slope: 1.0 / rates,
        };
        OfLevel {
            one_step: by_reach(false),
            exchanges: by_reach(true),
            more_steps: more_steps(&floors, &formula, if l == 0 { None } else { Some(least) }),
        }
    }

    fn least_us(&self, need: &MinTraffic) -> f64 {
        // A rank that needs bytes receives from at least one other rank.
        let domains = need.domains.max(1 + u64::from(need.bytes > 0.0));
        if domains <= 1 {
            return 0.0;
        }
        let one = at_least(&self.one_step, domains).map_or(f64::INFINITY, |f| f.at(need.bytes));
        let after = self.more_steps.partition_point(|&(of, _)| of <= domains);
        let more = after.checked_sub(1).map_or(0.0, |at| self.more_steps[at].1.at(need.bytes));
        one.min(more)
    }
}

/// Returns the bounds of at least two steps, by the number of domains.
///
/// `other` is the least time of a step that does not cross the level; `None` if all do.
fn more_steps(floors: &[Floor], formula: &Floor, other: Option<f64>) -> Vec<(u64, Lines)> {
    let all = || floors.iter().chain([formula]);
    let fastest = all().map(|f| f.slope).fold(f64::INFINITY, f64::min);
    // Rates from the fastest on, each 5 % above the one before, and the infinite one.
    let slopes = core::iter::successors(Some(fastest), |slope| Some(slope / 1.05)).take(160).chain([0.0]);
    let mut by_domains: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for slope in slopes {
        let mut intercepts: BTreeMap<u64, f64> = BTreeMap::new();
        for floor in all() {
            let Some(a) = floor.intercept(slope) else { continue };
            let known = intercepts.entry(floor.reach).or_insert(f64::INFINITY);
            *known = known.min(a);
        }
        if intercepts.values().any(|&a| a < 0.0) {
            continue;
        }
        let intercepts: Vec<(u64, f64)> = intercepts.into_iter().collect();
        let least = intercepts.iter().map(|x| x.1).fold(f64::INFINITY, f64::min);
        if let Some(other) = other {
            by_domains.entry(0).or_default().push((least + least.min(other), slope));
            continue;
        }
        let mut known = BTreeMap::from([(1, least)]);
        let mut domains = 2;
        while domains <= MOST_DOMAINS {
            let two =
                intercepts.iter().map(|&(g, a)| a + steps(&intercepts, domains.div_ceil(g), &mut known));
            by_domains.entry(domains).or_default().push((two.fold(f64::INFINITY, f64::min), slope));
            domains *= 2;
        }
    }
    by_domains.into_iter().map(|(domains, lines)| (domains, Lines::of(lines))).collect()
}

/// Returns the least sum of intercepts of at least one step whose reaches multiply to `domains`.
fn steps(intercepts: &[(u64, f64)], domains: u64, known: &mut BTreeMap<u64, f64>) -> f64 {
    if let Some(&least) = known.get(&domains) {
        return least;
    }
    let mut least = f64::INFINITY;
    for &(reach, a) in intercepts {
        let rest = if reach >= domains { 0.0 } else { steps(intercepts, domains.div_ceil(reach), known) };
        least = least.min(a + rest);
    }
    known.insert(domains, least);
    least
}

/// Returns the functions of all curves that span level `l` or one further out.
fn floors(curves: &Curves, l: usize) -> Vec<Floor> {
    let mut floors = Vec::new();
    for op in MEASURED {
        let known = curves.of(op);
        for (i, knots) in known.iter().enumerate() {
            floors.extend(floor(op, &knots.spread, l, &[Found::One(knots)]));
            let Some(next) = known.get(i + 1) else { continue };
            let [(&last, inner), (&then, outer)] =
                [&knots.spread, &next.spread].map(|s| s.split_last().expect("a spread has a factor"));
            if inner != outer {
                continue;
            }
            let of = |n: u32| inner.iter().copied().chain([n]).collect::<Spread>();
            if then - last <= EACH {
                for n in last + 1..then {
                    let found = curves.find(op, &of(n)).expect("a spread between two measured ones");
                    floors.extend(floor(op, &of(n), l, &[found]));
                }
            } else {
                floors.extend(floor(op, &of(then - 1), l, &[Found::One(knots), Found::One(next)]));
            }
        }
    }
    floors
}

/// Returns the function of bytes over level `l` and up below some curves, all at the size of one spread.
fn floor(op: StepOp, spread: &[u32], l: usize, of: &[Found<'_>]) -> Option<Floor> {
    if spread.len() <= l {
        return None;
    }
    let n = ranks(spread) as f64;
    let is_exchange = op == StepOp::AllToAll;
    let below = if is_exchange { 1.0 } else { ranks(&spread[..l]) as f64 };
    let per_size = passes(op) as f64 * (1.0 / below - 1.0 / n);
    let reach = if is_exchange { ranks(spread) } else { ranks(&spread[l..]) };
    let mut sizes: Vec<u64> = of
        .iter()
        .flat_map(|found| match found {
            Found::One(knots) => knots.bytes.clone(),
            Found::Between([a, b], ..) => [&a.bytes[..], &b.bytes].concat(),
        })
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let least = |size: u64| of.iter().map(|found| found.picoseconds_at(size)).min().unwrap_or(0);
    let knots: Vec<(f64, f64)> =
        sizes.iter().map(|&size| (size as f64 * per_size, rounded_us(least(size)))).collect();
    let last = *sizes.last()?;
    // Beyond the last knot each curve is a line; the least of several is above the flattest from there.
    let rise = of.iter().map(|x| x.picoseconds_at(last + (1 << 40)) - x.picoseconds_at(last)).min()?;
    let slope = rise as f64 / 1e6 / (1u64 << 40) as f64 / per_size;
    Some(Floor { reach, is_exchange, knots, slope: slope * (1.0 - 1e-9) })
}
