//! The cost of a step on a network of levels: latency and bytes of the worst rank.
//!
//! Levels go from the inside out. The domain of rank `c` at level `l` is `floor(c / ranks_l)`; the last level has one
//! domain. A step costs
//!
//! ```text
//! launch + sum over levels l used of latency_l * ceil(log2(1 + p_l)) + max_l r_l / rate_l   (+ message * peers)
//! ```
//!
//! with `r_l` the bytes and `p_l` the peers of the worst rank at level `l` (its [`StepTraffic`]), the latencies
//! twice in an all-reduce, and the last summand in exchanges only. No plan takes less than
//!
//! ```text
//! wire + latencies
//! wire      = max over l of need_l / (the rates of level l and up)
//! latencies = max over l of min over k of   k launch + latency_l R_l(k) + latency_0 (rounds(D_0) - R_l(k))
//! R_l(1)    = rounds(D_l),       R_l(k) = max(1, rounds(D_l / U_l^k)) for k > 1
//! rounds(n) = ceil(log2 n)
//! ```
//!
//! with `D_l` the number of domains of level `l` on which a rank's target depends, and `U_l` the ranks of a
//! domain ([`MinTraffic`]). In one step, a rank receives from each of them directly. In several steps, it receives
//! data that other ranks gathered. Suppose that every rank of a domain has `p` peers beyond the domain in a
//! step. The step then multiplies the domains that the domain knows of by at most `1 + U_l p`, and takes
//! `ceil(log2(1 + p))` rounds. At any level, a round at most doubles the domains that a rank knows of.
//!
//! Local steps cost nothing. Profiles are monotone: outer levels have neither more bandwidth nor less
//! latency.

use core::fmt;
use core::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Error;
use crate::model::curves::collective_traffic;
use crate::model::load::Span;
use crate::model::profile::{Calibration, Compute, Measured, Profile};
use crate::model::shipped::Shipped;
use crate::model::{CostModel, Level, MinTraffic, StepTraffic};
use crate::op::StepOp;
use reshard_sharding::GroupPattern;
use reshard_sharding::internal::Cursor;

/// The network: levels from the inside out, each of domains that consist of domains of the level below.
///
/// Where the axes of a mesh do not nest with the domains, ranks that share a domain are counted rank by rank,
/// up to 4,096 ranks. Above that, there is a special case: a mesh whose ranks are a table that scatters
/// domains. Each of its digits counts for the outermost level. List the ranks of such a mesh so that those of
/// a node are consecutive.
///
/// ```
/// use reshard_planner::Topology;
/// assert_eq!("uniform".parse::<Topology>()?, Topology::uniform());
/// assert_eq!("h100".parse::<Topology>()?.levels().len(), 2);
/// let mine: Topology = "launch=5;message=0.1;level=4:1:200;level=*:10:25".parse()?;
/// assert_eq!(mine.to_string().parse::<Topology>()?, mine);
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "Profile", into = "Profile")]
pub struct Topology {
    launch_us: f64,
    message_us: f64,
    levels: SmallVec<[Level; 3]>,
    /// The name, the source and the curves of a profile that has any of them.
    calibration: Option<Arc<Calibration>>,
}

impl Clone for Topology {
    // Every plan holds a topology, so cloning is a plain copy of the levels.
    fn clone(&self) -> Topology {
        let (levels, calibration) = (SmallVec::from_slice(&self.levels), self.calibration.clone());
        Topology { launch_us: self.launch_us, message_us: self.message_us, levels, calibration }
    }
}

/// Networks are equal if all steps cost the same; name and source do not count.
impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        self.launch_us == other.launch_us
            && self.message_us == other.message_us
            && self.levels == other.levels
            && self.digest() == other.digest()
    }
}

impl TryFrom<Profile> for Topology {
    type Error = Error;
    fn try_from(profile: Profile) -> Result<Topology, Error> {
        let lines = Topology::new(profile.launch_us, profile.message_us, &profile.levels)?;
        let calibration = Calibration::new(profile, lines.launch_us, &lines.levels)?.map(Arc::new);
        Ok(Topology { calibration, ..lines })
    }
}

