//! The program under attack, in little memory and with little patience.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::PATIENCE;
use crate::program::program;

/// The memory of the program in KiB: the code, and what an answer may take.
const MEMORY: usize = 3 << 20;

/// The longest message of an error, in characters.
const LONGEST: usize = 2100;

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answered,
    Refused,
    Wrong(String),
}

/// The program with these arguments, under the limit.
fn limited(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\""), &program()]).args(arguments);
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// One batch, started again where it died.
pub(crate) struct Batch {
    pub(crate) subcommand: &'static str,
    running: Option<Running>,
}

struct Running {
    child: Child,
    answers: Receiver<Vec<u8>>,
}

impl Batch {
    pub(crate) fn new(subcommand: &'static str) -> Self {
        Self { subcommand, running: None }
    }

    /// The verdict about one line, which holds no line break.
    pub(crate) fn ask(&mut self, line: &str) -> Verdict {
        let running = self.running.get_or_insert_with(|| Running::start(self.subcommand));
        let began = Instant::now();
        let pipe = running.child.stdin.as_mut().expect("it is piped");
        let written = pipe.write_all(format!("{line}\n").as_bytes()).and_then(|()| pipe.flush());
        let answer = match (written, running.answers.recv_timeout(PATIENCE)) {
            (Ok(()), Ok(answer)) => answer,
            (_, Err(RecvTimeoutError::Timeout)) => {
                return self.stop(&format!("no answer in {:?}", began.elapsed()));
            }
            (_, _) => return self.stop("it was killed"),
        };
        verdict_of_json(&answer)
    }

    /// Ends the running process, and returns a verdict with the end of its stderr.
    fn stop(&mut self, why: &str) -> Verdict {
        let Some(mut running) = self.running.take() else { return Verdict::Wrong(why.to_owned()) };
        let _ = running.child.kill();
        let mut said = String::new();
        let _ = running.child.stderr.take().map(|pipe| pipe.take(1 << 16).read_to_string(&mut said));
        let status = running.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        Verdict::Wrong(format!("{why} ({status}): {}", said.trim()))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

impl Running {
    fn start(subcommand: &str) -> Self {
        let mut child = limited(&[subcommand, "--batch"]).spawn().expect("the program starts");
        let mut pipe = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        Self { child, answers }
    }
}

/// Runs the program once.
pub(crate) fn once(arguments: &[String]) -> Verdict {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = limited(&arguments).spawn().expect("the program starts");
    drop(child.stdin.take());
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (sender, done) = channel();
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = err.read_to_end(&mut text);
        text
    });
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = out.read_to_end(&mut text);
        sender.send(text)
    });
    let Ok(out) = done.recv_timeout(PATIENCE) else {
        let _ = child.kill();
        let _ = child.wait();
        return Verdict::Wrong(format!("not done in {PATIENCE:?}"));
    };
    let status = child.wait().expect("it was started");
    let said = String::from_utf8_lossy(&errors.join().expect("it only reads")).into_owned();
    let wrong = |why: &str| Verdict::Wrong(format!("{why} ({status}): {}", said.trim()));
    let expected = match status.code() {
        Some(0) => Verdict::Answered,
        // A verification problem or a difference is an answer, not an error.
        Some(1) if said.is_empty() && matches!(arguments.first(), Some(&"verify" | &"diff")) => {
            Verdict::Answered
        }
        Some(1 | 2) => Verdict::Refused,
        Some(_) | None => return wrong("it was killed"),
    };
    let mut lines = said.lines();
    if expected == Verdict::Refused
        && !(lines.next().is_some_and(|line| line.starts_with("error: ") && line.chars().count() <= LONGEST)
            && lines.all(|line| line.starts_with("  ")))
    {
        return wrong("not a one-line message");
    }
    if said.chars().any(|c| c.is_control() && c != '\n') {
        return wrong("it prints control characters");
    }
    if !arguments.contains(&"--json") {
        return expected;
    }
    let verdict = verdict_of_json(&out);
    if matches!(verdict, Verdict::Wrong(_)) || verdict == expected {
        return verdict;
    }
    wrong(&format!("{verdict:?} with another status"))
}

fn verdict_of_json(answer: &[u8]) -> Verdict {
    let shown = || crate::requests::cut(&String::from_utf8_lossy(answer));
    let Ok(value) = serde_json::from_slice::<Value>(answer) else {
        return Verdict::Wrong(format!("not JSON: {}", shown()));
    };
    if !value.is_object() {
        return Verdict::Wrong(format!("not an object: {}", shown()));
    }
    let Some(error) = value.get("error") else {
        return match no_number(&value) {
            None => Verdict::Answered,
            Some(key) => Verdict::Wrong(format!("`{key}` is not a number: {}", shown())),
        };
    };
    let (kind, message) = (error["kind"].as_str(), error["message"].as_str());
    match (kind, message) {
        (Some("internal"), Some(message)) => Verdict::Wrong(format!("internal: {message}")),
        (Some(_), Some(message))
            if !message.is_empty()
                && message.chars().count() <= LONGEST
                && !message.chars().any(char::is_control) =>
        {
            Verdict::Refused
        }
        _ => Verdict::Wrong(format!("an error without a kind or a message: {}", shown())),
    }
}

/// Returns the name of the first cost that is not a number of at least 0.
fn no_number(value: &Value) -> Option<String> {
    match value {
        Value::Object(object) => object.iter().find_map(|(key, value)| {
            // A group that saves by another objective may cost time.
            let least = match key.as_str() {
                "cost_us" | "lower_bound_us" => 0.0,
                "saved_us" => f64::MIN,
                _ => return no_number(value),
            };
            if value.is_object() {
                // One number for each pass.
                return value
                    .as_object()?
                    .values()
                    .any(|us| us.as_f64().is_none_or(f64::is_nan))
                    .then(|| key.clone());
            }
            if value.as_f64().is_none_or(|us| us.is_nan() || us < least) {
                return Some(key.clone());
            }
            no_number(value)
        }),
        Value::Array(list) => list.iter().find_map(no_number),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
