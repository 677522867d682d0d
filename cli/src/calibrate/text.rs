//! Reports of calibrations and of comparisons as tables.

use std::fmt::Write as _;

use reshard_calibrate::{Cause, Check, CurveReport, Errors, Nominal, Report, Unsettled};
use reshard_layout::internal::counted;

/// Returns a report: the numbers of the levels, and a line for each curve.
pub(crate) fn of_report(report: &Report) -> String {
    let curves = counted(report.curves.len(), "curve", "curves");
    let measurements = counted(report.measurements, "measurement", "measurements");
    let mut text = format!("{measurements}, {curves}\n");
    // Writing to a string does not fail.
    if report.left_out_lines > 0 {
        let _ = writeln!(text, "left out by --where: {}", counted(report.left_out_lines, "line", "lines"));
    }
    for (key, values) in &report.differing {
        let shown: Vec<&str> = values.iter().take(6).map(String::as_str).collect();
        let more = if values.len() > shown.len() { ", .." } else { "" };
        let _ = writeln!(text, "taken as repeats, though {key} differs: {}{more}", shown.join(", "));
    }
    let is_nominal = |number| report.nominal.contains(&number);
    let of_message = if is_nominal(Nominal::Message) { " (nominal: no all_to_all was measured)" } else { "" };
    let _ = writeln!(text, "launch {} us, message {} us{of_message}", report.launch_us, report.message_us);
    let last = report.levels.len() - 1;
    for (l, level) in report.levels.iter().enumerate() {
        let domain = level.ranks.map_or("all ranks".to_owned(), |n| counted(n, "rank", "ranks").to_string());
        let is_nominal = l == last && is_nominal(Nominal::BetweenNodes);
        let nominal = if is_nominal { " (nominal: no group of several nodes was measured)" } else { "" };
        let _ = writeln!(text, "  {domain}: {} us, {} GB/s{nominal}", level.latency_us, level.gbytes_per_s);
    }
    let of = &report.levels_alone;
    let _ = writeln!(
        text,
        "error of these numbers without curves: {:.1} % (median), {:.1} % (p90)",
        of.median_percent, of.p90_percent
    );
    let head = ["", "", "sizes", "kept", "repeats p90", "error", "p90"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(report.curves.iter().map(of_curve)).collect();
    text.push_str(&columns(&rows, 2));
    match &report.expected {
        Some(Errors { median_percent, p90_percent, .. }) => {
            let _ = writeln!(
                text,
                "expected error between sizes: {median_percent:.1} % (median), {p90_percent:.1} % (p90)"
            );
        }
        None => text.push_str("expected error between sizes: unknown, no curve has three sizes\n"),
    }
    if report.curves.iter().any(|curve| curve.is_uncertain) {
        text.push_str("! uncertain: measure more sizes\n");
    }
    text
}

fn of_curve(curve: &CurveReport) -> Vec<String> {
    let mark = if curve.is_uncertain { " !" } else { "" };
    let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.1} %"));
    vec![
        curve.collective.to_string(),
        format!("{:?}{mark}", curve.spread),
        curve.sizes.to_string(),
        curve.knots.to_string(),
        percent(curve.repeats_p90_percent),
        percent(curve.expected.map(|e| e.median_percent)),
        percent(curve.expected.map(|e| e.p90_percent)),
    ]
}

/// Returns a line for each point that is not settled.
pub(crate) fn of_unsettled(unsettled: &[Unsettled]) -> String {
    if unsettled.is_empty() {
        return String::new();
    }
    let row = |of: &Unsettled| {
        let group = match of.nodes {
            1 => counted(of.ranks, "rank", "ranks").to_string(),
            nodes => format!("{} on {}", counted(of.ranks, "rank", "ranks"), counted(nodes, "node", "nodes")),
        };
        let cause = match of.cause {
            Cause::Unstable { samples, range_percent } => {
                [samples.to_string(), format!("{range_percent:.1} %")]
            }
            Cause::NotMeasured => ["none".to_owned(), "-".to_owned()],
        };
        [vec![of.collective.to_string(), group, size(of.bytes)], cause.to_vec()].concat()
    };
    let head = ["unstable", "", "", "samples", "range"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(unsettled.iter().map(row)).collect();
    let mut text = columns(&rows, 3);
    text.push_str("range: of the middle half of the samples, in percent of their median; 3 % is stable\n");
    if unsettled.iter().any(|of| of.cause == Cause::NotMeasured) {
        text.push_str("without samples: the time was over, see --seconds\n");
    }
    text
}

/// Returns the errors of a network, in all and by kind.
pub(crate) fn of_check(check: &Check) -> String {
    let row = |name: String, errors: &Errors| {
        let percents = [errors.median_percent, errors.p90_percent].map(|x| format!("{x:.1} %"));
        [vec![name, errors.count.to_string()], percents.to_vec()].concat()
    };
    let mut rows =
        vec![["", "points", "error", "p90"].map(str::to_owned).to_vec(), row("all".to_owned(), &check.all)];
    rows.extend(check.collectives.iter().map(|of| row(of.collective.to_string(), &of.errors)));
    rows.extend(check.spreads.iter().map(|of| row(format!("{:?}", of.spread), &of.errors)));
    rows.extend(check.sizes.iter().map(|of| {
        let name = match (of.from_bytes, of.below_bytes) {
            (0, Some(below)) => format!("below {}", size(below)),
            (from, Some(below)) => format!("{} to {}", size(from), size(below)),
            (from, None) => format!("from {}", size(from)),
        };
        row(name, &of.errors)
    }));
    let worst = &check.worst;
    format!(
        "{}worst: {} over {:?} of {}: measured {:.2} us, predicted {:.2} us ({:+.1} %)\n",
        columns(&rows, 1),
        worst.collective,
        worst.spread,
        size(worst.bytes),
        worst.measured_us,
        worst.predicted_us,
        worst.error_percent
    )
}

/// Returns a size in the greatest unit of which it is a multiple.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes} B"), |(name, shift)| format!("{} {name}", bytes >> shift))
}

/// Aligns rows: the first columns of texts to the left, those of numbers to the right.
fn columns(rows: &[Vec<String>], texts: usize) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..n).map(|i| width(i).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cell = |(i, cell): (usize, &String)| {
            let width = widths[i];
            if i < texts { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