impl From<Topology> for Profile {
    fn from(t: Topology) -> Profile {
        match t.calibration {
            Some(calibration) => calibration.profile().clone(),
            None => Profile::of_lines(t.launch_us, t.message_us, t.levels.into_vec()),
        }
    }
}

impl Topology {
    /// Creates a network: time to start a communicating step, time per peer of an exchange, and levels.
    ///
    /// Requires at least one level, from the inside out, times from 0 to 10^9 us and rates from 10^-6 to 10^9
    /// GB/s. Domain sizes must divide the next level's. Outer levels must have neither more bandwidth nor
    /// less latency.
    pub fn new(launch_us: f64, message_us: f64, levels: &[Level]) -> Result<Topology, Error> {
        let refuse = |reason: String| Err(Error::Topology { reason });
        if !time(launch_us) || !time(message_us) {
            return refuse(format!(
                "launch {launch_us} us and message {message_us} us must be numbers from 0 to {MOST_US:e}"
            ));
        }
        check_levels(levels)?;
        let mut levels: SmallVec<[Level; 3]> = SmallVec::from_slice(levels);
        let top = levels.len() - 1;
        levels[top].ranks = None;
        // Equal networks have equal texts and hashes, so -0 becomes 0.
        for level in &mut levels {
            level.latency_us += 0.0;
        }
        Ok(Topology { launch_us: launch_us + 0.0, message_us: message_us + 0.0, levels, calibration: None })
    }

    /// Returns one level: launch 6.6 us, latency 0, 100 GB/s, 0.2 us per message.
    pub fn uniform() -> Topology {
        let level = Level { ranks: None, latency_us: 0.0, gbytes_per_s: 100.0 };
        Topology { launch_us: 6.6, message_us: 0.2, levels: SmallVec::from_iter([level]), calibration: None }
    }

    /// Returns nodes of 8 H100: curves measured inside of a node, and rates of NCCL's tuner between nodes.
    ///
    /// [`origin`](Topology::origin) has the source and the error to expect.
    pub fn h100() -> Topology {
        Shipped::H100.topology()
    }

    /// Returns nodes of 8 A100: curves measured inside of a node, and nominal rates between nodes.
    pub fn a100() -> Topology {
        Shipped::A100.topology()
    }

    /// Returns nodes of 8 B200: curves measured inside of a node, and nominal rates between nodes.
    pub fn b200() -> Topology {
        Shipped::B200.topology()
    }

    /// Returns nodes of 8 ranks with nominal rates: 370 GB/s and 2 us inside, 45 GB/s and 8 us between them.
    ///
    /// Launch takes 6.6 us, and a message 0.2 us. This is [`h100`](Topology::h100) as it was before its curves.
    pub fn h100_lines() -> Topology {
        let node = Level { ranks: Some(8), latency_us: 2.0, gbytes_per_s: 370.0 };
        let net = Level { ranks: None, latency_us: 8.0, gbytes_per_s: 45.0 };
        Topology {
            launch_us: 6.6,
            message_us: 0.2,
            levels: SmallVec::from_iter([node, net]),
            calibration: None,
        }
    }

    /// Returns the levels, from the inside out.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Returns the time to start a communicating step, in microseconds.
    pub fn launch_us(&self) -> f64 {
        self.launch_us
    }

    /// Returns the time per peer of an exchange or all-to-all, in microseconds.
    pub fn message_us(&self) -> f64 {
        self.message_us
    }

