//! The closing report of a run for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use indicatif::HumanBytes;
use reshard_checkpoint::JobReport;
use reshard_layout::internal::counted;

use crate::error::printable;

/// The most lost or filled tensors that are named.
const LOST: usize = 8;

/// The closing table.
pub(crate) fn table(report: &JobReport) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in report.tensors.iter().filter_map(|tensor| tensor.fallback_reason.as_deref()) {
        *reasons.entry(reason).or_default() += 1;
    }
    let steps: usize = report.tensors.iter().map(|tensor| tensor.steps).sum();
    let rate = if report.seconds > 0.0 { report.bytes as f64 / report.seconds } else { 0.0 };
    let mut rows = vec![
        ("tensors", report.tensors.len().to_string()),
        ("bytes", format!("{} ({})", report.bytes, HumanBytes(report.bytes))),
    ];
    if report.through_engine {
        let (received, bound) = (report.received_bytes, report.lower_bound_bytes);
        rows.push(("steps", steps.to_string()));
        rows.push((
            "received",
            format!(
                "{received} by the worst rank, lower bound {bound}",
                received = counted(received, "byte", "bytes")
            ),
        ));
    }
    rows.push(("time", format!("{:.3} s, {}/s", report.seconds, HumanBytes(rate as u64))));
    let verified = match (report.verified, report.through_engine) {
        (true, true) => "every byte of every rank",
        (true, false) => "every byte, by reading the output",
        (false, _) => "NO",
    };
    rows.push(("verified", verified.to_owned()));
    rows.extend(reasons.iter().map(|(reason, count)| ("replicated", format!("{count} times: {reason}"))));
    rows.extend(report.lost.iter().take(LOST).map(|lost| ("filled", lost.to_string())));
    if let Some(more) = report.lost.len().checked_sub(LOST + 1) {
        rows.push(("filled", format!("and {} more", more + 1)));
    }
    if report.resumed_bytes > 0 {
        rows.push(("resumed", format!("{} bytes from an earlier run", report.resumed_bytes)));
    }
    let infinite: u64 = report.tensors.iter().map(|tensor| tensor.overflowed).sum();
    if infinite > 0 {
        let most = report.tensors.iter().max_by_key(|tensor| tensor.overflowed);
        let most = most.map_or("", |tensor| &tensor.name);
        rows.push(("infinite", format!("{infinite} elements overflowed, most of them in {most}")));
    }
    rows.extend(report.written.iter().map(|place| ("written", place.clone())));
    let mut table = String::new();
    for (label, value) in rows {
        // Writing to a string does not fail.
        let _ = writeln!(table, "{label:<11} {}", printable(&value));
    }
    for name in &report.ignored {
        let _ = writeln!(table, "ignored     {}: sharding.json does not list it", printable(name));
    }
    for (what, names) in [("dropped", &report.dropped), ("without a rule", &report.kept)] {
        if let Some(first) = names.first() {
            let more = if names.len() > 1 { ", .." } else { "" };
            let count = counted(names.len(), "tensor", "tensors");
            let _ = writeln!(table, "{what:11} {count}: {}{more} (`--json` lists all)", printable(first));
        }
    }
    for line in report.others.lines() {
        let _ = writeln!(table, "{}", printable(&line));
    }
    table
}
