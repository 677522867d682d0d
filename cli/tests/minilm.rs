//! A real sentence encoder, 90 MB with a vocabulary of 30522, over three meshes and back to the first bytes.
//!
//! `scripts/fetch_minilm.sh` fetches the file and prints its path; `RESHARD_MINILM` hands the path over. Without it the
//! test prints that it is skipped.

mod checkpoints;
mod program;

use std::path::Path;
use std::time::Instant;

use checkpoints::{rank_files, read};
use program::{started, text};
use serde_json::Value;
use tempfile::tempdir_in;

#[test]
fn a_real_checkpoint_over_three_meshes_and_back() {
    let Some(file) = std::env::var_os("RESHARD_MINILM").filter(|path| Path::new(path).is_file()) else {
        eprintln!("SKIPPED: RESHARD_MINILM is not the path of a file; see scripts/fetch_minilm.sh");
        return;
    };
    let whole = Path::new(&file);
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [eight, tensor, six, last] =
        ["eight", "tensor", "six", "last.safetensors"].map(|name| dir.path().join(name));

    let report = run(&[text(whole), "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--out", text(&eight)]);
    assert_eq!(report["received_bytes"], 0, "a whole file is on every rank already");
    assert_eq!(rank_files(&eight).len(), 8);

    let report = run(&[text(&eight), "--mesh", "tp=8", "--to", "S(0)", "--out", text(&tensor)]);
    moves_the_bound(&report);

    let report = run(&[text(&tensor), "--mesh", "cp=3,tp=2", "--to", "S(0),S(1)", "--out", text(&six)]);
    moves_the_bound(&report);
    assert_eq!(rank_files(&six).len(), 6);

    let report = run(&[text(&six), "--mesh", "cp=3,tp=2", "--to", "R,R", "--gather", text(&last)]);
    moves_the_bound(&report);
    let ((first, first_texts), (last, last_texts)) = (read(whole), read(&last));
    assert_eq!(first_texts, last_texts);
    assert!(first == last, "resharding back does not restore the bytes");
}

#[track_caller]
fn run(arguments: &[&str]) -> Value {
    let start = Instant::now();
    // Resharding from file to file gives the same result: other tests check that invariant.
    let report = started(&[&["run", "--json", "--through-engine"], arguments].concat()).json();
    assert_eq!(report["verified"], true);
    assert!(report["bytes"].as_u64().unwrap() > 90_000_000);
    eprintln!("{:.2} s: {}", start.elapsed().as_secs_f64(), arguments[1..].join(" "));
    report
}

/// Asserts that every tensor received exactly its lower bound of bytes.
#[track_caller]
fn moves_the_bound(report: &Value) {
    assert!(report["received_bytes"].as_u64().unwrap() > 0);
    for tensor in report["tensors"].as_array().unwrap() {
        assert_eq!(tensor["received_bytes"], tensor["lower_bound_bytes"], "{tensor}");
    }
}
