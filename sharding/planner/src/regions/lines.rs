//! The wrap-around rule: the ranks that hold one region share its requests.
//!
//! All ranks that hold one region of the source are a *class*. Classes have no rank in common, so each shares
//! its work alone. Every receiver that lacks some of the region makes one *request*, to the owners in the
//! innermost domain around it that has any.
//!
//! ```text
//! line     all requests of one class and domain, laid end to end: length L
//! rule     of the k owners there, number h sends the range [h L / k, (h + 1) L / k) of the line
//! ```
//!
//! So each owner sends `L / k`, up to one row of the split dim, and that is the least: jointly they
//! must send `L`. A request is split along its longest dim, if at all.
//!
//! **Separate.** If no domain has both owners and receivers, every request of a class is in one line. Its order
//! is by replica `t` of the target, then by target regions `j`, the last dim fastest. Then a position is a
//! closed form, for uneven regions too, and so are the requests of one owner:
//!
//! ```text
//! start(t, j) = t |i| + sum_d  prod_{e < d} |i_e & j_e|  *  before_d(j_d)  *  prod_{e > d} |i_e|
//! before_d(j) = sum of |i_d & j'| over regions j' < j         |i_d| = before_d(all)
//! ```
//!
//! **Listed.** Otherwise the requests of every line are listed once, by receiver.

mod messages;

use std::collections::BTreeMap;

use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::model::network::is_linear;
use crate::regions::grid::Grid;
use crate::regions::intersection::{Intersection, Share};
use reshard_sharding::internal::{digit, set_digit};
use reshard_sharding::{Coordinate, Mesh};

/// Maximum number of requests that are listed.
const LISTED: usize = 1 << 20;

/// A message of one owner of a region to one receiver.
pub(crate) struct Served {
    /// The other rank: the owner of a receiver, or the receiver of an owner.
    pub(crate) peer: usize,
    pub(crate) share: Share,
    /// The number of elements.
    pub(crate) numel: usize,
}

/// The lines of an intersection.
#[derive(Debug)]
pub(crate) struct Lines {
    dims: SmallVec<[Dim; 4]>,
    /// The digits that number the owners of a region, the first slowest.
    owners: Modes<AxisStride>,
    /// The owners of region 0 of every dim, by their numbers; see [`place_at`].
    owner_offsets: Vec<i64>,
    order: Order,
}

/// One dim: by region of either side, the regions of the other that it overlaps.
#[derive(Debug)]
struct Dim {
    of_source: Vec<Vec<Overlap>>,
    /// By region of the source, its first rank relative to that of region 0; see [`place_at`].
    offsets: Vec<i64>,
    /// Regions of the source, each with the number of shared indices.
    of_target: Vec<Vec<(usize, usize)>>,
}

/// A region of the target, the indices of the source region before it, and the indices that both share.
#[derive(Clone, Copy, Debug)]
struct Overlap {
    target: usize,
    before: usize,
    shared: usize,
}

#[derive(Debug)]
enum Order {
    /// One line per class; these digits number the receivers of one region of the target.
    Apart { replicas: Modes<AxisStride> },
    /// The requests of each line.
    Listed(BTreeMap<Key, Line>),
}

/// The number of a class, the level of a line, and the domain.
type Key = (usize, usize, usize);

/// The requests of a line, and its length.
#[derive(Debug, Default)]
struct Line {
    requests: Vec<Request>,
    len: usize,
}

/// A request: its receiver, the position of that in the [`order`], and its start on the line.
#[derive(Clone, Copy, Debug)]
struct Request {
    receiver: usize,
    order: usize,
    start: usize,
}

/// Returns the position of a rank among those of a mesh: its number, unless ranks are a table.
///
/// So a plan does not depend on how the ranks of a table are numbered.
fn order(mesh: &Mesh, rank: usize) -> usize {
    if mesh.rank_table().is_none() { rank } else { mesh.position(rank).unwrap_or(rank) }
}

/// Returns the rank at a coordinate, or its position where that is not a sum over digits.
fn place_at(mesh: &Mesh, c: &[usize]) -> usize {
    let rank = mesh.rank_at(c).expect("digits are below their radix");
    if is_linear(mesh) { rank } else { mesh.position(rank).expect("it is a rank of the mesh") }
}

