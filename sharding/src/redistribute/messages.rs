//! What one rank does in one step: which blocks it receives from whom, sends to whom, and where they lie.
//!
//! In a digit system everything is a digit of the rank. Receiver `c` needs the elements whose positions owned after the
//! step have the values of its digits. They lie on the rank whose digit `d` is
//!
//! ```text
//! e[p]           if d stood at p: the receiver's digit d' if d' stands at p now, else every value in turn
//! c_sender(d)    if d was replicated or partial: its own digit, except that the head of a path R -> .. -> R or
//!                R -> .. -> local takes its tail's, which makes the exchange a permutation
//! ```
//!
//! so the peers are the product of the free digits, and every block is one loop nest over the positions that are local
//! both before and after. Sends invert the same equations. Uneven steps do the same with overlapping regions.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::cut::chunk;
use crate::redistribute::overlap::Overlap;
use crate::redistribute::system::{Place, State, System};
use crate::{Error, Mesh, ReduceOp, Sharding};

/// One loop of a block: `extent` elements, a stride apart on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The number of iterations.
    pub extent: usize,
    /// Elements between neighbours in the sender's buffer.
    pub source_stride: usize,
    /// Elements between neighbours in the receiver's buffer.
    pub target_stride: usize,
}

/// A loop nest of elements that move together, outermost loop first; no loops at all is one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where the first element lies in the sender's buffer.
    pub source_offset: usize,
    /// Where it goes in the receiver's buffer.
    pub target_offset: usize,
    /// The loops.
    pub modes: SmallVec<[Mode; 6]>,
}

impl Block {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.modes.iter().map(|m| m.extent).product()
    }

    /// Adds an inner loop, merged into the last one where both sides allow.
    pub(crate) fn push(&mut self, mode: Mode) {
        if mode.extent == 1 {
            return;
        }
        if let Some(last) = self.modes.last_mut()
            && last.source_stride == mode.extent * mode.source_stride
            && last.target_stride == mode.extent * mode.target_stride
        {
            *last = Mode { extent: last.extent * mode.extent, ..mode };
            return;
        }
        self.modes.push(mode);
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

/// How the data of a step moves.
#[derive(Clone, Debug)]
pub(crate) enum Motion {
    /// Digits change places; `sender[d]` is the digit whose value a source has for a digit `d` that stood nowhere.
    Move { system: Arc<System>, before: State, after: State, sender: SmallVec<[usize; 8]> },
    /// Partial digits are reduced onto positions.
    ReduceScatter { system: Arc<System>, before: State, after: State, reduce: Reduce },
    /// Partial sub-axes are reduced onto all their ranks, each reducing a piece of the local buffer.
    AllReduce { subs: SmallVec<[SubAxis; 4]>, reduce: Reduce },
    /// Regions overlap.
    Overlap(Box<Overlap>),
    /// Partial sub-axes are reduced onto the regions of another sharding, each inside the rank's own.
    ReduceOverlap { overlap: Box<Overlap>, subs: SmallVec<[SubAxis; 4]>, reduce: Reduce },
}

/// The ranks whose coordinates differ from a rank's at most in these sub-axes, in the order of those digits.
pub(crate) fn members(mesh: &Mesh, subs: &[SubAxis], rank: usize) -> Result<Vec<usize>, Error> {
    let c = mesh.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: mesh.to_string() })?;
    let size = |axis: usize| mesh.axes()[axis].size();
    let mut base = c.clone();
    for s in subs {
        base[s.axis] -= s.digit(c[s.axis], size(s.axis)) * s.post(size(s.axis));
    }
    let total: usize = subs.iter().map(|s| s.size).product();
    Ok((0..total)
        .map(|i| {
            let mut at = base.clone();
            let mut left = i;
            for s in subs.iter().rev() {
                at[s.axis] += left % s.size * s.post(size(s.axis));
                left /= s.size;
            }
            mesh.rank_at(&at).expect("digits are below their radix")
        })
        .collect())
}

