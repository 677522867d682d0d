//! Digits that change positions: the zip of a step sliced at the coordinates of a sender and a receiver.

use reshard_layout::InlineVec;
use reshard_layout::{AxisStride, Mode, Modes, size_of};

use crate::Error;
use crate::message::{Block, DigitPhase, Ends, Message, Phase, Reduce};
use crate::step::{Reduction, Terms};
use reshard_sharding::internal::{axis_of, coordinate_of, digit, for_each_value, set_digit};
use reshard_sharding::{Coordinate, Mesh};

fn rank_at(mesh: &Mesh, c: &[usize]) -> usize {
    mesh.rank_at(c).expect("digits are below their extents")
}

/// Returns the phase of a zip, without any messages yet.
fn phase_of(zip: &[Mode<(AxisStride, AxisStride)>], reduce: Option<Reduce>, members: Vec<usize>) -> Phase {
    let local = |side: fn(&(AxisStride, AxisStride)) -> AxisStride| -> usize {
        zip.iter().filter(|m| side(&m.stride).is_local()).map(|m| m.extent as usize).product()
    };
    Phase {
        source_len: local(|d| d.0),
        target_len: local(|d| d.1),
        fill_identity: None,
        receives: Vec::new(),
        sends: Vec::new(),
        reduce,
        members,
    }
}

/// Returns the zip sliced at the coordinates of a sender and a receiver: the block between them.
fn block(zip: &[Mode<(AxisStride, AxisStride)>], sender: &[usize], receiver: &[usize]) -> Block {
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
fn sort(modes: &mut Modes<AxisStride>) {
    modes.sort_by_key(|m| (m.stride.axis(), core::cmp::Reverse(m.stride.step())));
}

/// Returns the phase of a rank where digits change positions.
pub(super) fn phase(
    [zip, senders]: [&[Mode<(AxisStride, AxisStride)>]; 2],
    terms: Option<&Terms>,
    mesh: &Mesh,
    rank: usize,
    members: Vec<usize>,
) -> Result<Phase, Error> {
    Sliced { zip, senders, terms }.phase(mesh, rank, members)
}

/// Digits that change positions.
struct Sliced<'a> {
    zip: &'a [Mode<(AxisStride, AxisStride)>],
    senders: &'a [Mode<(AxisStride, AxisStride)>],
    terms: Option<&'a Terms>,
}