/// Regions, one of every dim.
type Regions = SmallVec<[usize; 4]>;

fn size(modes: &Modes<AxisStride>) -> usize {
    modes.iter().map(|m| m.extent as usize).product()
}

/// Returns the number that some digits of a coordinate make, the first slowest.
fn number(modes: &Modes<AxisStride>, c: &[usize]) -> usize {
    modes.iter().fold(0, |n, &m| n * m.extent as usize + digit(c, m) as usize)
}

/// Sets some digits of a coordinate to those of a number.
fn set_number(modes: &Modes<AxisStride>, c: &mut Coordinate, number: usize) {
    let mut left = number as i64;
    for &m in modes.iter().rev() {
        set_digit(c, m, left % m.extent);
        left /= m.extent;
    }
}

/// Returns `floor(a b / c)`.
fn times(a: usize, b: usize, c: usize) -> usize {
    // A division of 128 bits takes much longer.
    a.checked_mul(b).map_or_else(|| (a as u128 * b as u128 / c as u128) as usize, |product| product / c)
}

/// Returns the range of owner `h` of `k` on a line.
fn range(len: usize, k: usize, h: usize) -> [usize; 2] {
    [times(h, len, k), times(h + 1, len, k)]
}

/// Returns the owner, of `k`, to whose range a position of a line belongs.
fn owner_at(len: usize, k: usize, position: usize) -> usize {
    (((position as u128 + 1) * k as u128 - 1) / len as u128) as usize
}

/// Returns the part `[low, high)` of a request as rows of its longest dim; `None` if it has no whole row.
fn cut(lens: &[usize], [low, high]: [usize; 2]) -> Option<(Share, usize)> {
    let all: usize = lens.iter().product();
    if low == 0 && high == all {
        return Some((Share::All, all));
    }
    let longest = lens.iter().copied().max().unwrap_or(1);
    let dim = lens.iter().position(|&len| len == longest).unwrap_or(0);
    let [start, end] = [low, high].map(|x| times(x, longest, all));
    (start < end).then(|| (Share::Rows { dim, start, len: end - start }, (end - start) * (all / longest)))
}

impl Lines {
    /// Returns the lines; `None` if no region has several owners, or the rule does not apply.
    pub(crate) fn new(of: &Intersection) -> Result<Option<Lines>, Error> {
        let (from, to) = (&of.from, &of.to);
        let mesh = from.mesh();
        let owners: Modes<AxisStride> =
            from.replicated_axes().into_iter().map(|s| mesh.known_mode(s)).collect();
        // On one mesh, partial values that stay, and those that arise, are bound to their coordinates.
        let bound = of.one_mesh() && (from.is_partial() || to.is_partial());
        if size(&owners) == 1 || from.is_partial() || bound {
            return Ok(None);
        }
        let source = Grid::new(from);
        let place = |set: &mut dyn FnMut(&mut Coordinate)| {
            let mut c = Coordinate::from_elem(0, mesh.axes().len());
            set(&mut c);
            place_at(mesh, &c) as i64
        };
        let first = place(&mut |_| {});
        let mut dims: SmallVec<[Dim; 4]> = SmallVec::new();
        for (dim, met) in of.meetings()?.into_iter().enumerate() {
            let mut of_source: Vec<Vec<Overlap>> = vec![Vec::new(); source.regions(dim)];
            for (target, met) in met.iter().enumerate() {
                for &(i, shared) in met {
                    let before = of_source[i].last().map_or(0, |x| x.before + x.shared);
                    of_source[i].push(Overlap { target, before, shared });
                }
            }
            let offsets = (0..of_source.len()).map(|i| place(&mut |c| source.set(c, dim, i)) - first);
            dims.push(Dim { of_source, offsets: offsets.collect(), of_target: met });
        }
        let owner_offsets = (0..size(&owners)).map(|number| place(&mut |c| set_number(&owners, c, number)));
        let owner_offsets = owner_offsets.collect();
        let lines = Lines { dims, owners, owner_offsets, order: Order::Listed(BTreeMap::new()) };
        let is_apart = of.is_apart();
        if !is_apart && of.expected_messages(lines.dims.iter().map(|dim| dim.of_target.as_slice())) > LISTED {
            return Ok(None);
        }
        let order = if is_apart {
            let mesh = to.mesh();
            let embedded = to.partial().iter().filter(|p| !p.op.has_identity()).map(|p| p.sub);
            let replicas = to.replicated_axes().into_iter().chain(embedded);
            Order::Apart { replicas: replicas.map(|s| mesh.known_mode(s)).collect() }
        } else {
            Order::Listed(lines.listed(of))
        };
        Ok(Some(Lines { order, ..lines }))
    }

