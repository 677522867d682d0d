//! The steps of plans within a digit system: what each move costs, and what the worst rank sends and receives.

use std::sync::Arc;

use reshard_layout::{At, Mode};
use smallvec::SmallVec;

use crate::cut::chunk;
use crate::redistribute::bounds::{Code, Codes, OWED, OWED_LATER, REPLICATED, Weight};
use crate::redistribute::closed_form::{Candidate, Move, senders};
use crate::redistribute::cost::all_reduce_bytes;
use crate::redistribute::messages::{self, Motion, reduce_of};
use crate::redistribute::network::traffic;
use crate::redistribute::planner::Work;
use crate::redistribute::step::{Step, StepOp};
use crate::redistribute::system::{Place, State, System};
use crate::{Error, ReduceOp, SubAxis};

impl Work<'_> {
    /// What one move costs.
    pub(super) fn measure(&self, system: &System, weights: &[Weight], m: &Move) -> Result<Measured, Error> {
        let axes = system.changed(&m.before, &m.after);
        let g: u64 = axes.iter().map(|m| m.extent as u64).product();
        let (a, b) = (system.local_numel(&m.before) as u64, system.local_numel(&m.after) as u64);
        let (small, large, item) = (a.min(b), a.max(b), self.item);
        let network = &self.network;
        let spread = if m.op.communicates() { network.spread(&axes)? } else { SmallVec::new() };
        let collective = |total: u64, halves: f64| network.collective_us(total as f64, &spread, halves);
        let mut op = m.op;
        let mut peak = a + b;
        let (received, cost_us) = match m.op {
            StepOp::Slice | StepOp::ZeroFill => (0, 0.0),
            StepOp::AllGather | StepOp::ReduceScatter => {
                ((large - small) * item, collective(large * item, 1.0))
            }
            StepOp::AllReduce => {
                let (bytes, modelled) = all_reduce_bytes(large, g, item);
                peak += large.div_ceil(g);
                (bytes, collective(modelled, 2.0))
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let (before, after) = (codes(&m.before, &m.before), codes(&m.after, &m.before));
                let bytes = b * item;
                let x = traffic(weights, &before, &after, bytes, network.levels());
                let peers: usize = x.iter().map(|x| x.1).sum();
                let received = x.iter().map(|x| x.0).sum::<f64>() as u64;
                if peers as u64 + 1 == g && received < bytes {
                    op = StepOp::AllToAll;
                }
                (received, network.topology.exchange_us(&x))
            }
        };
        Ok(Measured { op, axes, received, cost_us, peak: peak * item })
    }

    /// The steps of a candidate.
    pub(super) fn digit_steps(&self, c: &Candidate) -> Result<Vec<Step>, Error> {
        let weights = self.weights(&c.system);
        self.measured_steps(c, &weights, &self.measure_all(c, &weights)?)
    }

    /// The same, of moves that have been measured.
    pub(super) fn measured_steps(
        &self,
        c: &Candidate,
        weights: &[Weight],
        measured: &[Measured],
    ) -> Result<Vec<Step>, Error> {
        let mut steps: Vec<Step> = Vec::with_capacity(c.moves.len());
        for (i, (m, x)) in c.moves.iter().zip(measured).enumerate() {
            let [from, to] = self.shared();
            let before = Arc::clone(steps.last().map_or(from, |s: &Step| &s.after));
            let last = i + 1 == c.moves.len();
            let after = if last { Arc::clone(to) } else { Arc::new(c.system.sharding(&m.after)?) };
            let mesh = &c.system.mesh;
            let group = mesh.group_of_modes(&x.axes)?;
            let (motion, sent_bytes) = self.motion(&c.system, weights, m, x);
            let mut axes: SmallVec<[SubAxis; 4]> = SmallVec::new();
            for &m in &x.axes {
                axes.extend(mesh.sub_axis(m));
            }
            let (op, cost_us) = (x.op, x.cost_us);
            let received_bytes = x.received;
            steps.push(Step { op, axes, group, before, after, received_bytes, sent_bytes, cost_us, motion });
        }
        Ok(steps)
    }

    /// What the moves of a candidate cost.
    pub(super) fn measure_all(&self, c: &Candidate, weights: &[Weight]) -> Result<MeasuredMoves, Error> {
        let mut all = MeasuredMoves::new();
        for m in &c.moves {
            all.push(self.measure(&c.system, weights, m)?);
        }
        Ok(all)
    }

    /// How the data of a move goes, and how many bytes the worst rank sends.
    fn motion(&self, system: &System, weights: &[Weight], m: &Move, x: &Measured) -> (Arc<Motion>, u64) {
        let received = x.received;
        let digits = || (0..m.before.len()).filter(|&d| m.before[d] != m.after[d]);
        let reduce = || {
            reduce_of(digits().filter_map(|d| match m.before[d] {
                Place::Partial(op) => Some((op, system.digits[d].extent as usize)),
                Place::At(_) | Place::Replicated => None,
            }))
        };
        let zip = || system.zip_of(&m.before, &m.after);
        match x.op {
            StepOp::Slice | StepOp::ZeroFill | StepOp::AllGather => {
                let moved = messages::Move { zip: zip(), senders: Vec::new(), filled: filled(system, m) };
                (Arc::new(Motion::Move(moved)), received)
            }
            StepOp::ReduceScatter => {
                (Arc::new(Motion::ReduceScatter { zip: zip(), reduce: reduce() }), received)
            }
            StepOp::AllReduce => {
                let modes = digits().map(|d| system.digits[d]).collect();
                (Arc::new(Motion::AllReduce { modes, reduce: reduce() }), received)
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let sender = senders(system, &m.before, &m.after, |d| weights[d].level);
                let sent = most_sent(system, &m.before, &m.after, &sender) * self.item;
                let told = |(d, &by): (usize, &usize)| {
                    (d != by).then(|| system.digits[d].map(|head| (head, system.digits[by].stride)))
                };
                let senders = sender.iter().enumerate().filter_map(told).collect();
                let moved = messages::Move { zip: zip(), senders, filled: filled(system, m) };
                (Arc::new(Motion::Move(moved)), sent)
            }
        }
    }

    /// The greatest total of bytes that one rank receives in the steps of a candidate.
    ///
    /// A rank receives less than another in an exchange if it is its own source of one block: if all the equations
    /// between its digits hold that say so. It is the worst in all exchanges if it breaks one of each, for which three
    /// values of every digit are enough. In an all-reduce of pieces that do not divide, the first rank has most.
    pub(super) fn most_received(&self, system: &System, steps: &[Step]) -> Result<u64, Error> {
        let total: u64 = steps.iter().map(|s| s.received_bytes).sum();
        if steps.len() < 2 {
            return Ok(total);
        }
        let mut unequal: SmallVec<[Unequal; 4]> = SmallVec::new();
        for s in steps {
            unequal.extend(self.unequal(system, s));
        }
        if unequal.len() < 2 {
            return Ok(total);
        }
        let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, system.digits.len());
        let mut least_spared = u64::MAX;
        loop {
            let spared: u64 = unequal.iter().map(|u| u.spared(&digits)).sum();
            least_spared = least_spared.min(spared);
            let next = (0..digits.len()).find(|&d| digits[d] + 1 < (system.digits[d].extent as usize).min(3));
            let (Some(d), true) = (next, least_spared > 0) else { return Ok(total - least_spared) };
            digits[d] += 1;
            digits[..d].fill(0);
        }
    }

    /// What a step receives less on some ranks, if it does.
    fn unequal(&self, system: &System, s: &Step) -> Option<Unequal> {
        match &*s.motion {
            Motion::Move(m) if s.op == StepOp::Exchange => {
                let digit = |at: At| system.digits.iter().position(|m| m.stride == at);
                let mut equal: SmallVec<[(usize, usize); 8]> = SmallVec::new();
                for told in m.zip.iter().chain(&m.senders) {
                    let (x, y) = told.stride;
                    if !x.is_local() && !y.is_local() && x != y {
                        equal.extend(digit(x).zip(digit(y)));
                    }
                }
                // Every value of what is gathered is another block of the target.
                let block = m.zip.iter().filter(|m| m.stride.0.is_local() && m.stride.1.is_local());
                let block = block.map(|m| m.extent as u64).product::<u64>() * self.item;
                (!equal.is_empty()).then_some(Unequal::Own { equal, block })
            }
            Motion::AllReduce { modes, .. } => {
                let (n, g) = (s.before.max_local_numel() as u64, s.group.size() as u64);
                (!n.is_multiple_of(g)).then(|| Unequal::Piece {
                    digits: (0..system.digits.len())
                        .filter(|&d| modes.contains(&system.digits[d]))
                        .map(|d| (d, system.digits[d].extent as usize))
                        .collect(),
                    numel: n,
                    item: self.item,
                })
            }
            Motion::Move(_)
            | Motion::ReduceScatter { .. }
            | Motion::Overlap(_)
            | Motion::ReduceOverlap { .. } => None,
        }
    }
}

