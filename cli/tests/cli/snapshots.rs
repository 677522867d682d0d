//! Snapshots of the texts that people read: the help of the program and of every subcommand, and the errors.
//!
//! ```text
//! tests/snapshots/help/NAME.txt       the output of `reshard NAME --help`
//! tests/snapshots/errors/NAME.txt     commands of `reshard NAME`, each with its status and its error
//! ```
//!
//! `RESHARD_WRITE=1 cargo test -p reshard-cli --test cli snapshots` writes them, so that a change of wording is a
//! change of these files. To add an error, add its command to a file ([`cases`] has the format) and write it.

mod cases;
mod files;
mod fixes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::program::program;

/// The number of columns of the help.
const COLUMNS: &str = "100";

/// The least number of errors in all files.
const LEAST: usize = 150;

#[test]
fn helps_are_the_snapshots() {
    let mut texts = BTreeMap::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(words) = open.pop() {
        let text = help(&words);
        for name in listed(&text) {
            open.push([&words[..], &[name]].concat());
        }
        let name = if words.is_empty() { "reshard".to_owned() } else { words.join("_") };
        texts.insert(name + ".txt", text);
    }
    assert!(texts.len() > 20, "{:?}", texts.keys());
    compare("help", &texts);
}

#[test]
fn errors_are_the_snapshots() {
    let folder = folder("errors");
    let names: BTreeSet<String> =
        listed(&help(&[])).into_iter().chain(["reshard".to_owned()]).map(|name| name + ".txt").collect();
    assert_eq!(files_in(&folder), names, "every subcommand has a file of errors in {}", folder.display());
    let read =
        |name: &String| (name.clone(), cases::checked(name, &fs::read_to_string(folder.join(name)).unwrap()));
    let checked: Vec<(String, cases::Checked)> = thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || read(name))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let texts: BTreeMap<String, String> =
        checked.iter().map(|(name, checked)| (name.clone(), checked.text.clone())).collect();
    compare("errors", &texts);
    let faults: Vec<&str> =
        checked.iter().flat_map(|(_, checked)| checked.faults.iter().map(String::as_str)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let count: usize = checked.iter().map(|(_, checked)| checked.errors).sum();
    assert!(count >= LEAST, "{count} errors");
}

/// Returns the help of a subcommand.
fn help(words: &[String]) -> String {
    let mut command = Command::new(program());
    // The width is that of a terminal if there is one, else of the environment.
    command.args(words).arg("--help").env("COLUMNS", COLUMNS).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the subcommands that a help lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| *line != "Options:");
    // A description that is wrapped has a deeper indent.
    let names = lines.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// Returns a folder of snapshots.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name)
}

/// Returns the names of the files in a folder.
fn files_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Compares texts with the files of a folder of snapshots, or writes them.
fn compare(name: &str, texts: &BTreeMap<String, String>) {
    let folder = folder(name);
    let is_written = std::env::var_os("RESHARD_WRITE").is_some();
    if is_written {
        fs::create_dir_all(&folder).unwrap();
        for file in files_in(&folder).iter().filter(|file| !texts.contains_key(*file)) {
            fs::remove_file(folder.join(file)).unwrap();
        }
        for (file, text) in texts {
            fs::write(folder.join(file), text).unwrap();
        }
    }
    let names: BTreeSet<String> = texts.keys().cloned().collect();
    assert_eq!(files_in(&folder), names, "RESHARD_WRITE=1 writes the files of {name}");
    let changed: Vec<String> = texts
        .iter()
        .filter_map(|(file, text)| {
            let before = fs::read_to_string(folder.join(file)).unwrap();
            difference(&before, text).map(|difference| format!("{name}/{file}, {difference}"))
        })
        .collect();
    assert!(changed.is_empty(), "RESHARD_WRITE=1 writes the new texts of\n{}", changed.join("\n"));
}

/// Returns the first line in which two texts differ, if there is one.
fn difference(before: &str, after: &str) -> Option<String> {
    if before == after {
        return None;
    }
    let (mut old, mut new) = (before.lines(), after.lines());
    for number in 1.. {
        let (old, new) = (old.next(), new.next());
        if old != new {
            let shown = |line: Option<&str>| line.map_or("the end".to_owned(), |line| format!("{line:?}"));
            return Some(format!("line {number}: {} is now {}", shown(old), shown(new)));
        }
        if old.is_none() {
            break;
        }
    }
    Some("in the ends of lines".to_owned())
}
