//! The profiles that the planner ships are those of the published tables.
//!
//! `RESHARD_WRITE=1` writes them.

use std::fs;
use std::path::Path;

use reshard_calibrate::{Check, Measurement, Options, Report, Table, calibrate};
use reshard_planner::{Compute, Profile, Topology};
use serde_json::Value;

/// A profile and its table.
struct Shipped {
    name: &'static str,
    gpu: &'static str,
    version: &'static str,
    /// The latency and the rate between nodes, if nothing has them.
    between_nodes: (f64, f64),
    /// The first lines of the file.
    comment: &'static str,
    /// The compute rates of the data sheet.
    tflops: [f64; 4],
    memory_gbytes_per_s: f64,
}

const SHIPPED: [Shipped; 3] = [
    Shipped {
        name: "h100",
        gpu: "H100 SXM",
        version: "2.29.2",
        between_nodes: (10.0, 45.0),
        comment: "\
# Nodes of 8 H100 SXM. Curves: nccl-tests with NCCL 2.29.2 on one node, f16, thinned to 3 %. Source: aiconfigurator-core
# 0.12.0 (Apache-2.0), nccl_perf.parquet.
# The numbers of levels are fitted to the same times, and to times of rings over 2 to 32 nodes that are not measured: the
# least over the protocols LL, LL128 and Simple of latency + bytes / rate, both as logged by the tuner of NCCL 2.27.5, at
# each power of two from 512 B to 512 MiB. Source: meta-pytorch/autoparallel (BSD-3-Clause), nccl_cost_model.py.
",
        tflops: [1979.0, 989.0, 67.0, 67.0],
        memory_gbytes_per_s: 3350.0,
    },
    Shipped {
        name: "a100",
        gpu: "A100 SXM",
        version: "2.27.3",
        between_nodes: (10.0, 25.0),
        comment: "\
# Nodes of 8 A100 SXM. Curves: nccl-tests with NCCL 2.27.3 on one node, f16, thinned to 3 %. Source: aiconfigurator-core
# 0.12.0 (Apache-2.0), nccl_perf.parquet. Numbers of the inner level are fitted to the same times.
# Between nodes nothing is measured: a nominal 10 us, and the 25 GB/s of one 200 Gbit/s adapter a GPU.
",
        tflops: [624.0, 312.0, 19.5, 19.5],
        memory_gbytes_per_s: 2039.0,
    },
    Shipped {
        name: "b200",
        gpu: "B200 SXM",
        version: "2.29.2",
        between_nodes: (10.0, 50.0),
        comment: "\
# Nodes of 8 B200 SXM. Curves: nccl-tests with NCCL 2.29.2 on one node, f16, thinned to 3 %. Source: aiconfigurator-core
# 0.12.0 (Apache-2.0), nccl_perf.parquet. Numbers of the inner level are fitted to the same times.
# Between nodes nothing is measured: a nominal 10 us, and the 50 GB/s of one 400 Gbit/s adapter a GPU.
",
        tflops: [4500.0, 2250.0, 75.0, 37.0],
        memory_gbytes_per_s: 7700.0,
    },
];

/// Returns times of rings over several nodes by the latencies and rates that NCCL's tuner logs for a GPU.
///
/// For each size NCCL takes the quickest protocol.
fn tuned(gpu: &str) -> Vec<Measurement> {
    let mut times = Vec::new();
    for line in crate::BETWEEN.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["kind"] != "tuner" || line["algorithm"] != "ring" || line["gpu"] != gpu {
            continue;
        }
        let [nodes, each] = ["nodes", "ranks_per_node"].map(|key| line[key].as_u64().unwrap() as usize);
        let collective = line["collective"].as_str().unwrap().parse().unwrap();
        for bytes in (9..30).map(|doublings| 1u64 << doublings) {
            let us = |protocol: &str| {
                let [us, rate] = ["us", "gbytes_per_s"].map(|key| line[key][protocol].as_f64().unwrap());
                us + bytes as f64 / (rate * 1e3)
            };
            let us = ["LL", "LL128", "Simple"].map(us).into_iter().fold(f64::INFINITY, f64::min);
            times.push(Measurement { collective, nodes, ranks: nodes * each, bytes, us });
        }
    }
    times
}

impl Shipped {
    fn table(&self) -> Table {
        let conditions = [("gpu", self.gpu), ("label", self.version), ("dtype", "f16")];
        crate::table(crate::INSIDE, &conditions)
    }

    fn made(&self) -> (Profile, Report) {
        let for_levels = tuned(self.gpu);
        let of_tuner =
            if for_levels.is_empty() { "" } else { "; between nodes by NCCL's tuner, not measured" };
        let options = Options {
            name: Some(self.name.to_owned()),
            node_ranks: Some(8),
            between_nodes: self.between_nodes,
            thin: Some(0.03),
            for_levels,
            compute: Some(Compute {
                tflops: self.tflops,
                memory_gbytes_per_s: self.memory_gbytes_per_s,
                from: format!("data sheet of {}, dense", self.gpu),
            }),
            ..Options::new(format!("nccl-tests, NCCL {}{of_tuner}", self.version))
        };
        calibrate(&self.table(), &options).unwrap()
    }
}

#[test]
fn shipped_profiles_are_those_of_the_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../planner/profiles");
    for shipped in &SHIPPED {
        let (profile, report) = shipped.made();
        let text = format!("{}{}", shipped.comment, profile);
        let path = folder.join(shipped.name).with_extension("toml");
        if std::env::var_os("RESHARD_WRITE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        // A package of this crate has no profiles.
        if !folder.exists() {
            return;
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "RESHARD_WRITE=1 writes {}", path.display());
        let topology = Topology::try_from(text.parse::<Profile>().unwrap()).unwrap();
        assert_eq!(Profile::from(topology.clone()), profile);
        let check = Check::of(&shipped.table(), &topology).unwrap();
        println!("{}: {topology}", shipped.name);
        println!("  on its table {:?}, levels alone {:?}", check.all, report.levels_alone);
        println!("  expected {:?}, worst {:?}", report.expected, check.worst);
        let knots: usize = profile.curves.iter().map(|curve| curve.bytes.len()).sum();
        println!("  {} curves, {knots} knots", profile.curves.len());
        assert_eq!((check.all.count, profile.curves.len()), (252, 12));
        assert!(check.all.p90_percent <= 3.0, "{:?}", check.all);
        let expected = report.expected.unwrap();
        assert!(expected.median_percent <= 5.0 && expected.p90_percent <= 15.0, "{expected:?}");
    }
}

/// The lines that `h100` had before it was measured are far off on the same table.
#[test]
fn lines_alone_are_far_off() {
    let old = Check::of(&SHIPPED[0].table(), &Topology::h100_lines()).unwrap();
    println!("{:?}", old.all);
    assert!(old.all.median_percent > 12.0 && old.all.p90_percent > 30.0, "{:?}", old.all);
}
