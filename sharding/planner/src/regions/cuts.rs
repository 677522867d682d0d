//! Lower bounds between two meshes, by sets of ranks.
//!
//! For any set `A` of the ranks that take part, and `B` the others:
//!
//! ```text
//! into(A)      = elements that some rank of A wants and no rank of A holds      each enters A at least once, whatever relays do
//! capacity(A)  = sum over a in A of the rates of the levels at which a has a rank of B
//! time        >= into(A) / min(capacity(A), capacity(B))                        and the same with A and B changed over
//! ```
//!
//! A port counts only at levels at which there are other ranks: servers on separate nodes have no inner level
//! to the trainers. The sets are every rank, every domain, all sources, all targets, and every *class*: the
//! ranks that hold one region.
//!
//! Regions of one side are disjoint. So what several ranks want is the sum over their different regions `j`,
//! and the part that they hold the sum over their different regions `i`. Of a partial source, ranks hold a
//! region if they have all of its partial values.

use smallvec::SmallVec;

use crate::Error;
use crate::bounds::cut::Cut;
use crate::model::Level;
use crate::regions::grid::Grid;
use crate::regions::intersection::{Intersection, Meetings};
use reshard_layout::{AxisStride, Modes};
use reshard_sharding::Sharding;
use reshard_sharding::internal::{digit, ranks_of_both};

/// A set of ranks and its necessary traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crossing {
    pub(crate) cut: Cut,
    /// The innermost level over which anything can cross.
    pub(crate) level: usize,
    /// Elements that must cross.
    pub(crate) numel: u64,
    /// The ranks on the side with fewer of them.
    pub(crate) ranks: usize,
}

/// One side: by rank, ascending, the number of its region.
struct Side {
    /// Ranks with the numbers of their regions, and of their partial values.
    of_ranks: Vec<(usize, usize, usize)>,
    /// By number of a region: its regions of the dims, and how many ranks have it.
    regions: Vec<SmallVec<[usize; 4]>>,
    ranks: Vec<usize>,
    /// Regions of each dim.
    sizes: SmallVec<[usize; 4]>,
}

impl Side {
    fn new(s: &Sharding) -> Side {
        let (grid, mesh) = (Grid::new(s), s.mesh());
        let sizes: SmallVec<[usize; 4]> = (0..grid.dims.len()).map(|dim| grid.regions(dim)).collect();
        let all: usize = sizes.iter().product();
        let partial: Modes<AxisStride> = s.partial().iter().map(|p| mesh.known_mode(p.sub)).collect();
        let mut side = Side {
            of_ranks: Vec::new(),
            regions: vec![SmallVec::new(); all],
            ranks: vec![0; all],
            sizes: sizes.clone(),
        };
        for rank in mesh.ranks() {
            let Some(c) = mesh.coordinate(rank) else { continue };
            let regions = grid.regions_of(&c);
            let number = regions.iter().zip(&sizes).fold(0, |n, (&i, &size)| n * size + i);
            let term = partial.iter().fold(0, |n, &m| n * m.extent + digit(&c, m)) as usize;
            side.of_ranks.push((rank, number, term));
            side.regions[number] = regions;
            side.ranks[number] += 1;
        }
        side.of_ranks.sort_unstable();
        side
    }

    /// Returns the numbers of the regions that some ranks have, with how many of them have each.
    fn among(&self, ranks: &[usize]) -> Vec<(usize, usize)> {
        let mut found: Vec<usize> = ranks.iter().filter_map(|&rank| Some(self.at(rank)?.1)).collect();
        found.sort_unstable();
        found.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
    }

    fn at(&self, rank: usize) -> Option<(usize, usize, usize)> {
        self.of_ranks.binary_search_by_key(&rank, |x| x.0).ok().map(|at| self.of_ranks[at])
    }

    fn all_ranks(&self) -> Vec<usize> {
        self.of_ranks.iter().map(|x| x.0).collect()
    }
}

