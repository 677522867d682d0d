//! The calls to NCCL itself and to the driver, over stand-ins for both libraries.
//!
//! The tests check their order, their parameters, the handling of their errors, and that nothing is left
//! open. The plans need no kernel, as there is no device to run one. The stand-ins are compiled by a C
//! compiler and found as the libraries are, in a separate process.

#![cfg(feature = "nccl")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_nccl::{Comm, Nccl, Real};
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

const RANKS: usize = 4;
const TIME_OUT: Duration = Duration::from_secs(2);

/// Runs a job on every rank, each a thread with a separate communicator.
fn on_all_ranks<T: Send>(time_out: Duration, job: impl Fn(&mut Comm<Real>) -> T + Sync) -> Vec<T> {
    let id = Real::make_id().unwrap();
    std::thread::scope(|scope| {
        let start = |rank| {
            let job = &job;
            scope.spawn(move || {
                let real = Real::open(0, &id, rank, RANKS).unwrap();
                job(&mut Comm::with_time_out(real, time_out).unwrap())
            })
        };
        let threads: Vec<_> = (0..RANKS).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs a plan once on `[8, 6]` numbers, all of them the rank's own; returns this rank's new shard.
fn run(comm: &mut Comm<Real>, mesh: &str, from: &str, to: &str) -> Result<Vec<i32>, Error> {
    let mesh: Mesh = mesh.parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[8, 6], text).unwrap();
    let plan = Planner::new().plan(&sharding(from), &sharding(to), DType::I32).unwrap();
    let compiled = CompiledPlan::new(&plan, comm.rank())?;
    let mut scratch = compiled.scratch(comm)?;
    let mut source = comm.allocate(compiled.source_bytes())?;
    let number = (10 * comm.rank() + 1) as i32;
    comm.write(&mut source, &number.to_ne_bytes().repeat(compiled.source_bytes() / 4))?;
    let mut target = comm.allocate(compiled.target_bytes())?;
    compiled.run(comm, &source, &mut target, &mut scratch)?;
    let mut shard = vec![0; compiled.target_bytes()];
    comm.read(&target, &mut shard)?;
    Ok(shard.chunks_exact(4).map(|item| i32::from_ne_bytes([item[0], item[1], item[2], item[3]])).collect())
}

/// Runs the part of the tests over the stand-ins; does nothing unless started so.
#[test]
fn over_stand_ins() {
    match std::env::var("RESHARD_STAND_INS").as_deref() {
        Ok("plans") => plans(),
        Ok("faults") => faults(),
        Ok(_) | Err(_) => {}
    }
}

fn plans() {
    assert_eq!(Real::version().unwrap(), 22809);
    let said = Real::open(1, &Real::make_id().unwrap(), 0, 1).unwrap_err().to_string();
    assert!(said.contains("failed: CUDA_ERROR_INVALID_DEVICE"), "{said}");
    let all = on_all_ranks(Duration::from_secs(30), |comm| {
        assert_eq!(
            comm.share(&[comm.rank() as u64, 7]).unwrap(),
            (0..4).map(|r| vec![r, 7]).collect::<Vec<_>>()
        );
        let rows = |of: &[i32], each: usize| of.iter().flat_map(|n| vec![*n; each]).collect::<Vec<i32>>();
        // An all-gather, of all and of groups with separate communicators.
        assert_eq!(run(comm, "x=4", "S(0)", "R").unwrap(), rows(&[1, 11, 21, 31], 12));
        let pairs = run(comm, "x=2,y=2", "S(0),S(0)", "S(0),R").unwrap();
        assert_eq!(pairs, rows(&if comm.rank() < 2 { [1, 11] } else { [21, 31] }, 12));
        assert_eq!(comm.nccl().communicators(), 2);
        // Reductions of integers by the library.
        assert_eq!(run(comm, "x=4", "P", "R").unwrap(), [64; 48]);
        assert_eq!(run(comm, "x=4", "P(max)", "S(0)").unwrap(), [31; 12]);
        assert_eq!(run(comm, "x=4", "P(min)", "R").unwrap(), [1; 48]);
        assert_eq!(run(comm, "x=4", "P", "S(0)").unwrap(), [64; 12]);
        comm.take_received_bytes()
    });
    // Of 192 bytes: 3/4, 1/4, and of reductions 6/4, 3/4, 6/4, 3/4.
    assert_eq!(all, [192 * 22 / 4; RANKS]);
}

fn faults() {
    let start = Instant::now();
    let said = on_all_ranks(TIME_OUT, |comm| {
        let first = run(comm, "x=4", "S(0)", "R").unwrap_err();
        let again = run(comm, "x=4", "S(0)", "R").unwrap_err();
        assert!(again.to_string().contains(&first.to_string()), "{again}");
        assert_eq!(comm.nccl().communicators(), 0);
        first.to_string()
    });
    // A run of this length counts as hanging.
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
    for said in &said {
        assert!(said.contains("step 0 of group [0,1,2,3]; the communicator is aborted"), "{said}");
    }
    println!("RANK 1 SAYS {}", said[1]);
}

/// Starts a process over the stand-ins in a folder.
fn start(folder: &Path, what: &str, fault: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "over_stand_ins", "--nocapture"])
        .envs([("RESHARD_STAND_INS", what), ("STAND_IN_FAULT", fault)])
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .unwrap()
}

fn compiled() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_ins/libraries.c");
    let library = folder.path().join("libcuda.so");
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&library, &source])
        .output();
    let Ok(output) = output else {
        assert!(std::env::var_os("CI").is_none(), "there is no C compiler to make stand-ins with");
        eprintln!("SKIPPED: there is no C compiler to make stand-ins with");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One library under both names.
    std::os::unix::fs::symlink(&library, folder.path().join("libnccl.so")).unwrap();
    std::os::unix::fs::symlink(&library, folder.path().join("libnvrtc.so")).unwrap();
    Some(folder)
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn plans_go_through_the_libraries_and_leave_nothing_open() {
    let Some(folder) = compiled() else { return };
    let output = start(folder.path(), "plans", "");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn an_error_of_the_library_or_a_stall_aborts_and_is_told_in_time() {
    let Some(folder) = compiled() else { return };
    // Groups: the control words, the all-gather.
    for group in 0..2 {
        for (kind, reason) in [
            ("refused", "ncclGroupEnd failed: unhandled system error"),
            ("asynchronous", "a call of NCCL failed: remote process exited"),
            ("stalled", "NCCL did not finish within 2s"),
        ] {
            let output = start(folder.path(), "faults", &format!("1:{group}:{kind}"));
            let said = text(&output);
            assert!(output.status.success(), "{kind} in {group}: {said}");
            assert!(said.contains("RANK 1 SAYS") && said.contains(reason), "{kind} in {group}: {said}");
        }
    }
}
