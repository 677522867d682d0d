//! The contract on threads, and the golden plans that are part of it.

use std::path::PathBuf;

use reshard_collectives::Error;
use reshard_collectives::threads::World;
use reshard_conformance::{ContractOptions, ContractReport, GOLDEN};
use reshard_planner::Topology;
use reshard_test_support::Sweep;

fn on_threads(ranks: usize, options: &ContractOptions) -> Vec<ContractReport> {
    let reports =
        World::new(ranks).unwrap().run(|comm| Ok::<_, Error>(reshard_conformance::check(comm, options)));
    reports.into_iter().map(|report| report.unwrap().unwrap_or_else(|failure| panic!("{failure}"))).collect()
}

#[test]
fn threads_keep_the_contract() {
    // A sample of the pairs of shardings over many ranks, or all in an exhaustive run.
    for (ranks, every) in [(1, 1), (2, 1), (3, 2), (5, 12), (8, 16)] {
        let every = Sweep::asked().one_in(every);
        let reports = on_threads(ranks, &ContractOptions { every, ..ContractOptions::default() });
        println!("{ranks} ranks: {}", reports[0]);
        assert!(reports.iter().all(|report| report.redistributions > 100), "{ranks} ranks: {}", reports[0]);
    }
}

#[test]
fn other_seeds_are_other_data() {
    for seed in 2..6 {
        on_threads(4, &ContractOptions { seed, ..ContractOptions::quick() });
    }
}

/// Returns the ops of the steps that a golden file lists, before the greedy planner's.
fn steps_of(file: &str) -> Vec<String> {
    let text = file.split("axis by axis").next().unwrap();
    let numbered = |line: &str| {
        let (number, rest) = line.trim_start().split_once(". ")?;
        number.parse::<usize>().ok()?;
        Some(rest.split_once(" over ")?.0.to_string())
    };
    text.lines().filter_map(numbered).collect()
}

#[test]
fn golden_plans_have_the_steps_of_their_files() {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "sharding", "planner", "tests", "plans"].iter().collect();
    let mut left: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut differ = Vec::new();
    for golden in GOLDEN {
        let alone =
            if golden.name.ends_with("axis_by_axis") { Topology::h100() } else { Topology::uniform() };
        let profiles = [(".uniform", Topology::uniform()), (".h100", Topology::h100()), ("", alone)];
        for (suffix, topology) in profiles {
            let name = format!("{}{suffix}.txt", golden.name);
            let Some(at) = left.iter().position(|file| *file == name) else { continue };
            left.swap_remove(at);
            let known = steps_of(&std::fs::read_to_string(folder.join(&name)).unwrap());
            let plan = golden.plan(&topology).unwrap();
            let steps: Vec<String> = plan.steps().iter().map(|step| step.op().to_string()).collect();
            if steps != known {
                differ.push(format!("{name}: {steps:?}, but the file has {known:?}"));
            }
        }
    }
    assert!(left.is_empty(), "no test runs {left:?}");
    assert!(differ.is_empty(), "{differ:#?}");
}