/// Both sides, and what their regions share.
pub(crate) struct Sides {
    ranks: Vec<usize>,
    source: Side,
    target: Side,
    /// Number of partial values of each region.
    terms: usize,
    meetings: Meetings,
    /// Elements of each region, by its number.
    held: Vec<u64>,
    wanted: Vec<u64>,
}

impl Sides {
    pub(crate) fn new(from: &Sharding, to: &Sharding) -> Result<Sides, Error> {
        let numels = |s: &Sharding, side: &Side| -> Result<Vec<u64>, Error> {
            let lengths = crate::regions::need::lengths(s)?;
            let of_region = |regions: &SmallVec<[usize; 4]>| {
                regions.iter().zip(&lengths).map(|(&i, of_dim)| of_dim[i]).product()
            };
            Ok(side.regions.iter().map(of_region).collect())
        };
        let (source, target) = (Side::new(from), Side::new(to));
        Ok(Sides {
            ranks: ranks_of_both(from.mesh(), to.mesh()),
            held: numels(from, &source)?,
            wanted: numels(to, &target)?,
            source,
            target,
            terms: from.partial().iter().map(|p| p.sub.size).product(),
            meetings: Intersection::new(from, to).meetings()?,
        })
    }

    /// Returns the number of elements that a region of the source shares with one of the target.
    fn shared(&self, i: usize, j: usize) -> u64 {
        let (i, j) = (&self.source.regions[i], &self.target.regions[j]);
        let of_dim = |dim: usize| {
            let met = &self.meetings[dim][j[dim]];
            met.binary_search_by_key(&i[dim], |x| x.0).map_or(0, |at| met[at].1 as u64)
        };
        (0..i.len()).map(of_dim).product()
    }

    /// Returns `true` if some ranks hold all partial values of a region of the source.
    fn hold(&self, ranks: &[usize], region: usize) -> bool {
        let mut terms: Vec<usize> = ranks
            .iter()
            .filter_map(|&rank| self.source.at(rank))
            .filter(|x| x.1 == region)
            .map(|x| x.2)
            .collect();
        terms.sort_unstable();
        terms.dedup();
        terms.len() == self.terms
    }

    /// Returns the elements that some ranks want and do not hold all of.
    fn into(&self, ranks: &[usize]) -> u64 {
        let wanted = self.target.among(ranks);
        let mut held = if wanted.is_empty() { Vec::new() } else { self.source.among(ranks) };
        held.retain(|x| self.terms == 1 || self.hold(ranks, x.0));
        let of_region = |j: usize| self.wanted[j] - held.iter().map(|x| self.shared(x.0, j)).sum::<u64>();
        wanted.iter().map(|x| of_region(x.0)).sum()
    }

    /// Returns the elements that only some ranks hold, and others want.
    fn out_of(&self, ranks: &[usize]) -> u64 {
        // Of a partial value, some rank outside may hold a part: then nothing may have to leave.
        let only = self.source.among(ranks).into_iter().filter(|&(i, n)| n == self.source.ranks[i]);
        let satisfied: Vec<usize> = self
            .target
            .among(ranks)
            .into_iter()
            .filter(|&(j, n)| n == self.target.ranks[j])
            .map(|x| x.0)
            .collect();
        only.map(|(i, _)| self.held[i] - satisfied.iter().map(|&j| self.shared(i, j)).sum::<u64>()).sum()
    }

    /// Returns the innermost level at which one of some ranks, ascending, has a rank that is not among them.
    fn level_beyond(&self, levels: &[Level], ranks: &[usize]) -> usize {
        let among = |of: &[usize], first: usize, size: usize| {
            of.partition_point(|&rank| rank < first + size) - of.partition_point(|&rank| rank < first)
        };
        let reaches = |size: usize| {
            let of_domain = |run: &[usize]| {
                let first = run[0] / size * size;
                among(&self.ranks, first, size) > among(ranks, first, size)
            };
            ranks.chunk_by(|a, b| a / size == b / size).any(of_domain)
        };
        levels.iter().position(|l| l.ranks.is_none_or(reaches)).unwrap_or(levels.len() - 1)
    }
}

