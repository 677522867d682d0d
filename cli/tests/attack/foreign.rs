//! What PyTorch and NumPy wrote, with some bytes changed: the inputs of the tests of the checkpoint crate.

use std::fs;
use std::path::{Path, PathBuf};

use reshard_test_support::Random;

use crate::texts::size;

/// An input, and the file of it that is changed, where the input is a folder.
const INPUTS: [(&str, Option<&str>); 16] = [
    ("dcp", Some(".metadata")),
    ("dcp", Some("__0_0.distcp")),
    ("dcp_files", Some(".metadata")),
    ("dcp_files", Some("__1_1.distcp")),
    ("dcp_safetensors", Some("shard-00001-model-00001-of-00001.safetensors")),
    ("dcp_safetensors", Some("shard-00003-model-00001-of-00001.safetensors")),
    ("state.pt", None),
    ("module.pt", None),
    ("alone.pt", None),
    ("legacy.pt", None),
    ("conjugated.pt", None),
    ("stored.npz", None),
    ("packed.npz", None),
    ("rows.npy", None),
    ("columns.npy", None),
    ("records.npy", None),
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data").join(name)
}

/// A changed input in a folder.
fn input(r: &mut Random, folder: &Path) -> PathBuf {
    let (name, inside) = *r.pick(&INPUTS);
    let Some(inside) = inside else {
        let bytes = fs::read(data(name)).expect("it is in the repository");
        let path = folder.join("foreign");
        fs::write(&path, changed(r, bytes)).expect("it is ours");
        return path;
    };
    let dir = folder.join(format!("foreign-{name}"));
    fs::create_dir_all(&dir).expect("a folder");
    for file in fs::read_dir(data(name)).expect("it is in the repository").flatten() {
        let bytes = fs::read(file.path()).expect("it is in the repository");
        let is_it = file.file_name() == inside;
        fs::write(dir.join(file.file_name()), if is_it { changed(r, bytes) } else { bytes })
            .expect("it is ours");
    }
    dir
}

/// Flips bits, removes, doubles and inserts bytes, and replaces numbers by edge cases, binary or in digits.
fn changed(r: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    if r.below(8) == 0 {
        return bytes;
    }
    for _ in 0..=r.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = r.below(bytes.len());
        match r.below(8) {
            0 => bytes.truncate(at),
            1 => {
                let some = bytes[at..].iter().copied().take(1 + r.below(64)).collect::<Vec<u8>>();
                for _ in 0..*r.pick(&[1, 1, 1, 50, 5000]) {
                    bytes.splice(at..at, some.iter().copied());
                }
            }
            2 => {
                // A size that something begins with.
                let word = size(r).parse::<u128>().unwrap_or(u128::MAX) as u64;
                let word = &word.to_le_bytes()[..*r.pick(&[1, 2, 4, 8])];
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at..end, word.iter().copied());
            }
            3 => {
                let digits = bytes[at..].iter().position(u8::is_ascii_digit).map_or(at, |found| at + found);
                let count = bytes[digits..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(digits..digits + count, size(r).bytes());
            }
            4 => {
                // Instructions of pickles that call, remember and repeat.
                bytes[at] = *r.pick(b"(.012RNQ]}abcdehjlqrstu\x81\x85\x86\x87\x8c\x93\x94\x95");
            }
            5 => drop(bytes.drain(at..(at + 1 + r.below(40)).min(bytes.len()))),
            _ => bytes[at] ^= 1 << r.below(8),
        }
    }
    bytes
}

/// A request for a changed input.
pub(crate) fn request(r: &mut Random, folder: &Path) -> Vec<String> {
    let path = input(r, folder).to_str().expect("UTF-8").to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match r.below(5) {
        0 => words(&["inspect", "--json", &path]),
        1 => words(&["verify", "--json", &path]),
        2 => words(&["diff", "--json", &path, &path]),
        _ => {
            let out = folder.join("foreign-out").to_str().expect("UTF-8").to_owned();
            let format = *r.pick(&["rank-files", "dcp", "dcp-safetensors", "safetensors"]);
            let mesh = format!("x={}", if r.below(2) == 0 { size(r) } else { (1 + r.below(5)).to_string() });
            let mut asked: Vec<String> =
                words(&["run", "--json", &path, "--out", &out, "--force", "--format", format]);
            if format != "safetensors" {
                asked.extend(words(&["--mesh", &mesh, "--to", "S(0)"]));
            }
            asked
        }
    }
}
