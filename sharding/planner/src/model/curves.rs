//! Measured times of collectives: curves of time by size, one for each distribution of a group over domains.
//!
//! **Spread.** The distribution of a group over domains is a list of factors, from the inside out: `[8]` are 8 ranks of one domain,
//! `[8,2]` are 8 ranks in each of 2 domains, `[1,4]` one rank in each of 4. Factors of 1 at the end are left
//! out. The peers of a load give its spread: `p_l + 1` for a collective. An exchange with `N_l` ranks up to
//! level `l`, its own rank included, has `ceil(N_l / N_{l-1})`.
//!
//! **Curve.** The time that one collective takes over one spread, all levels and the launch included, at
//! sizes of the tensor ([`Curve::bytes`]). Between two knots it is linear, before the first it is constant.
//! Beyond the last it has the last slope, but is nowhere faster than the fastest level. All arithmetic is in
//! integers, so that all machines get the same plan.
//!
//! **Size of a load.** If the worst rank of `n` receives `x` bytes, the tensor has `x n / (n - 1)`. An
//! all-reduce receives it twice. An exchange is priced as an all-to-all of its worst rank.
//!
//! **Between spreads** that differ in the last factor `n` only, times at equal sizes are linear in `n - 1`.
//! Steps of other spreads are priced by the [levels](super::topology).

use core::fmt::Write;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Error;
use crate::model::Level;
use crate::model::load::{DomainSizes, LevelTraffic, StepTraffic, Volume, all_terms, share_of_collective};
use crate::op::StepOp;

/// The measured time of one collective over groups of one spread, by the size of the tensor.
///
/// Sizes are those that nccl-tests reports: the gathered tensor of an all-gather, the input of a reduction, and
/// the buffer of one rank of an all-to-all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The collective: all-gather, reduce-scatter, all-reduce or all-to-all.
    pub collective: StepOp,
    /// Ranks in a domain of level 0, then the number of such domains, and so on.
    pub spread: Vec<usize>,
    /// Sizes of the tensor in bytes, ascending.
    pub bytes: Vec<u64>,
    /// Times in microseconds, one for each size, nowhere descending.
    pub us: Vec<f64>,
    /// The 90th percentile of repeated runs about their median, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_percent: Option<f64>,
}

/// The factors of a spread; no factor of 1 at the end.
pub(crate) type Spread = SmallVec<[u32; 3]>;

/// The collectives that have curves.
pub const MEASURED: [StepOp; 4] =
    [StepOp::AllGather, StepOp::ReduceScatter, StepOp::AllReduce, StepOp::AllToAll];

/// A curve in the form in which it is evaluated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knots {
    pub(crate) spread: Spread,
    pub(crate) bytes: Vec<u64>,
    pub(crate) picoseconds: Vec<u64>,
    /// The slope beyond the last knot: picoseconds for a number of bytes.
    pub(crate) beyond: (u64, u64),
}

impl Knots {
    /// Returns the time at a size, rounded down to picoseconds.
    pub(crate) fn picoseconds_at(&self, bytes: u64) -> u64 {
        let (sizes, times) = (&self.bytes, &self.picoseconds);
        let after = sizes.partition_point(|&size| size <= bytes);
        let Some(at) = after.checked_sub(1) else { return times[0] };
        let (rise, run) = match sizes.get(after) {
            Some(next) => (times[after] - times[at], next - sizes[at]),
            None => self.beyond,
        };
        let more = u128::from(bytes - sizes[at]) * u128::from(rise) / u128::from(run);
        u64::try_from(u128::from(times[at]) + more).unwrap_or(u64::MAX)
    }

    pub(crate) fn ranks(&self) -> u64 {
        ranks(&self.spread)
    }
}

/// Returns the number of ranks of a spread.
pub(crate) fn ranks(spread: &[u32]) -> u64 {
    spread.iter().map(|&f| u64::from(f)).product()
}

/// Returns the factor between the bytes that a rank of `n` receives, times `n / (n - 1)`, and the tensor's.
pub fn passes(op: StepOp) -> u64 {
    if op == StepOp::AllReduce { 2 } else { 1 }
}

/// The curve of a spread, or those of the next smaller and larger one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    One(&'a Knots),
    /// `weight` of `of` parts from the first to the second.
    Between([&'a Knots; 2], u64, u64),
}

impl Found<'_> {
    /// Returns the time at a size of the tensor, in picoseconds.
    pub(crate) fn picoseconds_at(&self, bytes: u64) -> u64 {
        match *self {
            Found::One(knots) => knots.picoseconds_at(bytes),
            Found::Between([a, b], weight, of) => {
                let [a, b] = [a, b].map(|knots| u128::from(knots.picoseconds_at(bytes)));
                let (weight, of) = (u128::from(weight), u128::from(of));
                u64::try_from((a * (of - weight) + b * weight) / of).unwrap_or(u64::MAX)
            }
        }
    }
}

