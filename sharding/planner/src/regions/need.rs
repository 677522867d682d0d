//! Lower bounds where digits do not nest: the bounds of `bounds::need`, by regions.
//!
//! Seen from a level, the ranks fall into **readers**: all that differ only in axes inside its domains, or in
//! axes over which the target is partial. So a reader is whole domains, and holds whole copies of all that it
//! wants. Its axes are inner and all others are outer, and a reader is a coordinate `c` of the outer ones.
//! Regions of a dim are disjoint. So the elements that a reader wants and holds are a product over dims of
//! sums over its regions:
//!
//! ```text
//! wanted(c) = prod_d sum of |j|,           j the regions of the target in dim d at c
//! held(c)   = prod_d sum of |i & j|,       i those of the source
//! ```
//!
//! **Of one reader**, over its ranks: `wanted(c) - held(c)` elements come from beyond it. If other readers
//! hold partial values of the source, all that it wants comes from beyond.
//!
//! **Domains**: a rank depends on every source region that its own region overlaps, in every dim, and on
//! every partial value of it. The ranks of one reader share these dependencies.
//!
//! **Of one element**, over all ranks: the words of `bounds::need`, of the partial values that different
//! domains hold. `sum_c held(c)` counts an element once for each reader that holds partial values of it.

use smallvec::SmallVec;

use crate::Error;
use crate::bounds::cut::{Cut, LowerBoundCut};
use crate::bounds::need as element;
use crate::model::network::{Network, are_apart};
use crate::model::{Level, MinTraffic};
use crate::regions::cuts::{Sides, crossings, domain_sizes, spreads};
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use reshard_layout::{AxisStride, Mode, Modes};
use reshard_sharding::internal::{axis_of, digit};
use reshard_sharding::{PartialAxis, Sharding};

/// The traffic needed from beyond each level, from the inside out.
pub(crate) type Needs = SmallVec<[MinTraffic; 3]>;

/// One or several alternatives, each of which is a bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needed {
    pub(crate) ways: SmallVec<[Needs; 1]>,
    /// Elements that the worst rank receives.
    pub(crate) received: f64,
    /// The set of ranks that takes the longest, between two meshes.
    pub(crate) cut: Option<LowerBoundCut>,
}

impl Needed {
    /// Creates the needs of one mesh: a rank receives its need from beyond the innermost level.
    pub(crate) fn one(needs: Needs, item: u64) -> Needed {
        let received = needs.first().map_or(0.0, |n| n.bytes) / item as f64;
        Needed { ways: SmallVec::from_iter([needs]), received, cut: None }
    }
}

/// Returns the needs of every level: one or several alternatives, each of which is a bound.
///
/// Where some axis does not nest with the network's domains, there is only the innermost level.
pub(crate) fn needs(
    network: &Network<'_>,
    from: &Sharding,
    to: &Sharding,
    item: u64,
) -> Result<Needed, Error> {
    if from.mesh() != to.mesh() {
        return between_meshes(network.model.levels(), from, to, item);
    }
    let meetings = Intersection::new(from, to).meetings()?;
    let lengths = lengths(to)?;
    let mut needs = Needs::new();
    let mesh = from.mesh();
    let axes: SmallVec<[(usize, bool); 8]> =
        mesh.whole_axes().map(|a| network.level(mesh.known_mode(a))).collect();
    let levels = if axes.iter().all(|a| a.1) { network.levels() } else { 1 };
    for level in 0..levels {
        let outer = axes.iter().enumerate().map(|(axis, a)| {
            let (size, far) = (mesh.axes()[axis].size(), a.0 >= level);
            let owed = to.partial().iter().any(|p| p.sub.axis == axis);
            Axis { size, far, owed, outer: far && !owed }
        });
        let seen = Readers { from, to, axes: outer.collect() };
        needs.push(seen.need(&meetings, &lengths, item));
    }
    Ok(Needed::one(needs, item))
}

/// Returns the number of indices of each region, by dim.
pub(super) fn lengths(s: &Sharding) -> Result<Vec<Vec<u64>>, Error> {
    let grid = Grid::new(s);
    let length = |dim, i| Ok(grid.intervals(dim, i)?.iter().map(|x| x.len as u64).sum());
    (0..grid.dims.len()).map(|dim| (0..grid.regions(dim)).map(|i| length(dim, i)).collect()).collect()
}