    /// Returns the name, the source and the expected error of a profile that has any of them.
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibration.as_deref()
    }

    /// Returns where the times come from: `h100: measured by ..`, or `uniform: nominal`.
    ///
    /// Measured profiles have the error that is to be expected of them.
    pub fn origin(&self) -> String {
        let profile = self.calibration().map(Calibration::profile);
        let name = profile.and_then(|p| p.name.clone()).unwrap_or_else(|| self.to_string());
        match profile.and_then(|p| p.measured.as_ref()) {
            Some(source) => format!("{name}: {source}"),
            None => format!("{name}: nominal"),
        }
    }

    /// Returns the compute rates of a rank, if the profile has any.
    pub fn compute(&self) -> Option<&Compute> {
        self.calibration()?.profile().compute.as_ref()
    }

    /// Returns the time of one collective on a tensor of `bytes`, of a group with this spread over domains.
    ///
    /// Size and spread are those of a [`Curve`](crate::Curve). It is `None` for other steps than collectives, and
    /// for fewer than two ranks.
    #[doc(hidden)]
    pub fn collective_us(&self, op: StepOp, spread: &[usize], bytes: u64) -> Option<f64> {
        let ranks: usize = spread.iter().product();
        if ranks < 2 || spread.len() > self.levels.len() {
            return None;
        }
        let traffic = collective_traffic(op, spread, bytes)?;
        let group: GroupPattern = format!("{ranks}:1").parse().ok()?;
        let received = traffic.iter().map(|at| at.bytes).sum::<f64>() as u64;
        Some(self.cost_us(&StepTraffic::counted(op, &traffic, [received, 0], Span::Group(&group))))
    }

    /// Returns the network without curves: all steps are priced by the levels.
    #[must_use]
    pub fn lines(&self) -> Topology {
        Topology { calibration: None, ..self.clone() }
    }

    /// Returns the digest of the curves, if there are any.
    pub(super) fn digest(&self) -> Option<u128> {
        self.measured().map(|measured| measured.curves.digest())
    }

    /// Returns the curves and their bounds.
    #[inline]
    fn measured(&self) -> Option<&Measured> {
        self.calibration.as_ref()?.measured()
    }

    /// Returns `true` if collectives are priced by measured curves.
    #[inline]
    pub(crate) fn has_curves(&self) -> bool {
        self.measured().is_some()
    }

    /// Returns the innermost level whose domain contains both ranks.
    #[doc(hidden)]
    pub fn level_of(&self, a: usize, b: usize) -> usize {
        super::level_of(&self.levels, a, b)
    }

    /// Returns the least cost of an exchange in which a rank receives `bytes` from `peers` ranks, anywhere.
    ///
    /// Bytes may arrive over all levels at once. Rounds are the fewest, with the least latency, if all peers
    /// are near: `prod (p_l + 1) >= 1 + sum p_l`, so the rounds of several levels add up to at least those of
    /// one level.
    pub(crate) fn least_of_exchange_us(&self, bytes: u64, peers: usize) -> f64 {
        let by_levels = self.least_by_levels_us(bytes, peers);
        match self.measured() {
            Some(Measured { bounds, .. }) => {
                by_levels.min(bounds.exchange_us(peers, core::iter::once(bytes as f64)))
            }
            None => by_levels,
        }
    }

    fn least_by_levels_us(&self, bytes: u64, peers: usize) -> f64 {
        let rate: f64 = self.levels.iter().map(|l| l.gbytes_per_s * 1e3).sum();
        let doublings = f64::from(usize::BITS - peers.leading_zeros());
        let wait = self.launch_us + self.levels[0].latency_us * doublings;
        wait + bytes as f64 / rate + self.message_us * peers as f64
    }

    /// Returns the time of a step by the formula of the levels.
    #[inline]
    fn cost_by_levels_us(&self, load: &StepTraffic<'_>) -> f64 {
        let mut latency = 0.0;
        let mut wire = 0.0f64;
        for (l, at) in self.levels.iter().zip(load.traffic()) {
            if at.peers > 0 {
                let doublings = usize::BITS - at.peers.leading_zeros();
                latency += l.latency_us * f64::from(doublings);
            }
            wire = wire.max(at.bytes / (l.gbytes_per_s * 1e3));
        }
        match load.op() {
            StepOp::AllReduce => self.launch_us + 2.0 * latency + wire,
            StepOp::Exchange | StepOp::AllToAll => {
                self.launch_us + latency + wire + self.message_us * load.peers() as f64
            }
            StepOp::AllGather | StepOp::ReduceScatter => self.launch_us + latency + wire,
            StepOp::Slice | StepOp::ZeroFill => 0.0,
        }
    }

    /// Returns the least time of a plan whose steps are all priced by the formula of the levels.
    #[inline]
    fn bound_by_levels_us(&self, need: &[MinTraffic]) -> f64 {
        let all = need.first().map_or(0, |n| rounds(n.domains));
        let (mut rate, mut wire, mut wait) = (0.0, 0.0f64, 0.0f64);
        for (l, level) in self.levels.iter().enumerate().rev() {
            rate += level.gbytes_per_s * 1e3;
            let Some(need) = need.get(l) else { continue };
            wire = wire.max(need.bytes / rate);
            // A rank that needs bytes receives from at least one other rank.
            let domains = need.domains.max(1 + u64::from(need.bytes > 0.0));
            if domains > 1 {
                wait = wait.max(self.wait_us(l, domains, need.domain_size, all));
            }
        }
        wait + wire
    }

    /// Returns the least latency of steps after which a rank may have data of `domains` domains of level `l`.
    ///
    /// `all` is the number of rounds that data of all ranks takes.
    #[inline]
    fn wait_us(&self, l: usize, domains: u64, domain_size: u64, all: u32) -> f64 {
        let cost = |steps: u32, outer: u32| {
            f64::from(steps) * self.launch_us
                + self.levels[l].latency_us * f64::from(outer)
                + self.levels[0].latency_us * f64::from(all.saturating_sub(outer))
        };
        let mut outer = rounds(domains);
        let mut least = cost(1, outer);
        if l == 0 || domain_size <= 1 {
            return least;
        }
        let mut left = domains.div_ceil(domain_size);
        for steps in 2..=u64::BITS {
            if outer <= 1 {
                break;
            }
            left = left.div_ceil(domain_size);
            outer = rounds(left).max(1);
            least = least.min(cost(steps, outer));
        }
        least
    }
}

