//! Two shardings as places of digits: their zip, where no two digits of an axis overlap.
//!
//! ```text
//! dim of 48 over x=6, y=4      from  (8,6):(1,1@x)                    every zipped mode is a position;
//!                              to    (2,4,3,2):(1,1@y,2,3@x)          x splits into 2:3@x and 3:1@x
//! zip                          (2,4,3,2):((1,1),(2,1@y),(1@x,2),(3@x,3@x))
//! ```
//!
//! The steps along an axis that one sharding places must then each be one of the other's or apart from all of them. Where
//! two overlap, both are cut at each other's ends, which cuts the dims where they stand, and the layouts are zipped again:
//! that ends in the least fixed point of `system`, since every cut is forced.

use std::sync::Arc;

use reshard_layout::algebra::zip_into;
use reshard_layout::{At, Mode, Modes};
use smallvec::SmallVec;

use crate::Sharding;
use crate::mesh::axis_of;
use crate::redistribute::system::{Place, State, System};

/// A digit of the mesh, and where it stands before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    pub(crate) mode: Mode<At>,
    pub(crate) places: [Place; 2],
}

/// All digits and positions of two shardings. Filled in place: it is large, and made for every plan.
#[derive(Debug)]
pub(crate) struct Refined {
    /// By axis, slowest first.
    pub(crate) digits: SmallVec<[Moving; 8]>,
    pub(crate) zip: Modes<(At, At)>,
}

/// The end of a mode: the step at which the next slower one begins.
fn end(m: Mode<At>) -> At {
    m.stride.with_step(m.stride.step * m.extent)
}

/// The first cut inside a mode, or its end.
fn first_cut(m: Mode<At>, cuts: &[At]) -> At {
    let inside = |c: &&At| c.axis() == m.stride.axis() && m.stride.step < c.step && c.step < end(m).step;
    cuts.iter().filter(inside).min_by_key(|c| c.step).copied().unwrap_or(end(m))
}

/// The modes cut where cuts of their axes are; these themselves where there are none. `None` if one does not divide.
fn cut_at<'a>(
    modes: &'a [Mode<At>],
    cuts: &[At],
    storage: &'a mut Modes<At>,
) -> Option<&'a [Mode<At>]> {
    if cuts.is_empty() {
        return Some(modes);
    }
    for &whole in modes {
        let mut rest = whole;
        while !rest.stride.is_local() {
            let cut = first_cut(rest, cuts);
            if cut == end(rest) {
                break;
            }
            let low = (cut.step % rest.stride.step == 0).then_some(cut.step / rest.stride.step)?;
            let (lower, upper) = rest.cut(low)?;
            storage.push(lower);
            rest = upper;
        }
        storage.push(rest);
    }
    Some(storage)
}

impl Refined {
    /// Nothing yet.
    pub(crate) fn new() -> Refined {
        Refined { digits: SmallVec::new(), zip: Modes::new() }
    }

    /// Whether the two shardings are places of digits; requires one mesh and one shape.
    ///
    /// `seeds` are cuts of axes to start from.
    pub(crate) fn fill(&mut self, from: &Sharding, to: &Sharding, seeds: &[At]) -> bool {
        let mut cuts: SmallVec<[At; 8]> = SmallVec::from_slice(seeds);
        loop {
            match self.lay(from, to, &cuts) {
                Ok(nests) => return nests.is_some(),
                Err(overlapping) => {
                    let before = cuts.len();
                    for m in overlapping {
                        for cut in [m.stride, end(m)] {
                            if !cuts.contains(&cut) {
                                cuts.push(cut);
                            }
                        }
                    }
                    if cuts.len() == before {
                        return false;
                    }
                    self.digits.clear();
                    self.zip.clear();
                }
            }
        }
    }

