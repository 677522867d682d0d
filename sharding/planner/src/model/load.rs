//! Loads: the bytes that the worst rank of a step sends, receives and holds. All such counting is in this
//! module.
//!
//! **Collectives.** With `g` ranks, and `p` the elements of one rank's block,
//!
//! ```text
//!                   piece p            received               staged
//! all-gather        a rank's input     (g - 1) p              0
//! reduce-scatter    a rank's output    (g - 1) p              0
//! all-reduce of n   ceil(n / g)        (g - 1) p + n - p      p
//! ```
//!
//! and of the `T = g p` that are gathered, a rank receives `T (1/n_{l-1} - 1/n_l)` over level `l`, if `n_l`
//! of its group are in its domain of level `l`. This is hierarchical: the fair share that a domain must
//! import, from `ceil(n_l / n_{l-1}) - 1` peers. An all-reduce does it twice.
//!
//! **Exchanges** are direct: the bytes from each level are counted by digits ([`traffic`]) or rank by rank.

use reshard_layout::{AxisStride, Mode};
use smallvec::SmallVec;

use crate::model::codes::{Code, NOWHERE, Weight};
use crate::op::StepOp;
use reshard_sharding::{GroupPattern, Mesh};

/// The traffic that one rank receives over one level of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelTraffic {
    /// Received bytes.
    pub bytes: f64,
    /// Number of sending ranks.
    pub peers: usize,
}

/// The traffic of each level, from the inside out.
pub(crate) type Traffic = SmallVec<[LevelTraffic; 3]>;

/// For one rank, the number of group members in its domain of each level.
pub(crate) type DomainSizes = SmallVec<[usize; 3]>;

/// The load of the worst rank of a communicating step: the whole input of a [`CostModel`](super::CostModel).
///
/// If domains of the network split a group unevenly, its ranks bear different loads. The step then costs as
/// much as the most expensive of them.
#[derive(Clone, Debug)]
pub struct StepTraffic<'a> {
    op: StepOp,
    traffic: &'a [LevelTraffic],
    span: Span<'a>,
    received: u64,
    peak: u64,
}

/// The ranks of a step; the group is only built if a model requests it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Span<'a> {
    Axes { mesh: &'a Mesh, modes: &'a [Mode<AxisStride>] },
    Group(&'a GroupPattern),
}

impl<'a> StepTraffic<'a> {
    /// Returns the kind of step; an all-to-all is an [`StepOp::Exchange`] with all others of the group.
    pub fn op(&self) -> StepOp {
        self.op
    }

    /// Returns the traffic that the worst rank receives over each level, from the inside out.
    pub fn traffic(&self) -> &[LevelTraffic] {
        self.traffic
    }

    /// Returns the number of ranks from which it receives.
    ///
    /// Collectives go level by level, so this may be far less than the group.
    pub fn peers(&self) -> usize {
        self.traffic.iter().map(|t| t.peers).sum()
    }

    /// Returns the bytes that the worst rank receives.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Returns the most bytes that it holds: the input and output of the step, and its staging.
    pub fn peak_bytes(&self) -> u64 {
        self.peak
    }

    /// Returns the ranks that take part, from the lowest on, as a network without levels needs them.
    pub fn group(&self) -> GroupPattern {
        match self.span {
            Span::Group(group) => group.clone(),
            Span::Axes { mesh, modes } => {
                mesh.group_of_modes(modes).expect("modes of a mesh are a group of its ranks")
            }
        }
    }

    /// Returns the number of ranks that take part.
    pub fn group_size(&self) -> usize {
        match self.span {
            Span::Group(group) => group.size(),
            Span::Axes { modes, .. } => modes.iter().map(|m| m.extent as usize).product(),
        }
    }

    /// Returns the load of counted traffic: received and held bytes, and the bytes over each level.
    #[inline]
    pub(crate) fn counted(
        op: StepOp,
        traffic: &'a [LevelTraffic],
        [received, peak]: [u64; 2],
        span: Span<'a>,
    ) -> StepTraffic<'a> {
        StepTraffic { op, traffic, span, received, peak }
    }

    /// Returns the load of an exchange of counted traffic.
    #[inline]
    pub(crate) fn exchange(traffic: &'a [LevelTraffic], peak: u64, span: Span<'a>) -> StepTraffic<'a> {
        let received = traffic.iter().map(|x| x.bytes).sum::<f64>() as u64;
        StepTraffic { op: StepOp::Exchange, traffic, span, received, peak }
    }
}

