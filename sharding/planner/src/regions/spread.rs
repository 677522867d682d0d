//! Splitting among replicas: a receiver takes missing data in parts, each from another replica of the source.
//!
//! ```text
//! part k of the overlap of a dim       from replica  (number of the one at the receiver's own coordinates) + k  mod parts
//! ```
//!
//! so that all replicas send equally. Transposed, data that leaves a rank for a reader of several ranks,
//! whose partial values add up, arrives at all of these equally: each receives one of the parts. Otherwise
//! one of them would receive everything.

use reshard_layout::{AxisStride, Modes};

use crate::Error;
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use reshard_sharding::internal::{Run, chunk, digit, set_digit, shared};
use reshard_sharding::{Interval, Mesh, SubAxis};

/// The assignment of the parts of missing data to the replicas of a source.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// The dim that is split into parts.
    pub(crate) dim: usize,
    /// The digits that number the replicas.
    modes: Modes<AxisStride>,
}

impl Spread {
    /// Creates as many parts as these sub-axes have ranks; the source is replicated along them.
    pub(crate) fn new(mesh: &Mesh, dim: usize, subs: &[SubAxis]) -> Spread {
        Spread { dim, modes: subs.iter().map(|&s| mesh.known_mode(s)).collect() }
    }

    /// Returns the number of parts.
    fn parts(&self) -> usize {
        self.modes.iter().map(|m| m.extent as usize).product()
    }

    fn number(&self, c: &[usize]) -> usize {
        self.modes.iter().fold(0, |n, &m| n * m.extent + digit(c, m)) as usize
    }

    /// Returns the replicas that have the parts for a receiver at whose coordinates is `own`.
    pub(crate) fn replicas(&self, mesh: &Mesh, own: usize) -> impl Iterator<Item = usize> {
        (0..self.parts()).map(move |part| self.replica(mesh, own, part))
    }

    /// Returns the replica that has a part for a receiver at whose coordinates is `own`.
    fn replica(&self, mesh: &Mesh, own: usize, part: usize) -> usize {
        let mut c = mesh.coordinate(own).expect("it holds something");
        let mut left = ((self.number(&c) + part) % self.parts()) as i64;
        for &m in self.modes.iter().rev() {
            set_digit(&mut c, m, left % m.extent);
            left /= m.extent;
        }
        mesh.rank_at(&c).expect("digits are below their radix")
    }

    /// Returns the part that a rank has for a receiver at whose coordinates is `own`, if any.
    pub(crate) fn part_of(&self, mesh: &Mesh, own: usize, rank: usize) -> Option<usize> {
        let [own_number, number] =
            [own, rank].map(|r| self.number(&mesh.coordinate(r).expect("it holds something")));
        let part = (number + self.parts() - own_number) % self.parts();
        (self.replica(mesh, own, part) == rank).then_some(part)
    }

    /// Returns one part of the runs that a source and a receiver share of the dim.
    pub(crate) fn runs(&self, source: &[Interval], receiver: &[Interval], part: usize) -> Vec<Run> {
        let runs = shared(source, receiver);
        let part = chunk(numel(&runs), self.parts(), part);
        rows(&runs, part.start, part.len)
    }
}

/// Returns the number of indices of some runs.
pub(crate) fn numel(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.len * run.count).sum()
}

/// Returns the rows `start .. start + rows` of the elements of some runs.
pub(crate) fn rows(runs: &[Run], start: usize, rows: usize) -> Vec<Run> {
    let (mut before, mut kept) = (0, Vec::new());
    for run in runs {
        let len = run.len * run.count;
        let [low, high] = [start, start + rows].map(|x| x.clamp(before, before + len) - before);
        before += len;
        within(run, low, high, &mut kept);
    }
    kept
}

/// Adds the elements `low..high` of regular runs, in their order, to `kept`.
fn within(run: &Run, low: usize, high: usize, kept: &mut Vec<Run>) {
    let at = |i: usize, skip: usize, len: usize, count: usize| Run {
        source: run.source + i * run.source_step + skip,
        target: run.target + i * run.target_step + skip,
        len,
        count,
        ..*run
    };
    let [first, last] = [low / run.len, high / run.len];
    let [skip, over] = [low % run.len, high % run.len];
    if first == last {
        kept.extend((low < high).then(|| at(first, skip, high - low, 1)));
        return;
    }
    kept.extend((skip > 0).then(|| at(first, skip, run.len - skip, 1)));
    let whole = first + usize::from(skip > 0);
    kept.extend((whole < last).then(|| at(whole, 0, run.len, last - whole)));
    kept.extend((over > 0).then(|| at(last, 0, over, 1)));
}

impl Intersection {
    /// Calls `f` with each rank, each replica from which it receives, and the number of elements.
    ///
    /// Elements that a rank already holds are left out. Requires that the intersection is
    /// [spread](Intersection::spread).
    pub(crate) fn shared_out(&self, f: &mut impl FnMut(usize, usize, usize)) -> Result<(), Error> {
        let Some(spread) = &self.spread else { return Ok(()) };
        let (dim, parts) = (spread.dim, spread.parts());
        let grids = self.grids();
        let [source, target] = &grids;
        let region = |grid: &Grid<'_>, mesh: &Mesh, rank: usize| {
            grid.region_of(&mesh.coordinate(rank).expect("it holds something"), dim)
        };
        let meetings = self.meetings()?;
        for rank in self.to.mesh().ranks() {
            let met = &meetings[dim][region(target, self.to.mesh(), rank)];
            self.pulls(&grids, rank, &meetings, &mut |own, numel| {
                if own == rank {
                    return;
                }
                let of = region(source, self.from.mesh(), own);
                let len = met.iter().find(|m| m.0 == of).expect("they overlap").1;
                for (part, peer) in spread.replicas(self.from.mesh(), own).enumerate() {
                    let kept = chunk(len, parts, part).len;
                    if kept > 0 {
                        f(rank, peer, numel / len * kept);
                    }
                }
            });
        }
        Ok(())
    }
}
