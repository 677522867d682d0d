//! Sets of ranks that have to receive data of others, or to send data to others.

use core::fmt;
use core::str::FromStr;

use crate::Error;

/// A set of ranks that has to receive data of others, or to send data to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One rank receives.
    IntoRank,
    /// The ranks of one domain of the network receive.
    IntoDomain,
    /// The ranks of one domain of the network send.
    OutOfDomain,
    /// All ranks of the target receive.
    IntoTargets,
    /// All ranks of the source send.
    OutOfSources,
    /// All ranks that hold one region of the source send.
    OutOfReplicas,
}

impl Cut {
    /// Every variant.
    const ALL: [Cut; 6] = [
        Cut::IntoRank,
        Cut::IntoDomain,
        Cut::OutOfDomain,
        Cut::IntoTargets,
        Cut::OutOfSources,
        Cut::OutOfReplicas,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Cut::IntoRank => "into a rank",
            Cut::IntoDomain => "into a domain",
            Cut::OutOfDomain => "out of a domain",
            Cut::IntoTargets => "into all targets",
            Cut::OutOfSources => "out of all sources",
            Cut::OutOfReplicas => "out of all replicas",
        }
    }

    /// Returns `true` if these ranks receive.
    pub(crate) fn is_into(self) -> bool {
        match self {
            Cut::IntoRank | Cut::IntoDomain | Cut::IntoTargets => true,
            Cut::OutOfDomain | Cut::OutOfSources | Cut::OutOfReplicas => false,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Cut {
    type Err = Error;

    fn from_str(text: &str) -> Result<Cut, Error> {
        Cut::ALL.into_iter().find(|cut| cut.as_str() == text).ok_or_else(|| {
            let all: Vec<&str> = Cut::ALL.iter().map(|cut| cut.as_str()).collect();
            Error::Incompatible {
                reason: format!("unknown set of ranks `{text}`: expected one of {}", all.join(", ")),
            }
        })
    }
}

/// The certificate of a lower bound: the bytes that a set of ranks must receive or send, and its rate.
///
/// One intersection of regions is enough to check it. The [bound](crate::Plan::lower_bound_us) of the plan adds
/// the least latency to the time.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_planner::{Cut, Planner, Topology};
/// use reshard_sharding::{Mesh, Sharding};
/// // Experts of 16 trainers, for 16 servers of 8 ranks: all 2 GiB must enter each node, over 8 ports of 45 GB/s.
/// let (trainer, servers): (Mesh, Mesh) = ("ep=16".parse()?, "dp=16,tp=8@16".parse()?);
/// let shape = [128, 4096, 2048];
/// let from = Sharding::parse(&trainer, &shape, "S(0)")?;
/// let to = Sharding::parse(&servers, &shape, "R,S(1)")?;
/// let plan = Planner::new().topology(Topology::h100_lines()).plan(&from, &to, DType::BF16)?;
/// let cut = plan.lower_bound_cut().expect("two meshes");
/// assert_eq!((cut.cut, cut.level, cut.bytes), (Cut::IntoDomain, 1, 2 << 30));
/// assert_eq!((cut.gbytes_per_s, format!("{:.1}", cut.us)), (360.0, "5965.2".to_string()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBoundCut {
    /// The ranks.
    pub cut: Cut,
    /// The innermost level over which they can be transferred.
    pub level: usize,
    /// Bytes that must be transferred.
    pub bytes: u64,
    /// The rate of all ports of the smaller side, in gigabytes (10^9 bytes) per second.
    pub gbytes_per_s: f64,
    /// The time that this takes, in microseconds.
    pub us: f64,
}

impl fmt::Display for LowerBoundCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LowerBoundCut { cut, level, bytes, gbytes_per_s, us } = self;
        write!(f, "{cut}, over level {level}: {bytes} B at {gbytes_per_s} GB/s take {us:.1} us")
    }
}