/// Returns the traffic of the worst rank in a collective whose group is spread over domains as in `near`.
#[inline]
pub(crate) fn share_of_collective(op: StepOp, volume: &Volume, near: &[usize]) -> Traffic {
    let halves = match op {
        StepOp::AllReduce => 2.0,
        StepOp::AllGather | StepOp::ReduceScatter => 1.0,
        // Not a collective: exchanged bytes are counted elsewhere, and local steps transfer nothing.
        StepOp::AllToAll | StepOp::Exchange | StepOp::Slice | StepOp::ZeroFill => 0.0,
    };
    let total = volume.gathered as f64;
    let mut traffic = Traffic::new();
    let mut below = 1usize;
    for &n in near {
        let bytes = halves * total * (1.0 / below as f64 - 1.0 / n as f64);
        traffic.push(LevelTraffic { bytes, peers: n.div_ceil(below) - 1 });
        below = n;
    }
    traffic
}

/// Returns the traffic of a rank that receives a block from each other rank of its group.
///
/// `near` is the spread of the group over domains.
pub(crate) fn all_terms(block: u64, near: &[usize]) -> Traffic {
    let mut traffic = Traffic::new();
    let mut below = 1;
    for &n in near {
        traffic.push(LevelTraffic { bytes: block as f64 * (n - below) as f64, peers: n - below });
        below = n;
    }
    traffic
}

/// The bytes of the worst rank of a step, regardless of the location of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume {
    pub(crate) received: u64,
    /// Total that a collective gathers, as the model charges for it: whole blocks.
    pub(crate) gathered: u64,
    pub(crate) peak: u64,
}

impl Volume {
    /// Returns the volume of a step over `g` ranks, from `a` elements of a rank to `b`.
    ///
    /// Counts saturate at `u64::MAX`. The received bytes of an exchange are in its traffic instead.
    #[inline]
    pub(crate) fn new(op: StepOp, [a, b]: [u64; 2], g: u64, item: u64) -> Volume {
        let (piece, received, staged) = match op {
            StepOp::AllGather => (a, (g - 1).saturating_mul(a), 0),
            StepOp::ReduceScatter => (b, (g - 1).saturating_mul(b), 0),
            StepOp::AllReduce => {
                let piece = a.div_ceil(g);
                (piece, (g - 1).saturating_mul(piece).saturating_add(a - piece), piece)
            }
            StepOp::Slice | StepOp::ZeroFill | StepOp::AllToAll | StepOp::Exchange => (0, 0, 0),
        };
        let bytes = |elements: u64| elements.saturating_mul(item);
        let held = a.saturating_add(b).saturating_add(staged);
        Volume { received: bytes(received), gathered: bytes(g.saturating_mul(piece)), peak: bytes(held) }
    }
}

/// Returns bytes and peers of the worst rank at each level, in an exchange with targets of `bytes`.
///
/// The digits go from codes `f` to `g`. A digit that changes its position is *free* if no digit takes over
/// that position (every value is another peer). Otherwise it is *forced* (some rank's value is not its own).
/// With `F` the outermost level of a forced digit (-1 without) and `X_l` the bytes from beyond level `l`,
///
/// ```text
/// X_l = bytes (1 - 1 / prod_{k > l} free_k);   r_l = X_{l-1} - X_l for l > F,   r_F = bytes - X_F,   0 below F
/// ```
pub(crate) fn traffic(weights: &[Weight], f: &[Code], g: &[Code], bytes: u64, levels: usize) -> Traffic {
    let mut taken = [0u64; 4];
    for &c in g {
        taken[usize::from(c >> 6)] |= 1 << (c & 63);
    }
    let mut free: SmallVec<[u64; 3]> = SmallVec::from_elem(1, levels);
    let mut forced: Option<usize> = None;
    for d in 0..f.len() {
        if f[d] >= NOWHERE || f[d] == g[d] {
            continue;
        }
        if taken[usize::from(f[d] >> 6)] >> (f[d] & 63) & 1 == 1 {
            forced = forced.max(Some(weights[d].level));
        } else {
            free[weights[d].level] *= weights[d].radix;
        }
    }
    let mut out = Traffic::new();
    let (mut within, mut beyond) = (1usize, free.iter().product::<u64>());
    let mut inner = bytes / beyond;
    for l in 0..levels {
        let before = within;
        within *= free[l] as usize;
        beyond /= free[l];
        let outer = if free[l] == 1 { inner } else { bytes / beyond };
        let (bytes, peers) = match forced {
            Some(f) if l < f => (0.0, 0),
            Some(f) if l == f => (outer as f64, within),
            Some(_) | None => ((outer - inner) as f64, within - before),
        };
        out.push(LevelTraffic { bytes, peers });
        inner = outer;
    }
    out
}
