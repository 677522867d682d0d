//! What one rank does in one step: which blocks it receives from whom, sends to whom, and where they lie.
//!
//! The layouts before and after a step, zipped, are its geometry (see `system`), and what one rank does is that list sliced
//! at its coordinates. Receiver `r` needs the elements at which the modes that go along axes afterwards have its digits. With
//! `x`, `y` a step and the digit that goes along it, they lie on the rank whose digit is
//!
//! ```text
//! (x, y)          the receiver's y digit                                     permuted
//! (x, local)      every value in turn, or its own where x becomes partial    gathered
//! not before      its own, except that the head of a path R -> .. -> R or R -> .. -> local takes its tail's,
//!                 which makes the exchange a permutation
//! ```
//!
//! so the peers are the product of the free digits, and every block is the modes that are local both before and after: a
//! layout of pairs. Sends invert the same equations. Uneven steps do the same with overlapping regions.

use reshard_layout::{At, Mode, Modes};
use smallvec::SmallVec;

use crate::cut::chunk;
use crate::mesh::{Coordinate, digit, set_digit};
use crate::redistribute::overlap::Overlap;
use crate::{Error, Mesh, ReduceOp, Sharding};

/// Elements that move together: two offsets and a layout of pairs `(source stride, target stride)`, leftmost fastest.
///
/// ```text
/// source[source_offset + sum_k c_k s_k]   goes to   target[target_offset + sum_k c_k t_k]       modes e_k : (s_k, t_k)
/// ```
///
/// No modes at all is one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where the first element lies in the sender's buffer.
    pub source_offset: usize,
    /// Where it goes in the receiver's buffer.
    pub target_offset: usize,
    /// The modes, coalesced, strides counted in elements.
    pub modes: Modes<(i64, i64)>,
}

impl Block {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.modes.iter().map(|m| m.extent as usize).product()
    }
}

/// The blocks that go from one rank to another, in the same order on both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other rank: the sender of what is received, the receiver of what is sent.
    pub peer: usize,
    /// What moves.
    pub blocks: SmallVec<[Block; 1]>,
}

impl Message {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.blocks.iter().map(Block::numel).sum()
    }
}

/// How received terms become a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// How two terms combine; never avg, which is sum with a divisor.
    pub op: ReduceOp,
    /// What the combination is divided by; 1 unless some axes were avg.
    pub divisor: usize,
}

/// How the terms of the partial axes that go away become a value.
pub(crate) fn reduce_of(ops: impl Iterator<Item = (ReduceOp, usize)>) -> Reduce {
    let mut reduce = Reduce { op: ReduceOp::Sum, divisor: 1 };
    for (op, size) in ops {
        reduce.op = op.combining();
        if op == ReduceOp::Avg {
            reduce.divisor *= size;
        }
    }
    reduce
}

/// What one rank does in one phase of a step. Offsets and strides count elements of row-major, dense local buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The elements of this rank's buffer before the phase; 0 if it holds nothing.
    pub source_len: usize,
    /// And after it.
    pub target_len: usize,
    /// If set, the target is first filled with this op's identity (-0.0 for a sum of floats).
    pub fill: Option<ReduceOp>,
    /// What lands in this rank's target; a message from itself is a local copy.
    pub receives: Vec<Message>,
    /// What other ranks take from this rank's source.
    pub sends: Vec<Message>,
    /// If set, every received message (this rank's own included) is a term that covers the whole target. They combine
    /// in the order listed, which is the order of the group and the same for all replicas.
    pub reduce: Option<Reduce>,
    /// The ranks that take part together, this one included, ascending.
    pub members: Vec<usize>,
}

/// One phase, two for an all-reduce, none for a rank outside the step's mesh.
pub type Phases = SmallVec<[Phase; 2]>;

/// The layouts before and after a step side by side; on the heap, because steps are moved about.
pub(crate) type Zip = Vec<Mode<(At, At)>>;

