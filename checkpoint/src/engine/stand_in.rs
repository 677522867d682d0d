//! The engine `nccl` without NCCL: the processes are threads over a recording stand-in for its calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use reshard_nccl::Comm;
use reshard_nccl::testing::{Fault, FaultKind, RecordingWorld};

use crate::engine::one_process::carry_out;
use crate::engine::pipeline;
use crate::engine::processes::OneRank;
use crate::engine::together::Stop;
use crate::error::{Error, ErrorClass};
use crate::job::report::JobReport;
use crate::job::{Engine, ReshardJob};

type Outcome = Result<JobReport, Stop>;

/// Runs a job on every rank of a recording world, and returns each rank's result.
fn run(world: &RecordingWorld, args: &ReshardJob, time_out: Duration) -> Vec<Outcome> {
    let args = ReshardJob { engine: Engine::Nccl, ..args.clone() };
    world.run(|nccl| {
        let mut one = OneRank::new(Comm::with_time_out(nccl, time_out)?);
        pipeline::carry_out(&args, &mut one, &mut (), &|_, _, _| {})
    })
}

const LONG: Duration = Duration::from_mins(1);

/// Returns the names and bytes of all files of a directory.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

fn tensors(report: &JobReport) -> serde_json::Value {
    let mut all = serde_json::to_value(report).unwrap();
    all["seconds"] = 0.into();
    all
}

#[test]
fn every_file_and_the_report_are_those_of_the_threads_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |text: &str| Some(text.to_owned());
    // The embedded block over 8 ranks, from there to 6 of other meshes, and finally into one file.
    let steps = [
        (8, None, None, None),
        (8, text("eight"), text("cp=3,tp=2"), text("S(0),R")),
        (6, text("six"), text("x=3@2"), text("S(0)")),
    ];
    for (turn, (ranks, input, mesh, to)) in steps.into_iter().enumerate() {
        let name = ["eight", "six", "five"][turn];
        let one = |engine: &str| ReshardJob {
            input: input.as_ref().map(|input| path(input)),
            mesh: mesh.clone(),
            to: to.clone(),
            out: Some(path(&format!("{name}{engine}"))),
            gather: Some(path(&format!("{name}{engine}.safetensors"))),
            ..ReshardJob::default()
        };
        let (threads, nccl) = (one(""), one("-nccl"));
        let expected = carry_out(&threads, &mut (), &|_, _, _| {}).unwrap();
        let world = RecordingWorld::new(ranks);
        for (rank, outcome) in run(&world, &nccl, LONG).into_iter().enumerate() {
            let report = outcome.unwrap_or_else(|stop| panic!("rank {rank}: {stop:?}"));
            assert_eq!(tensors(&report), tensors(&expected), "rank {rank} of {name}");
            assert_eq!(report.written.len(), if rank == 0 { 2 } else { 0 });
            assert_eq!(world.allocations(rank), 0, "rank {rank} leaks");
        }
        assert_eq!(world.left_over(), 0);
        let of = |args: &ReshardJob| files(args.out.as_ref().unwrap());
        assert!(of(&threads) == of(&nccl), "{name}: files differ");
        let whole = |args: &ReshardJob| fs::read(args.gather.as_ref().unwrap()).unwrap();
        assert!(whole(&threads) == whole(&nccl), "{name}: gathered files differ");
    }
}

#[test]
fn a_refusal_is_told_by_one_rank_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (mesh, to, kind, said) in [
        ("a=4", "S(0)", "rank", "torchrun --no-python --nproc-per-node 4"),
        ("a=3", "S(9)", "no_such_dim", "S(9)"),
        ("a=3", "P", "partial_target", "partial"),
    ] {
        let out = Some(folder.path().join("out"));
        let args = ReshardJob { mesh: text(mesh), to: text(to), out, ..ReshardJob::default() };
        let stops: Vec<Error> = run(&RecordingWorld::new(3), &args, LONG)
            .into_iter()
            .map(|outcome| match outcome.map(|_| ()) {
                Err(Stop::Together(error)) => error,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(stops.iter().all(|error| error.status() == 2));
        let told: Vec<&Error> = stops.iter().filter(|e| e.class() == ErrorClass::Refused).collect();
        assert!(
            matches!(told[..], [one] if one.code() == kind && one.to_string().contains(said)),
            "{stops:?}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// For a fault in any group, every rank ends in time with an error, and the output is absent or complete.
#[test]
fn a_fault_ends_every_rank_and_an_output_is_whole_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| Some(folder.path().join(name));
    carry_out(&ReshardJob { out: out("wanted"), ..ReshardJob::default() }, &mut (), &|_, _, _| {}).unwrap();
    let wanted = files(&folder.path().join("wanted"));
    let (mut failed, mut done) = (0, 0);
    for (turn, group) in [0, 1, 3, 9, 14, 27, 10_000].into_iter().enumerate() {
        let kind = [FaultKind::Refused, FaultKind::Asynchronous, FaultKind::Stalled][turn % 3];
        let args = ReshardJob { out: out(&format!("out{turn}")), ..ReshardJob::default() };
        let world = RecordingWorld::new(8);
        world.plant([Fault { rank: turn % 8, group, kind }]);
        let start = Instant::now();
        // Without a fault no timeout expires, however busy the machine is.
        let outcomes = run(&world, &args, if group < 10_000 { Duration::from_millis(700) } else { LONG });
        assert!(start.elapsed() < Duration::from_mins(1), "{kind:?} in {group}");
        let there = folder.path().join(format!("out{turn}"));
        assert!(!there.exists() || files(&there) == wanted, "half an output: {kind:?} in {group}");
        let ended = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        if ended == 0 {
            failed += 1;
            for (rank, outcome) in outcomes.iter().enumerate() {
                let Err(Stop::Alone(error)) = outcome else { panic!("rank {rank}: {outcome:?}") };
                assert_eq!(error.status(), 1);
                assert!(error.to_string().contains("the communicator is aborted"), "{error}");
            }
        } else {
            done += 1;
            // Success and failure are never reported by different ranks of one run.
            assert!(ended == 8 && there.exists(), "{kind:?} in {group}: {outcomes:?}");
        }
    }
    assert!(failed >= 5 && done >= 1, "{failed} {done}");
}
