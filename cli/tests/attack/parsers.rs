//! The targets of `make fuzz`, on every machine: each on its examples, and on mutants of them that are the
//! same every time, unless `RESHARD_ATTACK_SEED` selects others.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use reshard_test_support::{Random, Sweep, seed};

#[path = "../../../fuzz/targets/checkpoints.rs"]
mod checkpoints;
#[path = "../../../fuzz/targets/expressions.rs"]
mod expressions;
#[path = "../../../fuzz/targets/meshes.rs"]
mod meshes;
#[path = "../../../fuzz/targets/programs.rs"]
mod programs;
#[path = "../../../fuzz/targets/requests.rs"]
mod requests;
#[path = "../../../fuzz/targets/rules.rs"]
mod rules;
#[path = "../../../fuzz/targets/shardings.rs"]
mod shardings;

/// A target: its name, its number of mutants, and the function that returns `true` if it parses the input.
type Target = (&'static str, u64, fn(&[u8]) -> bool);

/// All targets. The slowest have the fewest mutants.
const TARGETS: [Target; 7] = [
    ("checkpoints", 10_000, |data| std::str::from_utf8(data).is_ok_and(checkpoints::run)),
    ("expressions", 60_000, |data| std::str::from_utf8(data).is_ok_and(expressions::run)),
    ("meshes", 60_000, |data| std::str::from_utf8(data).is_ok_and(meshes::run)),
    ("programs", 8_000, |data| std::str::from_utf8(data).is_ok_and(programs::run)),
    ("requests", 1_000, |data| requests::run(data).unwrap_or(false)),
    ("rules", 60_000, |data| std::str::from_utf8(data).is_ok_and(rules::run)),
    ("shardings", 60_000, |data| shardings::run(data)),
];

/// The longest mutant, as in `fuzz/run`.
const LONGEST: usize = 512;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// The files of a folder in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

/// The words of a dictionary: in quotes, one a line, as libFuzzer reads them.
fn words(target: &str) -> Vec<Vec<u8>> {
    let path = folder().join(format!("dictionaries/{target}.dict"));
    let text = fs::read_to_string(&path).expect("a dictionary");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let word = |line: &str| {
        let quoted = line.find('"').and_then(|begin| line[begin + 1..].strip_suffix('"'));
        let (mut word, mut rest) = (Vec::new(), quoted.unwrap_or_else(|| panic!("no word: {line}")).bytes());
        while let Some(byte) = rest.next() {
            word.push(match byte {
                b'\\' => match rest.next().expect("what is escaped") {
                    b'x' => {
                        let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits"));
                        let digits = std::str::from_utf8(&digits).expect("digits");
                        u8::from_str_radix(digits, 16).expect("digits")
                    }
                    other => other,
                },
                other => other,
            });
        }
        word
    };
    lines.map(word).collect()
}

/// Makes a mutant: one of the examples with up to three changes.
///
/// A change exchanges words, removes, doubles or overwrites a span, or inserts words and parts of other
/// examples.
fn mutant(r: &mut Random, examples: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<u8> {
    let mut text = r.pick(examples).clone();
    for _ in 0..=r.below(6) / 2 {
        let (from, to) = part(r, &text);
        match r.below(10) {
            0 => drop(text.drain(from..to)),
            1 => {
                let (at, again) = (r.below(text.len() + 1), text[from..to].to_vec());
                drop(text.splice(at..at, again));
            }
            // What texts are made of, and any byte now and then.
            2 if from < text.len() => {
                text[from] = if r.below(8) == 0 { r.below(256) as u8 } else { 32 + r.below(95) as u8 };
            }
            3 => {
                let other = r.pick(examples);
                let (begin, end) = part(r, other);
                drop(text.splice(from..to, other[begin..end].iter().copied()));
            }
            // In place of something, or between.
            4 => drop(text.splice(from..to, r.pick(words).iter().copied())),
            5 => drop(text.splice(from..from, r.pick(words).iter().copied())),
            // Most mutants that still parse have a number in place of another, or a name in place of another.
            _ => {
                let (begin, end) = word(r, &text);
                let is_digit = |text: &[u8], at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
                for _ in 0..8 {
                    let other = r.pick(examples);
                    let (from, to) = word(r, other);
                    if is_digit(&text, begin) == is_digit(other, from) {
                        drop(text.splice(begin..end, other[from..to].iter().copied()));
                        break;
                    }
                }
            }
        }
    }
    text.truncate(LONGEST);
    text
}

/// Draws the begin and the end of a part of a text; most are short.
fn part(r: &mut Random, text: &[u8]) -> (usize, usize) {
    let from = r.below(text.len() + 1);
    let longest = if r.below(8) == 0 { LONGEST } else { 3 };
    (from, text.len().min(from + 1 + r.below(longest)))
}

/// Draws the begin and the end of an alphanumeric span.
///
/// Between spans it is the single character at the offset.
fn word(r: &mut Random, text: &[u8]) -> (usize, usize) {
    let at = r.below(text.len() + 1);
    let is_inside = |byte: &&u8| byte.is_ascii_alphanumeric();
    let before = text[..at].iter().rev().take_while(is_inside).count();
    let behind = text[at..].iter().take_while(is_inside).count();
    let end = if before + behind == 0 { text.len().min(at + 1) } else { at + behind };
    (at - before, end)
}

/// Returns the generator of one mutant, whose seed is its own, so that the mutant can be run alone.
fn case(seed: u64, number: u64) -> Random {
    let mut random = Random(seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.next_u64();
    random
}

/// Runs a target on its examples and on `sample` mutants.
fn look(name: &str, test: &str) {
    let (_, sample, run) = TARGETS.into_iter().find(|target| target.0 == name).expect("a target");
    let files = files(&folder().join("seeds").join(name));
    let examples: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("an example")).collect();
    let words = words(name);
    let (sweep, seed) = (Sweep::asked(), seed("RESHARD_ATTACK_SEED", 1));
    // An exhaustive run has eight times as many; for other mutants set another seed.
    let count = if sweep == Sweep::All { 8 * sample } else { sample };
    let judged = |text: &[u8], which: String| {
        // Report the text that failed and how to repeat it, whatever the panic message is.
        catch_unwind(AssertUnwindSafe(|| run(text))).unwrap_or_else(|_| {
            let exhaustive = std::env::var("RESHARD_EXHAUSTIVE");
            let exhaustive = exhaustive.map_or(String::new(), |asked| format!("RESHARD_EXHAUSTIVE={asked} "));
            panic!(
                "{name}, {which}: {}\nagain: {exhaustive}RESHARD_ATTACK_SEED={seed} cargo test -p reshard-cli --test attack {test}",
                text.escape_ascii()
            )
        })
    };
    let all = examples.iter().zip(&files);
    let good = all.filter(|(text, file)| judged(text, file.display().to_string())).count();
    let is_read = |number: &u64| {
        let text = mutant(&mut case(seed, *number), &examples, &words);
        judged(&text, format!("mutant {number}"))
    };
    let read = (0..count).filter(is_read).count();
    println!(
        "{name}: {good} of {} examples are read, and {read} of {count} mutants of seed {seed}",
        files.len()
    );
    // If nearly every mutant is rejected early, the code after the first checks is not tested.
    assert!(
        good > 0 && read as u64 * 100 >= count,
        "{name}: {good} examples and {read} of {count} mutants are read"
    );
}

/// A test for each target: they run side by side.
macro_rules! looked_at {
    ($($test:ident: $target:literal,)*) => {$(
        #[test]
        fn $test() {
            look($target, stringify!($test));
        }
    )*

        #[test]
        fn every_target_is_looked_at() {
            let name = |path: &PathBuf| path.file_stem().expect("a file").to_str().expect("UTF-8").to_owned();
            let all: Vec<String> = files(&folder().join("fuzz_targets")).iter().map(name).collect();
            assert_eq!(all, [$($target),*]);
            assert_eq!(all, TARGETS.map(|target| target.0));
        }
    };
}

looked_at! {
    mutated_checkpoints_are_read_or_refused: "checkpoints",
    mutated_expressions_are_read_or_refused: "expressions",
    mutated_meshes_are_read_or_refused: "meshes",
    mutated_programs_are_read_or_refused: "programs",
    mutated_requests_are_answered_or_refused: "requests",
    mutated_rules_are_read_or_refused: "rules",
    mutated_shardings_are_read_or_refused: "shardings",
}
