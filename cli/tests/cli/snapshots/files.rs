//! The files of a case, in a temporary folder, and the outcomes of commands there.
//!
//! ```text
//! given nothing                             an empty folder
//! given text DIR/program.txt                the lines below, which begin with `| `
//! given bytes DIR/a.npy \x93NUMPY           bytes, with \xNN, \0, \n, \r, \t and \\
//! given tensors DIR/w.safetensors           small tensors of every width of element
//! given tensors DIR/a.safetensors a=F32[4,4] b=I64[8]
//! given folder DIR/empty                    a folder
//! given copy DATA/dcp DIR/dcp               a copy of a file or of the files of a folder
//! given link DIR/w.safetensors DIR/link     a symbolic link
//! given without DIR/w.safetensors           removes a file
//! given first 100 DIR/w.safetensors         the first bytes of a file
//! given changed DIR/w.safetensors           another last byte
//! given replaced DIR/a.json "a=4" => "a=5"  other bytes in a file, with the same escapes
//! given reshard run ..                      a command that succeeds
//! ```

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::cases::bare;
use crate::checkpoints::{Tensor, mixed, tensor, write};
use crate::pages;
use crate::program::{Outcome, reshard, reshard_with, text};

/// A temporary folder with the files of a case.
pub(super) struct Setting {
    dir: TempDir,
}

/// The outcome of a command.
pub(super) struct Run {
    pub(super) status: i32,
    /// The kind of the error, if `--json` reports the same error.
    pub(super) kind: Option<String>,
    /// The message of the error.
    pub(super) message: String,
    /// `true` if the command fails, or answers a line of a batch with an error.
    pub(super) is_error: bool,
    /// The outcome as a snapshot has it.
    pub(super) lines: Vec<String>,
}

/// Returns the test data of the crate checkpoint, which a package of this crate does not have.
pub(super) fn data() -> Option<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data").canonicalize().ok()
}

