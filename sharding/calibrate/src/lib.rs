//! Network profiles from measured times of collectives.
//!
//! ```text
//! JSON lines --Table::parse--> measurements --points--> medians --calibrate--> Profile, Report
//!                                                          '--Check::of, with a Topology--> errors
//! Sampler: which samples an engine takes next ----> measurements
//! ```
//!
//! A profile has a curve for each collective over each measured group, and the numbers of its levels for all
//! others. The expected error of a curve is that at each of its sizes by the curve of the other sizes. The model
//! that reads a profile is [`reshard_planner::Topology`]; `docs/calibrate.md` describes both file formats.
#![forbid(unsafe_code)]

mod check;
mod curves;
mod error;
mod lines;
mod network;
mod points;
mod price;
mod report;
mod sampler;
mod table;

use reshard_planner::{Compute, Curve, Profile, Source, StepOp, Topology};

pub use check::{Check, OfCollective, OfSize, OfSpread, Worst};
pub use error::{Error, Fault, SampleFault};
pub use points::{Point, points};
pub use report::{CurveReport, Errors, Nominal, Report, UNCERTAIN_PERCENT};
pub use sampler::{Cause, Sample, SampleOptions, Sampled, Sampler, Unsettled};
pub use table::{Filter, Measurement, Table};

use curves::Knots;
use lines::Lines;
use network::Nodes;
use report::{p90, tenth};

/// Settings of a calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The name of the profile.
    pub name: Option<String>,
    /// The origin of the measurements, such as `nccl-tests, NCCL 2.29.2`.
    pub from: String,
    /// The day of the measurement or of the publication.
    pub date: Option<String>,
    /// Ranks in a node; by default the most that a group of several nodes has in each.
    pub node_ranks: Option<usize>,
    /// The latency in microseconds and the rate in GB/s between nodes, if no group of several was measured.
    pub between_nodes: (f64, f64),
    /// The greatest relative distance of a measured time from a thinned curve; by default every size is a knot.
    pub thin: Option<f64>,
    /// More times for the numbers of the levels alone, not for curves.
    pub for_levels: Vec<Measurement>,
    /// The compute rates of a rank.
    pub compute: Option<Compute>,
}

impl Options {
    /// Returns the defaults: all sizes, and 10 us and 45 GB/s between nodes that were not measured.
    pub fn new(from: impl Into<String>) -> Options {
        Options {
            name: None,
            from: from.into(),
            date: None,
            node_ranks: None,
            between_nodes: (10.0, 45.0),
            thin: None,
            for_levels: Vec::new(),
            compute: None,
        }
    }
}

/// The points of one collective over one spread, in order of their sizes.
struct Group {
    collective: StepOp,
    spread: Vec<usize>,
    points: Vec<Point>,
}

/// Makes a profile of a table.
///
/// Steps without a curve are priced by the levels, whose numbers are fitted to all points. If no group of several
/// nodes was measured, those between nodes are [`Options::between_nodes`], and [`Report::nominal`] has them.
///
/// ```
/// use reshard_calibrate::{Filter, Options, Table, calibrate};
/// let text = r#"{"collective":"all_gather","ranks":8,"bytes":[1024,65536,1048576],"us":[10,13,17.5]}"#;
/// let table = Table::parse(text, &Filter::default())?;
/// let (profile, report) = calibrate(&table, &Options::new("an example"))?;
/// assert_eq!(profile.curves[0].spread, [8]);
/// assert_eq!(report.curves[0].expected.unwrap().count, 1);
/// # Ok::<(), reshard_calibrate::Error>(())
/// ```
pub fn calibrate(table: &Table, options: &Options) -> Result<(Profile, Report), Error> {
    let [measured, more] = [&table.measurements, &options.for_levels].map(|runs| points(runs));
    let nodes = Nodes::of(&[&measured[..], &more].concat(), options.node_ranks);
    let (groups, more) = (groups(measured, nodes)?, groups(more, nodes)?);
    let lines = fitted(&groups, &more, nodes, options.between_nodes);
    let mut curves = Vec::new();
    let mut reports = Vec::new();
    let mut predictions = Vec::new();
    for group in &groups {
        let left_out = left_out(&group.points, options.thin);
        let (curve, report) = curve(group, &left_out, options.thin);
        curves.push(curve);
        reports.push(report);
        predictions.extend(left_out);
    }
    let expected = Errors::of(predictions);
    let profile = Profile {
        name: options.name.clone(),
        launch_us: lines.launch_us,
        message_us: lines.message_us,
        levels: lines.levels.clone(),
        measured: Some(Source {
            from: lines.nominal.iter().fold(options.from.clone(), |from, number| format!("{from}; {number}")),
            dtype: table.dtype.clone(),
            date: options.date.clone(),
            median_error_percent: expected.map(|e| e.median_percent),
            p90_error_percent: expected.map(|e| e.p90_percent),
        }),
        compute: options.compute.clone(),
        curves,
    };
    let levels_alone = levels_alone(&groups, &Topology::try_from(profile.clone())?.lines());
    let report = Report {
        measurements: table.measurements.len(),
        left_out_lines: table.left_out,
        differing: table.differing.clone(),
        launch_us: lines.launch_us,
        message_us: lines.message_us,
        levels: lines.levels,
        nominal: lines.nominal,
        levels_alone: levels_alone.ok_or(Error::Empty { unmet: None })?,
        curves: reports,
        expected,
    };
    Ok((profile, report))
}