/// Returns `ceil(log2 n)`, from 1.
fn rounds(n: u64) -> u32 {
    u64::BITS - n.saturating_sub(1).leading_zeros()
}

impl CostModel for Topology {
    fn levels(&self) -> &[Level] {
        &self.levels
    }

    #[inline]
    fn cost_us(&self, load: &StepTraffic<'_>) -> f64 {
        if let Some(Measured { curves, .. }) = self.measured()
            && let Some(picoseconds) = curves.picoseconds(load)
        {
            return picoseconds as f64 / 1e6;
        }
        self.cost_by_levels_us(load)
    }

    #[inline]
    fn lower_bound_us(&self, need: &[MinTraffic]) -> f64 {
        let by_levels = self.bound_by_levels_us(need);
        match self.measured() {
            Some(Measured { bounds, .. }) => by_levels.min(bounds.least_us(need)),
            None => by_levels,
        }
    }

    #[inline]
    fn exchange_floor_us(&self, load: &StepTraffic<'_>) -> f64 {
        let by_levels = self.cost_by_levels_us(load);
        match self.measured() {
            Some(Measured { bounds, .. }) => {
                by_levels.min(bounds.exchange_us(load.peers(), load.traffic().iter().map(|at| at.bytes)))
            }
            None => by_levels,
        }
    }

    fn cache_key(&self) -> String {
        self.to_string()
    }
}

