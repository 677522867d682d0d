//! Makes the plans of one kind of question a number of times, for counting instructions.
//!
//! ```text
//! planner_instructions --list
//! planner_instructions KIND TIMES
//! ```
//!
//! `instructions.sh` runs it under callgrind. One time is one plan of every pair of the kind's list.

use std::hint::black_box;
use std::process::ExitCode;

use reshard_benches::planning::KINDS;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for kind in KINDS {
                println!("{} {}", kind.name, kind.pairs);
            }
            ExitCode::SUCCESS
        }
        [name, times] => {
            let kind = KINDS.iter().find(|k| k.name == name);
            if let (Some(kind), Ok(times)) = (kind, times.parse::<u32>()) {
                let (planner, pairs) = ((kind.planner)(), kind.shardings());
                for _ in 0..times {
                    for (from, to) in &pairs {
                        black_box(planner.plan(black_box(from), black_box(to), 4).expect("a plan"));
                    }
                }
                return ExitCode::SUCCESS;
            }
            eprintln!("there is no kind {name}, or {times} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: planner_instructions --list | KIND TIMES");
            ExitCode::from(2)
        }
    }
}