/// The digits that become partial by zero-filling in a move, and the op; replicas are terms of an average as they are.
fn filled(system: &System, m: &Move) -> Option<(ReduceOp, Vec<Mode<At>>)> {
    let mut found: Option<(ReduceOp, Vec<Mode<At>>)> = None;
    for (d, (before, after)) in m.before.iter().zip(&m.after).enumerate() {
        if let (Place::At(_) | Place::Replicated, Place::Partial(op)) = (before, after)
            && *op != ReduceOp::Avg
        {
            found.get_or_insert_with(|| (*op, Vec::new())).1.push(system.digits[d]);
        }
    }
    found
}

/// Why some ranks receive less than others in a step.
enum Unequal {
    /// Who has these pairs of digits equal is its own source of a block.
    Own { equal: SmallVec<[(usize, usize); 8]>, block: u64 },
    /// Each reduces a piece of the local buffer, numbered by these digits with their sizes.
    Piece { digits: SmallVec<[(usize, usize); 8]>, numel: u64, item: u64 },
}

impl Unequal {
    /// Bytes that the rank with these digits receives less than the worst.
    fn spared(&self, digits: &[usize]) -> u64 {
        match self {
            Unequal::Own { equal, block } => {
                if equal.iter().all(|&(a, b)| digits[a] == digits[b]) {
                    *block
                } else {
                    0
                }
            }
            Unequal::Piece { digits: of, numel, item } => {
                let (mut g, mut i) = (1, 0);
                for &(d, size) in of {
                    (g, i) = (g * size, i * size + digits[d]);
                }
                // It receives g - 1 terms of its piece, and all other pieces.
                let first = chunk(*numel as usize, g, 0).len;
                ((first - chunk(*numel as usize, g, i).len) * g.saturating_sub(2)) as u64 * item
            }
        }
    }
}

