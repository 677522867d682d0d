//! The numbers of levels, by which steps without a curve are priced: launch, message, latencies and rates.
//!
//! The formula of the planner is linear in all of them but for the maximum over levels:
//!
//! ```text
//! us = launch + passes * sum_l latency_l rounds_l + max_l bytes_l / rate_l   (+ message * peers)
//! ```
//!
//! Each round of the fit takes the level of the maximum from the round before, and solves for the least squares
//! of relative errors, weighted by 1 / |error| of the round before: this approaches the least sum of relative
//! errors, on which the few points that no line can pass have no influence. Numbers are at least 0. Those of an outer
//! level are added to the inner ones, so that no outer level is faster.

use reshard_planner::internal::{collective_traffic, passes};
use reshard_planner::{Level, LevelTraffic, StepOp};

use crate::network::Nodes;
use crate::report::Nominal;

/// The numbers of levels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lines {
    pub(crate) launch_us: f64,
    pub(crate) message_us: f64,
    pub(crate) levels: Vec<Level>,
    /// Numbers that no measurement determines.
    pub(crate) nominal: Vec<Nominal>,
}

/// The time of a message where no all-to-all was measured.
const MESSAGE_US: f64 = 0.2;

/// Rounds of the fit; the errors no longer change after about twenty.
const ROUNDS: usize = 60;

/// The relative error below which points weigh the same: that of repeated measurements.
const SMALLEST: f64 = 0.01;

/// A point as the fit has it.
struct Row {
    op: StepOp,
    loads: Vec<LevelTraffic>,
    us: f64,
}

/// The most coefficients: launch, message, and two for each of two levels.
const MOST: usize = 6;

type Coefficients = [f64; MOST];

/// Fits the numbers to times by collective, spread and size.
///
/// `between` is the latency and the rate between nodes where the times have no group of several.
pub(crate) fn fit(times: &[(StepOp, &[usize], u64, f64)], nodes: Nodes, between: (f64, f64)) -> Lines {
    let rows: Vec<Row> =
        times.iter().map(|&(op, spread, bytes, us)| Row::of(op, spread, bytes, us)).collect();
    let levels = if rows.iter().any(|row| row.loads.len() > 1) { 2 } else { 1 };
    let found = coefficients(&rows, levels);
    let rate = |l: usize| {
        let us_per_kilobyte: f64 = (0..=l).map(|k| found[3 + 2 * k]).sum();
        // Times that grow nowhere with size have no rate: then the fastest transfer that was seen.
        let seen =
            rows.iter().filter_map(|row| Some(row.loads.get(l)?.bytes / row.us / 1e3)).fold(1e-6, f64::max);
        if us_per_kilobyte > 0.0 { (1.0 / us_per_kilobyte).min(1e9) } else { seen }
    };
    let mut nominal = Vec::new();
    let level = |l: usize| Level {
        ranks: nodes.0.filter(|_| l == 0),
        latency_us: rounded((0..=l).map(|k| found[2 + 2 * k]).sum()),
        gbytes_per_s: rounded(rate(l)),
    };
    let mut fitted: Vec<Level> = (0..levels).map(level).collect();
    if nodes.0.is_some() && levels == 1 {
        nominal.push(Nominal::BetweenNodes);
        let latency_us = between.0.max(fitted[0].latency_us);
        fitted.push(Level { ranks: None, latency_us, gbytes_per_s: between.1.min(fitted[0].gbytes_per_s) });
    }
    let has_messages = rows.iter().any(|row| row.op == StepOp::AllToAll);
    if !has_messages {
        nominal.push(Nominal::Message);
    }
    let message_us = if has_messages { rounded(found[1]) } else { MESSAGE_US };
    Lines { launch_us: rounded(found[0]), message_us, levels: fitted, nominal }
}

/// Returns launch, message, and of each level the latency and the microseconds of a kilobyte that it adds.
fn coefficients(rows: &[Row], levels: usize) -> Coefficients {
    let mut weights = vec![1.0; rows.len()];
    // At first the outermost level of each group is the slowest.
    let mut slowest: Vec<usize> = rows.iter().map(|row| row.loads.len() - 1).collect();
    let (mut best, mut least) = ([0.0; MOST], f64::INFINITY);
    for _ in 0..ROUNDS {
        let equations: Vec<Coefficients> =
            rows.iter().zip(&slowest).map(|(row, &l)| row.equation(l)).collect();
        let found = nonnegative(&equations, &weights, 2 + 2 * levels);
        let mut sum = 0.0;
        for ((row, weight), slowest) in rows.iter().zip(&mut weights).zip(&mut slowest) {
            let kilobytes = |l: usize| row.loads[l].bytes / 1e3;
            let wire = |l: usize| kilobytes(l) * (0..=l).map(|k| found[3 + 2 * k]).sum::<f64>();
            *slowest = (0..row.loads.len()).max_by(|&a, &b| wire(a).total_cmp(&wire(b))).unwrap_or(0);
            let error = (product(&row.equation(*slowest), &found) - 1.0).abs();
            *weight = 1.0 / error.max(SMALLEST);
            sum += error;
        }
        if sum < least {
            (best, least) = (found, sum);
        }
    }
    best
}