/// How the data of a step moves.
#[derive(Clone, Debug)]
pub(crate) enum Motion {
    /// Digits change places.
    Move(Move),
    /// Partial digits are reduced onto positions: the zip of before and after.
    ReduceScatter { zip: Zip, reduce: Reduce },
    /// Partial modes of axes are reduced onto all their ranks, each reducing a piece of the local buffer.
    AllReduce { modes: Vec<Mode<At>>, reduce: Reduce },
    /// Regions overlap.
    Overlap(Box<Overlap>),
    /// Partial modes of axes are reduced onto the regions of another sharding, each inside the rank's own.
    ReduceOverlap { overlap: Box<Overlap>, modes: Vec<Mode<At>>, reduce: Reduce },
}

/// Digits that change places.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// The zip of before and after.
    pub(crate) zip: Zip,
    /// Digits that stand nowhere before and for which the source has another's value: `(head, tail)`.
    pub(crate) senders: Vec<Mode<(At, At)>>,
    /// Digits that become partial by zero-filling, and the op.
    pub(crate) filled: Option<(ReduceOp, Vec<Mode<At>>)>,
}

/// The ranks whose coordinates differ from a rank's at most along these modes, in the order of their digits, the first mode
/// slowest.
pub(crate) fn members(mesh: &Mesh, modes: &[Mode<At>], rank: usize) -> Result<Vec<usize>, Error> {
    let mut c = coordinate(mesh, rank)?;
    for &m in modes {
        set_digit(&mut c, m, 0);
    }
    let mut ranks = Vec::with_capacity(modes.iter().map(|m| m.extent as usize).product());
    for_each_value(&mut c, modes, &mut |c| ranks.push(rank_at(mesh, c)));
    Ok(ranks)
}

fn coordinate(mesh: &Mesh, rank: usize) -> Result<Coordinate, Error> {
    mesh.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: mesh.to_string() })
}

fn rank_at(mesh: &Mesh, c: &[usize]) -> usize {
    mesh.rank_at(c).expect("digits are below their extents")
}

/// Calls `f` with the coordinate for every combination of digits along these modes, the first slowest.
fn for_each_value(c: &mut Coordinate, modes: &[Mode<At>], f: &mut impl FnMut(&Coordinate)) {
    let Some((&m, rest)) = modes.split_first() else { return f(c) };
    let own = digit(c, m);
    for value in 0..m.extent {
        set_digit(c, m, value);
        for_each_value(c, rest, f);
    }
    set_digit(c, m, own);
}

/// What a rank does in a step whose data moves like this.
pub(crate) fn phases(
    motion: &Motion,
    axes: &[Mode<At>],
    before: &Sharding,
    rank: usize,
) -> Result<Phases, Error> {
    let two_meshes = matches!(motion, Motion::Overlap(o) if !o.one_mesh());
    let mesh = before.mesh();
    if !two_meshes && !mesh.contains(rank) {
        return Ok(Phases::new());
    }
    let mut group = match motion {
        Motion::Overlap(o) => o.members(axes, rank)?,
        Motion::Move(_)
        | Motion::ReduceScatter { .. }
        | Motion::AllReduce { .. }
        | Motion::ReduceOverlap { .. } => members(mesh, axes, rank)?,
    };
    group.sort_unstable();
    let phases: Phases = match motion {
        Motion::Move(m) => SmallVec::from_iter([m.phase(mesh, rank, group)?]),
        Motion::ReduceScatter { zip, reduce } => {
            SmallVec::from_iter([scattered(zip, *reduce, mesh, rank, group)?])
        }
        Motion::AllReduce { modes, reduce } => all_reduced(before, modes, *reduce, rank, &group)?,
        Motion::Overlap(o) => SmallVec::from_iter([o.phase(rank, group)?]),
        Motion::ReduceOverlap { overlap, modes, reduce } => {
            let order = members(mesh, modes, rank)?;
            SmallVec::from_iter([overlap.reduced(rank, &order, *reduce, group)?])
        }
    };
    Ok(phases)
}

