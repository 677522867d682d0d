//! The messages of lines: those that serve a receiver, and those of an owner.

use smallvec::SmallVec;

use super::{
    Dim, Lines, Order, Overlap, Regions, Request, Served, cut, number, order, owner_at, range, set_number,
    size,
};
use crate::regions::grid::Grid;
use crate::regions::intersection::{Intersection, Share, each_overlap};
use reshard_sharding::Coordinate;

/// A rank of the target that receives, and its regions.
pub(crate) struct Receiver<'l> {
    lines: &'l Lines,
    of: &'l Intersection,
    pub(super) rank: usize,
    c: Coordinate,
    regions: Regions,
}

impl Receiver<'_> {
    /// Calls `f` with the source regions of each request, and its extents.
    ///
    /// The regions that it holds itself are among them.
    pub(crate) fn each_request(&self, f: &mut impl FnMut(&[usize], &[usize])) {
        let met = self.lines.dims.iter().zip(&self.regions).map(|(dim, &j)| dim.of_target[j].as_slice());
        each_overlap(&met.collect::<SmallVec<[_; 4]>>(), f);
    }

    /// Returns the owners that serve a request, the rank itself if it is one of them.
    pub(crate) fn served(&self, regions: &[usize], lens: &[usize]) -> SmallVec<[Served; 4]> {
        let (lines, of) = (self.lines, self.of);
        let numel: usize = lens.iter().product();
        let mut served = SmallVec::new();
        let mut add = |line: usize, start: usize, k: usize, owner: &dyn Fn(usize) -> usize| {
            for h in owner_at(line, k, start)..=owner_at(line, k, start + numel - 1) {
                let [low, high] = range(line, k, h).map(|x| x.clamp(start, start + numel) - start);
                if let Some((share, numel)) = cut(lens, [low, high]) {
                    served.push(Served { peer: owner(h), share, numel });
                }
            }
        };
        match &lines.order {
            Order::Apart { replicas } => {
                let (mut start, mut all, mut outer) = (0, 1, 1);
                for ((dim, &i), (&j, &len)) in
                    lines.dims.iter().zip(regions).zip(self.regions.iter().zip(lens))
                {
                    // Rows before, each of the whole region in the dims after it.
                    let before = dim.at(i, j).map_or(0, |x| x.before);
                    start = start * dim.len(i) + outer * before;
                    (all, outer) = (all * dim.len(i), outer * len);
                }
                start += number(replicas, &self.c) * all;
                let owner = |h: usize| lines.owner(of.from.mesh(), regions, h);
                add(size(replicas) * all, start, size(&lines.owners), &owner);
            }
            Order::Listed(listed) => match lines.near(of, self.rank, regions) {
                None => served.push(Served { peer: self.rank, share: Share::All, numel }),
                Some((key, owners)) => {
                    let line = &listed[&key];
                    let order = order(of.to.mesh(), self.rank);
                    let at = line.requests.binary_search_by_key(&order, |x| x.order);
                    let start = line.requests[at.expect("every request is listed")].start;
                    add(line.len, start, owners.len(), &|h| owners[h]);
                }
            },
        }
        served
    }
}