/// Returns the rounds of messages with this number of peers: `ceil(log2(1 + peers))`.
fn rounds(peers: usize) -> f64 {
    f64::from(usize::BITS - peers.leading_zeros())
}

impl Row {
    fn of(op: StepOp, spread: &[usize], bytes: u64, us: f64) -> Row {
        let loads = collective_traffic(op, spread, bytes).expect("a table has only collectives");
        Row { op, loads, us }
    }

    /// Returns the factors of the coefficients, whose sum is 1 at the measured time, with a level as the slowest.
    fn equation(&self, slowest: usize) -> Coefficients {
        let mut factors = [0.0; MOST];
        factors[0] = 1.0;
        for (l, at) in self.loads.iter().enumerate() {
            if self.op == StepOp::AllToAll {
                factors[1] += at.peers as f64;
            }
            for k in 0..=l {
                factors[2 + 2 * k] += passes(self.op) as f64 * rounds(at.peers);
            }
        }
        for k in 0..=slowest {
            factors[3 + 2 * k] = self.loads[slowest].bytes / 1e3;
        }
        factors.map(|factor| factor / self.us)
    }
}

/// Returns the coefficients from 0 whose sums are nearest to 1 in weighted squares.
///
/// Six coefficients have 64 sets of those that are above 0; each is solved.
fn nonnegative(equations: &[Coefficients], weights: &[f64], n: usize) -> Coefficients {
    let mut normal = [[0.0; MOST]; MOST];
    let mut right = [0.0; MOST];
    for (row, weight) in equations.iter().zip(weights) {
        for i in 0..n {
            right[i] += weight * row[i];
            for j in 0..n {
                normal[i][j] += weight * row[i] * row[j];
            }
        }
    }
    // Columns of equal lengths, so that small pivots mean columns that depend on others.
    let scale: Vec<f64> = (0..n).map(|i| normal[i][i].sqrt()).collect();
    let (mut best, mut most) = ([0.0; MOST], 0.0);
    for set in 1u32..1 << n {
        let chosen: Vec<usize> = (0..n).filter(|&i| set >> i & 1 == 1).collect();
        if chosen.iter().any(|&i| scale[i] == 0.0) {
            continue;
        }
        let matrix = chosen.iter().map(|&i| {
            let row = chosen.iter().map(|&j| normal[i][j] / (scale[i] * scale[j]));
            row.chain([right[i] / scale[i]]).collect()
        });
        let Some(solution) = solved(matrix.collect()) else { continue };
        if solution.iter().any(|&x| x < 0.0) {
            continue;
        }
        // The squares fall by this much.
        let gain: f64 = chosen.iter().zip(&solution).map(|(&i, x)| x * right[i] / scale[i]).sum();
        if gain > most * (1.0 + 1e-12) {
            (best, most) = ([0.0; MOST], gain);
            chosen.iter().zip(&solution).for_each(|(&i, x)| best[i] = x / scale[i]);
        }
    }
    best
}

/// Solves equations whose last column is the right side; `None` if they depend on each other.
fn solved(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let n = rows.len();
    for i in 0..n {
        let pivot = (i..n).max_by(|&a, &b| rows[a][i].abs().total_cmp(&rows[b][i].abs()))?;
        rows.swap(i, pivot);
        if rows[i][i].abs() < 1e-9 {
            return None;
        }
        let (above, below) = rows.split_at_mut(i + 1);
        let from = &above[i];
        for row in below {
            let factor = row[i] / from[i];
            row[i..].iter_mut().zip(&from[i..]).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut solution = vec![0.0; n];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| rows[i][j] * solution[j]).sum();
        solution[i] = (rows[i][n] - known) / rows[i][i];
    }
    Some(solution)
}

fn product(a: &Coefficients, b: &Coefficients) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns a number of three digits: no fit determines more.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}
