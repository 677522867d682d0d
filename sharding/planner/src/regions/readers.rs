//! One step from terms to whoever wants them, and from values into terms, in which ranks share what they receive.
//!
//! A **reader** is the ranks whose terms of the target add up: all that differ along the axes in which the target becomes
//! partial; a rank alone where there are none. Every term of the source goes once into each reader that wants it, to be added to
//! what else comes there:
//!
//! ```text
//! source     terms along the axes that `gone` names, and shards
//! target     terms along the axes that `owed` names; a reader is `n` ranks
//!
//! from s to r        where s and r have equal digits of all axes along which the source neither shards nor has terms that go away
//!     whole          if s is of that reader (or of one that wants the same), and r has its digits of `owed`: nothing moves
//!     part i of n    if it is not, and r is number i of its reader: so the ranks of a reader receive equally much
//! ```
//!
//! Of source ranks that are replicas along `owed`, those of digit 0 are of the reader. So what goes from one rank to another is a
//! function of two coordinates, which both ends ask alike, and replicas of the target hear the same in the same order.

use std::sync::Arc;

use reshard_layout::{At, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::message::{Reduce, reduce_of};
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use reshard_sharding::internal::{axis_of, digit, set_digit};
use reshard_sharding::{Coordinate, PartialAxis, ReduceOp, Sharding, SubAxis};

/// How much of what a rank holds another gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// This one of so many equal parts.
    Of(usize, usize),
}

impl Part {
    /// The dim that is cut, of these many indices each, and from where to where in it: the first that divides, else the longest.
    pub(crate) fn range(self, lens: &[usize]) -> Option<(usize, [usize; 2])> {
        let Part::Of(i, n) = self else { return None };
        let divides = |&dim: &usize| lens[dim].is_multiple_of(n);
        let longest = || (0..lens.len()).max_by_key(|&dim| (lens[dim], core::cmp::Reverse(dim)));
        let dim = (0..lens.len()).find(divides).or_else(longest)?;
        // Pieces that differ by one at most.
        let end = |i: usize| lens[dim] * i / n;
        Some((dim, [end(i), end(i + 1)]))
    }

    /// How many elements it is of these many indices in each dim.
    fn numel(self, lens: &[usize]) -> usize {
        let all = lens.iter().product();
        match (self, self.range(lens)) {
            (Part::Of(..), Some((dim, [start, end]))) => all / lens[dim].max(1) * (end - start),
            // An element of no dims is the first one's.
            (Part::Of(i, _), None) => {
                if i == 0 {
                    all
                } else {
                    0
                }
            }
            (Part::Whole, _) => all,
        }
    }
}

/// The step from one sharding to another on its mesh.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    pub(crate) from: Arc<Sharding>,
    pub(crate) to: Arc<Sharding>,
    /// Along these the terms of the source go away, the first slowest.
    pub(crate) gone: Modes<At>,
    /// Along these the target becomes partial.
    owed: Modes<At>,
    /// The digits that tell what a source rank holds: those that shard it, and those of its terms.
    told: Modes<At>,
    /// Along these the target is replicated.
    alike: Modes<At>,
    /// How what comes from several ranks becomes one value, if terms go away.
    pub(crate) reduce: Option<Reduce>,
    /// What the target is filled with where nothing may come, or only a part.
    pub(crate) fill: Option<ReduceOp>,
}

impl Readers {
    /// The step, if there is one: on one mesh, terms of one op along whole axes.
    pub(crate) fn new([from, to]: &[Arc<Sharding>; 2]) -> Option<Readers> {
        let mesh = from.mesh();
        if mesh != to.mesh() {
            return None;
        }
        let gone: SmallVec<[PartialAxis; 4]> =
            from.partial().iter().copied().filter(|p| !to.partial().contains(p)).collect();
        let owed: SmallVec<[PartialAxis; 4]> =
            to.partial().iter().copied().filter(|p| !from.partial().contains(p)).collect();
        let (first, reduce) = (owed.first(), reduce_of(gone.iter().map(|p| (p.op, p.sub.size))));
        let is_whole = gone.iter().chain(&owed).all(|p| mesh.is_whole(p.sub));
        let is_one = owed.iter().all(|p| {
            p.op.has_identity()
                && first.is_some_and(|f| f.op == p.op)
                && (gone.is_empty() || (p.op == reduce.op && reduce.divisor == 1))
        });
        let apart = gone.iter().all(|g| owed.iter().all(|o| o.sub.axis != g.sub.axis));
        if !is_whole || !is_one || !apart || (gone.is_empty() && owed.is_empty()) {
            return None;
        }
        let modes = |subs: &mut dyn Iterator<Item = SubAxis>| -> Modes<At> {
            subs.map(|s| mesh.known_mode(s)).collect()
        };
        let told = modes(&mut from.cutting().chain(gone.iter().map(|p| p.sub)));
        let alike = modes(&mut to.replicated_axes().into_iter());
        let several = from.cutting().next().is_some();
        let fill = match first {
            Some(owed) => Some(owed.op),
            None => several.then_some(reduce.op),
        };
        Some(Readers {
            gone: modes(&mut gone.iter().map(|p| p.sub)),
            owed: modes(&mut owed.iter().map(|p| p.sub)),
            told,
            alike,
            reduce: (!gone.is_empty()).then_some(reduce),
            fill,
            from: Arc::clone(from),
            to: Arc::clone(to),
        })
    }

