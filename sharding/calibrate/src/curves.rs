//! Curves of points: ascending times, and as few knots as a tolerance allows.

use crate::points::Point;

/// The knots of a curve: sizes in bytes, ascending, and times in microseconds, nowhere descending.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knots {
    pub(crate) bytes: Vec<u64>,
    pub(crate) us: Vec<f64>,
}

impl Knots {
    /// Makes the curve of points of one group, in order of their sizes.
    ///
    /// `thin` is the greatest relative distance of any point from the curve; without it every point is a knot.
    pub(crate) fn of<'p>(points: impl IntoIterator<Item = &'p Point>, thin: Option<f64>) -> Knots {
        let (bytes, mut us): (Vec<u64>, Vec<f64>) = points.into_iter().map(|p| (p.bytes, p.us)).unzip();
        pool(&mut us);
        let all = Knots { bytes, us };
        thin.map_or(all.clone(), |within| all.thinned(within))
    }

    /// Returns the time at a size: linear between knots, constant before the first and after the last.
    pub(crate) fn at(&self, bytes: u64) -> f64 {
        let after = self.bytes.partition_point(|&size| size <= bytes);
        match (after.checked_sub(1), self.bytes.get(after)) {
            (None, _) => self.us[0],
            (Some(at), None) => self.us[at],
            (Some(at), Some(_)) => between(self, at, after, bytes),
        }
    }

    /// Returns the fewest knots whose curve is within a relative distance of all knots.
    ///
    /// The shortest path from the first knot to the last over all segments that pass by every knot near enough.
    fn thinned(&self, within: f64) -> Knots {
        let n = self.bytes.len();
        // Of each knot: the number of segments up to it, and the knot before it.
        let mut best: Vec<(usize, usize)> = vec![(0, 0); n];
        for to in 1..n {
            let passes = |from: usize| {
                let is_near =
                    |i: usize| (between(self, from, to, self.bytes[i]) / self.us[i] - 1.0).abs() <= within;
                (from + 1..to).all(is_near)
            };
            let segments = (0..to).filter(|&from| passes(from)).map(|from| (best[from].0 + 1, from));
            // The segment from the knot before passes by no knot.
            best[to] = segments.min().unwrap_or((best[to - 1].0 + 1, to - 1));
        }
        let mut path: Vec<usize> = vec![n - 1];
        while let Some(&last) = path.last().filter(|&&last| last > 0) {
            path.push(best[last].1);
        }
        path.reverse();
        let pick = |i: &usize| (self.bytes[*i], self.us[*i]);
        let (bytes, us) = path.iter().map(pick).unzip();
        Knots { bytes, us }
    }
}

/// Returns the time at a size on the segment between two knots.
fn between(knots: &Knots, from: usize, to: usize, bytes: u64) -> f64 {
    let share = (bytes - knots.bytes[from]) as f64 / (knots.bytes[to] - knots.bytes[from]) as f64;
    knots.us[from] + share * (knots.us[to] - knots.us[from])
}

/// Makes times ascend: adjacent ones that descend become their mean (the nearest ascending times by squares).
fn pool(us: &mut [f64]) {
    // Blocks of equal times: their sum and their number.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for &time in us.iter() {
        let mut block = (time, 1);
        while let Some(&(sum, n)) = blocks.last() {
            if sum / n as f64 <= block.0 / block.1 as f64 {
                break;
            }
            blocks.pop();
            block = (block.0 + sum, block.1 + n);
        }
        blocks.push(block);
    }
    let pooled = blocks.iter().flat_map(|&(sum, n)| core::iter::repeat_n(sum / n as f64, n));
    for (time, pooled) in us.iter_mut().zip(pooled) {
        // Nanoseconds, so that files have no digits beyond the measured ones. Very short times keep theirs.
        *time = if pooled < 0.01 { pooled } else { (pooled * 1e3).round() / 1e3 };
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "means of small whole numbers are exact")]
mod tests {
    use super::{Knots, pool};

    #[test]
    fn descending_times_become_their_mean() {
        let mut times = [1.0, 4.0, 2.0, 3.0, 9.0, 8.0];
        pool(&mut times);
        assert_eq!(times, [1.0, 3.0, 3.0, 3.0, 8.5, 8.5]);
        let mut times = [3.0, 2.0, 1.0];
        pool(&mut times);
        assert_eq!(times, [2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_line_has_two_knots_and_a_jump_its_own() {
        let bytes: Vec<u64> = (1..=10).collect();
        let line = Knots { us: bytes.iter().map(|&b| b as f64).collect(), bytes: bytes.clone() };
        assert_eq!(line.thinned(0.03).bytes, [1, 10]);
        let jump = Knots { us: bytes.iter().map(|&b| if b < 6 { 1.0 } else { 5.0 }).collect(), bytes };
        assert_eq!(jump.thinned(0.03).bytes, [1, 5, 6, 10]);
        assert_eq!(jump.at(7), 5.0);
    }
}
