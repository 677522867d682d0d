//! Sharing out: a receiver takes what it does not hold in parts, each from another replica of the source.
//!
//! ```text
//! part k of what a receiver has of a dim    from replica  (number of the one at the receiver's own coordinates) + k  mod parts
//! ```
//!
//! so that all replicas send alike. Turned round, what leaves a rank for a reader of several ranks whose terms add up comes to all of
//! these alike: each receives one of so many parts, where otherwise one of them is told everything.

use reshard_layout::{At, Modes};

use crate::Error;
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use reshard_sharding::internal::{Run, chunk, digit, set_digit, shared};
use reshard_sharding::{Interval, Mesh, SubAxis};

/// Which replicas of a source have which part of what a receiver wants.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// The dim that is cut into parts.
    pub(crate) dim: usize,
    /// The digits that tell the replicas apart.
    modes: Modes<At>,
}

impl Spread {
    /// As many parts as these sub-axes have ranks, along which the source is replicated.
    pub(crate) fn new(mesh: &Mesh, dim: usize, subs: &[SubAxis]) -> Spread {
        Spread { dim, modes: subs.iter().map(|&s| mesh.known_mode(s)).collect() }
    }

    /// How many parts there are.
    fn parts(&self) -> usize {
        self.modes.iter().map(|m| m.extent as usize).product()
    }

    fn number(&self, c: &[usize]) -> usize {
        self.modes.iter().fold(0, |n, &m| n * m.extent + digit(c, m)) as usize
    }

    /// The replicas that have the parts for a receiver at whose coordinates is `own`.
    pub(crate) fn replicas(&self, mesh: &Mesh, own: usize) -> impl Iterator<Item = usize> {
        (0..self.parts()).map(move |part| self.replica(mesh, own, part))
    }

    /// The replica that has a part for a receiver at whose coordinates is `own`.
    fn replica(&self, mesh: &Mesh, own: usize, part: usize) -> usize {
        let mut c = mesh.coordinate(own).expect("it holds something");
        let mut left = ((self.number(&c) + part) % self.parts()) as i64;
        for &m in self.modes.iter().rev() {
            set_digit(&mut c, m, left % m.extent);
            left /= m.extent;
        }
        mesh.rank_at(&c).expect("digits are below their radix")
    }

    /// Which part a rank has for a receiver at whose coordinates is `own`, if any.
    pub(crate) fn part_of(&self, mesh: &Mesh, own: usize, rank: usize) -> Option<usize> {
        let [own_number, number] =
            [own, rank].map(|r| self.number(&mesh.coordinate(r).expect("it holds something")));
        let part = (number + self.parts() - own_number) % self.parts();
        (self.replica(mesh, own, part) == rank).then_some(part)
    }

    /// One part of all that a receiver has of the dim, and where it starts.
    fn part(&self, receiver: &[Interval], part: usize) -> (usize, Vec<Interval>) {
        let len: usize = receiver.iter().map(|x| x.len).sum();
        let part = chunk(len, self.parts(), part);
        let mut before = 0;
        let within = |x: &Interval| {
            let (low, high) = (part.start.max(before), (part.start + part.len).min(before + x.len));
            let start = x.start + low.saturating_sub(before);
            before += x.len;
            (low < high).then(|| Interval { start, len: high - low })
        };
        (part.start, receiver.iter().filter_map(within).collect())
    }

    /// What a source and a receiver share of the dim in one part of all that the receiver has of it.
    pub(crate) fn runs(&self, source: &[Interval], receiver: &[Interval], part: usize) -> Vec<Run> {
        let (start, wanted) = self.part(receiver, part);
        let mut runs = shared(source, &wanted);
        for run in &mut runs {
            run.target += start;
        }
        runs
    }
}

impl Intersection {
    /// Calls `f` with every rank, every replica that it takes something from, and the number of elements; with what it holds itself, not.
    ///
    /// Requires that it is [spread](Intersection::spread).
    pub(crate) fn shared_out(&self, f: &mut impl FnMut(usize, usize, usize)) -> Result<(), Error> {
        let Some(spread) = &self.spread else { return Ok(()) };
        let (dim, parts) = (spread.dim, spread.parts());
        let [source, target] = [Grid::new(&self.from), Grid::new(&self.to)];
        let sources = source.regions(dim);
        // By region of the target, region of the source, and part: in how many indices they meet.
        let mut met = vec![0; target.regions(dim) * sources * parts];
        for (j, met) in met.chunks_mut(sources * parts).enumerate() {
            let wanted = target.intervals(dim, j)?;
            for part in 0..parts {
                for (i, len) in self.partitions()?.source[dim].met(&spread.part(&wanted, part).1) {
                    met[i * parts + part] = len;
                }
            }
        }
        let region = |grid: &Grid<'_>, mesh: &Mesh, rank: usize| {
            grid.regions_of(&mesh.coordinate(rank).expect("it holds something"))[dim]
        };
        let meetings = self.meetings()?;
        for rank in self.to.mesh().ranks() {
            let j = region(&target, self.to.mesh(), rank);
            self.pulls(rank, &meetings, &mut |own, numel| {
                if own == rank {
                    return;
                }
                let i = region(&source, self.from.mesh(), own);
                let met = &met[(j * sources + i) * parts..][..parts];
                let across = numel / met.iter().sum::<usize>();
                for (peer, &len) in spread.replicas(self.from.mesh(), own).zip(met).filter(|x| *x.1 > 0) {
                    f(rank, peer, across * len);
                }
            });
        }
        Ok(())
    }
}