    /// Whether the ranks of a reader share what they receive.
    pub(crate) fn shares(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Whether some terms come whole from one of several replicas, and others in parts from all of them.
    pub(crate) fn ways_differ(&self) -> bool {
        let told = |axis: usize| -> i64 {
            self.told.iter().filter(|m| axis_of(m.stride) == axis).map(|m| m.extent).product()
        };
        !self.gone.is_empty() && self.owed.iter().any(|m| told(axis_of(m.stride)) < m.extent)
    }

    /// What the rank at one coordinate gets of what that at another holds.
    pub(crate) fn part(&self, source: &[usize], receiver: &[usize]) -> Option<Part> {
        let with = |c: &[usize], modes: &mut dyn Iterator<Item = &Mode<At>>| -> Coordinate {
            let mut c: Coordinate = c.iter().copied().collect();
            modes.for_each(|&m| set_digit(&mut c, m, digit(source, m)));
            c
        };
        let is_source = |c: Coordinate| c.as_slice() == source;
        if !is_source(with(receiver, &mut self.told.iter())) {
            return None;
        }
        if self.owed.is_empty() {
            return Some(Part::Whole);
        }
        if is_source(with(receiver, &mut self.owed.iter().chain(&self.alike))) {
            let mut first: Coordinate = source.iter().copied().collect();
            self.owed.iter().for_each(|m| first[axis_of(m.stride)] = 0);
            let is_first = is_source(with(&first, &mut self.told.iter()));
            let same = self.owed.iter().all(|&m| digit(source, m) == digit(receiver, m));
            return (is_first && same).then_some(Part::Whole);
        }
        let (mut i, mut n) = (0, 1);
        for &m in &self.owed {
            (i, n) = (i * m.extent + digit(receiver, m), n * m.extent);
        }
        Some(Part::Of(i as usize, n as usize))
    }

    /// Calls `f` for every rank with whatever it gets from others and from itself: its source, and how many elements.
    ///
    /// Requires a mesh of few ranks.
    pub(crate) fn each(&self, f: &mut impl FnMut(usize, &[(usize, usize)])) -> Result<(), Error> {
        let mesh = self.from.mesh();
        let meetings = Intersection::new(&self.from, &self.to).meetings()?;
        let (source, target) = (Grid::new(&self.from), Grid::new(&self.to));
        let mut heard = Vec::new();
        for rank in mesh.ranks() {
            let Some(mine) = mesh.coordinate(rank) else { continue };
            let regions = target.regions_of(&mine);
            let met: SmallVec<[&[(usize, usize)]; 4]> =
                regions.iter().zip(&meetings).map(|(&j, met)| met[j].as_slice()).collect();
            heard.clear();
            self.each_term(&mine, &mut |c| {
                each_product(&met, &mut |regions, lens| {
                    let mut c = c.clone();
                    regions.iter().enumerate().for_each(|(dim, &i)| source.set(&mut c, dim, i));
                    let numel = self.part(&c, &mine).map_or(0, |part| part.numel(lens));
                    if let Some(peer) = mesh.rank_at(&c).filter(|_| numel > 0) {
                        heard.push((peer, numel));
                    }
                });
            });
            f(rank, &heard);
        }
        Ok(())
    }

    /// Calls `f` with a coordinate for each term of what a rank wants, in order.
    pub(crate) fn each_term(&self, receiver: &Coordinate, f: &mut impl FnMut(&Coordinate)) {
        let terms: i64 = self.gone.iter().map(|m| m.extent).product();
        let mut c = receiver.clone();
        for term in 0..terms {
            let mut left = term;
            for &m in self.gone.iter().rev() {
                set_digit(&mut c, m, left % m.extent);
                left /= m.extent;
            }
            f(&c);
        }
    }
}

/// Calls `f` with every combination of one region of each dim, and in how many indices each is met.
fn each_product(met: &[&[(usize, usize)]], f: &mut impl FnMut(&[usize], &[usize])) {
    if met.iter().any(|m| m.is_empty()) {
        return;
    }
    let mut at: SmallVec<[usize; 4]> = SmallVec::from_elem(0, met.len());
    loop {
        let chosen = || met.iter().zip(&at).map(|(m, &i)| m[i]);
        let regions: SmallVec<[usize; 4]> = chosen().map(|x| x.0).collect();
        let lens: SmallVec<[usize; 4]> = chosen().map(|x| x.1).collect();
        f(&regions, &lens);
        let Some(dim) = (0..met.len()).rev().find(|&d| at[d] + 1 < met[d].len()) else { return };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
}