/// Returns the needs of every level between two meshes: of all sets of ranks, and of each direction with
/// its spread.
///
/// The messages of one rank imply nothing about those of another. So the spread of a region at one level is
/// a separate need.
fn between_meshes(levels: &[Level], from: &Sharding, to: &Sharding, item: u64) -> Result<Needed, Error> {
    let none: Needs = levels.iter().map(|_| MinTraffic::bytes(0.0)).collect();
    if to.is_partial() {
        return Ok(Needed::one(none, item));
    }
    let sides = Sides::new(from, to)?;
    let (mut all, mut into, mut out) = (none.clone(), none.clone(), none);
    let (mut cut, mut received): (Option<LowerBoundCut>, f64) = (None, 0.0);
    for x in crossings(levels, &sides) {
        let rate: f64 = levels[x.level..].iter().map(|l| l.gbytes_per_s).sum();
        let (bytes, gbytes_per_s) = (x.numel * item, rate * x.ranks as f64);
        let us = bytes as f64 / (gbytes_per_s * 1e3);
        if cut.is_none_or(|worst| worst.us < us) {
            cut = Some(LowerBoundCut { cut: x.cut, level: x.level, bytes, gbytes_per_s, us });
        }
        if x.cut == Cut::IntoRank {
            received = received.max(x.numel as f64);
        }
        let bytes = x.numel as f64 / x.ranks as f64 * item as f64;
        for needs in [&mut all, if x.cut.is_into() { &mut into } else { &mut out }] {
            needs[x.level].bytes = needs[x.level].bytes.max(bytes);
        }
    }
    if from.is_partial() {
        received = received_of_partial(from, to);
        all[0].bytes = all[0].bytes.max(received * item as f64);
    }
    let (spreads, sizes) = (spreads(levels, &sides), domain_sizes(levels, &sides));
    let known = |need: &MinTraffic| 1 + u64::from(need.bytes > 0.0);
    for needs in [&mut all, &mut into, &mut out] {
        for (need, &domain_size) in needs.iter_mut().zip(&sizes) {
            (need.domains, need.domain_size) = (known(need), domain_size);
        }
    }
    let mut ways: SmallVec<[Needs; 1]> = SmallVec::from_iter([all]);
    for of_rank in &spreads.into {
        let mut needs = into.clone();
        for (need, &domains) in needs.iter_mut().zip(of_rank) {
            // Data from further out is sent to another rank.
            *need = if domains > 1 { MinTraffic { domains, ..*need } } else { MinTraffic::bytes(0.0) };
        }
        ways.push(needs);
    }
    // If all that a rank sends goes as far, it bears the messages of all levels. Otherwise another rank may
    // have those that go further out.
    let domain = levels.iter().filter_map(|l| l.ranks).max().unwrap_or(1);
    if are_apart(from.mesh(), to.mesh(), domain) {
        let mut needs = out.clone();
        for (need, &domains) in needs.iter_mut().zip(&spreads.out) {
            need.domains = need.domains.max(domains);
        }
        ways.push(needs);
    }
    for (level, &domains) in spreads.out.iter().enumerate().filter(|x| *x.1 > 1) {
        let mut needs = out.clone();
        needs[level].domains = needs[level].domains.max(domains);
        needs.iter_mut().skip(level + 1).for_each(|need| *need = MinTraffic::bytes(0.0));
        ways.push(needs);
    }
    Ok(Needed { ways, received, cut })
}

/// Returns the elements that the worst rank receives at least of a partial source on another mesh.
fn received_of_partial(from: &Sharding, to: &Sharding) -> f64 {
    let (a, b) = (from.mesh(), to.mesh());
    let both = a.ranks().filter(|&rank| b.contains(rank)).count();
    let terms: f64 = from.partial().iter().map(|p| p.sub.size as f64).product();
    let readers: f64 = to.replicated_axes().iter().map(|s| s.size as f64).product();
    let words = from.numel() as f64 * (terms - 1.0 + readers - 1.0);
    (to.max_local_numel() as f64).max(words / (a.size() + b.size() - both) as f64)
}

/// An axis as a level sees it.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    /// `true` if its ranks are in different domains.
    far: bool,
    /// `true` if the target is partial over it.
    owed: bool,
    /// `true` if it separates readers.
    outer: bool,
}

struct Readers<'a> {
    from: &'a Sharding,
    to: &'a Sharding,
    axes: SmallVec<[Axis; 8]>,
}