/// Returns the necessary traffic of the worst set of each kind and level, for a target that is not partial.
pub(crate) fn crossings(levels: &[Level], sides: &Sides) -> Vec<Crossing> {
    let mut found: Vec<Crossing> = Vec::new();
    let mut add = |cut: Cut, a: &[usize], numel: u64| {
        let others = sides.ranks.len() - a.len();
        if numel == 0 || a.is_empty() || others == 0 {
            return;
        }
        let level = sides.level_beyond(levels, a);
        let crossing = Crossing { cut, level, numel, ranks: a.len().min(others) };
        let per_rank = |x: &Crossing| x.numel as f64 / x.ranks as f64;
        match found.iter_mut().find(|x| x.cut == cut && x.level == level) {
            Some(known) if per_rank(known) < per_rank(&crossing) => *known = crossing,
            Some(_) => {}
            None => found.push(crossing),
        }
    };
    for rank in &sides.ranks {
        let a = core::slice::from_ref(rank);
        add(Cut::IntoRank, a, sides.into(a));
    }
    for size in levels.iter().filter_map(|l| l.ranks) {
        for domain in sides.ranks.chunk_by(|a, b| a / size == b / size) {
            add(Cut::IntoDomain, domain, sides.into(domain));
            add(Cut::OutOfDomain, domain, sides.out_of(domain));
        }
    }
    let (sources, targets) = (sides.source.all_ranks(), sides.target.all_ranks());
    add(Cut::OutOfSources, &sources, sides.out_of(&sources));
    add(Cut::IntoTargets, &targets, sides.into(&targets));
    // The ranks of every region of the source.
    let mut by_region = sides.source.of_ranks.clone();
    by_region.sort_by_key(|x| x.1);
    for of_region in by_region.chunk_by(|a, b| a.1 == b.1) {
        let owners: Vec<usize> = of_region.iter().map(|x| x.0).collect();
        add(Cut::OutOfReplicas, &owners, sides.out_of(&owners));
    }
    found
}

/// Returns the most ranks that share a domain, of the level below each, from the inside out.
pub(crate) fn domain_sizes(levels: &[Level], sides: &Sides) -> SmallVec<[u64; 3]> {
    let below = core::iter::once(1).chain(levels.iter().filter_map(|l| l.ranks));
    let most = |size: usize| sides.ranks.chunk_by(|a, b| a / size == b / size).map(<[_]>::len).max();
    below.map(|size| most(size).unwrap_or(1) as u64).collect()
}

/// Maximum number of overlapping regions that are listed.
const LISTED: u64 = 1 << 18;

/// The domains of the level below between which data must spread, by level from the inside out.
pub(crate) struct Spreads {
    /// The domains on whose data one receiver depends, its own included; of the receivers that depend on most.
    pub(crate) into: Vec<SmallVec<[u64; 3]>>,
    /// The domains that a region of the source must reach, per rank that holds it, itself included.
    pub(crate) out: SmallVec<[u64; 3]>,
}

/// Returns the least domains between which data spreads, for the worst rank and for the worst region.
pub(crate) fn spreads(levels: &[Level], sides: &Sides) -> Spreads {
    let below = || core::iter::once(1).chain(levels.iter().filter_map(|l| l.ranks));
    let by_level: Vec<Vec<u64>> = below().map(|size| sides.fan_in(size)).collect();
    let of_rank = |i: usize| by_level.iter().map(|of_level| of_level[i]).collect();
    let mut all: Vec<SmallVec<[u64; 3]>> = (0..sides.target.of_ranks.len()).map(of_rank).collect();
    all.sort_unstable();
    all.dedup();
    let covers = |a: &[u64], b: &[u64]| a != b && a.iter().zip(b).all(|(a, b)| a >= b);
    let into = all.iter().filter(|one| !all.iter().any(|other| covers(other, one))).cloned().collect();
    Spreads { into, out: below().map(|size| sides.fan_out(size)).collect() }
}

impl Sides {
    /// Returns the number of source regions that a target region overlaps.
    fn met(&self, j: usize) -> u64 {
        let regions = &self.target.regions[j];
        self.meetings.iter().zip(regions).map(|(of_dim, &j)| of_dim[j].len() as u64).product()
    }

