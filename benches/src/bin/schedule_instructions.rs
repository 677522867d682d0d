//! Runs a thousand calls, or exchanges, RUNS times, for counting instructions: as a schedule and by a plain
//! loop.
//!
//! ```text
//! schedule_instructions --list
//! schedule_instructions OPERATION RUNS
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use std::hint::black_box;
use std::process::ExitCode;

use reshard_benches::scheduling::{
    Outside, plain, plain_calls, plain_exchanges, prepared, schedule, scheduled,
};

const OPERATIONS: [&str; 4] = ["calls_scheduled", "calls_plain", "exchanges_scheduled", "exchanges_plain"];

fn run(operation: &str, runs: usize) -> Result<(), Outside> {
    let schedule = schedule(operation.starts_with("exchanges")).expect("a program");
    let prepared = prepared(&schedule)?;
    let calls = plain_calls(&schedule);
    let mut arena = vec![0; schedule.arena_bytes()];
    for _ in 0..runs {
        let arena = black_box(&mut arena[..]);
        match operation {
            "calls_plain" => plain(&calls, arena)?,
            "exchanges_plain" => plain_exchanges(schedule.exchanges(), arena)?,
            _ => scheduled(&prepared, arena)?,
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for operation in OPERATIONS {
                println!("{operation}");
            }
            ExitCode::SUCCESS
        }
        [operation, runs] => {
            if let (true, Ok(runs)) = (OPERATIONS.contains(&operation), runs.parse()) {
                run(operation, runs).expect("args inside the arena");
                return ExitCode::SUCCESS;
            }
            eprintln!("unknown operation {operation}, or {runs} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: schedule_instructions --list | OPERATION RUNS");
            ExitCode::from(2)
        }
    }
}