impl Lines {
    /// Returns a rank as a receiver; `None` if it receives nothing.
    pub(crate) fn receiver<'l>(
        &'l self,
        of: &'l Intersection,
        target: &Grid<'_>,
        rank: usize,
    ) -> Option<Receiver<'l>> {
        let c = of.to.mesh().coordinate(rank).filter(|c| of.receives_at(c))?;
        let regions = target.regions_of(&c);
        Some(Receiver { lines: self, of, rank, c, regions })
    }

    /// Calls `f` with each message of an owner, and the receiver's regions of the target.
    pub(crate) fn each_receiver(
        &self,
        of: &Intersection,
        owner: usize,
        f: &mut impl FnMut(Served, &[usize]),
    ) {
        let Some(c) = of.from.mesh().coordinate(owner) else { return };
        let [source, target] = of.grids();
        let source = source.regions_of(&c);
        if self.dims.iter().zip(&source).any(|(dim, &i)| dim.len(i) == 0) {
            return;
        }
        match &self.order {
            Order::Apart { replicas } => {
                let all: usize = self.dims.iter().zip(&source).map(|(dim, &i)| dim.len(i)).product();
                let [low, high] = range(size(replicas) * all, size(&self.owners), number(&self.owners, &c));
                if low == high {
                    return;
                }
                let mesh = of.to.mesh();
                for t in low / all..=(high - 1) / all {
                    let of_replica = [low, high].map(|x| x.clamp(t * all, (t + 1) * all) - t * all);
                    let mut path = Path { regions: Regions::new(), lens: Regions::new() };
                    self.within(&source, of_replica, [0, 1, all], &mut path, &mut |path, part| {
                        let Some((share, numel)) = cut(&path.lens, part) else { return };
                        let mut c = Coordinate::from_elem(0, mesh.axes().len());
                        for (dim, &j) in path.regions.iter().enumerate() {
                            target.set(&mut c, dim, j);
                        }
                        set_number(replicas, &mut c, t);
                        let peer = mesh.rank_at(&c).expect("digits are below their radix");
                        f(Served { peer, share, numel }, &path.regions);
                    });
                }
            }
            Order::Listed(lines) => {
                let class = self.class(&source);
                let sizes = of.domain_sizes();
                for level in 0..=sizes.len() {
                    let domain = |rank: usize| sizes.get(level).map_or(0, |size| rank / size);
                    let Some(line) = lines.get(&(class, level, domain(owner))) else { continue };
                    let mut owners = self.all_owners(of.from.mesh(), &source);
                    owners.retain(|&rank| domain(rank) == domain(owner));
                    let h = owners.iter().position(|&rank| rank == owner).expect("it holds the region");
                    let [low, high] = range(line.len, owners.len(), h);
                    let first = line.requests.partition_point(|x| x.start <= low).saturating_sub(1);
                    for &Request { receiver, start, .. } in
                        line.requests[first..].iter().take_while(|x| x.start < high)
                    {
                        let Some(c) = of.to.mesh().coordinate(receiver) else { continue };
                        let target = target.regions_of(&c);
                        let of_dim =
                            |((dim, &i), &j): ((&Dim, &usize), &usize)| dim.at(i, j).map(|x| x.shared);
                        let lens: Option<Regions> =
                            self.dims.iter().zip(&source).zip(&target).map(of_dim).collect();
                        let Some(lens) = lens else { continue };
                        let numel = lens.iter().product::<usize>();
                        let part = [low, high].map(|x| x.clamp(start, start + numel) - start);
                        if let Some((share, numel)) = cut(&lens, part) {
                            f(Served { peer: receiver, share, numel }, &target);
                        }
                    }
                }
            }
        }
    }

    /// Calls `f` with every combination of target regions in a range of one replica, and its part.
    ///
    /// `start` is the first position of the chosen regions, which have `outer` rows of `all`
    /// elements of the region in the dims that are left.
    fn within(
        &self,
        source: &[usize],
        [low, high]: [usize; 2],
        [start, outer, all]: [usize; 3],
        path: &mut Path,
        f: &mut impl FnMut(&Path, [usize; 2]),
    ) {
        let d = path.regions.len();
        if d == self.dims.len() {
            let part = [low, high].map(|x| x.clamp(start, start + outer) - start);
            if part[0] < part[1] {
                f(path, part);
            }
            return;
        }
        let overlaps = &self.dims[d].of_source[source[d]];
        let of_row = all / self.dims[d].len(source[d]);
        let begin = |x: &Overlap| start + outer * x.before * of_row;
        let first = overlaps.partition_point(|x| begin(x) <= low).saturating_sub(1);
        for x in overlaps[first..].iter().take_while(|x| begin(x) < high) {
            path.regions.push(x.target);
            path.lens.push(x.shared);
            self.within(source, [low, high], [begin(x), outer * x.shared, of_row], path, f);
            path.regions.pop();
            path.lens.pop();
        }
    }
}

/// The target regions chosen so far, and their overlaps with those of the source.
struct Path {
    regions: Regions,
    lens: Regions,
}
