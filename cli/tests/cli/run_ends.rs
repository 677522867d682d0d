//! However `reshard run` ends, its outputs are whole or absent, and nothing else stays.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use reshard_test_support::Random;
use safetensors::Dtype;
use tempfile::{TempDir, tempdir};

use crate::checkpoints::{rank_files, read, tensor, write};
use crate::program::{program, reshard, text};

/// An input that takes a while, and a folder for outputs.
struct Setting {
    dir: TempDir,
}

impl Setting {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        let tensors = (0..12).map(|at| tensor(&format!("t{at}"), Dtype::F32, &[64, 64 * (1 + at)]));
        write(&dir.path().join("w.safetensors"), &tensors.collect());
        fs::create_dir(dir.path().join("place")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        text(&self.dir.path().join(name)).to_owned()
    }

    fn arguments(&self) -> Vec<String> {
        let [input, out, gather] = ["w.safetensors", "place/out", "place/g"].map(|name| self.path(name));
        let flags =
            ["--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--force", "--out", &out, "--gather", &gather];
        let flags = flags.map(str::to_owned);
        [["run".to_owned(), input].to_vec(), flags.to_vec()].concat()
    }

    fn start(&self) -> Child {
        let mut command = Command::new(program());
        command.args(self.arguments()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The names in the folder of the outputs.
    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path("place")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Each output is absent or whole.
    fn check(&self) {
        let (out, gathered) = (self.path("place/out"), self.path("place/g"));
        if Path::new(&out).exists() {
            assert_eq!(rank_files(Path::new(&out)).len(), 8);
            let again = self.path("again");
            reshard(&["run", "--json", &out, "--gather", &again]).json();
            assert_eq!(read(Path::new(&again)), read(Path::new(&self.path("w.safetensors"))));
            fs::remove_file(again).unwrap();
        }
        if Path::new(&gathered).exists() {
            assert_eq!(read(Path::new(&gathered)), read(Path::new(&self.path("w.safetensors"))));
        }
    }

    fn span(&self) -> Duration {
        let begin = Instant::now();
        assert!(self.start().wait().unwrap().success());
        begin.elapsed()
    }
}

/// The number of kills of each kind; `RESHARD_KILLS` changes it.
fn kills() -> usize {
    std::env::var("RESHARD_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20)
}

#[test]
fn what_a_killed_run_leaves_the_next_one_removes() {
    let setting = Setting::new();
    let span = setting.span();
    let mut random = Random(1);
    let mut left = 0;
    for _ in 0..kills() {
        let mut child = setting.start();
        sleep(span.mul_f64(random.below(1000) as f64 / 1000.0));
        child.kill().unwrap();
        child.wait().unwrap();
        left += usize::from(setting.names().iter().any(|name| name.starts_with('.')));
        setting.check();
    }
    println!("{left} of {} killed runs left a hidden folder", kills());
    assert!(left > 0, "no run was killed while it wrote");
    setting.span();
    assert_eq!(setting.names(), ["g", "out"].map(str::to_owned).into());
}

#[test]
fn a_signal_removes_what_was_begun() {
    let setting = Setting::new();
    let span = setting.span();
    let mut random = Random(2);
    let mut interrupted = 0;
    for turn in 0..kills() {
        let (name, number) = [("INT", 2), ("TERM", 15), ("HUP", 1)][turn % 3];
        let mut child = setting.start();
        sleep(span.mul_f64(0.1 + random.below(900) as f64 / 1000.0));
        // It may have ended.
        let _ = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).output().unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() || status.signal() == Some(number), "{status:?}");
        interrupted += usize::from(!status.success());
        assert_eq!(setting.names(), ["g", "out"].map(str::to_owned).into());
        setting.check();
    }
    println!("{interrupted} of {} runs ended by a signal, and none left anything", kills());
    assert!(interrupted > 0);
}

/// Folders above an output that did not come about go with it.
#[test]
fn a_run_that_fails_leaves_no_folders() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("a/b/out");
    let gather = dir.path().join("g");
    fs::create_dir(&gather).unwrap();
    let arguments = ["run", "--json", "--out", text(&out), "--gather", text(&gather)];
    reshard(&arguments).refused("output", "is a directory");
    reshard(&["run", "--json", "--out", "/proc/a/b/out"]).error(1, "io", "/proc/a");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&gather).unwrap().count(), 0);
}

