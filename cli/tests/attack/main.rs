//! `make attack`: made and mutated requests for every subcommand of the built program, by its batches and by its arguments, and
//! mutated files for all that it reads.
//!
//! The program runs in little memory, and a request fails that
//!
//! ```text
//! ends the program, or is answered with the kind `internal`        a panic, an abort
//! takes longer than PATIENCE                                       a loop over what is only said
//! is answered with what is no JSON object, or without a cost       a wrong answer, `cost_us: null`
//! is refused in more than one line, or in one that steers          a raw escape on somebody's terminal
//! ```
//!
//! `RESHARD_ATTACK_SECONDS` says for how long (3), `RESHARD_ATTACK_SEED` from which seed (1, or `random`); the seed is printed,
//! and the same one makes the same requests.

mod child;
mod files;
mod flags;
mod foreign;
mod library;
mod requests;
mod texts;

#[path = "../program/mod.rs"]
mod program;

use std::time::{Duration, Instant};

use reshard_test_support::Random;

use child::{Batch, Verdict, once};
use requests::{Request, request};

/// How long one request may take, of a test build on a busy machine: planning keeps to a budget, and the slowest propagation that
/// is known takes two seconds there.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is found before the attack ends.
const ENOUGH: usize = 12;

fn seed() -> u64 {
    match std::env::var("RESHARD_ATTACK_SEED").as_deref() {
        Err(_) => 1,
        Ok("random") => std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |time| time.as_nanos() as u64 ^ u64::from(std::process::id())),
        Ok(text) => text.parse().expect("RESHARD_ATTACK_SEED is a number, or `random`"),
    }
}

fn seconds() -> u64 {
    std::env::var("RESHARD_ATTACK_SECONDS").map_or(3, |text| text.parse().expect("a number of seconds"))
}

/// Every case by its own seed, so that one can be looked at alone.
fn case(seed: u64, number: u64) -> Random {
    let mut random =
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
    random.next_u64();
    random.next_u64();
    random
}

#[test]
fn nothing_dies_hangs_or_fills_the_memory() {
    let (seed, seconds) = (seed(), seconds());
    println!("attack: RESHARD_ATTACK_SEED={seed} RESHARD_ATTACK_SECONDS={seconds}");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut batches: [Batch; 10] =
        ["shards", "plan", "view", "rule", "grad", "propagate", "layout", "check", "trace", "random"]
            .map(Batch::new);
    let mut folder = files::Folder::new();
    let mut found: Vec<String> = Vec::new();
    let (mut asked, mut answered) = (0u64, 0u64);
    while Instant::now() < end && found.len() < ENOUGH {
        let mut random = case(seed, asked);
        // One in so many starts a program of its own, which takes as long as hundreds of lines.
        let (shown, verdict) = if asked % 128 == 127 {
            let arguments =
                if random.below(2) == 0 { requests::mesh(&mut random) } else { folder.run(&mut random) };
            (format!("{arguments:?}"), once(&arguments))
        } else {
            let Request { subcommand, line } = request(&mut random);
            let batch = batches.iter_mut().find(|batch| batch.subcommand == subcommand).expect("one of them");
            (format!("{subcommand} --batch <<< '{line}'"), batch.ask(&line))
        };
        match verdict {
            Verdict::Answered => answered += 1,
            Verdict::Refused => {}
            Verdict::Wrong(why) => found.push(format!("case {asked}: {why}\n  {}", requests::cut(&shown))),
        }
        asked += 1;
    }
    println!("attack: {asked} requests, {answered} of them answered, {} wrong", found.len());
    assert!(found.is_empty(), "seed {seed}:\n{}", found.join("\n"));
    // An attack whose every request is refused at the first look attacks nothing.
    assert!(answered * 20 >= asked, "{answered} of {asked}");
}
