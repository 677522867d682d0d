//! Files of errors: commands, each with its outcome.
//!
//! ```text
//! # A comment.
//! given tensors DIR/w.safetensors     a file for this command and those below, up to the next `given`
//! unless mpi                          skips the next command if it was built with this feature
//! $ reshard check - --explicit        a command
//! | mesh tp=2                         its stdin
//! status 2 parse                      the outcome: the status with the kind, the error, and any answers
//! error: line 2: ..
//! out: ..
//! fix: reshard check -                a command that follows the suggestion of the error, and succeeds
//! | mesh tp=2,dp=2                    its stdin, if it is another one
//! ```
//!
//! The outcome is written by the test, everything else by hand: a new case is one line, its command. `DIR` is a
//! temporary folder, and `DATA` the test data of the crate checkpoint. [`files`](super::files) has the files.
//!
//! An error that suggests what to write has a `fix` that contains the suggested text, except for a missing
//! redistribution: there the suggestion itself is applied ([`fixes`](super::fixes)).

use std::iter::Peekable;
use std::mem;
use std::str::Lines;

use super::files::{Run, Setting, data};
use super::fixes;

/// A file of errors after a run of its commands.
pub(super) struct Checked {
    /// The file with the outcomes of this run.
    pub(super) text: String,
    /// The commands that succeed, and the fixes that fail.
    pub(super) faults: Vec<String>,
    /// The number of errors.
    pub(super) errors: usize,
}

/// A command with its outcome.
struct Case {
    /// The lines above the command: blank lines, comments, files, conditions.
    above: Vec<String>,
    command: String,
    input: Vec<String>,
    outcome: Vec<String>,
    fix: Option<Fix>,
}

/// A command that follows the suggestion of an error.
struct Fix {
    command: String,
    input: Vec<String>,
}

/// Runs the commands of a file.
pub(super) fn checked(name: &str, text: &str) -> Checked {
    let (mut cases, end) = read(text);
    let (mut given, mut faults, mut errors) = (Vec::new(), Vec::new(), 0);
    for case in &mut cases {
        let files = case.files();
        if !files.is_empty() {
            given = files;
        }
        if case.is_skipped(&given) {
            errors += 1;
            continue;
        }
        let setting = Setting::new(&given);
        let run = setting.run(&setting.words(&case.command), &joined(&case.input));
        if !run.is_error {
            faults.push(format!("{name}: `{}` is not an error", case.command));
        } else if let Err(fault) = case.fixed(&setting, &run) {
            faults.push(format!("{name}: `{}`: {fault}\n    error: {}", case.command, run.message));
        }
        errors += usize::from(run.is_error);
        case.outcome = run.lines;
    }
    Checked { text: written(&cases, &end), faults, errors }
}

impl Case {
    /// Returns the files that the lines above the command declare, with their contents.
    fn files(&self) -> Vec<String> {
        let lines = self.above.iter().filter(|line| line.starts_with("given ") || line.starts_with('|'));
        lines.map(|line| line.strip_prefix("given ").unwrap_or(line).to_owned()).collect()
    }

    /// Returns `true` if the outcome is that of another build, or of files that a package does not have.
    fn is_skipped(&self, given: &[String]) -> bool {
        let mut features = self.above.iter().filter_map(|line| line.strip_prefix("unless "));
        let is_built = |feature: &str| match feature {
            "mpi" => cfg!(feature = "mpi"),
            "cuda" => cfg!(feature = "cuda"),
            "nccl" => cfg!(feature = "nccl"),
            "remote" => cfg!(feature = "remote"),
            other => panic!("{}: unknown feature {other}", self.command),
        };
        let reads_data = given.iter().chain([&self.command]).any(|line| line.contains("DATA"));
        features.any(is_built) || (reads_data && data().is_none())
    }

    /// Checks that what the error suggests works.
    fn fixed(&self, setting: &Setting, run: &Run) -> Result<(), String> {
        let Some(fix) = &self.fix else {
            let words = setting.words(&self.command);
            return fixes::applied(run, &words, &joined(&self.input));
        };
        let input = joined(if fix.input.is_empty() { &self.input } else { &fix.input });
        let fixed = setting.run(&setting.words(&fix.command), &input);
        if fixed.status != 0 {
            return Err(format!("the fix fails: {}", fixed.message));
        }
        let (before, after) = if fix.input.is_empty() {
            (self.command.clone(), fix.command.clone())
        } else {
            (joined(&self.input), input)
        };
        fixes::follows(&run.message, &before, &after)
    }
}

/// Returns the cases of a file, and the lines after the last one.
fn read(text: &str) -> (Vec<Case>, Vec<String>) {
    let mut lines = text.lines().peekable();
    let (mut cases, mut above) = (Vec::new(), Vec::new());
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            above.push(line.to_owned());
            continue;
        };
        let input = input(&mut lines);
        let mut outcome = Vec::new();
        while let Some(line) = lines.next_if(|line| is_outcome(line)) {
            outcome.push(line.to_owned());
        }
        let fix = lines.next_if(|line| line.starts_with("fix: "));
        let fix =
            fix.map(|line| Fix { command: line["fix: ".len()..].to_owned(), input: self::input(&mut lines) });
        cases.push(Case { above: mem::take(&mut above), command: command.to_owned(), input, outcome, fix });
    }
    (cases, above)
}

/// Takes the lines of an input.
fn input(lines: &mut Peekable<Lines<'_>>) -> Vec<String> {
    let mut input = Vec::new();
    while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
        input.push(bare(line).to_owned());
    }
    input
}

/// Returns a line of an input without its mark.
pub(super) fn bare(line: &str) -> &str {
    line.strip_prefix("| ").or_else(|| line.strip_prefix('|')).unwrap_or(line)
}

fn is_outcome(line: &str) -> bool {
    ["status ", "error: ", "  ", "out: "].iter().any(|begin| line.starts_with(begin))
}

/// Joins the lines of an input.
fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// Returns the text of a file.
fn written(cases: &[Case], end: &[String]) -> String {
    let mark = |line: &String| if line.is_empty() { "|".to_owned() } else { format!("| {line}") };
    let mut lines: Vec<String> = Vec::new();
    for case in cases {
        lines.extend(case.above.iter().cloned());
        // Commands without a line between them are added like this.
        if case.above.is_empty() && !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("$ {}", case.command));
        lines.extend(case.input.iter().map(mark));
        lines.extend(case.outcome.iter().cloned());
        if let Some(fix) = &case.fix {
            lines.push(format!("fix: {}", fix.command));
            lines.extend(fix.input.iter().map(mark));
        }
    }
    lines.extend(end.iter().cloned());
    joined(&lines)
}
