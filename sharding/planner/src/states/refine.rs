//! Two shardings as positions of digits: their zip, where no two digits of an axis overlap.
//!
//! ```text
//! dim of 48 over x=6, y=4      from  (8,6):(1,1@x)                    every zipped mode is a position;
//!                              to    (2,4,3,2):(1,1@y,2,3@x)          x splits into 2:3@x and 3:1@x
//! zip                          (2,4,3,2):((1,1),(2,1@y),(1@x,2),(3@x,3@x))
//! ```
//!
//! Each digit of an axis in one sharding must then equal a digit of the other, or overlap none of them. Where
//! two overlap, both are split at each other's ends, which splits the dims at their positions, and the
//! layouts are zipped again. That ends in the least fixed point of `system`, since every split is forced.

use std::sync::Arc;

use reshard_layout::algebra::zip_into;
use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::states::system::{Place, State, System};
use reshard_sharding::Sharding;
use reshard_sharding::internal::axis_of;

/// A digit of the mesh, and its position before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    pub(crate) mode: Mode<AxisStride>,
    pub(crate) places: [Place; 2],
}

/// All digits and positions of two shardings.
///
/// It is filled in place, since it is large and made for every plan.
#[derive(Debug)]
pub(crate) struct Refined {
    /// By axis, slowest first.
    pub(crate) digits: SmallVec<[Moving; 8]>,
    pub(crate) zip: Modes<(AxisStride, AxisStride)>,
}

/// Returns the end of a mode: the step at which the next slower one begins.
fn end(m: Mode<AxisStride>) -> AxisStride {
    m.stride.with_step(m.stride.step() * m.extent)
}

/// Returns the part of a mode below the first split of its axis inside it, and the rest above.
///
/// It is `None` if that does not divide.
#[inline]
fn until_cut(
    m: Mode<AxisStride>,
    cuts: &[AxisStride],
) -> Option<(Mode<AxisStride>, Option<Mode<AxisStride>>)> {
    if cuts.is_empty() {
        return Some((m, None));
    }
    let inside = |c: &&AxisStride| {
        c.axis() == m.stride.axis() && m.stride.step() < c.step() && c.step() < end(m).step()
    };
    let first = cuts.iter().filter(inside).map(|c| c.step()).min().filter(|_| !m.stride.is_local());
    let Some(step) = first else { return Some((m, None)) };
    let (low, high) = if step % m.stride.step() == 0 { m.cut(step / m.stride.step())? } else { return None };
    Some((low, Some(high)))
}

/// Splits the modes at the splits of their axes; `None` if one does not divide.
fn cut_at(modes: &[Mode<AxisStride>], cuts: &[AxisStride]) -> Option<Modes<AxisStride>> {
    let mut parts = Modes::new();
    for &m in modes {
        let mut rest = Some(m);
        while let Some(m) = rest {
            let (part, above) = until_cut(m, cuts)?;
            parts.push(part);
            rest = above;
        }
    }
    Some(parts)
}

/// Adds the position of a digit in one of the two, or fails with the digit that it overlaps.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "called for every digit of every bound, a twentieth of its instructions"
)]
fn put(
    digits: &mut SmallVec<[Moving; 8]>,
    which: usize,
    mode: Mode<AxisStride>,
    place: Place,
) -> Result<(), [Mode<AxisStride>; 2]> {
    let is_before = |a: &Mode<AxisStride>, b: &Mode<AxisStride>| {
        let (x, y) = (axis_of(a.stride), axis_of(b.stride));
        x < y || (x == y && a.stride.step() >= b.stride.step() * b.extent)
    };
    let mut at = digits.len();
    for (i, known) in digits.iter_mut().enumerate() {
        if known.mode == mode {
            known.places[which] = place;
            return Ok(());
        }
        if is_before(&mode, &known.mode) {
            at = i;
            break;
        }
        if !is_before(&known.mode, &mode) {
            return Err([known.mode, mode]);
        }
    }
    let mut places = [Place::REPLICATED; 2];
    places[which] = place;
    digits.insert(at, Moving { mode, places });
    Ok(())
}

impl Refined {
    /// Returns an empty value.
    pub(crate) fn new() -> Refined {
        Refined { digits: SmallVec::new(), zip: Modes::new() }
    }

    /// Fills it, and returns `true` if the two shardings are positions of digits.
    ///
    /// Requires one mesh and one shape. `seeds` are splits of axes to start from.
    pub(crate) fn fill(&mut self, from: &Sharding, to: &Sharding, seeds: &[AxisStride]) -> bool {
        let mut cuts: SmallVec<[AxisStride; 8]> = SmallVec::from_slice(seeds);
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

    /// Zips the layouts, with axes split at `cuts`; two digits that overlap are an error.
    fn lay(
        &mut self,
        from: &Sharding,
        to: &Sharding,
        cuts: &[AxisStride],
    ) -> Result<Option<()>, [Mode<AxisStride>; 2]> {
        let (Some(s), Some(t)) = (from.modes(), to.modes()) else { return Ok(None) };
        let zipped = if cuts.is_empty() {
            zip_into(s, t, &mut self.zip).ok()
        } else {
            let (s, t) = (cut_at(s, cuts), cut_at(t, cuts));
            s.zip(t).and_then(|(s, t)| zip_into(&s, &t, &mut self.zip).ok())
        };
        if zipped.is_none() {
            return Ok(None);
        }
        for (position, m) in self.zip.iter().enumerate() {
            let (before, after) = m.stride;
            if !before.is_local() {
                put(&mut self.digits, 0, m.map(|_| before), Place::at(position))?;
            }
            if !after.is_local() {
                put(&mut self.digits, 1, m.map(|_| after), Place::at(position))?;
            }
        }
        for (which, sharding) in [from, to].into_iter().enumerate() {
            for p in sharding.partial() {
                let mut rest = Some(sharding.mesh().known_mode(p.sub));
                while let Some(m) = rest {
                    let Some((part, above)) = until_cut(m, cuts) else { return Ok(None) };
                    put(&mut self.digits, which, part, Place::partial(p.op))?;
                    rest = above;
                }
            }
        }
        Ok(self.fill_idle(from.mesh().axes().iter().map(reshard_sharding::Axis::size), cuts))
    }

    /// Adds the parts of the axes that neither sharding uses, as replicated.
    ///
    /// `sizes` are those of the axes. It is `None` if splits do not nest.
    fn fill_idle(&mut self, sizes: impl Iterator<Item = usize>, cuts: &[AxisStride]) -> Option<()> {
        let mut at = 0;
        for (axis, size) in sizes.enumerate() {
            let mut above = size as i64;
            while above > 1 {
                let known = self.digits.get(at).map(|d| d.mode).filter(|m| axis_of(m.stride) == axis);
                match known {
                    Some(m) if end(m).step() == above => above = m.stride.step(),
                    Some(_) | None => {
                        let below = known.map_or(1, |m| end(m).step());
                        let inside =
                            |c: &&AxisStride| axis_of(**c) == axis && below < c.step() && c.step() < above;
                        let below = cuts.iter().filter(inside).map(|c| c.step()).fold(below, i64::max);
                        let mode = Mode::new(above / below, AxisStride::along(below, axis as u32));
                        if mode.extent * below != above {
                            return None;
                        }
                        self.digits.insert(at, Moving { mode, places: [Place::REPLICATED; 2] });
                        above = below;
                    }
                }
                at += 1;
            }
        }
        Some(())
    }

    /// Returns the digit system, and both shardings as states of it.
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
