//! The built program: what only a process has, a status, pipes, and readers that go away.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::program::{reshard, reshard_with, started, started_with};
use serde_json::{Value, json};

/// The program and the library give the same answers: the same status, the same output.
#[test]
fn the_program_is_the_library() {
    for arguments in [
        &["layout", "coalesce((2,3):(1,2))"][..],
        &["layout", "(4,2):(2,1", "--json"],
        &["shards", "--mesh", "dp=2", "--shape", "[3,4]", "--placements", "S(0)"],
        &["shards", "--mesh", "dp=2", "--shape", "4,x", "--placements", "R", "--json"],
        &["plan", "--json", "--mesh", "dp=2", "--shape", "8", "--from", "P", "--to", "R"],
        &["run", "/nowhere", "--mesh", "a=2", "--to", "R", "--json"],
        &["run", "--mesh", "a=2", "--to", "S(9)"],
        &["frobnicate", "--json"],
        &["plan", "--batch", "--mesh", "dp=2"],
        &["--version"],
        &["run", "--help"],
        &[],
    ] {
        let (process, library) = (started(arguments), reshard(arguments));
        assert_eq!(process, library, "{arguments:?}");
    }
    let lines = "{\"mesh\":\"dp=2\"}\nnonsense\n\n";
    for batch in [["shards", "--batch"], ["layout", "--batch"]] {
        assert_eq!(started_with(&batch, lines), reshard_with(&batch, lines));
    }
    assert_eq!(started(&["run"]).status, 0);
}

/// A program can communicate through two pipes: each answer comes before the next request is sent.
#[test]
fn a_batch_is_a_conversation() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_reshard"))
        .args(["shards", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut questions = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    for size in 1..4 {
        writeln!(questions, r#"{{"mesh":"a=2","shape":[{size}],"placements":"R"}}"#).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["ranks"][1]["local_shape"], json!([size]));
    }
    drop(questions);
    assert!(child.wait().unwrap().success());
}

/// A reader that has seen enough ends the program quietly.
#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_reshard"))
        .args(["shards", "--mesh", "a=4096", "--shape", "4096,4096", "--placements", "S(0)"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
