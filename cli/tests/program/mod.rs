//! Runs the command line, in this process or as a separate program, and reads its output.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::io::Write;
use std::iter;
use std::path::Path;
use std::process::{Command, Stdio};

use reshard_cli::Console;
use serde_json::Value;

/// The result of one run of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program; `RESHARD_PROGRAM` where tests run elsewhere than they were built.
pub(crate) fn program() -> String {
    std::env::var("RESHARD_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_reshard").to_owned())
}

/// Runs the command line in this process, with nothing to read.
pub(crate) fn reshard<S: AsRef<str>>(arguments: &[S]) -> Outcome {
    reshard_with(arguments, "")
}

/// Runs the command line in this process, which reads `input`.
pub(crate) fn reshard_with<S: AsRef<str>>(arguments: &[S], input: &str) -> Outcome {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        input: &mut input.as_bytes(),
        out: &mut out,
        err: &mut err,
        colour: false,
        progress: false,
    };
    let all = iter::once("reshard").chain(arguments.iter().map(AsRef::as_ref));
    let status = reshard_cli::run(all, &mut console);
    Outcome {
        status: status.code().into(),
        stdout: String::from_utf8(out).unwrap(),
        stderr: String::from_utf8(err).unwrap(),
    }
}

/// Starts the program with these arguments and no stdin.
pub(crate) fn started<S: AsRef<str>>(arguments: &[S]) -> Outcome {
    started_with(arguments, "")
}

/// Starts the program and gives it `stdin`.
pub(crate) fn started_with<S: AsRef<str>>(arguments: &[S], stdin: &str) -> Outcome {
    let mut child = Command::new(program())
        .args(arguments.iter().map(AsRef::as_ref))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = child.stdin.take().unwrap();
    let text = stdin.to_owned();
    // A program that rejects its arguments does not read stdin, so the write may fail.
    let writer = std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Outcome {
        status: output.status.code().expect("the program ends by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Outcome {
    /// The answer of a run that succeeded with `--json`: one object on one line.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{self:?}");
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts a rejection: exit 2, a one-line message with `said` on stderr, and with `--json` an object.
    ///
    /// The object has this kind and the same message.
    #[track_caller]
    pub(crate) fn refused(&self, kind: &str, said: &str) {
        self.error(2, kind, said);
    }

    /// Asserts an error with this exit status, kind, and part of the message.
    #[track_caller]
    pub(crate) fn error(&self, status: i32, kind: &str, said: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let mut lines = self.stderr.lines();
        let sentence = lines.next().unwrap_or_default();
        assert!(sentence.starts_with("error: ") && sentence.contains(said), "{said:?} is not in {self:?}");
        // Only a line with the text, and one with a caret, may follow.
        assert!(lines.all(|line| line.starts_with("  ")), "{self:?}");
        if !self.stdout.is_empty() {
            let object: Value = serde_json::from_str(&self.stdout).unwrap();
            assert_eq!(object["error"]["kind"], kind, "{self:?}");
            assert_eq!(object["error"]["message"], sentence["error: ".len()..], "{self:?}");
        }
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
