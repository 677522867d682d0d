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

/// The traffic of one rank over one level of the network, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelTraffic {
    /// Bytes that a rank receives, or sends.
    pub bytes: f64,
    /// Number of ranks at the other end.
    pub peers: usize,
}

/// The traffic of each level, from the inside out.
pub(crate) type Traffic = SmallVec<[LevelTraffic; 3]>;

/// For one rank, the number of group members in its domain of each level.
pub(crate) type DomainSizes = SmallVec<[usize; 3]>;

/// The load of one rank of a communicating step in one direction: the whole input of a [`CostModel`](super::CostModel).
///
/// If domains of the network split a group unevenly, its ranks bear different loads. The step then costs as
/// much as the most expensive of them.
#[derive(Clone, Debug)]
pub struct StepTraffic<'a> {
    op: StepOp,
    traffic: &'a [LevelTraffic],
    span: Span<'a>,
    bytes: u64,
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

    /// Returns the traffic of the worst rank over each level in one direction, from the inside out.
    pub fn traffic(&self) -> &[LevelTraffic] {
        self.traffic
    }

    /// Returns the number of ranks from which it receives, or to which it sends.
    ///
    /// Collectives go level by level, so this may be far less than the group.
    pub fn peers(&self) -> usize {
        self.traffic.iter().map(|t| t.peers).sum()
    }

    /// Returns the bytes that the worst rank receives, or sends.
    pub fn bytes(&self) -> u64 {
        self.bytes
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

    /// Returns the load of counted traffic: transferred and held bytes, and the bytes over each level.
    #[inline]
    pub(crate) fn counted(
        op: StepOp,
        traffic: &'a [LevelTraffic],
        [bytes, peak]: [u64; 2],
        span: Span<'a>,
    ) -> StepTraffic<'a> {
        StepTraffic { op, traffic, span, bytes, peak }
    }

    /// Returns the load of an exchange of counted traffic.
    #[inline]
    pub(crate) fn exchange(traffic: &'a [LevelTraffic], peak: u64, span: Span<'a>) -> StepTraffic<'a> {
        let bytes = traffic.iter().map(|x| x.bytes).sum::<f64>() as u64;
        StepTraffic { op: StepOp::Exchange, traffic, span, bytes, peak }
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
pub(crate) fn all_terms(block: f64, near: &[usize]) -> Traffic {
    let mut traffic = Traffic::new();
    let mut below = 1;
    for &n in near {
        traffic.push(LevelTraffic { bytes: block * (n - below) as f64, peers: n - below });
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

/// Returns bytes and peers of the worst receiver at each level, in an exchange with targets of `bytes`.
///
/// The digits go from codes `f` to `g`. A digit that changes its position is *free* if no digit takes over
/// that position (every value is another peer). Otherwise it is *forced* (some rank's value is not its own).
/// With `F` the outermost level of a forced digit (-1 without) and `X_l` the bytes from beyond level `l`,
///
/// ```text
/// X_l = bytes (1 - 1 / prod_{k > l} free_k);   r_l = X_{l-1} - X_l for l > F,   r_F = bytes - X_F,   0 below F
/// ```
pub(crate) fn traffic(weights: &[Weight], f: &[Code], g: &[Code], bytes: u64, levels: usize) -> Traffic {
    let taken = Taken::new(g);
    let mut peers = Peers::new(levels);
    for d in 0..f.len() {
        if f[d] < NOWHERE && f[d] != g[d] {
            peers.add(weights[d], taken.holds(f[d]));
        }
    }
    peers.traffic(bytes)
}

/// Returns the same for the worst sender, if it bears more than the worst receiver at any level.
///
/// A sender's digit is the receiver's digit that takes over its position. If it was replicated and takes a
/// position, it is the one at the end of that chain, unless its own value is nearer. So a receiver's digit
/// that no digit of the sender reads is free, and one that another digit reads is forced. If all digits that
/// change are of one level, the two directions bear the same.
pub(crate) fn traffic_sent(
    weights: &[Weight],
    f: &[Code],
    g: &[Code],
    received: &[LevelTraffic],
    bytes: u64,
) -> Option<Traffic> {
    let n = f.len();
    let of_levels = (0..n).filter(|&d| f[d] != g[d]).fold(0u64, |mask, d| mask | 1 << weights[d].level);
    if of_levels.count_ones() < 2 {
        return None;
    }
    let reader = |codes: &[Code], c: Code| (0..n).find(|&e| codes[e] == c);
    let mut peers = Peers::new(received.len());
    // Digits of the receiver that are read, and heads that keep their own value, as bits.
    let (mut read, mut near, mut free) = (0u64, 0u64, 1u64);
    for d in (0..n).filter(|&d| f[d] != g[d] && f[d] >= NOWHERE) {
        let (mut tail, mut outermost) = (d, None);
        while let Some(e) = (g[tail] < NOWHERE).then(|| reader(f, g[tail])).flatten() {
            outermost = outermost.max(Some(weights[e].level));
            tail = e;
        }
        if outermost.is_none_or(|level| weights[d].level <= level) {
            read |= 1 << tail;
            if tail != d {
                peers.add(weights[tail], true);
            }
        } else {
            (read, near) = (read | 1 << d, near | 1 << d);
        }
    }
    for d in 0..n {
        if f[d] == g[d] {
            read |= 1 << d;
        } else if f[d] < NOWHERE {
            match reader(g, f[d]) {
                Some(by) => {
                    read |= 1 << by;
                    // A sender that has the value of such a head is as near as its receiver.
                    if near >> by & 1 == 0 {
                        peers.add(weights[by], true);
                    }
                }
                None => free *= weights[d].radix,
            }
        }
    }
    for d in (0..n).filter(|&d| read >> d & 1 == 0) {
        peers.add(weights[d], false);
    }
    let sent = peers.traffic(bytes / free * peers.free());
    let bears_more = sent.iter().zip(received).any(|(s, r)| s.bytes > r.bytes || s.peers > r.peers);
    bears_more.then_some(sent)
}

/// The positions that digits occupy, as bits.
struct Taken([u64; 4]);

impl Taken {
    fn new(codes: &[Code]) -> Taken {
        let mut taken = [0u64; 4];
        for &c in codes {
            taken[usize::from(c >> 6)] |= 1 << (c & 63);
        }
        Taken(taken)
    }

    fn holds(&self, c: Code) -> bool {
        self.0[usize::from(c >> 6)] >> (c & 63) & 1 == 1
    }
}

/// The ranks at the other end of one rank's messages: values of free digits, by level.
struct Peers {
    free: SmallVec<[u64; 3]>,
    /// The outermost level of a forced digit.
    forced: Option<usize>,
}

impl Peers {
    fn new(levels: usize) -> Peers {
        Peers { free: SmallVec::from_elem(1, levels), forced: None }
    }

    fn add(&mut self, digit: Weight, is_forced: bool) {
        if is_forced {
            self.forced = self.forced.max(Some(digit.level));
        } else {
            self.free[digit.level] *= digit.radix;
        }
    }

    fn free(&self) -> u64 {
        self.free.iter().product()
    }

    /// Returns the traffic of `bytes` that all of them have in equal parts.
    fn traffic(&self, bytes: u64) -> Traffic {
        let mut out = Traffic::new();
        let (mut within, mut beyond) = (1usize, self.free());
        let mut inner = bytes / beyond;
        for (l, &free) in self.free.iter().enumerate() {
            let before = within;
            within *= free as usize;
            beyond /= free;
            let outer = if free == 1 { inner } else { bytes / beyond };
            let (bytes, peers) = match self.forced {
                Some(f) if l < f => (0.0, 0),
                Some(f) if l == f => (outer as f64, within),
                Some(_) | None => ((outer - inner) as f64, within - before),
            };
            out.push(LevelTraffic { bytes, peers });
            inner = outer;
        }
        out
    }
}
