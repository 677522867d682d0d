//! What a step costs on a network of levels: the worst rank's latency and bytes.
//!
//! Levels go from the inside out. The unit of rank `c` at level `l` is `floor(c / ranks_l)`; the last level has one
//! unit. A step costs
//!
//! ```text
//! launch + sum over levels l used of latency_l * ceil(log2(1 + p_l)) + max_l r_l / rate_l   (+ message * peers)
//! ```
//!
//! with `r_l` the bytes and `p_l` the peers of the worst rank at level `l`, and the last term for exchanges only.
//!
//! * **All-gather** of shards of `in` bytes over `g` ranks of which `n_l` are in the rank's unit (`n_{-1} = 1`,
//!   `n_top = g`): `r_l = in g (1/n_{l-1} - 1/n_l)`, `p_l = ceil(n_l / n_{l-1}) - 1`: hierarchical, the fair share that a
//!   unit must import. **Reduce-scatter** is its mirror with `in` the output bytes; **all-reduce** is both, with pieces of
//!   `ceil(n / g)` elements.
//! * **Exchange** and all-to-all are direct: `r_l`, `p_l` are the bytes and peers whose innermost common unit is level
//!   `l`.
//!
//! Local steps cost nothing. Profiles are monotone: outer levels are slower and later.

use core::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Error;
use crate::notation::cursor::Cursor;

/// One level of the network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// How many consecutive ranks are one unit of this level; absent at the last level, which is one unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<usize>,
    /// Time of one message round in microseconds.
    pub latency_us: f64,
    /// Gigabytes (10^9 bytes) that a rank receives a second.
    pub gbytes_per_s: f64,
}

/// What the network is like (see the [module](self)).
///
/// ```
/// use reshard_sharding::redistribute::Topology;
/// assert_eq!("uniform".parse::<Topology>()?, Topology::uniform());
/// assert_eq!(Topology::h100().levels().len(), 2);
/// let mine: Topology = "launch=5;message=0.1;level=4:1:200;level=*:10:25".parse()?;
/// assert_eq!(mine.to_string().parse::<Topology>()?, mine);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Profile", into = "Profile")]
pub struct Topology {
    launch_us: f64,
    message_us: f64,
    levels: SmallVec<[Level; 3]>,
}

impl Clone for Topology {
    // Every plan holds one: a plain copy of the levels.
    fn clone(&self) -> Topology {
        Topology { levels: SmallVec::from_slice(&self.levels), ..*self }
    }
}

/// A topology as a file holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    launch_us: f64,
    message_us: f64,
    levels: Vec<Level>,
}

impl TryFrom<Profile> for Topology {
    type Error = Error;
    fn try_from(p: Profile) -> Result<Topology, Error> {
        Topology::new(p.launch_us, p.message_us, &p.levels)
    }
}

impl From<Topology> for Profile {
    fn from(t: Topology) -> Profile {
        Profile { launch_us: t.launch_us, message_us: t.message_us, levels: t.levels.into_vec() }
    }
}

/// Bytes and peers of a rank at each level, from the inside out.
pub(crate) type Traffic = SmallVec<[(f64, usize); 3]>;

impl Topology {
    /// A network: time to start a communicating step, time per peer of an exchange, levels from the inside out.
    ///
    /// Requires at least one level, numbers that are not negative and rates above 0, unit sizes that divide the next
    /// level's, and monotone levels (outer ones neither faster nor earlier).
    pub fn new(launch_us: f64, message_us: f64, levels: &[Level]) -> Result<Topology, Error> {
        let refuse = |reason: String| Err(Error::Topology { reason });
        let time = |x: f64| x.is_finite() && x >= 0.0;
        if !time(launch_us) || !time(message_us) {
            return refuse(format!(
                "launch {launch_us} us and message {message_us} us must be numbers from 0"
            ));
        }
        let Some((last, inner)) = levels.split_last() else {
            return refuse("a network has at least one level".to_owned());
        };
        for l in levels {
            if !time(l.latency_us) || !l.gbytes_per_s.is_finite() || l.gbytes_per_s <= 0.0 {
                return refuse(format!(
                    "a level of latency {} us and {} GB/s: latency is from 0, the rate above 0",
                    l.latency_us, l.gbytes_per_s
                ));
            }
        }
        for w in levels.windows(2) {
            if w[1].latency_us < w[0].latency_us || w[1].gbytes_per_s > w[0].gbytes_per_s {
                return refuse(format!(
                    "the level of {} us and {} GB/s lies outside one of {} us and {} GB/s: outer levels are slower",
                    w[1].latency_us, w[1].gbytes_per_s, w[0].latency_us, w[0].gbytes_per_s
                ));
            }
        }
        let mut below = 1;
        for l in inner {
            match l.ranks {
                Some(n) if n > below && n % below == 0 => below = n,
                Some(n) => return refuse(format!("units of {n} ranks do not consist of units of {below}")),
                None => return refuse("only the last level may leave out its number of ranks".to_owned()),
            }
        }
        let mut levels: SmallVec<[Level; 3]> = SmallVec::from_slice(levels);
        let top = levels.len() - 1;
        levels[top] = Level { ranks: None, ..*last };
        Ok(Topology { launch_us, message_us, levels })
    }

    /// One level: launch 6.6 us, latency 0, 100 GB/s, 0.2 us per message.
    pub fn uniform() -> Topology {
        let level = Level { ranks: None, latency_us: 0.0, gbytes_per_s: 100.0 };
        Topology { launch_us: 6.6, message_us: 0.2, levels: SmallVec::from_iter([level]) }
    }

