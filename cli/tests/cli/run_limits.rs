//! What `reshard run` needs: memory for one tensor whatever the number of ranks, and few files open at a time.

use std::path::Path;
use std::process::{Command, Output};

use safetensors::Dtype;
use tempfile::tempdir;

use crate::checkpoints::{rank_files, read, tensor, write};
use crate::program::{program, text};

/// Runs the program under a limit of the shell's `ulimit`.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, &program(), "run", "--json"]).args(arguments);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{limit} {arguments:?}: {:?} {said}", output.status);
    output
}

/// 512 MiB of address space suffice although 64 ranks hold 2 GiB of the tensor afterwards.
///
/// The limit covers transfers, verification, copies between two steps, and writing.
#[test]
#[cfg(target_os = "linux")]
fn memory_follows_the_tensor_and_not_its_replicas() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let [whole, small] = [path("w.safetensors"), path("s.safetensors")];
    write(&whole, &[tensor("w", Dtype::F32, &[2048, 4096])].into());
    write(&small, &[tensor("w", Dtype::F32, &[1021, 1024])].into());
    let limit = "-v 524288";
    limited(limit, &[text(&whole), "--mesh", "x=64", "--from", "S(0)", "--to", "R"]);
    let idle = ["--mesh", "dp=64,a=2,b=2", "--from", "R,S(0),S(1)", "--to", "R,R,S(0)"];
    limited(limit, &[&[text(&whole)], &idle[..]].concat());
    let (out, back) = (path("out"), path("back.safetensors"));
    limited(limit, &[text(&small), "--mesh", "x=64", "--from", "S(0)", "--to", "R", "--out", text(&out)]);
    // 64 replicas are compared, and none of them stays.
    limited(limit, &[text(&out), "--mesh", "x=64", "--to", "S(1)", "--gather", text(&back)]);
    assert_eq!(read(&back), read(&small));
}

/// There may be more rank files than a process may have open.
#[test]
fn rank_files_are_open_only_while_they_are_used() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (out, next, back) = (path("out"), path("next"), path("back.safetensors"));
    let (limit, mesh) = ("-n 32", ["--mesh", "x=96", "--to", "S(0)"]);
    limited(limit, &[&mesh[..], &["--from", "R", "--out", text(&out)]].concat());
    limited(limit, &[&[text(&out)], &mesh[..], &["--out", text(&next)]].concat());
    limited(limit, &[text(&next), "--gather", text(&back)]);
    assert_eq!(rank_files(&next).len(), 96);
    assert!(read(Path::new(&back)).0.len() > 10);
}