/// A name may have 255 bytes, and temporary names of a run are not longer.
#[test]
fn the_longest_names_work() {
    let dir = tempdir().unwrap();
    for name in ["n".repeat(255), "ü".repeat(127), "\u{1f600}".repeat(63) + "abc"] {
        let (out, gather) = (dir.path().join(&name), dir.path().join("below").join(&name));
        for force in [&[][..], &["--force"]] {
            let arguments = ["run", "--json", "--out", text(&out), "--gather", text(&gather)];
            reshard(&[&arguments[..], force].concat()).json();
        }
        assert_eq!(rank_files(&out).len(), 8);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
}

/// The status reports that the report is missing, and the message that the output exists.
#[test]
fn a_report_that_nobody_gets_is_a_failure() {
    let dir = tempdir().unwrap();
    for (turn, json) in [&[][..], &["--json"]].into_iter().enumerate() {
        let out = dir.path().join(format!("full{turn}"));
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(program());
        command.args(["run", "--out", text(&out)]).args(json).stderr(Stdio::piped());
        let output = command.stdout(full).spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("could not be printed") && said.contains("the output is complete"), "{said}");
        assert_eq!((said.lines().count(), rank_files(&out).len()), (1, 8), "{said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(program());
        command.arg("run").args(json).stderr(Stdio::piped()).stdout(writer);
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("stdout was closed; no output was requested"), "{said}");
    }
}

/// A run does not remove the folder of another run to the same output, because that holds a lock.
#[test]
fn a_folder_of_a_run_that_lives_stays() {
    // The temporary folder of a run; its name is taken from one that is killed.
    let setting = Setting::new();
    let span = setting.span();
    let hidden = (0..200).find_map(|turn| {
        let mut child = setting.start();
        sleep(span.mul_f64(f64::from(turn % 10) / 10.0));
        child.kill().unwrap();
        child.wait().unwrap();
        setting.names().into_iter().find(|name| name.starts_with(".out."))
    });
    let hidden = setting.dir.path().join("place").join(hidden.expect("a run was killed while it wrote"));
    // It may have been killed before it made its lock; then the lock is made here.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(hidden.join("lock")).unwrap();
    lock.try_lock().unwrap();
    setting.span();
    assert!(hidden.join("lock").exists(), "what lives was removed");
    lock.unlock().unwrap();
    setting.span();
    assert_eq!(setting.names(), ["g", "out"].map(str::to_owned).into());
}

/// Runs of one command, killed at random moments until one finishes, give the output of an undisturbed run.
///
/// Later runs continue the work of earlier ones, and no other file stays.
#[test]
fn a_killed_run_goes_on_where_it_stopped() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let tensors = (0..40).map(|at| tensor(&format!("t{at:02}"), Dtype::F32, &[64, 32 * (1 + at % 7)]));
    write(&path("w.safetensors"), &tensors.collect());
    fs::create_dir(path("place")).unwrap();
    let (input, out, whole) = (path("w.safetensors"), path("place/out"), path("place/whole"));
    let to = |out: &Path, whole: &Path| {
        let [input, out, whole] = [&*input, out, whole].map(|path| text(path).to_owned());
        let flags = ["--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--force", "--out"].map(str::to_owned);
        [
            ["run".to_owned(), "--json".to_owned(), input].to_vec(),
            flags.to_vec(),
            vec![out, "--gather".to_owned(), whole],
        ]
        .concat()
    };
    fs::create_dir(path("expected")).unwrap();
    let (expected_out, expected_whole) = (path("expected/out"), path("expected/whole"));
    let begin = Instant::now();
    assert!(
        Command::new(program()).args(to(&expected_out, &expected_whole)).output().unwrap().status.success()
    );
    let span = begin.elapsed();
    let expected: Vec<Vec<u8>> = files(&expected_out).iter().map(|file| fs::read(file).unwrap()).collect();
    let mut random = Random(3);
    let (mut killed, mut ended, mut resumed) = (0, 0, 0);
    while killed < kills() {
        let mut command = Command::new(program());
        command.args(to(&out, &whole)).arg("--resume").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Runs that continue earlier ones are shorter; some are left to end.
        if random.below(6) > 0 {
            sleep(span.mul_f64(random.below(1000) as f64 / 1000.0));
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let names: BTreeSet<String> = (fs::read_dir(path("place")).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        if out.exists() {
            let found: Vec<Vec<u8>> = files(&out).iter().map(|file| fs::read(file).unwrap()).collect();
            assert!(found == expected, "{names:?}");
        }
        if output.status.signal() == Some(9) {
            killed += 1;
            continue;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ended += 1;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        resumed += usize::from(report["resumed_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
        assert_eq!(names, ["out", "whole"].map(str::to_owned).into());
        assert!(fs::read(&whole).unwrap() == fs::read(&expected_whole).unwrap());
        // The next one begins from nothing.
        fs::remove_dir_all(&out).unwrap();
        fs::remove_file(&whole).unwrap();
    }
    println!("{killed} runs killed, {ended} finished, {resumed} of them resumed the work of others");
    assert!(ended > 0 && resumed > 0, "{ended} {resumed}");
}

/// The files of a folder in the order of their names.
fn files(folder: &Path) -> BTreeSet<std::path::PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