impl Readers<'_> {
    /// Returns the data that the worst rank of a reader needs from beyond it, and the number of its domains.
    fn need(&self, meetings: &[Vec<Vec<(usize, usize)>>], lengths: &[Vec<u64>], item: u64) -> MinTraffic {
        let (source, target) = (Grid::new(self.from), Grid::new(self.to));
        let tables: SmallVec<[Table; 4]> = (0..source.dims.len())
            .map(|dim| {
                Table::new(
                    [self.outer(&source.dims[dim]), self.outer(&target.dims[dim])],
                    &meetings[dim],
                    &lengths[dim],
                )
            })
            .collect();
        // Axes that number no region make equal readers.
        let numbers = |axis: usize| {
            tables.iter().any(|t| t.modes.iter().any(|m| m.iter().any(|m| axis_of(m.0.stride) == axis)))
        };
        let sizes: SmallVec<[usize; 8]> = (0..self.axes.len())
            .map(|axis| if self.axes[axis].outer && numbers(axis) { self.axes[axis].size } else { 1 })
            .collect();
        let terms = |far: &dyn Fn(&Axis) -> bool| -> f64 {
            let mine = self.from.partial().iter().filter(|p| far(&self.axes[p.sub.axis]));
            mine.map(|p| p.sub.size as f64).product()
        };
        let (q, k) = (terms(&|a| a.far), terms(&|a| a.far && !a.outer));
        // A reader holds either all partial values of an element, or only some of them.
        let lacks = q > k;
        let (mut worst, mut held_by_all) = (0u64, 0u128);
        let mut c: SmallVec<[usize; 8]> = SmallVec::from_elem(0, sizes.len());
        loop {
            let (mut wanted, mut held) = (1u64, 1u64);
            for t in &tables {
                let at = t.at(&c);
                wanted *= t.wanted[at[1]];
                held *= t.shared(at);
            }
            worst = worst.max(wanted - if lacks { 0 } else { held });
            held_by_all += u128::from(held);
            let Some(axis) = (0..sizes.len()).rev().find(|&a| c[a] + 1 < sizes[a]) else { break };
            c[axis] += 1;
            c[axis + 1..].fill(0);
        }
        let outer = self.axes.iter().filter(|a| a.outer).map(|a| a.size).product::<usize>();
        let ranks = self.axes.iter().map(|a| a.size).product::<usize>() as f64;
        let of_reader = worst as f64 * outer as f64 / ranks;
        // Dims are independent: some rank has the maximum in each. Ranks of one reader share their
        // dependencies.
        let heard = tables.iter().map(|t| t.heard).fold(1u64, u64::saturating_mul);
        let product = |of: &dyn Fn(&Axis) -> bool| -> u64 {
            self.axes.iter().filter(|a| of(a)).map(|a| a.size as u64).product()
        };
        let (domain_size, sharing) = (product(&|a| !a.far), product(&|a| a.owed));
        let need = |elements: f64| MinTraffic {
            bytes: elements * item as f64,
            domains: heard.saturating_mul(q as u64).div_ceil(sharing).max(1 + u64::from(elements > 0.0)),
            domain_size,
        };
        if self.from.numel() == 0 || !self.from.is_partial() {
            return need(of_reader);
        }
        // Number `m` of readers that want an element; of these, bounds of the number that holds it, if any
        // does.
        let (mut m, mut least, mut most) = (1.0f64, 1.0f64, 1.0f64);
        for (axis, a) in self.axes.iter().enumerate().filter(|(_, a)| a.outer) {
            let placed = |side: usize| -> SmallVec<[(AxisStride, i64); 4]> {
                let all = tables.iter().flat_map(|t| &t.modes[side]).map(|m| (m.0.stride, m.0.extent));
                all.filter(|m| axis_of(m.0) == axis).collect()
            };
            let (s, t) = (placed(0), placed(1));
            let alike =
                |of: &[(AxisStride, i64)]| a.size as f64 / of.iter().map(|m| m.1 as f64).product::<f64>();
            m *= alike(&t);
            most *= alike(&s).min(alike(&t));
            let same =
                s.is_empty() || t.is_empty() || (s.len() == t.len() && s.iter().all(|x| t.contains(x)));
            least *= if same { alike(&s).min(alike(&t)) } else { 1.0 };
        }
        let unnumbered: usize = self
            .axes
            .iter()
            .enumerate()
            .filter(|(axis, a)| a.outer && !numbers(*axis))
            .map(|(_, a)| a.size)
            .product();
        let numel = self.from.numel() as f64;
        let met = (held_by_all as f64 * unnumbered as f64 / least).min(numel);
        let is_apart = |p: &PartialAxis| {
            let of_axis = |m: &(Mode<AxisStride>, usize, usize)| axis_of(m.0.stride) == p.sub.axis;
            self.axes[p.sub.axis].outer && !tables.iter().any(|t| t.modes[1].iter().any(of_axis))
        };
        let apart = self.from.partial().iter().any(is_apart);
        let readers = element::Readers { terms: q, kept: k, all: m, holding: most, apart };
        let words = met * readers.words(true) + (numel - met) * readers.words(false);
        need(of_reader.max(words / ranks))
    }

    /// Returns the modes that separate readers.
    ///
    /// Each has the number of regions from one value to the next, and its weight in the number of a reader.
    fn outer(&self, modes: &Modes<AxisStride>) -> Outer {
        let mut all = Outer::new();
        let (mut regions, mut numbers) = (1, 1);
        for &m in modes.iter().rev() {
            if self.axes[axis_of(m.stride)].outer {
                all.push((m, regions, numbers));
                numbers *= m.extent as usize;
            }
            regions *= m.extent as usize;
        }
        all
    }
}

