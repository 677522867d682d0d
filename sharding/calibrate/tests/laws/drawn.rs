//! Drawn curves and drawn levels are recovered from disturbed runs.

use reshard_calibrate::{Check, Measurement, Options, Table, calibrate};
use reshard_planner::{Level, StepOp, Topology};
use reshard_test_support::Random;

const COLLECTIVES: [StepOp; 4] =
    [StepOp::AllGather, StepOp::ReduceScatter, StepOp::AllReduce, StepOp::AllToAll];

fn table(measurements: Vec<Measurement>) -> Table {
    Table { measurements, dtype: None, left_out: 0, differing: std::collections::BTreeMap::new() }
}

fn share(random: &mut Random) -> f64 {
    random.below(1 << 20) as f64 / f64::from(1 << 20)
}

/// Returns ascending times with flat parts and jumps, at sizes that ascend by 1.1 to 4 times.
fn drawn(random: &mut Random) -> Vec<(u64, f64)> {
    let (mut bytes, mut us) = (16.0, 1.0 + 30.0 * share(random));
    let mut curve = Vec::new();
    for _ in 0..3 + random.below(28) {
        if us > 1e8 {
            break;
        }
        curve.push((bytes as u64, us));
        bytes = bytes * (1.1 + 2.9 * share(random)) + 1.0;
        us *= match random.below(4) {
            0 => 1.0,
            1 | 2 => 1.0 + share(random),
            _ => 2.0 + 2.0 * share(random),
        };
    }
    curve
}

#[test]
fn curves_are_recovered_from_five_runs_of_which_one_is_disturbed() {
    let mut random = Random(11);
    for case in 0..300 {
        let curve = drawn(&mut random);
        let collective = *random.pick(&COLLECTIVES);
        let (nodes, each) = *random.pick(&[(1, 2), (1, 8), (2, 8), (4, 1), (3, 5)]);
        let mut measurements = Vec::new();
        for &(bytes, us) in &curve {
            for run in 0..5 {
                let noise = 1.0 + (share(&mut random) - 0.5) * 0.02;
                let factor = if run == 2 { 1.5 + 2.5 * share(&mut random) } else { 1.0 };
                let us = us * noise * if random.below(2) == 0 { factor } else { 1.0 / factor };
                measurements.push(Measurement { collective, nodes, ranks: nodes * each, bytes, us });
            }
        }
        let thin = [None, Some(0.03), Some(0.2)][case % 3];
        // Lines of a table have any order.
        for i in (1..measurements.len()).rev() {
            measurements.swap(i, random.below(i + 1));
        }
        let options = Options { thin, ..Options::new("a test") };
        let (profile, report) = calibrate(&table(measurements), &options).unwrap();
        let [made] = &profile.curves[..] else { panic!("{profile:?}") };
        assert!(made.us.is_sorted() && made.bytes.is_sorted());
        assert_eq!(
            made.spread,
            if nodes == 1 {
                vec![each]
            } else if each == 1 {
                vec![nodes]
            } else {
                vec![each, nodes]
            }
        );
        assert_eq!((report.curves[0].sizes, report.curves[0].knots), (curve.len(), made.bytes.len()));
        let topology = Topology::try_from(profile.clone()).unwrap();
        let truth = curve.iter().map(|&(bytes, us)| Measurement {
            collective,
            nodes,
            ranks: nodes * each,
            bytes,
            us,
        });
        let worst = Check::of(&table(truth.collect()), &topology).unwrap().worst;
        // Noise of 1 %, rounding to nanoseconds, and the tolerance of thinning.
        let most = 1.1 + 101.0 * thin.unwrap_or(0.0);
        assert!(worst.error_percent.abs() <= most, "{case}: {worst:?}");
    }
}

