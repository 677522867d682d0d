//! Two shardings on one mesh as places of digits, where laying the words of each dim over each other is all it takes.
//!
//! ```text
//! dim of 48 over x=6, y=4      from  [x 6][local 8]                   every piece between two cuts is a position;
//!                              to    [x:(1)2][local 3][y 4][local 2]  x splits into x:(1)2 and x:(2)3
//! ```
//!
//! The digits of an axis that one sharding places must then each be one of the other's or apart from all of them. Where two
//! overlap, both are cut at each other's ends, which cuts the dims where they stand, and the words are laid again: that
//! ends in the fixed point of `system`, since every cut is forced.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Sharding;
use crate::axis::SubAxis;
use crate::digits::{Digit, Owner};
use crate::redistribute::system::{Place, Position, State, System};

/// A digit of the mesh, and where it stands before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    pub(crate) sub: SubAxis,
    pub(crate) places: [Place; 2],
}

/// A cut of an axis: which one, and the product of the sizes above it.
type AxisCut = (usize, usize);

/// The first cut of an axis after `pre` and before `end`, or `end`.
fn first_cut(axis: usize, pre: usize, end: usize, cuts: &[AxisCut]) -> usize {
    cuts.iter().filter(|c| c.0 == axis && pre < c.1 && c.1 < end).map(|c| c.1).fold(end, usize::min)
}

/// What is left of the digits of a sharding, and of the first of them.
struct Word<'a> {
    rest: &'a [Digit],
    radix: usize,
    pre: usize,
}

impl Word<'_> {
    fn of(rest: &[Digit]) -> Word<'_> {
        let mut word = Word { rest, radix: 1, pre: 1 };
        word.begin();
        word
    }

    fn begin(&mut self) {
        if let Some(d) = self.rest.first() {
            self.radix = d.radix;
            self.pre = match d.owner {
                Owner::Axis { pre, .. } => pre,
                Owner::Local => 1,
            };
        }
    }

    /// How much of the first digit comes before a cut of its axis; 0 if that does not divide.
    fn until_cut(&self, first: &Digit, cuts: &[AxisCut]) -> usize {
        match first.owner {
            Owner::Axis { axis, .. } if !cuts.is_empty() => {
                let cut = first_cut(axis, self.pre, self.pre * self.radix, cuts);
                if cut.is_multiple_of(self.pre) { cut / self.pre } else { 0 }
            }
            Owner::Axis { .. } | Owner::Local => self.radix,
        }
    }

    /// Goes on by `radix` values; false if the first digit does not divide.
    fn take(&mut self, radix: usize) -> bool {
        if self.radix == radix {
            self.rest = &self.rest[1..];
            self.begin();
            return true;
        }
        self.pre *= radix;
        let whole = self.radix;
        self.radix /= radix;
        self.radix * radix == whole
    }
}

/// All digits and positions of two shardings. Filled in place: it is large, and made for every plan.
#[derive(Debug)]
pub(crate) struct Merged {
    /// By axis, most significant first.
    pub(crate) digits: SmallVec<[Moving; 8]>,
    /// By dim, most significant first.
    pub(crate) positions: SmallVec<[Position; 12]>,
}

impl Merged {
    /// Nothing yet.
    pub(crate) fn new() -> Merged {
        Merged { digits: SmallVec::new(), positions: SmallVec::new() }
    }

    /// Whether the two shardings are places of digits; requires one mesh and one shape.
    ///
    /// `seeds` are cuts `(axis, product)` to start from.
    pub(crate) fn fill(&mut self, from: &Sharding, to: &Sharding, seeds: &[AxisCut]) -> bool {
        let mut cuts: SmallVec<[AxisCut; 8]> = SmallVec::from_slice(seeds);
        loop {
            match self.lay(from, to, &cuts) {
                Ok(nests) => return nests,
                Err((a, b)) => {
                    let before = cuts.len();
                    for s in [a, b] {
                        for cut in [(s.axis, s.pre), (s.axis, s.pre * s.size)] {
                            if !cuts.contains(&cut) {
                                cuts.push(cut);
                            }
                        }
                    }
                    if cuts.len() == before {
                        return false;
                    }
                    self.digits.clear();
                    self.positions.clear();
                }
            }
        }
    }

