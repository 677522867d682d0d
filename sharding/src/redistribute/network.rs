//! A mesh on a network: at which level a digit moves, and how a group spreads over units.
//!
//! A digit whose values stay inside units of level `l` but cross those of `l - 1` is of level `l`. Axes are cut where a
//! unit ends inside them, so that digits have a level wherever the cut divides. A group of digits that nest with the
//! units has `n_l = product of its radices of levels up to l` members in every unit; otherwise the ranks are looked at
//! one by one, and what counts is the worst.

use reshard_layout::{At, Mode, Modes};
use smallvec::SmallVec;

use crate::redistribute::bounds::{Code, NOWHERE, Weight};
use crate::redistribute::cost::{Topology, Traffic};
use crate::redistribute::messages::members;
use crate::{Error, Mesh, SubAxis};

/// For one rank, how many of a group are in its unit of each level.
pub(crate) type UnitSizes = SmallVec<[usize; 3]>;

/// A mesh on a network (see the [module](self)).
#[derive(Clone, Debug)]
pub(crate) struct Network<'a> {
    pub(crate) topology: &'a Topology,
    mesh: &'a Mesh,
    /// Whether every digit that divides at unit sizes nests with the units: the mesh starts on a unit boundary.
    aligned: bool,
}

/// The most ranks that are looked at one by one.
const ENUMERATED: usize = 1 << 12;

impl<'a> Network<'a> {
    pub(crate) fn new(topology: &'a Topology, mesh: &'a Mesh) -> Network<'a> {
        let units = || topology.levels().iter().filter_map(|l| l.ranks);
        let fits = |n: usize| mesh.lowest() / n == (mesh.world() - 1) / n;
        let forward = || mesh.axes().iter().all(|a| a.layout().leaves().all(|(_, d)| d >= 0));
        let one = topology.levels().len() == 1;
        let aligned = one || (units().all(|n| mesh.offset().is_multiple_of(n) || fits(n)) && forward());
        Network { topology, mesh, aligned }
    }

    pub(crate) fn levels(&self) -> usize {
        self.topology.levels().len()
    }

    /// Where units end inside an axis: cuts to seed a digit system with.
    pub(crate) fn cuts(&self) -> SmallVec<[At; 4]> {
        let mut cuts = SmallVec::new();
        for unit in self.topology.levels().iter().filter_map(|l| l.ranks) {
            for (i, a) in self.mesh.axes().iter().enumerate() {
                let [one] = a.layout().flat() else { continue };
                let Ok(d) = usize::try_from(one.stride) else { continue };
                let reach = a.size().saturating_mul(d);
                if d < unit && unit < reach && unit.is_multiple_of(d) && reach.is_multiple_of(unit) {
                    cuts.push(At::along((unit / d) as i64, i as u32));
                }
            }
        }
        cuts
    }

    /// The level of one digit, and whether it nests with every unit.
    pub(crate) fn level(&self, digit: Mode<At>) -> (usize, bool) {
        let top = self.levels() - 1;
        if top == 0 {
            return (0, true);
        }
        let axis = digit.stride.axis().map(|axis| &self.mesh.axes()[axis as usize]);
        if let Some([one]) = axis.map(|a| a.layout().flat()) {
            return self.level_of_ranks(&[digit.map(|at| at.step() * one.stride)]);
        }
        match self.mesh.ranks_of(&[digit]) {
            Ok(ranks) => self.level_of_ranks(&ranks),
            Err(_) => (top, false),
        }
    }

    /// The same of the ranks of a digit.
    fn level_of_ranks(&self, modes: &[Mode]) -> (usize, bool) {
        let (mut level, mut clean) = (0, self.aligned);
        for (l, unit) in self.topology.levels().iter().enumerate().filter_map(|(l, x)| Some((l, x.ranks?))) {
            for &Mode { extent: s, stride: d } in modes {
                let (d, reach) = (d.unsigned_abs() as usize, s as usize * d.unsigned_abs() as usize);
                let inside = unit.is_multiple_of(reach) || self.mesh.world() <= unit;
                let outside = d.is_multiple_of(unit);
                if !inside {
                    level = level.max(l + 1);
                }
                clean &= inside || outside;
            }
        }
        (level.min(self.levels() - 1), clean)
    }

    /// The parts of sub-axes that stay inside a unit of some level below the last.
    pub(crate) fn inner(&self, subs: &[SubAxis]) -> SmallVec<[SubAxis; 4]> {
        let cuts = self.cuts();
        let mut inner: Modes<At> = Modes::new();
        for whole in subs.iter().map(|&s| self.mesh.mode(s)) {
            let inside = |c: &&At| c.axis() == whole.stride.axis() && c.step() > whole.stride.step();
            let mut ends: SmallVec<[i64; 8]> = cuts.iter().filter(inside).map(|c| c.step()).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            let mut keep = |part: Mode<At>| {
                let (level, nests) = self.level(part);
                if nests && level + 1 < self.levels() {
                    inner.push(part);
                }
            };
            // Units that do not nest with the sub-axis cut no digit of it.
            let mut rest = whole;
            for end in ends {
                if end < rest.stride.step() * rest.extent
                    && end % rest.stride.step() == 0
                    && let Some((low, high)) = rest.cut(end / rest.stride.step())
                {
                    keep(high);
                    rest = low;
                }
            }
            keep(rest);
        }
        self.mesh.sub_axes_of(inner.iter().copied())
    }

    /// Digits as bounds see them: see [`inside_one_unit`].
    pub(crate) fn bounding(
        &self,
        weights: &[Weight],
        digits: impl IntoIterator<Item = Mode<At>>,
    ) -> SmallVec<[Weight; 8]> {
        let nest = digits.into_iter().all(|d| self.level(d).1);
        if nest { SmallVec::from_slice(weights) } else { inside_one_unit(weights) }
    }

    /// The different spreads of a group over units that its ranks see.
    pub(crate) fn spread(&self, axes: &[Mode<At>]) -> Result<SmallVec<[UnitSizes; 2]>, Error> {
        let members_of = |modes: &mut dyn Iterator<Item = &Mode<At>>| -> usize {
            modes.map(|m| m.extent as usize).product()
        };
        if self.levels() == 1 {
            let mut one = SmallVec::new();
            one.push(UnitSizes::from_slice(&[members_of(&mut axes.iter())]));
            return Ok(one);
        }
        let levels: SmallVec<[(usize, bool); 8]> = axes.iter().map(|&m| self.level(m)).collect();
        let by_level =
            |l: usize| members_of(&mut axes.iter().zip(&levels).filter(|(_, x)| x.0 <= l).map(|(m, _)| m));
        let product: UnitSizes = (0..self.levels()).map(by_level).collect();
        if levels.iter().all(|x| x.1) || self.mesh.size() > ENUMERATED {
            return Ok(SmallVec::from_iter([product]));
        }
        let mut all: SmallVec<[UnitSizes; 2]> = SmallVec::new();
        for rank in self.mesh.ranks() {
            let group = members(self.mesh, axes, rank)?;
            let near = |l: usize| group.iter().filter(|&&r| self.topology.level_of(rank, r) <= l).count();
            let sizes: UnitSizes = (0..self.levels()).map(near).collect();
            if !all.contains(&sizes) {
                all.push(sizes);
            }
        }
        Ok(all)
    }

    /// Time of a collective over a group: the worst rank's.
    pub(crate) fn collective_us(&self, total: f64, spread: &[UnitSizes], halves: f64) -> f64 {
        spread.iter().map(|n| self.topology.collective_us(total, n, halves)).fold(0.0, f64::max)
    }
}