/// Returns a network of nodes of 8 ranks.
fn network(random: &mut Random) -> Topology {
    let mut between = |least: f64, most: f64| least * (most / least).powf(share(random));
    let inner = Level { ranks: Some(8), latency_us: between(0.5, 5.0), gbytes_per_s: between(50.0, 900.0) };
    let outer = Level {
        ranks: None,
        latency_us: inner.latency_us * between(1.5, 10.0),
        gbytes_per_s: inner.gbytes_per_s / between(1.5, 20.0),
    };
    Topology::new(between(2.0, 20.0), between(0.1, 1.0), &[inner, outer]).unwrap()
}

/// Returns the predictions of a network for all collectives over some groups.
fn predicted(topology: &Topology, nodes: &[usize]) -> Vec<Measurement> {
    let mut measurements = Vec::new();
    for collective in COLLECTIVES {
        for &nodes in nodes {
            for each in [1, 2, 4, 8] {
                if nodes * each == 1 {
                    continue;
                }
                for doublings in 9..30 {
                    let m = Measurement {
                        collective,
                        nodes,
                        ranks: nodes * each,
                        bytes: 1 << doublings,
                        us: 1.0,
                    };
                    let us = Check::of(&table(vec![m.clone()]), topology).unwrap().worst.predicted_us;
                    measurements.push(Measurement { us, ..m });
                }
            }
        }
    }
    measurements
}

fn numbers(topology: &Topology) -> Vec<f64> {
    let of_levels = topology.levels().iter().flat_map(|l| [l.latency_us, l.gbytes_per_s]);
    [topology.launch_us(), topology.message_us()].into_iter().chain(of_levels).collect()
}

/// Exact times give the numbers to their three digits; with one time in five disturbed, within a tenth.
#[test]
fn levels_are_recovered() {
    let mut random = Random(12);
    for case in 0..40 {
        let truth = network(&mut random);
        let exact = predicted(&truth, &[1, 2, 4]);
        for is_disturbed in [false, true] {
            let mut measurements = exact.clone();
            if is_disturbed {
                for m in &mut measurements {
                    m.us *= 1.0 + (share(&mut random) - 0.5) * 0.02;
                    if random.below(5) == 0 {
                        m.us *= 1.5 + 2.5 * share(&mut random);
                    }
                }
            }
            let (profile, report) = calibrate(&table(measurements), &Options::new("a test")).unwrap();
            let found = Topology::try_from(profile).unwrap().lines();
            assert!(report.nominal.is_empty());
            let most = if is_disturbed { 0.1 } else { 0.006 };
            for (found, truth) in numbers(&found).iter().zip(numbers(&truth)) {
                assert!((found / truth - 1.0).abs() <= most, "{case}, {is_disturbed}: {found}, {truth}");
            }
        }
    }
}

/// Numbers without a measurement are nominal, and the report names them.
#[test]
fn numbers_without_a_measurement_are_nominal() {
    use reshard_calibrate::Nominal;
    let truth = network(&mut Random(13));
    let inside = table(predicted(&truth, &[1]));
    let options = Options { node_ranks: Some(8), between_nodes: (100.0, 1.5), ..Options::new("a test") };
    let (profile, report) = calibrate(&inside, &options).unwrap();
    assert_eq!(report.nominal, [Nominal::BetweenNodes]);
    assert_eq!(profile.levels[1], Level { ranks: None, latency_us: 100.0, gbytes_per_s: 1.5 });
    // An outer level is never faster than the inner one.
    let fast = Options { between_nodes: (0.0, 1e6), ..options };
    let (profile, _) = calibrate(&inside, &fast).unwrap();
    assert_eq!(Level { ranks: Some(8), ..profile.levels[1] }, profile.levels[0]);
    // Without --levels one node is the whole network.
    let (profile, report) = calibrate(&inside, &Options::new("a test")).unwrap();
    assert_eq!((profile.levels.len(), report.nominal.len()), (1, 0));
    let mut gathers = predicted(&truth, &[1]);
    gathers.retain(|m| m.collective != StepOp::AllToAll);
    let (profile, report) = calibrate(&table(gathers), &Options::new("a test")).unwrap();
    assert_eq!((report.nominal, profile.message_us), (vec![Nominal::Message], 0.2));
    assert_eq!(profile.measured.unwrap().from, "a test; time per peer of an exchange nominal");
}
