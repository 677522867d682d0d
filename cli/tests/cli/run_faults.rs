//! Full disks, quotas, limits and I/O errors: a one-line message, the old output unchanged, and no other
//! file.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::Dtype;
use tempfile::{TempDir, tempdir};

use crate::checkpoints::{tensor, write};
use crate::program::{program, reshard, text};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EDQUOT: i32 = 122;
const EINTR: i32 = 4;
/// No error, and half of the requested bytes.
const SHORT: i32 = 0;

/// An input of rank files, an old output, and the calls that fail.
struct Setting {
    dir: TempDir,
    shim: PathBuf,
}

impl Setting {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        let shim = dir.path().join("faults.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/faults.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o", text(&shim), text(&source), "-ldl"]);
        assert!(cc.status().unwrap().success());
        let this = Self { dir, shim };
        let tensors = (0..6).map(|at| tensor(&format!("t{at}"), Dtype::F32, &[16, 16 * (1 + at)]));
        write(&this.path("w.safetensors"), &tensors.collect());
        let (whole, input) = (this.path("w.safetensors"), this.path("input"));
        reshard(&["run", text(&whole), "--mesh", "a=2", "--to", "S(0)", "--out", text(&input)]);
        fs::create_dir(this.path("place")).unwrap();
        let old = this.path("place/out");
        reshard(&["run", text(&input), "--mesh", "a=3", "--to", "S(0)", "--out", text(&old)]);
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(["run", text(&self.path("input")), "--mesh", "a=2,b=2", "--to", "S(1),S(0)", "--force"]);
        command.args(["--out", text(&self.path("place/out"))]).args(more);
        command
    }

    fn fails(&self, call: &str, path: &str, after: usize, error: i32, more: &[&str]) -> Output {
        let mut command = self.command(more);
        command.env("LD_PRELOAD", &self.shim).env("FAULT_CALL", call).env("FAULT_PATH", path);
        command.env("FAULT_AFTER", after.to_string()).env("FAULT_ERRNO", error.to_string());
        command.output().unwrap()
    }

    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        contents(&self.path("place/out"))
    }

    /// Only the output is there.
    fn is_clean(&self) -> bool {
        fs::read_dir(self.path("place")).unwrap().count() == 1
    }
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

#[test]
fn a_call_that_fails_is_one_sentence_and_the_old_output_stays() {
    let setting = Setting::new();
    let old = setting.contents();
    let mut failed = BTreeMap::new();
    for (call, path, error, sentence) in [
        ("pwrite64", "place", ENOSPC, "No space left on device"),
        ("pwrite64", "place", EDQUOT, "quota"),
        ("pwrite64", "place", EIO, "Input/output error"),
        ("write", "place", ENOSPC, "No space left on device"),
        ("fsync", "place", EIO, "Input/output error"),
        ("ftruncate64", "place", ENOSPC, "No space left on device"),
        ("pread64", "input", EIO, "Input/output error"),
        ("read", "input", EIO, "Input/output error"),
        // Reading the output for verification fails.
        ("pread64", "place", EIO, "Input/output error"),
    ] {
        for after in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
            let output = setting.fails(call, path, after, error, &[]);
            if output.status.success() {
                assert!(after > 0, "{call} was never called");
                break;
            }
            let said = said(&output);
            assert!(
                matches!(output.status.code(), Some(1 | 2)) && said.contains(sentence),
                "{call} {after}: {said}"
            );
            assert!(setting.contents() == old && setting.is_clean(), "{call} {error} {after}: {said}");
            *failed.entry((call, path, error)).or_insert(0) += 1;
        }
        reshard(&[
            "run",
            text(&setting.path("input")),
            "--mesh",
            "a=3",
            "--to",
            "S(0)",
            "--force",
            "--out",
            text(&setting.path("place/out")),
        ]);
        assert!(setting.contents() == old);
    }
    assert!(failed.len() == 9 && failed.values().sum::<usize>() > 25, "{failed:?}");
}