/// What a rank does in a step whose data moves like this.
pub(crate) fn phases(
    motion: &Motion,
    axes: &[SubAxis],
    before: &Sharding,
    rank: usize,
) -> Result<Phases, Error> {
    let two_meshes = matches!(motion, Motion::Overlap(o) if !o.one_mesh());
    if !two_meshes && !before.mesh().contains(rank) {
        return Ok(Phases::new());
    }
    let mut group = match motion {
        Motion::Overlap(o) => o.members(axes, rank)?,
        Motion::Move { .. }
        | Motion::ReduceScatter { .. }
        | Motion::AllReduce { .. }
        | Motion::ReduceOverlap { .. } => members(before.mesh(), axes, rank)?,
    };
    group.sort_unstable();
    let phases: Phases = match motion {
        Motion::Move { system, before, after, sender } => {
            SmallVec::from_iter([moved(system, before, after, sender, rank, group)?])
        }
        Motion::ReduceScatter { system, before, after, reduce } => {
            SmallVec::from_iter([scattered(system, before, after, *reduce, rank, group)?])
        }
        Motion::AllReduce { subs, reduce } => all_reduced(before, subs, *reduce, rank, &group)?,
        Motion::Overlap(o) => SmallVec::from_iter([o.phase(rank, group)?]),
        Motion::ReduceOverlap { overlap, subs, reduce } => {
            let order = members(before.mesh(), subs, rank)?;
            SmallVec::from_iter([overlap.reduced(rank, &order, *reduce, group)?])
        }
    };
    Ok(phases)
}

/// Everything about a rank in a digit system that a step's blocks are made of.
struct View<'a> {
    system: &'a System,
    before: &'a State,
    after: &'a State,
    owner_before: SmallVec<[Option<usize>; 12]>,
    owner_after: SmallVec<[Option<usize>; 12]>,
    source: SmallVec<[usize; 12]>,
    target: SmallVec<[usize; 12]>,
    me: SmallVec<[usize; 8]>,
}

impl<'a> View<'a> {
    fn new(system: &'a System, before: &'a State, after: &'a State, rank: usize) -> Result<View<'a>, Error> {
        let mesh = &system.mesh;
        let c = mesh.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: mesh.to_string() })?;
        let (owner_before, owner_after) = (system.owners(before), system.owners(after));
        Ok(View {
            source: system.local_strides(&owner_before),
            target: system.local_strides(&owner_after),
            me: system.digits_of(&c),
            system,
            before,
            after,
            owner_before,
            owner_after,
        })
    }

    /// Whether digit `d` becomes partial in this step.
    fn embeds(&self, d: usize) -> Option<ReduceOp> {
        match (self.before[d], self.after[d]) {
            (Place::At(_) | Place::Replicated, Place::Partial(op)) => Some(op),
            (_, Place::At(_) | Place::Replicated) | (Place::Partial(_), Place::Partial(_)) => None,
        }
    }

    /// Where a receiver's digits put the start of its block in the sender's buffer.
    fn source_offset(&self, receiver: &[usize]) -> usize {
        (0..self.system.positions.len())
            .filter(|&p| self.owner_before[p].is_none())
            .filter_map(|p| self.owner_after[p].map(|d| receiver[d] * self.source[p]))
            .sum()
    }

    /// Where a sender's digits put the start of its block in the receiver's buffer.
    fn target_offset(&self, sender: &[usize]) -> usize {
        (0..self.system.positions.len())
            .filter(|&p| self.owner_after[p].is_none())
            .filter_map(|p| self.owner_before[p].map(|d| sender[d] * self.target[p]))
            .sum()
    }

    /// The loops over the positions that are local both before and after.
    fn block(&self, receiver: &[usize], sender: &[usize]) -> Block {
        let mut block = Block {
            source_offset: self.source_offset(receiver),
            target_offset: self.target_offset(sender),
            modes: SmallVec::new(),
        };
        for (p, position) in self.system.positions.iter().enumerate() {
            if self.owner_before[p].is_none() && self.owner_after[p].is_none() {
                block.push(Mode {
                    extent: position.radix,
                    source_stride: self.source[p],
                    target_stride: self.target[p],
                });
            }
        }
        block
    }

    fn phase(&self, members: Vec<usize>) -> Phase {
        Phase {
            source_len: self.system.local_numel(self.before),
            target_len: self.system.local_numel(self.after),
            fill: None,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: None,
            members,
        }
    }
}

/// Calls `f` with every completion of `digits` over the radices of the free ones.
fn for_each_value(system: &System, digits: &mut [usize], free: &[usize], f: &mut impl FnMut(&[usize])) {
    match free.split_first() {
        None => f(digits),
        Some((&d, rest)) => {
            for value in 0..system.digits[d].size {
                digits[d] = value;
                for_each_value(system, digits, rest, f);
            }
        }
    }
}