type Outer = SmallVec<[(Mode<AxisStride>, usize, usize); 4]>;

/// One dim: the indices that a reader wants, and those that it already holds.
struct Table {
    modes: [Outer; 2],
    wanted: Vec<u64>,
    /// By number of the target, the indices shared with each number of the source, ascending.
    shared: Vec<Vec<(usize, u64)>>,
    /// The most numbers of the source that one region of the target overlaps.
    heard: u64,
}

impl Table {
    fn new(modes: [Outer; 2], met: &[Vec<(usize, usize)>], lengths: &[u64]) -> Table {
        let count = |outer: &Outer| outer.iter().map(|m| m.0.extent as usize).product::<usize>();
        let number = |outer: &Outer, region: usize| -> usize {
            outer.iter().map(|(m, regions, numbers)| region / regions % m.extent as usize * numbers).sum()
        };
        let targets = count(&modes[1]);
        let (mut wanted, mut shared) = (vec![0; targets], vec![Vec::new(); targets]);
        let mut heard = 0;
        for (j, met) in met.iter().enumerate() {
            let mut mine: Vec<usize> = met.iter().map(|&(i, _)| number(&modes[0], i)).collect();
            mine.sort_unstable();
            mine.dedup();
            heard = heard.max(mine.len() as u64);
            let reader = number(&modes[1], j);
            wanted[reader] += lengths[j];
            shared[reader].extend(met.iter().map(|&(i, numel)| (number(&modes[0], i), numel as u64)));
        }
        for with in &mut shared {
            with.sort_unstable_by_key(|x| x.0);
            with.dedup_by(|b, a| {
                let same = a.0 == b.0;
                a.1 += if same { b.1 } else { 0 };
                same
            });
        }
        Table { modes, wanted, shared, heard }
    }

    /// Returns the indices shared by a number of the source and one of the target.
    fn shared(&self, [i, j]: [usize; 2]) -> u64 {
        self.shared[j].binary_search_by_key(&i, |x| x.0).map_or(0, |at| self.shared[j][at].1)
    }

