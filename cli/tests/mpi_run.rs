//! `reshard run --engine mpi` and `reshard step --engine mpi` under `mpirun`: the same bytes as the threads
//! engine, errors reported once, and outputs that are whole or absent when a rank is killed or stalls.
#![cfg(feature = "mpi")]

mod checkpoints;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use checkpoints::{Tensors, mixed, tensor, write};
use program::{Outcome, started, text};
use reshard_test_support::Sweep;
use safetensors::Dtype;
use tempfile::{TempDir, tempdir_in};

/// The command that starts jobs, up to the number of ranks; `RESHARD_MPIRUN` replaces it.
const MPIRUN: &str = "mpirun --oversubscribe --allow-run-as-root --bind-to none";

fn folder() -> TempDir {
    tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn start(ranks: usize, arguments: &[&str]) -> Child {
    begin(ranks, "run", arguments)
}

fn begin(ranks: usize, command: &str, arguments: &[&str]) -> Child {
    let mpirun = std::env::var("RESHARD_MPIRUN").unwrap_or_else(|_| MPIRUN.to_string());
    let mut words = mpirun.split_whitespace();
    Command::new(words.next().unwrap())
        .args(words)
        .args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_reshard"), command, "--engine", "mpi"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mpirun starts")
}

fn end(child: Child) -> Outcome {
    let output = child.wait_with_output().unwrap();
    Outcome {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn mpi(ranks: usize, arguments: &[&str]) -> Outcome {
    end(start(ranks, arguments))
}

fn threads(arguments: &[&str]) -> Outcome {
    started(&[&["run", "--engine", "threads"], arguments].concat())
}

/// The names and bytes of all files of a directory.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

/// One run by both engines into two directories and two files, which must be the same; returns the directory.
#[track_caller]
fn both(dir: &Path, name: &str, ranks: usize, arguments: &[&str]) -> String {
    let path = |engine: &str, what: &str| text(&dir.join(format!("{name}-{engine}{what}"))).to_owned();
    let run = |engine: &str, run: &dyn Fn(&[&str]) -> Outcome| {
        let outputs = ["--json", "--out", &path(engine, ""), "--gather", &path(engine, ".safetensors")];
        let mut report = run(&[arguments, &outputs].concat()).json();
        report["seconds"] = 0.into();
        report
    };
    let ours = run("mpi", &|arguments| mpi(ranks, arguments));
    assert_eq!(ours, run("threads", &threads), "the reports differ");
    assert!(
        files(Path::new(&path("mpi", ""))) == files(Path::new(&path("threads", ""))),
        "{name}: files differ"
    );
    let whole = |engine: &str| fs::read(path(engine, ".safetensors")).unwrap();
    assert!(whole("mpi") == whole("threads"), "{name}: gathered files differ");
    path("mpi", "")
}

#[test]
fn every_file_is_that_of_the_threads_engine() {
    let dir = folder();
    let input = dir.path().join("input.safetensors");
    write(&input, &mixed());
    let eight = both(dir.path(), "eight", 8, &[text(&input), "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)"]);
    let six = both(dir.path(), "six", 8, &[&eight, "--mesh", "cp=3,tp=2", "--to", "S(0),R"]);
    both(dir.path(), "five", 6, &[&six, "--mesh", "x=3@2", "--to", "S(0)"]);
    both(dir.path(), "from", 3, &[text(&input), "--mesh", "x=3", "--from", "S(0)", "--to", "S(1)"]);
    both(dir.path(), "embedded", 8, &[]);
}

#[test]
fn the_real_checkpoint_over_four_ranks() {
    let Some(file) = std::env::var_os("RESHARD_MINILM").filter(|path| Path::new(path).is_file()) else {
        eprintln!("SKIPPED: RESHARD_MINILM is not the path of a file; see scripts/fetch_minilm.sh");
        return;
    };
    let dir = folder();
    let first =
        both(dir.path(), "first", 4, &[text(Path::new(&file)), "--mesh", "dp=2,tp=2", "--to", "S(0),S(1)"]);
    let second = both(dir.path(), "second", 4, &[&first, "--mesh", "tp=4", "--to", "S(0)"]);
    both(dir.path(), "third", 4, &[&second, "--mesh", "dp=2,tp=2", "--to", "S(1),R"]);
}

/// Processes give the answer of threads but for the last bits, since reductions have another order.
///
/// The first process alone reports a step.
#[test]
fn a_step_of_processes_is_that_of_threads() {
    let dir = folder();
    let file = dir.path().join("step.txt");
    let text_of = "mesh dp=2,tp=2\nmesh storage: fsdp=4\nx: f32[7,16] S(0),I\nw: f32[16,32] S(0) on storage\nv: f32[32,16] I,S(0)\n\
                   h = mm(x, w)\na = relu(h)\ny: S(0),I = mm(a, v)\nloss = sum(y)\ngradient loss wrt w, v\nw' = sgd(w, dw)\n";
    fs::write(&file, text_of).unwrap();
    // The same with a communication dtype: the program then runs twice, also without it.
    let wired = dir.path().join("wired.txt");
    fs::write(&wired, text_of.replace("y: S(0),I = mm(a, v)", "vr: I,R via bf16 = v\ny: S(0),I = mm(a, vr)"))
        .unwrap();
    let (file, wired) = (text(&file), text(&wired));
    for (file, dtype) in [(file, "f64"), (file, "f32"), (wired, "f64")] {
        let arguments = [file, "--json", "--seed", "5", "--dtype", dtype];
        let (ours, theirs) =
            (end(begin(4, "step", &arguments)), started(&[&["step"][..], &arguments].concat()));
        assert_eq!(ours.stdout.lines().count(), 1, "{ours:?}");
        let (mut ours, mut theirs) = (ours.json(), theirs.json());
        assert_eq!((&ours["verified"], &ours["ranks"]), (&true.into(), &4.into()), "{ours}");
        for answer in [&mut ours, &mut theirs] {
            let names: Vec<_> =
                answer["gradients"].as_array().unwrap().iter().map(|g| g["name"].clone()).collect();
            answer["gradients"] = names.into();
            answer.as_object_mut().unwrap().retain(|key, _| {
                // Threads count the bytes of such transfers in the dtype of the computation, schedules in the
                // narrower one.
                !["worst", "loss"].contains(&key.as_str()) && (key != "received_bytes" || file != wired)
            });
            if let Some(wires) = answer.get("wires") {
                assert!(wires["relative_error"].as_f64().unwrap() > 1e-6, "{answer}");
            }
            assert_eq!(answer.get("wires").is_some(), file == wired, "{answer}");
        }
        assert_eq!(ours, theirs);
    }
    let refused = |ranks: usize, arguments: &[&str], kind: &str, said: &str| {
        let outcome = end(begin(ranks, "step", arguments));
        let sentences: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(matches!(sentences[..], [one] if one.contains(said)), "{said:?}: {outcome:?}");
        assert_eq!(outcome.status, 2, "{outcome:?}");
        assert!(outcome.stdout.is_empty() || outcome.stdout.contains(kind), "{outcome:?}");
    };
    refused(3, &[file, "--json"], "world", "the job has 3 ranks, but the mesh `dp=2,tp=2` needs 4");
    refused(2, &["-"], "io", "only the first has stdin");
    refused(2, &["/nowhere"], "io", "/nowhere");
}

/// The first process alone writes and reports; ranks of one machine are one node, unless `--levels` is given.
#[test]
fn collectives_are_measured_on_processes() {
    let dir = folder();
    let [table, profile, made] =
        ["table.jsonl", "profile.toml", "made.toml"].map(|name| text(&dir.path().join(name)).to_owned());
    let texts = ["--name", "a test", "--measured-by", "a test", "--date", "2026-11-28", "--json"];
    let cases: [(usize, &[&str], &[&str]); 2] =
        [(2, &[], &["[2]"]), (4, &["--levels", "2"], &["[2]", "[1,2]", "[2,2]"])];
    for (ranks, levels, spreads) in cases {
        let arguments = ["--most-bytes", "1KiB", "--seconds", "10", "--write", &profile, "--table", &table];
        let outcome = end(begin(ranks, "calibrate", &[&arguments[..], levels, &texts].concat()));
        assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
        let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        let is_settled = report["unsettled"].as_array().unwrap().is_empty();
        assert_eq!(outcome.status, i32::from(!is_settled), "{outcome:?}");
        let curves = report["curves"].as_array().unwrap();
        assert_eq!(curves.len(), 4 * spreads.len(), "{report}");
        for curve in curves {
            assert!(spreads.contains(&curve["spread"].to_string().as_str()), "{curve}");
        }
        let arguments = ["calibrate", "--from", &table, "--write", &made];
        assert_eq!(started(&[&arguments[..], &texts].concat()).status, 0);
        assert!(
            fs::read(&made).unwrap() == fs::read(&profile).unwrap(),
            "{profile} is another than of {table}"
        );
    }
    let outcome = end(begin(2, "calibrate", &["--world", "3", "--write", &profile]));
    let told: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(told, ["error: the job has 2 ranks, but `--world` is 3; start 3 processes"], "{outcome:?}");
    assert_eq!(outcome.status, 2);
}

/// A step whose processes have a program each.
fn step_of_each(files: &[&str]) -> Child {
    let mpirun = std::env::var("RESHARD_MPIRUN").unwrap_or_else(|_| MPIRUN.to_string());
    let mut words = mpirun.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    for (n, file) in files.iter().enumerate() {
        let between = if n > 0 { &[":"][..] } else { &[] };
        let reshard = ["-n", "1", env!("CARGO_BIN_EXE_reshard"), "step", "--engine", "mpi", file];
        command.args(between).args(reshard);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("mpirun starts")
}

/// No rank waits for one that has failed: the timeout is a minute.
#[test]
fn what_one_rank_is_refused_is_known_to_all_at_once() {
    let dir = folder();
    let write = |name: &str, text_of: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text_of).unwrap();
        text(&file).to_owned()
    };
    let good =
        "mesh dp=2\nx: f32[8,16] S(0)\nw: f32[16,4] I\ny = mm(x, w)\nloss = sum(y)\ngradient loss wrt w\n";
    let [good, bad, other] = [
        write("good.txt", good),
        write("bad.txt", &good.replace("mm(", "mn(")),
        write("other.txt", &good.replace("loss = sum(y)", "z = relu(y)\nloss = sum(z)")),
    ];
    let missing = dir.path().join("missing.txt");
    let cases = [
        ([good.as_str(), text(&missing)], "error: rank 1: ", "missing.txt"),
        ([text(&missing), good.as_str()], "error: rank 0: ", "missing.txt"),
        ([good.as_str(), bad.as_str()], "error: rank 1: ", "mn"),
        ([good.as_str(), other.as_str()], "error: ranks 0 and 1 have different programs", "the same file"),
    ];
    for (files, begins, said) in cases {
        let began = Instant::now();
        let outcome = end(step_of_each(&files));
        let sentences: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(
            matches!(sentences[..], [one] if one.starts_with(begins) && one.contains(said)),
            "{begins}: {outcome:?}"
        );
        assert_eq!(outcome.status, 2, "{outcome:?}");
        assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    }
}

#[test]
fn refusals_are_told_once() {
    let dir = folder();
    let (input, out) = (dir.path().join("input.safetensors"), dir.path().join("out"));
    write(&input, &mixed());
    let input = text(&input);
    let refused = |ranks: usize, arguments: &[&str], kind: &str, said: &str| {
        let outcome = mpi(ranks, &[arguments, &["--json", "--out", text(&out)]].concat());
        assert_eq!(outcome.status, 2, "{outcome:?}");
        let sentences: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(matches!(sentences[..], [one] if one.contains(said)), "{said:?}: {outcome:?}");
        assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
        let object: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(object["error"]["kind"], kind);
        let left: Vec<String> = files(dir.path()).into_keys().collect();
        assert_eq!(left, ["input.safetensors"], "a file was left");
    };
    refused(3, &[input, "--mesh", "a=4", "--to", "S(0)"], "rank", "`mpirun -n 4`");
    refused(5, &[input, "--mesh", "a=4", "--to", "S(0)"], "rank", "the MPI job has 5");
    refused(2, &[input, "--mesh", "a=2", "--to", "S(9)"], "no_such_dim", "S(9)");
    refused(2, &[input, "--mesh", "a=2"], "usage", "--to");
    refused(2, &["/nowhere", "--mesh", "a=2", "--to", "R"], "input", "/nowhere");
    refused(2, &[input, "--mesh", "a=2", "--to", "R", "--only", "x"], "unused_pattern", "`x`");
}

#[test]
fn an_output_that_is_there_is_not_replaced() {
    let dir = folder();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("precious"), "x").unwrap();
    let outcome = mpi(8, &["--out", text(&out)]);
    assert!(outcome.status == 2 && outcome.stderr.contains("--force"), "{outcome:?}");
    assert_eq!(files(&out).len(), 1);
    let outcome = mpi(8, &["--out", text(&out), "--force"]);
    assert!(outcome.status == 2 && outcome.stderr.contains("precious"), "{outcome:?}");
    fs::remove_file(out.join("precious")).unwrap();
    for force in [&[][..], &["--force"]] {
        assert_eq!(mpi(8, &[&["--out", text(&out)], force].concat()).status, 0);
    }
    assert_eq!(files(&out).len(), 9);
}