/// A phase of a zip in which nothing moves yet.
fn phase_of(zip: &[Mode<(At, At)>], reduce: Option<Reduce>, members: Vec<usize>) -> Phase {
    let local = |side: fn(&(At, At)) -> At| -> usize {
        zip.iter().filter(|m| side(&m.stride).is_local()).map(|m| m.extent as usize).product()
    };
    Phase {
        source_len: local(|d| d.0),
        target_len: local(|d| d.1),
        fill: None,
        receives: Vec::new(),
        sends: Vec::new(),
        reduce,
        members,
    }
}

/// The zip sliced at the coordinates of a sender and a receiver: what goes from one to the other.
fn block(zip: &[Mode<(At, At)>], sender: &[usize], receiver: &[usize]) -> Block {
    let (mut source_offset, mut target_offset) = (0, 0);
    let mut modes = Modes::new();
    for &m in zip {
        let (before, after) = m.stride;
        match (before.is_local(), after.is_local()) {
            (true, true) => modes.push_coalesced(0, m.map(|_| (before.step(), after.step()))),
            (true, false) => source_offset += digit(receiver, m.map(|_| after)) * before.step(),
            (false, true) => target_offset += digit(sender, m.map(|_| before)) * after.step(),
            (false, false) => {}
        }
    }
    Block { source_offset: source_offset as usize, target_offset: target_offset as usize, modes }
}

/// Sorts modes of axes: by axis, the slowest first.
fn sort(modes: &mut Modes<At>) {
    modes.sort_by_key(|m| (m.stride.axis(), core::cmp::Reverse(m.stride.step())));
}

impl Move {
    /// The modes that go along axes before, and those after, each with what it is on the other side.
    fn along(&self) -> impl Iterator<Item = (Mode<At>, At)> + Clone + '_ {
        self.zip.iter().filter(|m| !m.stride.0.is_local()).map(|&m| (m.map(|d| d.0), m.stride.1))
    }

    fn is_filled(&self, m: Mode<At>) -> bool {
        self.filled.as_ref().is_some_and(|(_, modes)| modes.contains(&m))
    }

    /// The digits that a receiver hears from in all values, and those that a sender reaches in all values.
    fn free(&self) -> [Modes<At>; 2] {
        let gathered = |&(m, after): &(Mode<At>, At)| after.is_local() && !self.is_filled(m);
        let mut heard: Modes<At> = self.along().filter(gathered).map(|(m, _)| m).collect();
        let told = |m: &Mode<At>| {
            self.along().any(|(_, after)| after == m.stride)
                || self.senders.iter().any(|x| x.stride.1 == m.stride)
                || self.is_filled(*m)
        };
        let mut reached: Modes<At> = self.along().map(|(m, _)| m).filter(|m| !told(m)).collect();
        sort(&mut heard);
        sort(&mut reached);
        [heard, reached]
    }

    fn phase(&self, mesh: &Mesh, rank: usize, members: Vec<usize>) -> Result<Phase, Error> {
        let me = coordinate(mesh, rank)?;
        let mut phase = phase_of(&self.zip, None, members);
        let was_placed = |at: At| self.along().any(|(m, _)| m.stride == at);
        if let Some((op, modes)) = &self.filled {
            phase.fill = Some(*op);
            // One copy of what was replicated is kept.
            if modes.iter().any(|&m| !was_placed(m.stride) && digit(&me, m) != 0) {
                return Ok(phase);
            }
        }
        let [heard, reached] = self.free();
        // Receives: the sender's digits, its own or told by mine.
        let mut from = me.clone();
        for (m, after) in self.along() {
            if !after.is_local() {
                set_digit(&mut from, m, digit(&me, m.map(|_| after)));
            }
        }
        for &m in &self.senders {
            let (head, tail) = m.stride;
            set_digit(&mut from, m.map(|_| head), digit(&me, m.map(|_| tail)));
        }
        for_each_value(&mut from, &heard, &mut |from| {
            let blocks = SmallVec::from_iter([block(&self.zip, from, &me)]);
            phase.receives.push(Message { peer: rank_at(mesh, from), blocks });
        });
        // Sends: the receiver's digits, told by mine. One that stood nowhere and takes no other's value is told its own as
        // well, and then both must agree.
        let mut to = me.clone();
        for (m, after) in self.along().filter(|(_, after)| !after.is_local()) {
            let told = digit(&me, m);
            let keeps_own = !was_placed(after) && self.senders.iter().all(|x| x.stride.0 != after);
            if keeps_own && digit(&me, m.map(|_| after)) != told {
                return Ok(phase);
            }
            set_digit(&mut to, m.map(|_| after), told);
        }
        for &m in &self.senders {
            let (head, tail) = m.stride;
            set_digit(&mut to, m.map(|_| tail), digit(&me, m.map(|_| head)));
        }
        for_each_value(&mut to, &reached, &mut |to| {
            if *to != me {
                let blocks = SmallVec::from_iter([block(&self.zip, &me, to)]);
                phase.sends.push(Message { peer: rank_at(mesh, to), blocks });
            }
        });
        Ok(phase)
    }
}