    fn class(&self, regions: &[usize]) -> usize {
        self.dims.iter().zip(regions).fold(0, |n, (dim, &i)| n * dim.of_source.len() + i)
    }

    /// Returns a rank that holds these regions of the source.
    fn owner(&self, mesh: &Mesh, regions: &[usize], number: usize) -> usize {
        let of_regions: i64 = self.dims.iter().zip(regions).map(|(dim, &i)| dim.offsets[i]).sum();
        let place = (of_regions + self.owner_offsets[number]) as usize;
        let rank = || mesh.coordinate_at(place).and_then(|c| mesh.rank_at(&c));
        if is_linear(mesh) { place } else { rank().expect("it is a position in the mesh") }
    }

    /// Returns the ranks that hold these regions of the source, in their order.
    fn all_owners(&self, mesh: &Mesh, regions: &[usize]) -> Vec<usize> {
        let mut owners: Vec<usize> =
            (0..self.owner_offsets.len()).map(|number| self.owner(mesh, regions, number)).collect();
        owners.sort_unstable_by_key(|&rank| order(mesh, rank));
        owners
    }

    /// Returns the line in which a receiver requests these regions, and its owners.
    ///
    /// `None` if the receiver holds them itself.
    fn near(&self, of: &Intersection, receiver: usize, regions: &[usize]) -> Option<(Key, Vec<usize>)> {
        let mut owners = self.all_owners(of.from.mesh(), regions);
        if owners.contains(&receiver) {
            return None;
        }
        let class = self.class(regions);
        for (level, &size) in of.domain_sizes().iter().enumerate() {
            let domain = receiver / size;
            if owners.iter().any(|rank| rank / size == domain) {
                owners.retain(|rank| rank / size == domain);
                return Some(((class, level, domain), owners));
            }
        }
        Some(((class, of.domain_sizes().len(), 0), owners))
    }

    /// Lists the requests of all lines.
    fn listed(&self, of: &Intersection) -> BTreeMap<Key, Line> {
        let mut lines: BTreeMap<Key, Line> = BTreeMap::new();
        let mut receivers: Vec<usize> = of.to.mesh().ranks().collect();
        receivers.sort_unstable_by_key(|&rank| order(of.to.mesh(), rank));
        let target = Grid::new(&of.to);
        for receiver in receivers.iter().filter_map(|&rank| self.receiver(of, &target, rank)) {
            let order = order(of.to.mesh(), receiver.rank);
            receiver.each_request(&mut |regions, lens| {
                if let Some((key, _)) = self.near(of, receiver.rank, regions) {
                    let line = lines.entry(key).or_default();
                    line.requests.push(Request { receiver: receiver.rank, order, start: line.len });
                    line.len += lens.iter().product::<usize>();
                }
            });
        }
        lines
    }
}

impl Dim {
    fn at(&self, source: usize, target: usize) -> Option<Overlap> {
        let of = &self.of_source[source];
        of.binary_search_by_key(&target, |x| x.target).ok().map(|at| of[at])
    }

