//! `reshard run --engine cuda` and `--engine nccl`: their messages where something is missing; and where
//! there is a GPU, the same bytes as the threads engine, over NCCL with one rank and with two processes on
//! that GPU.
#![cfg(all(feature = "cuda", feature = "nccl"))]

mod checkpoints;
mod program;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use checkpoints::{mixed, write};
use program::{Outcome, program, started, text};
use tempfile::TempDir;

/// One process of a job, with torchrun's variables for those given, and none else.
fn start(variables: &[(&str, &str)], arguments: &[&str]) -> Child {
    let mut command = Command::new(program());
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RESHARD_PORT"] {
        command.env_remove(name);
    }
    command
        .envs(variables.iter().copied())
        .args(["run", "--engine", "nccl"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn end(child: Child) -> Outcome {
    let output = child.wait_with_output().unwrap();
    Outcome {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

const ALONE: [(&str, &str); 4] =
    [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29501")];

#[test]
fn variables_that_are_missing_or_wrong_are_refused_in_one_sentence() {
    let json = ["--mesh", "a=1", "--to", "R", "--json"];
    end(start(&[], &json)).refused("rank", "RANK is not set; start the program with torchrun");
    end(start(&ALONE[..3], &json)).refused("rank", "MASTER_PORT is not set");
    let mut wrong = ALONE;
    wrong[0].1 = "1";
    end(start(&wrong, &json)).refused("rank", "RANK is 1, but must be less than WORLD_SIZE, 1");
}

/// A folder of libraries in which everything is missing.
fn empty_libraries(names: &[&str]) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let library = folder.path().join(format!("lib{name}.so"));
        let made = Command::new("cc").args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(library).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("not tried: there is no C compiler to make empty libraries with");
            return None;
        }
    }
    Some(folder)
}

fn with_libraries(folder: &Path) -> Outcome {
    let variables = [&ALONE[..], &[("LD_LIBRARY_PATH", text(folder))]].concat();
    end(start(&variables, &["--mesh", "a=1", "--to", "R", "--json"]))
}

#[test]
fn what_the_machine_lacks_is_one_sentence_and_no_panic() {
    let is_there = |name: &str| {
        let folders = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64"];
        folders.iter().any(|folder| Path::new(folder).join(name).exists())
    };
    let library = |name: &str| format!("lib{name}.so was not found in the system's library paths");
    if ["libcuda.so", "libcuda.so.1"].into_iter().any(is_there) {
        eprintln!("nothing is missing: there is a driver here");
        return;
    }
    let Some(none) = empty_libraries(&[]) else { return };
    with_libraries(none.path()).error(1, "library", &library("cuda"));
    started(&["run", "--engine", "cuda", "--json"]).error(1, "library", &library("cuda"));
    let Some(driver) = empty_libraries(&["cuda"]) else { return };
    with_libraries(driver.path()).error(1, "library", &library("nvrtc"));
    if is_there("libnccl.so") || is_there("libnccl.so.2") {
        return;
    }
    let Some(two) = empty_libraries(&["cuda", "nvrtc"]) else { return };
    with_libraries(two.path()).error(1, "library", &library("nccl"));
    // All are there, and nothing is in them: the binding panics, and that is an error too.
    let Some(all) = empty_libraries(&["cuda", "nvrtc", "nccl"]) else { return };
    with_libraries(all.path()).error(1, "engine", "libnccl.so does not work: Missing symbol");
}

/// Returns `true` if there is no GPU, or the engine lacks something.
///
/// `RESHARD_NEED_DEVICE` makes that a failure.
fn is_missing() -> bool {
    let found = reshard_nccl::Real::check().is_ok() && Path::new("/dev/nvidiactl").exists();
    assert!(found || std::env::var_os("RESHARD_NEED_DEVICE").is_none(), "there is no GPU, or no NCCL");
    if !found {
        eprintln!("SKIPPED: there is no GPU, or no NCCL");
    }
    !found
}

/// A run of one or two processes on one GPU and one of the threads engine write the same files.
#[test]
fn every_file_is_that_of_the_threads_engine() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let input = path("input.safetensors");
    write(&input, &mixed());
    let same = |ours: &Path, theirs: &Path| {
        for entry in fs::read_dir(theirs).unwrap().map(|entry| entry.unwrap()) {
            let other = ours.join(entry.file_name());
            assert!(fs::read(entry.path()).unwrap() == fs::read(&other).unwrap(), "{other:?} differs");
        }
    };
    // All ranks of a mesh on one device.
    let [cuda, threads] = ["cuda", "threads"].map(|engine| {
        let out = path(engine);
        let arguments = ["run", text(&input), "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--engine", engine];
        assert_eq!(started(&[&arguments[..], &["--out", text(&out)]].concat()).status, 0, "{engine}");
        out
    });
    same(&cuda, &threads);
    // Processes.
    for ranks in [1, 2] {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let mesh = format!("x={ranks}");
        let (ours, theirs) = (path(&format!("nccl{ranks}")), path(&format!("threads{ranks}")));
        let arguments = |out| {
            [text(&input), "--mesh", &mesh, "--from", "S(0)", "--to", "S(1)", "--out", out].map(str::to_owned)
        };
        let threads =
            [&["run", "--engine", "threads"].map(str::to_owned), &arguments(text(&theirs))[..]].concat();
        assert_eq!(started(&threads).status, 0);
        let all = arguments(text(&ours));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let size = ranks.to_string();
        let children: Vec<Child> = (0..ranks)
            .map(|rank| {
                let (rank, host) = (rank.to_string(), format!("reshard-{rank}"));
                let variables = [
                    ("RANK", rank.as_str()),
                    ("WORLD_SIZE", &size),
                    ("LOCAL_RANK", "0"),
                    ("MASTER_ADDR", "127.0.0.1"),
                    ("RESHARD_PORT", &port),
                    // NCCL lets two ranks of one host not share a GPU, so they use two host identifiers.
                    ("NCCL_HOSTID", &host),
                    ("NCCL_SOCKET_IFNAME", "lo"),
                    ("NCCL_MULTI_RANK_GPU_ENABLE", "1"),
                ];
                start(&variables, &all)
            })
            .collect();
        for (rank, child) in children.into_iter().enumerate() {
            let outcome = end(child);
            assert_eq!(outcome.status, 0, "{outcome:?}");
            assert_eq!(outcome.stdout.is_empty(), rank > 0, "only rank 0 prints: {outcome:?}");
        }
        same(&ours, &theirs);
    }
}
