//! `make attack`: made and mutated requests for every subcommand of the built program, by its batches and by its arguments, and
//! mutated files for all that it reads.
//!
//! The program runs in little memory, and a request fails that
//!
//! ```text
//! ends the program, or is answered with the kind `internal`        a panic, an abort
//! takes longer than PATIENCE                                       a loop over a size from the request
//! is answered without a JSON object, or without a cost             a wrong answer, `cost_us: null`
//! is rejected in several lines, or with control characters         a raw escape on the user's terminal
//! ```
//!
//! `RESHARD_ATTACK_REQUESTS` is the number of requests, `RESHARD_ATTACK_SEED` the seed (1, or `random`); the
//! seed is printed, and the same one makes the same requests, as many on a slow machine as on a fast one.

mod child;
mod files;
mod flags;
mod foreign;
mod library;
mod parsers;
mod requests;
mod texts;

#[path = "../program/mod.rs"]
mod program;

use std::time::Duration;

use reshard_test_support::{Random, seed};

use child::{Batch, Verdict, once};
use requests::{Request, request};

/// The time limit of one request, for a test build on a busy machine.
///
/// Planning has a work budget, and the slowest known propagation takes two seconds there.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of findings that ends the attack.
const ENOUGH: usize = 12;

/// The default number of requests: about three seconds of a test build.
const REQUESTS: u64 = 400;

fn requests() -> u64 {
    std::env::var("RESHARD_ATTACK_REQUESTS")
        .map_or(REQUESTS, |text| text.parse().expect("a number of requests"))
}

/// Returns the generator of one case, whose seed is its own, so that the case can be run alone.
fn case(seed: u64, number: u64) -> Random {
    let mut random =
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
    random.next_u64();
    random.next_u64();
    random
}

#[test]
fn nothing_dies_hangs_or_fills_the_memory() {
    let (seed, requests) = (seed("RESHARD_ATTACK_SEED", 1), requests());
    let again = format!(
        "RESHARD_ATTACK_SEED={seed} RESHARD_ATTACK_REQUESTS={requests} cargo test -p reshard-cli --test attack nothing_dies"
    );
    println!("attack: {again}");
    let mut batches: [Batch; 10] =
        ["shards", "plan", "view", "rule", "grad", "propagate", "layout", "check", "trace", "random"]
            .map(Batch::new);
    let mut folder = files::Folder::new();
    let mut found: Vec<String> = Vec::new();
    let (mut asked, mut answered) = (0u64, 0u64);
    while asked < requests && found.len() < ENOUGH {
        let mut random = case(seed, asked);
        // One in 128 starts a separate program, which takes as long as hundreds of lines.
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
    assert!(found.is_empty(), "{}\nagain: {again}", found.join("\n"));
    // If nearly every request is rejected early, the attack tests nothing.
    assert!(answered * 20 >= asked, "{answered} of {asked}\nagain: {again}");
}
