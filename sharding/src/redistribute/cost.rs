//! What a step costs: latency and bytes of its worst rank.
//!
//! ```text
//! launch + latency * ceil(log2(1 + p)) + r / rate   (+ message * p for an exchange or all-to-all)
//! ```
//!
//! with `r` the bytes that the worst rank receives and `p` its peers. Local steps cost nothing.

use core::fmt;
use std::str::FromStr;

use crate::Error;

/// One level of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Time of one message round in microseconds.
    pub latency_us: f64,
    /// Gigabytes (10^9 bytes) that a rank receives a second.
    pub gbytes_per_s: f64,
}

/// What the network is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// Time to start a communicating step, in microseconds.
    pub launch_us: f64,
    /// Time per peer of an exchange or all-to-all, in microseconds.
    pub message_us: f64,
    /// The one level that all ranks are on.
    pub level: Level,
}

impl Topology {
    /// One level: launch 6.6 us, latency 0, 100 GB/s, 0.2 us per message.
    ///
    /// ```
    /// use reshard_sharding::redistribute::Topology;
    /// assert_eq!("uniform".parse::<Topology>()?, Topology::uniform());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn uniform() -> Topology {
        Topology { launch_us: 6.6, message_us: 0.2, level: Level { latency_us: 0.0, gbytes_per_s: 100.0 } }
    }

    /// Time of a collective in which the worst rank receives `bytes` from `peers`.
    pub fn collective_us(&self, bytes: u64, peers: usize) -> f64 {
        let rounds = (1 + peers).next_power_of_two().trailing_zeros();
        self.launch_us
            + self.level.latency_us * f64::from(rounds)
            + bytes as f64 / (self.level.gbytes_per_s * 1e3)
    }

    /// Time of an exchange or all-to-all in which the worst rank receives `bytes` from `peers`.
    pub fn exchange_us(&self, bytes: u64, peers: usize) -> f64 {
        self.collective_us(bytes, peers) + self.message_us * peers as f64
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
        write!(
            f,
            "launch {} us, message {} us, latency {} us, {} GB/s",
            self.launch_us, self.message_us, self.level.latency_us, self.level.gbytes_per_s
        )
    }
}

impl FromStr for Topology {
    type Err = Error;
    fn from_str(s: &str) -> Result<Topology, Error> {
        match s {
            "uniform" => Ok(Topology::uniform()),
            _ => Err(Error::Unsupported { reason: format!("the topology {s:?} is not known: use uniform") }),
        }
    }
}

/// Bytes that the worst rank receives in an all-reduce, and what the model charges: both halves in whole pieces.
pub(crate) fn all_reduce_bytes(n: u64, g: u64, item: u64) -> (u64, u64) {
    let piece = n.div_ceil(g);
    (((g - 1) * piece + n - piece) * item, 2 * (g - 1) * piece * item)
}
