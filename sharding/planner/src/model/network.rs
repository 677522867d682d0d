//! A mesh on a network: the level that a digit crosses, and the spread of a group over domains.
//!
//! A digit whose values stay inside domains of level `l` but cross those of `l - 1` is of level `l`. Axes are
//! split where a domain ends inside them, so that digits have a level wherever the split divides. A group of
//! digits that nest with the domains has `n_l = product of its radices of levels up to l` members in every
//! domain. Otherwise the ranks are examined individually, and the worst one counts.
//!
//! **Ranks of a table.** Assume that the table maps the positions of each domain to the ranks of one domain:
//! `t(p) div n` is a one-to-one function of `p div n`. Then two ranks share a domain exactly if their
//! positions do, and all of the above holds for positions. Otherwise a digit has the outermost level at which
//! two of its values differ anywhere, and nests with no domain.

use reshard_layout::{AxisStride, Mode};
use smallvec::SmallVec;

use crate::Error;
use crate::model::codes::{Weight, Weights, inside_one_domain};
use crate::model::load::{DomainSizes, LevelTraffic, Span, StepTraffic, Volume, share_of_collective};
use crate::model::totals::Cost;
use crate::model::{Level, Model};
use crate::op::StepOp;
use reshard_sharding::internal::{digit, members_along};
use reshard_sharding::{Mesh, SubAxis};

/// A mesh on a network (see the [module](self)).
#[derive(Clone, Debug)]
pub(crate) struct Network<'a> {
    pub(crate) model: &'a Model,
    levels: &'a [Level],
    mesh: &'a Mesh,
    /// `true` if the mesh starts on a domain boundary.
    ///
    /// Then every digit that divides at domain sizes nests with the domains.
    aligned: bool,
    /// `true` if ranks share domains exactly as their positions in the layouts of the axes do.
    faithful: bool,
    /// End of the range of ranks, or of positions if there is a table.
    end: usize,
}

/// Maximum number of ranks that are examined individually.
const ENUMERATED: usize = 1 << 12;

/// Returns `true` if two positions share a domain of this size exactly if their ranks do.
fn keeps_domains(table: &[usize], domain: usize) -> bool {
    let of_ranks: SmallVec<[usize; 16]> = table.chunks(domain).map(|block| block[0] / domain).collect();
    let mut sorted = of_ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() == of_ranks.len()
        && table.chunks(domain).zip(of_ranks).all(|(block, of)| block.iter().all(|rank| rank / domain == of))
}

/// Returns `true` if the ranks along some axis of a mesh have no single stride.
pub(crate) fn is_hierarchical(mesh: &Mesh) -> bool {
    mesh.axes().iter().any(|a| a.layout().flat().len() > 1)
}

/// Returns `true` if ranks are linear in the coordinates of a mesh.
pub(crate) fn is_linear(mesh: &Mesh) -> bool {
    mesh.rank_table().is_none() && !is_hierarchical(mesh)
}