impl Setting {
    pub(super) fn new(given: &[String]) -> Self {
        let this = Self { dir: tempdir().unwrap() };
        let mut lines = given.iter().map(String::as_str).peekable();
        while let Some(line) = lines.next() {
            let mut content = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                content.push_str(bare(line));
                content.push('\n');
            }
            this.prepare(line, &content);
        }
        this
    }

    fn prepare(&self, line: &str, content: &str) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        match (verb, &words[..]) {
            ("nothing", _) => {}
            ("text", [file]) => fs::write(self.path(file), content).unwrap(),
            ("bytes", [file, ..]) => {
                let escaped = rest.split_once(' ').map_or("", |(_, escaped)| escaped);
                fs::write(self.path(file), unescaped(escaped)).unwrap();
            }
            ("tensors", [file]) => write(&self.path(file), &mixed()),
            ("tensors", [file, declared @ ..]) => {
                write(&self.path(file), &declared.iter().map(|text| declaration(text)).collect());
            }
            ("folder", [folder]) => fs::create_dir_all(self.path(folder)).unwrap(),
            ("copy", [from, to]) => copy(&self.path(from), &self.path(to)),
            ("link", [target, link]) => {
                std::os::unix::fs::symlink(self.path(target), self.path(link)).unwrap();
            }
            ("without", [file]) => fs::remove_file(self.path(file)).unwrap(),
            ("first", [count, file]) => {
                let bytes = fs::read(self.path(file)).unwrap();
                fs::write(self.path(file), &bytes[..count.parse::<usize>().unwrap()]).unwrap();
            }
            ("changed", [file]) => {
                let mut bytes = fs::read(self.path(file)).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                fs::write(self.path(file), bytes).unwrap();
            }
            ("replaced", [file, old, "=>", new]) => {
                let (bytes, old) = (fs::read(self.path(file)).unwrap(), unescaped(old));
                let at = bytes.windows(old.len()).position(|window| window == old);
                let at = at.unwrap_or_else(|| panic!("{line}: these bytes are not in the file"));
                let replaced = [&bytes[..at], &unescaped(new), &bytes[at + old.len()..]].concat();
                fs::write(self.path(file), replaced).unwrap();
            }
            ("reshard", _) => {
                let outcome = reshard(&self.words(line));
                assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
            }
            _ => panic!("`given {line}` has an unknown form"),
        }
    }

    fn path(&self, word: &str) -> PathBuf {
        PathBuf::from(self.real(word))
    }

    /// Returns an argument with the real paths of the folders.
    fn real(&self, word: &str) -> String {
        let data = data().unwrap_or_default();
        word.replace("DATA", text(&data)).replace("DIR", text(self.dir.path()))
    }

    /// Returns a text with the names of the folders in place of their paths.
    fn shown(&self, said: &str) -> String {
        let mut shown = said.replace(text(self.dir.path()), "DIR");
        if let Ok(real) = self.dir.path().canonicalize() {
            shown = shown.replace(text(&real), "DIR");
        }
        match data() {
            Some(data) => shown.replace(text(&data), "DATA"),
            None => shown,
        }
    }

    /// Returns the arguments of a command, `reshard plan --mesh x=2`.
    pub(super) fn words(&self, command: &str) -> Vec<String> {
        let words = pages::words(command);
        assert_eq!(words[0], "reshard", "{command}");
        words[1..].iter().map(|word| self.real(word)).collect()
    }

    pub(super) fn run(&self, words: &[String], input: &str) -> Run {
        let Outcome { status, stdout, stderr } = reshard_with(words, input);
        let message = sentence(&stderr).to_owned();
        let kind = if status == 0 { None } else { kind(words, input, &message) };
        let is_batch = words.iter().any(|word| word == "--batch");
        let is_answer = |line: &&str| {
            if is_batch { line.contains("{\"error\":") } else { status != 0 && stderr.is_empty() }
        };
        let answers: Vec<&str> = stdout.lines().filter(is_answer).collect();
        let is_error = status != 0 || !answers.is_empty();
        let first = match &kind {
            Some(kind) => format!("status {status} {kind}"),
            None => format!("status {status}"),
        };
        let lines = iter::once(first)
            .chain(stderr.lines().map(str::to_owned))
            .chain(answers.iter().map(|line| format!("out: {line}")));
        let lines = lines.map(|line| self.shown(&line).trim_end().to_owned());
        let lines = lines.filter(|line| !line.is_empty()).collect();
        Run { status, kind, message, is_error, lines }
    }
}

/// Returns the message of an error that was printed.
pub(super) fn sentence(stderr: &str) -> &str {
    stderr.lines().next().and_then(|line| line.strip_prefix("error: ")).unwrap_or_default()
}

/// Returns the kind of an error; `None` if the command with `--json` has another error.
fn kind(words: &[String], input: &str, message: &str) -> Option<String> {
    let outcome = reshard_with(&[words, &["--json".to_owned()]].concat(), input);
    let object: Value = serde_json::from_str(outcome.stdout.lines().next()?).ok()?;
    let error = &object["error"];
    if error["message"].as_str() == Some(message) { error["kind"].as_str().map(str::to_owned) } else { None }
}

/// Returns the tensor of a declaration like `a=F32[4,4]`.
fn declaration(declared: &str) -> (String, Tensor) {
    let form = || format!("{declared} is not of the form a=F32[4,4]");
    let (name, rest) = declared.split_once('=').unwrap_or_else(|| panic!("{}", form()));
    let (dtype, shape) = rest.split_once('[').unwrap_or_else(|| panic!("{}", form()));
    let dtype: Dtype = serde_json::from_value(Value::from(dtype)).unwrap_or_else(|_| panic!("{}", form()));
    let shape = shape.strip_suffix(']').unwrap_or_else(|| panic!("{}", form()));
    let sizes = shape.split(',').filter(|size| !size.is_empty());
    let shape: Vec<usize> = sizes.map(|size| size.parse().unwrap()).collect();
    tensor(name, dtype, &shape)
}

/// Copies a file, or the files of a folder.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Returns the bytes of a text with escapes.
fn unescaped(escaped: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chars = escaped.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        bytes.push(match chars.next().unwrap_or_default() {
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).unwrap()
            }
            '0' => 0,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            '\\' => b'\\',
            other => panic!("{escaped}: unknown escape {other:?}"),
        });
    }
    bytes
}