/// The time limit of a disturbed run: the timeout, and some time for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Returns `true` if an output was begun in this folder.
fn has_begun(dir: &Path) -> bool {
    let mut names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_string_lossy().starts_with(".out.reshard-"))
}

/// The processes of a run that writes to this directory, without the one that started it.
fn ranks_of(out: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let id = entry.file_name().into_string().unwrap_or_default();
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let is_ours = words.first().is_some_and(|word| word.ends_with(b"/reshard"));
        if is_ours && words.contains(&out.as_bytes()) {
            found.push(id);
        }
    }
    found
}

/// Strikes a run that reshards and writes with a signal at many moments, a third of them with the tests.
fn strike(signal: &str) {
    let dir = folder();
    let input = dir.path().join("input.safetensors");
    let names: Vec<String> = (0..24).map(|i| format!("layer.{i}")).collect();
    let tensors: Tensors = names.iter().map(|name| tensor(name, Dtype::F32, &[1024, 512])).collect();
    write(&input, &tensors);
    let arguments = [text(&input), "--mesh", "a=4", "--from", "S(0)", "--to", "S(1)", "--timeout", "2"];
    let (wanted, out) = (dir.path().join("wanted"), dir.path().join("out"));
    assert_eq!(threads(&[&arguments[..7], &["--out", text(&wanted)]].concat()).status, 0);
    let (wanted, mut failed) = (files(&wanted), 0);
    // At once in any case, so that some strike comes in time.
    let takes = |turn: &u32| *turn == 0 || Sweep::asked().takes_one_in(3, *turn as usize);
    let turns: Vec<u32> = (0..12).filter(takes).collect();
    for &turn in &turns {
        for entry in fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_name().to_string_lossy().contains("out") {
                fs::remove_dir_all(entry.path()).unwrap();
            }
        }
        let child = start(4, &[&arguments[..], &["--out", text(&out)]].concat());
        let begin = Instant::now();
        // Kill it while it transfers and writes: from when the hidden directory exists.
        while !has_begun(dir.path()) && !out.exists() {
            assert!(begin.elapsed() < Duration::from_mins(1), "the run does not get going: {:?}", end(child));
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(turn.into()) * 4);
        if let Some(victim) = ranks_of(text(&out)).get(turn as usize % 4) {
            let _ = Command::new("kill").args([signal, victim]).stderr(Stdio::null()).status();
        }
        let struck = Instant::now();
        let (done, watch) = std::sync::mpsc::channel::<()>();
        let rest = text(&out).to_owned();
        let watcher = std::thread::spawn(move || {
            // If a rank stalls after the output is complete, only the launcher waits for it.
            if watch.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").arg("-KILL").args(ranks_of(&rest)).status();
            }
        });
        let outcome = end(child);
        drop(done);
        watcher.join().unwrap();
        let took = struck.elapsed();
        let success = outcome.stdout.contains("every byte of every rank");
        assert!(took < LIMIT || out.exists(), "turn {turn}: it took {took:?}: {outcome:?}");
        // A rank that is struck when everything is in place may still end the job with an error.
        assert!(success || outcome.status != 0, "turn {turn}: {outcome:?}");
        // Absent or whole; and not absent after a success.
        assert!(out.exists() || !success, "turn {turn}: {outcome:?}");
        assert!(!out.exists() || files(&out) == wanted, "turn {turn}: half an output: {outcome:?}");
        failed += usize::from(!success);
    }
    println!("{signal}: {failed} of {} runs failed", turns.len());
    assert!(failed > 0, "no strike came in time");
}

#[test]
fn an_output_is_whole_or_absent_when_a_rank_is_killed() {
    strike("-KILL");
}

#[test]
fn an_output_is_whole_or_absent_when_a_rank_stalls() {
    strike("-STOP");
}