/// All curves of a network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curves {
    /// By the index of the collective in [`MEASURED`], and by spread.
    by_op: [Vec<Knots>; 4],
    digest: u128,
}

impl Curves {
    /// Checks and prepares the curves of a network of these levels.
    ///
    /// The error names the curve and its fault.
    pub(crate) fn new(curves: &[Curve], levels: &[Level]) -> Result<Curves, Error> {
        let mut by_op: [Vec<Knots>; 4] = Default::default();
        let mut text = String::new();
        for curve in curves {
            let refuse = |why: String| {
                let reason = format!("the curve of {} over {:?} {why}", curve.collective, curve.spread);
                Err(Error::Topology { reason })
            };
            let Some(op) = place(curve.collective) else {
                return refuse(
                    "is of no collective: expected all_gather, reduce_scatter, all_reduce or all_to_all"
                        .to_owned(),
                );
            };
            if let Some(why) = fault(curve, levels) {
                return refuse(why);
            }
            let spread: Spread = curve.spread.iter().map(|&f| f as u32).collect();
            if by_op[op].iter().any(|known| known.spread == spread) {
                return refuse("is given twice".to_owned());
            }
            let picoseconds = curve.us.iter().map(|us| (us * 1e6).round() as u64).collect();
            let knots = Knots { beyond: (0, 1), spread, bytes: curve.bytes.clone(), picoseconds };
            by_op[op].push(Knots { beyond: last_slope(&knots, curve.collective, levels), ..knots });
        }
        for (op, curves) in MEASURED.into_iter().zip(&mut by_op) {
            curves.sort_by(|a, b| a.spread.cmp(&b.spread));
            for knots in curves {
                write!(text, "{op}{:?}{:?}{:?};", knots.spread, knots.bytes, knots.picoseconds)
                    .expect("a string takes any text");
            }
        }
        Ok(Curves { by_op, digest: digest(text.as_bytes()) })
    }

    /// Returns 128 bits that equal curves have, whatever their order in a file.
    pub(crate) fn digest(&self) -> u128 {
        self.digest
    }

    /// Returns the curves of a collective, by spread.
    pub(crate) fn of(&self, op: StepOp) -> &[Knots] {
        place(op).map_or(&[], |at| &self.by_op[at])
    }

    /// Returns the curve of a collective over a spread, measured or between two that are.
    pub(crate) fn find(&self, op: StepOp, spread: &[u32]) -> Option<Found<'_>> {
        let (&last, inner) = spread.split_last()?;
        let (mut below, mut above): (Option<&Knots>, Option<&Knots>) = (None, None);
        for knots in self.of(op) {
            match knots.spread.split_last() {
                Some((&n, rest)) if rest == inner && n <= last => below = Some(knots),
                Some((_, rest)) if rest == inner && above.is_none() => above = Some(knots),
                Some(_) | None => {}
            }
        }
        let of = |knots: &Knots| u64::from(knots.spread[inner.len()]);
        match (below, above) {
            (Some(one), _) if of(one) == u64::from(last) => Some(Found::One(one)),
            (Some(a), Some(b)) => Some(Found::Between([a, b], u64::from(last) - of(a), of(b) - of(a))),
            (Some(_) | None, _) => None,
        }
    }

    /// Returns the time of a step in picoseconds, if there is a curve for it.
    pub(crate) fn picoseconds(&self, load: &StepTraffic<'_>) -> Option<u64> {
        let op = measured_as(load.op())?;
        let spread = spread_of(op, load.traffic())?;
        let found = self.find(op, &spread)?;
        let received: f64 = load.traffic().iter().map(|at| at.bytes).sum();
        Some(found.picoseconds_at(size_of(op, ranks(&spread), received)))
    }
}

/// Returns the traffic of a rank over each level, in one collective on a tensor of `bytes`; `None` for other steps.
///
/// Size and spread are those of a [`Curve`].
pub fn collective_traffic(op: StepOp, spread: &[usize], bytes: u64) -> Option<Vec<LevelTraffic>> {
    let mut ranks = 1;
    let near: DomainSizes = spread
        .iter()
        .map(|factor| {
            ranks *= factor;
            ranks
        })
        .collect();
    let traffic = if op == StepOp::AllToAll {
        all_terms(bytes as f64 / ranks as f64, &near)
    } else if MEASURED.contains(&op) {
        share_of_collective(op, &Volume { received: 0, gathered: bytes, peak: 0 }, &near)
    } else {
        return None;
    };
    Some(traffic.into_vec())
}