    /// Returns the least number of domains of a size on whose data each receiver depends, its own included.
    fn fan_in(&self, size: usize) -> Vec<u64> {
        // By domain, the regions of the source of which it holds all partial values.
        let mut terms: Vec<(usize, usize, usize)> =
            self.source.of_ranks.iter().map(|x| (x.0 / size, x.1, x.2)).collect();
        terms.sort_unstable();
        terms.dedup();
        let complete = terms.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).filter(|run| run.len() == self.terms);
        let held: Vec<(usize, usize)> = complete.map(|run| (run[0].0, run[0].1)).collect();
        // One domain can be the source of at most this many regions.
        let most = terms.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).max().unwrap_or(1) as u64;
        let of_rank = |&(rank, j, _): &(usize, usize, usize)| {
            let domain = rank / size;
            let first = held.partition_point(|x| x.0 < domain);
            let own = held[first..].iter().take_while(|x| x.0 == domain);
            let lacking = self.met(j) - own.filter(|x| self.shared(x.1, j) > 0).count() as u64;
            1 + lacking.div_ceil(most)
        };
        self.target.of_ranks.iter().map(of_rank).collect()
    }

    /// Returns the most domains of a size to which a region of the source must spread, per rank that holds it.
    ///
    /// The rank itself counts, too.
    fn fan_out(&self, size: usize) -> u64 {
        // By region of the source, the domains that hold any of it, and those that only want it.
        let mut holding: Vec<Vec<usize>> = vec![Vec::new(); self.held.len()];
        for x in &self.source.of_ranks {
            holding[x.1].push(x.0 / size);
        }
        holding.iter_mut().for_each(Vec::dedup);
        // Every rank that holds a region may send it to another domain in the same round.
        let ratio = |i: usize, w: usize| {
            let ranks = self.source.ranks[i];
            if ranks > 0 && w > 0 { (ranks + w).div_ceil(ranks) as u64 } else { 1 }
        };
        if size == 1 {
            let of_dim = |(met, regions): (&Vec<Vec<(usize, usize)>>, usize)| {
                let mut counts = vec![0usize; regions];
                met.iter().flatten().for_each(|x| counts[x.0] += 1);
                counts
            };
            let counts: SmallVec<[Vec<usize>; 4]> =
                self.meetings.iter().zip(self.source.sizes.iter().copied()).map(of_dim).collect();
            // All regions of the target have equally many ranks.
            let each = self.target.ranks.first().copied().unwrap_or(0);
            let wants = |i: usize| {
                let met: usize =
                    self.source.regions[i].iter().zip(&counts).map(|(&i, counts)| counts[i]).product();
                let own = holding[i].iter().filter_map(|&rank| self.target.at(rank));
                met * each - own.filter(|x| self.shared(i, x.1) > 0).count()
            };
            return (0..self.held.len()).map(|i| ratio(i, wants(i))).max().unwrap_or(1);
        }
        let mut wanting: Vec<Vec<usize>> = vec![Vec::new(); self.wanted.len()];
        for x in &self.target.of_ranks {
            wanting[x.1].push(x.0 / size);
        }
        wanting.iter_mut().for_each(Vec::dedup);
        let pairs: u64 =
            wanting.iter().enumerate().map(|(j, domains)| self.met(j) * domains.len() as u64).sum();
        if pairs > LISTED {
            return 1;
        }
        let mut reached: Vec<Vec<usize>> = vec![Vec::new(); self.held.len()];
        for (j, domains) in wanting.iter().enumerate() {
            for i in (0..self.held.len()).filter(|&i| self.shared(i, j) > 0) {
                reached[i].extend(domains.iter().filter(|d| holding[i].binary_search(d).is_err()));
            }
        }
        for list in &mut reached {
            list.sort_unstable();
            list.dedup();
        }
        reached.iter().enumerate().map(|(i, reached)| ratio(i, reached.len())).max().unwrap_or(1)
    }
}