/// What the moves of a candidate cost.
pub(super) type MeasuredMoves = SmallVec<[Measured; 3]>;

/// What one move costs: its worst rank's bytes, time and peak bytes.
pub(super) struct Measured {
    pub(super) op: StepOp,
    /// The digits that change, coalesced: by axis, slowest first.
    pub(super) axes: SmallVec<[Mode<At>; 4]>,
    pub(super) received: u64,
    pub(super) cost_us: f64,
    pub(super) peak: u64,
}

/// The most elements that a rank sends in an exchange: one block for every receiver whose digits its own do not fix.
///
/// A receiver's digit `b` is fixed by all the sender's digits `d` that are read off it, which must then agree. Where they
/// agree with the sender's own `b` every time, every sender is its own receiver.
fn most_sent(system: &System, before: &State, after: &State, sender: &[usize]) -> u64 {
    let (standing_before, standing_after) = (system.standing(before), system.standing(after));
    let n = before.len();
    // Receiver digit `by` has the value of my digit `d`; where several of mine say so, they are equal on who sends.
    let mut told: SmallVec<[(usize, usize); 8]> = SmallVec::new();
    for (d, a) in before.iter().enumerate() {
        let by = match *a {
            Place::At(p) => standing_after[usize::from(p)].map(usize::from),
            Place::Replicated | Place::Partial(_) => Some(sender[d]),
        };
        told.extend(by.map(|by| (d, by)));
    }
    let mut class: SmallVec<[usize; 8]> = (0..n).collect();
    for i in 0..told.len() {
        for j in 0..i {
            if told[i].1 == told[j].1 {
                let (x, y) = (class[told[i].0], class[told[j].0]);
                class.iter_mut().filter(|c| **c == x).for_each(|c| *c = y);
            }
        }
    }
    // Unless all that is told to a digit is its own value, somebody sends to others only.
    let tells_others = told.iter().any(|&(d, by)| class[d] != class[by]);
    let is_free = |d: &usize| told.iter().all(|t| t.1 != *d);
    let receivers: u64 = (0..n).filter(is_free).map(|d| system.digits[d].extent as u64).product();
    let block: u64 = system
        .zip
        .iter()
        .enumerate()
        .filter(|&(p, _)| standing_before[p].is_none() && standing_after[p].is_none())
        .map(|(_, m)| m.extent as u64)
        .product();
    (receivers - u64::from(!tells_others)) * block
}

/// A state of a system as codes, partial digits told apart from their source.
pub(super) fn codes(state: &State, source: &State) -> Codes {
    let mut codes = Codes::new();
    for (&x, &s) in state.iter().zip(source) {
        codes.push(code(x, s));
    }
    codes
}

/// One place as a code, told apart from its source where it is partial.
pub(super) fn code(place: Place, source: Place) -> Code {
    match place {
        Place::At(p) => p,
        Place::Replicated => REPLICATED,
        Place::Partial(_) if place == source => OWED,
        Place::Partial(_) => OWED_LATER,
    }
}