fn moved(
    system: &System,
    before: &State,
    after: &State,
    sender: &[usize],
    rank: usize,
    members: Vec<usize>,
) -> Result<Phase, Error> {
    let v = View::new(system, before, after, rank)?;
    let mut phase = v.phase(members);
    let n = system.digits.len();
    let mut silent = false;
    for d in 0..n {
        if let Some(op) = v.embeds(d)
            && op != ReduceOp::Avg
        {
            phase.fill = Some(op);
            // One copy of what was replicated is kept.
            silent |= before[d] == Place::Replicated && v.me[d] != 0;
        }
    }
    if silent {
        return Ok(phase);
    }
    // Receives: the sender's digits, fixed by mine or free.
    let mut from: SmallVec<[usize; 8]> = SmallVec::from_elem(0, n);
    let mut free: SmallVec<[usize; 8]> = SmallVec::new();
    for d in 0..n {
        from[d] = match before[d] {
            Place::At(p) => match v.owner_after[usize::from(p)] {
                Some(owner) => v.me[owner],
                None if v.embeds(d).is_some() => v.me[d],
                None => {
                    free.push(d);
                    0
                }
            },
            Place::Replicated | Place::Partial(_) => v.me[sender[d]],
        };
    }
    for_each_value(system, &mut from, &free, &mut |from| {
        let block = v.block(&v.me, from);
        phase.receives.push(Message { peer: system.rank_of(from), blocks: SmallVec::from_iter([block]) });
    });
    // Sends: the receiver's digits, fixed by mine where I can be its source, or free.
    let mut to: SmallVec<[Option<usize>; 8]> = SmallVec::from_elem(None, n);
    let mut possible = true;
    let mut fix = |d: usize, value: usize| {
        possible &= to[d].is_none_or(|old| old == value);
        to[d] = Some(value);
    };
    for d in 0..n {
        match before[d] {
            Place::At(p) => match v.owner_after[usize::from(p)] {
                Some(owner) => fix(owner, v.me[d]),
                None if v.embeds(d).is_some() => fix(d, v.me[d]),
                None => {}
            },
            Place::Replicated | Place::Partial(_) => fix(sender[d], v.me[d]),
        }
    }
    if possible {
        let free: SmallVec<[usize; 8]> = (0..n).filter(|&d| to[d].is_none()).collect();
        let mut to: SmallVec<[usize; 8]> = to.iter().map(|x| x.unwrap_or(0)).collect();
        for_each_value(system, &mut to, &free, &mut |to| {
            if to != v.me.as_slice() {
                let block = v.block(to, &v.me);
                phase.sends.push(Message { peer: system.rank_of(to), blocks: SmallVec::from_iter([block]) });
            }
        });
    }
    Ok(phase)
}

fn scattered(
    system: &System,
    before: &State,
    after: &State,
    reduce: Reduce,
    rank: usize,
    members: Vec<usize>,
) -> Result<Phase, Error> {
    let v = View::new(system, before, after, rank)?;
    let mut phase = v.phase(members);
    phase.reduce = Some(reduce);
    let reduced: SmallVec<[usize; 8]> = (0..system.digits.len()).filter(|&d| before[d] != after[d]).collect();
    let mut peer = v.me.clone();
    for_each_value(system, &mut peer, &reduced, &mut |peer| {
        let term =
            Message { peer: system.rank_of(peer), blocks: SmallVec::from_iter([v.block(&v.me, peer)]) };
        phase.receives.push(term);
        if peer != v.me.as_slice() {
            let block = v.block(peer, &v.me);
            phase.sends.push(Message { peer: system.rank_of(peer), blocks: SmallVec::from_iter([block]) });
        }
    });
    Ok(phase)
}

/// A contiguous range as a block.
fn range(source_offset: usize, target_offset: usize, len: usize) -> Block {
    let mut block = Block { source_offset, target_offset, modes: SmallVec::new() };
    block.push(Mode { extent: len, source_stride: 1, target_stride: 1 });
    block
}

/// Reduce-scatter, then all-gather, of the flat local buffer in pieces of `ceil(n / g)`.
fn all_reduced(
    before: &Sharding,
    subs: &[SubAxis],
    reduce: Reduce,
    rank: usize,
    group: &[usize],
) -> Result<Phases, Error> {
    let order = members(before.mesh(), subs, rank)?;
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
