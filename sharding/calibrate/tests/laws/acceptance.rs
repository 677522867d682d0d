//! The form of the profile predicts times that were not measured: on published tables of NCCL.
//!
//! Every measurement is repeated five times with noise, and one of the five is disturbed.

use reshard_calibrate::{Check, Errors, Measurement, Options, Table, calibrate, points};
use reshard_planner::Topology;
use reshard_test_support::Random;

/// The tables of 16-bit elements: of a GPU and a version.
fn tables() -> Vec<(String, Table)> {
    let gpus = [
        ("A100 SXM", &["2.27.3"][..]),
        ("B200 SXM", &["2.27.3", "2.27.5", "2.28.9", "2.29.2"]),
        ("H100 SXM", &["2.23", "2.27.3", "2.29.2"]),
    ];
    let of = |(gpu, labels): (&str, &'static [&str])| {
        let gpu = gpu.to_owned();
        labels.iter().map(move |label| {
            let conditions = [("gpu", gpu.as_str()), ("label", label), ("dtype", "f16")];
            (format!("{gpu}, {label}"), crate::table(crate::INSIDE, &conditions))
        })
    };
    gpus.into_iter().flat_map(of).collect()
}

/// Returns five runs of each measurement: 1 % of noise, and one that takes 1.5 to 4 times as long.
fn runs(table: &Table, random: &mut Random) -> Table {
    let mut runs = Vec::new();
    for m in &table.measurements {
        let disturbed = random.below(5);
        for run in 0..5 {
            let noise = 1.0 + (random.below(2001) as f64 - 1000.0) / 1e5;
            let factor = if run == disturbed { 1.5 + random.below(2501) as f64 / 1e3 } else { 1.0 };
            runs.push(Measurement { us: m.us * noise * factor, ..m.clone() });
        }
    }
    Table { measurements: runs, ..table.clone() }
}

/// Returns `true` for every second measurement, by size, of its collective and group.
fn is_even(table: &Table, m: &Measurement) -> bool {
    let of_curve = |p: &&Measurement| (p.collective, p.nodes, p.ranks) == (m.collective, m.nodes, m.ranks);
    table.measurements.iter().filter(of_curve).filter(|p| p.bytes < m.bytes).count() % 2 == 0
}

/// Calibrates by one part, and predicts another; returns pairs of predicted and measured times.
fn judged(by: &Table, of: &Table, options: &Options, random: &mut Random) -> Vec<(f64, f64)> {
    let (profile, _) = calibrate(&runs(by, random), options).unwrap();
    let topology = Topology::try_from(profile).unwrap();
    let predict = |m: &Measurement| {
        let one = Table { measurements: vec![m.clone()], ..of.clone() };
        (Check::of(&one, &topology).unwrap().worst.predicted_us, m.us)
    };
    of.measurements.iter().map(predict).collect()
}

fn within(name: &str, pairs: Vec<(f64, f64)>, count: usize, median: f64, p90: f64) {
    let errors = Errors::of(pairs).unwrap();
    println!("{name}: {errors:?}");
    assert_eq!(errors.count, count);
    assert!(errors.median_percent <= median && errors.p90_percent <= p90, "{name}: {errors:?}");
}

#[test]
fn sizes_between_those_that_were_measured() {
    let mut random = Random(1);
    let mut all = Vec::new();
    for (name, table) in tables() {
        let fitted = crate::part(&table, |m| is_even(&table, m));
        let between = crate::part(&table, |m| !is_even(&table, m));
        let pairs = judged(&fitted, &between, &Options::new("a test"), &mut random);
        println!("{name}: {:?}", Errors::of(pairs.clone()).unwrap());
        all.extend(pairs);
    }
    within("sizes", all, 921, 5.0, 15.0);
}

#[test]
fn ranks_between_those_that_were_measured() {
    let mut random = Random(2);
    let mut all = Vec::new();
    for (name, table) in tables() {
        let fitted = crate::part(&table, |m| m.ranks != 4);
        let four = crate::part(&table, |m| m.ranks == 4);
        let pairs = judged(&fitted, &four, &Options::new("a test"), &mut random);
        println!("{name}: {:?}", Errors::of(pairs.clone()).unwrap());
        all.extend(pairs);
    }
    within("4 ranks from 2 and 8", all, 645, 6.0, 18.0);
}

#[test]
fn sizes_of_two_nodes() {
    let table = crate::table(crate::BETWEEN, &[("kind", "measured"), ("collective", "all_reduce")]);
    let fitted = crate::part(&table, |m| is_even(&table, m));
    let between = crate::part(&table, |m| !is_even(&table, m));
    let pairs = judged(&fitted, &between, &Options::new("a test"), &mut Random(3));
    within("two nodes", pairs, 8, 6.0, 20.0);
}

/// Medians are within the noise, though one run in five is disturbed, and the report has the disturbance.
#[test]
fn a_disturbed_run_in_five_changes_no_point() {
    let mut random = Random(4);
    for (name, table) in tables() {
        let repeated = runs(&table, &mut random);
        for (point, m) in points(&repeated.measurements).iter().zip(points(&table.measurements)) {
            assert!((point.us / m.us - 1.0).abs() <= 0.01, "{name}: {point:?}");
            assert_eq!(point.deviations.len(), 5);
        }
        let (profile, report) = calibrate(&repeated, &Options::new("a test")).unwrap();
        for (curve, report) in profile.curves.iter().zip(&report.curves) {
            assert!(curve.p90_percent.is_some_and(|p90| p90 > 50.0), "{name}: {curve:?}");
            assert_eq!(curve.p90_percent, report.repeats_p90_percent);
        }
    }
}