    /// Zips the layouts, axes cut where asked; two digits that overlap are an error.
    fn lay(&mut self, from: &Sharding, to: &Sharding, cuts: &[At]) -> Result<Option<()>, [Mode<At>; 2]> {
        let (Some(s), Some(t)) = (from.modes(), to.modes()) else { return Ok(None) };
        let (mut of_s, mut of_t) = (Modes::new(), Modes::new());
        let (Some(s), Some(t)) = (cut_at(s, cuts, &mut of_s), cut_at(t, cuts, &mut of_t)) else {
            return Ok(None);
        };
        if zip_into(s, t, &mut self.zip).is_err() {
            return Ok(None);
        }
        for position in 0..self.zip.len() {
            let m = self.zip[position];
            for (which, at) in [m.stride.0, m.stride.1].into_iter().enumerate() {
                if !at.is_local() {
                    self.put(which, m.map(|_| at), Place::at(position))?;
                }
            }
        }
        for (which, sharding) in [from, to].into_iter().enumerate() {
            for p in sharding.partial() {
                let whole = Modes::from_slice(&[sharding.mesh().mode(p.sub)]);
                let mut parts = Modes::new();
                let Some(parts) = cut_at(&whole, cuts, &mut parts) else { return Ok(None) };
                for &part in parts {
                    self.put(which, part, Place::Partial(p.op))?;
                }
            }
        }
        Ok(self.fill_idle(from.mesh().axes().iter().map(crate::Axis::size), cuts))
    }

    /// Puts a digit where it stands in one of the two, or fails with the one that it overlaps.
    fn put(&mut self, which: usize, mode: Mode<At>, place: Place) -> Result<(), [Mode<At>; 2]> {
        let is_before = |a: Mode<At>, b: Mode<At>| {
            let (x, y) = (a.stride.axis(), b.stride.axis());
            x < y || (x == y && a.stride.step >= end(b).step)
        };
        let mut at = self.digits.len();
        for (i, known) in self.digits.iter_mut().enumerate() {
            if known.mode == mode {
                known.places[which] = place;
                return Ok(());
            }
            if is_before(mode, known.mode) {
                at = i;
                break;
            }
            if !is_before(known.mode, mode) {
                return Err([known.mode, mode]);
            }
        }
        let mut places = [Place::Replicated; 2];
        places[which] = place;
        self.digits.insert(at, Moving { mode, places });
        Ok(())
    }

    /// Adds what neither sharding uses of axes of these sizes: it is replicated. `None` if cuts do not nest.
    fn fill_idle(&mut self, sizes: impl Iterator<Item = usize>, cuts: &[At]) -> Option<()> {
        let mut at = 0;
        for (axis, size) in sizes.enumerate() {
            let mut above = size as i64;
            while above > 1 {
                let known = self.digits.get(at).map(|d| d.mode).filter(|m| axis_of(m.stride) == axis);
                match known {
                    Some(m) if end(m).step == above => above = m.stride.step,
                    Some(_) | None => {
                        let below = known.map_or(1, |m| end(m).step);
                        let inside = |c: &&At| axis_of(**c) == axis && below < c.step && c.step < above;
                        let below = cuts.iter().filter(inside).map(|c| c.step).fold(below, i64::max);
                        let mode = Mode::new(above / below, At::along(below, axis as u32));
                        if mode.extent * below != above {
                            return None;
                        }
                        self.digits.insert(at, Moving { mode, places: [Place::Replicated; 2] });
                        above = below;
                    }
                }
                at += 1;
            }
        }
        Some(())
    }

    /// The digit system and both shardings as states of it.
    pub(crate) fn system(&self, of: &Sharding) -> (Arc<System>, State, State) {
        let (mut s, mut t) = (State::new(), State::new());
        let mut digits = Modes::new();
        for d in &self.digits {
            digits.push(d.mode);
            s.push(d.places[0]);
            t.push(d.places[1]);
        }
        let (mesh, shape) = (of.mesh().clone(), SmallVec::from_slice(of.shape()));
        (Arc::new(System { mesh, shape, digits, zip: self.zip.clone() }), s, t)
    }
}
