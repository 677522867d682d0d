//! A custom communicator that fulfils the contract; with an argument, one that does not.
//!
//!     cargo run --release --example own_communicator
//!     cargo run --release --example own_communicator -- OwnTermFirst

#[allow(unreachable_pub, reason = "a module that tests have too")]
mod mailbox;

use std::io::{Write, stdout};
use std::thread;

use mailbox::{Habit, Mailbox};
use reshard_conformance::{ContractOptions, check};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let habit = match std::env::args().nth(1) {
        None => Habit::Sound,
        Some(name) => Habit::WRONG
            .into_iter()
            .find(|habit| format!("{habit:?}") == name)
            .ok_or_else(|| format!("unknown habit {name}; expected one of {:?}", Habit::WRONG))?,
    };
    let ranks: Vec<_> = Mailbox::all(4, habit)
        .into_iter()
        .map(|mut mailbox| thread::spawn(move || check(&mut mailbox, &ContractOptions::quick())))
        .collect();
    for (rank, thread) in ranks.into_iter().enumerate() {
        match thread.join().map_err(|_| "a rank panicked")? {
            Ok(report) => writeln!(stdout(), "rank {rank}: {report}")?,
            Err(failure) => writeln!(stdout(), "rank {rank} broke the contract: {failure}")?,
        }
    }
    Ok(())
}