    fn len(&self, source: usize) -> usize {
        self.of_source[source].last().map_or(0, |x| x.before + x.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Level;
    use reshard_sharding::Sharding;

    /// Requests are tiled, both ends agree, and owners differ by less than a row of each request.
    #[test]
    fn ranges_tile_every_request_and_are_balanced() {
        let placements = ["R", "S(0)", "S(1)", "SS(0,2)"];
        let meshes = [
            "x=2,y=3",
            "x=4,y=2",
            "x=3",
            "x=2,y=2@6",
            "x=8@8",
            "x=5@16",
            "x=2:6,y=3:2@1",
            "x=(2,3):(6,1),y=2:3",
            "x=4:-1@3",
            "x=2,y=2@[5,3,0,9]",
        ];
        let level = |ranks| Level { ranks, latency_us: 1.0, gbytes_per_s: 1.0 };
        let networks = [
            vec![level(None)],
            vec![level(Some(4)), level(None)],
            vec![level(Some(2)), level(Some(8)), level(None)],
        ];
        let (mut apart, mut listed) = (0, 0);
        for (a, b) in meshes.iter().flat_map(|a| meshes.map(|b| (*a, b))) {
            let all = |text: &str| -> Vec<Sharding> {
                let mesh: Mesh = text.parse().unwrap();
                let axes = mesh.axes().len() as u32;
                let word = |i: usize| {
                    let one = |a| placements[i / placements.len().pow(a) % placements.len()];
                    (0..axes).map(one).collect::<Vec<_>>().join(",")
                };
                let texts = (0..placements.len().pow(axes)).map(word);
                texts.map(|t| Sharding::parse(&mesh, &[7, 8], &t).unwrap()).collect()
            };
            for (i, from) in all(a).iter().enumerate() {
                for (j, to) in all(b).iter().enumerate().filter(|(j, _)| (i + 2 * j) % 5 == 0) {
                    let levels = &networks[(i + j) % networks.len()];
                    let Some(x) = Intersection::new(from, to).shared(levels).unwrap() else { continue };
                    *(if check(&x) { &mut apart } else { &mut listed }) += 1;
                }
            }
        }
        assert!(apart > 60 && listed > 200, "{apart} {listed}");
    }

    /// Returns `true` if no domain has ranks of both sides.
    fn check(x: &Intersection) -> bool {
        let lines = x.lines().unwrap().unwrap();
        let what = format!("{} on {} -> {} on {}", x.from, x.from.mesh(), x.to, x.to.mesh());
        let mut heard: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        // By line: what each owner sends, the most rows lost by a request, and its length.
        let mut of_lines: BTreeMap<Key, (BTreeMap<usize, usize>, usize)> = BTreeMap::new();
        let target = Grid::new(&x.to);
        for of_rank in x.to.mesh().ranks().filter_map(|rank| lines.receiver(x, &target, rank)) {
            let receiver = of_rank.rank;
            of_rank.each_request(&mut |regions, lens| {
                let served = of_rank.served(regions, lens);
                let near = lines.near(x, receiver, regions);
                assert_eq!(near.is_none(), served.iter().any(|x| x.peer == receiver), "{what}");
                let (longest, all) = (lens.iter().max().unwrap(), lens.iter().product::<usize>());
                let mut next = 0;
                for served in &served {
                    match served.share {
                        Share::All => assert_eq!(core::mem::replace(&mut next, *longest), 0, "{what}"),
                        Share::Rows { dim, start, len } => {
                            assert_eq!((lens[dim], start), (*longest, next), "{what}");
                            next += len;
                        }
                        Share::Part(_) => panic!("{what}"),
                    }
                    *heard.entry((served.peer, receiver)).or_default() += served.numel;
                }
                assert_eq!((next, served.iter().map(|x| x.numel).sum::<usize>()), (*longest, all), "{what}");
                let Some((key, owners)) = near else { return };
                let line = of_lines.entry(key).or_default();
                line.1 = line.1.max(all / longest);
                for served in &served {
                    assert!(owners.contains(&served.peer), "{what}");
                    *line.0.entry(served.peer).or_default() += served.numel;
                }
                for owner in owners {
                    line.0.entry(owner).or_default();
                }
            });
        }
        for (sent, row) in of_lines.values() {
            let mean = sent.values().sum::<usize>() / sent.len();
            assert!(sent.values().all(|n| n.abs_diff(mean) <= 2 * row), "{what}: {sent:?}, rows of {row}");
        }
        let mut told: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for owner in x.from.mesh().ranks() {
            lines.each_receiver(x, owner, &mut |served, _| {
                *told.entry((owner, served.peer)).or_default() += served.numel;
            });
        }
        heard.retain(|(sender, receiver), _| sender != receiver);
        assert_eq!(told, heard, "{what}");
        matches!(lines.order, Order::Apart { .. })
    }
}