#[test]
fn calls_that_do_half_or_are_interrupted_are_made_again() {
    let setting = Setting::new();
    assert!(setting.command(&[]).status().unwrap().success());
    let expected = setting.contents();
    for call in ["pwrite64", "write", "pread64", "read"] {
        for (error, after) in [(SHORT, 0), (SHORT, 3), (EINTR, 0), (EINTR, 2)] {
            let output = setting.fails(call, setting.dir.path().to_str().unwrap(), after, error, &[]);
            assert!(output.status.success(), "{call} {error}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(setting.contents() == expected && setting.is_clean(), "{call} {error}");
        }
    }
}

/// With `--resume` the data written before the disk was full stays, and the next run continues from it.
#[test]
fn a_run_that_was_out_of_space_goes_on_when_there_is_some() {
    let setting = Setting::new();
    let old = setting.contents();
    // Headers are four of these writes.
    let output = setting.fails("pwrite64", "place", 16, ENOSPC, &["--resume"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(setting.contents() == old && !setting.is_clean());
    let output = setting.command(&["--resume", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["resumed_bytes"].as_u64().unwrap() > 0, "{report}");
    let resumed = setting.contents();
    assert!(setting.command(&[]).status().unwrap().success());
    assert!(setting.contents() == resumed && setting.is_clean());
}

/// Damage to the data that a killed run has left does not change the output of the run that continues it.
#[test]
fn what_was_left_half_written_is_not_believed() {
    let setting = Setting::new();
    setting.fails("pwrite64", "place", 16, ENOSPC, &["--resume"]);
    let hidden = fs::read_dir(setting.path("place")).unwrap().map(|entry| entry.unwrap().path());
    let hidden =
        hidden.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with('.')).unwrap();
    for entry in fs::read_dir(hidden.join("new")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let len = bytes.len();
        bytes[len / 2..].fill(0);
        fs::write(path, bytes).unwrap();
    }
    assert!(setting.command(&["--resume"]).status().unwrap().success());
    let resumed = setting.contents();
    assert!(setting.command(&[]).status().unwrap().success());
    assert!(setting.contents() == resumed && setting.is_clean());
}

/// A limit on the size of files is an error like others, and not a signal that ends the program.
#[test]
fn a_limit_on_the_size_of_files_is_one_sentence() {
    let setting = Setting::new();
    let old = setting.contents();
    let script = "ulimit -f 4 && exec \"$0\" \"$@\"";
    let inner = setting.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(inner.get_program()).args(inner.get_args());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    assert!(said(&output).contains("File too large"), "{}", said(&output));
    assert!(setting.contents() == old && setting.is_clean());
}

/// A small file system, in a separate mount name space, where that is permitted.
#[test]
fn a_file_system_that_is_full_keeps_the_old_output() {
    let setting = Setting::new();
    let mount = setting.path("small");
    fs::create_dir(&mount).unwrap();
    let script = "mount -t tmpfs -o size=96k none \"$1\" || exit 77; cp -r \"$2\" \"$1/out\"; shift 2; \"$@\"; echo \"status $?\"";
    let compare = "; ls -A \"$0\"; diff -r \"$0/out\" \"$OLD\" && echo same";
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        &format!("{script}{compare}"),
        text(&mount),
        text(&mount),
        text(&setting.path("place/out")),
    ]);
    command.env("OLD", setting.path("place/out"));
    command.args([
        &program(),
        "run",
        text(&setting.path("input")),
        "--mesh",
        "a=8",
        "--to",
        "R",
        "--force",
        "--out",
    ]);
    command.arg(mount.join("out"));
    let output = match command.output() {
        Ok(output) if output.status.code() != Some(77) && output.status.success() => output,
        not_allowed => {
            println!("no file system can be mounted here: {not_allowed:?}");
            return;
        }
    };
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(answer, "status 1\nout\nsame\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
}