fn scattered(
    zip: &[Mode<(At, At)>],
    reduce: Reduce,
    mesh: &Mesh,
    rank: usize,
    members: Vec<usize>,
) -> Result<Phase, Error> {
    let me = coordinate(mesh, rank)?;
    let mut phase = phase_of(zip, Some(reduce), members);
    // What was local and goes along an axis now is where the terms of that axis are reduced to.
    let new = zip.iter().filter(|m| m.stride.0.is_local() && !m.stride.1.is_local());
    let mut reduced: Modes<At> = new.map(|m| m.map(|d| d.1)).collect();
    sort(&mut reduced);
    let mut peer = me.clone();
    for_each_value(&mut peer, &reduced, &mut |peer| {
        let message = |block| Message { peer: rank_at(mesh, peer), blocks: SmallVec::from_iter([block]) };
        phase.receives.push(message(block(zip, peer, &me)));
        if *peer != me {
            phase.sends.push(message(block(zip, &me, peer)));
        }
    });
    Ok(phase)
}

/// A contiguous range as a block.
fn range(source_offset: usize, target_offset: usize, len: usize) -> Block {
    let mut modes = Modes::new();
    if len > 1 {
        modes.push(Mode::new(len as i64, (1, 1)));
    }
    Block { source_offset, target_offset, modes }
}

/// Reduce-scatter, then all-gather, of the flat local buffer in pieces of `ceil(n / g)`.
fn all_reduced(
    before: &Sharding,
    modes: &[Mode<At>],
    reduce: Reduce,
    rank: usize,
    group: &[usize],
) -> Result<Phases, Error> {
    let order = members(before.mesh(), modes, rank)?;
    let n: usize = before.local_shape(rank)?.iter().product();
    let g = order.len();
    let mine = order.iter().position(|&r| r == rank).expect("a rank is in its own group");
    let piece = |i: usize| chunk(n, g, i);
    let message = |peer: usize, block: Block| Message { peer, blocks: SmallVec::from_iter([block]) };
    let my = piece(mine);
    let mut first = Phase {
        source_len: n,
        target_len: my.len,
        fill: None,
        receives: Vec::new(),
        sends: Vec::new(),
        reduce: Some(reduce),
        members: group.to_vec(),
    };
    let mut second = Phase { source_len: my.len, target_len: n, reduce: None, ..first.clone() };
    for (i, &peer) in order.iter().enumerate() {
        let its = piece(i);
        if my.len > 0 {
            first.receives.push(message(peer, range(my.start, 0, my.len)));
        }
        if its.len > 0 {
            second.receives.push(message(peer, range(0, its.start, its.len)));
        }
        if peer != rank {
            if its.len > 0 {
                first.sends.push(message(peer, range(its.start, 0, its.len)));
            }
            if my.len > 0 {
                second.sends.push(message(peer, range(0, my.start, my.len)));
            }
        }
    }
    Ok(SmallVec::from_iter([first, second]))
}