/// Returns the size of the tensor if a rank of `n` receives this number of bytes, rounded up.
pub(crate) fn size_of(op: StepOp, n: u64, received: f64) -> u64 {
    let size = received * n as f64 / ((n - 1) * passes(op)) as f64;
    // Quotients of whole numbers have errors in the last digits.
    (size * (1.0 - 1e-12) - 1e-6).max(0.0).ceil() as u64
}

/// Returns the collective by whose curve a step is priced.
pub(crate) fn measured_as(op: StepOp) -> Option<StepOp> {
    match op {
        StepOp::AllGather | StepOp::ReduceScatter | StepOp::AllReduce => Some(op),
        StepOp::AllToAll | StepOp::Exchange => Some(StepOp::AllToAll),
        StepOp::Slice | StepOp::ZeroFill => None,
    }
}

/// Returns the spread of a load of a measured collective; `None` if a rank has no peer.
pub(crate) fn spread_of(op: StepOp, traffic: &[LevelTraffic]) -> Option<Spread> {
    let mut spread = Spread::new();
    let mut ranks = 1usize;
    for at in traffic {
        let below = ranks;
        ranks = if op == StepOp::AllToAll { below + at.peers } else { below * (at.peers + 1) };
        let factor = ranks.div_ceil(below);
        spread.push(u32::try_from(factor).ok()?);
    }
    while spread.last() == Some(&1) {
        spread.pop();
    }
    (!spread.is_empty()).then_some(spread)
}

fn place(op: StepOp) -> Option<usize> {
    MEASURED.iter().position(|&known| known == op)
}

/// Returns the fault of a curve's numbers.
fn fault(curve: &Curve, levels: &[Level]) -> Option<String> {
    let Curve { spread, bytes, us, p90_percent, .. } = curve;
    if spread.last().is_none_or(|&n| n < 2) || spread.contains(&0) {
        return Some("has no spread of at least 2 ranks whose last factor is above 1".to_owned());
    }
    if spread.len() > levels.len() {
        return Some(format!("spans {} levels, but the network has {}", spread.len(), levels.len()));
    }
    let mut below = 1;
    for (level, &factor) in levels.iter().zip(spread) {
        if factor > u32::MAX as usize / 2 || level.ranks.is_some_and(|n| factor > n / below) {
            return Some(format!("has {factor} parts in a domain that has fewer"));
        }
        below = level.ranks.unwrap_or(below);
    }
    if bytes.len() != us.len() || bytes.is_empty() {
        return Some(format!("has {} sizes and {} times", bytes.len(), us.len()));
    }
    if let Some(at) = bytes.windows(2).position(|w| w[0] >= w[1]) {
        return Some(format!("has {} bytes before {}; sizes must ascend", bytes[at], bytes[at + 1]));
    }
    if bytes[0] == 0 {
        return Some("has a size of 0 bytes".to_owned());
    }
    if let Some(us) = us.iter().find(|&&us| !(1e-6..=1e9).contains(&us)) {
        return Some(format!("has a time of {us} us; expected 1e-6 to 1e9"));
    }
    if let Some(at) = us.windows(2).position(|w| w[0] > w[1]) {
        return Some(format!("takes {} us before {}; times must not descend", us[at], us[at + 1]));
    }
    p90_percent
        .filter(|p90| !(0.0..=1e6).contains(p90))
        .map(|p90| format!("has a spread of {p90} percent; expected a number from 0"))
}

/// Returns the slope beyond the last knot: picoseconds, and the bytes that take them.
fn last_slope(knots: &Knots, op: StepOp, levels: &[Level]) -> (u64, u64) {
    let [sizes, times] = [&knots.bytes, &knots.picoseconds];
    let last = sizes.len() - 1;
    let measured = match last.checked_sub(1) {
        Some(before) => (times[last] - times[before], sizes[last] - sizes[before]),
        None => (0, 1),
    };
    // The fastest level: picoseconds for 2^40 received bytes.
    let fastest = levels.iter().map(|l| l.gbytes_per_s).fold(0.0, f64::max);
    let (n, many) = (knots.ranks(), 1u64 << 40);
    let received = (many * passes(op)) as f64 * ((n - 1) as f64 / n as f64);
    let least = ((received / fastest * 1e3) as u64, many);
    let is_steeper =
        u128::from(measured.0) * u128::from(least.1) > u128::from(least.0) * u128::from(measured.1);
    if is_steeper { measured } else { least }
}

/// Returns the 128-bit FNV-1a hash of some bytes.
fn digest(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}