/// Digits of which some do not nest with the network's units, as bounds see them: ranks that differ in one may share a
/// unit, and nothing is known of any level but the innermost.
pub(crate) fn inside_one_unit(weights: &[Weight]) -> SmallVec<[Weight; 8]> {
    weights.iter().map(|w| Weight { level: 0, ..*w }).collect()
}

/// Bytes and peers of the worst rank at each level, in an exchange from codes `f` to `g` with targets of `bytes`.
///
/// A moved digit is *free* if no digit takes over its place (every value is another peer), else *forced* (some rank's
/// value is not its own). With `F` the outermost level of a forced digit (-1 without) and `X_l` the bytes from beyond
/// level `l`,
///
/// ```text
/// X_l = bytes (1 - 1 / prod_{k > l} free_k);   r_l = X_{l-1} - X_l for l > F,   r_F = bytes - X_F,   0 below F
/// ```
pub(crate) fn traffic(weights: &[Weight], f: &[Code], g: &[Code], bytes: u64, levels: usize) -> Traffic {
    let mut free: SmallVec<[u64; 3]> = SmallVec::from_elem(1, levels);
    let mut forced: Option<usize> = None;
    for d in 0..f.len() {
        if f[d] >= NOWHERE || f[d] == g[d] {
            continue;
        }
        if g.contains(&f[d]) {
            forced = forced.max(Some(weights[d].level));
        } else {
            free[weights[d].level] *= weights[d].radix;
        }
    }
    let mut out = Traffic::new();
    let beyond = |l: usize| -> u64 { free[l..].iter().product() };
    let mut within = 1usize;
    for l in 0..levels {
        let before = within;
        within *= free[l] as usize;
        let (inner, outer) = (bytes / beyond(l), bytes / beyond(l + 1));
        out.push(match forced {
            Some(f) if l < f => (0.0, 0),
            Some(f) if l == f => (outer as f64, within),
            Some(_) | None => ((outer - inner) as f64, within - before),
        });
    }
    out
}