impl Sliced<'_> {
    /// Returns the modes that go along axes before, each with its stride after.
    fn along(&self) -> impl Iterator<Item = (Mode<AxisStride>, AxisStride)> + Clone + '_ {
        self.zip.iter().filter(|m| !m.stride.0.is_local()).map(|&m| (m.map(|d| d.0), m.stride.1))
    }

    fn is_filled(&self, m: Mode<AxisStride>) -> bool {
        self.terms.is_some_and(|terms| terms.modes.contains(&m))
    }

    /// Returns the digits along which a rank has all senders, and those along which it has all receivers.
    fn free(&self) -> [Modes<AxisStride>; 2] {
        let gathered = |&(m, after): &(Mode<AxisStride>, AxisStride)| after.is_local() && !self.is_filled(m);
        let mut heard: Modes<AxisStride> = self.along().filter(gathered).map(|(m, _)| m).collect();
        let told = |m: &Mode<AxisStride>| {
            self.along().any(|(_, after)| after == m.stride)
                || self.senders.iter().any(|x| x.stride.1 == m.stride)
                || self.is_filled(*m)
        };
        let mut reached: Modes<AxisStride> = self.along().map(|(m, _)| m).filter(|m| !told(m)).collect();
        sort(&mut heard);
        sort(&mut reached);
        [heard, reached]
    }

    fn phase(&self, mesh: &Mesh, rank: usize, members: Vec<usize>) -> Result<Phase, Error> {
        let me = coordinate_of(mesh, rank)?;
        let mut phase = phase_of(self.zip, None, members);
        let was_placed = |at: AxisStride| self.along().any(|(m, _)| m.stride == at);
        if let Some(Terms { op, modes }) = self.terms {
            phase.fill_identity = Some(*op);
            // Only coordinate 0 of the replicas contributes its copy.
            if modes.iter().any(|&m| !was_placed(m.stride) && digit(&me, m) != 0) {
                return Ok(phase);
            }
        }
        let (mut from, heard) = self.senders_of(&me);
        phase.receives.reserve_exact(size_of(&heard) as usize);
        for_each_value(&mut from, &heard, &mut |from| {
            let blocks = InlineVec::from_iter([block(self.zip, from, &me)]);
            phase.receives.push(Message { peer: rank_at(mesh, from), blocks });
        });
        let Some((mut to, reached)) = self.receivers_of(&me) else { return Ok(phase) };
        phase.sends.reserve_exact(size_of(&reached) as usize);
        for_each_value(&mut to, &reached, &mut |to| {
            if *to != me {
                let blocks = InlineVec::from_iter([block(self.zip, &me, to)]);
                phase.sends.push(Message { peer: rank_at(mesh, to), blocks });
            }
        });
        Ok(phase)
    }

    /// Returns the senders of a rank: the coordinate of one, and the digits that take all values.
    ///
    /// All other digits of a sender are fixed by the rank's own digits.
    fn senders_of(&self, me: &Coordinate) -> (Coordinate, Modes<AxisStride>) {
        let [heard, _] = self.free();
        let mut from = me.clone();
        for (m, after) in self.along() {
            if !after.is_local() {
                set_digit(&mut from, m, digit(me, m.map(|_| after)));
            }
        }
        for &m in self.senders {
            let (head, tail) = m.stride;
            set_digit(&mut from, m.map(|_| head), digit(me, m.map(|_| tail)));
        }
        (from, heard)
    }

    /// Returns the receivers of a rank in the same form, if it has any.
    ///
    /// A digit that had no position and takes no other's value is also fixed by itself, and then both must
    /// agree.
    fn receivers_of(&self, me: &Coordinate) -> Option<(Coordinate, Modes<AxisStride>)> {
        let [_, reached] = self.free();
        let was_placed = |at: AxisStride| self.along().any(|(m, _)| m.stride == at);
        let mut to = me.clone();
        for (m, after) in self.along().filter(|(_, after)| !after.is_local()) {
            let told = digit(me, m);
            let keeps_own = !was_placed(after) && self.senders.iter().all(|x| x.stride.0 != after);
            if keeps_own && digit(me, m.map(|_| after)) != told {
                return None;
            }
            set_digit(&mut to, m.map(|_| after), told);
        }
        for &m in self.senders {
            let (head, tail) = m.stride;
            set_digit(&mut to, m.map(|_| tail), digit(me, m.map(|_| head)));
        }
        Some((to, reached))
    }
}

/// Returns the phase of a rank where digits change positions, by digits; `None` if it must be listed.
pub(super) fn digits(
    [zip, senders]: [&[Mode<(AxisStride, AxisStride)>]; 2],
    mesh: &Mesh,
    rank: usize,
) -> Result<Option<DigitPhase>, Error> {
    let sliced = Sliced { zip, senders, terms: None };
    let me = coordinate_of(mesh, rank)?;
    let Some(receivers) = sliced.receivers_of(&me) else { return Ok(None) };
    Ok(among(zip, None, mesh, &me, [sliced.senders_of(&me), receivers]))
}

/// Returns the phase of [`reduced`], by digits.
pub(super) fn reduced_digits(
    zip: &[Mode<(AxisStride, AxisStride)>],
    reduction: &Reduction,
    mesh: &Mesh,
    rank: usize,
) -> Result<Option<DigitPhase>, Error> {
    let me = coordinate_of(mesh, rank)?;
    let ends = || (me.clone(), reduction.modes.iter().copied().collect());
    Ok(among(zip, Some(reduction.reduce), mesh, &me, [ends(), ends()]))
}