/// Returns `true` if no domain of a size has ranks of both meshes.
pub(crate) fn are_apart(a: &Mesh, b: &Mesh, domain: usize) -> bool {
    let ends = |mesh: &Mesh| [mesh.min_rank() / domain, (mesh.world_size() - 1) / domain];
    let ([first_a, last_a], [first_b, last_b]) = (ends(a), ends(b));
    if last_a < first_b || last_b < first_a {
        return true;
    }
    let domains = |mesh: &Mesh| -> Vec<usize> {
        let mut all: Vec<usize> = mesh.ranks().map(|rank| rank / domain).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (a, b) = (domains(a), domains(b));
    a.iter().all(|domain| b.binary_search(domain).is_err())
}

impl<'a> Network<'a> {
    pub(crate) fn new(model: &'a Model, mesh: &'a Mesh) -> Network<'a> {
        let levels = model.levels();
        let domains = || levels.iter().filter_map(|l| l.ranks);
        let faithful = levels.len() == 1
            || mesh.rank_table().is_none_or(|table| domains().all(|domain| keeps_domains(table, domain)));
        // Positions, if there is a table.
        let (first, lowest, end) = match mesh.rank_table() {
            None => (mesh.offset(), mesh.min_rank(), mesh.world_size()),
            Some(table) => (0, 0, table.len()),
        };
        let fits = |n: usize| lowest / n == (end - 1) / n;
        let forward = || mesh.axes().iter().all(|a| a.layout().leaves().all(|(_, d)| d >= 0));
        let one = levels.len() == 1;
        let aligned = one || (domains().all(|n| first.is_multiple_of(n) || fits(n)) && forward());
        Network { model, levels, mesh, aligned: aligned && faithful, faithful, end }
    }

    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Returns the ends of domains inside axes, at which a digit system is split.
    pub(crate) fn cuts(&self) -> SmallVec<[AxisStride; 4]> {
        let mut cuts = SmallVec::new();
        if !self.faithful {
            return cuts;
        }
        for domain in self.levels.iter().filter_map(|l| l.ranks) {
            for (i, a) in self.mesh.axes().iter().enumerate() {
                let [one] = a.layout().flat() else { continue };
                let Ok(d) = usize::try_from(one.stride) else { continue };
                let reach = a.size().saturating_mul(d);
                if d < domain && domain < reach && domain.is_multiple_of(d) && reach.is_multiple_of(domain) {
                    cuts.push(AxisStride::along((domain / d) as i64, i as u32));
                }
            }
        }
        cuts
    }

    /// Returns the level of one digit, and `true` if it nests with every domain.
    pub(crate) fn level(&self, digit: Mode<AxisStride>) -> (usize, bool) {
        let top = self.levels() - 1;
        if top == 0 {
            return (0, true);
        }
        if !self.faithful {
            return (self.level_of_table(digit), false);
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

    /// Returns the same for the ranks of a digit.
    fn level_of_ranks(&self, modes: &[Mode]) -> (usize, bool) {
        let (mut level, mut clean) = (0, self.aligned);
        for (l, domain) in self.levels.iter().enumerate().filter_map(|(l, x)| Some((l, x.ranks?))) {
            for &Mode { extent: s, stride: d } in modes {
                let (d, reach) = (d.unsigned_abs() as usize, s as usize * d.unsigned_abs() as usize);
                let inside = domain.is_multiple_of(reach) || self.end <= domain;
                let outside = d.is_multiple_of(domain);
                if !inside {
                    level = level.max(l + 1);
                }
                clean &= inside || outside;
            }
        }
        (level.min(self.levels() - 1), clean)
    }

    /// Returns the outermost level that separates ranks which differ along one digit only.
    fn level_of_table(&self, digit: Mode<AxisStride>) -> usize {
        let top = self.levels() - 1;
        if self.mesh.size() > ENUMERATED {
            return top;
        }
        let mut level = 0;
        for rank in self.mesh.ranks() {
            // Sharing a domain is transitive: comparing with one value is enough.
            let Ok(group) = members_along(self.mesh, &[digit], rank) else { return top };
            if group[0] == rank {
                level = group.iter().map(|&r| self.model.level_of(rank, r)).fold(level, usize::max);
            }
            if level == top {
                break;
            }
        }
        level
    }

    /// Returns sub-axes split at the ends of domains, each part with its level.
    pub(crate) fn by_level(&self, subs: &[SubAxis]) -> SmallVec<[(usize, Mode<AxisStride>); 8]> {
        let cuts = self.cuts();
        let mut parts = SmallVec::new();
        for whole in subs.iter().map(|&s| self.mesh.known_mode(s)) {
            let inside = |c: &&AxisStride| c.axis() == whole.stride.axis() && c.step() > whole.stride.step();
            let mut ends: SmallVec<[i64; 8]> = cuts.iter().filter(inside).map(|c| c.step()).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            // Domains that do not nest with the sub-axis split no digit of it.
            let mut rest = whole;
            for end in ends {
                if end < rest.stride.step() * rest.extent
                    && end % rest.stride.step() == 0
                    && let Some((low, high)) = rest.cut(end / rest.stride.step())
                {
                    parts.push((self.level(high).0, high));
                    rest = low;
                }
            }
            parts.push((self.level(rest).0, rest));
        }
        parts
    }

    /// Returns the weights of digits for bounds: see [`inside_one_domain`].
    pub(crate) fn bounding(
        &self,
        weights: &[Weight],
        digits: impl IntoIterator<Item = Mode<AxisStride>>,
    ) -> Weights {
        let nest = digits.into_iter().all(|d| self.level(d).1);
        if nest { SmallVec::from_slice(weights) } else { inside_one_domain(weights) }
    }

    /// Returns the different spreads of a group over domains, as its ranks see them.
    pub(crate) fn domain_sizes(
        &self,
        axes: &[Mode<AxisStride>],
    ) -> Result<SmallVec<[DomainSizes; 2]>, Error> {
        let members_of = |modes: &mut dyn Iterator<Item = &Mode<AxisStride>>| -> usize {
            modes.map(|m| m.extent as usize).product()
        };
        if self.levels() == 1 {
            let mut one = SmallVec::new();
            one.push(DomainSizes::from_slice(&[members_of(&mut axes.iter())]));
            return Ok(one);
        }
        let levels: SmallVec<[(usize, bool); 8]> = axes.iter().map(|&m| self.level(m)).collect();
        let by_level =
            |l: usize| members_of(&mut axes.iter().zip(&levels).filter(|(_, x)| x.0 <= l).map(|(m, _)| m));
        let product: DomainSizes = (0..self.levels()).map(by_level).collect();
        if levels.iter().all(|x| x.1) || self.mesh.size() > ENUMERATED {
            return Ok(SmallVec::from_iter([product]));
        }
        let mut all: SmallVec<[DomainSizes; 2]> = SmallVec::new();
        // Group by group: members are sorted, so those of a domain are consecutive.
        for i in 0..self.mesh.size() {
            let Some(c) = self.mesh.coordinate_at(i) else { continue };
            if axes.iter().any(|&m| digit(&c, m) > 0) {
                continue;
            }
            let Some(first) = self.mesh.rank_at(&c) else { continue };
            let mut group = members_along(self.mesh, axes, first)?;
            group.sort_unstable();
            let mut sizes: Vec<DomainSizes> = vec![DomainSizes::new(); group.len()];
            for level in self.levels {
                let domain = |rank: usize| level.ranks.map_or(0, |n| rank / n);
                let mut at = 0;
                for run in group.chunk_by(|&a, &b| domain(a) == domain(b)) {
                    sizes[at..at + run.len()].iter_mut().for_each(|sizes| sizes.push(run.len()));
                    at += run.len();
                }
            }
            for sizes in sizes {
                if !all.contains(&sizes) {
                    all.push(sizes);
                }
            }
        }
        Ok(all)
    }

    /// Returns the cost of a collective over these modes: that of the most expensive spread of their groups.
    pub(crate) fn cost_of_collective(
        &self,
        op: StepOp,
        volume: &Volume,
        sizes: &[DomainSizes],
        axes: &[Mode<AxisStride>],
    ) -> Cost {
        let span = Span::Axes { mesh: self.mesh, modes: axes };
        let mut us = 0.0f64;
        for near in sizes {
            let traffic = share_of_collective(op, volume, near);
            us = us.max(self.model.cost_us(&StepTraffic::counted(
                op,
                &traffic,
                [volume.received, volume.peak],
                span,
            )));
        }
        Cost::new(us, volume.received, volume.peak)
    }

    /// Returns the cost of an exchange: that of the worst receiver, or of the worst sender if it bears more.
    pub(crate) fn cost_of_exchange(
        &self,
        received: &[LevelTraffic],
        sent: Option<&[LevelTraffic]>,
        peak: u64,
        axes: &[Mode<AxisStride>],
    ) -> Cost {
        let span = Span::Axes { mesh: self.mesh, modes: axes };
        let load = StepTraffic::exchange(received, peak, span);
        let mut us = self.model.cost_us(&load);
        if let Some(sent) = sent {
            us = us.max(self.model.cost_us(&StepTraffic::exchange(sent, peak, span)));
        }
        Cost::new(us, load.bytes(), peak)
    }

    /// Returns a cost that no exchange with at least these bytes and peers is below.
    pub(crate) fn least_cost_of_exchange(
        &self,
        traffic: &[LevelTraffic],
        peak: u64,
        axes: &[Mode<AxisStride>],
    ) -> Cost {
        let load = StepTraffic::exchange(traffic, peak, Span::Axes { mesh: self.mesh, modes: axes });
        Cost::new(self.model.exchange_floor_us(&load), load.bytes(), peak)
    }
}