    /// Returns the numbers of a coordinate in both.
    fn at(&self, c: &[usize]) -> [usize; 2] {
        [0, 1]
            .map(|side| self.modes[side].iter().map(|&(m, _, numbers)| digit(c, m) as usize * numbers).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Level, Model, Topology};
    use std::collections::{BTreeMap, BTreeSet};

    /// Returns the flat indices of the elements of a rank.
    fn elements(s: &Sharding, rank: usize) -> Vec<usize> {
        let region = s.region(rank).unwrap();
        let mut all = vec![0];
        for (dim, len) in s.shape().iter().enumerate() {
            let of_dim: Vec<usize> = region.indices(dim).unwrap().collect();
            all = all.iter().flat_map(|e| of_dim.iter().map(move |i| e * len + i)).collect();
        }
        all
    }

    /// Computes the need of a level, element by element and rank by rank.
    ///
    /// A domain has `domain` ranks.
    fn slow(from: &Sharding, to: &Sharding, domain: usize) -> f64 {
        let mesh = from.mesh();
        let key = |rank: usize| {
            let mut c = mesh.coordinate(rank).unwrap();
            to.partial().iter().for_each(|p| c[p.sub.axis] = 0);
            mesh.rank_at(&c).unwrap() / domain
        };
        let mut ranks_of: BTreeMap<usize, usize> = BTreeMap::new();
        // By element: its readers, and the owners of each partial value, as pairs of reader and domain.
        let mut readers = vec![BTreeSet::new(); from.numel()];
        let mut terms: Vec<BTreeMap<Vec<usize>, BTreeSet<[usize; 2]>>> = vec![BTreeMap::new(); from.numel()];
        for rank in mesh.ranks() {
            *ranks_of.entry(key(rank)).or_default() += 1;
            let c = mesh.coordinate(rank).unwrap();
            let digit = |p: &PartialAxis| p.sub.known_digit(c[p.sub.axis], mesh.axes()[p.sub.axis].size());
            let term: Vec<usize> = from.partial().iter().map(digit).collect();
            for e in elements(to, rank) {
                readers[e].insert(key(rank));
            }
            for e in elements(from, rank) {
                terms[e].entry(term.clone()).or_default().insert([key(rank), rank / domain]);
            }
        }
        let (mut lacking, mut words) = (BTreeMap::<usize, usize>::new(), 0.0);
        for e in 0..from.numel() {
            // Partial values of one domain count as one: their sum can leave it in one word.
            let apart: BTreeSet<BTreeSet<[usize; 2]>> = terms[e].values().cloned().collect();
            let q = apart.len() as f64;
            let holds = |r: usize| apart.iter().filter(|t| t.iter().any(|x| x[0] == r)).count();
            let without = readers[e].iter().filter(|r| holds(**r) == 0).count() as f64;
            for &r in readers[e].iter().filter(|r| holds(**r) < apart.len()) {
                *lacking.entry(r).or_default() += 1;
            }
            let m = readers[e].len() as f64;
            let k = apart.len().min(readers[e].iter().map(|r| holds(*r)).max().unwrap_or(0)) as f64;
            let leaves = |t: &&BTreeSet<[usize; 2]>| readers[e].iter().any(|r| t.iter().all(|x| x[0] != *r));
            let leaving = apart.iter().filter(leaves).count() as f64;
            let connected = if without > 0.0 { q + without - 1.0 } else { 0.0 };
            let complete = if k < q { q - k + m - 1.0 } else { 0.0 };
            words += connected.max(leaving).max(complete);
        }
        let of_reader = lacking.iter().map(|(r, n)| *n as f64 / ranks_of[r] as f64).fold(0.0, f64::max);
        if from.is_partial() { of_reader.max(words / mesh.size() as f64) } else { of_reader }
    }

    #[test]
    fn needs_are_never_above_their_definition_and_mostly_equal_it() {
        let placements = ["R", "S(0)", "S(1)", "P(sum)"];
        let (mut count, mut equal) = (0, 0);
        for (mesh, shape) in [
            ("x=3,y=2", vec![5, 7]),
            ("x=2,y=3", vec![5, 7]),
            ("x=2,y=2,z=2", vec![3, 5]),
            ("x=3,y=4", vec![7, 3]),
        ] {
            let mesh: reshard_sharding::Mesh = mesh.parse().unwrap();
            let inner = mesh.axes().last().unwrap().size();
            let level = |ranks| Level { ranks, latency_us: 1.0, gbytes_per_s: 1.0 };
            let model = Model::Topology(Topology::new(1.0, 0.0, &[level(Some(inner)), level(None)]).unwrap());
            let network = Network::new(&model, &mesh);
            let n = mesh.axes().len();
            let of = |i: usize| {
                let text: Vec<&str> = (0..n).map(|a| placements[i >> (2 * a) & 3]).collect();
                Sharding::parse(&mesh, &shape, &text.join(",")).unwrap()
            };
            let all: Vec<Sharding> = (0..1 << (2 * n)).map(of).collect();
            for (i, from) in all.iter().enumerate() {
                for (j, to) in all.iter().enumerate() {
                    if from == to || (n > 2 && (i + 3 * j) % 7 > 0) {
                        continue;
                    }
                    let fast = needs(&network, from, to, 1).unwrap().ways.remove(0);
                    assert_eq!(fast.len(), 2);
                    for (need, domain) in fast.iter().zip([1, inner]) {
                        let slow = slow(from, to, domain);
                        let text = format!("{from} -> {to} of {shape:?} on {mesh} over {domain}");
                        assert!(need.bytes <= slow + 1e-9, "{text}: {} above {slow}", need.bytes);
                        equal += usize::from((need.bytes - slow).abs() < 1e-9);
                        count += 1;
                    }
                }
            }
        }
        println!("{equal} of {count} are equal");
        assert!(equal * 10 > count * 9, "{equal} of {count}");
    }
}