/// Returns a phase whose senders and receivers, the rank included, are all values of some digits.
fn among(
    zip: &[Mode<(AxisStride, AxisStride)>],
    reduce: Option<Reduce>,
    mesh: &Mesh,
    me: &Coordinate,
    [senders, receivers]: [(Coordinate, Modes<AxisStride>); 2],
) -> Option<DigitPhase> {
    let first = |(peer, free): &(Coordinate, Modes<AxisStride>)| {
        let (mut first, mut mine) = (peer.clone(), peer.clone());
        for &m in free {
            set_digit(&mut first, m, 0);
            set_digit(&mut mine, m, digit(me, m));
        }
        (mine == *me).then_some(first)
    };
    let gathered = zip.iter().filter(|m| !m.stride.0.is_local() && m.stride.1.is_local());
    let gathered = gathered.map(|&m| (m.map(|d| d.0), m.stride.1.step()));
    let scattered = zip.iter().filter(|m| m.stride.0.is_local() && !m.stride.1.is_local());
    let scattered = scattered.map(|&m| (m.map(|d| d.1), m.stride.0.step()));
    let receives = Ends {
        offset: block(zip, &first(&senders)?, me).target_offset,
        digits: steps(mesh, &senders.1, &gathered)?,
    };
    let sends = Ends {
        offset: block(zip, me, &first(&receivers)?).source_offset,
        digits: steps(mesh, &receivers.1, &scattered)?,
    };
    let Phase { source_len, target_len, .. } = phase_of(zip, reduce, Vec::new());
    Some(DigitPhase { source_len, target_len, reduce, own: block(zip, me, me), receives, sends })
}

/// Returns the strides of ranks and offsets along digits, with ascending ranks.
///
/// `offsets` are all digits that change the offset.
fn steps(
    mesh: &Mesh,
    free: &[Mode<AxisStride>],
    offsets: &(impl Iterator<Item = (Mode<AxisStride>, i64)> + Clone),
) -> Option<Modes<(i64, i64)>> {
    let reach = |m: Mode<AxisStride>| m.stride.step()..m.stride.step() * m.extent;
    let overlap = |a: Mode<AxisStride>, b: Mode<AxisStride>| {
        let (x, y) = (reach(a), reach(b));
        a.stride.axis() == b.stride.axis() && x.start < y.end && y.start < x.end
    };
    if offsets.clone().any(|(m, _)| free.iter().any(|&f| f != m && overlap(f, m))) {
        return None;
    }
    let mut digits: Modes<(i64, i64)> = Modes::new();
    for &m in free {
        let [axis] = mesh.axes()[axis_of(m.stride)].layout().flat() else { return None };
        let ranks =
            Some(m.stride.step() * axis.stride).filter(|ranks| *ranks > 0 && mesh.rank_table().is_none())?;
        let offset = offsets.clone().filter(|(at, _)| *at == m).map(|(_, step)| step).sum();
        digits.push(Mode::new(m.extent, (ranks, offset)));
    }
    digits.sort_by_key(|m| core::cmp::Reverse(m.stride.0));
    Some(digits)
}

/// Returns the phase in which every rank gets the reduction of its part of the partial values along `modes`.
pub(super) fn reduced(
    zip: &[Mode<(AxisStride, AxisStride)>],
    reduction: &Reduction,
    mesh: &Mesh,
    rank: usize,
    members: Vec<usize>,
) -> Result<Phase, Error> {
    let me = coordinate_of(mesh, rank)?;
    let mut phase = phase_of(zip, Some(reduction.reduce), members);
    let mut peer = me.clone();
    let terms = size_of(&reduction.modes) as usize;
    phase.receives.reserve_exact(terms);
    phase.sends.reserve_exact(terms);
    for_each_value(&mut peer, &reduction.modes, &mut |peer| {
        let message = |block| Message { peer: rank_at(mesh, peer), blocks: InlineVec::from_iter([block]) };
        phase.receives.push(message(block(zip, peer, &me)));
        if *peer != me {
            phase.sends.push(message(block(zip, &me, peer)));
        }
    });
    Ok(phase)
}