    /// Lays the words over each other, digits of axes cut where asked; two digits that overlap are an error.
    fn lay(&mut self, from: &Sharding, to: &Sharding, cuts: &[AxisCut]) -> Result<bool, (SubAxis, SubAxis)> {
        let (Some(s), Some(t)) = (from.digits(), to.digits()) else { return Ok(false) };
        let (mut s, mut t) = (Word::of(s), Word::of(t));
        // What a dim's digits multiply to is its extent in both.
        while let (Some(a), Some(b)) = (s.rest.first(), t.rest.first()) {
            let radix = s.until_cut(a, cuts).min(t.until_cut(b, cuts));
            if radix == 0 {
                return Ok(false);
            }
            let place = Place::at(self.positions.len());
            if let Owner::Axis { axis, .. } = a.owner {
                self.put(0, SubAxis { axis, pre: s.pre, size: radix }, place)?;
            }
            if let Owner::Axis { axis, .. } = b.owner {
                self.put(1, SubAxis { axis, pre: t.pre, size: radix }, place)?;
            }
            self.positions.push(Position { dim: a.dim, radix });
            if !s.take(radix) || !t.take(radix) {
                return Ok(false);
            }
        }
        for (which, partial) in [from.partial(), to.partial()].into_iter().enumerate() {
            for p in partial {
                let (mut pre, end) = (p.sub.pre, p.sub.pre * p.sub.size);
                while pre < end {
                    let to = first_cut(p.sub.axis, pre, end, cuts);
                    let sub = SubAxis { pre, size: to / pre, ..p.sub };
                    if sub.pre * sub.size != to {
                        return Ok(false);
                    }
                    self.put(which, sub, Place::Partial(p.op))?;
                    pre = to;
                }
            }
        }
        let axes = from.mesh().axes();
        Ok(self.fill_idle(axes.iter().map(crate::Axis::size), cuts))
    }

    /// Puts a digit where it stands in one of the two, or fails with the one that it overlaps.
    fn put(&mut self, which: usize, sub: SubAxis, place: Place) -> Result<(), (SubAxis, SubAxis)> {
        let is_before =
            |a: SubAxis, b: SubAxis| a.axis < b.axis || (a.axis == b.axis && a.pre * a.size <= b.pre);
        let mut at = self.digits.len();
        for (i, known) in self.digits.iter_mut().enumerate() {
            if known.sub == sub {
                known.places[which] = place;
                return Ok(());
            }
            if is_before(sub, known.sub) {
                at = i;
                break;
            }
            if !is_before(known.sub, sub) {
                return Err((known.sub, sub));
            }
        }
        let mut places = [Place::Replicated; 2];
        places[which] = place;
        self.digits.insert(at, Moving { sub, places });
        Ok(())
    }

    /// Adds what neither sharding uses of axes of these sizes: it is replicated. False if cuts do not nest.
    fn fill_idle(&mut self, sizes: impl Iterator<Item = usize>, cuts: &[AxisCut]) -> bool {
        let mut at = 0;
        for (axis, size) in sizes.enumerate() {
            let mut pre = 1;
            while pre < size {
                let known = self.digits.get(at).filter(|d| d.sub.axis == axis).map(|d| d.sub);
                match known {
                    Some(sub) if sub.pre == pre => pre *= sub.size,
                    Some(_) | None => {
                        let end = first_cut(axis, pre, known.map_or(size, |s| s.pre), cuts);
                        if !end.is_multiple_of(pre) {
                            return false;
                        }
                        let sub = SubAxis { axis, pre, size: end / pre };
                        self.digits.insert(at, Moving { sub, places: [Place::Replicated; 2] });
                        pre = end;
                    }
                }
                at += 1;
            }
            if pre != size {
                return false;
            }
        }
        true
    }

    /// The digit system and both shardings as states of it.
    pub(crate) fn system(&self, of: &Sharding) -> (Arc<System>, State, State) {
        let (mut s, mut t) = (State::new(), State::new());
        let mut digits: SmallVec<[SubAxis; 8]> = SmallVec::new();
        for d in &self.digits {
            digits.push(d.sub);
            s.push(d.places[0]);
            t.push(d.places[1]);
        }
        let (shape, positions) = (SmallVec::from_slice(of.shape()), SmallVec::from_slice(&self.positions));
        (Arc::new(System { mesh: of.mesh().clone(), shape, digits, positions }), s, t)
    }
}
