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

/// An input that takes a while, and a place for outputs.
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

    /// What lies in the place of the outputs.
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

/// So many of each; `RESHARD_KILLS` asks for more.
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

/// A name may have 255 bytes, and what a run writes meanwhile has no longer one.
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

/// The status says that the report is missing, and the message that the output is not.
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
        assert!(said.contains("has gone; nothing was to be written"), "{said}");
    }
}

/// A run beside another one into the same place removes nothing of it: the lock is held.
#[test]
fn a_folder_of_a_run_that_lives_stays() {
    // What a run has while it writes; its name is learned from one that is killed.
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
    // It may have been killed before it made its lock; then whoever comes next makes it.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(hidden.join("lock")).unwrap();
    lock.try_lock().unwrap();
    setting.span();
    assert!(hidden.join("lock").exists(), "what lives was removed");
    lock.unlock().unwrap();
    setting.span();
    assert_eq!(setting.names(), ["g", "out"].map(str::to_owned).into());
}