    /// Nodes of 8 ranks at 370 GB/s and 2 us, 45 GB/s and 8 us between them; launch 6.6 us, 0.2 us per message.
    pub fn h100() -> Topology {
        let node = Level { ranks: Some(8), latency_us: 2.0, gbytes_per_s: 370.0 };
        let net = Level { ranks: None, latency_us: 8.0, gbytes_per_s: 45.0 };
        Topology { launch_us: 6.6, message_us: 0.2, levels: SmallVec::from_iter([node, net]) }
    }

    /// The levels, from the inside out.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Time to start a communicating step, in microseconds.
    pub fn launch_us(&self) -> f64 {
        self.launch_us
    }

    /// Time per peer of an exchange or all-to-all, in microseconds.
    pub fn message_us(&self) -> f64 {
        self.message_us
    }

    /// The innermost level whose unit holds both ranks.
    pub fn level_of(&self, a: usize, b: usize) -> usize {
        self.levels
            .iter()
            .position(|l| l.ranks.is_none_or(|n| a / n == b / n))
            .unwrap_or(self.levels.len() - 1)
    }

    /// Time of a step with this traffic; `rounds` is 2 for an all-reduce, whose latency counts twice.
    fn time(&self, traffic: &Traffic, rounds: f64) -> f64 {
        let mut latency = 0.0;
        let mut wire = 0.0f64;
        for (l, &(bytes, peers)) in self.levels.iter().zip(traffic) {
            if peers > 0 {
                let doublings = usize::BITS - peers.leading_zeros();
                latency += l.latency_us * f64::from(doublings);
            }
            wire = wire.max(bytes / (l.gbytes_per_s * 1e3));
        }
        self.launch_us + rounds * latency + wire
    }

    /// Time of an all-gather or reduce-scatter whose gathered size is `total` bytes, or of an all-reduce (`halves` 2).
    ///
    /// `n[l]` of the group's ranks are in the worst rank's unit of level `l`.
    pub(crate) fn collective_us(&self, total: f64, n: &[usize], halves: f64) -> f64 {
        let mut traffic = Traffic::new();
        let mut below = 1usize;
        for &n in n {
            let bytes = halves * total * (1.0 / below as f64 - 1.0 / n as f64);
            traffic.push((bytes, n.div_ceil(below) - 1));
            below = n;
        }
        self.time(&traffic, halves)
    }

    /// Time of an exchange or all-to-all with this traffic.
    pub(crate) fn exchange_us(&self, traffic: &Traffic) -> f64 {
        let peers: usize = traffic.iter().map(|t| t.1).sum();
        self.time(traffic, 1.0) + self.message_us * peers as f64
    }

    /// Time in which nobody can receive `need[l]` bytes over the levels `l` and further out.
    pub(crate) fn bound_us(&self, need: &[f64]) -> f64 {
        let Some(outermost) = need.iter().rposition(|&n| n > 0.0) else { return 0.0 };
        let mut rate = 0.0;
        let mut wire = 0.0f64;
        for (l, level) in self.levels.iter().enumerate().rev() {
            rate += level.gbytes_per_s * 1e3;
            wire = wire.max(need.get(l).copied().unwrap_or(0.0) / rate);
        }
        self.launch_us + self.levels[outermost].latency_us + wire
    }
}

impl Default for Topology {
    fn default() -> Topology {
        Topology::uniform()
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Topology::uniform() {
            return f.write_str("uniform");
        }
        if *self == Topology::h100() {
            return f.write_str("h100");
        }
        write!(f, "launch={};message={}", self.launch_us, self.message_us)?;
        for l in &self.levels {
            match l.ranks {
                Some(n) => write!(f, ";level={n}")?,
                None => f.write_str(";level=*")?,
            }
            write!(f, ":{}:{}", l.latency_us, l.gbytes_per_s)?;
        }
        Ok(())
    }
}

impl FromStr for Topology {
    type Err = Error;

    /// `uniform`, `h100`, or `launch=us;message=us;level=ranks:us:GB/s;..;level=*:us:GB/s`.
    fn from_str(s: &str) -> Result<Topology, Error> {
        match s {
            "uniform" => return Ok(Topology::uniform()),
            "h100" => return Ok(Topology::h100()),
            _ => {}
        }
        let mut r = Cursor::new("topology", s);
        let begins = r.eat("launch");
        if !begins {
            return Err(
                r.error("uniform, h100, or launch=us;message=us;level=ranks:us:GB/s;..;level=*:us:GB/s")
            );
        }
        r.expect("=")?;
        let launch = number(&mut r)?;
        r.expect(";")?;
        r.expect("message")?;
        r.expect("=")?;
        let message = number(&mut r)?;
        let mut levels = Vec::new();
        while r.eat(";") {
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

fn number(r: &mut Cursor<'_>) -> Result<f64, Error> {
    let at = r.here();
    let text = r.take_while(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+'));
    text.parse().map_err(|_| r.error_at(at, "a number"))
}

/// Bytes that the worst rank receives in an all-reduce of `n` elements over `g` ranks, and the gathered bytes that the
/// model charges for: `g` whole pieces.
pub(crate) fn all_reduce_bytes(n: u64, g: u64, item: u64) -> (u64, u64) {
    let piece = n.div_ceil(g);
    (((g - 1) * piece + n - piece) * item, g * piece * item)
}