/// Returns the points by collective and spread; they are in that order.
fn groups(points: Vec<Point>, nodes: Nodes) -> Result<Vec<Group>, Error> {
    let mut groups: Vec<Group> = Vec::new();
    for point in points {
        let spread = nodes.spread(&point)?;
        match groups.last_mut().filter(|g| g.collective == point.collective && g.spread == spread) {
            Some(group) => group.points.push(point),
            None => groups.push(Group { collective: point.collective, spread, points: vec![point] }),
        }
    }
    Ok(groups)
}

/// Fits the numbers of the levels.
fn fitted(groups: &[Group], more: &[Group], nodes: Nodes, between: (f64, f64)) -> Lines {
    let of_group = |g: &Group| -> Vec<_> {
        let time = |p: &Point| (g.collective, g.spread.clone(), p.bytes, p.us);
        g.points.iter().map(time).collect()
    };
    let times: Vec<_> = groups.iter().chain(more).flat_map(of_group).collect();
    let times: Vec<_> = times.iter().map(|(op, spread, bytes, us)| (*op, &spread[..], *bytes, *us)).collect();
    lines::fit(&times, nodes, between)
}

/// Returns each inner point as the curve of the others predicts it, and as it was measured.
fn left_out(points: &[Point], thin: Option<f64>) -> Vec<(f64, f64)> {
    let predicted = |i: usize| {
        let others = points.iter().enumerate().filter(|&(j, _)| j != i).map(|(_, point)| point);
        (Knots::of(others, thin).at(points[i].bytes), points[i].us)
    };
    (1..points.len().saturating_sub(1)).map(predicted).collect()
}

/// Returns the curve of a group, and its errors.
fn curve(group: &Group, left_out: &[(f64, f64)], thin: Option<f64>) -> (Curve, CurveReport) {
    let Group { collective, spread, points } = group;
    let knots = Knots::of(points, thin);
    let mut deviations: Vec<f64> = points.iter().flat_map(|p| p.deviations.clone()).collect();
    let repeats_p90_percent = p90(&mut deviations).map(tenth);
    let expected = Errors::of(left_out.iter().copied());
    let report = CurveReport {
        collective: *collective,
        spread: spread.clone(),
        sizes: points.len(),
        knots: knots.bytes.len(),
        bytes: [points[0].bytes, points[points.len() - 1].bytes],
        repeats_p90_percent,
        expected,
        is_uncertain: expected.is_some_and(|e| e.p90_percent > UNCERTAIN_PERCENT),
    };
    let Knots { bytes, us } = knots;
    let p90_percent = repeats_p90_percent;
    (Curve { collective: *collective, spread: spread.clone(), bytes, us, p90_percent }, report)
}

/// Returns the errors of the numbers of the levels on the points of all groups.
fn levels_alone(groups: &[Group], lines: &Topology) -> Option<Errors> {
    let of_group = |g: &Group| -> Vec<_> {
        let time = |p: &Point| (price::collective_us(lines, g.collective, &g.spread, p.bytes), p.us);
        g.points.iter().map(time).collect()
    };
    Errors::of(groups.iter().flat_map(of_group))
}