/// Checks the levels of a network.
///
/// Requires at least one level, times from 0 to 10^9 us and rates from 10^-6 to 10^9 GB/s. Domain sizes must
/// divide the next level's. Outer levels must have neither more bandwidth nor less latency.
pub(crate) fn check_levels(levels: &[Level]) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::Topology { reason });
    let Some((_, inner)) = levels.split_last() else {
        return refuse("a network must have at least one level".to_owned());
    };
    for l in levels {
        if !time(l.latency_us) || !RATES.contains(&l.gbytes_per_s) {
            return refuse(format!(
                "a level of latency {} us and {} GB/s: latency must be 0 to {MOST_US:e}, and the rate {:e} to {:e}",
                l.latency_us,
                l.gbytes_per_s,
                RATES.start(),
                RATES.end()
            ));
        }
    }
    for w in levels.windows(2) {
        if w[1].latency_us < w[0].latency_us || w[1].gbytes_per_s > w[0].gbytes_per_s {
            return refuse(format!(
                "the level of {} us and {} GB/s is outside one of {} us and {} GB/s; outer levels must be slower",
                w[1].latency_us, w[1].gbytes_per_s, w[0].latency_us, w[0].gbytes_per_s
            ));
        }
    }
    let mut below = 1;
    for l in inner {
        match l.ranks {
            Some(n) if n > below && n % below == 0 => below = n,
            Some(n) => return refuse(format!("domains of {n} ranks do not consist of domains of {below}")),
            None => return refuse("only the last level may leave out its number of ranks".to_owned()),
        }
    }
    Ok(())
}

/// The longest time of a topology, a quarter of an hour.
///
/// Sums of these are counted in picoseconds, and 63 bits hold nine million seconds.
const MOST_US: f64 = 1e9;

/// The rates of a level in GB/s, from a kilobyte per second, so that the time of a step is finite.
const RATES: RangeInclusive<f64> = 1e-6..=1e9;

/// Returns `true` if a time is a number from 0 that is not too long.
fn time(x: f64) -> bool {
    (0.0..=MOST_US).contains(&x)
}

impl Default for Topology {
    fn default() -> Topology {
        Topology::uniform()
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(shipped) = Shipped::equal_to(self) {
            return f.write_str(shipped.name());
        }
        write!(f, "launch={};message={}", self.launch_us, self.message_us)?;
        for l in &self.levels {
            match l.ranks {
                Some(n) => write!(f, ";level={n}")?,
                None => f.write_str(";level=*")?,
            }
            write!(f, ":{}:{}", l.latency_us, l.gbytes_per_s)?;
        }
        if let Some(digest) = self.digest() {
            write!(f, ";curves={digest:032x}")?;
        }
        Ok(())
    }
}

impl FromStr for Topology {
    type Err = Error;

    /// Parses `uniform`, `h100`, `a100`, `b200`, `h100-lines`, or
    /// `launch=us;message=us;level=ranks:us:GB/s;..;level=*:us:GB/s`.
    fn from_str(s: &str) -> Result<Topology, Error> {
        if let Some(shipped) = Shipped::named(s) {
            return Ok(shipped.topology());
        }
        let mut r = Cursor::new("topology", s);
        let begins = r.eat("launch");
        if !begins {
            // An identifier is an unknown profile; anything else is the notation with a mistake.
            if !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
                return Err(Error::Topology {
                    reason: format!("unknown network profile `{s}`: expected {EXPECTED}"),
                });
            }
            return Err(r.error(EXPECTED).into());
        }
        r.expect("=")?;
        let launch = number(&mut r)?;
        r.expect(";")?;
        r.expect("message")?;
        r.expect("=")?;
        let message = number(&mut r)?;
        let mut levels = Vec::new();
        while r.eat(";") {
            if r.eat("curves=") {
                let reason = format!(
                    "the curves of `{s}` are in the file of the profile, of which this text has a digest only; give the file"
                );
                return Err(Error::Topology { reason });
            }
            r.expect("level")?;
            r.expect("=")?;
            let ranks = if r.eat("*") { None } else { Some(r.number("a number of ranks, or *")?) };
            r.expect(":")?;
            let latency_us = number(&mut r)?;
            r.expect(":")?;
            levels.push(Level { ranks, latency_us, gbytes_per_s: number(&mut r)? });
        }
        r.finish()?;
        Topology::new(launch, message, &levels)
    }
}

/// The texts of networks, as messages list them.
const EXPECTED: &str = "uniform, h100, a100, b200, h100-lines, or \
                        launch=us;message=us;level=ranks:us:GB/s;..;level=*:us:GB/s";

fn number(r: &mut Cursor<'_>) -> Result<f64, Error> {
    let at = r.here();
    let text = r.take_while(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+'));
    text.parse().map_err(|_| r.error_at(at, "a number").into())
}
