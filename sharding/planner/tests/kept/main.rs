//! Golden answers, stored as hashes: results that must not change when only the implementation does.
//!
//! Each request is drawn from a separate seed, so it is the same in every version. Its answer is written as
//! text, with every cost to the bit and every message of one rank. A line of the golden file is the hash of
//! [`BLOCK`] such texts.
//!
//! ```text
//! cargo test --release -p reshard-planner --test kept                        one block in 512
//! RESHARD_EXHAUSTIVE=all ..                                                   all of them
//! RESHARD_EXHAUSTIVE=3   ..                                                   the eighth that holds blocks 3, 11, 19 ..
//! RESHARD_KEPT=write     ..                                                   stores the current answers
//! RESHARD_KEPT=show:17   .. -- --nocapture plans                              the texts of one block, to compare with others
//! ```

mod answers;
mod both_directions;
mod ledger;
mod plans;
mod shardings;

use std::path::PathBuf;

use reshard_test_support::Sweep;

/// Number of requests per line.
const BLOCK: u64 = 100;

/// Number of lines of plans.
const PLANS: u64 = 2000;

/// Number of lines of shardings.
const SHARDINGS: u64 = 1000;

/// The mode, as given by the environment.
enum Asked {
    Compare(Sweep),
    Write,
    Show(u64),
}

fn asked() -> Asked {
    let text = std::env::var("RESHARD_KEPT").unwrap_or_default();
    match text.as_str() {
        "" => Asked::Compare(Sweep::asked()),
        "write" => Asked::Write,
        other => match other.strip_prefix("show:").map(str::parse) {
            Some(Ok(block)) => Asked::Show(block),
            Some(Err(_)) | None => panic!("RESHARD_KEPT must be write or show:BLOCK, not {other}"),
        },
    }
}

/// Computes the FNV-1a hash, which is the same on every platform and in every version.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}

/// Returns the requested blocks, of `blocks`.
fn chosen(asked: &Asked, blocks: u64) -> Vec<u64> {
    let is_chosen = |b: &u64| match asked {
        // An eighth can be written alone.
        Asked::Write => Sweep::asked().takes(*b),
        Asked::Compare(Sweep::Sample) => b.is_multiple_of(512),
        Asked::Compare(sweep @ (Sweep::All | Sweep::Eighth(_))) => sweep.takes(*b),
        Asked::Show(only) => b == only,
    };
    (0..blocks).filter(is_chosen).collect()
}

/// Returns the chosen blocks and the answers to their requests, computed by all cores.
fn answers_of<T: Send>(chosen: &[u64], answer: impl Fn(u64) -> T + Sync) -> Vec<(u64, Vec<T>)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let part = |t: usize| {
            let mine: Vec<u64> = chosen.iter().copied().skip(t).step_by(threads).collect();
            let answer = &answer;
            let block = move |b: u64| (b, (b * BLOCK..(b + 1) * BLOCK).map(answer).collect::<Vec<T>>());
            scope.spawn(move || mine.into_iter().map(block).collect::<Vec<_>>())
        };
        let parts: Vec<_> = (0..threads).map(part).collect();
        let mut all: Vec<_> = parts.into_iter().flat_map(|p| p.join().expect("an answer")).collect();
        all.sort_by_key(|x| x.0);
        all
    })
}

fn kept_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kept").join(name)
}

/// Compares the answers to requests, by block, with those of `tests/kept/NAME.txt`.
fn compare(name: &str, blocks: u64, asked: &Asked, found: &[(u64, Vec<String>)]) {
    let path = kept_file(&format!("{name}.txt"));
    let found: Vec<(u64, u64)> = found.iter().map(|(b, texts)| (*b, hash(&texts.concat()))).collect();
    let kept = std::fs::read_to_string(&path).expect("the golden file");
    let kept: Vec<&str> = kept.lines().collect();
    if let Asked::Write = asked {
        let mut lines: Vec<String> = kept.iter().map(ToString::to_string).collect();
        for (b, h) in &found {
            lines[*b as usize] = format!("{h:016x}");
        }
        std::fs::write(&path, lines.join("\n") + "\n").expect("the golden file");
        return;
    }
    assert_eq!(kept.len() as u64, blocks, "{} has a line a block", path.display());
    let other: Vec<u64> =
        found.iter().filter(|(b, h)| kept[*b as usize] != format!("{h:016x}")).map(|x| x.0).collect();
    println!("{} blocks of {BLOCK} {name}, {} differ", found.len(), other.len());
    assert!(
        other.is_empty(),
        "the answers of {} blocks of {} differ from the golden ones: {:?}. RESHARD_KEPT=show:{} prints one of them",
        other.len(),
        found.len(),
        &other[..other.len().min(20)],
        other[0]
    );
}

/// 200,000 plans, with all objectives, profiles, groups, memory limits and partial values.
///
/// None costs more than the one of the ledger, in its objective and by the messages of both directions.
#[test]
fn plans_are_those_kept() {
    let asked = asked();
    let found = answers_of(&chosen(&asked, PLANS), plans::answer);
    if let Asked::Show(_) = asked {
        found.iter().flat_map(|x| &x.1).for_each(|(text, _)| print!("{text}"));
        return;
    }
    ledger::compare(&asked, &found);
    let texts = |answers: Vec<(String, ledger::Price)>| answers.into_iter().map(|x| x.0).collect();
    let found: Vec<(u64, Vec<String>)> = found.into_iter().map(|(b, answers)| (b, texts(answers))).collect();
    compare("plans", PLANS, &asked, &found);
}

/// 100,000 shardings: their notations, layouts, regions, groups and views.
#[test]
fn shardings_are_those_kept() {
    let asked = asked();
    let found = answers_of(&chosen(&asked, SHARDINGS), |q| shardings::answer(q) + "\n");
    if let Asked::Show(_) = asked {
        found.iter().flat_map(|x| &x.1).for_each(|text| print!("{text}"));
        return;
    }
    compare("shardings", SHARDINGS, &asked, &found);
}
